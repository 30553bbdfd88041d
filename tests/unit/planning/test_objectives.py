"""Every objective is complete: a number of a candidate, a search, and a gap that is checked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import tessera
from tessera.ir.objectives import COST, LATENCY, SINGLE_OBJECTIVES, THROUGHPUT, Objective
from tessera.ir.plan.verify_predictions import verify_predictions
from tessera.report.plan import plan_text

TRACE = Path(__file__).parents[3] / "examples" / "traces" / "mlp.ptx"
# Their searches prove a bound. One that proves nothing returns 0.
PROVED = {THROUGHPUT, LATENCY, COST}


@pytest.mark.parametrize("objective", SINGLE_OBJECTIVES)
def test_objective(objective: Objective) -> None:
    """A plan for it is consistent, and a gap that does not follow from the bound is noticed."""
    options = tessera.PlanOptions(gpus="a100,l40s", objective=objective)
    plan = tessera.plan(TRACE, options).plan
    assert plan.objective == objective
    assert plan.bound > 0 or objective not in PROVED
    assert list(verify_predictions(plan)) == []
    bound = plan.bound / 2 or 1e-12
    assert list(verify_predictions(replace(plan, bound=bound))) != []
    assert list(verify_predictions(replace(plan, bound=bound * 2, gap=plan.gap + 0.5))) != []


def test_a_plan_without_a_bound_says_so() -> None:
    report = tessera.plan(TRACE, tessera.PlanOptions(gpus="a100,l40s"))
    assert "proven within" in plan_text(report, "plan.tsp")
    unproved = replace(report, plan=replace(report.plan, bound=0.0))
    assert "not proven to be near the best" in plan_text(unproved, "plan.tsp")
    assert "proven within" not in plan_text(unproved, "plan.tsp")
