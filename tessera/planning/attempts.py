"""The numbers of slots and sequences to search with, and the resulting problem.

In: a `PlanSetting`. Out: attempts, the preferred one first; attempts with fewer slots follow, in
case memory is short.

Over very many devices, the first attempt has the number of slots at which runs of tasks over the
devices are fastest by an estimate. More slots keep more devices busy, and take memory for the
states of their sequences. So a range of slots has a bound, which combines the memory of its
smallest number with the requests under way of its largest. Ranges are halved, the one with the
smallest bound first, until that bound is near the best estimate.

If memory is short, a search with four slots misses a data parallel plan that has room for two. So
there are also a search with two slots, the usual plans without a search for one slot, and a bound
for any number of slots (`with_fewer_slots`, `bound_of_any`). The number of slots of a plan is found
by simulation (`promise.trial`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import isqrt

from tessera.ir.graph.access import AccessKind
from tessera.ir.objectives import THROUGHPUT, Objective
from tessera.ir.program.program import Role
from tessera.passes.dependences.pointer_words import moved_words
from tessera.planning.bound.class_model import class_bound
from tessera.planning.given.options import Watch
from tessera.planning.given.setting import Attempt, PlanSetting
from tessera.planning.given.setting_problem import (
    build_problem,
    is_short,
    packed_slot_bytes,
    private_bytes,
)
from tessera.planning.problem.device_types import DIRECT_DEVICES
from tessera.planning.problem.limits import ENDLESS, SearchWatch
from tessera.planning.problem.plan_problem import (
    Planning,
)
from tessera.planning.problem.problem import INFINITY, Problem
from tessera.planning.promise.contention import has_neighbours
from tessera.planning.promise.trial import MOST_SLOTS
from tessera.planning.roles.role_plans import with_roles
from tessera.planning.search.candidates import one_placement
from tessera.planning.search.many import fits_one_device, is_large, runs_of
from tessera.planning.search.plans import Choice, choose, least_of, rank
from tessera.planning.search.solve import SolveOptions
from tessera.planning.search.strategies import usual_candidates

_FEW = 2


def may_be_fewer(setting: PlanSetting, attempt: Attempt, choice: Choice) -> bool:
    """Whether plans with fewer slots may fit that do not fit with the slots of this attempt."""
    options = setting.options
    return (
        options.slots is None
        and attempt.slots > 1
        and not choice.objective.is_of_one_request
        and choice.ended.is_search
        and not has_neighbours(setting)
        and is_short(setting, attempt.slots, attempt.lanes)
    )


def with_fewer_slots(
    setting: PlanSetting,
    attempt: Attempt,
    choice: Choice,
    search: Callable[[Attempt], Choice | None],
) -> Iterator[tuple[Attempt, Choice]]:
    """The search with few slots, and the usual plans if only one request at a time fits.

    Few slots keep few devices busy, so this search is skipped with more devices.
    """
    if not may_be_fewer(setting, attempt, choice):
        return
    sequences = setting.options.sequences
    if attempt.slots > _FEW and len(setting.machine.devices) <= DIRECT_DEVICES:
        few = attempt_with(setting, _FEW, sequences or _FEW)
        searched = search(few)
        if searched is not None:
            yield few, searched
    least = attempt_with(setting, 1, sequences or 1)
    usual = rank(usual_candidates(least.planning.problem), choice.objective)
    with_one = with_roles(setting, least, replace(choice, candidates=usual), ENDLESS)
    if with_one is not None and with_one.candidates:
        yield least, with_one


def attempt_with(setting: PlanSetting, slots: int, lanes: int) -> Attempt:
    """The attempt with these numbers of slots and sequences."""
    return Attempt(slots=slots, lanes=lanes, planning=build_problem(setting, slots, lanes))


def bound_of_any(
    setting: PlanSetting, attempt: Attempt, objective: Objective, watch: Watch
) -> float:
    """A bound on plans with at most the slots of an attempt; infinite if memory is not short.

    So the proven gap of a plan with more slots also covers plans with fewer.
    """
    if attempt.slots == 1 or not is_short(setting, attempt.slots, attempt.lanes):
        return INFINITY
    planning = build_problem(setting, 1, setting.options.sequences or 1, slot_bytes=0)
    limits = SearchWatch(deadline=watch.deadline, should_stop=watch.should_stop)
    return least_of(planning.problem, objective, limits)


Build = Callable[[int], Planning]
_NEAR = 1.02
_MOST_PROBLEMS = 12
_STEPS = (3, 1)  # distances from the best number of slots, tried last
_AS_GOOD = 1.003
_SPARE = 8
"""One slot in this many is spare: requests wait for each other a little, which estimates leave out.

