"""Device memory of a replica: one allocation per area, and the address of each place.

In: a lowered replica, its programs, the open devices. Out: addresses by trace, device, buffer, slot
and lane. With guards, bytes with a pattern lie before and after every group of places that share
bytes, and can be checked. Without guards, offsets are those of the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tessera.backend.cuda.api import Driver, DriverError
from tessera.backend.cuda.faults import missing, start_failed
from tessera.backend.cuda.targets import OpenDevice
from tessera.backend.service import BackendOptions
from tessera.diagnostics import TesseraError, error
from tessera.ir.plan.launch_program import (
    PLACE_ALIGNMENT,
    POISON,
    Area,
    AreaKind,
    LoweredReplica,
    Place,
)
from tessera.ir.program.program import BufferId, Program

GUARD_PATTERN = 0xA5
# An address that no GPU has, for pointers to buffers without a place on a device. It is not null,
# because kernels test optional pointers for null.
NOWHERE = 0x1CB << 44

VariableAddress = Callable[[int, str, BufferId], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedArea:
    """An area in memory. `offsets` are by offset in the plan; `guards` are ranges of each copy."""

    area: Area
    base: int
    stride: int
    offsets: Mapping[int, int]
    guards: tuple[tuple[int, int], ...]


class ReplicaMemory:
    """All areas of a replica."""

    def __init__(
        self,
        driver: Driver,
        lowered: LoweredReplica,
        programs: Sequence[Program],
        devices: Mapping[str, OpenDevice],
        variable_address: VariableAddress,
        guard_bytes: int = 0,
        options: BackendOptions | None = None,
    ) -> None:
        """Allocate all areas; without guards, weights are shared as `options` says."""
        options = options or BackendOptions()
        self._common = options.common if not guard_bytes else None
        self._common_as = options.common_as
        self._driver = driver
        self._lowered = lowered
        self._programs = programs
        self._devices = devices
        self._variable = variable_address
        self.places: dict[tuple[int, str, BufferId], Place] = {
            (place.trace, place.device, place.buffer): place for place in lowered.places
        }
        self.blocks: dict[tuple[str, AreaKind], PlacedArea] = {}
        self._check_room(guard_bytes)
        for area in lowered.areas:
            if area.kind is not AreaKind.MODULE:
                self.blocks[area.device, area.kind] = self._allocate(area, guard_bytes)

    def address(self, trace: int, device: str, buffer: BufferId, slot: int, lane: int) -> int:
        """The address of byte 0 of a buffer; `NOWHERE` or above if it has no place on the device.

        The place may hold only a part of the buffer: other bytes belong to others.
        """
        place = self.places.get((trace, device, buffer))
        if place is None:
            return NOWHERE + (int(buffer) << 36)
        if place.kind is AreaKind.MODULE:
            return self._variable(trace, device, buffer)
        block = self.blocks[device, place.kind]
        copy = {AreaKind.WEIGHTS: 0, AreaKind.LANE: lane, AreaKind.SLOT: slot}[place.kind]
        return block.base + copy * block.stride + block.offsets[place.offset] - place.first

    def broken_guards(self) -> Iterator[str]:
        """Guards that were overwritten: a sentence per area and copy."""
        for (device, kind), block in self.blocks.items():
            self._driver.use(self._devices[device].context)
            size = block.stride * block.area.count
            copies = self._driver.download(block.base, size).reshape(block.area.count, block.stride)
            for copy, row in enumerate(copies):
                for start, end in block.guards:
                    wrong = np.flatnonzero(row[start:end] != GUARD_PATTERN)
                    if wrong.size:
                        at = start + int(wrong[0])
                        yield f"{device} {kind.value} copy {copy}: byte {at} of a guard changed"

    def check_guards(self) -> None:
        """Raise if a guard was overwritten."""
        broken = tuple(self.broken_guards())
        if broken:
            raise TesseraError(
                error("TSR5002", "a kernel wrote outside its buffers", notes=broken[:8]), 6
            )

    def close(self) -> None:
        """Free all memory that no other replica uses."""
        for (device, _), block in self.blocks.items():
            key = self._common_key(block.area)
            if key is None or self._common is None or self._common.give_back(key):
                self._driver.use(self._devices[device].context)
                self._driver.free(block.base)
        self.blocks.clear()

    def _common_key(self, area: Area) -> object | None:
        """The key of an area that other replicas share; None if they do not share it."""
        if self._common is None or area.kind is not AreaKind.WEIGHTS:
            return None
        return self._common_as.get(area.device)

    def _check_room(self, guard_bytes: int) -> None:
        """Refuse areas that cannot fit before allocating: slices of one GPU share its memory."""
        needed: dict[int, int] = {}
        for area in self._lowered.areas:
            key = self._common_key(area)
            is_there = key is not None and self._common is not None and self._common.has(key)
            if area.kind is not AreaKind.MODULE and not is_there:
                ordinal = self._devices[area.device].gpu.ordinal
                needed[ordinal] = needed.get(ordinal, 0) + area.bytes * area.count
        for device in self._devices.values():
            need = needed.pop(device.gpu.ordinal, 0)
            self._driver.use(device.context)
            free = self._driver.free_memory()
            if need > free:
                raise missing(
                    "TSR5102",
                    f"cuda:{device.gpu.ordinal} ({device.gpu.name}) has too little memory: "
                    f"{need} bytes are planned, {free} bytes are free",
                    hint="end other programs on the GPU, or plan with less memory (`--memory`) "
                    "or fewer slots",
                )

    def _allocate(self, area: Area, guard_bytes: int) -> PlacedArea:
        offsets, stride, guards = self._layout(area, guard_bytes)
        self._driver.use(self._devices[area.device].context)

        def allocate() -> int:
            made = self._driver.allocate(max(stride * area.count, 1))
            self._driver.fill(made, POISON, stride * area.count)
            return made

        key = self._common_key(area)
        try:
            if key is None or self._common is None:
                base = allocate()
            else:
                base = self._common.take(key, allocate)
        except DriverError as problem:
            what = f"{stride * area.count} bytes of {area.kind.value} on `{area.device}`"
            raise start_failed(problem, what) from None
        for copy in range(area.count):
            for start, end in guards:
                self._driver.fill(base + copy * stride + start, GUARD_PATTERN, end - start)
        return PlacedArea(area=area, base=base, stride=stride, offsets=offsets, guards=guards)

    def _layout(
        self, area: Area, guard_bytes: int
    ) -> tuple[dict[int, int], int, tuple[tuple[int, int], ...]]:
        """Offsets, the size of a copy, and its guards; overlapping places keep their overlap."""
        spans = sorted(
            place.taken(self._programs[place.trace].buffers[place.buffer].bytes)
            for place in self._lowered.places
            if place.device == area.device and place.kind is area.kind
        )
        if not guard_bytes:
            return {start: start for start, _ in spans}, area.bytes, ()
        step = -(-guard_bytes // PLACE_ALIGNMENT) * PLACE_ALIGNMENT
        offsets: dict[int, int] = {}
        guards: list[tuple[int, int]] = []
        reach = used = shift = 0
        for start, end in spans:
            if start >= reach:  # no earlier place overlaps this one: a new group
                shift = -(-used // PLACE_ALIGNMENT) * PLACE_ALIGNMENT + step - start
                guards.append((used, start + shift))
            offsets[start] = start + shift
            reach = max(reach, end)
            used = max(used, end + shift)
        stride = -(-used // PLACE_ALIGNMENT) * PLACE_ALIGNMENT + step
        guards.append((used, stride))
        return offsets, stride, tuple(guards)
