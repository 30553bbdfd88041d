"""Sequences, as options, commands and the runtime name them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tessera import PlanOptions, Runtime, TesseraError
from tessera.backend.processes.inline import InlineBackend
from tests.helpers.command import tessc
from tests.helpers.plan_files import plan_of
from tests.helpers.traces import COPY, trace
from tests.unit.test_runtime import BUFFERS, STEPS

MLP = Path(__file__).parents[3] / "examples" / "traces" / "mlp.ptx"


def test_a_plan_writes_sequences_as_lanes() -> None:
    assert "lanes=3" in PlanOptions(gpus="a100", sequences=3).text()
    with pytest.raises(ValueError, match="at least 1"):
        PlanOptions(gpus="a100", sequences=0)


def test_a_runtime_knows_its_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    make = lambda choice, model, options: InlineBackend(model, options)  # noqa: E731
    monkeypatch.setattr("tessera.driver.run.serving.make_backend", make)
    plan = plan_of([trace(BUFFERS, COPY, STEPS)], [["a", "b", "a"]], slots=2, lanes=3)
    x = np.full((4, 4), 7, np.float32)
    with Runtime(plan, backend="cpu", sequences=2) as runtime:
        assert runtime.sequences == 2
        runtime.submit({"x": x}, sequence=1).result(300)
        assert runtime.states(sequence=1)["s"][0] == runtime.states(1)["s"][0] == 7
        assert runtime.states(sequence=0)["s"][0] == runtime.states()["s"][0] != 7
        with pytest.raises(TesseraError, match="there is no sequence 2"):
            runtime.submit({"x": x}, sequence=2)
        with pytest.raises(TesseraError, match="`sequence` must be a whole number, not a str"):
            runtime.states(sequence="0")  # type: ignore[arg-type]


def test_both_options_of_a_command_are_one(tmp_path: Path) -> None:
    plans = []
    for option in ("--sequences", "--lanes"):
        target = tmp_path / f"{option}.tsp"
        made = tessc("plan", str(MLP), "--gpus", "a100", option, "3", "-o", str(target))
        assert made.code == 0, made.err
        plans.append(target.read_bytes())
    assert plans[0] == plans[1]
    assert b" lanes=3 " in plans[0]


@pytest.mark.parametrize("option", ["--sequences", "--lanes"])
def test_a_trace_has_no_sequences(option: str) -> None:
    refused = tessc("run", str(MLP), option, "2")
    assert refused.code == 2
    assert "`--sequences` is for plans only" in refused.err
