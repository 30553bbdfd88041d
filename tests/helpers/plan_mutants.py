"""Every single small change to a lowered replica: what the judge of plans must catch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tessera.ir.plan.launch_program import (
    HOST,
    AreaKind,
    Await,
    AwaitPut,
    Bytes,
    Credit,
    DeviceEventId,
    DeviceProgram,
    Fill,
    LoweredReplica,
    LoweredTrace,
    Operation,
    Place,
    Portion,
    Put,
    Queue,
    Queued,
    Receive,
    Record,
    Run,
    Send,
    Transfer,
)
from tessera.ir.program.program import Program
from tests.helpers.portions import with_portion

Mutant = tuple[str, LoweredReplica]
"""What was changed, in words whose first is the kind of change; and the result."""


def mutants(replica: LoweredReplica, programs: tuple[Program, ...]) -> Iterator[Mutant]:
    """All of them."""
    for number, trace in enumerate(replica.traces):
        sizes = [one.bytes for one in programs[trace.trace].buffers]
        for what, changed in _trace_mutants(trace, sizes, replica.devices):
            traces = (*replica.traces[:number], changed, *replica.traces[number + 1 :])
            yield f"{what} (trace {number})", replace(replica, traces=traces)
    yield from _memory_mutants(replica)
    yield from _home_mutants(replica, programs)
    for at, landing in enumerate(replica.landings):
        rest = replica.landings[:at] + replica.landings[at + 1 :]
        yield f"drop-landing {at}", replace(replica, landings=rest)
        for changed in (
            replace(landing, bytes=landing.bytes - 1),
            replace(landing, source=landing.target, target=landing.source),
        ):
            yield f"change-landing {at}", replace(replica, landings=(*rest, changed))


# --- operations ------------------------------------------------------------------------------


def _trace_mutants(
    trace: LoweredTrace, sizes: list[int], devices: tuple[str, ...]
) -> Iterator[tuple[str, LoweredTrace]]:
    for number, program in enumerate(trace.programs):
        for what, operations in _operation_mutants(program, sizes):
            programs = list(trace.programs)
            programs[number] = replace(program, operations=tuple(operations))
            yield f"{what} on {program.device}", replace(trace, programs=tuple(programs))
        yield from _moved_runs(trace, number)
    yield from _transfer_mutants(trace, sizes, devices)


def _operation_mutants(
    program: DeviceProgram, sizes: list[int]
) -> Iterator[tuple[str, list[Queued]]]:
    ops = list(program.operations)
    for at, one in enumerate(ops):
        kind = type(one.operation).__name__.lower()
        yield f"drop-{kind} {at}", ops[:at] + ops[at + 1 :]
        yield f"double-{kind} {at}", ops[: at + 1] + ops[at:]
        after = next((n for n in range(at + 1, len(ops)) if ops[n].queue is one.queue), None)
        if after is not None:
            swapped = list(ops)
            swapped[at], swapped[after] = ops[after], one
            yield f"swap-{kind} {at} {after}", swapped
        yield f"last-{kind} {at}", [*ops[:at], *ops[at + 1 :], one]
        yield f"first-{kind} {at}", [one, *ops[:at], *ops[at + 1 :]]
        for queue in Queue:
            if queue is not one.queue:
                yield (
                    f"requeue-{kind} {at}",
                    [*ops[:at], Queued(queue, one.operation), *ops[at + 1 :]],
                )
        for what, changed in _changed(one.operation, ops, sizes):
            yield f"{what}-{kind} {at}", [*ops[:at], Queued(one.queue, changed), *ops[at + 1 :]]
        for event in _events(ops):
            extra = Queued(one.queue, Await(event))
            yield f"add-await {event} {at}", [*ops[:at], extra, *ops[at:]]


def _events(ops: list[Queued]) -> Iterator[DeviceEventId]:
    return (one.operation.event for one in ops if isinstance(one.operation, Record))


def _changed(
    operation: Operation, ops: list[Queued], sizes: list[int]
) -> Iterator[tuple[str, Operation]]:
    match operation:
        case Await(event):
            for other in _events(ops):
                if other != event:
                    yield "change", Await(other)
        case Fill(buffer, found):
            for what, changed in _other_bytes(found, sizes[buffer]):
                yield what, Fill(buffer, changed)
        case _:
            return


def _moved_runs(trace: LoweredTrace, number: int) -> Iterator[tuple[str, LoweredTrace]]:
    program = trace.programs[number]
    for at, one in enumerate(program.operations):
        if not isinstance(one.operation, Run):
            continue
        for other, target in enumerate(trace.programs):
            if other == number:
                continue
            programs = list(trace.programs)
            rest = program.operations[:at] + program.operations[at + 1 :]
            programs[number] = replace(program, operations=rest)
            programs[other] = replace(target, operations=(*target.operations, one))
            yield f"move-run {at} to {target.device}", replace(trace, programs=tuple(programs))


# --- transfers -------------------------------------------------------------------------------


def _other_bytes(found: Bytes, size: int) -> Iterator[tuple[str, Bytes]]:
    """Shortened and widened ranges."""
    for at, (start, end) in enumerate(found):
        before, after = found[:at], found[at + 1 :]
        if len(found) > 1:
            yield "shorten", before + after
        if end - start > 1:
            yield "shorten", (*before, (start, end - 1), *after)
            yield "shorten", (*before, (start + 1, end), *after)
            yield "shorten", (*before, (start, (start + end) // 2), *after)
        low = before[-1][1] + 1 if before else 0
        high = after[0][0] - 1 if after else size
        if low < start:
            yield "widen", (*before, (low, end), *after)
            yield "widen", (*before, (start - 1, end), *after)
        if end < high:
            yield "widen", (*before, (start, high), *after)
            yield "widen", (*before, (start, end + 1), *after)
    if found != ((0, size),):
        yield "widen", ((0, size),)


def _transfer_mutants(
    trace: LoweredTrace, sizes: list[int], devices: tuple[str, ...]
) -> Iterator[tuple[str, LoweredTrace]]:
    for at, transfer in enumerate(trace.transfers):
        without = replace(
            trace,
            transfers=trace.transfers[:at] + trace.transfers[at + 1 :],
            programs=tuple(_without(program, transfer) for program in trace.programs),
        )
        yield f"drop-transfer {transfer.id}", without
        for number, portion in enumerate(transfer.portions):
            for what, changed in _other_bytes(portion.bytes, sizes[portion.buffer]):
                mutant = with_portion(transfer, number, Portion(portion.buffer, changed))
                yield f"{what}-transfer {transfer.id}", _with(trace, at, mutant)
            if len(transfer.portions) > 1:
                mutant = with_portion(transfer, number)
                yield f"drop-portion {transfer.id}", _with(trace, at, mutant)
        for device in devices:
            if transfer.source not in (HOST, device) and transfer.target != device:
                moved = replace(transfer, source=device)
                yield f"source-transfer {transfer.id}", _redirected(trace, at, moved)
            if transfer.target not in (HOST, device) and transfer.source != device:
                moved = replace(transfer, target=device)
                yield f"target-transfer {transfer.id}", _redirected(trace, at, moved)


def _with(trace: LoweredTrace, at: int, transfer: Transfer) -> LoweredTrace:
    return replace(trace, transfers=(*trace.transfers[:at], transfer, *trace.transfers[at + 1 :]))


def _without(program: DeviceProgram, transfer: Transfer) -> DeviceProgram:
    kept = []
    for one in program.operations:
        match one.operation:
            case Send(number) | Receive(number) | Put(number) | AwaitPut(number):
                gone = number == transfer.id
            case Credit():
                gone = bool(kept) and kept[-1] is None
            case _:
                gone = False
        kept.append(None if gone else one)
    return replace(program, operations=tuple(one for one in kept if one is not None))


def _redirected(trace: LoweredTrace, at: int, moved: Transfer) -> LoweredTrace:
    """The same transfer with its operation moved to the end of another device's program."""
    old = trace.transfers[at]
    changed = _with(trace, at, moved)
    is_source = old.source != moved.source
    kinds = (Send, Put) if is_source else (Receive, AwaitPut)
    operation: Operation = next(
        one.operation
        for program in trace.programs
        for one in program.operations
        if isinstance(one.operation, kinds) and one.operation.transfer == moved.id
    )
    queue = Queue.OUT if is_source else Queue.IN
    target = moved.source if is_source else moved.target
    programs = []
    for program in changed.programs:
        ops = tuple(one for one in program.operations if one.operation != operation)
        if program.device == target:
            ops = (*ops, Queued(queue, operation))
        programs.append(replace(program, operations=ops))
    return replace(changed, programs=tuple(programs))


