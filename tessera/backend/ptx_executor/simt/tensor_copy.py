"""Bulk tensor copies in tile mode, and changes to tensor maps.

A box of the tensor is copied between device memory and shared memory, packed with axis 0
fastest and then swizzled: in 128-byte mode, 16-byte pieces are permuted within each 1024 bytes
by XORing bits 4-6 of the address with bits 7-9 (64-byte mode: 4-5 with 7-8; 32-byte mode: 4
with 7). Loads fill elements outside the tensor; stores skip them. An mbarrier counts the bytes of
the whole box.

Source: PTX ISA 9.0, sections 5.5 and 9.7.9.27.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tessera.backend.ptx_executor.memory.faults import Fault
from tessera.backend.ptx_executor.memory.lanes import WARP, LaneSet
from tessera.backend.ptx_executor.memory.memory import UNSIGNED, Array
from tessera.backend.ptx_executor.memory.spaces import SPACES
from tessera.backend.ptx_executor.simt import mbarrier
from tessera.backend.ptx_executor.simt.async_copy import complete, read_bytes, spread, write_bytes
from tessera.backend.ptx_executor.simt.atomics import step_of
from tessera.ir.program import tensor_map
from tessera.ir.program.tensor_map import TensorMap

_SWIZZLE_BITS = {0: 0, 1: 1, 2: 3, 3: 7}
_NAN = {2: 0x7FFF, 4: 0x7FFFFFFF, 8: 0x7FFFFFFFFFFFFFFF}
_REDUCED_TYPES = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32", "f64", "bf16")


def read_map(cx: LaneSet, site: int, space: str, address: int, place: int) -> TensorMap:
    """The map at an address, checked for what can be copied."""
    content = read_bytes(cx, site, space, address, tensor_map.SIZE, place).tobytes()
    try:
        tensor = tensor_map.decode(content)
    except tensor_map.BadTensorMap as reason:
        raise Fault("TSR5023", f"bad tensor map: {reason}", site, place) from None
    if tensor.interleave:
        raise Fault("TSR5023", "tensor map with interleaved layout is not supported", site, place)
    return tensor


def box_elements(tensor: TensorMap, start: Sequence[int]) -> tuple[Array, Array]:
    """Addresses of the elements of a box in packed order, and flags of those in the tensor."""
    address = np.array([tensor.address], dtype=np.int64)
    inside = np.ones(1, dtype=np.bool_)
    steps = (tensor.element_bytes, *tensor.strides)
    for axis in range(len(tensor.dims)):
        index = start[axis] + np.arange(tensor.counts[axis]) * tensor.element_strides[axis]
        good = (index >= 0) & (index < tensor.dims[axis])
        address = (index[:, None] * steps[axis] + address).reshape(-1)
        inside = (good[:, None] & inside).reshape(-1)
    return address, inside


def packed_offsets(tensor: TensorMap, base: int, count: int) -> Array:
    """The offsets of the 16-byte pieces of a packed box in shared memory."""
    offsets = base + np.arange(0, count, 16, dtype=np.int64)
    mask = _SWIZZLE_BITS[tensor.swizzle]
    return offsets ^ ((offsets >> 7 & mask) << 4)


def load_tensor(
    cx: LaneSet,
    site: int,
    target: Array,
    space: str,
    map_address: Array,
    coordinates: Sequence[Array],
    barrier: Array,
    ranks: Array | None,
    guard: Array | None,
) -> None:
    """cp.async.bulk.tensor from device memory to shared memory."""
    lanes = cx.each(guard, target, map_address, barrier, ranks, *coordinates)
    for place, (to, at, bar, mask, *start) in lanes:
        tensor = read_map(cx, site, space, at, place)
        data = _read_box(cx, site, tensor, start, place)
        for there, its_bar in spread(to, bar, None if ranks is None else mask):
            _write_packed(cx, site, tensor, there, data, place)
            complete(cx, site, its_bar, len(data), place)


def _read_box(cx: LaneSet, site: int, tensor: TensorMap, start: Sequence[int], place: int) -> Array:
    """The bytes of a box, packed, out-of-bounds elements filled."""
    address, inside = box_elements(tensor, start)
    width = tensor.element_bytes
    fill = _NAN.get(width, 0) if tensor.fill_nan else 0
    values = np.full(len(address), fill, dtype=UNSIGNED[width])
    if inside.any():
        chosen = address[inside].astype(np.uint64)
        who = np.full(len(chosen), place)
        values[inside] = SPACES["global"][0](cx, site, chosen, width, who)
    return values.view(np.uint8)


def _write_packed(
    cx: LaneSet, site: int, tensor: TensorMap, target: int, data: Array, place: int
) -> None:
    base = mbarrier.offset_of(target)
    if base % 16 or len(data) % 16:
        raise Fault(
            "TSR5003", "tensor copy to shared memory that is not 16-byte aligned", site, place
        )
    offsets = packed_offsets(tensor, base, len(data)).astype(np.uint64)
    who = np.full(len(offsets), place)
    SPACES["shared"][1](cx, site, offsets, 16, data.view(np.complex128), who)


def store_tensor(
    cx: LaneSet,
    site: int,
    source: Array,
    space: str,
    map_address: Array,
    coordinates: Sequence[Array],
    op: str | None,
    guard: Array | None,
) -> None:
    """cp.async.bulk.tensor and cp.reduce.async.bulk.tensor from shared to device memory."""
    for place, (packed, at, *start) in cx.each(guard, source, map_address, *coordinates):
        tensor = read_map(cx, site, space, at, place)
        base = mbarrier.offset_of(packed)
        address, inside = box_elements(tensor, start)
        count = len(address) * tensor.element_bytes
        offsets = packed_offsets(tensor, base, count).astype(np.uint64)
        who = np.full(len(offsets), place)
        words = SPACES["shared"][0](cx, site, offsets, 16, who)
        values = np.ascontiguousarray(words).view(np.uint8)[:count]
        elements = values.view(UNSIGNED[tensor.element_bytes])[inside]
        targets = address[inside].astype(np.uint64)
        if len(targets):
            _store_elements(cx, site, tensor, op, targets, elements, place)


def _store_elements(
    cx: LaneSet,
    site: int,
    tensor: TensorMap,
    op: str | None,
    targets: Array,
    values: Array,
    place: int,
) -> None:
    who = np.full(len(targets), place)
    width = tensor.element_bytes
    if op is None:
        SPACES["global"][1](cx, site, targets, width, values, who)
        return
    step = step_of(op, _REDUCED_TYPES[tensor.type_code], False)
    with mbarrier.unordered(cx):
        old = SPACES["global"][0](cx, site, targets, width, who)
        SPACES["global"][1](cx, site, targets, width, step(old, values, None), who)


def replace_map(
    cx: LaneSet,
    site: int,
    space: str,
    address: Array,
    field: str,
    ordinal: int,
    value: Array,
    guard: Array | None,
) -> None:
    """tensormap.replace: change a field of a map in memory."""
    for place, (at, new) in cx.each(guard, address, value):
        content = read_bytes(cx, site, space, at, tensor_map.SIZE, place).tobytes()
        changed = tensor_map.replace_field(content, field, ordinal, new)
        write_bytes(cx, site, space, at, np.frombuffer(changed, dtype=np.uint8), place)


def copy_map(cx: LaneSet, site: int, target: Array, source: Array) -> None:
    """tensormap.cp_fenceproxy: each warp copies a map from shared to device memory."""
    for place, (to, start, thread) in cx.each(None, target, source, cx.col):
        if thread % WARP == 0:
            data = read_bytes(cx, site, "shared", start, tensor_map.SIZE, place)
            write_bytes(cx, site, "global", to, data, place)
