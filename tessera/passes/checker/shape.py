"""Checks that the programs of a trace are consistent: everything named exists, and is done once.

In: a lowered trace, its program and graph, and the device of every step. Out: a `TraceShape`, the
operations by kind, or None if something is wrong.

Nothing in a plan is trusted: numbers may be out of range, lists may be in any order. After this
check every step runs once, on its device, and twins on different devices; every transfer is sent
once and received once, on the right queues, with bytes that lie in its buffer; every event that has
a wait is recorded once; and a gate is a step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.launch_program import (
    HOST,
    Await,
    AwaitPut,
    Bytes,
    Credit,
    Fill,
    Free,
    Landing,
    LoweredTrace,
    Portion,
    Put,
    Queue,
    Receive,
    Record,
    Run,
    Send,
    Transfer,
)
from tessera.ir.program.program import Program, Role
from tessera.passes.checker.findings import Findings, Names, Op

PRIVATE = (Role.INPUT, Role.OUTPUT, Role.TEMP)
LASTING = (Role.STATE, Role.VARIABLE)
QueueKey = tuple[str, Queue]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceShape:
    """The operations of one request, by queue and by kind."""

    trace: LoweredTrace
    program: Program
    graph: KernelGraph
    names: Names
    queues: dict[QueueKey, list[Op]]
    landings: Mapping[int, Landing]
    runs: dict[int, Op] = field(default_factory=dict)
    sends: dict[int, Op] = field(default_factory=dict)
    receives: dict[int, Op] = field(default_factory=dict)
    records: dict[tuple[str, int], Op] = field(default_factory=dict)

    @property
    def transfers(self) -> dict[int, Transfer]:
        """The transfers by their numbers."""
        return self.names.transfers


def find_shape(
    trace: LoweredTrace,
    program: Program,
    graph: KernelGraph,
    devices: Sequence[str],
    placement: Sequence[str],
    landings: Mapping[int, Landing],
    findings: Findings,
) -> TraceShape | None:
    """The operations of a trace, or None if they are inconsistent."""
    before = findings.count
    transfers = _transfers(trace, graph, devices, findings)
    if findings.count > before:
        return None
    names = Names(graph, transfers)
    shape = TraceShape(
        trace=trace, program=program, graph=graph, names=names, queues={}, landings=landings
    )
    for device in devices:
        for queue in Queue:
            shape.queues[device, queue] = []
    seen: set[str] = set()
    for device_program in trace.programs:
        if device_program.device in seen or device_program.device not in devices:
            what = (
                "has two programs"
                if device_program.device in seen
                else "is no device of its replica"
            )
            findings.add("TSR4001", f"`{device_program.device}` {what}", at=device_program)
            continue
        seen.add(device_program.device)
        for number, queued in enumerate(device_program.operations):
            ops = shape.queues[device_program.device, queued.queue]
            op = Op(device=device_program.device, position=len(ops), number=number, record=queued)
            ops.append(op)
            _enter(shape, op, findings)
    if findings.count == before:
        _check_runs(shape, placement, findings)
        _check_ends(shape, findings)
        _check_gate(shape, findings)
    return shape if findings.count == before else None


def _transfers(
    trace: LoweredTrace, graph: KernelGraph, devices: Sequence[str], findings: Findings
) -> dict[int, Transfer]:
    """The transfers by number; records that cannot be transfers are reported and left out."""
    transfers: dict[int, Transfer] = {}
    for transfer in trace.transfers:
        fault = _transfer_fault(transfer, graph, devices)
        if fault is None and transfer.id in transfers:
            fault = "is there twice"
        if fault is not None:
            findings.add("TSR4001", f"transfer {transfer.id} {fault}", at=transfer)
            continue
        transfers[transfer.id] = transfer
    return transfers


def _transfer_fault(transfer: Transfer, graph: KernelGraph, devices: Sequence[str]) -> str | None:
    if transfer.source == transfer.target:
        return f"goes from `{transfer.source}` to itself"
    for end in (transfer.source, transfer.target):
        if end != HOST and end not in devices:
            return f"names `{end}`, which is no device of its replica"
    buffers = [portion.buffer for portion in transfer.portions]
    if not buffers or buffers != sorted(set(buffers)):
        return f"is of buffers {buffers}: they are in ascending order, each once"
    if HOST in (transfer.source, transfer.target) and len(buffers) > 1:
        return f"is of {len(buffers)} buffers, and from or to the host"
    faults = (_portion_fault(transfer, portion, graph) for portion in transfer.portions)
    return next((fault for fault in faults if fault is not None), None)


def _portion_fault(transfer: Transfer, portion: Portion, graph: KernelGraph) -> str | None:
    if not 0 <= portion.buffer < len(graph.buffers):
        return f"is of buffer {portion.buffer}, which is not there"
    buffer = graph.buffers[portion.buffer]
    if buffer.role is Role.WEIGHT:
        return f"is of the weight `{buffer.name}`, which is in place before any request"
    if transfer.source == HOST and buffer.role is not Role.INPUT:
        return f"takes `{buffer.name}` from the host, which has only inputs to give"
    if transfer.target == HOST and buffer.role is not Role.OUTPUT:
        return f"takes `{buffer.name}` to the host, which takes only outputs"
    return bytes_fault(portion.bytes, buffer.bytes, buffer.name)


def bytes_fault(ranges: Bytes, length: int, name: str) -> str | None:
    """The reason why ranges are not bytes of a buffer in ascending order, or None if they are."""
    if not ranges:
        return f"has no bytes of `{name}`"
    last = -1
    for start, end in ranges:
        if start <= last or end <= start:
            return f"has bytes {start}:{end} of `{name}`, which are out of order or none"
        last = end
    if last > length:
        return f"has bytes up to {last} of `{name}`, which has {length}"
    return None


_QUEUE_OF: Mapping[type, Queue] = {
    Run: Queue.COMPUTE,
    Fill: Queue.COMPUTE,
    Send: Queue.OUT,
    Receive: Queue.IN,
    Put: Queue.OUT,
    AwaitPut: Queue.IN,
    Credit: Queue.IN,
}


def _enter(shape: TraceShape, op: Op, findings: Findings) -> None:
    """Enter an operation in the table of its kind, or report its fault."""
    where = f"operation {op.number} of `{op.device}`"
    wanted = _QUEUE_OF.get(type(op.operation), op.queue)
    if op.queue is not wanted:
        kind = type(op.operation).__name__.lower()
        findings.add(
            "TSR4001",
            f"{where} is a {kind} on the {op.queue.value} queue, not on {wanted.value}",
            at=op.record,
        )
        return

    def once(table: dict[int, Op], key: int, known: bool, what: str) -> None:
        if not known:
            findings.add("TSR4001", f"{where} names {what}, which is not there", at=op.record)
        elif key in table:
            findings.add(
                "TSR4002",
                f"{what} is done twice: {shape.names.op(table[key])} and {where}",
                at=op.record,
            )
        else:
            table[key] = op

    _dispatch(shape, op, where, once, findings)


def _dispatch(
    shape: TraceShape,
    op: Op,
    where: str,
    once: Callable[[dict[int, Op], int, bool, str], None],
    findings: Findings,
) -> None:
    transfers = shape.transfers
    match op.operation:
        case Run(step):
            once(shape.runs, step, 0 <= step < len(shape.graph.nodes), f"step {step}")
        case Send(transfer) | Put(transfer):
            known = transfer in transfers and transfers[transfer].source == op.device
            once(shape.sends, transfer, known, f"transfer {transfer} from here")
        case Receive(transfer) | AwaitPut(transfer):
            known = transfer in transfers and transfers[transfer].target == op.device
            once(shape.receives, transfer, known, f"transfer {transfer} to here")
        case Credit(landing):
            known = landing in shape.landings and shape.landings[landing].target == op.device
            if not known:
                what = f"{where} credits landing {landing}, which is not there"
                findings.add("TSR4001", what, at=op.record)
        case Record(event):
            if (op.device, event) in shape.records:
                first = shape.names.op(shape.records[op.device, event])
                what = f"event {event} happens twice: {first} and {where}"
                findings.add("TSR4002", what, at=op.record)
            shape.records.setdefault((op.device, event), op)
        case Await():
            pass
        case Fill(buffer, ranges):
            fault = _own_fault(shape, buffer, (Role.OUTPUT, Role.TEMP), "fill")
            if fault is None:
                held = shape.graph.buffers[buffer]
                fault = bytes_fault(ranges, held.bytes, held.name)
            if fault is not None:
                findings.add("TSR4001", f"{where} {fault}", at=op.record)
        case Free(buffer):
            fault = _own_fault(shape, buffer, PRIVATE, "free")
            if fault is not None:
                findings.add("TSR4001", f"{where} {fault}", at=op.record)
        case _:
            assert_never(op.operation)


def _own_fault(shape: TraceShape, buffer: int, roles: tuple[Role, ...], verb: str) -> str | None:
    if not 0 <= buffer < len(shape.graph.buffers):
        return f"is to {verb} buffer {buffer}, which is not there"
    held = shape.graph.buffers[buffer]
    if held.role not in roles:
        return f"is to {verb} `{held.name}`, which is of role {held.role.value}"
    return None


def _check_runs(shape: TraceShape, placement: Sequence[str], findings: Findings) -> None:
    """Check that every step runs, on the device that the plan gives it."""
    for step in range(len(shape.graph.nodes)):
        op = shape.runs.get(step)
        if op is None:
            findings.add("TSR4002", f"step {shape.names.step(step)} is never done")
        elif op.device != placement[step]:
            findings.add(
                "TSR4002",
                f"step {shape.names.step(step)} is planned for `{placement[step]}` and runs on "
                f"`{op.device}`",
                f"it is {shape.names.op(op)}",
            )
    for group in shape.program.twins:
        for member, step in enumerate(group):
            others = [other for other in group[:member] if placement[other] == placement[step]]
            if others:
                findings.add(
                    "TSR4002",
                    f"steps {shape.names.step(others[0])} and {shape.names.step(step)} are twins "
                    f"and both on `{placement[step]}`",
                )


def _check_gate(shape: TraceShape, findings: Findings) -> None:
    """Check that the gate, for which the next request waits, is a step that runs."""
    gate = shape.trace.gate
    if gate is not None and gate not in shape.runs:
        findings.add(
            "TSR4001",
            f"the gate of trace {shape.trace.trace} is step {gate}, which is not there",
            at=shape.trace,
        )


def _check_ends(shape: TraceShape, findings: Findings) -> None:
    """Check that every transfer has both its ends, and that every awaited event is recorded."""
    for number, transfer in shape.transfers.items():
        name = shape.names.transfer(number)
        if transfer.source != HOST and number not in shape.sends:
            findings.add("TSR4002", f"{name} is never sent", at=transfer)
        if transfer.target != HOST and number not in shape.receives:
            findings.add("TSR4002", f"{name} is never received", at=transfer)
    for ops in shape.queues.values():
        for op in ops:
            if isinstance(op.operation, Await):
                event = op.operation.event
                if (op.device, event) not in shape.records:
                    what = f"{shape.names.op(op)}: nothing records that event"
                    findings.add("TSR4002", what, at=op.record)
