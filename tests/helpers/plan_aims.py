"""Changes to launch programs that keep a plan consistent where a single change would be refused for
its form: a step with its place in the plan, the home of bytes in all traces, a landing with all
that names it, two transfers at both ends, places in less memory, an earlier event, an earlier send.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from tessera.ir.plan.launch_program import (
    AreaKind,
    Await,
    AwaitPut,
    Credit,
    LoweredReplica,
    Operation,
    Put,
    Queue,
    Queued,
    Receive,
    Record,
    Run,
    Send,
)
from tessera.ir.program.program import Program, Role
from tests.helpers.plan_cases import Case
from tests.helpers.plan_harmless_memory import behind
from tests.helpers.plan_harmless_operations import on_each, some_ops, with_ops

Aimed = Callable[[random.Random, Case, LoweredReplica], tuple[Case, LoweredReplica] | None]


def moved_step(
    rng: random.Random, case: Case, replica: LoweredReplica
) -> tuple[Case, LoweredReplica] | None:
    """A step at some place of another device's program, with memory there for all it touches."""
    at = rng.randrange(len(replica.traces))
    trace = replica.traces[at]
    steps = list(enumerate(case.placements[trace.trace]))
    if len(replica.devices) < 2 or not steps:
        return None
    step, here = rng.choice(steps)
    there = rng.choice([name for name in replica.devices if name != here])
    programs = {program.device: n for n, program in enumerate(trace.programs)}
    if there not in programs:
        return None
    made = replica
    for buffer in dict.fromkeys(a.buffer for a in case.graphs[trace.trace].nodes[step].accesses):
        name = case.programs[trace.trace].buffers[buffer].name
        role = case.programs[trace.trace].buffers[buffer].role
        known = [p for p in made.places if (p.trace, p.buffer) == (trace.trace, buffer)]
        if any(p.device == there for p in known) or role is Role.VARIABLE or not known:
            continue
        if not any((a.device, a.kind) == (there, known[0].kind) for a in made.areas):
            return None
        if any(_name(case.programs, p) == name and p.device == there for p in made.places):
            return None
        new = replace(known[0], device=there, first=0, end=None)
        made = behind(made, len(made.places), new, case)
    run = next(q for q in trace.programs[programs[here]].operations if q.operation == Run(step))
    rest = [q for q in trace.programs[programs[here]].operations if q is not run]
    ops = list(trace.programs[programs[there]].operations)
    ops.insert(rng.randrange(len(ops) + 1), run)
    made = with_ops(with_ops(made, at, programs[here], rest), at, programs[there], ops)
    row = list(case.placements[trace.trace])
    row[step] = there
    placements = list(case.placements)
    placements[trace.trace] = tuple(row)
    return replace(case, placements=tuple(placements)), made


def _name(programs: Sequence[Program], place: object) -> str:
    return programs[place.trace].buffers[place.buffer].name


def moved_home(
    rng: random.Random, case: Case, replica: LoweredReplica
) -> tuple[Case, LoweredReplica] | None:
    """Bytes of a state at home elsewhere, or also elsewhere, in all traces that have it."""
    if not replica.homes:
        return None
    home = rng.choice(replica.homes)
    name = _name(case.programs, home)
    there = [
        p.device
        for p in replica.places
        if _name(case.programs, p) == name and p.trace == home.trace and p.device != home.device
    ]
    if not there:
        return None
    device, also = rng.choice(there), rng.random() < 0.4
    homes = []
    for one in replica.homes:
        is_it = (_name(case.programs, one), one.device) == (name, home.device)
        if not is_it or also:
            homes.append(one)
        if is_it:
            homes.append(replace(one, device=device))
    return case, replace(replica, homes=tuple(homes))


def other_landing(
    rng: random.Random, case: Case, replica: LoweredReplica
) -> tuple[Case, LoweredReplica] | None:
    """A put, its wait and its credit in another landing of the same way."""
    at = rng.randrange(len(replica.traces))
    trace = replica.traces[at]
    puts = [
        q.operation
        for program in trace.programs
        for q in program.operations
        if isinstance(q.operation, Put)
    ]
    if not puts:
        return None
    put = rng.choice(puts)
    known = next(one for one in replica.landings if one.id == put.landing)
    others = [
        one.id
        for one in replica.landings
        if one.id != put.landing and (one.source, one.target) == (known.source, known.target)
    ]
    if not others:
        return None
    new, behind = rng.choice(others), False

    def change(number: int, operation: Operation) -> Operation:
        nonlocal behind
        if number != at:
            return operation
        if isinstance(operation, Put | AwaitPut) and operation.transfer == put.transfer:
            behind = isinstance(operation, AwaitPut)
            return replace(operation, landing=new)
        if isinstance(operation, Credit) and behind:
            behind = False
            return Credit(new)
        return operation

    return case, replace(replica, traces=on_each(replica, change))


