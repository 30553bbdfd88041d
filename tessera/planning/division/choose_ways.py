"""The way in which each step is done: whole, in parts along an axis, or as twins.

In: a `TraceWays`, and a `Speeds`: what devices and links would do. Out: a way per step, and which
steps in parts must be cut at the same place.

The steps are followed in order, and for every buffer the grains that each side holds. A step in
parts takes as long as if every device had the share that suits it; bytes that a side needs and does
not hold are an exchange. A beam of the best states goes on; states that hold the same bytes of
buffers that are still needed are one. Bytes of a state that no step has touched yet are wherever
the first step that touches them runs: their homes follow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from tessera.ir.program.program import Role
from tessera.planning.division.ways import (
    StepWay,
    StepWays,
    Times,
    TraceWays,
    divided_buffers,
    last_uses,
    masked_bytes,
)

_BEAM = 12
_MUCH = 1 << 20
_ALIKE = 0.1
"""Two parts whose shares differ by less say little about how the time grows with the share."""
Sides = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Speeds:
    """Devices in the order of their speed, and an exchange between them.

    `is_eager`: whatever can be cut is cut, as if exchanges and small parts cost nothing.
    """

    devices: tuple[int, ...]
    exchange_ns: float
    ns_per_byte: float
    is_eager: bool = False

    def whole_ns(self, times: Times) -> float | None:
        """The time of a whole step on the first device."""
        return times[self.devices[0]]

    def twin_ns(self, times: Times) -> float | None:
        """The time until the last twin is done."""
        own = [times[device] for device in self.devices]
        return max((ns for ns in own if ns is not None), default=None) if None not in own else None

    def parts_ns(self, step: StepWays, way: StepWay) -> float | None:
        """The time of the parts if all devices end at the same moment."""
        rates = beginnings = 0.0
        for device in self.devices:
            line = part_line(step, way, device)
            if line is None:
                return None
            fixed, slope = (0.0, step.ns[device] or 0.0) if self.is_eager else line
            rates += 1.0 / max(slope, 1e-3)
            beginnings += fixed / max(slope, 1e-3)
        return (1.0 + beginnings) / rates

    def exchanged_ns(self, missing: Sequence[int]) -> float:
        """The time of an exchange in which each side lacks so many bytes."""
        if not any(missing) or self.is_eager:
            return 0.0
        # A device sends to the others one after the other.
        others = len(self.devices) - 1
        sent = sum(missing) / len(self.devices)
        return others * (self.exchange_ns + sent * self.ns_per_byte)


def part_line(step: StepWays, way: StepWay, device: int) -> tuple[float, float] | None:
    """The time of a part on a device: a fixed time, and one that grows with the share."""
    share = way.first_share
    first, second, whole = way.ns[0][device], way.ns[1][device], step.ns[device]
    if first is None or second is None or whole is None:
        return None
    if abs(1.0 - 2.0 * share) > _ALIKE:
        slope = (second - first) / (1.0 - 2.0 * share)
    else:
        slope = (whole - first) / (1.0 - share)
    slope = min(max(slope, 0.0), first / share)
    return max(0.0, first - slope * share), slope


@dataclass(frozen=True, slots=True)
class _Reached:
    """The best way to get here: where bytes are, the time, and the last way with those before."""

    ns: float
    held: dict[int, Sides]
    came: _Came | None


@dataclass(frozen=True, slots=True)
class _Came:
    way: StepWay
    before: _Came | None


@dataclass(frozen=True, slots=True)
class ChosenWays:
    """A way for each step, and the time of a request."""

    ways: tuple[StepWay, ...]
    ns: float


def choose_ways(
    trace: TraceWays, speeds: Speeds, *, barred: Collection[int] = (), is_compact: bool = False
) -> ChosenWays | None:
    """A way for each step; those in `barred` are not cut. None if some step has no way.

    `is_compact`: no parts of which each would hold all of a large weight or state.
    """
    ends: dict[int, list[int]] = {}
    for buffer, end in last_uses(trace.steps).items():
        ends.setdefault(end, []).append(buffer)
    beam = [_Reached(0.0, _first_held(trace), None)]
    for number, step in enumerate(trace.steps):
        reached: dict[object, _Reached] = {}
        priced = [
            (way, ns)
            for way in step.ways
            if (ns := _own_ns(step, way, speeds)) is not None
            and not (way.axis is not None and number in barred)
            and not (is_compact and _repeats_bytes(way))
        ]
        effects = [_WayEffects(trace, way, speeds) for way, _ in priced]
        for state in beam:
            for (way, ns), effect in zip(priced, effects, strict=True):
                held, exchanged_ns = effect.on(state.held)
                total = state.ns + ns + exchanged_ns
                for buffer in ends.get(number, ()):
                    held.pop(buffer, None)
                key = frozenset(held.items())
                if key not in reached or total < reached[key].ns:
                    reached[key] = _Reached(total, held, _Came(way, state.came))
        beam = sorted(reached.values(), key=lambda state: state.ns)[:_BEAM]
    return ChosenWays(_ways_of(beam[0].came), beam[0].ns) if beam else None


class _WayEffects:
    """What a way does to the bytes that sides hold; states that agree on its buffers share it."""

    __slots__ = ("_buffers", "_known", "_speeds", "_trace", "_way")

    def __init__(self, trace: TraceWays, way: StepWay, speeds: Speeds) -> None:
        self._trace, self._way, self._speeds = trace, way, speeds
        touches = [touch for touch in way.sides if touch is not None]
        self._buffers = list({b for own in touches for b, _ in (*own.needs, *own.writes)})
        self._known: dict[tuple[Sides | None, ...], tuple[dict[int, Sides], float]] = {}

    def on(self, held: dict[int, Sides]) -> tuple[dict[int, Sides], float]:
        """The bytes that each side holds after the step, and the time of the exchange before it."""
        key = tuple([held.get(buffer) for buffer in self._buffers])
        effect = self._known.get(key)
        if effect is None:
            changed, missing = _changes(self._trace, held, self._way)
            effect = self._known[key] = changed, self._speeds.exchanged_ns(missing)
        return {**held, **effect[0]}, effect[1]


def _own_ns(step: StepWays, way: StepWay, speeds: Speeds) -> float | None:
    if way.axis is not None:
        return speeds.parts_ns(step, way)
    return speeds.twin_ns(step.ns) if way.is_twin else speeds.whole_ns(step.ns)


def _repeats_bytes(way: StepWay) -> bool:
    """Whether the parts of a step hold the same large part of a weight or state."""
    apart = divided_buffers(way)
    large = (buffer for buffer, (first, end) in way.sides[0].kept if end - first >= _MUCH)
    return way.axis is not None and any(buffer not in apart for buffer in large)


def _first_held(trace: TraceWays) -> dict[int, Sides]:
    """Inputs can go to both sides; nothing else is anywhere yet."""
    return {
        buffer: (full, full)
        for buffer, sizes in trace.sizes.items()
        if trace.program.buffers[buffer].role is Role.INPUT
        for full in ((1 << len(sizes)) - 1,)
    }


def moved(
    trace: TraceWays, before: dict[int, Sides], way: StepWay
) -> tuple[dict[int, Sides], tuple[int, int]]:
    """The bytes that each side holds after a step, and those that it lacked before it."""
    changed, missing = _changes(trace, before, way)
    return {**before, **changed}, missing


def _changes(
    trace: TraceWays, before: dict[int, Sides], way: StepWay
) -> tuple[dict[int, Sides], tuple[int, int]]:
    """The buffers of which sides hold other bytes after a step, and the bytes lacked before it."""
    held: dict[int, Sides] = {}
    missing = [0, 0]
    for side, touch in enumerate(way.sides):
        if touch is None:
            continue
        for buffer, mask in touch.needs:
            own = held.get(buffer) or before.get(buffer, (0, 0))
            lacked = mask & ~own[side]
            if lacked & own[1 - side]:
                missing[side] += masked_bytes(trace.sizes[buffer], lacked & own[1 - side])
            if lacked:
                held[buffer] = _with(own, side, own[side] | mask)
    written = [dict(touch.writes) if touch is not None else {} for touch in way.sides]
    for buffer in dict.fromkeys((*written[0], *written[1])):
        own = held.get(buffer) or before.get(buffer, (0, 0))
        first, second = (written[side].get(buffer, 0) for side in (0, 1))
        held[buffer] = (
            (own[0] | first) & ~(second & ~first),
            (own[1] | second) & ~(first & ~second),
        )
    return held, (missing[0], missing[1])


def _with(sides: Sides, side: int, mask: int) -> Sides:
    return (mask, sides[1]) if side == 0 else (sides[0], mask)


def _ways_of(came: _Came | None) -> tuple[StepWay, ...]:
    ways = []
    while came is not None:
        ways.append(came.way)
        came = came.before
    return tuple(reversed(ways))


def joined_steps(trace: TraceWays, ways: Sequence[StepWay]) -> Iterator[tuple[int, int]]:
    """Pairs of steps in parts of which one reads what the same part of the other left.

    Only bytes that one side alone holds join steps. Steps that read what was exchanged are free to
    be cut elsewhere. The step that first touches bytes of a state also says where they are.
    """
    held = _first_held(trace)
    makers = {buffer: [-1] * len(sizes) for buffer, sizes in trace.sizes.items()}
    for number, way in enumerate(ways):
        before = held
        held, _ = moved(trace, held, way)
        fresh: dict[int, int] = {}
        for touch in way.sides:
            for buffer, mask in touch.needs if touch is not None else ():
                first, second = before.get(buffer, (0, 0))
                fresh[buffer] = fresh.get(buffer, 0) | mask & ~(first | second)
            for buffer, mask in touch.writes if touch is not None else ():
                fresh[buffer] = fresh.get(buffer, 0) | mask
        if way.axis is not None:
            for buffer, alone in _alone(trace, before, way):
                for maker in dict.fromkeys(_chosen(makers[buffer], alone)):
                    if maker >= 0:
                        yield maker, number
        for buffer, mask in fresh.items():
            makers[buffer] = [
                (number if way.axis is not None else -1) if mask >> grain & 1 else maker
                for grain, maker in enumerate(makers[buffer])
            ]


def _chosen(makers: Sequence[int], mask: int) -> Iterator[int]:
    return (maker for grain, maker in enumerate(makers) if mask >> grain & 1)


def _alone(trace: TraceWays, held: dict[int, Sides], way: StepWay) -> Iterator[tuple[int, int]]:
    """The bytes of buffers that a part of a step uses and its side alone holds."""
    used: dict[int, list[int]] = {}
    for side, touch in enumerate(way.sides):
        if touch is None:
            continue
        for buffer, mask in touch.needs:
            used.setdefault(buffer, [0, 0])[side] |= mask
        for buffer, mask in touch.writes:
            if trace.program.buffers[buffer].role is Role.STATE:
                used.setdefault(buffer, [0, 0])[side] |= mask
    for buffer, (first, second) in used.items():
        own = held.get(buffer, (0, 0))
        if not (first & ~own[0] & own[1] or second & ~own[1] & own[0]):  # else exchanged
            yield buffer, (first & own[0] & ~own[1]) | (second & own[1] & ~own[0])
