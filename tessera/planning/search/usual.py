"""What people would do without a search, as candidates that a plan is held against.

In: a `Problem`. Out: each strategy at its best, each kind of device alone, all devices apart (data
parallelism). `search.baselines` has the placements behind them.
"""

from __future__ import annotations

from tessera.ir.choices import Strategy
from tessera.planning.problem.device_types import types_of, usable_devices
from tessera.planning.problem.problem import INFINITY, Placement, Problem, measure, runs
from tessera.planning.search.baselines import best_baseline
from tessera.planning.search.candidates import Candidate, candidate_of, one_placement, with_rates

_COARSE = (Strategy.LAYERS, Strategy.PHASE, Strategy.ATTENTION, Strategy.KERNEL)


def usual_candidates(problem: Problem) -> list[Candidate]:
    """What people would do: each strategy at its best, each kind of device alone, all apart."""
    candidates: list[Candidate | None] = [
        one_placement(problem, f"single:{problem.devices[group[0]]}", _alone(problem, group[0]))
        for group in types_of(problem)
        if _fits_alone(problem, group[0])
    ]
    devices = usable_devices(problem)
    if len(devices) > 1:
        candidates.append(_data_parallel(problem))
        candidates += [strategy_candidate(problem, name) for name in _COARSE]
    return [
        candidate
        for candidate in candidates
        if candidate is not None and candidate.period_ns < INFINITY
    ]


def strategy_candidate(problem: Problem, strategy: str) -> Candidate | None:
    """A baseline by name; None if it has no plan here. A split by kernels is one without search."""
    if strategy == Strategy.DP:
        return _data_parallel(problem)
    placement = best_baseline(problem, strategy)
    if placement is None:
        return None
    name = f"single:{problem.devices[placement[0]]}" if strategy == Strategy.SINGLE else strategy
    candidate = one_placement(problem, name, placement)
    return candidate if candidate.period_ns < INFINITY else None


def _data_parallel(problem: Problem) -> Candidate | None:
    """Every device that holds the whole model serves requests of its own."""
    devices = [d for d in range(len(problem.devices)) if _fits_alone(problem, d)]
    if len(devices) < 2:
        return None
    parts = with_rates(problem, [_alone(problem, device) for device in devices])
    candidate = candidate_of(problem, Strategy.DP, parts)
    return candidate if candidate.period_ns < INFINITY else None


def _alone(problem: Problem, device: int) -> Placement:
    return (device,) * len(problem.tasks)


def _fits_alone(problem: Problem, device: int) -> bool:
    alone = _alone(problem, device)
    return runs(problem, alone) and measure(problem, alone).fits
