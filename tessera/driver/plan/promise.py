"""What a candidate's launch programs do: slots that pay, gates that pay, the rate that is reached.

In: candidates of the search, measured by their loads. Out: a `Promise` for each: its launch
programs with the slots and gates that simulation finds best, and a candidate whose period, latency
and money are those of the simulation. Every candidate is treated alike, so that the best of them is
the best of what really happens with these times.

Slots are as many as keep the busiest device busy, doubled while that pays, within memory; then the
fewest are taken that reach the same rate: a request then waits for fewer others. A gate is kept
only if it makes requests faster with the times of the plan, and with times that are a little off.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil

from tessera.driver.plan.assemble import (
    Attempt,
    Lowered,
    PlanSetting,
    Simulated,
    lower_candidate,
    used_bytes,
)
from tessera.driver.plan.contention import (
    MEASURED_SLOTS,
    has_neighbours,
    most_devices,
    settle,
)
from tessera.driver.simulate.counts import with_counts
from tessera.driver.simulate.hardware import machine_hardware
from tessera.driver.simulate.noise import Noise
from tessera.driver.simulate.simulate import Simulation, alone, saturate
from tessera.ir.choices import Objective, Strategy
from tessera.ir.plan.plan import Replica
from tessera.passes.placement.candidates import Candidate, busiest_ns
from tessera.passes.placement.plans import Choice

MOST_SLOTS = 256
"""More have never paid: a slot is one more request between the first device and the last."""

AS_GOOD = 1.002
"""Fewer slots that lose no more than this are preferred."""

_PAYS = 1.005
_NEAR_ENOUGH = 1.002
_NEAR = 1.01
_MOST_GATES = 6
_LOSES = 1.02
_MOST_LOSSES = 2
_SPREAD = 0.05
_SEEDS = (1, 2)
WAITING = "requests that wait for each other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What a candidate does when it runs. `setting` has its times.

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

    def named(self, name: str) -> Promise:
        """The same under another name."""
        candidate = replace(self.chosen, name=name)
        return replace(self, simulated=replace(self.simulated, candidate=candidate))


def promises(
    setting: PlanSetting,
    tried: Sequence[tuple[Attempt, Choice]],
    objective: str,
    *,
    keep_slots: bool = False,
) -> list[Promise]:
    """Every candidate of some searches as it would run, the best first; equal ones in their order.

    Of those with one name the best alone. `keep_slots`: the slots are those of the attempt.
    """
    made: dict[object, Promise] = {}
    known: Lowered = {}
    for attempt, choice in tried:
        for candidate in choice.candidates:
            key = tuple((replica.placement, replica.share) for replica in candidate.replicas)
            if key not in made and not _is_beaten(candidate, made.values()):
                made[key] = promise(
                    setting, attempt, candidate, objective, keep_slots=keep_slots, known=known
                )
    by_name: dict[str, Promise] = {}
    for made_promise in sorted(made.values(), key=lambda p: p.chosen.value(objective)):
        by_name.setdefault(made_promise.chosen.name, made_promise)
    return list(by_name.values())


def _is_beaten(candidate: Candidate, made: Iterable[Promise]) -> bool:
    """Whether a split by kernels cannot be the best one: another is faster than its busiest load.

    Other strategies are listed by their names, however slow they are.
    """
    return candidate.name == Strategy.KERNEL and any(
        len(other.chosen.replicas) == 1
        and len(set(other.chosen.replicas[0].placement)) > 1
        and other.chosen.period_ns <= busiest_ns(candidate)
        for other in made
    )


def promise(
    setting: PlanSetting,
    attempt: Attempt,
    candidate: Candidate,
    objective: str,
    *,
    keep_slots: bool = False,
    known: Lowered | None = None,
) -> Promise:
    """A candidate as it would run; `known` are launch programs of other candidates."""
    beside = has_neighbours(setting)
    if beside:
        settled = settle(setting, attempt, candidate)
        setting, attempt, candidate = settled.setting, settled.attempt, settled.candidate
    trial = _Trial(setting, attempt, candidate, copies_take_memory=not beside, known=known)
    replicas = trial.lowered
    if not keep_slots and objective != Objective.LATENCY:
        replicas = trial.with_slots()
    replicas = trial.with_gates(replicas)
    simulation = trial.simulate(replicas)
    # Slices draw on one memory, which the simulation does not know.
    floor = max((ns for name, ns in candidate.limits if name.endswith(".bandwidth")), default=0.0)
    period = max(simulation.period_ns, floor)
    latency = alone(replicas, trial.shares, trial.hardware)
    limits = _limits(candidate, attempt, replicas, latency)
    if period > _PAYS * max((ns for _, ns in limits), default=0.0):
        limits = ((WAITING, period), *limits)
    simulated = replace(
        candidate,
        period_ns=period,
        latency_ns=latency,
        usd=candidate.usd * period / candidate.period_ns if candidate.period_ns > 0 else 0.0,
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
    candidate: Candidate, attempt: Attempt, replicas: Sequence[Replica], latency_ns: float
) -> tuple[tuple[str, float], ...]:
    """What limits the period, the largest first, with the slots and sequences there are now."""
    slots, lanes = replicas[0].slots, replicas[0].lanes
    share = max(replica.share for replica in replicas)
    now = {"slots": latency_ns * share / slots}
    for name, ns in candidate.limits:
        if name != "slots":
            now[name] = ns * attempt.lanes / lanes if name.startswith("cycle") else ns
    return tuple(sorted(now.items(), key=lambda limit: -limit[1]))


class _Trial:
    """One candidate, lowered once, with several numbers of slots and gates."""

    def __init__(
        self,
        setting: PlanSetting,
        attempt: Attempt,
        candidate: Candidate,
        *,
        copies_take_memory: bool,
        known: Lowered | None = None,
    ) -> None:
        # Times beside neighbours are those of as many requests at each device as were measured.
        beside = not copies_take_memory
        self._least_slots = MEASURED_SLOTS * most_devices(candidate) if beside else 1
        self.setting = setting
        self.attempt = attempt
        self.candidate = candidate
        self.hardware = machine_hardware(setting.machine, copies_take_memory=copies_take_memory)
        self.shares = tuple(trace.planned.share for trace in setting.traces)
        self.lowered = lower_candidate(setting, attempt, candidate, known=known)
        self._known: dict[object, float] = {}

    def simulate(self, replicas: Sequence[Replica], seed: int | None = None) -> Simulation:
        """Requests back to back."""
        noise = None if seed is None else Noise(seed, _SPREAD)
        return saturate(replicas, self.shares, self.hardware, noise=noise)

    def period(self, replicas: Sequence[Replica], seed: int | None = None) -> float:
        """Nanoseconds per request."""
        key = (
            seed,
            replicas[0].slots,
            replicas[0].lanes,
            tuple(t.gate for replica in replicas for t in replica.lowered.traces),
        )
        if key not in self._known:
            self._known[key] = self.simulate(replicas, seed).period_ns
        return self._known[key]

    # --- slots ----------------------------------------------------------------------------------

    def with_slots(self) -> tuple[Replica, ...]:
        """With the fewest slots that reach the best rate, within memory."""
        runs_alone = min(replica.slots for replica in self.lowered) < self.attempt.slots
        if self.setting.options.slots is not None or self.attempt.slots == 1 or runs_alone:
            return self.lowered
        most = self._most()
        best = self.period(self.at(most))
        floor = _NEAR_ENOUGH * busiest_ns(self.candidate)
        while best > floor and 2 * most <= MOST_SLOTS and self._fits(2 * most):
            more = self.period(self.at(2 * most))
            if _PAYS * more > best:
                break
            most, best = 2 * most, more
        too_few, enough = min(self._least_slots, most) - 1, most
        while enough - too_few > max(1, enough // 8):
            middle = (enough + too_few) // 2
            if self.period(self.at(middle)) <= AS_GOOD * best:
                enough = middle
            else:
                too_few = middle
        return self.at(enough)

    def _most(self) -> int:
        """As many as keep the busiest device busy while requests are under way, if they fit."""
        busiest = busiest_ns(self.candidate)
        latency = alone(self.lowered, self.shares, self.hardware)
        share = max(replica.share for replica in self.lowered)
        wanted = ceil(latency * share / busiest) + 1 if busiest > 0 else 1
        low, high = 1, min(max(wanted, self._least_slots), MOST_SLOTS)
        if self._fits(high):
            return high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._fits(middle) else (low, middle)
        return low

    def at(self, slots: int) -> tuple[Replica, ...]:
        """The launch programs with so many slots, and as many sequences if none are asked for."""
        lanes = self.setting.options.sequences or slots
        return tuple(with_counts(replica, slots, lanes) for replica in self.lowered)

    def _fits(self, slots: int) -> bool:
        machine = self.setting.machine
        replicas = self.at(slots)
        return all(
            used_bytes(machine, card.id, replicas) <= room.bytes
            for card, room in zip(machine.cards, self.attempt.planning.problem.rooms, strict=True)
        )

    # --- gates ----------------------------------------------------------------------------------

    def with_gates(self, replicas: tuple[Replica, ...]) -> tuple[Replica, ...]:
        """With a gate for each trace where that helps, also if times are a little off."""
        if replicas[0].slots == 1 or all(len(r.lowered.devices) == 1 for r in replicas):
            return replicas
        floor = busiest_ns(self.candidate)
        best = replicas
        for trace in range(len(self.shares)):
            losses = 0
            for gate in self._gates(replicas[0], trace, floor):
                if self.period(best) <= _NEAR * floor:
                    return best
                gated = tuple(with_gate(replica, trace, gate) for replica in best)
                if self._is_better(gated, best):
                    best = gated
                losses += self.period(gated) > _LOSES * self.period(best)
                if losses == _MOST_LOSSES:  # later gates let even fewer requests begin
                    break
        return best

    def _is_better(self, gated: tuple[Replica, ...], plain: tuple[Replica, ...]) -> bool:
        if _PAYS * self.period(gated) > self.period(plain):
            return False
        return all(self.period(gated, seed) < self.period(plain, seed) for seed in _SEEDS)

    def _gates(self, replica: Replica, trace: int, period_ns: float) -> list[int]:
        """Steps to try: spread over what a request does alone in the time of one period."""
        order, time = [], 0.0
        for step in replica.traces[trace].steps:
            if time > period_ns:
                break
            time += step.predicted_ns
            order.append(step.step)
        every = max(1, -(-len(order) // _MOST_GATES))
        return order[every - 1 :: every]


def with_gate(replica: Replica, trace: int, gate: int | None) -> Replica:
    """The same launch programs with a gate for a trace."""
    traces = tuple(
        replace(own, gate=gate) if own.trace == trace else own for own in replica.lowered.traces
    )
    return replace(replica, lowered=replace(replica.lowered, traces=traces))
