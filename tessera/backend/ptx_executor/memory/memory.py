"""Device memory: one address space per virtual device, with guarded, poisoned allocations.

The space is one lazily committed mapping, so an address in any allocation is an index into it, and
a vector of addresses is one gather. A sorted table of allocations is checked separately. Device k
starts at (k + 1) << 40; between allocations lie at least `GUARD` bytes that belong to none. Fresh
memory holds `POISON`.

Bytes outside allocations stay zero in the mapping: `view` and the accesses in `global_access` check
addresses first.
"""

from __future__ import annotations

import bisect
import mmap
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tessera.backend.ptx_executor.memory.host_memory import available_bytes
from tessera.diagnostics import ExitCode, TesseraError

Array = npt.NDArray[Any]

POISON = 0xCB
GUARD = 256
ALIGNMENT = 256
DEVICE_SHIFT = 40
# The number of devices with distinct address ranges.
MOST_DEVICES = 4096
DEFAULT_CAPACITY = 16 << 30
LARGE = 256 << 20

UNSIGNED: dict[int, type[np.unsignedinteger]] = {
    1: np.uint8,
    2: np.uint16,
    4: np.uint32,
    8: np.uint64,
}
# 16-byte words are moved as pairs of floats: a gather copies their bits unchanged.
WORDS: dict[int, type[np.unsignedinteger | np.complex128]] = {**UNSIGNED, 16: np.complex128}


@dataclass(slots=True, eq=False)
class Allocation:
    """A live range of device memory. `read_only` is for constant variables.

    `first` is the number of its first byte in its buffer, of which it may be a part.
    """

    address: int
    size: int
    name: str
    read_only: bool = False
    freed: bool = False
    first: int = 0


def reserve(size: int) -> mmap.mmap:
    """A zeroed mapping whose pages cost nothing until touched; smaller if `size` is refused."""
    flags = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
    flags |= getattr(mmap, "MAP_NORESERVE", 0x4000 if hasattr(mmap, "MAP_PRIVATE") else 0)
    while True:
        try:
            return mmap.mmap(-1, size, flags=flags) if flags else mmap.mmap(-1, size)
        except (OSError, OverflowError):
            if size <= 1 << 20:
                raise
            size //= 2


