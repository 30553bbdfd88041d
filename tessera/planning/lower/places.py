"""Where buffers are in the memory of each device.

In: the actions of every trace of a replica. Out: areas and places.

A weight has a place wherever a step reads it, a state wherever anything touches it or has its home,
both under one name for all traces. The place holds the bytes from the first to the last that
anything there touches; a buffer with addresses in it, or whose address is in another, is whole.
Buffers that are private to a request are placed per trace, by
decreasing size, each at the lowest offset that is free throughout its life: two of them share bytes
if the last touch of one comes before the first touch of the other. On a roomy device they share
only if no queue waits for another because of it: the first is never sent and last used by a step,
the second is never received. Words of `pointers` records are in place when a request begins, so the
life of their buffer begins there too. A weight whose words point to buffers with several copies on
a device has one copy per slot. A module that runs on a device has all its variables there:
variables that no step touches have no place, but take room.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from tessera.ir.plan.launch_program import (
    HOST,
    PLACE_ALIGNMENT,
    Area,
    AreaKind,
    Fill,
    Home,
    Place,
    Run,
    Transfer,
)
from tessera.ir.program import program as ir
from tessera.planning.lower.grains import Grains, Hull, TraceBytes
from tessera.planning.lower.moves import Action

_EVER = 1 << 60


@dataclass(frozen=True, slots=True)
class TraceUse:
    """One trace with its actions."""

    trace: TraceBytes
    actions: Sequence[Action]

    @property
    def program(self) -> ir.Program:
        """The program of the trace."""
        return self.trace.program


@dataclass(frozen=True, slots=True)
class _Life:
    """A buffer on a device, from its first to its last action, and the bytes that they touch.

    `gives`: steps may reuse its bytes without a wait; `takes`: it may reuse the bytes of such a
    buffer, and no transfer waits for that.
    """

    buffer: int
    touched: Hull
    bytes: int
    first: int
    last: int
    gives: bool
    takes: bool


def touched_on(action: Action, trace: TraceBytes) -> Iterator[tuple[str, int, Grains]]:
    """The devices, buffers and grains that an action touches."""
    match action.what:
        case Run(step):
            for buffer, use in trace.steps[step].items():
                yield action.device, buffer, use.touched
        case Fill():
            for buffer, grains in action.covered:
                yield action.device, buffer, grains
        case transfer:
            for end in (transfer.source, transfer.target):
                for buffer, grains in action.covered if end != HOST else ():
                    yield end, buffer, grains


def find_places(
    traces: Sequence[TraceUse],
    homes: Sequence[Home],
    *,
    roomy: Collection[str] = (),
) -> tuple[tuple[Area, ...], tuple[Place, ...]]:
    """The areas of all devices, one of each, and the places of all buffers.

    `roomy` devices have memory left.
    """
    lives = [_lives(use) for use in traces]
    places: list[Place] = []
    sizes: dict[tuple[str, AreaKind], int] = {}
    for kind in (AreaKind.WEIGHTS, AreaKind.LANE):
        places += _shared(traces, lives, homes, kind, sizes)
    for trace, (use, own) in enumerate(zip(traces, lives, strict=True)):
        for device, here in own.items():
            private = [life for life in here if use.trace.kinds[life.buffer] is AreaKind.SLOT]
            offsets, peak = _pack(private, roomy=device in roomy)
            key = (device, AreaKind.SLOT)
            sizes[key] = max(sizes.get(key, 0), peak)
            key = (device, AreaKind.MODULE)
            for life in here:
                if use.trace.kinds[life.buffer] is AreaKind.MODULE:
                    offsets[life.buffer] = sizes.get(key, 0)
                    sizes[key] = offsets[life.buffer] + _aligned(life.bytes)
            sizes[key] = sizes.get(key, 0) + _idle_bytes(use, device, offsets.keys())
            places += [
                Place(
                    trace=trace,
                    buffer=ir.BufferId(buffer),
                    device=device,
                    kind=use.trace.kinds[buffer],
                    offset=offset,
                )
                for buffer, offset in sorted(offsets.items())
            ]
    areas = (
        Area(device=device, kind=kind, bytes=size, count=1)
        for (device, kind), size in sorted(sizes.items(), key=lambda e: (e[0][0], e[0][1].value))
        if size
    )
    places.sort(key=lambda place: (place.trace, place.device, place.buffer))
    return tuple(areas), tuple(places)


def _idle_bytes(use: TraceUse, device: str, placed: Set[int]) -> int:
    """Bytes of module variables on a device, without the variables that have a place there."""
    here = {
        int(action.what.step)
        for action in use.actions
        if isinstance(action.what, Run) and action.device == device
    }
    modules = {launch.module for launch in use.program.launches() if int(launch.id) in here}
    names = {use.program.modules[module].name for module in modules}
    return sum(
        _aligned(buffer.bytes)
        for buffer in use.program.buffers
        if buffer.role is ir.Role.VARIABLE
        and int(buffer.id) not in placed
        and buffer.name.rpartition(".")[0] in names
    )


def _aligned(size: int) -> int:
    return -(-max(size, 1) // PLACE_ALIGNMENT) * PLACE_ALIGNMENT


def _lives(use: TraceUse) -> dict[str, list[_Life]]:
    spans: dict[tuple[str, int], tuple[int, int]] = {}
    hulls: dict[tuple[str, int], Hull] = {}
    sent: set[tuple[str, int]] = set()
    received: set[tuple[str, int]] = set()
    for index, action in enumerate(use.actions):
        for device, buffer, grains in touched_on(action, use.trace):
            key = device, buffer
            if buffer in use.trace.partial:
                if not grains:
                    continue
                hull = use.trace.grains[buffer].hull(grains)
                hulls[key] = _joined(hulls.get(key, hull), hull)
            spans[key] = (spans[key][0] if key in spans else index, index)
        if isinstance(action.what, Transfer):
            sent |= {(action.what.source, buffer) for buffer, _ in action.covered}
            received |= {(action.what.target, buffer) for buffer, _ in action.covered}
    # A step may touch nothing, and its device loads a module for it.
    lives: dict[str, list[_Life]] = {a.device: [] for a in use.actions if isinstance(a.what, Run)}
    for (device, buffer), (first, last) in spans.items():
        size = use.program.buffers[buffer].bytes
        if buffer in use.trace.words:
            first = -1
            if use.program.buffers[buffer].role is ir.Role.WEIGHT:
                last = len(use.actions)
        is_left_by_step = last < len(use.actions) and not isinstance(
            use.actions[last].what, Transfer
        )
        gives = is_left_by_step and (device, buffer) not in sent
        takes = (device, buffer) not in received
        touched = hulls.get((device, buffer), (0, size))
        life = _Life(buffer, touched, size, first, last, gives, takes)
        lives.setdefault(device, []).append(life)
    return lives


def _shared(
    traces: Sequence[TraceUse],
    lives: Sequence[Mapping[str, Iterable[_Life]]],
    homes: Sequence[Home],
    kind: AreaKind,
    sizes: dict[tuple[str, AreaKind], int],
) -> Iterator[Place]:
    """Buffers of one name have one place on a device, in every trace that has them."""
    users: dict[str, dict[str, Hull]] = {}
    whole: set[str] = set()
    for use, own in zip(traces, lives, strict=True):
        whole |= {use.program.buffers[buffer].name for buffer in use.trace.addressed}
        for device, here in own.items():
            for life in here:
                if use.trace.kinds[life.buffer] is kind:
                    hulls = users.setdefault(use.program.buffers[life.buffer].name, {})
                    hulls[device] = _joined(hulls.get(device, life.touched), life.touched)
    for home in homes:
        kept = traces[home.trace].program.buffers[home.buffer]
        if traces[home.trace].trace.kinds[kept.id] is kind:
            hulls, hull = users.setdefault(kept.name, {}), (home.bytes[0][0], home.bytes[-1][1])
            hulls[home.device] = _joined(hulls.get(home.device, hull), hull)
    offsets: dict[tuple[str, str], int] = {}
    for trace, use in enumerate(traces):
        for buffer in use.program.buffers:
            if use.trace.kinds[buffer.id] is not kind:
                continue
            for device, hull in users.get(buffer.name, {}).items():
                held = (0, None) if buffer.name in whole else _held(hull, buffer.bytes)
                known = sizes.get((device, kind), 0)
                place = Place(
                    trace=trace,
                    buffer=buffer.id,
                    device=device,
                    kind=kind,
                    offset=offsets.setdefault((buffer.name, device), known),
                    first=held[0],
                    end=held[1],
                )
                start, end = place.taken(buffer.bytes)
                sizes[device, kind] = max(known, start + _aligned(end - start))
                yield place


def _joined(hull: Hull, other: Hull) -> Hull:
    return min(hull[0], other[0]), max(hull[1], other[1])


def _held(hull: Hull, size: int) -> tuple[int, int | None]:
    """The first byte and the end of a place for a hull; the whole buffer if that takes no more."""
    first = hull[0] // PLACE_ALIGNMENT * PLACE_ALIGNMENT
    if _aligned(hull[1] - first) >= _aligned(size):
        return 0, None
    return first, hull[1] if hull[1] < size else None


def _pack(lives: list[_Life], *, roomy: bool) -> tuple[dict[int, int], int]:
    """Offsets of buffers, and the total bytes.

    Two lives can have the same bytes if they do not overlap and, if the device is roomy, the
    earlier one gives and the later one takes. On a roomy device, a life that does not give counts
    as never ending, and one that does not take as beginning first. Columns are the lives that have
    a place, by offset.
    """
    offsets: dict[int, int] = {}
    columns = np.zeros((4, len(lives)), dtype=np.int64)
    for count, life in enumerate(
        sorted(lives, key=lambda one: (-one.bytes, one.first, one.buffer))
    ):
        size, at = _aligned(life.bytes), 0
        begins = life.first if life.takes or not roomy else -_EVER
        ends = life.last if life.gives or not roomy else _EVER
        columns_now = columns[:, :count]
        starts = columns_now[0]
        apart = (columns_now[3] >= begins) & (columns_now[2] <= ends)
        low, high = columns_now[:2, apart]
        if len(low):
            # The lowest gap: behind all lives at lower offsets, if the next one leaves room.
            reach = np.maximum.accumulate(high)
            fits = np.flatnonzero(low[1:] - reach[:-1] >= size)
            if low[0] < size:
                at = int(reach[fits[0] if len(fits) else -1])
        offsets[life.buffer] = at
        place = int(starts.searchsorted(at, side="right"))
        columns[:, place + 1 : count + 1] = columns[:, place:count]
        columns[:, place] = (at, at + size, begins, ends)
    return offsets, int(columns[1].max(initial=0))
