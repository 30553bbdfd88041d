"""What a candidate's launch programs do: slots that pay, gates that pay, the rate that is reached.

In: candidates of the search, measured by their loads. Out: a `Promise` for each: its launch
programs with the slots and gates that simulation finds best, and a candidate whose period, latency
and money are those of the simulation. Every candidate is treated alike, so that the best of them is
the best of what really happens with these times.

Slots are as many as keep the busiest device busy, doubled while that pays, within memory; then the
fewest are taken that reach the same rate: a request then waits for fewer others. Buffers share
bytes so that compute waits for a transfer only on cards that would be too small otherwise. A gate
is kept only if it makes requests faster with the times of the plan, and with times that are a
little off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
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
from tessera.driver.plan.contention import has_neighbours, settle
from tessera.driver.progress import Count
from tessera.driver.simulate.counts import with_counts
from tessera.driver.simulate.hardware import machine_hardware
from tessera.driver.simulate.noise import Noise
from tessera.driver.simulate.simulate import Simulation, alone, saturate
from tessera.ir.choices import Objective, Strategy
from tessera.ir.plan.machine import CardId
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
    part: float = 1.0,
    count: Count = lambda done, total: None,
) -> list[Promise]:
    """Every candidate of some searches as it would run, the best first; equal ones in their order.

    Of those with one name the best alone. `keep_slots`: the slots are those of the attempt. `part`
    is that of `promise`. `count` hears how many candidates are done, and of how many.
    """
    made: dict[object, Promise] = {}
    known: Lowered = {}
    total, done = sum(len(choice.candidates) for _, choice in tried), 0
    for attempt, choice in tried:
        for candidate in choice.candidates:
            count(done, total)
            done += 1
            key = tuple((replica.placement, replica.share) for replica in candidate.replicas)
            if key not in made and not _is_beaten(candidate, made.values()):
                made[key] = promise(
                    setting,
                    attempt,
                    candidate,
                    objective,
                    keep_slots=keep_slots,
                    part=part,
                    known=known,
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
    part: float = 1.0,
    known: Lowered | None = None,
) -> Promise:
    """A candidate as it would run; `known` are launch programs of other candidates.

    `part`: how much of the memory it may take before buffers share bytes wherever they can.
    """
    beside = has_neighbours(setting)
    if beside:
        settled = settle(setting, attempt, candidate)
        setting, attempt, candidate = settled.setting, settled.attempt, settled.candidate
    trial = _Trial(
        setting, attempt, candidate, copies_take_memory=not beside, part=part, known=known
    )
    replicas = trial.as_asked()
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
    """One candidate, lowered once or twice, with several numbers of slots and gates."""

    def __init__(
        self,
        setting: PlanSetting,
        attempt: Attempt,
        candidate: Candidate,
        *,
        copies_take_memory: bool,
        part: float,
        known: Lowered | None = None,
    ) -> None:
        self.setting = setting
        self.attempt = attempt
        self.candidate = candidate
        self.hardware = machine_hardware(setting.machine, copies_take_memory=copies_take_memory)
        self.shares = tuple(trace.planned.share for trace in setting.traces)
        self._part = part
        self._everywhere = frozenset(device.name for device in setting.machine.devices)
        self._programs: Lowered = {} if known is None else known
        self._lowered: dict[frozenset[str], tuple[Replica, ...]] = {}
        self._at: dict[int, tuple[Replica, ...]] = {}
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
        if self.setting.options.slots is not None or self._runs_alone():
            return self.as_asked()
        most = self._most(self._wanted(), self._fits)
        best = self.period(self.at(most))
        floor = _NEAR_ENOUGH * busiest_ns(self.candidate)
        while best > floor and 2 * most <= MOST_SLOTS and self._fits(2 * most):
            more = self.period(self.at(2 * most))
            if _PAYS * more > best:
                break
            most, best = 2 * most, more
        # Fewer slots whose buffers share less may be faster.
        apart = self._most(most, self._is_roomy)
        if apart < most and self.period(self.at(apart)) < best:
            most, best = apart, self.period(self.at(apart))
        too_few, enough = 0, most
        while enough - too_few > max(1, enough // 8):
            middle = (enough + too_few) // 2
            if self.period(self.at(middle)) <= AS_GOOD * best:
                enough = middle
            else:
                too_few = middle
        return self.at(enough)

    def _wanted(self) -> int:
        """As many slots as keep the busiest device busy while requests are under way."""
        busiest = busiest_ns(self.candidate)
        replicas = self.as_asked()
        latency = alone(replicas, self.shares, self.hardware)
        share = max(replica.share for replica in replicas)
        wanted = ceil(latency * share / busiest) + 1 if busiest > 0 else 1
        return min(wanted, MOST_SLOTS)

    def _most(self, high: int, may_be: Callable[[int], bool]) -> int:
        """The most slots that may be, one at least."""
        if may_be(high):
            return high
        low = 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if may_be(middle) else (low, middle)
        return low

    def at(self, slots: int) -> tuple[Replica, ...]:
        """The launch programs with so many slots, and as many sequences if none are asked for."""
        if slots not in self._at:
            lanes = self.setting.options.sequences or slots
            self._at[slots] = self._laid_out(lambda replica: with_counts(replica, slots, lanes))
        return self._at[slots]

    def as_asked(self) -> tuple[Replica, ...]:
        """The launch programs with the slots and sequences of the attempt."""
        slots = 1 if self._runs_alone() else self.attempt.slots
        return self._laid_out(lambda replica: with_counts(replica, slots, self.attempt.lanes))

    def _fits(self, slots: int) -> bool:
        return not list(self._cards_over(self.at(slots), 1.0))

    def _is_roomy(self, slots: int) -> bool:
        lanes = self.setting.options.sequences or slots
        replicas = [with_counts(own, slots, lanes) for own in self._lower(self._everywhere)]
        return not list(self._cards_over(replicas, self._part))

    # --- memory ---------------------------------------------------------------------------------

    def _runs_alone(self) -> bool:
        """Whether launches write what is there once: these programs have one slot."""
        return any(replica.slots == 1 for replica in self._lower(self._everywhere))

    def _lower(self, roomy: frozenset[str]) -> tuple[Replica, ...]:
        """The launch programs for two slots or more, where that can be."""
        if roomy not in self._lowered:
            several = replace(self.attempt, slots=max(2, self.attempt.slots))
            self._lowered[roomy] = lower_candidate(
                self.setting, several, self.candidate, roomy, known=self._programs
            )
        return self._lowered[roomy]

    def _laid_out(self, change: Callable[[Replica], Replica]) -> tuple[Replica, ...]:
        """The launch programs; on cards that are too small, buffers share bytes where they can."""
        machine = self.setting.machine
        roomy = self._everywhere
        while True:
            replicas = tuple(change(replica) for replica in self._lower(roomy))
            over = {
                device.name
                for card in self._cards_over(replicas, self._part)
                for device in machine.slices_of(card)
            }
            if not over & roomy:
                return replicas
            roomy -= over

    def _cards_over(self, replicas: Sequence[Replica], part: float) -> Iterator[CardId]:
        """The cards on which launch programs take more than a part of the memory."""
        machine = self.setting.machine
        for card, room in zip(machine.cards, self.attempt.planning.problem.rooms, strict=True):
            if used_bytes(machine, card.id, replicas) > part * room.bytes:
                yield card.id

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
