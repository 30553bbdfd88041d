"""The launch programs of hand-overs.

In: the replicas of a plan, the programs and graphs of its traces, and which sequences go where.
Out: a `HandOver`. `passes.checker.check_hand_over` checks it independently of this code.

What travels: of every state that both replicas have, the bytes of a row that some step of some
trace may read before a step of its request has certainly written them. Which rows a step reads
depends on its inputs, so a byte counts for all rows if it counts for one. Where the second axis
counts tokens, only those that the sequence has travel. A byte leaves from a device that has it
between requests (its home; bytes without a home are wherever a place holds them), and goes to every
device of the target that has it: from the same device, if it has the byte, else from the same host,
else from any. All that goes from one device to another goes together, in transfers of at most
`MOST_BYTES`, so that what lies in the memory of a host on the way is bounded.

Layers of a model have states of one form: what follows for one follows for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from tessera.diagnostics import TesseraError
from tessera.ir.arrays import Ranges
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.hand_over import (
    HandOver,
    MovedSequence,
    MovedSpan,
    RowPlace,
    StatePortion,
    StateTransfer,
)
from tessera.ir.plan.launch_program import (
    AreaKind,
    DeviceProgram,
    LoweredReplica,
    Queue,
    Queued,
    Receive,
    Send,
    TransferId,
)
from tessera.ir.program import program as ir
from tessera.passes.byte_sets import intervals
from tessera.planning.lower.grains import buffer_uses

MOST_BYTES = 64 << 20
"""The most bytes of one transfer."""

_FROM, _TO = 0, 1
_Spans = npt.NDArray[np.int64]
"""Rows of: first byte read, first byte written, number of bytes."""

Current = Mapping[str, Ranges]
"""The bytes of a state that each device has between requests."""


@dataclass(frozen=True, slots=True)
class HeldState:
    """A state of a replica, and where its bytes are between requests."""

    buffer: ir.Buffer
    current: Current

    @property
    def row_bytes(self) -> int:
        """Bytes of a row, or of a block."""
        return self.buffer.bytes // (self.buffer.shape or (1,))[0]


@dataclass(frozen=True, slots=True)
class _StateForm:
    """States that are alike in both replicas: `live` bytes of a row, those that the target's own
    traces read, and where the bytes are."""

    names: tuple[str, ...]
    source: HeldState
    target: HeldState
    live: Ranges
    read: Ranges


class HandOverMaker:
    """Hand-overs between replicas of one plan; what does not depend on rows is found once."""

    def __init__(
        self,
        replicas: Sequence[LoweredReplica],
        programs: Sequence[ir.Program],
        graphs: Sequence[KernelGraph] | None,
        hosts: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`hosts` has the host of each device, if there are several.

        Without graphs, for a simulation, every byte of every state counts as read.
        """
        self._replicas = tuple(replicas)
        self._programs = tuple(programs)
        self._hosts = hosts
        self._held = [held_states(replica, programs) for replica in replicas]
        self._read = (
            [_exposed(*pair) for pair in zip(programs, graphs, strict=True)]
            if graphs is not None
            else [_all_of(program) for program in programs]
        )
        self._forms: dict[tuple[int, int], list[_StateForm]] = {}

    def make(
        self, source: int, target: int, moved: Sequence[MovedSequence], token_axis: int = 0
    ) -> HandOver:
        """The hand-over of sequences from one replica to another, by their numbers.

        A second axis of states with the length `token_axis` counts the tokens of a row or block;
        with 0 none does, and rows move whole.
        """
        if (source, target) not in self._forms:
            self._forms[source, target] = list(self._find_forms(source, target))
        for form in self._forms[source, target]:
            _check_moved(form, moved)
        pairs: dict[tuple[str, str], list[StatePortion]] = {}
        for form in self._forms[source, target]:
            spans = _row_spans(form, moved, token_axis)
            for device, current in form.target.current.items():
                here = _within(spans, current, _TO)
                for origin, taken in self._origins(form, here, device, source):
                    whole = tuple(map(tuple, _joined(taken).tolist()))
                    own = pairs.setdefault((origin, device), [])
                    own += [StatePortion(name, whole) for name in form.names]
        transfers = tuple(
            StateTransfer(id=TransferId(number), source=origin, target=device, portions=portions)
            for number, (origin, device, portions) in enumerate(
                (*pair, chunk) for pair, rows in pairs.items() for chunk in _chunks(rows)
            )
        )
        return HandOver(
            source=source, target=target, transfers=transfers, programs=_programs(transfers)
        )

    def bytes_between(
        self, source: int, target: int, tokens: int | None = None, token_axis: int = 0
    ) -> dict[tuple[str, str], int]:
        """Bytes that one sequence sends from each device of the source to each of the target.

        It is in the first row of both; with blocks of `token_axis` tokens, they count as rows.
        """
        moved = [MovedSequence(RowPlace(0), RowPlace(0), tokens)]
        sizes: dict[tuple[str, str], int] = {}
        for transfer in self.make(source, target, moved, token_axis).transfers:
            pair = transfer.source, transfer.target
            sizes[pair] = sizes.get(pair, 0) + transfer.size
        return sizes

    def _origins(
        self, form: _StateForm, spans: _Spans, device: str, source: int
    ) -> Iterator[tuple[str, _Spans]]:
        """The devices that bytes for a device leave from, the nearest first."""
        rest = spans
        for origin in sorted(form.source.current, key=lambda own: self._distance(own, device)):
            current = form.source.current[origin]
            taken = _within(rest, current, _FROM)
            if len(taken):
                yield origin, taken
                whole = intervals.interval(0, form.source.buffer.bytes)
                rest = _within(rest, intervals.subtract(whole, current), _FROM)
        rows = rest.copy()
        rows[:, _TO] %= form.target.row_bytes
        if len(_within(rows, form.read, _TO)):
            raise _refused(
                f"bytes of the state `{form.names[0]}` are nowhere in replica {source}, and steps "
                "of the target may read them"
            )

    def _distance(self, origin: str, device: str) -> int:
        if origin == device:
            return 0
        return 1 if self._hosts.get(origin) == self._hosts.get(device) else 2

    def _find_forms(self, source: int, target: int) -> Iterator[_StateForm]:
        """The states that the source and the target have, alike ones together."""
        own = {trace.trace for trace in self._replicas[target].traces}
        alike: dict[object, tuple[list[str], HeldState, HeldState, Ranges, Ranges]] = {}
        for name, there in self._held[target].items():
            reads = {
                number: _folded(exposed[name], program, there)
                for number, (program, exposed) in enumerate(
                    zip(self._programs, self._read, strict=True)
                )
                if name in exposed
            }
            live = intervals.union(list(reads.values()))
            read = intervals.union([reads[number] for number in own & reads.keys()])
            here = self._held[source].get(name)
            if len(live) == 0 or (here is None and len(read) == 0):
                continue
            if here is None:
                raise _refused(
                    f"replica {source} has no state `{name}`, and steps of replica {target} may "
                    "read it"
                )
            self._check_form(name, here, there)
            key = (_key(here), _key(there), live.tobytes(), read.tobytes())
            alike.setdefault(key, ([], here, there, live, read))[0].append(name)
        for names, here, there, live, read in alike.values():
            yield _StateForm(tuple(names), here, there, live, read)

    def _check_form(self, name: str, here: HeldState, there: HeldState) -> None:
        shapes = [held.buffer.shape or () for held in (here, there)]
        if not all(shapes):
            raise _refused(f"the state `{name}` has no rows: its trace gives no shape")
        if shapes[0][1:] != shapes[1][1:] or here.row_bytes != there.row_bytes:
            raise _refused(
                f"rows of the state `{name}` differ: {shapes[0]} in one trace, {shapes[1]} in "
                "another"
            )
        for program in self._programs:
            if any(program.buffers[table.buffer].name == name for table in program.pointer_tables):
                raise _refused(f"the state `{name}` holds addresses, which only its device knows")


