"""The memory of one device while the checker walks a request: a tag and the last users per byte.

In: places of the buffers of a trace on a device. Out: a `Space`.

All areas of a device that requests change are laid out one after the other, so that a byte has one
address: state, slot, weights with addresses in them, then the variables of modules. This memory is
cut into atoms at the boundaries of all buffers in it. A place that holds a range of its buffer has
only the atoms of that range. A tag is a buffer and a version in one
number; 0 is poison.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tessera.ir.plan.launch_program import AreaKind, Queue
from tessera.passes.checker.bytes import Array, Index, distinct, places
from tessera.passes.checker.expected import ExpectedVersions, Versions
from tessera.passes.checker.findings import Op
from tessera.passes.checker.memory import MOST_BYTES, Memory
from tessera.passes.checker.shape import TraceShape

POISON_TAG, UNCLEAR_TAG = 0, 1
POISON_VERSION = -3
_VERSION_BITS = 32
_QUEUES = tuple(Queue)
_BASES = {AreaKind.LANE: 0, AreaKind.SLOT: MOST_BYTES, AreaKind.WEIGHTS: 2 * MOST_BYTES}
_VARIABLES = 3 * MOST_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The bytes of a device. `start` has the address of byte 0 of each buffer, `held` the bytes of
    the buffer that are here. `atoms` has, for each atom of the space, the atom of the buffer.

    `reads` and `writes` have a row per queue: the position of the last operation there, or -1.
    `known` caches the indices of ranges that steps name, by the identity of the array.
    """

    bounds: Array
    start: dict[int, int]
    held: dict[int, tuple[int, int]]
    atoms: dict[int, Array]
    tags: Array
    reads: npt.NDArray[np.int32]
    writes: npt.NDArray[np.int32]
    known: dict[tuple[int, int], Index] = field(default_factory=dict)

    def index_of(self, buffer: int, ranges: Array) -> Index:
        """The same as `index`, cached, for an array that lives as long as this space."""
        key = buffer, id(ranges)
        index = self.known.get(key)
        if index is None:
            index = self.known[key] = self.index(buffer, ranges)
        return index

    def index(self, buffer: int, ranges: Array) -> Index:
        """The indices of ranges of a buffer in the tables."""
        if len(ranges) == 0:
            return slice(0, 0)
        return places(self.bounds, ranges + self.start[buffer])

    def holds(self, buffer: int, ranges: Array) -> bool:
        """Whether all bytes of some ranges of a buffer are here."""
        first, end = self.held[buffer]
        return len(ranges) == 0 or bool(first <= ranges[0, 0] and ranges[-1, 1] <= end)

    def extent(self, buffer: int) -> tuple[int, int]:
        """The addresses of the first byte of a buffer that is here, and one past the last."""
        first, end = self.held[buffer]
        return self.start[buffer] + first, self.start[buffer] + end

    def span(self, buffer: int) -> tuple[int, int]:
        """The first and last index (exclusive) of a buffer in the tables."""
        first = int(np.searchsorted(self.bounds, self.extent(buffer)[0]))
        return first, first + len(self.atoms[buffer])

    @staticmethod
    def tag(buffer: int, version: int) -> int:
        """A buffer and a version in one number that is not 0; newer versions have larger tags."""
        return ((buffer + 1) << _VERSION_BITS) + version + 1

    @staticmethod
    def owner(tag: int) -> tuple[int | None, int]:
        """The buffer and the version of a tag; poison has no buffer."""
        if tag in (POISON_TAG, UNCLEAR_TAG):
            return None, POISON_VERSION
        return (tag >> _VERSION_BITS) - 1, (tag & ((1 << _VERSION_BITS) - 1)) - 1

    def versions(self, buffer: int, index: Index) -> Array:
        """The versions of bytes of a buffer here; bytes of other buffers count as poison."""
        versions = self.tags[index] - self.tag(buffer, 0)
        versions[(versions < -1) | (versions >= (1 << _VERSION_BITS) - 1)] = POISON_VERSION
        return versions

    def by_atom(self, buffer: int, index: Index, versions: Array) -> int | Versions:
        """The worst version per atom of the buffer; a single number if all are equal."""
        lowest = int(versions.min())
        if lowest == int(versions.max()):
            return lowest
        numbers = self._numbers(buffer, index)
        begins = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))
        return np.minimum.reduceat(versions, begins).astype(np.int32)

    def _numbers(self, buffer: int, index: Index) -> Array:
        """The atom of the buffer at each index."""
        first = self.span(buffer)[0]
        if isinstance(index, slice):
            return self.atoms[buffer][index.start - first : index.stop - first]
        return self.atoms[buffer][index - first]

    def read(self, index: Index, op: Op) -> None:
        """Record that an operation reads bytes."""
        self.reads[_QUEUES.index(op.queue), index] = op.position

    def write(self, index: Index, op: Op, tags: int | Array) -> None:
        """Record that an operation writes bytes, and their new tags."""
        self.writes[_QUEUES.index(op.queue), index] = op.position
        self.tags[index] = tags


def expand(
    space: Space,
    expected: ExpectedVersions,
    buffer: int,
    ranges: Array,
    index: Index,
    versions: int | Versions,
) -> int | Array:
    """Convert versions per atom of a buffer's ranges to versions per index in the tables."""
    if isinstance(versions, int):
        return versions
    bounds = expected.bounds[buffer]
    whole = np.zeros(len(bounds), dtype=np.int64)
    whole[places(bounds, ranges)] = versions
    return whole[space._numbers(buffer, index)]


def count_atoms(shape: TraceShape, expected: ExpectedVersions, memory: Memory) -> int:
    """An upper bound on the number of atoms in the memory of all devices."""
    return sum(
        len(expected.bounds.get(buffer, ()))
        for trace, _, buffer in memory.places
        if trace == shape.trace.trace
    )


def build_space(
    shape: TraceShape, expected: ExpectedVersions, memory: Memory, device: str
) -> Space:
    """The memory of a device before a request: all poison."""
    start: dict[int, int] = {}
    held: dict[int, tuple[int, int]] = {}
    variables = _VARIABLES
    for buffer in shape.graph.buffers:
        number = int(buffer.id)
        place = memory.place(shape.trace.trace, device, number)
        if place is None or number not in expected.bounds:
            continue
        held[number] = place.held(buffer.bytes)
        if place.kind is AreaKind.MODULE:
            start[number] = variables
            variables += buffer.bytes + 1
        else:
            start[number] = _BASES[place.kind] + place.base
    parts = [np.clip(expected.bounds[number], *held[number]) + at for number, at in start.items()]
    bounds = distinct(parts) if parts else np.zeros(1, dtype=np.int64)
    atoms: dict[int, Array] = {}
    for number, at in start.items():
        own = expected.bounds[number]
        first, last = np.searchsorted(bounds, [at + held[number][0], at + held[number][1]])
        atoms[number] = np.searchsorted(own, bounds[first:last] - at, side="right") - 1
    count = len(bounds)
    return Space(
        bounds=bounds,
        start=start,
        held=held,
        atoms=atoms,
        tags=np.zeros(count, dtype=np.int64),
        reads=np.full((len(_QUEUES), count), -1, dtype=np.int32),
        writes=np.full((len(_QUEUES), count), -1, dtype=np.int32),
    )
