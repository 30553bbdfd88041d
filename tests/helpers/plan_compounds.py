"""Changes to a lowered replica in several places at once that go together.

One slip is seldom alone: an event goes with all its waits, two events become one, a transfer is cut
in two whose halves may be sent in another order than they are received, takes another way, or moves
with both of its ends; places are exchanged; what one transfer lacks another one has. As in
`plan_mutants` the first word of a change is its kind.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from tessera.ir.plan.launch_program import (
    HOST,
    Await,
    DeviceProgram,
    Fill,
    Free,
    LoweredReplica,
    LoweredTrace,
    Operation,
    Portion,
    Queue,
    Queued,
    Receive,
    Record,
    Run,
    Send,
    Transfer,
    TransferId,
)
from tests.helpers.plan_mutants import Mutant
from tests.helpers.portions import cut, cut_portions, merged, with_portion

Row = list[Queued]
Change = Callable[[random.Random, LoweredTrace], LoweredTrace | None]


def compound(
    rng: random.Random, replica: LoweredReplica, singles: Sequence[Mutant]
) -> Mutant | None:
    """One of them at random, a third of them on top of one of `singles`; None where there is none
    of the kind."""
    names = []
    if rng.random() < 0.3:
        what, replica = rng.choice(singles)
        names.append(what)
    if rng.random() < 0.2:
        return _two_places(rng, replica, names)
    for _ in range(rng.choice([1, 1, 2, 3]) if replica.traces else 0):
        at = rng.randrange(len(replica.traces))
        name = rng.choice(list(CHANGES))
        trace = CHANGES[name](rng, replica.traces[at])
        if trace is not None:
            names.append(name)
            traces = (*replica.traces[:at], trace, *replica.traces[at + 1 :])
            replica = replace(replica, traces=traces)
    return (", ".join(names), replica) if names else None


def _two_places(rng: random.Random, replica: LoweredReplica, names: list[str]) -> Mutant | None:
    """Two buffers of an area in each other's place, or both in one."""
    groups: dict[object, list[int]] = {}
    for number, place in enumerate(replica.places):
        groups.setdefault((place.device, place.kind), []).append(number)
    usable = [group for group in groups.values() if len(group) > 1]
    if not usable:
        return None
    first, second = rng.sample(rng.choice(usable), 2)
    places = list(replica.places)
    one, other = places[first], places[second]
    places[first] = replace(one, offset=other.offset)
    if rng.random() < 0.7:
        places[second] = replace(other, offset=one.offset)
    return ", ".join([*names, "places"]), replace(replica, places=tuple(places))


# --- rows of operations --------------------------------------------------------------------


def _rows(trace: LoweredTrace) -> dict[str, Row]:
    return {program.device: list(program.operations) for program in trace.programs}


def _with_rows(trace: LoweredTrace, rows: dict[str, Row]) -> LoweredTrace:
    programs = tuple(
        DeviceProgram(device=p.device, operations=tuple(rows[p.device])) for p in trace.programs
    )
    return replace(trace, programs=programs)


def _some(rng: random.Random, trace: LoweredTrace, *kinds: type) -> tuple[str, Operation] | None:
    known = [
        (program.device, queued.operation)
        for program in trace.programs
        for queued in program.operations
        if isinstance(queued.operation, kinds)
    ]
    return rng.choice(known) if known else None


def _without_event(rng: random.Random, trace: LoweredTrace) -> LoweredTrace | None:
    """An event, and all that wait for it."""
    chosen = _some(rng, trace, Record)
    if chosen is None or not isinstance(chosen[1], Record):
        return None
    device, event = chosen[0], chosen[1].event
    rows = _rows(trace)
    rows[device] = [
        queued
        for queued in rows[device]
        if not (isinstance(queued.operation, Record | Await) and queued.operation.event == event)
    ]
    return _with_rows(trace, rows)


def _joined_events(rng: random.Random, trace: LoweredTrace) -> LoweredTrace | None:
    """Who waits for one event waits for another, and the first is gone."""
    chosen = _some(rng, trace, Record)
    if chosen is None or not isinstance(chosen[1], Record):
        return None
    device, gone = chosen[0], chosen[1].event
    rows = _rows(trace)
    others = [
        queued.operation.event
        for queued in rows[device]
        if isinstance(queued.operation, Record) and queued.operation.event != gone
    ]
    if not others:
        return None
    kept = rng.choice(others)
    rows[device] = [
        Queued(queued.queue, Await(kept)) if queued.operation == Await(gone) else queued
        for queued in rows[device]
        if queued.operation != Record(gone)
    ]
    return _with_rows(trace, rows)


def _without_waits(rng: random.Random, trace: LoweredTrace) -> LoweredTrace | None:
    """A step, transfer or free without all the waits right before it."""
    chosen = _some(rng, trace, Run, Send, Receive, Free, Fill)
    if chosen is None:
        return None
    rows = _rows(trace)
    row = rows[chosen[0]]
    at = next(n for n, queued in enumerate(row) if queued.operation == chosen[1])
    queue = row[at].queue
    gone: set[int] = set()
    for number in range(at - 1, -1, -1):
        if row[number].queue is queue:
            if not isinstance(row[number].operation, Await):
                break
            gone.add(number)
    if not gone:
        return None
    rows[chosen[0]] = [queued for number, queued in enumerate(row) if number not in gone]
    return _with_rows(trace, rows)


