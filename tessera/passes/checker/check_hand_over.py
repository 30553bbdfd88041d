"""The checker of hand-overs: proves that a sequence goes on in the target as it would have in the
source, or names the faults.

In: a hand-over, the two replicas, the traces, and which sequences go where. Out: diagnostics; an
empty result is the proof.

A hand-over is alone in both lanes (`ir.plan.hand_over`), so nothing is to be shown about steps.
What is shown:
- *Bytes.* Every byte of a moved row that a step of the target may read before its request has
  certainly written it arrives, on every device that has it between requests, from the same place in
  the row, from a device of the source that has it between requests. So does every byte that a trace
  of another replica may read, if both replicas have it: the sequence may go on from there.
- *Nothing else.* A byte is written once on a device. It is of a row that the sequence gets, below
  its tokens, where they count, and some step may read it. No address travels.
- *One owner.* No row of either side belongs to two of the sequences, so with the turns of both
  lanes every sequence has one owner at every moment. Each transfer is sent once, on its source, and
  received once, on its target, and nothing else is done.
- *The end.* The programs terminate, also if a send ends only with its receive.

Bytes of a row count as read if a step may read them in any row: which row it takes is an input. No
code is shared with `planning.lower`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tessera.diagnostics import Diagnostic
from tessera.ir.graph.access import AccessKind, Certainty
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.hand_over import HandOver, MovedSequence, MovedSpan, StateTransfer
from tessera.ir.plan.launch_program import (
    AreaKind,
    DeviceProgram,
    LoweredReplica,
    Queue,
    Receive,
    Send,
)
from tessera.ir.program.program import Buffer, Program, Role
from tessera.passes.checker.bytes import (
    NOTHING,
    Array,
    common,
    join,
    minus,
    ranges_of,
    region_ranges,
    text,
)
from tessera.passes.checker.findings import Findings

_Held = tuple[Buffer, dict[str, Array]]
"""A state, and the bytes of it that each device has between requests."""


@dataclass(frozen=True, slots=True)
class _MovedRow:
    """A row that moves: where it is, where it goes, and how many of its bytes may travel."""

    here: int
    there: int
    end: int


def check_hand_over(
    made: HandOver,
    replicas: Sequence[LoweredReplica],
    programs: Sequence[Program],
    graphs: Sequence[KernelGraph],
    moved: Sequence[MovedSequence],
    token_axis: int = 0,
) -> tuple[Diagnostic, ...]:
    """The faults of a hand-over of these sequences; empty if it is proved right."""
    findings = Findings()
    if not all(0 <= number < len(replicas) for number in (made.source, made.target)):
        findings.add("TSR4001", f"there is no replica {made.source} or {made.target}")
        return findings.result()
    source, target = replicas[made.source], replicas[made.target]
    _check_programs(made, source, target, findings)
    _check_owners(moved, findings)
    here, there = _held(source, programs), _held(target, programs)
    carried: dict[str, list[tuple[StateTransfer, tuple[MovedSpan, ...]]]] = {}
    for transfer in made.transfers:
        for portion in transfer.portions:
            carried.setdefault(portion.state, []).append((transfer, portion.spans))
    for name in carried.keys() - (here.keys() & there.keys()):
        findings.add("TSR4001", f"`{name}` is no state of both replicas")
    if findings.count:
        return findings.result()
    reads = [_first_reads(*pair) for pair in zip(programs, graphs, strict=True)]
    served = {trace.trace for trace in target.traces}
    done: set[object] = set()
    for name, held in there.items():
        rows = [of_row for of in reads if (of_row := _in_row(of.get(name), held[0])) is not None]
        own = [reads[trace].get(name) for trace in served]
        needed = join([r for of in own if (r := _in_row(of, held[0])) is not None])
        live = join(rows)
        # States of equal layers are alike: equal arguments have been judged already.
        moves = carried.get(name, [])
        key = _form(here.get(name), held, live, needed, moves)
        if key in done:
            continue
        done.add(key)
        if name not in here:
            if len(needed):
                findings.add(
                    "TSR4007", f"`{name}` does not come along: the source has no such state"
                )
            continue
        if any(_has_words(program, name) for program in programs) and moves:
            findings.add("TSR4011", f"`{name}` holds addresses, and is handed over")
        _check_state(name, here[name], held, live, needed, moved, token_axis, moves, findings)
    return findings.result()


def _form(here: _Held | None, there: _Held, *facts: object) -> object:
    parts: list[object] = []
    for held in (here, there):
        if held is not None:
            parts += [held[0].bytes, held[0].shape]
            parts += [(device, ranges.tobytes()) for device, ranges in held[1].items()]
    for fact in facts:
        if isinstance(fact, np.ndarray):
            parts.append(fact.tobytes())
        elif isinstance(fact, list):
            parts.append(
                tuple((transfer.source, transfer.target, spans) for transfer, spans in fact)
            )
    return tuple(parts)


# --- operations and owners -----------------------------------------------------------------------


def _check_programs(
    made: HandOver, source: LoweredReplica, target: LoweredReplica, findings: Findings
) -> None:
    numbers = Counter(transfer.id for transfer in made.transfers)
    transfers = {transfer.id: transfer for transfer in made.transfers}
    for number, count in numbers.items():
        if count > 1:
            findings.add("TSR4013", f"{count} transfers of a hand-over have the number {number}")
    for transfer in made.transfers:
        for name, replica in ((transfer.source, source), (transfer.target, target)):
            if name not in replica.devices:
                findings.add(
                    "TSR4001", f"transfer {transfer.id} names `{name}`, which is not there"
                )
    ends: Counter[tuple[type, str, int]] = Counter()
    for program in made.programs:
        for queued in program.operations:
            wanted = {Send: Queue.OUT, Receive: Queue.IN}.get(type(queued.operation))
            if wanted is None or queued.queue is not wanted:
                what = type(queued.operation).__name__.lower()
                findings.add(
                    "TSR4002", f"a hand-over does not {what} on the {queued.queue.value} queue"
                )
            elif isinstance(queued.operation, Send | Receive):
                ends[type(queued.operation), program.device, queued.operation.transfer] += 1
    wanted_ends: Counter[tuple[type, str, int]] = Counter(
        end
        for t in transfers.values()
        for end in ((Send, t.source, t.id), (Receive, t.target, t.id))
    )
    for end in {*ends, *wanted_ends}:
        if ends[end] != wanted_ends[end]:
            findings.add(
                "TSR4002",
                f"transfer {end[2]} has {ends[end]} of {wanted_ends[end]} "
                f"{end[0].__name__.lower()} on `{end[1]}`",
            )
    if not findings.count and not _ends(made.programs):
        findings.add("TSR4008", "the programs of a hand-over wait for each other")


def _ends(programs: Sequence[DeviceProgram]) -> bool:
    """Whether all operations are done if a send ends only with its receive."""
    queues = [
        [
            operation.transfer
            for operation in program.on(queue)
            if isinstance(operation, Send | Receive)
        ]
        for program in programs
        for queue in (Queue.OUT, Queue.IN)
    ]
    at = [0] * len(queues)
    while True:
        heads = Counter(own[at[n]] for n, own in enumerate(queues) if at[n] < len(own))
        if not heads:
            return True
        met = {transfer for transfer, count in heads.items() if count > 1}
        if not met:
            return False
        for number, own in enumerate(queues):
            at[number] += at[number] < len(own) and own[at[number]] in met


def _check_owners(moved: Sequence[MovedSequence], findings: Findings) -> None:
    for side in ("source", "target"):
        rows = Counter(row for own in moved for row in getattr(own, side).rows)
        for row, count in rows.items():
            if count > 1:
                findings.add("TSR4013", f"{count} sequences have row {row} of the {side}")
    for own in moved:
        if len(own.source.rows) != len(own.target.rows):
            findings.add("TSR4013", "a sequence has more blocks at one end of a hand-over")


# --- bytes ---------------------------------------------------------------------------------------


def _check_state(
    name: str,
    source: _Held,
    target: _Held,
    live: Array,
    needed: Array,
    moved: Sequence[MovedSequence],
    token_axis: int,
    carried: Sequence[tuple[StateTransfer, tuple[MovedSpan, ...]]],
    findings: Findings,
) -> None:
    shapes = source[0].shape or (), target[0].shape or ()
    if not shapes[0] or shapes[0][1:] != shapes[1][1:] or _row_bytes(source) != _row_bytes(target):
        if len(live):
            findings.add("TSR4013", f"rows of `{name}` differ: {shapes[0]} and {shapes[1]}")
        return
    rows = list(_rows(source, moved, token_axis))
    counts = shapes[0][0], shapes[1][0]
    if not all(0 <= row.here < counts[0] and 0 <= row.there < counts[1] for row in rows):
        findings.add(
            "TSR4001", f"`{name}` has {counts[0]} and {counts[1]} rows, and not all of these"
        )
        return
    size = _row_bytes(source)
    written: dict[str, list[Array]] = {device: [] for device in target[1]}
    for transfer, given in carried:
        spans = np.array(given, np.int64).reshape(-1, 3)
        read = _ranges(spans[:, 0], spans[:, 2])
        lost = minus(read, source[1].get(transfer.source, NOTHING))
        if (spans[:, 2] <= 0).any() or len(lost):
            findings.add(
                "TSR4004",
                f"transfer {transfer.id} reads bytes {text(lost)} of `{name}` on "
                f"`{transfer.source}`, which does not have them",
            )
        put = _ranges(spans[:, 1], spans[:, 2])
        astray = minus(put, target[1].get(transfer.target, NOTHING))
        if len(astray) or not _is_in_place(spans, rows, size):
            findings.add(
                "TSR4006",
                f"transfer {transfer.id} puts bytes {text(astray if len(astray) else put)} of "
                f"`{name}` where they do not belong on `{transfer.target}`",
            )
        else:
            starts = spans[spans[:, 1].argsort(kind="stable")]
            written[transfer.target].append(
                np.stack([starts[:, 1], starts[:, 1:].sum(axis=1)], axis=1)
            )
    held = join(list(source[1].values()))
    for device, current in target[1].items():
        parts = written[device]
        arrived = join(parts)
        if sum(_amount(part) for part in parts) != _amount(arrived):
            findings.add("TSR4006", f"bytes of `{name}` arrive more than once on `{device}`")
        for row in rows:
            base = row.there * size
            span = ranges_of([(base, base + row.end)])
            idle = minus(common(arrived, span), live + base)
            if len(idle):
                findings.add(
                    "TSR4014", f"bytes {text(idle)} of `{name}` travel, and no step reads them"
                )
            away = minus(common(common(live + base, span), current), arrived)
            has = common(held, ranges_of([(row.here * size, row.here * size + row.end)]))
            owed = join(
                [common(away, needed + base), common(away, has + (row.there - row.here) * size)]
            )
            if len(owed):
                findings.add(
                    "TSR4007",
                    f"bytes {text(owed)} of `{name}` do not arrive on `{device}`",
                    "a later step may read them there",
                )


def _is_in_place(spans: Array, rows: Sequence[_MovedRow], size: int) -> bool:
    """Whether every span lies in a row that moves, at the same place in both rows."""
    known = {row.there: row for row in rows}
    for start, put, count in spans.tolist():
        at = put
        while at < put + count:
            row = known.get(at // size)
            end = min(put + count, (at // size + 1) * size)
            if row is None or end - row.there * size > row.end:
                return False
            if at - row.there * size != start + at - put - row.here * size:
                return False
            at = end
    return True


def _rows(source: _Held, moved: Sequence[MovedSequence], token_axis: int) -> Iterator[_MovedRow]:
    size, shape = _row_bytes(source), source[0].shape or ()
    in_tokens = len(shape) > 1 and shape[1] == token_axis > 0
    for own in moved:
        for number, (here, there) in enumerate(zip(own.source.rows, own.target.rows, strict=True)):
            end = size
            if in_tokens and own.tokens is not None:
                tokens = min(max(own.tokens - number * token_axis, 0), token_axis)
                end = tokens * (size // token_axis)
            yield _MovedRow(here, there, end)


def _held(replica: LoweredReplica, programs: Sequence[Program]) -> dict[str, _Held]:
    """The states of a replica: their buffers, and what each device has of them."""
    homes: dict[tuple[int, int], dict[str, Array]] = {}
    for home in replica.homes:
        homes.setdefault((home.trace, int(home.buffer)), {})[home.device] = ranges_of(home.bytes)
    states: dict[str, _Held] = {}
    for place in replica.places:
        buffer = programs[place.trace].buffers[place.buffer]
        if place.kind is AreaKind.LANE and buffer.role is Role.STATE:
            own = homes.get((place.trace, int(place.buffer)), {})
            anywhere = minus(ranges_of([place.held(buffer.bytes)]), join(list(own.values())))
            current = join([anywhere, own.get(place.device, NOTHING)])
            states.setdefault(buffer.name, (buffer, {}))[1][place.device] = current
    return states


def _first_reads(program: Program, graph: KernelGraph) -> dict[str, tuple[Buffer, Array]]:
    """The bytes of states that a request may read as it finds them, with the buffer of each."""
    reads: dict[int, list[Array]] = {}
    covered: dict[int, Array] = {}
    for node in graph.nodes:
        certain: dict[int, list[Array]] = {}
        for access in node.accesses:
            buffer = program.buffers[access.buffer]
            if buffer.role is not Role.STATE:
                continue
            number = int(access.buffer)
            ranges = region_ranges(access.region, buffer.bytes)
            if access.kind.reads:
                fresh = minus(ranges, covered.get(number, NOTHING))
                reads.setdefault(number, []).append(fresh)
            if access.kind is AccessKind.WRITE and access.certainty is Certainty.MUST:
                certain.setdefault(number, []).append(ranges)
        for number, parts in certain.items():
            covered[number] = join([covered.get(number, NOTHING), *parts])
    return {
        program.buffers[number].name: (program.buffers[number], join(parts))
        for number, parts in reads.items()
    }


def _in_row(reads: tuple[Buffer, Array] | None, held: Buffer) -> Array | None:
    """The bytes of a row that are read in some row of a state; None if none is."""
    if reads is None or not len(reads[1]):
        return None
    buffer, ranges = reads
    count = (held.shape or (1,))[0]
    size = held.bytes // count
    if (buffer.shape or ())[1:] != (held.shape or ())[1:]:
        return ranges_of([(0, size)])
    parts = []
    for start, end in ranges.tolist():
        if end - start >= size:
            return ranges_of([(0, size)])
        row = start // size * size
        parts.append((start - row, min(end - row, size)))
        parts.append((0, end - row - size))
    return ranges_of([pair for pair in parts if pair[0] < pair[1]])


def _row_bytes(held: _Held) -> int:
    return held[0].bytes // (held[0].shape or (1,))[0]


def _ranges(starts: Array, sizes: Array) -> Array:
    return join([np.stack([starts, starts + sizes], axis=1)])


def _amount(ranges: Array) -> int:
    return int((ranges[:, 1] - ranges[:, 0]).sum())


def _has_words(program: Program, name: str) -> bool:
    return any(program.buffers[table.buffer].name == name for table in program.pointer_tables)
