"""The memory of one virtual device of a plan: its areas, and the buffers of requests in them.

In: a `LoweredReplica`, programs and contents. Out: addresses and bytes of buffers by trace, slot
and lane; and the allocations that a launch may touch, so that any other access (to a freed buffer,
another slot, or a buffer of another device) stops the launch.

Unwritten memory holds poison; in a verified run, the place of a buffer holds a pattern of its own
when a request first uses it. Copies of areas have guard bytes between them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tessera.backend.address_words import Home, plain_word
from tessera.backend.processes.visits import Seat
from tessera.backend.ptx_executor.device import Device
from tessera.backend.ptx_executor.memory.memory import ALIGNMENT, GUARD, POISON, Allocation, Array
from tessera.backend.ptx_executor.steps import LoadedModules
from tessera.backend.service import Model, StateParts
from tessera.backend.unwritten import (
    ComparedSide,
    buffer_key,
    device_key,
    ranges_without_words,
    unwritten_bytes,
)
from tessera.ir.plan.launch_program import (
    AreaKind,
    AwaitPut,
    Bytes,
    Fill,
    Operation,
    Place,
    Put,
    Receive,
    Run,
    Send,
)
from tessera.ir.program import program as ir

_NOWHERE = 1 << 38  # never memory this far above a device's base
_PAGE = 1 << 16
_SPARE = 64 << 20  # for variables that the trace does not name as buffers


class Arena:
    """The areas of a device."""

    def __init__(
        self, device: Device, name: str, model: Model, unwritten: ComparedSide | None = None
    ) -> None:
        self.device = device
        self._unwritten = unwritten
        self.name = name
        self.model = model
        self.modules = {
            lowered.trace: LoadedModules(device, model.traces[lowered.trace].program)
            for lowered in model.lowered.traces
        }
        self.places = {(p.trace, p.buffer): p for p in model.lowered.places if p.device == name}
        self._carried = {
            (lowered.trace, transfer.id): frozenset(portion.buffer for portion in transfer.portions)
            for lowered in model.lowered.traces
            for transfer in lowered.transfers
        }
        # States of one name are one state in all traces, with one place here.
        self._states = {
            self._buffer(trace, number).name: (trace, number)
            for (trace, number), place in reversed(self.places.items())
            if place.kind is AreaKind.LANE and self._buffer(trace, number).role is ir.Role.STATE
        }
        self._current = {
            name: model.lowered.current_bytes(self.places[key], self._buffer(*key).bytes)
            for name, key in self._states.items()
        }
        self._load_modules()
        self._fixed = list(device.space.table)
        self._copies: dict[AreaKind, list[int]] = {}
        self._sizes: dict[AreaKind, int] = {}
        self._last: dict[int, Seat] = {}
        # The value that was last put into each word of a state, by the address of the word.
        self._given: dict[int, int] = {}
        for area in model.lowered.areas:
            if area.device == name and area.kind is not AreaKind.MODULE:
                self._sizes[area.kind] = area.bytes
                self._copies[area.kind] = [
                    device.space.set_aside(area.bytes, f"{area.kind.value} {copy}")
                    for copy in range(area.count)
                ]
        self._fill()

    def _load_modules(self) -> None:
        """Load the modules of this device's steps, so that no request waits for them."""
        for trace, step in self._launches():
            arch = self.model.traces[trace].arches[step.id]
            self.modules[trace].load(step.module, arch)[0][step.kernel].compile()

    def _launches(self) -> Iterator[tuple[int, ir.Launch]]:
        for lowered in self.model.lowered.traces:
            work = list(self.model.traces[lowered.trace].program.work())
            for program in lowered.programs:
                for queued in program.operations if program.device == self.name else ():
                    if isinstance(queued.operation, Run):
                        step = work[queued.operation.step]
                        if isinstance(step, ir.Launch):
                            yield lowered.trace, step

    def address(self, seat: Seat, buffer: ir.BufferId) -> int:
        """The address of byte 0 of a buffer, of which only a part may be here; a buffer without a
        place has an address that faults."""
        place = self.places.get((seat.trace, buffer))
        if place is None:
            return self.device.space.base + _NOWHERE + (int(buffer) << 20)
        if place.kind is AreaKind.MODULE:
            variable = self.modules[seat.trace].variable(self._buffer(seat.trace, buffer))
            assert variable is not None, "a variable has a place only where its module runs"
            return variable.address
        return self._copies[place.kind][_copy(seat, place)] + place.base

    def held(self, seat: Seat, buffer: ir.BufferId) -> tuple[int, int]:
        """The bytes of a buffer that are here: first and end (exclusive)."""
        return self.places[seat.trace, buffer].held(self._buffer(seat.trace, buffer).bytes)

    def view(self, seat: Seat, buffer: ir.BufferId) -> Array:
        """The bytes of a buffer in place, from the first that is here."""
        base = self.address(seat, buffer) - self.device.space.base
        first, end = self.held(seat, buffer)
        return self.device.space.bytes[base + first : base + end]

    def whole(self, seat: Seat, buffer: ir.BufferId) -> Array:
        """All bytes of a buffer; those that are not here are zero. Changes may not be in place."""
        first, end = self.held(seat, buffer)
        size = self._buffer(seat.trace, buffer).bytes
        view = self.view(seat, buffer)
        return view if (first, end) == (0, size) else np.pad(view, (first, size - end))

    def _buffer(self, trace: int, buffer: ir.BufferId) -> ir.Buffer:
        return self.model.traces[trace].program.buffers[buffer]

    def _fill(self) -> None:
        """Write weights, and the initial states of the lanes."""
        for (trace, number), place in self.places.items():
            buffer = self._buffer(trace, number)
            held = place.held(buffer.bytes)
            if place.kind is AreaKind.WEIGHTS:
                self.view(Seat(trace, 0, 0), number)[:] = self.model.weight(buffer.name, held)
            elif place.kind is AreaKind.LANE and buffer.role is ir.Role.STATE:
                for lane in range(len(self.model.states)):
                    content = self.model.state(lane, buffer.name, held)
                    self.view(Seat(trace, 0, lane), number)[:] = content

    def _state(self, lane: int, name: str) -> tuple[Array, int]:
        """The bytes of a lane's state that are here, and the number of the first."""
        trace, number = self._states[name]
        seat = Seat(trace, 0, lane)
        return self.view(seat, number), self.held(seat, number)[0]

    def read_parts(self, lane: int, parts: StateParts) -> Array:
        """Bytes of states of a lane, packed."""
        rows = []
        for name, ranges in parts:
            view, first = self._state(lane, name)
            rows += [view[start - first : end - first] for start, end in ranges]
        return np.concatenate(rows) if rows else np.zeros(0, np.uint8)

    def write_parts(self, lane: int, parts: StateParts, content: Array) -> None:
        """Set bytes of states of a lane."""
        at = 0
        for name, ranges in parts:
            view, first = self._state(lane, name)
            for start, end in ranges:
                view[start - first : end - first] = content[at : at + end - start]
                at += end - start

    def begin(self, seat: Seat) -> None:
        """Begin a request: poison its slot, then write device addresses."""
        self._last[seat.lane] = seat
        if AreaKind.SLOT in self._copies:
            start = self._copies[AreaKind.SLOT][seat.slot] - self.device.space.base
            self.device.space.bytes[start : start + self._sizes[AreaKind.SLOT]] = POISON
        for (trace, number), place in self.places.items():
            if trace == seat.trace and place.kind in (AreaKind.SLOT, AreaKind.LANE):
                buffer = self._buffer(trace, number)
                if buffer.role is ir.Role.WEIGHT:
                    self.view(seat, number)[:] = self.model.weights[buffer.name]
        self._write_words(seat)

    def _write_words(self, seat: Seat) -> None:
        """Write the addresses of `pointers` records.

        States keep the values that requests have written: a word that does not hold the value last
        put there is left unchanged.
        """
        for table in self.model.traces[seat.trace].program.pointer_tables:
            place = self.places.get((seat.trace, table.buffer))
            if place is None:
                continue
            for word in table.words:
                view = self.view(seat, table.buffer)[word.offset :][: ir.POINTER_BYTES]
                at = self.address(seat, table.buffer) + word.offset
                held = int.from_bytes(view.tobytes(), "little")
                if place.kind is AreaKind.LANE and self._given.get(at, held) != held:
                    continue
                target = self.address(seat, word.target.buffer) + word.target.offset
                view[:] = np.frombuffer(target.to_bytes(ir.POINTER_BYTES, "little"), np.uint8)
                if place.kind is AreaKind.LANE:
                    self._given[at] = target

    def move_in(
        self, request: int, seat: Seat, present: set[ir.BufferId], operation: Operation
    ) -> None:
        """In a verified run, write a pattern into buffers whose first use is this operation.

        The checker has proved that earlier uses of these bytes are over (`passes.checker.tenants`);
        the caller lets no later use begin. Weights and address words are already in place.
        """
        if self._unwritten is None:
            return
        for number in self._touched(seat.trace, operation) - present:
            place = self.places.get((seat.trace, number))
            buffer = self._buffer(seat.trace, number)
            is_here = place is not None and place.kind is AreaKind.SLOT
            if is_here and buffer.role is not ir.Role.WEIGHT:
                key = buffer_key(seat.trace, number)
                own = device_key(self.name)
                content = unwritten_bytes(self._unwritten, request, own, key, 0, buffer.bytes)
                view, (first, last) = self.view(seat, number), self.held(seat, number)
                for start, end in ranges_without_words(
                    self.model.traces[seat.trace].program, buffer
                ):
                    here, there = max(start, first), min(end, last)
                    if here < there:
                        view[here - first : there - first] = content[here:there]
            present.add(number)

    def _touched(self, trace: int, operation: Operation) -> frozenset[ir.BufferId]:
        """The buffers that an operation may touch on this device."""
        match operation:
            case Run(step):
                return self.model.traces[trace].touched[step]
            case Fill(buffer):
                return frozenset((buffer,))
            case Send(number) | Receive(number) | Put(number) | AwaitPut(number):
                return self._carried[trace, number]
            case _:
                return frozenset()

    def free(self, seat: Seat, buffer: ir.BufferId) -> None:
        """Poison the place of a buffer."""
        self.view(seat, buffer)[:] = POISON

    def fill(self, seat: Seat, buffer: ir.BufferId, spans: Bytes) -> None:
        """Write the initial contents of an output or a temp."""
        given = self.model.fillings[seat.trace].get(self._buffer(seat.trace, buffer).name)
        view, (first, _) = self.view(seat, buffer), self.held(seat, buffer)
        for start, end in spans:
            view[start - first : end - first] = POISON if given is None else given[start:end]

    def show(self, seat: Seat, buffers: frozenset[ir.BufferId]) -> None:
        """Allow the next launch to touch these buffers, and module variables."""
        wanted = []
        for b in buffers:
            if self.places[seat.trace, b].kind is not AreaKind.MODULE:
                first, end = self.held(seat, b)
                wanted.append((self.address(seat, b) + first, end - first, b, first))
        shown: list[Allocation] = []
        for address, size, number, first in sorted(wanted):
            name = self._buffer(seat.trace, number).name
            if shown and address < shown[-1].address + shown[-1].size:
                size = max(size, shown[-1].address + shown[-1].size - address)
                size += address - shown[-1].address
                shown[-1] = Allocation(shown[-1].address, size, f"{shown[-1].name} or {name}")
            else:
                shown.append(Allocation(address, size, name, first=first))
        self.device.space.show(
            sorted([*shown, *self._fixed], key=lambda allocation: allocation.address)
        )

    def states(self, lane: int) -> dict[str, list[tuple[int, Array]]]:
        """The bytes of a lane's states that are current here, by name: pairs of start and bytes.

        Address words read as `address_words` says.
        """
        states: dict[str, list[tuple[int, Array]]] = {}
        for name, (trace, number) in self._states.items():
            content = self._without_addresses(trace, number, lane)
            at = self.held(Seat(trace, 0, lane), number)[0]
            states[name] = [
                (start, content[start - at : end - at].copy()) for start, end in self._current[name]
            ]
        return states

    def _without_addresses(self, trace: int, buffer: ir.BufferId, lane: int) -> Array:
        content = self.view(Seat(trace, 0, lane), buffer).copy()
        seat = self._last.get(lane)
        if seat is None:
            return content
        name = self._buffer(trace, buffer).name
        program = self.model.traces[seat.trace].program
        for table in program.pointer_tables:
            for word in table.words if program.buffers[table.buffer].name == name else ():
                target = self.address(seat, word.target.buffer) + word.target.offset
                at = content[word.offset : word.offset + ir.POINTER_BYTES]
                plain = plain_word(at.tobytes(), target, self._homes(seat))
                at[:] = np.frombuffer(plain, np.uint8)
        return content

    def _homes(self, seat: Seat) -> Iterator[Home]:
        """The buffers of a request with their addresses; buffers on other devices come last."""
        buffers = self.model.traces[seat.trace].program.buffers
        here = [b for b in buffers if (seat.trace, b.id) in self.places]
        away = [b for b in buffers if (seat.trace, b.id) not in self.places]
        for buffer in (*here, *away):
            is_here = (seat.trace, buffer.id) in self.places
            held = self.held(seat, buffer.id) if is_here else (0, buffer.bytes)
            yield buffer.name, self.address(seat, buffer.id), held


def _copy(seat: Seat, place: Place) -> int:
    match place.kind:
        case AreaKind.LANE:
            return seat.lane
        case AreaKind.SLOT:
            return seat.slot
        case _:
            return 0


def space_bytes(model: Model, device: str) -> int:
    """The bytes of address space that a device needs: its areas, and the variables of modules."""
    copies = sum(area.count for area in model.lowered.areas if area.device == device)
    variables = [
        buffer.bytes + 2 * ALIGNMENT
        for served in model.traces
        for buffer in served.program.buffers
        if buffer.role is ir.Role.VARIABLE
    ]
    areas = model.lowered.memory_bytes(device) + copies * (GUARD + 2 * ALIGNMENT)
    return -(-(areas + 2 * sum(variables) + _SPARE) // _PAGE) * _PAGE
