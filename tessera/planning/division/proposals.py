"""Proposals: divisions of all traces for groups of devices, with an estimate of their time.

In: a `PlanSetting`. Out: `Proposal`s, the most promising first: for each trace a division and the
device of every step of the divided trace.

For a group of devices, each step gets a way (`choose_ways`), chains follow (`chains`), and each
device gets its share of every class of chains (`shares`). A chain without at least two units stays
whole, and the ways are chosen again. Shares can also be fixed, as people fix them who have no
planner: equal on equal cards, say.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from tessera.ir.plan.division import Division
from tessera.ir.plan.machine import Machine
from tessera.planning.division.chains import (
    DividedWays,
    ShareClass,
    division_of,
    find_classes,
    least_bytes,
    whole_bytes,
    whole_ns,
)
from tessera.planning.division.choose_ways import Speeds, choose_ways, moved
from tessera.planning.division.shares import Counts, best_shares
from tessera.planning.division.ways import TraceWays
from tessera.planning.problem.plan_problem import RESERVED_BYTES

_MOST_ROUNDS = 4
_MOST_GROUPS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A division of each trace, and the devices of its steps in every replica.

    `least_ns` estimates the period, or the request if they follow one another, if no request waits.
    """

    divisions: tuple[Division, ...]
    replicas: tuple[tuple[int, ...], ...]
    least_ns: float


Shares = Callable[[Sequence[int]], Sequence[float] | None]
"""Fixed shares for a group of devices; None if the rule does not apply to them."""


def equal_on_equal_cards(machine: Machine) -> Shares:
    """Equal shares, where all cards are of one kind."""

    def shares(group: Sequence[int]) -> Sequence[float] | None:
        kinds = {(machine.gpu_of(machine.devices[d]).key, machine.devices[d].sms) for d in group}
        return [1.0] * len(group) if len(kinds) == 1 else None

    return shares


def find_proposals(
    ways: GroupWays,
    machine: Machine,
    *,
    is_rate: bool,
    lanes: int,
    slot_bytes: int,
    fixed: Shares | None = None,
    is_eager: bool = False,
    below: float = inf,
) -> Iterator[Proposal]:
    """The proposals for all groups of devices, the shortest estimate first.

    With `fixed` shares or `is_eager`, whatever can be cut is cut. Groups without the memory for
    weights and states have none, nor have those whose estimate is not `below` a time.
    """
    sketches = []
    least = least_bytes(ways.traces, lanes)
    for group, *copies in groups_of(machine, deals=is_rate):
        if least > sum(_room(machine, device) - slot_bytes for device in group):
            continue
        speeds = speeds_of(ways.traces, machine, group)
        if speeds is None or (fixed is not None and fixed(speeds.devices) is None):
            continue
        speeds = replace(speeds, is_eager=is_eager or fixed is not None)
        sketch = _sketch(
            ways,
            machine,
            speeds,
            is_rate=is_rate,
            lanes=lanes,
            slot_bytes=slot_bytes,
            fixed=fixed,
            below=below * (1 + len(copies)),
        )
        if sketch is not None:
            places = [dict(zip(group, copy, strict=True)) for copy in (group, *copies)]
            sketches.append((sketch.ns / len(places), sketch, places))
    for _, sketch, places in sorted(sketches, key=lambda entry: entry[0]):
        if (proposal := _proposal(sketch, places)) is not None:
            yield proposal


Group = tuple[int, ...]


def groups_of(machine: Machine, *, deals: bool) -> Iterator[tuple[Group, ...]]:
    """Groups of two devices or more; of devices that are alike, only the number matters.

    With `deals`, also all devices dealt to several groups that are alike, one per replica.
    """
    alike: dict[object, list[int]] = {}
    for device in machine.devices:
        key = (machine.gpu_of(device).key, device.sms, machine.cards[device.card].memory_bytes)
        alike.setdefault(key, []).append(int(device.id))
    kinds = list(alike.values())
    counts = itertools.product(*(_counts(len(kind)) for kind in kinds))
    groups = (
        tuple(d for kind, n in zip(kinds, chosen, strict=True) for d in kind[:n])
        for chosen in counts
    )
    several = sorted((g for g in groups if len(g) > 1), key=lambda g: (-len(g), g))
    yield from ((group,) for group in several[:_MOST_GROUPS])
    for number in range(2, max(map(len, kinds)) + 1) if deals else ():
        if all(len(kind) % number == 0 for kind in kinds):
            dealt = tuple(
                tuple(d for kind in kinds for d in _share_of(kind, number, at))
                for at in range(number)
            )
            if len(dealt[0]) > 1:
                yield dealt


