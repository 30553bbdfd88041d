"""The buffers that a launch may touch on its device, according to its launch program.

In: the program of a device. Out: per launch, the buffers that are accessible to it. These are the
weights and states of the device, the buffers that were received, filled or used earlier and are not
yet freed, and the buffers whose addresses the launch is given, also through `pointers` records. All
other memory belongs to other buffers, and an access to it stops the launch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from tessera.backend.service import ServedTrace
from tessera.ir.plan.launch_program import (
    HOST,
    AreaKind,
    Await,
    AwaitPut,
    Credit,
    DeviceEventId,
    DeviceProgram,
    Fill,
    Free,
    LandingId,
    LoweredTrace,
    Operation,
    Place,
    Put,
    Queue,
    Receive,
    Record,
    Run,
    Send,
    TransferId,
)
from tessera.ir.program import program as ir


def buffers_in_sight(
    lowered: LoweredTrace, served: ServedTrace, device: DeviceProgram, places: Mapping[int, Place]
) -> dict[ir.LaunchId, frozenset[ir.BufferId]]:
    """Per step of the device, the buffers that are accessible to it; `places` are by buffer."""
    work = list(served.program.work())
    always = {b for b, place in places.items() if place.kind is not AreaKind.SLOT}
    carried = {t.id: {int(portion.buffer) for portion in t.portions} for t in lowered.transfers}
    present: set[int] = set()
    filled: set[int] = set()
    in_sight: dict[ir.LaunchId, frozenset[ir.BufferId]] = {}
    for operation in _in_order(lowered, device):
        match operation:
            case Receive(transfer) | AwaitPut(transfer):
                filled |= carried[transfer]
                present |= carried[transfer]
            case Fill(buffer, _):
                filled.add(int(buffer))
                present.add(int(buffer))
            case Free(buffer):
                filled.discard(int(buffer))
                present.discard(int(buffer))
            case Run(number):
                step = work[number]
                used = set(_used(served.program, step, served.arches[number])) & places.keys()
                # A launch may be given an address and touch nothing there. Bytes therefore belong
                # to the buffer that they were received or filled for, not to a buffer that was only
                # used.
                used -= {b for b in used - present if _covered(b, filled, served, places)}
                shown = (always | present | used) & places.keys()
                in_sight[step.id] = frozenset(ir.BufferId(b) for b in shown)
                present |= used - always
            case _:
                pass
    return in_sight


def _in_order(lowered: LoweredTrace, device: DeviceProgram) -> Iterator[Operation]:
    """The operations of a device in a possible order, found together with all other devices.

    If one operation frees bytes and another takes them, they have the same order in every possible
    order. An order found without the other devices need not be possible: received bytes may depend
    on results of this device.
    """
    order = _GlobalOrder()
    waiting = [
        (program.device, deque(o.operation for o in program.operations if o.queue is queue))
        for program in lowered.programs
        for queue in Queue
    ]
    order.sent |= {transfer.id for transfer in lowered.transfers if transfer.source == HOST}
    moves = True
    while moves:
        moves = False
        for name, operations in waiting:
            while operations and not order.waits(name, operations[0]):
                operation = operations.popleft()
                order.happen(name, operation)
                moves = True
                if name == device.device:
                    yield operation
    for name, never in waiting:  # these wait forever, which the run reports
        if name == device.device:
            yield from never


class _GlobalOrder:
    """The operations that have happened on all devices."""

    def __init__(self) -> None:
        self.sent: set[TransferId] = set()
        self._recorded: set[tuple[str, DeviceEventId]] = set()
        self._held: set[LandingId] = set()

    def waits(self, device: str, operation: Operation) -> bool:
        match operation:
            case Await(event):
                return (device, event) not in self._recorded
            case Receive(transfer) | AwaitPut(transfer):
                return transfer not in self.sent
            case Put(_, landing):
                return landing in self._held
            case _:
                return False

    def happen(self, device: str, operation: Operation) -> None:
        match operation:
            case Record(event):
                self._recorded.add((device, event))
            case Send(transfer):
                self.sent.add(transfer)
            case Put(transfer, landing):
                self.sent.add(transfer)
                self._held.add(landing)
            case Credit(landing):
                self._held.discard(landing)
            case _:
                pass


def _covered(
    buffer: int, owners: set[int], served: ServedTrace, places: Mapping[int, Place]
) -> bool:
    """Whether another buffer owns the bytes of a buffer at this time."""
    if places[buffer].kind is not AreaKind.SLOT:
        return False
    start, end = _extent(buffer, served, places)
    private = (b for b in owners if b in places and places[b].kind is AreaKind.SLOT)
    others = (_extent(other, served, places) for other in private)
    return any(first < end and start < last for first, last in others)


def _extent(buffer: int, served: ServedTrace, places: Mapping[int, Place]) -> tuple[int, int]:
    return places[buffer].taken(served.program.buffers[buffer].bytes)


def _used(program: ir.Program, step: ir.Work, arch: str) -> Iterator[int]:
    """The buffers whose addresses a step is given."""
    first: list[int] = []
    match step:
        case ir.Launch():
            for argument in ir.for_arch(step, arch).arguments:
                match argument:
                    case ir.Pointer(buffer, _):
                        first.append(int(buffer))
                    case ir.ByValue(_, words):
                        first += [int(word.target.buffer) for word in words]
                    case _:
                        pass
        case ir.Memset():
            first.append(int(step.target.buffer))
        case ir.Memcpy():
            first += [int(step.target.buffer), int(step.source.buffer)]
        case ir.LibraryCall():
            first += [int(tensor.pointer.buffer) for tensor in (*step.reads, *step.writes)]
    tables = {int(table.buffer): table for table in program.pointer_tables}
    seen: set[int] = set()
    while first:
        given = first.pop()
        if given in seen:
            continue
        seen.add(given)
        yield given
        if given in tables:
            first += [int(word.target.buffer) for word in tables[given].words]