def _check_moved(form: _StateForm, moved: Sequence[MovedSequence]) -> None:
    """Refuse rows that are not there, and rows that two sequences would have."""
    ends = (
        (form.source, [row for own in moved for row in own.source.rows]),
        (form.target, [row for own in moved for row in own.target.rows]),
    )
    for held, rows in ends:
        count = (held.buffer.shape or (0,))[0]
        wrong = [row for row in rows if not 0 <= row < count]
        if wrong:
            message = f"state `{form.names[0]}` has {count} rows, and not row {wrong[0]}"
            raise TesseraError.of("TSR5053", message)
        if len(set(rows)) < len(rows):
            raise TesseraError.of("TSR5053", "two sequences have one row in a hand-over")
    if any(len(own.source.rows) != len(own.target.rows) for own in moved):
        raise TesseraError.of("TSR5053", "a sequence has more blocks at one end of a hand-over")


def held_states(replica: LoweredReplica, programs: Sequence[ir.Program]) -> dict[str, HeldState]:
    """The states of a replica by name, and where their bytes are between requests."""
    states: dict[str, HeldState] = {}
    for place in replica.places:
        buffer = programs[place.trace].buffers[place.buffer]
        if place.kind is not AreaKind.LANE or buffer.role is not ir.Role.STATE:
            continue
        if buffer.name not in states:
            current = {
                own.device: intervals.from_pairs(replica.current_bytes(own, buffer.bytes))
                for own in replica.places
                if (own.trace, own.buffer) == (place.trace, place.buffer)
            }
            states[buffer.name] = HeldState(buffer, current)
    return states


