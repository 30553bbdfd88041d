"""Every objective is complete: a number of a candidate, a search, and a gap that is checked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import tessera
from tessera.ir.choices import SINGLE_OBJECTIVES, Objective
from tessera.ir.plan.verify_predictions import verify_predictions

TRACE = Path(__file__).parents[3] / "examples" / "traces" / "mlp.ptx"


@pytest.mark.parametrize("objective", SINGLE_OBJECTIVES)
def test_objective(objective: Objective) -> None:
    """A plan for it is consistent, and a wrong gap is noticed."""
    options = tessera.PlanOptions(gpus="a100,l40s", objective=objective)
    plan = tessera.plan(TRACE, options).plan
    assert plan.objective == objective
    assert plan.bound > 0
    assert list(verify_predictions(plan)) == []
    assert list(verify_predictions(replace(plan, gap=plan.gap + 0.5))) != []