def _earlier(rng: random.Random, trace: LoweredTrace) -> LoweredTrace | None:
    """A transfer with both of its ends as early, or as late, as may be: old or changed bytes."""
    if not trace.transfers:
        return None
    number = rng.choice(trace.transfers).id
    rows, first = _rows(trace), rng.random() < 0.6
    for device, row in rows.items():
        ends = [q for q in row if q.operation in (Send(number), Receive(number))]
        rest = [q for q in row if q not in ends]
        rows[device] = [*ends, *rest] if first else [*rest, *ends]
    return _with_rows(trace, rows)


def _exchanged_steps(rng: random.Random, trace: LoweredTrace) -> LoweredTrace | None:
    """Two steps of a device in each other's place, waits and events staying."""
    rows = _rows(trace)
    for device in rng.sample(list(rows), len(rows)):
        runs = [n for n, queued in enumerate(rows[device]) if isinstance(queued.operation, Run)]
        if len(runs) > 1:
            one, other = rng.sample(runs, 2)
            row = rows[device]
            row[one], row[other] = row[other], row[one]
            return _with_rows(trace, rows)
    return None


# --- transfers -----------------------------------------------------------------------------


def _unused(trace: LoweredTrace) -> int:
    return max((int(transfer.id) for transfer in trace.transfers), default=0) + 1


def _split(rng: random.Random, trace: LoweredTrace) -> LoweredTrace | None:
    """Two transfers for one; the second half may be short by a byte, or come in another order."""
    large = [
        one for one in trace.transfers if one.size > 2 and HOST not in (one.source, one.target)
    ]
    if not large or _has_puts(trace):
        return None
    one = rng.choice(large)
    first, second = cut_portions(one.portions, rng.randrange(1, one.size))
    if rng.random() < 0.3 and (left := sum(portion.size for portion in second)) > 1:
        second = cut_portions(second, left - 1)[0]
    new = TransferId(_unused(trace))
    rows = _rows(trace)
    for device, row in rows.items():
        made: Row = []
        for queued in row:
            if queued.operation in (Send(one.id), Receive(one.id)):
                both = [queued, Queued(queued.queue, type(queued.operation)(new))]
                made += both if rng.random() < 0.5 else both[::-1]
            else:
                made.append(queued)
        rows[device] = made
    transfers = [replace(t, portions=first) if t is one else t for t in trace.transfers]
    transfers.append(replace(one, id=new, portions=second))
    return _with_rows(replace(trace, transfers=tuple(transfers)), rows)


def _moved_bytes(rng: random.Random, trace: LoweredTrace) -> LoweredTrace | None:
    """What one transfer of a buffer lacks, another one between the same devices has."""
    by_way: dict[object, list[tuple[Transfer, int]]] = {}
    for transfer in trace.transfers:
        for at, portion in enumerate(transfer.portions):
            way = (portion.buffer, transfer.source, transfer.target)
            by_way.setdefault(way, []).append((transfer, at))
    pairs = [group for group in by_way.values() if len(group) > 1]
    if not pairs:
        return None
    (one, at), (other, there) = rng.sample(rng.choice(pairs), 2)
    portion = one.portions[at]
    if portion.size < 2:
        return None
    kept, moved = cut(portion.bytes, rng.randrange(1, portion.size))
    union = merged([*other.portions[there].bytes, *moved])
    changed = {
        one.id: with_portion(one, at, Portion(portion.buffer, kept)),
        other.id: with_portion(other, there, Portion(portion.buffer, union)),
    }
    return replace(trace, transfers=tuple(changed.get(t.id, t) for t in trace.transfers))


def _other_way(rng: random.Random, trace: LoweredTrace) -> LoweredTrace | None:
    """From a device that had the bytes, or may have old ones, in place of the right one."""
    inner = [t for t in trace.transfers if HOST not in (t.source, t.target)]
    devices = [program.device for program in trace.programs]
    if not inner or len(devices) < 3 or _has_puts(trace):
        return None
    one = rng.choice(inner)
    others = [device for device in devices if device not in (one.source, one.target)]
    if not others:
        return None
    source = rng.choice(others)
    rows = _rows(trace)
    rows[one.source] = [q for q in rows[one.source] if q.operation != Send(one.id)]
    at = rng.randrange(len(rows[source]) + 1)
    rows[source].insert(at, Queued(Queue.OUT, Send(one.id)))
    transfers = tuple(replace(t, source=source) if t is one else t for t in trace.transfers)
    return _with_rows(replace(trace, transfers=transfers), rows)


def _has_puts(trace: LoweredTrace) -> bool:
    known = {type(queued.operation) for p in trace.programs for queued in p.operations}
    return not known <= {Run, Fill, Free, Send, Receive, Record, Await}


CHANGES: dict[str, Change] = {
    "event": _without_event,
    "events": _joined_events,
    "waits": _without_waits,
    "earlier": _earlier,
    "steps": _exchanged_steps,
    "split": _split,
    "bytes": _moved_bytes,
    "way": _other_way,
}
