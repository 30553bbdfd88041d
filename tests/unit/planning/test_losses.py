"""What eats the rest: parts that add up to the period, the first of them a bound."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tessera.driver.plan import PlanOptions, plan
from tessera.planning.bound.relax import spread_bound
from tessera.planning.insight import TIMES_ALONE, Losses, find_losses
from tessera.planning.search.candidates import one_placement
from tessera.report.plan import plan_text
from tests.helpers.planning import every_placement, random_problem
from tests.helpers.share import share

MLP = Path(__file__).parents[3] / "examples" / "traces" / "mlp.ptx"


def test_the_parts_add_up_to_the_period_and_are_said() -> None:
    report = plan(MLP, PlanOptions(gpus="a100,l40s", link="1Gb/s"), compare=False)
    split, losses = report.decision.split, report.insight.losses
    assert split is not None
    assert losses is not None
    assert losses.parts[0][0] == TIMES_ALONE
    assert all(ns > 0 for _, ns in losses.parts)
    assert sum(ns for _, ns in losses.parts) == pytest.approx(split.chosen.period_ns)
    # The times alone do not know the bound of this plan.
    assert losses.parts[0] == find_losses(split, 0.0).parts[0]
    for rest, is_said in ((8.0, True), (0.5, False)):
        parts = ((TIMES_ALONE, 10.0), ("some limit", rest))
        insight = replace(report.insight, losses=Losses(name="kernel", parts=parts))
        said = plan_text(replace(report, insight=insight), "plan.tsp")
        assert ("of what times alone allow; per request:" in said) is is_said
        assert ("+ 8 ns  some limit" in said) is is_said


@pytest.mark.parametrize("seed", share(range(8)))
def test_no_placement_beats_the_times_alone(seed: int) -> None:
    problem = random_problem(seed, 6, 3)
    least = min(one_placement(problem, "", place).period_ns for place in every_placement(problem))
    assert spread_bound(problem) <= least * (1 + 1e-9)
