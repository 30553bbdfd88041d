"""What has to happen for one request, in one order that all devices can follow.

In: a program, its graph, the device of each step, and where persistent bytes are between requests.
Out: actions in order: steps, fills, and transfers with the bytes that they carry.

Steps are taken in file order. For every byte of a buffer the walk knows its version: the step that
last may have written it, and the devices that hold it. A step needs what it may read, and what it
may write but need not; what is not at its device is sent from where the version came about. A
transfer takes its place in the order as early as it can: after the step that made the bytes, and
after all that touched the old bytes at the target. So whatever an action has to wait for comes
before it in the order, and queues that follow the order cannot wait in a circle.

Source: decision record 0005.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tessera.ir.arrays import Ranges as Array
from tessera.ir.graph.access import Access, AccessKind, Certainty
from tessera.ir.graph.graph import KernelGraph, Node
from tessera.ir.graph.region import Region
from tessera.ir.plan.launch_program import HOST, Bytes, Fill, Run, Transfer, TransferId
from tessera.ir.program import program as ir
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.byte_map import ByteMap
from tessera.passes.byte_sets.regions import regions_bytes

Place = tuple[int, int, int]
"""Where in the order: after which step, then fills before steps before transfers, then a count."""

_START = (-1, 0, 0)
_FILL, _STEP, _TRANSFER = 0, 1, 2


@dataclass(frozen=True, slots=True)
class BufferUse:
    """The bytes of one buffer that a step may read, may write, and writes in any case."""

    reads: Array
    writes: Array
    certain: Array

    @property
    def needed(self) -> Array:
        """The bytes whose old version the step depends on."""
        return intervals.union([self.reads, intervals.subtract(self.writes, self.certain)])


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do on `device`; a transfer is done by its two ends."""

    place: Place
    device: str
    what: Run | Fill | Transfer


@dataclass(frozen=True, slots=True)
class _Version:
    """Bytes that `step` wrote (-1: as the request begins) on `origin`; None: as good as poison."""

    step: int
    origin: str | None
    holders: frozenset[str]


class StepBytes:
    """What each step of a graph does, per buffer, as bytes.

    Steps of equal kernels share their regions, so bytes are remembered by the regions behind them.
    """

    def __init__(self, graph: KernelGraph) -> None:
        self.graph = graph
        self._steps: dict[int, dict[int, BufferUse]] = {}
        self._known: dict[tuple[object, ...], BufferUse] = {}

    def of(self, step: int) -> dict[int, BufferUse]:
        """The bytes of one step."""
        if step not in self._steps:
            groups: dict[int, list[Access]] = {}
            for access in self.graph.nodes[step].accesses:
                groups.setdefault(int(access.buffer), []).append(access)
            self._steps[step] = {b: self._touched(b, accesses) for b, accesses in groups.items()}
        return self._steps[step]

    def _touched(self, buffer: int, accesses: list[Access]) -> BufferUse:
        size = self.graph.buffers[buffer].bytes
        # The graph keeps the regions alive, so their identities stay theirs.
        key = (size, *((a.kind, a.certainty, id(a.region)) for a in accesses))
        if key not in self._known:
            reads = [a.region for a in accesses if a.kind.reads]
            writes = [a.region for a in accesses if a.kind.writes]
            certain = [
                a.region
                for a in accesses
                if a.kind is AccessKind.WRITE and a.certainty is Certainty.MUST
            ]
            self._known[key] = BufferUse(*(_bytes(some, size) for some in (reads, writes, certain)))
        return self._known[key]


def _bytes(regions: list[Region], size: int) -> Array:
    return intervals.clip(regions_bytes(dict.fromkeys(regions), size), 0, size)


def pointer_words(program: ir.Program) -> dict[int, Array]:
    """Per buffer the words that every device has its own values for."""
    return {
        int(table.buffer): intervals.from_pairs(
            (word.offset, word.offset + ir.POINTER_BYTES) for word in table.words
        )
        for table in program.pointer_tables
    }


def find_actions(
    program: ir.Program,
    steps: StepBytes,
    devices: Sequence[str],
    every: Sequence[str],
    homes: Mapping[int, Sequence[tuple[str, Bytes]]],
) -> list[Action]:
    """Everything that one request does, with the device of each step, on `every` device.

    `homes` has the persistent bytes that some step of the replica writes.
    """
    walk = _MoveWalk(program, steps, frozenset(every), homes)
    for node in steps.graph.nodes:
        walk.step(node, devices[node.id])
    walk.finish()
    ordered = sorted(walk.actions, key=lambda action: action.place)
    return list(_numbered(ordered))


def _numbered(actions: list[Action]) -> Iterator[Action]:
    """The same actions with transfers numbered in their order."""
    count = 0
    for action in actions:
        if isinstance(action.what, Transfer):
            yield replace(action, what=replace(action.what, id=TransferId(count)))
            count += 1
        else:
            yield action