def _share_of(kind: Sequence[int], number: int, at: int) -> Sequence[int]:
    size = len(kind) // number
    return kind[at * size : (at + 1) * size]


def _counts(most: int) -> list[int]:
    """None, powers of two, and all."""
    return sorted({0, most, *(1 << n for n in range(most.bit_length()) if 1 << n <= most)})


def speeds_of(traces: Sequence[TraceWays], machine: Machine, group: Sequence[int]) -> Speeds | None:
    """The devices of a group, the fastest first, and the slowest link among them."""
    between = [link for link in machine.links if {int(link.source), int(link.target)} <= set(group)]
    if len(between) < len(group) * (len(group) - 1):
        return None

    def total(device: int) -> float:
        times = (step.ns[device] for trace in traces for step in trace.steps)
        return sum(ns if ns is not None else 1e12 for ns in times)

    return Speeds(
        devices=tuple(sorted(group, key=lambda device: (total(device), device))),
        exchange_ns=max(machine.exchange_ns(link, 0) for link in between),
        ns_per_byte=max(
            machine.exchange_ns(link, 1) - machine.exchange_ns(link, 0) for link in between
        ),
    )


def _room(machine: Machine, device: int) -> int:
    return machine.cards[machine.devices[device].card].memory_bytes - RESERVED_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sketch:
    """What a group of devices would do, with estimates; `taxed_ns` with the time of exchanges."""

    divided: Sequence[DividedWays]
    classes: Sequence[ShareClass]
    counts: Counts
    devices: Sequence[int]
    ns: float
    taxed_ns: float


def _sketch(
    ways: GroupWays,
    machine: Machine,
    speeds: Speeds,
    *,
    is_rate: bool,
    lanes: int,
    slot_bytes: int,
    fixed: Shares | None,
    below: float,
) -> _Sketch | None:
    """The sketch for a group; if memory is short, one in which devices repeat few bytes, or in
    which whatever can be cut is cut."""
    eager = replace(speeds, is_eager=True)
    is_short = False
    for is_compact, own_speeds in ((False, speeds), (True, speeds), (True, eager)):
        if is_compact and not is_short:
            break
        enough = below if not is_rate and own_speeds is speeds else inf
        chosen = ways.of(own_speeds, is_compact=is_compact, enough=enough)
        if chosen is None:
            continue
        if chosen.ns >= enough:
            return None
        divided, classes = chosen.divided, chosen.classes
        held = whole_bytes(divided, speeds.devices, lanes)
        room = [
            float(_room(machine, d) - slot_bytes - own)
            for d, own in zip(speeds.devices, held, strict=True)
        ]
        whole = whole_ns(divided, speeds.devices)
        if fixed is None:
            counts = best_shares(classes, whole, room, is_rate=is_rate, lanes=lanes)
        else:
            counts = _fixed_counts(classes, fixed(speeds.devices) or ())
        if counts is not None:
            ns = _estimate(divided, classes, counts, whole, speeds, is_rate=is_rate)
            others = sum(map(any, zip(*counts, strict=True))) - 1
            tax = machine.transfer_ns * others if is_rate else 0.0
            taxed = ns + sum(_taxed(own, tax) for own in divided) if tax else ns
            sketch = _Sketch(
                divided=divided,
                classes=classes,
                counts=counts,
                devices=speeds.devices,
                ns=ns,
                taxed_ns=taxed,
            )
            return sketch if taxed < below else None
        is_short = True
    return None


