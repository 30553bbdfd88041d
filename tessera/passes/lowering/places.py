"""Where buffers are in the memory of each device.

In: the actions of every trace of a replica. Out: areas and places.

A weight has a place wherever a step reads it, a state wherever anything touches it or has its home,
both under one name for all traces. What is private to a request is placed per trace, and two such
buffers of a device share bytes if one is last touched before the other is first touched: by
decreasing size, each at the lowest offset that is free throughout its life. On a roomy device they
share only if no queue waits for another because of it: the first is never sent and last used by a
step, the second is never received. Words of `pointers` records are in place when a request begins,
so the life of their buffer begins there too. A weight whose words point to what a device has
several times has one copy per slot. A module that runs on a device has all its variables there:
those that nothing touches have no place, but take room.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

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
from tessera.passes.lowering.moves import Action, StepBytes

KINDS = {
    ir.Role.WEIGHT: AreaKind.WEIGHTS,
    ir.Role.STATE: AreaKind.LANE,
    ir.Role.VARIABLE: AreaKind.MODULE,
    ir.Role.INPUT: AreaKind.SLOT,
    ir.Role.OUTPUT: AreaKind.SLOT,
    ir.Role.TEMP: AreaKind.SLOT,
}


_ONCE = (ir.Role.WEIGHT, ir.Role.VARIABLE)


@dataclass(frozen=True, slots=True)
class TraceUse:
    """One trace and what it does."""

    program: ir.Program
    steps: StepBytes
    actions: Sequence[Action]


@dataclass(frozen=True, slots=True)
class _Life:
    """A buffer on a device, from its first to its last action.

    `gives`: steps may take its bytes over and wait for nothing; `takes`: it may take over bytes of
    such a buffer, and no transfer waits for that.
    """

    buffer: int
    bytes: int
    first: int
    last: int
    gives: bool
    takes: bool

    def keeps_apart(self, other: _Life, *, roomy: bool) -> bool:
        """Whether the two cannot have the same bytes."""
        if self.first <= other.last and other.first <= self.last:
            return True
        earlier, later = (self, other) if self.first < other.first else (other, self)
        return roomy and not (earlier.gives and later.takes)


def touched_on(action: Action, steps: StepBytes) -> Iterator[tuple[str, int]]:
    """The devices and buffers that an action touches."""
    match action.what:
        case Run(step):
            for buffer in steps.of(step):
                yield action.device, buffer
        case Fill(buffer, _):
            yield action.device, int(buffer)
        case transfer:
            for end in (transfer.source, transfer.target):
                if end != HOST:
                    yield end, int(transfer.buffer)


def find_places(
    traces: Sequence[TraceUse],
    homes: Sequence[Home],
    *,
    slots: int,
    lanes: int,
    roomy: Collection[str] = (),
) -> tuple[tuple[Area, ...], tuple[Place, ...]]:
    """The areas of all devices and the places of all buffers; `roomy` devices have memory left."""
    lives = [_lives(use) for use in traces]
    places: list[Place] = []
    sizes: dict[tuple[str, AreaKind], int] = {}
    for kind in (AreaKind.WEIGHTS, AreaKind.LANE):
        places += _shared(traces, lives, homes, kind, sizes)
    for trace, (use, own) in enumerate(zip(traces, lives, strict=True)):
        for device, here in own.items():
            private = [life for life in here if _kind(use, life.buffer) is AreaKind.SLOT]
            offsets, peak = _pack(private, roomy=device in roomy)
            key = (device, AreaKind.SLOT)
            sizes[key] = max(sizes.get(key, 0), peak)
            key = (device, AreaKind.MODULE)
            for life in here:
                if _kind(use, life.buffer) is AreaKind.MODULE:
                    offsets[life.buffer] = sizes.get(key, 0)
                    sizes[key] = offsets[life.buffer] + _aligned(life.bytes)
            sizes[key] = sizes.get(key, 0) + _idle_bytes(use, device, offsets.keys())
            places += [
                Place(
                    trace=trace,
                    buffer=ir.BufferId(buffer),
                    device=device,
                    kind=_kind(use, buffer),
                    offset=offset,
                )
                for buffer, offset in sorted(offsets.items())
            ]
    counts = {AreaKind.LANE: lanes, AreaKind.SLOT: slots}
    areas = (
        Area(device=device, kind=kind, bytes=size, count=counts.get(kind, 1))
        for (device, kind), size in sorted(sizes.items(), key=lambda e: (e[0][0], e[0][1].value))
        if size
    )
    places.sort(key=lambda place: (place.trace, place.device, place.buffer))
    return tuple(areas), tuple(places)


def _idle_bytes(use: TraceUse, device: str, placed: Set[int]) -> int:
    """The variables of the modules that run on a device, but for those that have a place there."""
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


def _kind(use: TraceUse, buffer: int) -> AreaKind:
    role = use.program.buffers[buffer].role
    if role is ir.Role.WEIGHT and any(
        use.program.buffers[word.target.buffer].role not in _ONCE
        for word in _words(use.program, buffer)
    ):
        return AreaKind.SLOT
    return KINDS[role]


def _words(program: ir.Program, buffer: int) -> Iterator[ir.PointerWord]:
    return (w for table in program.pointer_tables if table.buffer == buffer for w in table.words)


def _aligned(size: int) -> int:
    return -(-max(size, 1) // PLACE_ALIGNMENT) * PLACE_ALIGNMENT


def _lives(use: TraceUse) -> dict[str, list[_Life]]:
    spans: dict[tuple[str, int], tuple[int, int]] = {}
    sent: set[tuple[str, int]] = set()
    received: set[tuple[str, int]] = set()
    for index, action in enumerate(use.actions):
        for key in touched_on(action, use.steps):
            spans[key] = (spans[key][0] if key in spans else index, index)
        if isinstance(action.what, Transfer):
            sent.add((action.what.source, int(action.what.buffer)))
            received.add((action.what.target, int(action.what.buffer)))
    lives: dict[str, list[_Life]] = {}
    for (device, buffer), (first, last) in spans.items():
        size = use.program.buffers[buffer].bytes
        if any(_words(use.program, buffer)):
            first = -1
            if use.program.buffers[buffer].role is ir.Role.WEIGHT:
                last = len(use.actions)
        is_left_by_step = last < len(use.actions) and not isinstance(
            use.actions[last].what, Transfer
        )
        gives = is_left_by_step and (device, buffer) not in sent
        takes = (device, buffer) not in received
        lives.setdefault(device, []).append(_Life(buffer, size, first, last, gives, takes))
    return lives


def _shared(
    traces: Sequence[TraceUse],
    lives: Sequence[Mapping[str, Iterable[_Life]]],
    homes: Sequence[Home],
    kind: AreaKind,
    sizes: dict[tuple[str, AreaKind], int],
) -> Iterator[Place]:
    """Buffers of one name have one place on a device, in every trace that has them."""
    users: dict[str, dict[str, None]] = {}
    for use, own in zip(traces, lives, strict=True):
        for device, here in own.items():
            for life in here:
                if _kind(use, life.buffer) is kind:
                    users.setdefault(use.program.buffers[life.buffer].name, {})[device] = None
    for home in homes:
        kept = traces[home.trace].program.buffers[home.buffer]
        if _kind(traces[home.trace], kept.id) is kind:
            users.setdefault(kept.name, {})[home.device] = None
    offsets: dict[tuple[str, str], int] = {}
    for trace, use in enumerate(traces):
        for buffer in use.program.buffers:
            if _kind(use, buffer.id) is not kind:
                continue
            for device in users.get(buffer.name, ()):
                if (buffer.name, device) not in offsets:
                    offsets[buffer.name, device] = sizes.get((device, kind), 0)
                    sizes[device, kind] = offsets[buffer.name, device] + _aligned(buffer.bytes)
                offset = offsets[buffer.name, device]
                yield Place(trace=trace, buffer=buffer.id, device=device, kind=kind, offset=offset)


def _pack(lives: list[_Life], *, roomy: bool) -> tuple[dict[int, int], int]:
    """Offsets, and the bytes that they take in all."""
    placed: list[tuple[int, int, _Life]] = []
    offsets: dict[int, int] = {}
    for life in sorted(
        lives, key=lambda other_life: (-other_life.bytes, other_life.first, other_life.buffer)
    ):
        size, at = _aligned(life.bytes), 0
        for start, end, other in placed:
            if life.keeps_apart(other, roomy=roomy):
                if start >= at + size:
                    break
                at = max(at, end)
        offsets[life.buffer] = at
        placed.append((at, at + size, life))
        placed.sort(key=lambda entry: entry[:2])
    return offsets, max((end for _, end, _ in placed), default=0)