class _MoveWalk:
    """Versions of all bytes, and what was touched last on each device."""

    def __init__(
        self,
        program: ir.Program,
        steps: StepBytes,
        every: frozenset[str],
        homes: Mapping[int, Sequence[tuple[str, Bytes]]],
    ) -> None:
        self.program = program
        self.steps = steps
        self.every = every
        self.homes = homes
        self.words = pointer_words(program)
        self.actions: list[Action] = []
        self.versions: dict[int, ByteMap[_Version]] = {}
        self.touches: dict[tuple[str, int], ByteMap[Place]] = {}

    def step(self, node: Node, device: str) -> None:
        """Bring what a step needs, and note what it leaves."""
        at = (int(node.id), _STEP, 0)
        touched = self.steps.of(node.id)
        for buffer, touched_bytes in touched.items():
            if self._is_tracked(buffer):
                self._bring(buffer, self._without_words(buffer, touched_bytes.needed), device, at)
        self.actions.append(Action(at, device, Run(node.id)))
        for buffer, touched_bytes in touched.items():
            if self._is_tracked(buffer):
                whole = intervals.union([touched_bytes.reads, touched_bytes.writes])
                self._touch(device, buffer, intervals.pairs(whole), at)
                own = _Version(at[0], device, frozenset((device,)))
                self._versions(buffer).set(intervals.pairs(touched_bytes.writes), own)

    def finish(self) -> None:
        """Take outputs to the host, and persistent bytes to where the next request finds them."""
        for buffer in self.program.buffers:
            if buffer.role is ir.Role.OUTPUT and buffer.bytes:
                whole = intervals.interval(0, buffer.bytes)
                self._collect(int(buffer.id), self._without_words(int(buffer.id), whole), HOST)
            for device, pieces in self.homes.get(int(buffer.id), ()):
                mine = self._without_words(int(buffer.id), intervals.from_pairs(pieces))
                self._collect(int(buffer.id), mine, device)

    def _bring(self, buffer: int, needed: Array, device: str, at: Place) -> None:
        missing: dict[tuple[str, int], list[tuple[int, int]]] = {}
        blank: list[tuple[int, int]] = []
        for start, end, version in self._versions(buffer).get(intervals.pairs(needed)):
            if device in version.holders:
                continue
            if version.origin is None:
                blank.append((start, end))
            else:
                missing.setdefault((version.origin, version.step), []).append((start, end))
        if blank:
            blank_bytes = _joined(blank)
            place = (at[0], _FILL, len(self.actions))
            self.actions.append(Action(place, device, Fill(ir.BufferId(buffer), blank_bytes)))
            self._touch(device, buffer, blank_bytes, place)
            self._hold(buffer, blank_bytes, device)
        for (origin, _), pieces in missing.items():
            self._send(buffer, _joined(pieces), origin, device)

    def _collect(self, buffer: int, wanted: Array, target: str) -> None:
        """Take the last version of bytes to a target; what nobody wrote is there already."""
        missing: dict[str, list[tuple[int, int]]] = {}
        for start, end, version in self._versions(buffer).get(intervals.pairs(wanted)):
            if version.origin is not None and target not in version.holders:
                missing.setdefault(version.origin, []).append((start, end))
        for origin, pieces in missing.items():
            self._send(buffer, _joined(pieces), origin, target)

    def _send(self, buffer: int, moved: Bytes, origin: str, target: str) -> None:
        after = max(version.step for *_, version in self._versions(buffer).get(moved))
        if target != HOST:
            seen = (place for *_, place in self._touches(target, buffer).get(moved))
            after = max(after, *(place[0] for place in seen))
        place = (after, _TRANSFER, len(self.actions))
        transfer = Transfer(
            id=TransferId(-1), buffer=ir.BufferId(buffer), source=origin, target=target, bytes=moved
        )
        self.actions.append(Action(place, target if origin == HOST else origin, transfer))
        for end in (origin, target):
            if end != HOST:
                self._touch(end, buffer, moved, place)
        self._hold(buffer, moved, target)

    def _hold(self, buffer: int, held: Bytes, device: str) -> None:
        self._versions(buffer).change(
            held, lambda old: _Version(old.step, old.origin, old.holders | {device})
        )

    def _is_tracked(self, buffer: int) -> bool:
        """Whether bytes of a buffer ever change; a weight is wherever it is used."""
        kept = self.program.buffers[buffer]
        return kept.role is not ir.Role.WEIGHT and kept.bytes > 0

    def _without_words(self, buffer: int, wanted: Array) -> Array:
        words = self.words.get(buffer)
        return wanted if words is None else intervals.subtract(wanted, words)

    def _touch(self, device: str, buffer: int, touched: Bytes, place: Place) -> None:
        self._touches(device, buffer).change(touched, lambda old: max(old, place))

    def _touches(self, device: str, buffer: int) -> ByteMap[Place]:
        key = (device, buffer)
        if key not in self.touches:
            self.touches[key] = ByteMap(self.program.buffers[buffer].bytes, _START)
        return self.touches[key]

    def _versions(self, buffer: int) -> ByteMap[_Version]:
        if buffer not in self.versions:
            self.versions[buffer] = self._first_version(self.program.buffers[buffer])
        return self.versions[buffer]

    def _first_version(self, buffer: ir.Buffer) -> ByteMap[_Version]:
        match buffer.role:
            case ir.Role.INPUT:
                return ByteMap(buffer.bytes, _Version(-1, HOST, frozenset((HOST,))))
            case ir.Role.OUTPUT | ir.Role.TEMP:
                return ByteMap(buffer.bytes, _Version(-1, None, frozenset((HOST,))))
            case _:
                # What no step writes is the same on every device from the start.
                versions = ByteMap(buffer.bytes, _Version(-1, None, self.every))
                for device, pieces in self.homes.get(int(buffer.id), ()):
                    versions.set(pieces, _Version(-1, device, frozenset((device,))))
                return versions


def _joined(pieces: list[tuple[int, int]]) -> Bytes:
    return intervals.pairs(intervals.from_pairs(pieces))