The number of slots of a plan is found by simulation; these slots have to fit in memory.
"""


class _Ranges:
    """Ranges of slots, each with its bound and the problem of its smallest number of slots."""

    def __init__(self, build: Build) -> None:
        self._build = build
        self.heap: list[tuple[float, int, int]] = []
        self.problems: dict[int, Planning] = {}
        self.best: tuple[float, int] = (INFINITY, 1)
        self.estimates: dict[int, float] = {}

    def add(self, first: int, last: int) -> None:
        """Add a range with its bound."""
        self.try_slots(first)
        bound = class_bound(self.problems[first].problem, last)
        if bound < INFINITY:
            heapq.heappush(self.heap, (bound, first, last))

    def try_slots(self, slots: int) -> None:
        """Estimate the period with a number of slots, and keep the best."""
        if slots in self.problems:
            return
        self.problems[slots] = self._build(slots)
        problem = self.problems[slots].problem
        loads = class_bound(problem, None)
        if loads < INFINITY:
            self.estimates[slots] = _estimate(problem, loads)
            self.best = min(self.best, (self.estimates[slots], slots))

    def is_near(self) -> bool:
        """Whether the best estimate is near the bound."""
        return not self.heap or self.best[0] <= _NEAR * self.heap[0][0]


def _estimate(problem: Problem, least: float) -> float:
    return min(
        (one_placement(problem, "", placement).period_ns for placement in runs_of(problem, least)),
        default=INFINITY,
    )


def attempt_for_many(setting: PlanSetting, build: Build) -> Attempt | None:
    """The attempt to begin with; None if one device holds all tasks or a search is quick."""
    lanes = setting.options.sequences
    ranges = _Ranges(build)
    problem = build(1).problem
    if not is_large(problem) or fits_one_device(problem):
        return None
    ranges.add(1, MOST_SLOTS)
    while ranges.heap and len(ranges.problems) < _MOST_PROBLEMS:
        _, first, last = ranges.heap[0]
        if first == last or ranges.is_near():
            break
        heapq.heappop(ranges.heap)
        middle = max(first + 1, isqrt(first * last))
        ranges.add(first, middle - 1)
        ranges.add(middle, last)
    for step in () if ranges.is_near() else _STEPS:
        for slots in (ranges.best[1] - step, ranges.best[1] + step):
            ranges.try_slots(max(1, min(slots, MOST_SLOTS)))
    period, slots = ranges.best
    if not ranges.heap or period == INFINITY:
        return None
    more = min(MOST_SLOTS, slots + max(1, slots // _SPARE))
    ranges.try_slots(more)
    if ranges.estimates.get(more, INFINITY) <= _AS_GOOD * period:
        slots = more
    return Attempt(
        slots=slots,
        lanes=lanes or slots,
        planning=ranges.problems[slots],
        least_ns=ranges.heap[0][0],
    )


AUTO_SLOTS = (4, 2, 1)


def attempts(setting: PlanSetting) -> Iterator[Attempt]:
    """Slots and sequences to try, the preferred numbers first."""
    options = setting.options
    counts: tuple[int, ...] = AUTO_SLOTS
    if runs_alone(setting) or (options.aim.is_of_one_request and options.slots is None):
        counts = (1,)
    elif options.slots is not None:
        counts = (options.slots,)
    elif options.aim.is_rate:
        first = attempt_for_many(
            setting, lambda slots: build_problem(setting, slots, options.sequences or slots)
        )
        if first is not None:
            yield first
    for slots in counts:
        lanes = options.sequences or slots
        yield attempt_with(setting, slots, lanes)
    # If nothing fits, a layout in which buffers share bytes may fit.
    packed = packed_slot_bytes(setting)
    if packed < max(map(private_bytes, setting.traces)):
        planning = build_problem(setting, slots, lanes, slot_bytes=packed)
        yield Attempt(slots=slots, lanes=lanes, planning=planning)


def runs_alone(setting: PlanSetting) -> str:
    """Why only one request runs at a time; empty if there is no reason.

    A launch may write a module variable, or addresses in a state, which exist only once.
    """
    for trace in setting.traces:
        for node in trace.graph.nodes:
            for access in node.accesses:
                buffer = trace.graph.buffers[access.buffer]
                if buffer.role is Role.VARIABLE and access.kind is not AccessKind.READ:
                    return f"k{node.id} {node.name} may write the module variable {buffer.name}"
        for node, state in moved_words(trace.program, trace.graph):
            return f"k{node.id} {node.name} may overwrite addresses in the state {state.name}"
    return ""


_ANY = SolveOptions(gap=1.0, max_nodes=1, thorough=False, any_plan=True)


def what_fits(setting: PlanSetting) -> str:
    """The most slots and sequences that have a plan, if the user asked for more."""
    options = setting.options
    most = max(options.slots or 1, options.sequences or 1)
    low, high = 0, most  # a plan exists with at most `low` of each, and none with `high`
    while high > 1 and high - low > max(1, low // 8):
        middle = (low + high) // 2
        slots, lanes = min(options.slots or 1, middle), min(options.sequences or 1, middle)
        problem = build_problem(setting, slots, lanes).problem
        if choose(problem, THROUGHPUT, _ANY) is None:
            high = middle
        else:
            low = middle
    if low == 0:
        return ""
    asked = (("--slots", options.slots), ("--sequences", options.sequences))
    return " ".join(f"{name} {min(count, low)}" for name, count in asked if count is not None)
