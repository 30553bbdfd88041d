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

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tessera.diagnostics import Diagnostic
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.hand_over import HandOver, MovedSequence, MovedSpan, StateTransfer
from tessera.ir.plan.launch_program import (
    LoweredReplica,
    Queue,
    Queued,
    Receive,
    Send,
)
from tessera.ir.program.program import Program
from tessera.passes.checker.bytes import (
    NOTHING,
    Array,
    common,
    join,
    minus,
    ranges_of,
    text,
)
from tessera.passes.checker.findings import Findings
from tessera.passes.checker.handed_states import (
    SharedState,
    first_reads,
    read_in_row,
    states_held,
)


@dataclass(frozen=True, slots=True)
class _MovedRow:
    """A row that moves: where it is, where it goes, and how many of its bytes may travel."""

    here: int
    there: int
    end: int


_Carried = list[tuple[StateTransfer, tuple[MovedSpan, ...]]]
"""What transfers carry of one state."""


class HandOverChecker:
    """Checks hand-overs between replicas of a plan; what does not depend on rows is found once."""

    def __init__(
        self,
        replicas: Sequence[LoweredReplica],
        programs: Sequence[Program],
        graphs: Sequence[KernelGraph],
    ) -> None:
        self._replicas = tuple(replicas)
        self._held = [states_held(replica, programs) for replica in replicas]
        self._reads = [first_reads(*pair) for pair in zip(programs, graphs, strict=True)]
        self._words = {
            program.buffers[table.buffer].name
            for program in programs
            for table in program.pointer_tables
        }
        self._known: dict[tuple[int, int], list[tuple[SharedState, object]]] = {}

    def check(
        self, made: HandOver, moved: Sequence[MovedSequence], token_axis: int = 0
    ) -> tuple[Diagnostic, ...]:
        """The faults of a hand-over of these sequences; empty if it is proved right."""
        findings = Findings()
        if not all(0 <= number < len(self._replicas) for number in (made.source, made.target)):
            findings.add("TSR4001", f"there is no replica {made.source} or {made.target}")
            return findings.result()
        source, target = self._replicas[made.source], self._replicas[made.target]
        _check_programs(made, source, target, findings)
        _check_owners(moved, findings)
        here, there = self._held[made.source], self._held[made.target]
        carried: dict[str, _Carried] = {}
        for transfer in made.transfers:
            for portion in transfer.portions:
                carried.setdefault(portion.state, []).append((transfer, portion.spans))
        for name in sorted(carried.keys() - (here.keys() & there.keys())):
            findings.add("TSR4001", f"`{name}` is no state of both replicas")
        if findings.count:
            return findings.result()
        done: set[object] = set()
        for state, form in self._states(made.source, made.target):
            moves = carried.get(state.name, [])
            # States of equal layers are alike: equal arguments have been judged already.
            key = form, tuple((own.source, own.target, spans) for own, spans in moves)
            if key not in done:
                done.add(key)
                _check_state(state, moved, token_axis, moves, findings)
        return findings.result()

    def _states(self, source: int, target: int) -> list[tuple[SharedState, object]]:
        if (source, target) not in self._known:
            served = {trace.trace for trace in self._replicas[target].traces}
            states = []
            for name, held in self._held[target].items():
                rows = {
                    number: row
                    for number, reads in enumerate(self._reads)
                    if (row := read_in_row(reads.get(name), held[0])) is not None
                }
                needed = join([row for number, row in rows.items() if number in served])
                live = join(list(rows.values()))
                here = self._held[source].get(name)
                states.append(SharedState(name, here, held, live, needed, name in self._words))
            self._known[source, target] = [(state, state.form) for state in states]
        return self._known[source, target]


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
    queues: dict[tuple[int, Queue], list[int]] = {}
    for place, program in enumerate(made.programs):
        for queued in program.operations:
            match queued:
                case Queued(Queue.OUT, Send(number)) | Queued(Queue.IN, Receive(number)):
                    ends[type(queued.operation), program.device, number] += 1
                    queues.setdefault((place, queued.queue), []).append(number)
                case _:
                    what = type(queued.operation).__name__.lower()
                    findings.add(
                        "TSR4002", f"a hand-over does not {what} on the {queued.queue.value} queue"
                    )
    wanted_ends: Counter[tuple[type, str, int]] = Counter(
        end
        for t in transfers.values()
        for end in ((Send, t.source, t.id), (Receive, t.target, t.id))
    )
    for end in ends | wanted_ends:
        if ends[end] != wanted_ends[end]:
            findings.add(
                "TSR4002",
                f"transfer {end[2]} has {ends[end]} of {wanted_ends[end]} "
                f"{end[0].__name__.lower()} on `{end[1]}`",
            )
    if not findings.count and not _ends([*queues.values()]):
        findings.add("TSR4008", "the programs of a hand-over wait for each other")