def other_turn(
    rng: random.Random, case: Case, replica: LoweredReplica
) -> tuple[Case, LoweredReplica] | None:
    """Two transfers in each other's place at both ends, or at one; waits and events stay."""
    at = rng.randrange(len(replica.traces))
    trace = replica.traces[at]
    ways: dict[object, list[int]] = {}
    for transfer in trace.transfers:
        ways.setdefault((transfer.source, transfer.target), []).append(int(transfer.id))
    pairs = [row for row in ways.values() if len(row) > 1]
    if not pairs:
        return None
    one, other = rng.sample(rng.choice(pairs), 2)
    names, ends = {one: other, other: one}, rng.choice([(Send, Receive), (Send,), (Receive,)])

    def change(number: int, operation: Operation) -> Operation:
        if number == at and isinstance(operation, ends):
            return replace(operation, transfer=names.get(operation.transfer, operation.transfer))
        return operation

    return case, replace(replica, traces=on_each(replica, change))


def less_memory(
    rng: random.Random, case: Case, replica: LoweredReplica
) -> tuple[Case, LoweredReplica] | None:
    """A smaller area; what is behind its new end goes somewhere before."""
    areas = [a for a in replica.areas if a.bytes > 256 and a.kind is not AreaKind.MODULE]
    if not areas:
        return None
    area = rng.choice(areas)
    size = rng.randrange(256, area.bytes, 256)
    places = []
    for place in replica.places:
        if (place.device, place.kind) == (area.device, area.kind):
            taken = place.taken(case.programs[place.trace].buffers[place.buffer].bytes)
            if taken[1] > size:
                room = max(0, size - (taken[1] - taken[0]))
                place = replace(place, offset=rng.randrange(room // 256 + 1) * 256)
        places.append(place)
    rows = tuple(replace(a, bytes=size) if a is area else a for a in replica.areas)
    return case, replace(replica, areas=rows, places=tuple(places))


def early_wait(
    rng: random.Random, case: Case, replica: LoweredReplica
) -> tuple[Case, LoweredReplica] | None:
    """An operation waits for an event of the same queue that is recorded earlier, or not at all."""
    chosen = some_ops(rng, replica)
    if chosen is None:
        return None
    at, number, ops = chosen
    waits = [n for n, q in enumerate(ops) if isinstance(q.operation, Await)]
    if not waits:
        return None
    wait = rng.choice(waits)
    there = next(n for n, q in enumerate(ops) if q.operation == Record(ops[wait].operation.event))
    before = [
        q.operation.event
        for q in ops[:there]
        if q.queue is ops[there].queue and isinstance(q.operation, Record)
    ]
    if not before:
        return None
    new = Queued(ops[wait].queue, Await(before[-1]))
    return case, with_ops(replica, at, number, [*ops[:wait], new, *ops[wait + 1 :]])


def sent_early(
    rng: random.Random, case: Case, replica: LoweredReplica
) -> tuple[Case, LoweredReplica] | None:
    """A transfer leaves before the operations that stand right before it on its queue: it may send
    another version. Its target receives it in the same turn."""
    at = rng.randrange(len(replica.traces))
    trace = replica.traces[at]
    sends = [
        (number, n)
        for number, program in enumerate(trace.programs)
        for n, q in enumerate(program.operations)
        if isinstance(q.operation, Send | Put)
    ]
    if not sends:
        return None
    number, n = rng.choice(sends)
    ops = list(trace.programs[number].operations)
    queue = [m for m in range(n) if ops[m].queue is Queue.OUT]
    if not queue:
        return None
    one = ops.pop(n)
    ops.insert(rng.choice(queue[-3:]), one)
    return case, with_ops(replica, at, number, ops)


AIMED: dict[str, Aimed] = {
    one.__name__: one
    for one in (
        moved_step,
        moved_home,
        other_landing,
        other_turn,
        less_memory,
        early_wait,
        sent_early,
    )
}
