"""Logic, shifts, bit fields and permutations of PTX, on register bits.

Shift amounts are unsigned 32-bit values that clamp at the width (except for `shf.wrap`). C and
NumPy leave larger amounts undefined, so every shift here is guarded.

Source: PTX ISA, logic and shift instructions, bit-manipulation parts of integer arithmetic.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tessera.backend.ptx_executor.numerics.bits import (
    UNSIGNED,
    Bits,
    Operand,
    bits,
    integer_type,
    join,
    predicate,
    select,
    signed,
    unsigned,
)
from tessera.ir.arrays import Flags


def cnot(t: str, a: Operand) -> Bits:
    """`cnot`: 1 for zero, else 0."""
    x = bits(integer_type(t)[0], a)
    result: Bits = (x == 0).astype(x.dtype)
    return result


@lru_cache(maxsize=256)
def _lut_terms(lut: int) -> tuple[tuple[bool, bool, bool], ...]:
    return tuple(
        (bool(row & 4), bool(row & 2), bool(row & 1)) for row in range(8) if lut >> row & 1
    )


def lop3(a: Operand, b: Operand, c: Operand, lut: int) -> Bits:
    """`lop3.b32`: the function of three bits whose truth table is `lut` (a is 0xF0)."""
    x, y, z = bits(32, a), bits(32, b), bits(32, c)
    known = _KNOWN_LUTS.get(lut)
    if known is not None:
        result: Bits = known(x, y, z)
        return result
    terms = _lut_terms(lut)
    if len(terms) > 4:
        return ~lop3(x, y, z, lut ^ 0xFF)
    total: Bits = np.zeros(np.broadcast_shapes(x.shape, y.shape, z.shape), np.uint32)
    for in_a, in_b, in_c in terms:
        total |= (x if in_a else ~x) & (y if in_b else ~y) & (z if in_c else ~z)
    return total


_KNOWN_LUTS = {
    0x80: lambda a, b, c: a & b & c,
    0xFE: lambda a, b, c: a | b | c,
    0x96: lambda a, b, c: a ^ b ^ c,
    0xF8: lambda a, b, c: a | (b & c),
    0xEA: lambda a, b, c: (a & b) | c,
    0xEC: lambda a, b, c: (a & c) | b,
    0xE0: lambda a, b, c: a & (b | c),
    0xC8: lambda a, b, c: (a | c) & b,
    0xA8: lambda a, b, c: (a | b) & c,
    0x78: lambda a, b, c: a ^ (b & c),
    0x6C: lambda a, b, c: (a & c) ^ b,
    0x6A: lambda a, b, c: (a & b) ^ c,
    0xCA: lambda a, b, c: (a & b) | (~a & c),
    0xE8: lambda a, b, c: (a & b) | (c & (a | b)),
}


def lop3_bool(
    boolop: str, a: Operand, b: Operand, c: Operand, lut: int, q: Flags | bool
) -> tuple[Bits, Flags]:
    """`lop3.or/.and`: the value, and (value != 0) combined with predicate q."""
    value = lop3(a, b, c, lut)
    nonzero = value != 0
    other = predicate(q)
    return value, nonzero | other if boolop == "or" else nonzero & other


def shl(t: str, a: Operand, n: Operand) -> Bits:
    """`shl`: zero for amounts of the width or more."""
    width, _ = integer_type(t)
    x, amount = bits(width, a), bits(32, n)
    return _zero_clamped(np.left_shift, x, amount, width)


def shr(t: str, a: Operand, n: Operand) -> Bits:
    """`shr`: fills with the sign (s types) or zero; amounts clamp at the width."""
    width, is_signed = integer_type(t)
    x, amount = bits(width, a), bits(32, n)
    if is_signed:
        clamped = np.minimum(amount, np.uint32(width - 1))
        return unsigned(signed(x) >> signed(clamped.astype(x.dtype)))
    return _zero_clamped(np.right_shift, x, amount, width)


def _zero_clamped(shift: np.ufunc, x: Bits, amount: Bits, width: int) -> Bits:
    """Shift x; the result is zero where the amount reaches the width."""
    if amount.size and amount.max() < width:
        result: Bits = shift(x, amount.astype(x.dtype, copy=False))
        return result
    shifted: Bits = shift(x, (amount & np.uint32(width - 1)).astype(x.dtype))
    shifted *= amount < width
    return shifted


def shf(direction: str, mode: str, lo: Operand, hi: Operand, n: Operand) -> Bits:
    """`shf.l` / `shf.r`: high or low word of the 64-bit value hi:lo after a shift of 0..32."""
    amount = bits(32, n)
    amount = np.minimum(amount, np.uint32(32)) if mode == "clamp" else amount & np.uint32(31)
    pair = join(bits(32, lo), bits(32, hi))
    wide = amount.astype(np.uint64)
    shifted = (pair << wide) >> np.uint64(32) if direction == "l" else pair >> wide
    return shifted.astype(np.uint32)


def popc(t: str, a: Operand) -> Bits:
    """`popc`: the number of ones, as 32 bits."""
    return np.bitwise_count(bits(integer_type(t)[0], a)).astype(np.uint32)


def clz(t: str, a: Operand) -> Bits:
    """`clz`: the number of leading zeros; the width for zero."""
    width, _ = integer_type(t)
    x = bits(width, a).copy()
    shift = 1
    while shift < width:
        x |= x >> shift
        shift *= 2
    return np.uint32(width) - popc(t, x)


def bfind(t: str, a: Operand, *, shiftamt: bool = False) -> Bits:
    """`bfind`: position of the top bit (the top non-sign bit for s types), or all ones."""
    width, is_signed = integer_type(t)
    x = bits(width, a)
    if is_signed:
        x = x ^ unsigned(signed(x) >> (width - 1))
    leading = clz(t, x)
    position = leading if shiftamt else np.uint32(width - 1) - leading
    return np.where(leading == width, np.uint32(0xFFFFFFFF), position)


def brev(t: str, a: Operand) -> Bits:
    """`brev`: bits in reverse order."""
    width, _ = integer_type(t)
    x = bits(width, a)
    for shift, mask in ((1, 0x55), (2, 0x33), (4, 0x0F)):
        repeated = UNSIGNED[width].type(int.from_bytes(bytes([mask]) * (width // 8), "little"))
        x = ((x >> shift) & repeated) | ((x & repeated) << shift)
    return x.byteswap()


def bfe(t: str, a: Operand, pos: Operand, length: Operand) -> Bits:
    """`bfe`: a bit field, extended by its top bit for s types; pos and len are bytes."""
    width, is_signed = integer_type(t)
    x = bits(width, a)
    position = (bits(32, pos) & np.uint32(0xFF)).astype(np.int64)
    size = (bits(32, length) & np.uint32(0xFF)).astype(np.int64)
    field = shr(f"u{width}", x, position) & _low_ones(width, size)
    if not is_signed:
        return field
    # The sign is the bit at min(pos + len - 1, msb) of the source, zero where len is zero.
    top = np.minimum(position + size - 1, width - 1)
    negative = ((shr(f"u{width}", x, np.maximum(top, 0)) & 1) != 0) & (size > 0)
    length_present = np.clip(width - position, 0, size)
    return np.where(negative, field | ~_low_ones(width, length_present), field)


def _low_ones(width: int, count: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Bits:
    """Masks with the low `count` bits set; all bits if `count` is the width or more."""
    return shl(f"u{width}", 1, count.astype(np.uint32)) - UNSIGNED[width].type(1)


def bfi(t: str, a: Operand, b: Operand, pos: Operand, length: Operand) -> Bits:
    """`bfi`: the low bits of a placed into b."""
    width, _ = integer_type(t)
    position = bits(32, pos) & np.uint32(0xFF)
    size = (bits(32, length) & np.uint32(0xFF)).astype(np.int64)
    unsigned_type = f"u{width}"
    mask = shl(unsigned_type, _low_ones(width, size), position)
    return (shl(unsigned_type, a, position) & mask) | (bits(width, b) & ~mask)


def bmsk(mode: str, a: Operand, b: Operand) -> Bits:
    """`bmsk.clamp/.wrap`: b ones from position a up."""
    start, size = bits(32, a), bits(32, b)
    if mode == "wrap":
        start, size = start & np.uint32(31), size & np.uint32(31)
    return shl("u32", _low_ones(32, size.astype(np.int64)), start)


def szext(t: str, mode: str, a: Operand, b: Operand) -> Bits:
    """`szext`: extend the low b bits of a by sign (s32) or zero."""
    x, size = bits(32, a), bits(32, b)
    if mode == "wrap":
        size = size & np.uint32(31)
    size = np.minimum(size, np.uint32(32))
    mask = _low_ones(32, size.astype(np.int64))
    low = x & mask
    if t == "u32":
        return low
    negative = ((shr("u32", x, np.maximum(size, 1) - np.uint32(1)) & 1) != 0) & (size > 0)
    return np.where(negative, low | ~mask, low)


def fns(mask: Operand, base: Operand, offset: Operand) -> Bits:
    """`fns.b32`: position of the n-th set bit from `base` up or down, or all ones."""
    x, start, count = bits(32, mask), bits(32, base), signed(bits(32, offset)).astype(np.int64)
    x, start, count = np.broadcast_arrays(x, start, count)
    result = np.full(x.shape, 0xFFFFFFFF, np.uint32)
    step = np.where(count < 0, -1, 1)
    at = start.astype(np.int64)
    left = np.where(count == 0, 1, np.abs(count))
    for _ in range(32):
        inside = (at >= 0) & (at < 32)
        hit = inside & ((x >> np.where(inside, at, 0).astype(np.uint32)) & 1 != 0)
        left = left - hit
        result = np.where(hit & (left == 0), at.astype(np.uint32), result)
        # A zero offset tests only the bit at `base`.
        at = np.where(count == 0, 32, at + step)
    return result


_PRMT_MODES = ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")


def prmt(a: Operand, b: Operand, selector: Operand, mode: str | None = None) -> Bits:
    """`prmt.b32`: pick four of the eight bytes b:a; bit 3 of a selector replicates the sign."""
    control = bits(32, selector)
    if mode is not None and mode not in _PRMT_MODES:
        raise NotImplementedError(f"prmt mode .{mode} does not exist")
    indices = [_prmt_index(control, byte, mode) for byte in range(4)]
    x, y = bits(32, a), bits(32, b)
    if control.size == 1:
        return _prmt_constant(x, y, [int(index.flat[0]) for index in indices])
    pair = join(x, y)
    result: Bits = np.zeros(np.broadcast_shapes(pair.shape, control.shape), np.uint32)
    for byte, index in enumerate(indices):
        value: Bits = (pair >> ((index & np.uint32(7)) << 3).astype(np.uint64)).astype(np.uint8)
        sign = unsigned(signed(value) >> 7)
        value = select((index & 8) != 0, sign, value)
        result |= value.astype(np.uint32) << np.uint32(8 * byte)
    return result


def _prmt_constant(x: Bits, y: Bits, indices: list[int]) -> Bits:
    """`prmt` with one selector for all lanes: one shift and mask per run of bytes."""
    groups: dict[tuple[bool, int, bool], int] = {}
    for byte, index in enumerate(indices):
        key = (index & 4 != 0, (index & 3) - byte, index & 8 != 0)
        groups[key] = groups.get(key, 0) | 0xFF << (8 * byte)
    result: Bits = np.zeros(np.broadcast_shapes(x.shape, y.shape), np.uint32)
    for (from_y, offset, is_sign), mask in groups.items():
        source = y if from_y else x
        if is_sign:
            # Each byte becomes all ones or all zeros, by its top bit.
            source = ((source >> np.uint32(7)) & np.uint32(0x01010101)) * np.uint32(0xFF)
        amount = np.uint32(8 * abs(offset))
        moved = source >> amount if offset >= 0 else source << amount
        result |= moved if mask == 0xFFFFFFFF else moved & np.uint32(mask)
    return result


def _prmt_index(control: Bits, byte: int, mode: str | None) -> Bits:
    """The source byte for `byte`, in the low 3 bits (bit 3: replicate its sign)."""
    select = control & np.uint32(3)
    if mode is None:
        return (control >> (4 * byte)) & np.uint32(15)
    if mode == "f4e":
        return (select + np.uint32(byte)) & np.uint32(7)
    if mode == "b4e":
        return (select - np.uint32(byte)) & np.uint32(7)
    if mode == "rc8":
        return select
    if mode == "ecl":
        result: Bits = np.maximum(select, np.uint32(byte))
        return result
    if mode == "ecr":
        result = np.minimum(select, np.uint32(byte))
        return result
    return ((select & np.uint32(1)) << 1) + np.uint32(byte & 1)
