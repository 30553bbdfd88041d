"""More single changes to a lowered replica than `plan_mutants` has: numbers, orders, exchanges.

What a slip of a hand or of a program does to a plan: an operation at any other place of its queue,
two of them exchanged, any number in place of another, another buffer, device or trace, bytes a
little further on, records there twice. As in `plan_mutants` the first word of a change is its kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

from tessera.ir.plan.launch_program import (
    HOST,
    AreaKind,
    Await,
    AwaitPut,
    Bytes,
    Credit,
    DeviceEventId,
    Fill,
    Free,
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
from tessera.ir.program.program import BufferId, LaunchId, Program, Role
from tests.helpers.plan_mutants import Mutant
from tests.helpers.portions import with_portion

T = TypeVar("T")
Edit = tuple[str, LoweredTrace]
_OWN = (Role.INPUT, Role.OUTPUT, Role.TEMP)
_NOWHERE = "nowhere"


def edits(replica: LoweredReplica, programs: Sequence[Program]) -> Iterator[Mutant]:
    """All of them; some change nothing at all."""
    for at, trace in enumerate(replica.traces):
        for what, changed in _trace_edits(trace, programs[trace.trace], replica.devices):
            yield (
                f"{what} of trace {trace.trace}",
                replace(replica, traces=_put(replica.traces, at, changed)),
            )
        yield f"drop-trace {at}", replace(replica, traces=_left_out(replica.traces, at))
        yield f"double-trace {at}", replace(replica, traces=(*replica.traces, trace))
    yield from _place_edits(replica, programs)
    yield from _area_edits(replica)
    yield from _home_edits(replica, programs)
    yield from _header_edits(replica)


def _put(row: tuple[T, ...], at: int, new: T) -> tuple[T, ...]:
    return (*row[:at], new, *row[at + 1 :])


def _left_out(row: tuple[T, ...], at: int) -> tuple[T, ...]:
    return row[:at] + row[at + 1 :]


def _exchanged(row: Sequence[T], one: int, other: int) -> tuple[T, ...]:
    found = list(row)
    found[one], found[other] = row[other], row[one]
    return tuple(found)


def _other(numbers: Iterable[int], own: int) -> list[int]:
    return sorted(set(numbers) - {own})


def _moved(found: Bytes, by: int) -> Bytes:
    return tuple((start + by, end + by) for start, end in found)


# --- operations ------------------------------------------------------------------------------


def _trace_edits(trace: LoweredTrace, program: Program, devices: tuple[str, ...]) -> Iterator[Edit]:
    for number, own in enumerate(trace.programs):
        for what, operations in _operation_edits(own.operations, trace, program):
            changed = replace(own, operations=tuple(operations))
            yield (
                f"{what} on {own.device}",
                replace(trace, programs=_put(trace.programs, number, changed)),
            )
        yield f"drop-program {number}", replace(trace, programs=_left_out(trace.programs, number))
        yield f"double-program {number}", replace(trace, programs=(*trace.programs, own))
    yield from _steps_elsewhere(trace)
    yield from _transfer_edits(trace, program, devices)
    steps = len(list(program.work()))
    for gate in _other([*range(-1, steps + 1), 10**9], -2 if trace.gate is None else trace.gate):
        yield f"gate {gate}", replace(trace, gate=gate)
    for number in (-1, trace.trace + 1, 99):
        yield f"number-trace {number}", replace(trace, trace=number)


def _operation_edits(
    ops: tuple[Queued, ...], trace: LoweredTrace, program: Program
) -> Iterator[tuple[str, Sequence[Queued]]]:
    for at, one in enumerate(ops):
        kind = type(one.operation).__name__.lower()
        rest = _left_out(ops, at)
        for other in (n for n, queued in enumerate(ops) if queued.queue is one.queue and n != at):
            yield f"shift-{kind} {at} {other}", (*rest[:other], one, *rest[other:])
            if other > at:
                yield f"exchange-{kind} {at} {other}", _exchanged(ops, at, other)
        for operation in _otherwise(one.operation):
            yield f"other-{kind} {at}", _put(ops, at, Queued(one.queue, operation))
        for operation in _renumbered(one.operation, ops, trace, program):
            new = Queued(one.queue, operation)
            yield f"number-{kind} {at} {operation}", _put(ops, at, new)
        for other in range(at + 1, len(ops)):
            both = ops[other].operation
            if type(both) is type(one.operation) and isinstance(both, Record | Await):
                swapped = _put(ops, at, Queued(one.queue, both))
                swapped = _put(swapped, other, Queued(ops[other].queue, one.operation))
                yield f"swapnumbers-{kind} {at} {other}", swapped
    for buffer in (one for one in program.buffers if one.role in _OWN):
        for at in range(0, len(ops) + 1, max(1, len(ops) // 4)):
            for queue in Queue:
                extra = Queued(queue, Free(buffer.id))
                yield f"add-free {buffer.name} {at}", (*ops[:at], extra, *ops[at:])
            if buffer.role is not Role.INPUT:
                extra = Queued(Queue.COMPUTE, Fill(buffer.id, ((0, buffer.bytes),)))
                yield f"add-fill {buffer.name} {at}", (*ops[:at], extra, *ops[at:])


def _otherwise(operation: Operation) -> Iterator[Operation]:
    """One end of a transfer through a landing, or no longer through one."""
    match operation:
        case Send(own):
            yield Put(own, LandingId(0))
        case Receive(own):
            yield AwaitPut(own, LandingId(0))
        case Put(own, _):
            yield Send(own)
        case AwaitPut(own, _):
            yield Receive(own)


def _renumbered(
    operation: Operation, ops: Sequence[Queued], trace: LoweredTrace, program: Program
) -> Iterator[Operation]:
    """The same operation on any other step, event, transfer or buffer, and on some that are not."""
    events = [one.operation.event for one in ops if isinstance(one.operation, Record)]
    buffers = range(-1, len(program.buffers) + 1)
    match operation:
        case Await(event):
            numbers = _other([*events, event - 1, event + 1, 10**9], event)
            yield from (Await(DeviceEventId(n)) for n in numbers)
        case Record(event):
            numbers = _other([*events, event - 1, event + 1, 10**9], event)
            yield from (Record(DeviceEventId(n)) for n in numbers)
        case Run(step):
            numbers = _other(range(-1, len(list(program.work())) + 1), step)
            yield from (Run(LaunchId(n)) for n in numbers)
        case Send(own) | Receive(own):
            numbers = _other([-1, *(int(one.id) for one in trace.transfers)], own)
            yield from (type(operation)(TransferId(n)) for n in numbers)
        case Put(own, landing) | AwaitPut(own, landing):
            numbers = _other([-1, *(int(one.id) for one in trace.transfers)], own)
            yield from (type(operation)(TransferId(n), landing) for n in numbers)
            for n in _other(range(-1, landing + 3), landing):
                yield type(operation)(own, LandingId(n))
        case Credit(landing):
            yield from (Credit(LandingId(n)) for n in _other(range(-1, landing + 3), landing))
        case Free(buffer):
            yield from (Free(BufferId(n)) for n in _other(buffers, buffer))
        case Fill(buffer, found):
            yield from (Fill(BufferId(n), found) for n in _other(buffers, buffer))
            yield from (Fill(buffer, _moved(found, by)) for by in (-4, -1, 1, 4))


def _steps_elsewhere(trace: LoweredTrace) -> Iterator[Edit]:
    """Two steps of different devices exchanged, and a step at any place of another device."""
    runs = [
        (number, at)
        for number, own in enumerate(trace.programs)
        for at, queued in enumerate(own.operations)
        if isinstance(queued.operation, Run)
    ]
    for number, at in runs:
        one = trace.programs[number].operations[at]
        for other, there in runs:
            if other > number:
                two = trace.programs[other].operations[there]
                changed = _with_operation(trace, number, at, two)
                what = f"exchange-steps {one.operation} {two.operation}"
                yield what, _with_operation(changed, other, there, one)
        for other, own in enumerate(trace.programs):
            if other == number:
                continue
            programs = list(trace.programs)
            kept = _left_out(programs[number].operations, at)
            programs[number] = replace(programs[number], operations=kept)
            for there in range(0, len(own.operations) + 1, 2):
                with_it = (*own.operations[:there], one, *own.operations[there:])
                programs[other] = replace(own, operations=with_it)
                yield f"move-step {one.operation} {there}", replace(trace, programs=tuple(programs))


def _with_operation(trace: LoweredTrace, number: int, at: int, one: Queued) -> LoweredTrace:
    own = trace.programs[number]
    changed = replace(own, operations=_put(own.operations, at, one))
    return replace(trace, programs=_put(trace.programs, number, changed))


# --- transfers -------------------------------------------------------------------------------


def _transfer_edits(
    trace: LoweredTrace, program: Program, devices: tuple[str, ...]
) -> Iterator[Edit]:
    rows = trace.transfers
    unused = TransferId(max((int(one.id) for one in rows), default=0) + 1)
    for at, one in enumerate(rows):
        for what, changed in _changed_transfer(one, program, devices):
            yield f"{what}-transfer {one.id}", replace(trace, transfers=_put(rows, at, changed))
        renumbered = replace(one, id=unused)
        yield f"number-transfer {one.id}", replace(trace, transfers=_put(rows, at, renumbered))
        yield f"unlist-transfer {one.id}", replace(trace, transfers=_left_out(rows, at))
        yield f"double-transfer {one.id}", replace(trace, transfers=(*rows, one))
        yield f"again-transfer {one.id}", _sent_again(trace, one, unused)
        for other in range(at + 1, len(rows)):
            two = rows[other]
            swapped = _put(_put(rows, at, replace(two, id=one.id)), other, replace(one, id=two.id))
            yield f"exchange-transfer {one.id} {two.id}", replace(trace, transfers=swapped)


def _changed_transfer(
    one: Transfer, program: Program, devices: tuple[str, ...]
) -> Iterator[tuple[str, Transfer]]:
    for at, portion in enumerate(one.portions):
        for by in (-64, -4, -1, 1, 4, 64):
            shifted = Portion(portion.buffer, _moved(portion.bytes, by))
            yield "shift", with_portion(one, at, shifted)
        for number in _other(range(-1, len(program.buffers) + 1), portion.buffer):
            yield "buffer", with_portion(one, at, Portion(BufferId(number), portion.bytes))
        yield "empty", with_portion(one, at, Portion(portion.buffer, ()))
        yield "drop", with_portion(one, at)
        yield "double", with_portion(one, at, portion, portion)
    for at, (portion, after) in enumerate(pairwise(one.portions)):
        swapped = Portion(portion.buffer, after.bytes), Portion(after.buffer, portion.bytes)
        if portion.bytes != after.bytes:
            yield "swap", with_portion(with_portion(one, at + 1), at, *swapped)
        yield "turn", with_portion(with_portion(one, at + 1), at, after, portion)
    for device in (*devices, HOST, _NOWHERE):
        if device != one.source:
            yield "from", replace(one, source=device)
        if device != one.target:
            yield "to", replace(one, target=device)
    yield "reverse", replace(one, source=one.target, target=one.source)


def _sent_again(trace: LoweredTrace, one: Transfer, number: TransferId) -> LoweredTrace:
    """The transfer a second time, right behind the first."""
    programs = []
    for own in trace.programs:
        operations = []
        for queued in own.operations:
            operations.append(queued)
            match queued.operation:
                case Send(first) | Receive(first) if first == one.id:
                    operations.append(Queued(queued.queue, type(queued.operation)(number)))
                case Put(first, landing) if first == one.id:
                    operations.append(Queued(queued.queue, Put(number, landing)))
                case AwaitPut(first, landing) if first == one.id:
                    operations.append(Queued(queued.queue, Credit(landing)))
                    operations.append(Queued(queued.queue, AwaitPut(number, landing)))
                case _:
                    pass
        programs.append(replace(own, operations=tuple(operations)))
    return replace(
        trace, transfers=(*trace.transfers, replace(one, id=number)), programs=tuple(programs)
    )


# --- memory ----------------------------------------------------------------------------------


def _place_edits(replica: LoweredReplica, programs: Sequence[Program]) -> Iterator[Mutant]:
    rows = replica.places
    sizes = {(area.device, area.kind): area.bytes for area in replica.areas}
    for at, one in enumerate(rows):
        size = sizes.get((one.device, one.kind), 0)
        offsets = [*range(0, size + 512, 256), one.offset + 1, one.offset + 128, -256, 1 << 62]
        for offset in _other(offsets, one.offset):
            changed = replace(one, offset=offset)
            yield f"offset-place {at} {offset}", replace(replica, places=_put(rows, at, changed))
        for number in _other(range(-1, len(programs[one.trace].buffers) + 1), one.buffer):
            changed = replace(one, buffer=BufferId(number))
            yield f"buffer-place {at} {number}", replace(replica, places=_put(rows, at, changed))
        for number in _other(range(-1, len(programs) + 1), one.trace):
            changed = replace(one, trace=number)
            yield f"trace-place {at} {number}", replace(replica, places=_put(rows, at, changed))
        yield f"double-place {at}", replace(replica, places=(*rows, one))
        for device in replica.devices:
            if device != one.device:
                extra = replace(one, device=device)
                yield f"add-place {at} {device}", replace(replica, places=(*rows, extra))
        for other in range(at + 1, len(rows)):
            two = rows[other]
            if (one.device, one.kind) == (two.device, two.kind) and one.offset != two.offset:
                swapped = _put(rows, at, replace(one, offset=two.offset))
                swapped = _put(swapped, other, replace(two, offset=one.offset))
                yield f"exchange-place {at} {other}", replace(replica, places=swapped)


def _area_edits(replica: LoweredReplica) -> Iterator[Mutant]:
    rows = replica.areas
    for at, one in enumerate(rows):
        for size in _other(
            [0, one.bytes - 1, one.bytes + 1, one.bytes + 256, -256, 1 << 60], one.bytes
        ):
            changed = replace(one, bytes=size)
            yield f"bytes-area {at} {size}", replace(replica, areas=_put(rows, at, changed))
        for kind in AreaKind:
            if kind is not one.kind:
                changed = replace(one, kind=kind)
                yield f"kind-area {at} {kind}", replace(replica, areas=_put(rows, at, changed))
        for device in (*replica.devices, _NOWHERE):
            if device != one.device:
                changed = replace(one, device=device)
                yield f"device-area {at} {device}", replace(replica, areas=_put(rows, at, changed))
        for count in _other([0, -1, 2 * one.count, 1 << 40], one.count):
            changed = replace(one, count=count)
            yield f"count-area {at} {count}", replace(replica, areas=_put(rows, at, changed))
        yield f"double-area {at}", replace(replica, areas=(*rows, one))


def _home_edits(replica: LoweredReplica, programs: Sequence[Program]) -> Iterator[Mutant]:
    rows = replica.homes
    for at, one in enumerate(rows):
        for number in _other(range(-1, len(programs) + 1), one.trace):
            changed = replace(one, trace=number)
            yield f"trace-home {at} {number}", replace(replica, homes=_put(rows, at, changed))
        for number in _other(range(-1, len(programs[one.trace].buffers) + 1), one.buffer):
            changed = replace(one, buffer=BufferId(number))
            yield f"buffer-home {at} {number}", replace(replica, homes=_put(rows, at, changed))
        for by in (-4, -1, 1, 4):
            changed = replace(one, bytes=_moved(one.bytes, by))
            yield f"shift-home {at} {by}", replace(replica, homes=_put(rows, at, changed))
        for device in replica.devices:
            if device != one.device:
                extra = replace(one, device=device)
                yield f"add-home {at} {device}", replace(replica, homes=(*rows, extra))
        yield f"double-home {at}", replace(replica, homes=(*rows, one))
        yield f"empty-home {at}", replace(replica, homes=_put(rows, at, replace(one, bytes=())))


def _header_edits(replica: LoweredReplica) -> Iterator[Mutant]:
    devices = replica.devices
    for at in range(len(devices)):
        yield f"drop-device {at}", replace(replica, devices=_left_out(devices, at))
        yield f"double-device {at}", replace(replica, devices=(*devices, devices[at]))
    yield "host-device", replace(replica, devices=(*devices, HOST))
    for number in (0, -1, 1 << 30):
        yield f"number-slots {number}", replace(replica, slots=number)
        yield f"number-lanes {number}", replace(replica, lanes=number)