def _ends(queues: Sequence[Sequence[int]]) -> bool:
    """Whether all transfers of the queues are done if a send ends only with its receive."""
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
    state: SharedState,
    moved: Sequence[MovedSequence],
    token_axis: int,
    carried: _Carried,
    findings: Findings,
) -> None:
    name, source, target = state.name, state.source, state.target
    live, needed = state.live, state.needed
    if source is None:
        if len(needed):
            findings.add("TSR4007", f"`{name}` does not come along: the source has no such state")
        return
    if state.has_words and carried:
        findings.add("TSR4011", f"`{name}` holds addresses, and is handed over")
    (here, there), shapes = (source[0], target[0]), (source[0].shape or (), target[0].shape or ())
    is_alike = all(shapes) and shapes[0][1:] == shapes[1][1:]
    if not is_alike or here.bytes * shapes[1][0] != there.bytes * shapes[0][0]:
        if len(live) or carried:
            findings.add("TSR4013", f"rows of `{name}` differ: {shapes[0]} and {shapes[1]}")
        return
    counts = shapes[0][0], shapes[1][0]
    size = here.bytes // counts[0]
    rows = list(_rows(shapes[0], size, moved, token_axis))
    if not all(0 <= row.here < counts[0] and 0 <= row.there < counts[1] for row in rows):
        findings.add(
            "TSR4001", f"`{name}` has {counts[0]} and {counts[1]} rows, and not all of these"
        )
        return
    written = defaultdict[str, list[Array]](list)
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
            written[transfer.target].append(
                np.stack([spans[:, 1], spans[:, 1:].sum(axis=1)], axis=1)
            )
    held = join(list(source[1].values()))
    whole = {size: live}
    for end in {row.end for row in rows}:
        whole.setdefault(end, common(live, ranges_of([(0, end)])))
    wanted = join([whole[row.end] + row.there * size for row in rows])
    for device, current in target[1].items():
        parts = written[device]
        arrived = join(parts)
        if sum(_amount(part) for part in parts) != _amount(arrived):
            findings.add("TSR4006", f"bytes of `{name}` arrive more than once on `{device}`")
        idle = minus(arrived, wanted)
        if len(idle):
            findings.add(
                "TSR4014", f"bytes {text(idle)} of `{name}` travel, and no step reads them"
            )
        away = minus(common(wanted, current), arrived)
        for row in rows if len(away) else ():
            base, start = row.there * size, row.here * size
            has = common(held, ranges_of([(start, start + row.end)])) + (base - start)
            lost = common(away, ranges_of([(base, base + row.end)]))
            owed = join([common(lost, needed + base), common(lost, has)])
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


def _rows(
    shape: Sequence[int], size: int, moved: Sequence[MovedSequence], token_axis: int
) -> Iterator[_MovedRow]:
    in_tokens = len(shape) > 1 and shape[1] == token_axis
    for own in moved:
        for number, (here, there) in enumerate(zip(own.source.rows, own.target.rows, strict=True)):
            end = size
            if in_tokens and own.tokens is not None:
                tokens = min(max(own.tokens - number * token_axis, 0), token_axis)
                end = tokens * (size // token_axis)
            yield _MovedRow(here, there, end)


def _ranges(starts: Array, sizes: Array) -> Array:
    return join([np.stack([starts, starts + sizes], axis=1)])


def _amount(ranges: Array) -> int:
    return int((ranges[:, 1] - ranges[:, 0]).sum())
