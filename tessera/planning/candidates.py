"""Candidates for placements that are given, measured as the planner measures its own."""

from __future__ import annotations

from tessera.passes.partition_baselines import best_baseline
from tessera.passes.partition_plans import Candidate, _baselines, _candidate
from tessera.passes.partition_problem import Placement, Problem

STRATEGY_NAMES = ("single", "dp", "layers", "phase", "attention", "kernel")


def candidate_of(
    problem: Problem, name: str, parts: tuple[tuple[Placement, float], ...]
) -> Candidate:
    """Placements and their rates, which become shares."""
    return _candidate(problem, name, parts)


def strategy_candidate(problem: Problem, strategy: str) -> Candidate | None:
    """A baseline by name; None if it has no plan here."""
    if strategy == "dp":
        return next((one for one in _baselines(problem) if one.name == "dp"), None)
    placement = best_baseline(problem, strategy)
    return None if placement is None else candidate_of(problem, strategy, ((placement, 1.0),))
