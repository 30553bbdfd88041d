"""Sequences by their name and by their old one, `lanes`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tessera import PlanOptions, PlanRunOptions, Runtime, TesseraError
from tessera.backend.processes.inline import InlineBackend
from tests.helpers.command import tessc
from tests.helpers.plan_files import plan_of
from tests.helpers.traces import COPY, trace
from tests.unit.test_runtime import BUFFERS, STEPS

MLP = Path(__file__).parents[3] / "examples" / "traces" / "mlp.ptx"
RECORDS: tuple[Callable[..., Any], ...] = (PlanOptions, PlanRunOptions)


@pytest.mark.parametrize("record", RECORDS)
def test_options_take_both_names(record: Callable[..., Any]) -> None:
    old, new = record(lanes=3), record(sequences=3)
    assert old == new
    assert (old.lanes, old.sequences) == (new.lanes, new.sequences) == (3, 3)
    assert replace(old, lanes=4) == replace(old, sequences=4) == record(sequences=4)
    assert replace(old, slots=2) == record(slots=2, sequences=3)
    with pytest.raises(ValueError, match="`lanes` is the old name of `sequences`"):
        record(lanes=3, sequences=3)


def test_what_decides_a_plan_is_written_as_before() -> None:
    assert "lanes=3" in PlanOptions(gpus="a100", sequences=3).text()
    with pytest.raises(ValueError, match="at least 1"):
        PlanOptions(gpus="a100", lanes=0)  # type: ignore[call-arg]


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    make = lambda choice, model, options: InlineBackend(model, options)  # noqa: E731
    monkeypatch.setattr("tessera.driver.run.serving.make_backend", make)


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize(("many", "which"), [("lanes", "lane"), ("sequences", "sequence")])
def test_a_runtime_takes_both_names(many: str, which: str) -> None:
    plan = plan_of([trace(BUFFERS, COPY, STEPS)], [["a", "b", "a"]], slots=2, lanes=3)
    x = np.full((4, 4), 7, np.float32)
    with Runtime(plan, backend="cpu", **{many: 2}) as runtime:
        assert (runtime.sequences, runtime.lanes) == (2, 2)
        runtime.submit({"x": x}, **{which: 1}).result(300)
        assert runtime.states(**{which: 1})["s"][0] == runtime.states(1)["s"][0] == 7
        assert runtime.states(**{which: 0})["s"][0] == runtime.states()["s"][0] != 7
        with pytest.raises(TesseraError, match=f"there is no {which} 2"):
            runtime.submit({"x": x}, **{which: 2})
        with pytest.raises(TesseraError, match=f"`{which}` must be a whole number, not a str"):
            runtime.states(**{which: "0"})


@pytest.mark.usefixtures("inline")
def test_a_runtime_refuses_both_names_at_once() -> None:
    plan = plan_of([trace(BUFFERS, COPY, STEPS)], [["a", "b", "a"]], slots=2, lanes=3)
    said = "is the old name of `sequence"
    with pytest.raises(TesseraError, match=said):
        Runtime(plan, backend="cpu", sequences=2, lanes=2)
    with Runtime(plan, backend="cpu") as runtime:
        for both in ({"sequence": 0, "lane": 0}, {"sequence": 0, "lane": 1}):
            with pytest.raises(TesseraError, match=said):
                runtime.submit({"x": np.zeros((4, 4), np.float32)}, **both)
            with pytest.raises(TesseraError, match=said):
                runtime.states(**both)


def test_commands_take_both_names(tmp_path: Path) -> None:
    plans = []
    for option in ("--sequences", "--lanes"):
        target = tmp_path / f"{option}.tsp"
        made = tessc("plan", str(MLP), "--gpus", "a100", option, "3", "-o", str(target))
        assert made.code == 0, made.err
        plans.append(target.read_bytes())
    assert plans[0] == plans[1]
    assert b" lanes=3 " in plans[0]
    both = ("--sequences", "3", "--lanes", "3")
    said = "`--lanes` is the old name of `--sequences`: give one of them"
    refused = tessc("plan", str(MLP), "--gpus", "a100", *both, "-o", str(tmp_path / "no.tsp"))
    assert (refused.code, said in refused.err) == (2, True)
    assert not (tmp_path / "no.tsp").exists()
    refused = tessc("run", str(target), *both)
    assert (refused.code, said in refused.err) == (2, True)


@pytest.mark.parametrize("option", ["--sequences", "--lanes"])
def test_a_trace_has_no_sequences(option: str) -> None:
    refused = tessc("run", str(MLP), option, "2")
    assert refused.code == 2
    assert f"`{option}` is for plans only" in refused.err
