"""Real models, placed at random, compute on several devices what they compute on one."""

from __future__ import annotations

from pathlib import Path

import pytest

import tessera
from tessera.driver.run.run_plan import PlanRunOptions, prepare_run, run_prepared
from tessera.driver.run.verify import verify_run
from tessera.ir.plan.print_plan import print_plan

TRACES = Path(__file__).parents[4] / "examples" / "traces"


def check(tmp_path: Path, names: tuple[str, ...], gpus: str, seed: int, slots: int) -> None:
    for name in names:
        contents = TRACES / f"{name}.npz"
        if contents.exists():
            (tmp_path / contents.name).write_bytes(contents.read_bytes())
    options = tessera.PlanOptions(gpus=gpus, placement=f"random:{seed}", slots=slots, sequences=2)
    plan = tessera.plan([TRACES / f"{name}.ptx" for name in names], options).plan
    path = tmp_path / "plan.tsp"
    path.write_text(print_plan(plan))
    prepared = prepare_run(path, PlanRunOptions(requests=4, backend="cpu"))
    outcome = run_prepared(prepared)
    assert outcome.fault == ()
    assert verify_run(outcome, prepared).requests == 4
    ran = {event.device for event in outcome.events() if event.step is not None}
    assert len(ran) == len(gpus.split(","))
    assert outcome.figures().bytes_between > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    "names",
    [("mlp",), ("dit",), ("moe",), ("mamba",), ("mmdit",), ("llama_prefill", "llama_decode")],
    ids="+".join,
)
def test_models(tmp_path: Path, names: tuple[str, ...], seed: int) -> None:
    check(tmp_path, names, "h100,h200", seed=seed, slots=seed)