def _exposed(program: ir.Program, graph: KernelGraph) -> dict[str, Ranges]:
    """The bytes of each state that a request may read before it has certainly written them."""
    exposed: dict[int, list[Ranges]] = {}
    certain: dict[int, Ranges] = {}
    for uses in buffer_uses(graph):
        for number, use in uses.items():
            if program.buffers[number].role is not ir.Role.STATE:
                continue
            done = certain.get(number, intervals.EMPTY)
            fresh = intervals.subtract(use.reads, done)
            if len(fresh):
                exposed.setdefault(number, []).append(fresh)
            if len(use.certain):
                certain[number] = intervals.union([done, use.certain])
    return {program.buffers[number].name: intervals.union(own) for number, own in exposed.items()}


def _all_of(program: ir.Program) -> dict[str, Ranges]:
    states = (buffer for buffer in program.buffers if buffer.role is ir.Role.STATE)
    return {buffer.name: intervals.interval(0, buffer.bytes) for buffer in states}


def _folded(exposed: Ranges, program: ir.Program, held: HeldState) -> Ranges:
    """The bytes of a row that are in a set for any row; all of it if rows are other ones there."""
    size, buffer = held.row_bytes, held.buffer
    own = next(b for b in program.buffers if b.name == buffer.name and b.role is ir.Role.STATE)
    alike = (own.shape or ())[1:] == (buffer.shape or ())[1:]
    if not alike or (exposed[:, 1] - exposed[:, 0]).max(initial=0) >= size:
        return intervals.interval(0, size)
    first = exposed[:, 0] % size
    end = first + (exposed[:, 1] - exposed[:, 0])
    over = end > size
    wrapped = np.stack([np.zeros(over.sum(), np.int64), end[over] - size], axis=1)
    return intervals.union([np.stack([first, np.minimum(end, size)], axis=1), wrapped])


def _key(held: HeldState) -> object:
    rows = tuple((device, ranges.tobytes()) for device, ranges in held.current.items())
    return held.buffer.bytes, held.buffer.shape, rows