class AddressSpace:
    """The memory of one virtual device."""

    def __init__(self, index: int = 0, capacity: int = DEFAULT_CAPACITY) -> None:
        self.index = index
        self.base = (index + 1) << DEVICE_SHIFT
        self.mapping = reserve(capacity)
        self.capacity = len(self.mapping)
        self.bytes: Array = np.frombuffer(self.mapping, dtype=np.uint8)
        self.words: dict[int, Array] = {w: self.bytes.view(t) for w, t in WORDS.items()}
        self.next = ALIGNMENT
        self.table: list[Allocation] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.gaps: list[tuple[int, int]] = []
        self._start_array: Array | None = None
        self._end_array: Array | None = None

    def allocate(self, size: int, name: str = "", *, read_only: bool = False) -> Allocation:
        """A poisoned allocation of `size` bytes (at least one is set aside)."""
        room = -(-(max(size, 1) + GUARD) // ALIGNMENT) * ALIGNMENT
        if size >= LARGE:
            self._check_host(size, name)
        offset = self._find_room(room, size, name)
        allocation = Allocation(self.base + offset, size, name, read_only)
        self.bytes[offset : offset + size] = POISON
        place = bisect.bisect(self.starts, allocation.address)
        self.table.insert(place, allocation)
        self.starts.insert(place, allocation.address)
        self.ends.insert(place, allocation.address + size)
        self._start_array = None
        return allocation

    def set_aside(self, size: int, name: str) -> int:
        """The address of poisoned bytes that belong to no allocation until `show` adds one."""
        allocation = self.allocate(size, name)
        place = self.table.index(allocation)
        del self.table[place], self.starts[place], self.ends[place]
        return allocation.address

    def show(self, allocations: list[Allocation]) -> None:
        """Set the allocations that launches may touch; they are sorted and do not overlap."""
        self.table = allocations
        self.starts = [allocation.address for allocation in allocations]
        self.ends = [allocation.address + allocation.size for allocation in allocations]
        self._start_array = None

    def _check_host(self, size: int, name: str) -> None:
        """Refuse a size that the host has no memory for; filling it would kill the process."""
        free = available_bytes()
        if free is not None and size > free:
            raise TesseraError.of(
                "TSR5020",
                f"the machine has no memory for `{name}`: {size} bytes",
                notes=(f"{free} bytes are available",),
                hint="run a smaller trace, or on a machine with more memory",
                exit_code=ExitCode.FAULT,
            )

    def _find_room(self, room: int, size: int, name: str) -> int:
        """An offset in unused memory, if any is left, so that stale addresses stay invalid."""
        if self.next + room <= self.capacity:
            offset = self.next
            self.next += room
            return offset
        for i, (start, length) in enumerate(self.gaps):
            if length >= room:
                self.gaps[i] = (start + room, length - room)
                return start
        raise TesseraError.of(
            "TSR5020",
            f"device {self.index} is out of memory allocating `{name}`: {size} bytes",
            notes=(f"the device has {self.capacity} bytes of address space",),
            hint="free buffers that are no longer needed",
            exit_code=ExitCode.FAULT,
        )

    def free(self, allocation: Allocation) -> None:
        """Free the memory; freeing it again does nothing."""
        if allocation.freed:
            return
        allocation.freed = True
        place = self.table.index(allocation)
        del self.table[place], self.starts[place], self.ends[place]
        self._start_array = None
        offset = allocation.address - self.base
        room = -(-(max(allocation.size, 1) + GUARD) // ALIGNMENT) * ALIGNMENT
        self.gaps.append((offset, room))
        self._discard(offset, allocation.size)

    def _discard(self, offset: int, size: int) -> None:
        """Return whole pages to the system."""
        page = mmap.PAGESIZE
        first = -(-offset // page) * page
        last = (offset + size) // page * page
        if last > first and hasattr(mmap, "MADV_DONTNEED"):
            self.mapping.madvise(mmap.MADV_DONTNEED, first, last - first)

    def view(self, allocation: Allocation) -> Array:
        """The bytes of an allocation, writable."""
        offset = allocation.address - self.base
        return self.bytes[offset : offset + allocation.size]

    def find(self, address: int) -> Allocation | None:
        """The allocation that holds an address, if any."""
        place = bisect.bisect(self.starts, address) - 1
        if place < 0 or address >= self.ends[place]:
            return None
        return self.table[place]

    def nearest(self, address: int) -> Allocation | None:
        """The allocation closest to an address."""
        return min(
            self.table,
            key=lambda a: max(a.address - address, address - (a.address + a.size) + 1, 0),
            default=None,
        )

    def bounds(self) -> tuple[Array, Array]:
        """Starts and ends of all allocations as arrays, sorted."""
        if self._start_array is None or self._end_array is None:
            self._start_array = np.array(self.starts, dtype=np.uint64)
            self._end_array = np.array(self.ends, dtype=np.uint64)
        return self._start_array, self._end_array

    def other_owner(self, address: int) -> int | None:
        """The other device whose address space contains an address; None if there is none."""
        owner = (address >> DEVICE_SHIFT) - 1
        return owner if owner != self.index and 0 <= owner < MOST_DEVICES else None

    def describe(self, address: int) -> tuple[str, ...]:
        """The location of an address, for a diagnostic."""
        owner = self.other_owner(address)
        if owner is not None:
            return (f"0x{address:x} is in the address space of device {owner}",)
        near = self.nearest(address)
        if near is None:
            return ("device has no allocations",)
        return (f"nearest allocation: {describe_place(near, address)}",)


def describe_place(allocation: Allocation, address: int) -> str:
    """`x` (4096 bytes at 0x...), and the distance of an address before or after it."""
    what = f"`{allocation.name}` ({allocation.size} bytes at 0x{allocation.address:x})"
    end = allocation.address + allocation.size
    if address < allocation.address:
        return f"{what}, {allocation.address - address} bytes before it"
    if address >= end:
        return f"{what}, {address - end} bytes past its end"
    return f"{what}, {address - allocation.address} bytes into it"
