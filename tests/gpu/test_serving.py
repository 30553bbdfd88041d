"""An engine on a real GPU that hands decode steps over ahead: tokens are those of a plain loop.

`benchmarks/serving/h200.py` does the same with an 8B model.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import tessera
from benchmarks.serving.tokens import Loop, by_engine, mixed
from tessera.backend.cuda.doctor import check_machine

TRACES = Path(__file__).parents[2] / "examples" / "traces"
MACHINE = check_machine()

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not MACHINE.gpus, reason=f"no GPU: {MACHINE.problem}"),
]


@pytest.mark.parametrize("family", ["gpt", "recurrent"])
def test_tokens_of_steps_handed_over_ahead_are_those_of_a_plain_loop(family: str) -> None:
    """Sequences join, leave, stop and are given up; those of `gpt` are sampled, every second."""
    traces = [f"{TRACES}/{family}_steps_prefill.ptx:1", f"{TRACES}/{family}_steps_decode.ptx:4"]
    options = tessera.PlanOptions(gpus="h200", strategy="single", slots=1, sequences=1)
    plan = tessera.plan(traces, options).plan
    targets = {device.name: "cuda:0" for device in plan.devices}
    asked = mixed(64, 64, (1, 9), (1, 12), sampled=family == "gpt")
    with tessera.Runtime(plan, backend="cuda", targets=targets) as runtime:
        right = Loop(runtime=runtime).answers(asked)
    for batches, look_ahead in ((1, True), (2, True), (1, False)):
        with tessera.Engine(
            plan,
            backend="cuda",
            targets=targets,
            sequences=batches,
            slots=batches,
            isolated=False,
            look_ahead=look_ahead,
        ) as engine:
            row = by_engine(engine, asked, right, 30)
            # How often that is possible while others join depends on how busy the machine is.
            before = engine.steps_ahead
            engine.generate([[1, 2, 3]], max_tokens=8, ignore_end=True)
            assert (engine.steps_ahead > before) is look_ahead
        assert row["first_difference"] is None
        assert row["sequences_equal"] == len(asked)
        assert row["ended"]["stop"]
        assert row["ended"]["cancelled"]
        assert look_ahead or not row["handed_over_ahead"]
