"""Simulated behavior of candidates: a `Promise` for each.

In: candidates of the search, measured by their loads. Out: for each its launch programs with the
slots and gates that simulation finds best (`trial`), and a candidate whose period, latency and
money are those of the simulation. Every candidate is treated alike, so that the best of them is the
best as simulated with these times. Candidates that send little come first, because their simulation
is quick. A candidate that cannot be the best of its name is not lowered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tessera.ir.choices import Ending
from tessera.ir.objectives import Objective
from tessera.ir.plan.plan import Replica
from tessera.ir.progress import Count
from tessera.planning.given.setting import Attempt, PlanSetting
from tessera.planning.problem.period_limits import Limit, LimitKind
from tessera.planning.problem.problem import transfers_of
from tessera.planning.promise.assemble import KnownPrograms, Simulated
from tessera.planning.promise.contention import has_neighbours, settle
from tessera.planning.promise.trial import PAYS, Trial
from tessera.planning.search.candidates import Candidate, least_value, splits_requests
from tessera.planning.search.plans import Choice
from tessera.planning.search.strategies import KERNEL

_AHEAD, _AHEAD_ON_SLICES = 1.02, 1.03
"""Minimum lead of a split over plans without one: it has to exceed its error (`doubt`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """The simulated behavior of a candidate. `setting` has its times.

    `searched` is the candidate as the search measured it, by its loads.
    """

    setting: PlanSetting
    attempt: Attempt
    searched: Candidate
    simulated: Simulated

    @property
    def chosen(self) -> Candidate:
        """The candidate with the figures of the simulation."""
        return self.simulated.candidate

    @property
    def is_divided(self) -> bool:
        """Whether steps are in parts or have twins."""
        return any(trace.planned.division for trace in self.setting.traces)

    def named(self, name: str) -> Promise:
        """The same under another name."""
        candidate = replace(self.chosen, name=name)
        return replace(self, simulated=replace(self.simulated, candidate=candidate))


def promises(
    setting: PlanSetting,
    tried: Sequence[tuple[Attempt, Choice]],
    objective: Objective,
    *,
    keep_slots: bool = False,
    part: float = 1.0,
    count: Count = lambda done, total: None,
    before: Sequence[Promise] = (),
) -> list[Promise]:
    """Promises for the candidates of some searches, best first; equal ones keep their order.

    Only the best of each name is kept. `keep_slots`: the slots are those of the attempt. `part` is
    that of `promise`. `count` receives the number of candidates done and the total. `before` are
    promises of other searches, which take part.
    """
    made: dict[object, Promise] = {_key(promise.searched): promise for promise in before}
    known = KnownPrograms()
    beside = has_neighbours(setting)  # loads are then those of other times
    wanted = [(attempt, choice, c) for attempt, choice in tried for c in choice.candidates]
    for done, (attempt, choice, candidate) in enumerate(
        sorted(wanted, key=lambda entry: _transfers(entry[0], entry[2]))
    ):
        count(done, len(wanted))
        key = _key(candidate)
        if key not in made and not _is_beaten(candidate, made.values(), objective, beside=beside):
            made[key] = promise(
                setting,
                attempt,
                candidate,
                objective,
                keep_slots=keep_slots,
                part=part,
                known=known,
                rivals=() if choice.ended == Ending.GIVEN else tuple(made.values()),
            )
    # In the order of the search: the first of equal promises is taken.
    order = [*(_key(promise.searched) for promise in before), *(_key(c) for _, _, c in wanted)]
    listed = [made[key] for key in dict.fromkeys(order) if key in made]
    by_name: dict[str, Promise] = {}
    for made_promise in sorted(listed, key=lambda p: p.chosen.value(objective)):
        by_name.setdefault(made_promise.chosen.name, made_promise)
    return list(by_name.values())


def _key(candidate: Candidate) -> object:
    return tuple((r.placement, r.share, r.shares) for r in candidate.replicas)


def _transfers(attempt: Attempt, candidate: Candidate) -> int:
    """Number of transfers of a candidate; few are quick to simulate, and rule others out."""
    problem = attempt.planning.problem
    return sum(
        len(transfers_of(problem if own.part is None else own.part.planning.problem, own.placement))
        for own in candidate.replicas
    )


def best_promise(
    setting: PlanSetting, attempt: Attempt, choice: Choice, objective: Objective
) -> Promise:
    """The best candidate as simulated; candidates that cannot be the best are not lowered."""
    known = KnownPrograms()
    best: Promise | None = None
    for candidate in sorted(choice.candidates, key=lambda c: _transfers(attempt, c)):
        if best is None or least_value(candidate, objective) < best.chosen.value(objective):
            made = promise(setting, attempt, candidate, objective, known=known)
            if best is None or made.chosen.value(objective) < best.chosen.value(objective):
                best = made
    assert best is not None
    return best


def _cannot_win(
    candidate: Candidate, made: Iterable[Promise], objective: Objective, *, beside: bool
) -> bool:
    """Whether another promise is better, whatever gates gain for this candidate.

    A split is only taken if its lead over plans without one exceeds its error. On slices, where
    steps take less time while others fill their gaps, simulation may be below the loads; such a
    plan is judged without gates.
    """
    least = least_value(candidate, objective)
    ahead = 1.0
    if splits_requests(candidate):
        ahead = _AHEAD_ON_SLICES if beside else _AHEAD
    return any(
        0
        < other.chosen.value(objective)
        <= least * (1.0 if splits_requests(other.chosen) else ahead)
        for other in made
    )


def _is_beaten(
    candidate: Candidate, made: Iterable[Promise], objective: Objective, *, beside: bool
) -> bool:
    """Whether another promise of the same name is better, whatever the simulation of this one
    gives.

    A split by kernels is also beaten by other splits: its row is the best of them.
    """
    least = least_value(candidate, objective)
    return any(
        0 < other.chosen.value(objective) <= least
        and (
            (other.chosen.name == candidate.name and not beside)
            or (candidate.name == KERNEL and splits_requests(other.chosen))
        )
        for other in made
    )


def promise(
    setting: PlanSetting,
    attempt: Attempt,
    candidate: Candidate,
    objective: Objective,
    *,
    keep_slots: bool = False,
    part: float = 1.0,
    known: KnownPrograms | None = None,
    rivals: Iterable[Promise] = (),
) -> Promise:
    """The promise of a candidate; `known` has launch programs of other candidates.

    `part`: the fraction of the memory it may take before buffers share bytes wherever possible. If
    one of the `rivals` is better whatever gates gain, the candidate is only a row of the table, and
    gates are not searched.
    """
    beside = has_neighbours(setting)
    if beside:
        settled = settle(setting, attempt, candidate)
        setting, attempt, candidate = settled.setting, settled.attempt, settled.candidate
    trial = Trial(
        setting, attempt, candidate, copies_take_memory=not beside, part=part, known=known
    )
    keep_slots |= objective.is_of_one_request
    replicas = trial.as_asked() if keep_slots else trial.with_slots()
    if not _cannot_win(candidate, rivals, objective, beside=beside):
        replicas = trial.with_gates(replicas, keep_slots=keep_slots)
    simulation = trial.simulate(replicas)
    # Slices share the bandwidth of one memory, which the simulation does not model.
    shared = (limit.ns for limit in candidate.limits if limit.kind is LimitKind.MEMORY)
    period = max((simulation.period_ns, *shared))
    latency = trial.alone(replicas)
    slots_ns = max(
        (latency if len(replicas) == 1 else trial.alone((own,))) * own.share / own.slots
        for own in replicas
    )
    limits = _limits(candidate, attempt, replicas, slots_ns)
    if period > PAYS * limits[0].ns:
        limits = (Limit(LimitKind.WAITING, "", period), *limits)
    simulated = replace(
        candidate,
        period_ns=period,
        latency_ns=latency,
        usd_per_request=(
            candidate.usd_per_request * period / candidate.period_ns
            if candidate.period_ns > 0
            else 0.0
        ),
        limits=limits,
    )
    return Promise(
        setting=setting,
        attempt=replace(attempt, slots=replicas[0].slots, lanes=replicas[0].lanes),
        searched=candidate,
        simulated=Simulated(
            candidate=simulated,
            replicas=replicas,
            loaded_ns=simulation.latency_ns,
            copies_take_memory=not beside,
        ),
    )


def _limits(
    candidate: Candidate, attempt: Attempt, replicas: Sequence[Replica], slots_ns: float
) -> tuple[Limit, ...]:
    """The limits of the period, largest first, with the current slots and sequences."""
    lanes = replicas[0].lanes
    now = [Limit(LimitKind.SLOTS, "", slots_ns)]
    for limit in candidate.limits:
        match limit.kind:
            case LimitKind.SLOTS:
                pass
            case LimitKind.STATE:
                now.append(replace(limit, ns=limit.ns * attempt.lanes / lanes))
            case _:
                now.append(limit)
    return tuple(sorted(now, key=lambda limit: -limit.ns))
