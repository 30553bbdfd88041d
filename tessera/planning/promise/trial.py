"""Trial of one candidate: the slots and gates that pay, and the rate reached.

In: a candidate of the search. Out: its launch programs, with several numbers of slots and gates,
and their simulated figures.

Slots are as many as keep the busiest device busy, doubled while that pays, within memory; then the
fewest are taken that reach the same rate: a request then waits for fewer others. Where simulations
are long, few rounds are followed, and in the end some slots more are tried with many. Buffers share
bytes so that compute waits for a transfer only on cards that would be too small otherwise. A gate
is kept only if it makes requests faster with the times of the plan, and with times that are a
little off. Requests that take turns on their devices go on together, however many slots there are:
where that leaves devices idle, gates are tried with as many slots as would keep them busy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from math import ceil

from tessera.ir.plan.costs import Duration, SharedError
from tessera.ir.plan.launch_program import Area, with_area_counts
from tessera.ir.plan.machine import CardId, Machine
from tessera.ir.plan.plan import Replica
from tessera.planning.given.setting import Attempt, PlanSetting
from tessera.planning.promise.assemble import KnownPrograms, nodes_over
from tessera.planning.search.candidates import Candidate, busiest_ns
from tessera.simulation.hardware import machine_hardware
from tessera.simulation.known_work import KnownWork
from tessera.simulation.noise import ErrorDraws
from tessera.simulation.simulate import Simulation, alone, with_counts
from tessera.simulation.steady import Saturation

MOST_SLOTS = 256
"""Maximum slots; more have never paid: a slot is one more request between first and last device."""

DRAWS = 8192
"""Draws of the error bars: enough to put the ends of an interval where infinitely many would."""

AS_GOOD = 1.002
"""Fewer slots are preferred if they lose no more than this factor."""

PAYS = 1.005
"""Minimum gain for which a slot or a gate is added."""

_NEAR_ENOUGH = 1.002
_NEAR = 1.01
_MOST_GATES = 6
_LONG = 5_000
"""Steps under way above which a simulation takes long, so that fewer variants are tried."""

_NEAR_ENOUGH_IF_LONG = 1.02
_SOME = 16

_IDLE = 1.05
"""Period over the load of the busiest device above which gates are tried with more slots."""

_LOSES = 1.02
_MOST_LOSSES = 2
_SPREAD = 0.05
_ROUNDS = 3
_SEEDS = (0, 1)


GpuKinds = tuple[tuple[str, int], ...]
"""Kinds of GPUs by key and SMs; a kind is its place here."""

_Shared = tuple[tuple[tuple[str, str], SharedError], ...]


@lru_cache(maxsize=8)
def _draws(steps: tuple[str, ...], places: GpuKinds, shared: _Shared, seed: int) -> ErrorDraws:
    return ErrorDraws(steps, dict(places), DRAWS, seed, dict(shared))


def gpu_kinds(machine: Machine) -> GpuKinds:
    """The kinds of GPUs of a machine, in order."""
    return tuple(dict.fromkeys((machine.gpu_of(d).key, d.sms) for d in machine.devices))


def error_draws(setting: PlanSetting, seed: int = 0, kinds: GpuKinds | None = None) -> ErrorDraws:
    """Draws for the steps of a setting, in the order of its traces, and for its kinds of GPUs.

    With the `kinds` of another machine, its draws are those for that machine.
    """
    machine = setting.machine
    order = list(dict.fromkeys((*(kinds or ()), *gpu_kinds(machine))))
    places = [(d.name, order.index((machine.gpu_of(d).key, d.sms))) for d in machine.devices]
    shared: dict[tuple[str, str], SharedError] = {}
    for costs in setting.costs:
        for step in costs.steps:
            for device, cost in zip(machine.devices, step.on_device, strict=True):
                if isinstance(cost, Duration) and cost.shared is not None:
                    shared.setdefault((step.name, device.name), cost.shared)
    steps = dict.fromkeys(step.name for costs in setting.costs for step in costs.steps)
    return _draws(tuple(steps), tuple(places), tuple(shared.items()), seed)


def _apart(setting: PlanSetting) -> ErrorDraws:
    """Draws in which every device is off by itself."""
    steps = dict.fromkeys(step.name for costs in setting.costs for step in costs.steps)
    places = tuple((device.name, place) for place, device in enumerate(setting.machine.devices))
    return _draws(tuple(steps), places, (), 0)


class Trial:
    """One candidate, lowered once or twice, with several numbers of slots and gates."""

    def __init__(
        self,
        setting: PlanSetting,
        attempt: Attempt,
        candidate: Candidate,
        *,
        copies_take_memory: bool,
        part: float,
        known: KnownPrograms | None = None,
    ) -> None:
        self.setting = setting
        self.attempt = attempt
        self.candidate = candidate
        self.hardware = machine_hardware(setting.machine, copies_take_memory=copies_take_memory)
        self.shares = tuple(trace.planned.share for trace in setting.traces)
        self._known_work = KnownWork(self.hardware)
        self._part = part
        self._everywhere = frozenset(device.name for device in setting.machine.devices)
        self._programs = known or KnownPrograms()
        self._areas: dict[frozenset[str], list[Area]] = {}
        self._lowered: dict[frozenset[str], tuple[Replica, ...]] = {}
        self._at: dict[int, tuple[Replica, ...]] = {}
        self._alone: dict[object, float] = {}
        self._followed: dict[object, Saturation] = {}

    def simulate(self, replicas: Sequence[Replica]) -> Simulation:
        """Simulate back-to-back requests."""
        return self._saturation(replicas, None).follow()

    def alone(self, replicas: Sequence[Replica]) -> float:
        """The time of one request on an idle machine, which does not depend on slots and gates."""
        key = tuple(id(own.programs) for replica in replicas for own in replica.lowered.traces)
        if key not in self._alone:
            self._alone[key] = alone(
                replicas, self.shares, self.hardware, known_work=self._known_work
            )
        return self._alone[key]

    def period(self, replicas: Sequence[Replica], seed: int | None = None) -> float:
        """Nanoseconds per request, accurate enough for comparisons."""
        return self._saturation(replicas, seed).period_ns(_ROUNDS)

    def _saturation(self, replicas: Sequence[Replica], seed: int | None) -> Saturation:
        """The simulation of launch programs, which continues where it stopped."""
        key = seed, _counts(replicas)
        if key not in self._followed:
            noise = None if seed is None else _apart(self.setting).draw(seed, _SPREAD)
            works = self._known_work.of(replicas, noise)
            self._followed[key] = Saturation(replicas, works, self.shares, self.hardware)
        return self._followed[key]

    # --- slots ----------------------------------------------------------------------------------

    def with_slots(self) -> tuple[Replica, ...]:
        """The replicas with the fewest slots that reach the best rate, within memory."""
        if self.setting.options.slots is not None or self._runs_alone():
            return self.as_asked()
        most = self._most(self._wanted(), self._fits)
        best = self.period(self.at(most))
        near = _NEAR_ENOUGH_IF_LONG if _is_long(self.at(most)) else _NEAR_ENOUGH
        floor = near * busiest_ns(self.candidate)
        least = 1
        while best > floor and most < MOST_SLOTS:
            slots = self._most(min(2 * most, MOST_SLOTS), self._fits)
            if slots <= most or PAYS * (period := self.period(self.at(slots))) > best:
                break
            least, most, best = most + 1, slots, period  # fewer slots are worse
        # Fewer slots, whose buffers share fewer bytes, may be faster.
        apart = self._most(most, self._is_roomy)
        if apart < most and self.period(self.at(apart)) < best:
            least, most, best = 1, apart, self.period(self.at(apart))
        if len(self.at(most)) == 1 and best > 0:  # a request takes at least its time alone
            least = max(least, ceil(self.alone(self.at(most)) / (AS_GOOD * best) - 1e-9))
        too_few, enough = min(least, most) - 1, most
        part = 2 if _is_long(self.at(most)) else 8
        while enough - too_few > max(1, enough // part):
            middle = (enough + too_few) // 2
            if self.period(self.at(middle)) <= AS_GOOD * best:
                enough = middle
            else:
                too_few = middle
        return self.at(self._with_some_more(enough) if _is_long(self.at(enough)) else enough)

    def _with_some_more(self, slots: int) -> int:
        """More slots while they pay: many rounds show waiting that few rounds do not."""
        floor = _NEAR_ENOUGH_IF_LONG * busiest_ns(self.candidate)
        best = self.simulate(self.at(slots)).period_ns
        while best > floor and slots < MOST_SLOTS:
            more = self._most(slots + max(1, slots // _SOME), self._fits)
            if more <= slots or PAYS * (period := self.simulate(self.at(more)).period_ns) > best:
                break
            slots, best = more, period
        return slots

    def _wanted(self) -> int:
        """The number of slots that keeps the busiest device busy while requests are under way."""
        busiest = busiest_ns(self.candidate)
        replicas = self.as_asked()
        latency = self.alone(replicas)
        share = max(replica.share for replica in replicas)
        wanted = ceil(latency * share / busiest) + 1 if busiest > 0 else 1
        return min(wanted, MOST_SLOTS)

    def _most(self, high: int, may_be: Callable[[int], bool]) -> int:
        """The most slots up to `high` for which `may_be` holds, at least one."""
        if may_be(high):
            return high
        low = 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if may_be(middle) else (low, middle)
        return low

    def at(self, slots: int) -> tuple[Replica, ...]:
        """The launch programs with other slots, and as many sequences if none are requested."""
        if slots not in self._at:
            self._at[slots] = self._laid_out(slots, self._lanes(slots))
        return self._at[slots]

    def as_asked(self) -> tuple[Replica, ...]:
        """The launch programs with the slots and sequences of the attempt."""
        slots = 1 if self._runs_alone() else self.attempt.slots
        return self._laid_out(slots, self.attempt.lanes)

    def _fits(self, slots: int) -> bool:
        lanes = self._lanes(slots)
        if self._cards_over(self._roomy_at(slots, lanes), slots, lanes, 1.0):
            return False
        machine = self.setting.machine
        return not machine.node_memory or not nodes_over(machine, self._laid_out(slots, lanes))

    def _is_roomy(self, slots: int) -> bool:
        return not self._cards_over(self._everywhere, slots, self._lanes(slots), self._part)

    def _lanes(self, slots: int) -> int:
        """The requested number of sequences, or else as many as slots."""
        return self.setting.options.sequences or slots

    # --- memory ---------------------------------------------------------------------------------

    def _runs_alone(self) -> bool:
        """Whether launches write bytes that exist once: such programs have one slot."""
        return self.setting.lowering.runs_alone

    def _laid_out(self, slots: int, lanes: int) -> tuple[Replica, ...]:
        """The launch programs; on cards that are too small, buffers share bytes where possible."""
        roomy = self._roomy_at(slots, lanes)
        if roomy not in self._lowered:
            planning = self.attempt.planning
            self._lowered[roomy] = self._programs.replicas(
                self.setting, planning, self.candidate, roomy
            )
        return tuple(with_counts(replica, slots, lanes) for replica in self._lowered[roomy])

    def _roomy_at(self, slots: int, lanes: int) -> frozenset[str]:
        """The devices that are large enough for buffers that share no bytes."""
        machine = self.setting.machine
        roomy = self._everywhere
        while True:
            over = {
                device.name
                for card in self._cards_over(roomy, slots, lanes, self._part)
                for device in machine.slices_of(card)
            }
            if not over & roomy:
                return roomy
            roomy -= over

    def _cards_over(
        self, roomy: frozenset[str], slots: int, lanes: int, part: float
    ) -> list[CardId]:
        """The cards on which launch programs exceed a fraction of the memory."""
        machine, planning = self.setting.machine, self.attempt.planning
        if roomy not in self._areas:
            self._areas[roomy] = self._programs.areas(self.setting, planning, self.candidate, roomy)
        taken: dict[str, int] = {}
        for area in with_area_counts(self._areas[roomy], slots, lanes):
            taken[area.device] = taken.get(area.device, 0) + area.bytes * area.count
        return [
            card.id
            for card, room in zip(machine.cards, planning.problem.rooms, strict=True)
            if sum(taken.get(device.name, 0) for device in machine.slices_of(card.id))
            > part * room.bytes
        ]

    # --- gates ----------------------------------------------------------------------------------

    def with_gates(
        self, replicas: tuple[Replica, ...], *, keep_slots: bool = False
    ) -> tuple[Replica, ...]:
        """The replicas with a gate per trace where it helps, even if times are slightly off."""
        if all(len(replica.lowered.devices) == 1 for replica in replicas):
            return replicas
        best = self._gated(replicas)
        keep_slots |= self.setting.options.slots is not None or self._runs_alone()
        if keep_slots or not self._take_turns(replicas):
            return best
        wanted, slots = self._wanted(), replicas[0].slots
        while self.simulate(best).period_ns > _IDLE * busiest_ns(self.candidate):
            wanted = max(wanted, 2 * slots)
            most = self._most(min(wanted, MOST_SLOTS), self._fits)
            if most <= slots:
                break
            slots = most
            more = self._gated(self.at(slots))
            if PAYS * self.simulate(more).period_ns > self.simulate(best).period_ns:
                break
            best = more
        return best

    def _take_turns(self, replicas: Sequence[Replica]) -> bool:
        """Whether requests of some trace each run on one device, where nothing keeps them apart."""
        works = self._known_work.of(replicas)
        return any(not own.is_split for work in works for own in work.values())

    def _gated(self, replicas: tuple[Replica, ...]) -> tuple[Replica, ...]:
        """The launch programs with the gates that pay, at their numbers of slots."""
        if replicas[0].slots == 1:
            return replicas
        floor = busiest_ns(self.candidate)
        best = replicas
        near = _NEAR_ENOUGH_IF_LONG if _is_long(replicas) else _NEAR
        for trace in range(len(self.shares)):
            if self.period(best) <= near * floor:
                break
            gated = self._best_gate(best, trace, floor)
            if gated is not None and self._is_sure(gated, best):
                best = gated
        if (
            best is not replicas
            and self.simulate(best).period_ns > self.simulate(replicas).period_ns
        ):
            return replicas
        return best

    def _best_gate(
        self, plain: tuple[Replica, ...], trace: int, floor: float
    ) -> tuple[Replica, ...] | None:
        """The replicas with the gate that makes requests fastest; None if no gate helps."""
        best, losses = None, 0
        least = self.period(plain) / PAYS
        # The period of a trace follows from its share in the mix.
        period_ns = floor * sum(self.shares) / self.shares[trace]
        for gate in self._gates(plain[0], trace, period_ns):
            gated = tuple(with_gate(replica, trace, gate) for replica in plain)
            period = self.period(gated)
            if period <= least:
                best, least = gated, period
                if period <= _NEAR * floor:
                    break
            losses += period > _LOSES * PAYS * least
            if losses == _MOST_LOSSES:  # later gates let even fewer requests begin
                break
        return best

    def _is_sure(self, gated: tuple[Replica, ...], plain: tuple[Replica, ...]) -> bool:
        seeds = _SEEDS[:1] if _is_long(plain) else _SEEDS
        return all(self.period(gated, seed) < self.period(plain, seed) for seed in seeds)

    def _gates(self, replica: Replica, trace: int, period_ns: float) -> list[int]:
        """Steps to try: spread over what a request does alone in the time of one period."""
        order, time = [], 0.0
        placed = replica.placed(trace)
        for step in placed.steps if placed is not None else ():
            if time > period_ns:
                break
            time += step.predicted_ns
            order.append(step.step)
        most = _MOST_GATES // 2 if _is_long((replica,)) else _MOST_GATES
        every = max(1, -(-len(order) // most))
        return order[every - 1 :: every]


def _is_long(replicas: Sequence[Replica]) -> bool:
    """Whether a simulation of these replicas takes long."""
    steps = sum(len(placed.steps) for placed in replicas[0].traces)
    return steps * replicas[0].slots > _LONG


def _counts(replicas: Sequence[Replica]) -> object:
    """The slots, sequences and gates in which the launch programs of a trial differ."""
    gates = tuple(t.gate for replica in replicas for t in replica.lowered.traces)
    return replicas[0].slots, replicas[0].lanes, gates


def with_gate(replica: Replica, trace: int, gate: int | None) -> Replica:
    """The same launch programs with a gate for a trace."""
    traces = tuple(
        replace(own, gate=gate) if own.trace == trace else own for own in replica.lowered.traces
    )
    return replace(replica, lowered=replace(replica.lowered, traces=traces))
