"""`wgmma.mma_async`: products of a warpgroup (128 lanes), with operands in shared memory.

64-bit descriptors locate matrices in shared memory. `chunk_addresses` computes the addresses of the
16-byte chunks of an operand, the executor reads the chunks, `elements` puts them in order, and
`mma` multiplies. In `mma`, G warpgroups are computed at once: A is 64 x K, B is N x K (one row per
column of the product), D is spread over registers as in `mma.sync`, 16 rows per warp.

Source: PTX ISA, asynchronous warpgroup-level matrix instructions: register fragments, matrix
descriptor, canonical layouts, swizzling modes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tessera.backend.ptx_executor.numerics.bits import Bits, Operand, bits
from tessera.backend.ptx_executor.numerics.formats import decode_table, widen
from tessera.backend.ptx_executor.numerics.matrix.accumulate import product
from tessera.backend.ptx_executor.numerics.matrix.elements import Values, element_bits, matrix_a
from tessera.backend.ptx_executor.numerics.matrix.mma import parse_shape
from tessera.ir.arrays import Flags

# Bytes per row of the swizzled pattern by mode (0: no swizzle), and XORed address bits.
_SWIZZLE_BYTES = {0: 16, 1: 128, 2: 64, 3: 32}
_SWIZZLE_MASK = {0: 0, 1: 7, 2: 3, 3: 1}
_CHUNK = 16
# Warpgroups per step: an accumulator of 64 x 256 float32 is 64 KiB.
_GROUPS = 4


def chunk_addresses(
    descriptor: Operand, rows: int, k: int, element_size: int, *, mn_major: bool = False
) -> NDArray[np.int64]:
    """Shared addresses of an operand's 16-byte chunks, [G, chunks], in the order of `elements`.

    `rows` is 64 for A and N for B; `k` counts elements of `element_size` bits. One descriptor per
    warpgroup.
    """
    raw = bits(64, descriptor)
    modes = (raw >> np.uint64(62)).astype(np.int64)
    result = np.empty((raw.size, rows * k * element_size // (8 * _CHUNK)), np.int64)
    for mode in np.unique(modes).tolist():
        chosen = modes == mode
        result[chosen] = _addresses(raw[chosen], mode, rows, k * element_size // 8, k, mn_major)
    return result


def _field(raw: Bits, low: int) -> NDArray[np.int64]:
    """A 14-bit field in units of 16 bytes, as bytes."""
    return ((raw >> np.uint64(low)) & np.uint64(0x3FFF)).astype(np.int64)[:, None] * _CHUNK


def _addresses(
    raw: Bits, mode: int, rows: int, k_bytes: int, k: int, mn_major: bool
) -> NDArray[np.int64]:
    start, leading, stride = _field(raw, 0), _field(raw, 16), _field(raw, 32)
    width = _SWIZZLE_BYTES[mode]
    if mn_major:
        # 16-bit elements: a chunk is 8 rows at one k; [k, chunk along the rows].
        kk, chunk = (x.reshape(-1) for x in np.indices((k, rows // 8)))
        outer, inner = np.divmod(chunk, width // _CHUNK)
        by_rows, by_k = (stride, leading) if mode == 0 else (leading, stride)
        offset = inner * _CHUNK + outer * by_rows + (kk % 8) * width + (kk // 8) * by_k
    else:
        row, chunk = (x.reshape(-1) for x in np.indices((rows, k_bytes // _CHUNK)))
        along_k = chunk * leading if mode == 0 else chunk * _CHUNK
        offset = (row % 8) * width + (row // 8) * stride + along_k
    address = start + offset
    # The pattern starts at an address that `base offset` gives in units of 128 bytes.
    base = ((raw >> np.uint64(49)) & np.uint64(7)).astype(np.int64)[:, None]
    phase = ((address >> 7) - base) & _SWIZZLE_MASK[mode]
    return address ^ (phase << 4)


def elements(t: str, chunks: Bits, rows: int, k: int, *, mn_major: bool = False) -> Bits:
    """Element bits [G, rows, k] (b1: words of 32) from chunks, uint8 [G, chunks, 16]."""
    groups = chunks.shape[0]
    size = element_bits(t)
    dtype = {8: np.uint8, 16: np.uint16, 32: np.uint32, 1: np.uint32}[size]
    count = k // 32 if t == "b1" else k
    flat = np.ascontiguousarray(chunks).view(dtype)
    if mn_major:
        return flat.reshape(groups, count, rows).transpose(0, 2, 1)
    return flat.reshape(groups, rows, count)


def mma(
    shape: str,
    dt: str,
    at: str,
    bt: str,
    d: Sequence[Operand],
    a: Sequence[Operand] | Bits,
    b: Bits,
    *,
    scale_d: Flags | bool = True,
    scale_a: int = 1,
    scale_b: int = 1,
    satfinite: bool = False,
) -> list[Bits]:
    """The registers of D; `a` is four registers or element bits, `b` element bits [G, N, K].

    With `scale_d` false (per lane, uniform in a warpgroup) D is A * B alone.
    """
    _, n, _ = parse_shape(shape)
    left = _turned(at, a) if isinstance(a, np.ndarray) else _a_from_registers(at, a)
    right = _turned(bt, b)
    if scale_a < 0:
        left = -left
    if scale_b < 0:
        right = -right
    registers = [bits(32, register) for register in d]
    shape_of_lanes = max((register.shape for register in registers), key=lambda s: math.prod(s))
    groups = max(left.shape[1], right.shape[1])
    c = _load(dt, registers, groups, n)
    keep = np.broadcast_to(np.atleast_1d(scale_d), (groups * 128,) if np.ndim(scale_d) else (1,))
    c = c * keep.reshape(-1, 128 if np.ndim(scale_d) else 1)[:, :1, None].astype(c.dtype)
    parts = []
    for start in range(0, groups, _GROUPS):
        part = slice(start, start + _GROUPS)
        columns, rows = left[:, part, :, None], right[:, part, None, :]
        parts.append(
            product(
                dt, at, dt, columns, rows, c[part], satfinite=satfinite, op="and", is_wgmma=True
            )
        )
    return _store(dt, np.concatenate(parts), shape_of_lanes)


def _values(t: str, raw: Bits) -> Values:
    """Values of element bits: float32, int32, or words for b1."""
    if t == "b1":
        return raw
    if t == "tf32":
        return (raw & np.uint32(0xFFFFE000)).view(np.float32)
    if t in ("f16", "bf16"):
        return widen(t, raw)
    if t in ("e4m3", "e5m2"):
        return decode_table(t).astype(np.float32).take(raw)
    if t in ("s8", "u8"):
        return raw.view(np.int8 if t == "s8" else np.uint8).astype(np.int32)
    raise NotImplementedError(f"wgmma elements of type .{t} are not supported")


def _turned(t: str, raw: Bits) -> Values:
    """[K, G, rows] values from element bits [G, rows, K]."""
    return _values(t, np.ascontiguousarray(raw.transpose(2, 0, 1)))


def _a_from_registers(t: str, registers: Sequence[Operand]) -> Values:
    """[K, G, 64] values: warp w of a group holds rows 16w to 16w + 15."""
    rows = matrix_a(t, registers, 16)
    k, warps = rows.shape[0], rows.shape[-1]
    split = rows.reshape(k, 2, 8, warps // 4, 4).transpose(0, 3, 4, 1, 2)
    return split.reshape(k, warps // 4, 64)


def _load(t: str, registers: Sequence[Bits], groups: int, n: int) -> Bits:
    """The bits of D as [G, 64, N]."""
    lanes = groups * 128
    stacked = np.stack([np.broadcast_to(register.reshape(-1), lanes) for register in registers])
    if t == "f16":
        low, high = stacked.astype(np.uint16), (stacked >> np.uint32(16)).astype(np.uint16)
        # [column / 8, row half, group, warp, row % 8, thread, low or high]
        pairs = np.stack([low, high], axis=-1).reshape(n // 8, 2, groups, 4, 8, 4, 2)
        return pairs.transpose(2, 3, 1, 4, 0, 5, 6).reshape(groups, 64, n)
    split = stacked.reshape(n // 8, 2, 2, groups, 4, 8, 4)
    return split.transpose(3, 4, 1, 5, 0, 6, 2).reshape(groups, 64, n)


def _store(t: str, total: Bits, shape: tuple[int, ...]) -> list[Bits]:
    """The registers of D from its bits [G, 64, N]."""
    groups, _, n = total.shape
    # [group, warp, row half, row % 8, column / 8, thread, low or high]
    split = total.reshape(groups, 4, 2, 8, n // 8, 4, 2)
    if math.prod(shape) != groups * 128:
        shape = (groups * 128,)
    if t == "f16":
        wide = split.transpose(4, 2, 6, 0, 1, 3, 5).astype(np.uint32)
        packed = wide[:, :, 0] | (wide[:, :, 1] << np.uint32(16))
        return [register.reshape(shape) for register in packed.reshape(n // 4, -1)]
    registers = split.transpose(4, 2, 6, 0, 1, 3, 5).reshape(n // 2, -1)
    return [np.ascontiguousarray(register).reshape(shape) for register in registers]
