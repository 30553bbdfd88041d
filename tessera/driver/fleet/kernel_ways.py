"""Splits by kernels: each step where the planner's search puts it, over pairs of kinds.

In: a `WaySearch`. Out: `UnitWay`s. The problem is the planner's: a request of the workload is its
share of prefill and of decode steps; steps that share a cache stay together, and weights are placed
once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations

from tessera.driver.fleet.model_steps import ModelStep
from tessera.driver.fleet.placed_steps import GpuUnit, Places
from tessera.driver.fleet.ways import UnitWay, WaySearch, placed_way
from tessera.ir.objectives import THROUGHPUT
from tessera.ir.plan.costs import Costs
from tessera.ir.program.program import Role
from tessera.planning.problem.plan_problem import Planning, TracePart, problem_of_mix
from tessera.planning.search.candidates import Candidate, splits_requests
from tessera.planning.search.plans import choose
from tessera.planning.search.solve import SolveOptions
from tessera.planning.search.strategies import KERNEL

_MIXED = ((1, 1), (1, 2), (2, 1), (2, 2))
_MOST_WORK = 3_000  # steps times GPUs: some seconds; `tessc plan` has no such limit
_QUICK = SolveOptions(gap=0.01, thorough=False)


def kernel_ways(
    search: WaySearch, layers: Mapping[tuple[int, ...], UnitWay], fits_alone: bool
) -> Iterator[UnitWay]:
    """Each step where the planner's search puts it, over pairs of kinds.

    If one GPU holds the model, over one of each kind; otherwise over the smallest group that does.
    `layers` are the splits by layers of the same groups: batches are as large as theirs.
    """
    for first, second in combinations(range(len(search.offered.kinds)), 2):
        for m, n in _MIXED[:1] if fits_alone else _MIXED:
            counts = search.counts((first, m), (second, n))
            unit = search.unit(counts)
            if unit is None or not (fits_alone or counts in layers):
                continue
            way = _kernel(search, counts, unit, layers.get(counts))
            if way is not None:
                yield way
                break


def too_many_steps(search: WaySearch) -> str:
    """Why no split by kernels was searched for; empty if one was."""
    tasks = len(search.model.decode[-1].ns) + len(search.model.prefill[-1].ns)
    if tasks * 2 <= _MOST_WORK:
        return ""
    return f"not searched here: {tasks} steps are many; `tessc plan` searches them"


def _kernel(
    search: WaySearch, counts: tuple[int, ...], unit: GpuUnit, layers: UnitWay | None
) -> UnitWay | None:
    """The split by kernels that the search finds for the largest batches that fit."""
    model = search.model
    tasks = len(model.decode[-1].ns) + len(model.prefill[-1].ns)
    if tasks * len(unit.kinds) > _MOST_WORK:
        return None
    rows = model.decode[-1].rows if layers is None else max(1, layers.rows)
    lanes = len(unit.kinds) if layers is None else layers.lanes
    for tried in dict.fromkeys((max(1, rows * 3 // 4), max(1, rows // 3))):
        decode = next((s for s in model.decode if s.rows >= tried), model.decode[-1])
        way = _split(search, counts, unit, decode, tried, lanes)
        if way is not None:
            return way
    return None


def _split(
    search: WaySearch,
    counts: tuple[int, ...],
    unit: GpuUnit,
    decode: ModelStep,
    rows: int,
    lanes: int,
) -> UnitWay | None:
    """The split for one decode step, used for all of them."""
    places = split_places(search, unit, decode, rows, lanes)
    if places is None:
        return None
    return placed_way(search, KERNEL, counts, unit, places)


def split_places(
    search: WaySearch, unit: GpuUnit, decode: ModelStep, rows: int, lanes: int
) -> dict[str, Places] | None:
    """Where the planner's search puts each step, with caches for `rows` and `lanes`."""
    model = search.model
    planning = _problem(search, unit, decode, rows, lanes)
    if not all(task.allowed() for task in planning.problem.tasks):
        return None
    choice = choose(planning.problem, THROUGHPUT, _QUICK)
    splits: list[Candidate] = []
    if choice is not None:
        splits = [c for c in choice.candidates if splits_requests(c)]
    if not splits:
        return None
    best = min(splits, key=lambda candidate: candidate.period_ns).replicas[0].placement
    places = {step.name: planning.expand_part(best, 1) for step in model.decode}
    return places | {step.name: planning.expand_part(best, 0) for step in model.prefill}


def _problem(
    search: WaySearch, unit: GpuUnit, decode: ModelStep, rows: int, lanes: int
) -> Planning:
    """A request of the workload as a problem: its share of prefill and of decode steps.

    Caches are those of batches of `rows` sequences, whatever the size of the decode step.
    """
    work, prefill = search.work, search.model.prefill[-1]
    reads = work.prompt / (prefill.rows * prefill.tokens)
    makes = max(work.answer - 1, 1e-6) / decode.rows
    parts = []
    for step, share in ((prefill, reads), (decode, makes)):
        graph = step.trace.graph
        sized = tuple(
            replace(b, bytes=max(1, round(_state_bytes(search, b.name) * rows)))
            if b.role is Role.STATE
            else b
            for b in graph.buffers
        )
        parts.append(
            TracePart(
                name="decode" if step.is_decode else "prefill",
                graph=replace(graph, buffers=sized),
                costs=_on_devices(step, unit),
                requests=share,
            )
        )
    return problem_of_mix(parts, unit.machine, slots=lanes, lanes=lanes)


def _state_bytes(search: WaySearch, name: str) -> float:
    each = search.work.prompt + search.work.answer
    model = search.model
    return model.token_bytes.get(name, 0.0) * each + model.row_bytes.get(name, 0.0)


def _on_devices(step: ModelStep, unit: GpuUnit) -> Costs:
    return Costs(
        tuple(
            replace(row, on_device=tuple(row.on_device[kind] for kind in unit.kinds))
            for row in step.costs.steps
        )
    )