# --- memory ----------------------------------------------------------------------------------


def _memory_mutants(replica: LoweredReplica) -> Iterator[Mutant]:
    for at, place in enumerate(replica.places):
        places = list(replica.places)
        yield f"drop-place {at}", replace(replica, places=tuple(places[:at] + places[at + 1 :]))
        others = {p.offset for p in places if (p.device, p.kind) == (place.device, place.kind)}
        offsets = [*sorted(others - {place.offset}), place.offset + 256, place.offset + 4]
        for offset in offsets:
            places[at] = replace(place, offset=offset)
            yield f"move-place {at}", replace(replica, places=tuple(places))
        for what, first, end in _other_held(place):
            places[at] = replace(place, first=first, end=end)
            yield f"{what}-place {at}", replace(replica, places=tuple(places))
            moved = place.offset + first - place.first
            places[at] = replace(place, first=first, end=end, offset=moved)
            yield f"{what}-moved {at}", replace(replica, places=tuple(places))
        for kind in AreaKind:
            if kind is not place.kind:
                places[at] = replace(place, kind=kind)
                yield f"kind-place {at}", replace(replica, places=tuple(places))
        for device in replica.devices:
            if device != place.device:
                places[at] = replace(place, device=device)
                yield f"device-place {at}", replace(replica, places=tuple(places))
    for at, area in enumerate(replica.areas):
        areas = list(replica.areas)
        yield f"drop-area {at}", replace(replica, areas=tuple(areas[:at] + areas[at + 1 :]))
        for changed in (
            replace(area, bytes=area.bytes - 256),
            replace(area, count=area.count + 1),
            replace(area, count=area.count - 1),
        ):
            areas[at] = changed
            yield f"change-area {at}", replace(replica, areas=tuple(areas))
    if any(area.kind is AreaKind.SLOT for area in replica.areas):
        # Without memory of their own, one slot more is as good.
        yield "slots", replace(replica, slots=replica.slots + 1)
    yield "lanes", replace(replica, lanes=replica.lanes + 1)


def _other_held(place: Place) -> Iterator[tuple[str, int, int | None]]:
    """Other ranges of the buffer: fewer bytes, others, or more than fit."""
    first, end = place.first, place.end
    yield "unaligned", first + 4, end
    yield "later", first + 256, end
    yield "empty", first, first
    if first:
        yield "earlier", first - 256, end
    if end is not None:
        yield "shorter", first, end - 1
        yield "longer", first, end + 1
        yield "longest", first, None
        yield "shifted", first + 256, end + 256


def _home_mutants(replica: LoweredReplica, programs: tuple[Program, ...]) -> Iterator[Mutant]:
    for at, home in enumerate(replica.homes):
        homes = list(replica.homes)
        yield f"drop-home {at}", replace(replica, homes=tuple(homes[:at] + homes[at + 1 :]))
        size = programs[home.trace].buffers[home.buffer].bytes
        for what, changed in _other_bytes(home.bytes, size):
            homes[at] = replace(home, bytes=changed)
            yield f"{what}-home {at}", replace(replica, homes=tuple(homes))
        for device in replica.devices:
            if device != home.device:
                homes[at] = replace(home, device=device)
                yield f"device-home {at}", replace(replica, homes=tuple(homes))