def _proposal(sketch: _Sketch, places: Sequence[Mapping[int, int]]) -> Proposal | None:
    """The divisions, and devices in every replica; None if a cut is not legal at its edges."""
    made = []
    for number, own in enumerate(sketch.divided):
        division = division_of(own, number, sketch.classes, sketch.counts, sketch.devices)
        if division is None:
            return None
        made.append(division)
    return Proposal(
        divisions=tuple(division for division, _ in made),
        replicas=tuple(
            tuple(replica[device] for _, devices in made for device in devices)
            for replica in places
        ),
        least_ns=sketch.taxed_ns / len(places),
    )


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The ways of a group, its classes, and the time of a request with the best shares."""

    divided: list[DividedWays]
    classes: list[ShareClass]
    ns: float

    def is_cut_short(self, enough: float) -> bool:
        """Whether ways are missing that a request may need if it may take `enough` nanoseconds."""
        return not self.divided and self.ns < enough


class GroupWays:
    """Ways whose chains all have units to deal, for groups of devices; each is found once."""

    def __init__(self, traces: Sequence[TraceWays], rates: Sequence[float]) -> None:
        self.traces = traces
        self._rates = rates
        self._known: dict[tuple[Speeds, bool], _Chosen | None] = {}

    def of(self, speeds: Speeds, *, is_compact: bool, enough: float) -> _Chosen | None:
        """The ways and classes for a group; None if nothing is cut.

        They may be missing if a request takes `enough` time or more.
        """
        key = speeds, is_compact
        known = self._known.get(key)
        if key not in self._known or (known is not None and known.is_cut_short(enough)):
            known = self._known[key] = self._choose(speeds, is_compact=is_compact, enough=enough)
        return known

    def _choose(self, speeds: Speeds, *, is_compact: bool, enough: float) -> _Chosen | None:
        barred: list[set[int]] = [set() for _ in self.traces]
        for _ in range(_MOST_ROUNDS):
            divided, total = [], 0.0
            for trace, rate, own in zip(self.traces, self._rates, barred, strict=True):
                chosen = choose_ways(trace, speeds, barred=own, is_compact=is_compact)
                if chosen is None:
                    return None
                divided.append(DividedWays(trace, chosen.ways, rate))
                total += chosen.ns * rate
                if total >= enough:
                    return _Chosen([], [], total)
            classes = find_classes(divided, len(self.traces[0].steps[0].ns))
            short = [kind for kind in classes if kind.units < 2]
            if not short:
                shared = [_on(kind, speeds.devices) for kind in classes]
                return _Chosen(divided, shared, total) if shared else None
            for kind in short:
                for chain in kind.chains:
                    for number, step in chain:
                        barred[number].add(step)
        return None


def _on(kind: ShareClass, devices: Sequence[int]) -> ShareClass:
    """The class with times for these devices only."""
    return ShareClass(
        chains=kind.chains,
        units=kind.units,
        fixed_ns=tuple(kind.fixed_ns[d] for d in devices),
        ns=tuple(kind.ns[d] for d in devices),
        bytes=kind.bytes,
        lane_bytes=kind.lane_bytes,
    )


def _fixed_counts(classes: Sequence[ShareClass], shares: Sequence[float]) -> Counts:
    """Whole units nearest to given shares, by largest remainder."""
    counts = []
    for kind in classes:
        exact = [kind.units * share / sum(shares) for share in shares]
        row = [int(value) for value in exact]
        order = sorted(range(len(row)), key=lambda d: (row[d] - exact[d], d))
        for device in order[: kind.units - sum(row)]:
            row[device] += 1
        counts.append(tuple(row))
    return tuple(counts)


def _estimate(
    divided: Sequence[DividedWays],
    classes: Sequence[ShareClass],
    counts: Counts,
    whole: Sequence[float],
    speeds: Speeds,
    *,
    is_rate: bool,
) -> float:
    """The time of a request with its exchanges, or of the busiest device."""
    loads = list(whole)
    request = max(whole)
    for kind, row in zip(classes, counts, strict=True):
        parts = [
            kind.fixed_ns[d] + kind.ns[d] * n / kind.units if n else 0.0 for d, n in enumerate(row)
        ]
        request += len(kind.chains) * max(parts)
        loads = [load + len(kind.chains) * ns for load, ns in zip(loads, parts, strict=True)]
    return (
        max(loads) if is_rate else request + sum(map(_exchanges, divided, itertools.repeat(speeds)))
    )


def _exchanges(own: DividedWays, speeds: Speeds) -> float:
    return sum(map(speeds.exchanged_ns, _missing(own))) * own.rate


def _taxed(own: DividedWays, tax_ns: float) -> float:
    """The time that exchanges take from the first device: it sends to all others, or receives."""
    return sum(tax_ns * sum(map(bool, lacks)) for lacks in _missing(own)) * own.rate


def _missing(own: DividedWays) -> Iterator[tuple[int, int]]:
    """The bytes that each side lacks before each step."""
    held: dict[int, tuple[int, int]] = {}
    for way in own.ways:
        held, missing = moved(own.trace, held, way)
        yield missing