def _row_spans(form: _StateForm, moved: Iterable[MovedSequence], token_axis: int) -> _Spans:
    """The live bytes of all sequences: where they are, and where they go."""
    size, shape = form.source.row_bytes, form.source.buffer.shape or ()
    counts = token_axis and len(shape) > 1 and shape[1] == token_axis
    parts = []
    for sequence in moved:
        left = sequence.tokens
        for here, there in zip(sequence.source.rows, sequence.target.rows, strict=True):
            end = size
            if counts and left is not None:
                end = min(left, token_axis) * (size // token_axis)
                left = max(0, left - token_axis)
            live = intervals.clip(form.live, 0, end)
            starts = live[:, 0]
            sizes = live[:, 1] - starts
            parts.append(np.stack([starts + here * size, starts + there * size, sizes], axis=1))
    return np.concatenate(parts) if parts else np.zeros((0, 3), np.int64)


def _within(spans: _Spans, ranges: Ranges, side: int) -> _Spans:
    """The parts of spans whose bytes on one side are in a set."""
    start, end = spans[:, side], spans[:, side] + spans[:, 2]
    first = np.searchsorted(ranges[:, 1], start, side="right")
    counts = np.maximum(np.searchsorted(ranges[:, 0], end, side="left") - first, 0)
    which = np.repeat(np.arange(len(spans)), counts)
    nth = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    cut = ranges[np.repeat(first, counts) + nth]
    low, high = np.maximum(cut[:, 0], start[which]), np.minimum(cut[:, 1], end[which])
    skipped = low - start[which]
    return np.stack(
        [spans[which, _FROM] + skipped, spans[which, _TO] + skipped, high - low], axis=1
    )


def _joined(spans: _Spans) -> _Spans:
    """The same bytes, spans that follow one another on both sides as one."""
    ends = spans[:-1, :2] + spans[:-1, 2:]
    begins = np.append(0, np.flatnonzero((spans[1:, :2] != ends).any(axis=1)) + 1)
    if len(spans) == 0:
        return spans
    sizes = np.add.reduceat(spans[:, 2], begins)
    return np.concatenate([spans[begins, :2], sizes[:, None]], axis=1)


def _chunks(portions: Sequence[StatePortion]) -> Iterator[tuple[StatePortion, ...]]:
    """Portions in lists of at most `MOST_BYTES` each."""
    chunk: list[StatePortion] = []
    room = MOST_BYTES
    for portion in portions:
        if portion.size <= room:
            chunk.append(portion)
            room -= portion.size
            continue
        spans: list[MovedSpan] = []
        for start, put, size in portion.spans:
            while size > room:
                if room:
                    spans.append((start, put, room))
                chunk += [StatePortion(portion.state, tuple(spans))] if spans else []
                yield tuple(chunk)
                start, put, size = start + room, put + room, size - room
                chunk, spans, room = [], [], MOST_BYTES
            spans.append((start, put, size))
            room -= size
        chunk.append(StatePortion(portion.state, tuple(spans)))
    if chunk:
        yield tuple(chunk)


def _programs(transfers: Sequence[StateTransfer]) -> tuple[DeviceProgram, ...]:
    """The operations of every device, in the order of the transfers, which all of them follow."""
    operations: dict[str, list[Queued]] = {}
    for transfer in transfers:
        sent = Queued(Queue.OUT, Send(transfer.id))
        operations.setdefault(transfer.source, []).append(sent)
        received = Queued(Queue.IN, Receive(transfer.id))
        operations.setdefault(transfer.target, []).append(received)
    return tuple(
        DeviceProgram(device=device, operations=tuple(own)) for device, own in operations.items()
    )


def _refused(message: str) -> TesseraError:
    return TesseraError.of(
        "TSR4020",
        message,
        hint="serve the traces that share this state with one replica, or give both replicas all "
        "of its bytes",
    )
