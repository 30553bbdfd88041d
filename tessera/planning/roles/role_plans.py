"""Plans with roles beside the others: replicas that serve some traces of a mix only.

In: a `PlanSetting`, an `Attempt`, and what was found without roles. Out: candidates `roles` and
`phase`, a bound that holds for them too, or the reason why there are none.

The parts that a plan may have are what the searches give for single devices and for groups of them:
for each trace alone, and for all traces together. `shares` takes some of these parts and shares
requests among them. With `phase`, every part serves one trace, so a device has one role.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tessera.ir.choices import Ending
from tessera.ir.program.program import Role
from tessera.planning.given.setting import Attempt, KnownPlacements, PlanSetting
from tessera.planning.given.setting_problem import build_problem
from tessera.planning.problem.device_types import DIRECT_DEVICES, types_of, usable_devices
from tessera.planning.problem.limits import ENDLESS, SearchWatch
from tessera.planning.problem.plan_problem import Planning
from tessera.planning.problem.problem import (
    Placement,
    Problem,
    keep_devices,
    measure,
    runs,
)
from tessera.planning.problem.role_parts import RoleMix, RolePart, Sequences
from tessera.planning.roles.role_candidate import role_candidate, shared_again
from tessera.planning.roles.sequences import find_sequences
from tessera.planning.roles.shares import LEAST_SHARE, best_shares
from tessera.planning.search.candidates import Candidate
from tessera.planning.search.many import solve_many
from tessera.planning.search.plans import Choice, least_period, rank
from tessera.planning.search.solve import SolveOptions
from tessera.planning.search.strategies import LAYERS, PHASE, ROLES

_BRIEF = SolveOptions(gap=0.01, max_nodes=1, thorough=False, any_plan=True)
_MOST_DEVICES = 16
"""More devices are not searched one by one."""

_MOST_TASKS = 4_000
"""Tasks times devices of a group, above which it has runs of tasks, one for each device."""


@dataclass(frozen=True, slots=True)
class RolePlans:
    """Candidates with roles; `refusals` say why there is none of a name."""

    candidates: tuple[Candidate, ...]
    refusals: Mapping[str, str]

    def best_of(self, name: str) -> Candidate | None:
        """The candidate of a name with the least period."""
        named = (candidate for candidate in self.candidates if candidate.name == name)
        return min(named, key=lambda candidate: candidate.period_ns, default=None)


def may_have_roles(setting: PlanSetting) -> bool:
    """Whether plans with roles are looked for: a mix on several devices, for a rate."""
    return (
        len(setting.traces) > 1
        and len(setting.machine.devices) > 1
        and setting.options.aim.is_rate
        and not any(trace.planned.division for trace in setting.traces)
    )


def find_role_plans(
    setting: PlanSetting,
    attempt: Attempt,
    known: Iterable[Candidate],
    watch: SearchWatch,
) -> RolePlans:
    """The best plans with roles; `known` are plans without them, whose replicas may be parts."""
    sequences: Sequences | str = f"roles are looked for on at most {_MOST_DEVICES} GPUs"
    if len(setting.machine.devices) <= _MOST_DEVICES:
        sequences = find_sequences(setting.traces)
    if isinstance(sequences, str):
        return RolePlans((), {PHASE: sequences, ROLES: sequences})
    problem = attempt.planning.problem
    every = tuple(range(len(setting.traces)))
    parts: list[RolePart] = []
    for traces in (*((trace,) for trace in every), every):
        planning = planning_of(setting, attempt, traces)
        placements = _placements(planning.problem, traces, setting.known, watch)
        if traces == every:
            placements = itertools.chain(placements, _of_known(known))
        parts += _parts(setting, planning, traces, dict.fromkeys(placements), sequences)
    made: list[Candidate] = []
    refusals: dict[str, str] = {}
    for name in (PHASE, ROLES):
        own = [part for part in parts if name == ROLES or len(part.traces) == 1]
        # Loads do not show how long requests wait for each other in parts of several devices.
        whole = [part for part in own if len(set(part.placement)) == 1]
        for some in (whole, own) if len(whole) < len(own) else (own,):
            best = _best(problem, name, some, sequences, watch)
            if best is None:
                refusals[name] = _why_none(setting, some)
            elif _is_plain(best):
                refusals[name] = "equal shares of all traces are best, which `dp` and others have"
            else:
                made.append(best)
    return RolePlans(tuple(made), refusals)


def asked_roles(setting: PlanSetting, attempt: Attempt) -> tuple[Candidate | None, str] | None:
    """The candidate of a strategy with roles, or why it has none; None if none is asked for."""
    form = setting.options.form
    if form == ROLES and not may_have_roles(setting):
        return None, "roles are looked for with several traces and GPUs, for throughput or cost"
    if form not in (PHASE, ROLES) or not may_have_roles(setting):
        return None
    plans = find_role_plans(setting, attempt, (), ENDLESS)
    return plans.best_of(form), plans.refusals.get(form, "")


def with_roles(
    setting: PlanSetting, attempt: Attempt, choice: Choice | None, watch: SearchWatch
) -> Choice | None:
    """What a search found, and plans with roles, ranked."""
    if not may_have_roles(setting):
        return choice
    known = () if choice is None else choice.candidates
    plain = [candidate for candidate in known if candidate.name != PHASE]
    plans = find_role_plans(setting, attempt, plain, watch)
    ranked = rank((*plain, *plans.candidates), setting.options.aim)
    if choice is not None:
        return replace(choice, candidates=ranked)
    if not ranked:
        return None
    return Choice(objective=setting.options.aim, candidates=ranked, bound=0.0, ended=Ending.SEARCH)


def role_bound(setting: PlanSetting, watch: SearchWatch) -> float:
    """A bound on plans with roles: any slots and sequences, and states where each trace has them.

    A replica has a share of each trace, so a plan shares the requests of each trace among
    placements. The relaxation, in which tasks may be in several places in part, holds for that.
    """
    sequences = setting.options.sequences or 1
    planning = build_problem(setting, 1, sequences, slot_bytes=0, are_apart=True)
    return least_period(planning.problem, watch)


def planning_of(setting: PlanSetting, attempt: Attempt, traces: tuple[int, ...]) -> Planning:
    """The planning of some of the traces, with the slots and sequences of an attempt."""
    if len(traces) == len(setting.traces):
        return attempt.planning
    some = replace(
        setting,
        traces=tuple(setting.traces[trace] for trace in traces),
        costs=tuple(setting.costs[trace] for trace in traces),
        lowering=setting.lowering.role(traces),
    )
    return build_problem(some, attempt.slots, attempt.lanes)


# --- parts ---------------------------------------------------------------------------------------


def _placements(
    problem: Problem, traces: tuple[int, ...], known: KnownPlacements, watch: SearchWatch
) -> Iterator[Placement]:
    """Every device alone, then groups of devices as a short search uses them."""
    if not all(task.allowed() for task in problem.tasks):
        return
    devices = usable_devices(problem)
    whole = [(device,) * len(problem.tasks) for device in devices]
    yield from whole
    if len(devices) > DIRECT_DEVICES and all(measure(problem, alone).fits for alone in whole):
        return
    kinds = {d: number for number, kind in enumerate(types_of(problem)) for d in kind}
    solved: dict[tuple[int, ...], Placement | None] = {}
    for group in _groups(problem, devices):
        shape = tuple(kinds[device] for device in group)
        if shape not in solved:
            solved[shape] = _inside(keep_devices(problem, group), traces, known, watch)
        placement = solved[shape]
        if placement is not None:
            yield tuple(group[device] for device in placement)


def _inside(
    problem: Problem, traces: tuple[int, ...], known: KnownPlacements, watch: SearchWatch
) -> Placement | None:
    """A placement over all devices of a problem, by a short search."""
    before = known.of.get((traces, problem.devices))
    if before is not None and runs(problem, before) and measure(problem, before).fits:
        return before
    if watch.over() or not all(task.allowed() for task in problem.tasks):
        return None
    if len(problem.devices) * len(problem.tasks) > _MOST_TASKS:
        placement = LAYERS.best_placement(problem)
    else:
        placement = solve_many(problem, _BRIEF, should_stop=watch.should_stop).placement
    if placement is not None:
        known.of[traces, problem.devices] = placement
    return placement


def _groups(problem: Problem, devices: Sequence[int]) -> list[tuple[int, ...]]:
    """Groups of devices: all of two or more if there are few, else types, their halves, and all."""
    if len(devices) <= DIRECT_DEVICES:
        sizes = range(2, len(devices) + 1)
        return [group for size in sizes for group in itertools.combinations(devices, size)]
    groups: list[tuple[int, ...]] = []
    for kind in types_of(problem):
        half = len(kind) // 2
        groups += [kind, kind[:half], kind[half:]]
    return [group for group in dict.fromkeys((*groups, tuple(devices))) if len(group) > 1]


def _of_known(known: Iterable[Candidate]) -> Iterator[Placement]:
    for candidate in known:
        if candidate.roles is None:
            yield from (replica.placement for replica in candidate.replicas)


def _parts(
    setting: PlanSetting,
    planning: Planning,
    traces: tuple[int, ...],
    placements: Iterable[Placement],
    sequences: Sequences,
) -> Iterator[RolePart]:
    """Parts with these placements, as far as they fit alone."""
    handed = {name for name, _ in sequences.states}
    for placement in placements:
        if runs(planning.problem, placement) and measure(planning.problem, placement).fits:
            homes = _homes(setting, planning, traces, placement, handed)
            yield RolePart(traces=traces, planning=planning, placement=placement, homes=homes)


def _homes(
    setting: PlanSetting,
    planning: Planning,
    traces: tuple[int, ...],
    placement: Placement,
    handed: set[str],
) -> tuple[tuple[str, int], ...]:
    """The device of each state that is handed over: all steps that touch it are there."""
    homes: dict[str, int] = {}
    for number, trace in enumerate(traces):
        graph = setting.traces[trace].graph
        devices = planning.expand_part(placement, number)
        for node in graph.nodes:
            for access in node.accesses:
                buffer = graph.buffers[access.buffer]
                if buffer.role is Role.STATE and buffer.name in handed:
                    homes.setdefault(buffer.name, devices[int(node.id)])
    return tuple(sorted(homes.items()))


def with_part_moved(
    setting: PlanSetting, problem: Problem, candidate: Candidate, number: int, placement: Placement
) -> Candidate | None:
    """A plan with roles with another placement of one replica; None if it cannot run or fit."""
    assert candidate.roles is not None
    mix = candidate.roles
    part = mix.parts[number]
    moved = next(_parts(setting, part.planning, part.traces, (placement,), mix.sequences), None)
    if moved is None:
        return None
    parts = (*mix.parts[:number], moved, *mix.parts[number + 1 :])
    return shared_again(problem, replace(candidate, roles=replace(mix, parts=parts)), ENDLESS)


# --- choice --------------------------------------------------------------------------------------


def _best(
    problem: Problem,
    name: str,
    parts: Sequence[RolePart],
    sequences: Sequences,
    watch: SearchWatch,
) -> Candidate | None:
    mix = RoleMix(parts=tuple(parts), sequences=sequences)
    shares = best_shares(problem, mix, watch)
    return None if shares is None else role_candidate(problem, name, mix, shares)


def _is_plain(candidate: Candidate) -> bool:
    """Whether every replica serves the same share of all traces: a plan without roles."""
    return all(max(r.shares) - min(r.shares) <= LEAST_SHARE for r in candidate.replicas)


def _why_none(setting: PlanSetting, parts: Sequence[RolePart]) -> str:
    """The first trace that no part serves, or that parts are not apart or not connected."""
    for number, trace in enumerate(setting.traces):
        if not any(number in part.traces for part in parts):
            return f"no GPU or group of GPUs has the memory for `{trace.planned.name}`"
    return "no GPUs have the memory apart from each other, and a link for states of sequences"
