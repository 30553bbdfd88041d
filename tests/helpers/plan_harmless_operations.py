"""Changes to the operations and transfers of a lowered replica that provably change nothing.

Each function is a kind of change and says why; `plan_harmless` has the table.
Longer than 400 lines because kinds are short and share how operations are found and replaced.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from tessera.ir.plan.launch_program import (
    HOST,
    AreaKind,
    Await,
    AwaitPut,
    Credit,
    DeviceEventId,
    Fill,
    Landing,
    LandingId,
    LoweredReplica,
    LoweredTrace,
    Operation,
    Portion,
    Put,
    Queue,
    Queued,
    Receive,
    Record,
    Run,
    Send,
    Transfer,
    TransferId,
)
from tessera.ir.program.program import BufferId
from tests.helpers.plan_cases import Case
from tests.helpers.portions import cut_portions, merged
from tests.helpers.regions import region_intervals

T = TypeVar("T")
Ops = tuple[Queued, ...]
Changed = tuple[Case, LoweredReplica]
Span = tuple[object, int, int, bool]
"""Where, from which address to which, and whether it is written."""


def with_trace(replica: LoweredReplica, at: int, trace: LoweredTrace) -> LoweredReplica:
    return replace(replica, traces=(*replica.traces[:at], trace, *replica.traces[at + 1 :]))


def with_ops(
    replica: LoweredReplica, at: int, number: int, ops: Sequence[Queued]
) -> LoweredReplica:
    """The replica with other operations of one device for one trace."""
    trace = replica.traces[at]
    program = replace(trace.programs[number], operations=tuple(ops))
    programs = (*trace.programs[:number], program, *trace.programs[number + 1 :])
    return with_trace(replica, at, replace(trace, programs=programs))


def some_ops(rng: random.Random, replica: LoweredReplica) -> tuple[int, int, Ops] | None:
    rows = [
        (at, number, program.operations)
        for at, trace in enumerate(replica.traces)
        for number, program in enumerate(trace.programs)
        if program.operations
    ]
    return rng.choice(rows) if rows else None


def on_each(
    replica: LoweredReplica, change: Callable[[int, Operation], Operation]
) -> tuple[LoweredTrace, ...]:
    """All traces with every operation changed; the first argument numbers the trace."""
    return tuple(
        replace(
            trace,
            programs=tuple(
                replace(
                    program,
                    operations=tuple(
                        Queued(q.queue, change(at, q.operation)) for q in program.operations
                    ),
                )
                for program in trace.programs
            ),
        )
        for at, trace in enumerate(replica.traces)
    )


def _unused_event(ops: Ops) -> DeviceEventId:
    events = [q.operation.event for q in ops if isinstance(q.operation, Record | Await)]
    return DeviceEventId(max(events, default=0) + 1)


def _neighbours(ops: Ops) -> Iterator[tuple[int, int]]:
    """Operations that follow each other on a queue."""
    last: dict[Queue, int] = {}
    for at, queued in enumerate(ops):
        if queued.queue in last:
            yield last[queued.queue], at
        last[queued.queue] = at


def exchanged(row: Sequence[T], one: int, other: int) -> tuple[T, ...]:
    found = list(row)
    found[one], found[other] = row[other], row[one]
    return tuple(found)


def other_events(rng: random.Random, case: Case, replica: LoweredReplica) -> Changed | None:
    """Events have other numbers."""
    by = rng.randrange(1, 9)

    def change(_: int, operation: Operation) -> Operation:
        match operation:
            case Await(event):
                return Await(DeviceEventId(event * 2 + by))
            case Record(event):
                return Record(DeviceEventId(event * 2 + by))
        return operation

    return case, replace(replica, traces=on_each(replica, change))


def other_numbers(rng: random.Random, case: Case, replica: LoweredReplica) -> Changed | None:
    """Transfers have other numbers."""
    names = [
        dict(zip(own, rng.sample(range(2 * len(own)), len(own)), strict=True))
        for own in ([t.id for t in trace.transfers] for trace in replica.traces)
    ]

    def change(at: int, operation: Operation) -> Operation:
        if isinstance(operation, Send | Receive | Put | AwaitPut):
            return replace(operation, transfer=TransferId(names[at][operation.transfer]))
        return operation

    traces = tuple(
        replace(
            trace,
            transfers=tuple(replace(t, id=TransferId(names[at][t.id])) for t in trace.transfers),
        )
        for at, trace in enumerate(on_each(replica, change))
    )
    return case, replace(replica, traces=traces)


def other_landings(rng: random.Random, case: Case, replica: LoweredReplica) -> Changed | None:
    """Landings have other numbers; there may be one more, and more bytes in each."""
    by = rng.randrange(1, 5)

    def change(_: int, operation: Operation) -> Operation:
        if isinstance(operation, Put | AwaitPut | Credit):
            return replace(operation, landing=LandingId(operation.landing + by))
        return operation

    landings = [
        replace(one, id=LandingId(one.id + by), bytes=one.bytes + rng.choice([0, 3]))
        for one in replica.landings
    ]
    if len(replica.devices) > 1 and rng.random() < 0.5:
        source, target = rng.sample(replica.devices, 2)
        landings.append(Landing(id=LandingId(0), source=source, target=target, bytes=64))
    return case, replace(replica, landings=tuple(landings), traces=on_each(replica, change))


def other_order_of_records(
    rng: random.Random, case: Case, replica: LoweredReplica
) -> Changed | None:
    """Records that are sets are listed in another order."""

    def mixed(row: tuple[T, ...]) -> tuple[T, ...]:
        return tuple(rng.sample(row, len(row)))

    traces = tuple(
        replace(trace, transfers=mixed(trace.transfers), programs=mixed(trace.programs))
        for trace in replica.traces
    )
    return case, replace(
        replica,
        traces=traces,
        places=mixed(replica.places),
        homes=mixed(replica.homes),
        areas=mixed(replica.areas),
        landings=mixed(replica.landings),
    )


def other_mix_of_queues(rng: random.Random, case: Case, replica: LoweredReplica) -> Changed | None:
    """Each queue keeps its order; how they are mixed in the file means nothing."""
    chosen = some_ops(rng, replica)
    if chosen is None:
        return None
    at, number, ops = chosen
    queues = [[q for q in ops if q.queue is queue] for queue in Queue]
    made: list[Queued] = []
    while any(queues):
        made.append(rng.choice([row for row in queues if row]).pop(0))
    return case, with_ops(replica, at, number, made)


def more_events(rng: random.Random, case: Case, replica: LoweredReplica) -> Changed | None:
    """An event that nobody needs, and perhaps a wait for it behind it on its own queue."""
    chosen = some_ops(rng, replica)
    if chosen is None:
        return None
    at, number, ops = chosen
    event, queue = _unused_event(ops), rng.choice(list(Queue))
    first = rng.randrange(len(ops) + 1)
    made = [*ops[:first], Queued(queue, Record(event)), *ops[first:]]
    if rng.random() < 0.6:
        made.insert(rng.randrange(first + 1, len(made) + 1), Queued(queue, Await(event)))
    return case, with_ops(replica, at, number, made)


def more_waits(rng: random.Random, case: Case, replica: LoweredReplica) -> Changed | None:
    """Behind a wait, another for the same event, or for one that its queue records before it."""
    chosen = some_ops(rng, replica)
    if chosen is None:
        return None
    at, number, ops = chosen
    waits = [n for n, q in enumerate(ops) if isinstance(q.operation, Await)]
    if not waits:
        return None
    wait = rng.choice(waits)
    recorded = ops[wait].operation
    assert isinstance(recorded, Await)
    there = next(n for n, q in enumerate(ops) if q.operation == Record(recorded.event))
    earlier = [
        q.operation.event
        for q in ops[: there + 1]
        if q.queue is ops[there].queue and isinstance(q.operation, Record)
    ]
    extra = Queued(ops[wait].queue, Await(rng.choice(earlier)))
    to = rng.randrange(wait + 1, len(ops) + 1)
    return case, with_ops(replica, at, number, [*ops[:to], extra, *ops[to:]])


def exchanged_waits(rng: random.Random, case: Case, replica: LoweredReplica) -> Changed | None:
    """Two waits, or two records, that follow each other."""
    chosen = some_ops(rng, replica)
    if chosen is None:
        return None
    at, number, ops = chosen
    pairs = [
        pair
        for pair in _neighbours(ops)
        if any(all(isinstance(ops[n].operation, kind) for n in pair) for kind in (Await, Record))
    ]
    return (
        (case, with_ops(replica, at, number, exchanged(ops, *rng.choice(pairs)))) if pairs else None
    )


def exchanged_operations(rng: random.Random, case: Case, replica: LoweredReplica) -> Changed | None:
    """Steps, fills, and transfers of the host that follow each other on a queue, and touch no byte
    of which one of them is written."""
    chosen = some_ops(rng, replica)
    if chosen is None:
        return None
    at, number, ops = chosen
    trace = replica.traces[at]
    device = trace.programs[number].device
    touched = [spans_of(case, replica, at, device, q.operation) for q in ops]
    pairs = [
        (one, other)
        for one, other in _neighbours(ops)
        if all(_is_alone(trace, ops[n].operation) for n in (one, other))
        and are_apart(touched[one], touched[other])
    ]
    return (
        (case, with_ops(replica, at, number, exchanged(ops, *rng.choice(pairs)))) if pairs else None
    )


def _is_alone(trace: LoweredTrace, operation: Operation) -> bool:
    """Whether an operation waits for nobody and nobody waits for it."""
    if isinstance(operation, Send | Receive):
        transfer = next(t for t in trace.transfers if t.id == operation.transfer)
        return HOST in (transfer.source, transfer.target)
    return isinstance(operation, Run | Fill)


def spans_of(
    case: Case, replica: LoweredReplica, at: int, device: str, operation: Operation
) -> list[Span]:
    """What an operation touches on its device."""
    number = replica.traces[at].trace
    program, graph = case.programs[number], case.graphs[number]
    found: list[tuple[int, Sequence[tuple[int, int]], bool]] = []
    match operation:
        case Run(step):
            for access in graph.nodes[step].accesses:
                size = program.buffers[access.buffer].bytes
                runs = region_intervals(access.region, size)
                found.append((int(access.buffer), runs, access.kind.writes))
        case Fill(buffer, ranges):
            found.append((int(buffer), ranges, True))
        case Send(transfer) | Receive(transfer):
            one = next(t for t in replica.traces[at].transfers if t.id == transfer)
            writes = isinstance(operation, Receive)
            found += [(int(p.buffer), p.bytes, writes) for p in one.portions]
    spans: list[Span] = []
    for buffer, runs, writes in found:
        place = next(
            (
                p
                for p in replica.places
                if (p.trace, p.buffer, p.device) == (number, buffer, device)
            ),
            None,
        )
        if place is not None:
            where = (place.kind, buffer if place.kind is AreaKind.MODULE else 0)
            spans += [(where, place.base + a, place.base + b, writes) for a, b in runs]
    return spans


def are_apart(one: Sequence[Span], other: Sequence[Span]) -> bool:
    """Whether no byte is in both of which one is written."""
    return not any(
        where == there and start < stop and begin < end and (writes or also)
        for where, start, end, writes in one
        for there, begin, stop, also in other
    )


# --- transfers -------------------------------------------------------------------------------


def _followers(replica: LoweredReplica, at: int) -> list[tuple[Transfer, Transfer]]:
    """Transfers that follow each other at both ends, with nothing between, of one way."""
    trace = replica.traces[at]
    sent, taken = set(), set()
    for program in trace.programs:
        for one, other in _neighbours(program.operations):
            match program.operations[one].operation, program.operations[other].operation:
                case Send(first), Send(second):
                    sent.add((first, second))
                case Receive(first), Receive(second):
                    taken.add((first, second))
    known = {t.id: t for t in trace.transfers}
    return [
        (known[first], known[second])
        for first, second in sorted(sent & taken)
        if (known[first].source, known[first].target)
        == (known[second].source, known[second].target)
    ]


def exchanged_transfers(rng: random.Random, case: Case, replica: LoweredReplica) -> Changed | None:
    """Two that follow each other at both ends, of other bytes: each in the place of the other."""
    at = rng.randrange(len(replica.traces))
    pairs = [pair for pair in _followers(replica, at) if _others(case, replica, at, *pair)]
    if not pairs:
        return None
    one, other = rng.choice(pairs)
    trace = replica.traces[at]
    names = {one.id: other.id, other.id: one.id}
    rows = tuple(replace(t, id=names.get(t.id, t.id)) for t in trace.transfers)
    return case, with_trace(replica, at, replace(trace, transfers=rows))


def _others(case: Case, replica: LoweredReplica, at: int, one: Transfer, other: Transfer) -> bool:
    ends = [spans_of(case, replica, at, one.target, Receive(t.id)) for t in (one, other)]
    return are_apart(*ends)


def split_transfers(rng: random.Random, case: Case, replica: LoweredReplica) -> Changed | None:
    """Two for one, right behind each other at both ends."""
    at = rng.randrange(len(replica.traces))
    trace = replica.traces[at]
    ends = {q.operation for p in trace.programs for q in p.operations}
    large = [t for t in trace.transfers if t.size > 1 and ends & {Send(t.id), Receive(t.id)}]
    if not large:
        return None
    one = rng.choice(large)
    new = TransferId(max(t.id for t in trace.transfers) + 1)
    first, second = cut_portions(one.portions, rng.randrange(1, one.size))
    rows = [replace(t, portions=first) if t is one else t for t in trace.transfers]
    programs = []
    for program in trace.programs:
        ops = []
        for queued in program.operations:
            ops.append(queued)
            if queued.operation in (Send(one.id), Receive(one.id)):
                ops.append(Queued(queued.queue, replace(queued.operation, transfer=new)))
        programs.append(replace(program, operations=tuple(ops)))
    split = replace(
        trace,
        transfers=(*rows, replace(one, id=new, portions=second)),
        programs=tuple(programs),
    )
    return case, with_trace(replica, at, split)


def joined_transfers(rng: random.Random, case: Case, replica: LoweredReplica) -> Changed | None:
    """One for two that follow each other at both ends, of other bytes."""
    at = rng.randrange(len(replica.traces))
    trace = replica.traces[at]
    pairs = [pair for pair in _followers(replica, at) if _others(case, replica, at, *pair)]
    if not pairs:
        return None
    one, other = rng.choice(pairs)
    ranges: dict[BufferId, list[tuple[int, int]]] = {}
    for portion in (*one.portions, *other.portions):
        ranges.setdefault(portion.buffer, []).extend(portion.bytes)
    both = [Portion(buffer, merged(own)) for buffer, own in sorted(ranges.items())]
    rows = [replace(t, portions=tuple(both)) if t is one else t for t in trace.transfers]
    programs = tuple(
        replace(
            program,
            operations=tuple(
                q
                for q in program.operations
                if q.operation not in (Send(other.id), Receive(other.id))
            ),
        )
        for program in trace.programs
    )
    joined = replace(trace, transfers=tuple(t for t in rows if t is not other), programs=programs)
    return case, with_trace(replica, at, joined)
