"""Tensor copies (`cp.async.bulk.tensor`) in an excerpt: from a map and coordinates to bytes.

A map that is a parameter is decoded (`ir.program.tensor_map`, the layout that the CUDA driver
writes). In tile mode a copy then touches the box at its coordinates, clipped to the tensor as the
hardware does; where a coordinate is an interval, every box in it. Other modes (im2col, gather,
scatter), interleaved layouts and element types of less than a byte may touch all of the tensor, or
all of the object that the map points to. A store surely writes the elements of an exact box that
lie inside the tensor.

Stores and reductions of an H200 are clipped to whole pieces of 16 bytes: where the tensor ends
within one, they write the rest of it, too (`benchmarks/results/generated_gpu.json`: all 27 launches
of such maps, and none of 75 others). The ISA says that elements outside of a tensor are left alone.

A map that the kernel made itself is known as far as `made_maps` followed it. A map anywhere else
is not known: such a copy is pinned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod

import numpy as np

from tessera.ir.arrays import Flags, Offsets, Ranges, Words
from tessera.ir.opcodes import MemoryAction, MemoryEffect
from tessera.ir.program.tensor_map import SIZE, BadTensorMap, TensorMap, decode
from tessera.ir.ptx import syntax as ptx
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.intervals import distinct
from tessera.passes.footprint.excerpt_state import SliceState
from tessera.passes.footprint.zones import PARAMETER
from tessera.passes.kernel_facts.kernel_code import Step
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lanes import U64, Lanes
from tessera.passes.lane_values.masks import NONE, Mask, selected
from tessera.wording import Wording

MAP_READ = -2
"""The effect number of the read of the map itself; other accesses have that of an effect."""
_MOST_MAPS = 64
_NOT_TILED = ("im2col", "tile::gather4", "tile::scatter4")
_PIECE = 16
"""Bytes of which a store writes all or none."""


def tensor_access(
    runner: SliceState, step: Step, number: int, effect: MemoryEffect, mask: Mask
) -> Wording | None:
    """Record the bytes that a tensor copy touches; return the reason if they cannot be known."""
    if effect.access is MemoryAction.PREFETCH:
        return None
    operand = step.instruction.operands[effect.operand]
    if not isinstance(operand, ptx.Address):
        return Wording("its tensor map is no address")
    at = lanes.exact_in(runner.address(ptx.Address(operand.parts[:1]), step.index), mask.may)
    if at.span is not None:
        return Wording("its tensor map is not known")
    addresses = distinct(selected(mask.may, at.low())[0])
    made = runner.made_maps.content_at(at.low(), mask.may)
    if made is not None:
        _use_made(runner, step, addresses, at, mask)
        return _Copy(runner, step, number, effect, mask).record(made, coordinates_of(operand))
    if len(addresses) > _MOST_MAPS:
        return Wording("it chooses among too many tensor maps")
    for address in addresses:
        content = _map_content(runner, int(address))
        if content is None:
            return Wording("its tensor map is in memory")
        here = mask.narrow(Lanes((at.low() == address).astype(U64)))
        if here is not None:
            copy = _Copy(runner, step, number, effect, here)
            why = copy.record(content, coordinates_of(operand))
            if why is not None:
                return why
    return None


def _use_made(runner: SliceState, step: Step, addresses: Words, at: Lanes, mask: Mask) -> None:
    """Note that a copy reads a map which the kernel made."""
    zones, offsets = runner.scene.zones.decode(addresses)
    for zone in distinct(zones):
        map_bytes = intervals.words(np.sort(offsets[zones == zone]), SIZE)
        runner.recorder.use_map(step.index, int(zone), map_bytes)
    runner.recorder.add(step.index, MAP_READ, at, SIZE, mask.may, NONE)


def coordinates_of(operand: ptx.Address) -> tuple[ptx.Operand, ...]:
    """The coordinates behind a tensor map."""
    if len(operand.parts) < 2:
        return ()
    part = operand.parts[1]
    return part.elements if isinstance(part, ptx.Vector) else (part,)


def _map_content(runner: SliceState, address: int) -> bytes | None:
    """The bytes of a map that is a parameter."""
    zone, offset = runner.scene.zones.decode(np.array([address], dtype=U64))
    start = int(offset[0])
    if int(zone[0]) != PARAMETER or not 0 <= start <= len(runner.scene.parameters) - SIZE:
        return None
    return runner.scene.parameters[start : start + SIZE]


class _Copy:
    """One copy with one map."""

    def __init__(
        self, runner: SliceState, step: Step, number: int, effect: MemoryEffect, mask: Mask
    ) -> None:
        self.runner = runner
        self.step = step
        self.number = number
        # A store, which leaves alone only what lies outside the tensor; reductions read too.
        self.is_plain = effect.access is MemoryAction.ASYNC_UPDATE
        self.writes = effect.access.writes
        self.mask = mask

    def record(self, content: bytes, coordinates: Sequence[ptx.Operand]) -> Wording | None:
        """Add the bytes to the recorder."""
        base = np.frombuffer(content[:8], dtype="<u8").astype(U64)
        zone, offset = self.runner.scene.zones.decode(base)
        place, start = int(zone[0]), int(offset[0])
        if place == 0:
            return Wording("its tensor map holds no address that the trace declares")
        tensor_map = _tiled(content)
        if tensor_map is None:
            anchored = lanes.unknown(64, self.step.index, int(base[0]))
            self.runner.recorder.add(
                self.step.index, self.number, anchored, 1, self.mask.may, np.zeros((1, 1), bool)
            )
            return None
        boxes = self._boxes(tensor_map, coordinates)
        if boxes is None:
            may, sure, exact = tensor_bytes(self._reached(tensor_map)), intervals.EMPTY, False
        else:
            may, sure, exact = boxes
        self.runner.recorder.add_bytes(
            self.step.index,
            self.number,
            place,
            intervals.shift(may, start),
            intervals.shift(sure, start),
            exact=exact,
        )
        return None

    def _boxes(
        self, tensor_map: TensorMap, coordinates: Sequence[ptx.Operand]
    ) -> tuple[Ranges, Ranges, bool] | None:
        """Bytes that may and that surely are touched; None if it may be all of the tensor."""
        modifiers = self.step.instruction.opcode.modifiers
        if any(m.startswith(_NOT_TILED) for m in modifiers) or len(coordinates) != len(
            tensor_map.dims
        ):
            return None
        given = (self.runner.value(c, 32, self.step.index) for c in coordinates)
        values = [lanes.exact_in(value, self.mask.may) for value in given]
        reached = self._reached(tensor_map)
        may = self._bytes(reached, values, self.mask.may)
        if may is None:
            return None
        exact = all(value.span is None for value in values)
        steps = set(tensor_map.element_strides) == {1}
        sure: Ranges | None = None
        if exact and steps and self.is_plain:
            same: list[Flags | Words] = [self.mask.may, *(value.low() for value in values)]
            certain = self.runner.elected(same) & self.mask.may
            if self.runner.side is None:
                certain = certain | self.mask.sure
            sure = self._bytes(tensor_map, values, certain)
        exact = exact and steps and reached is tensor_map
        return may, intervals.EMPTY if sure is None else sure, exact

    def _reached(self, tensor_map: TensorMap) -> TensorMap:
        """The tensor with the bytes behind its rows that a store may write."""
        row = tensor_map.dims[0] * tensor_map.element_bytes
        if not self.writes or row % _PIECE == 0:
            return tensor_map
        count = -(-row // _PIECE) * _PIECE // tensor_map.element_bytes
        return replace(tensor_map, dims=(count, *tensor_map.dims[1:]))

    def _bytes(
        self, tensor_map: TensorMap, values: Sequence[Lanes], threads: Flags
    ) -> Ranges | None:
        """The bytes of the boxes of some threads; None if they have too many rows to list."""
        bounds = [lanes.biased_bounds(value, 32) for value in values]
        sizes = [array.shape for pair in bounds for array in pair]
        if all(size[-1] == 1 for size in sizes):
            # All threads of a CTA have the same box.
            threads = np.asarray(threads.any(axis=-1))[..., None]
        shape = np.broadcast_shapes(threads.shape, *sizes)
        chosen = np.broadcast_to(threads, shape).ravel()
        first = _table([low for low, _ in bounds], shape)[chosen]
        last = _table([high for _, high in bounds], shape)[chosen]
        self.runner.work += 20 * first.size
        return box_bytes(tensor_map, first, last + np.array(tensor_map.box, dtype=np.int64))


def _table(bounds: list[Words], shape: tuple[int, ...]) -> Offsets:
    """Biased 32-bit bounds per axis as signed numbers: a row per thread, a column per axis."""
    columns = [np.broadcast_to(b, shape).ravel().astype(np.int64) - (1 << 31) for b in bounds]
    return np.stack(columns, axis=1)


def _tiled(content: bytes) -> TensorMap | None:
    """A map whose boxes are boxes of rows of bytes, or None."""
    try:
        tensor_map = decode(content)
    except BadTensorMap:
        return None
    return None if tensor_map.interleave else tensor_map


_MOST_ROWS = 1 << 20


def box_bytes(tensor_map: TensorMap, starts: Offsets, ends: Offsets) -> Ranges | None:
    """The bytes of boxes; None if they have too many rows to list.

    `starts` and `ends` have one row per box and one column per axis.
    """
    dims = np.array(tensor_map.dims, dtype=np.int64)
    low, high = np.clip(starts, 0, dims), np.clip(ends, 0, dims)
    some = (low < high).all(axis=1)
    low, high = low[some], high[some]
    if len(low) == 0:
        return intervals.EMPTY
    # In a loop the same boxes come again, moved: what they are made of is worked out once.
    base = low.min(axis=0)
    steps = (tensor_map.element_bytes, *tensor_map.strides)
    rows = _rows(steps, (low - base).tobytes(), (high - low).tobytes())
    return None if rows is None else intervals.shift(rows, int((base * np.array(steps)).sum()))


@lru_cache(maxsize=256)
def _rows(steps: tuple[int, ...], first: bytes, size: bytes) -> Ranges | None:
    """The bytes of boxes, given by the bytes of their first elements and of their sizes."""
    axes = len(steps)
    table = np.concatenate(
        [np.frombuffer(part, dtype=np.int64).reshape(-1, axes) for part in (first, size)], axis=1
    )
    table = np.unique(table, axis=0)
    low, counts = table[:, :axes], table[:, axes:]
    most = counts.max(axis=0)
    if len(low) * prod(int(count) for count in most[1:]) > _MOST_ROWS:
        return None
    rows, lengths = low[:, 0] * steps[0], counts[:, 0] * steps[0]
    for axis in range(1, axes):
        index = np.broadcast_to(np.arange(most[axis]), (len(low), int(most[axis])))
        inside = index < counts[:, axis, None]
        boxes = np.nonzero(inside)[0]
        rows = rows[boxes] + (low[boxes, axis] + index[inside]) * steps[axis]
        lengths, low, counts = lengths[boxes], low[boxes], counts[boxes]
    return intervals.union([np.stack([rows, rows + lengths], axis=1)])


def tensor_bytes(tensor_map: TensorMap) -> Ranges:
    """Every byte of the tensor; with too many rows, everything from the first to the last."""
    everything = np.array([tensor_map.dims], dtype=np.int64)
    rows = box_bytes(tensor_map, np.zeros_like(everything), everything)
    if rows is not None:
        return rows
    reach = tensor_map.dims[0] * tensor_map.element_bytes
    reach += sum((d - 1) * s for d, s in zip(tensor_map.dims[1:], tensor_map.strides, strict=True))
    return intervals.interval(0, reach)
