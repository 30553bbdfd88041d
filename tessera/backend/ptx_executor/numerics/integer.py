"""Integer arithmetic of PTX: wraps, saturates, widens and carries exactly as the ISA says.

In and out: register bits (`bits`). Division by zero is unspecified in PTX; quotient and remainder
are all ones, as on an H200, and INT_MIN / -1 wraps.

Source: PTX ISA, integer arithmetic and extended-precision integer arithmetic instructions.
"""

from __future__ import annotations

import numpy as np

from tessera.backend.ptx_executor.numerics.bits import (
    SIGNED,
    UNSIGNED,
    Bits,
    Operand,
    bits,
    halves,
    integer_type,
    packed,
    predicate,
    signed,
    typed,
    unsigned,
)
from tessera.ir.arrays import Flags, Integers

PACKED = {"u16x2": "u16", "s16x2": "s16"}


def add(t: str, a: Operand, b: Operand, *, sat: bool = False) -> Bits:
    """`add{.sat}`: wraps, or clamps to the type's range."""
    if t in PACKED:
        return packed(lambda x, y: add(PACKED[t], x, y, sat=sat), 32, a, b)
    width, is_signed = integer_type(t)
    x, y = bits(width, a), bits(width, b)
    if not sat:
        return x + y
    total = x + y
    if not is_signed:
        return np.where(total < x, UNSIGNED[width].type(_max(t)), total)
    overflow = signed((x ^ total) & (y ^ total)) < 0
    return np.where(overflow, _saturated(width, x), total)


def sub(t: str, a: Operand, b: Operand, *, sat: bool = False) -> Bits:
    """`sub{.sat}`: wraps, or clamps to the type's range."""
    if t in PACKED:
        return packed(lambda x, y: sub(PACKED[t], x, y, sat=sat), 32, a, b)
    width, is_signed = integer_type(t)
    x, y = bits(width, a), bits(width, b)
    difference = x - y
    if not sat:
        return difference
    if not is_signed:
        return np.where(x < y, UNSIGNED[width].type(0), difference)
    overflow = signed((x ^ y) & (x ^ difference)) < 0
    return np.where(overflow, _saturated(width, x), difference)


def _max(t: str) -> int:
    width, is_signed = integer_type(t)
    return (1 << (width - is_signed)) - 1


def _saturated(width: int, sign_of: Bits) -> Bits:
    """INT_MIN where `sign_of` is negative, else INT_MAX."""
    return (sign_of >> (width - 1)) + UNSIGNED[width].type((1 << (width - 1)) - 1)


def mul(t: str, a: Operand, b: Operand, half: str = "lo") -> Bits:
    """`mul.lo`, `mul.hi` or `mul.wide` (which returns twice the width)."""
    width, _ = integer_type(t)
    if half == "lo":
        return bits(width, a) * bits(width, b)
    if half == "hi":
        return _mul_hi(t, a, b)
    if half == "wide" and width < 64:
        return unsigned(_wide_product(t, a, b))
    raise NotImplementedError(f"mul.{half}.{t} does not exist")


def _wide_product(t: str, a: Operand, b: Operand) -> Integers:
    width, is_signed = integer_type(t)
    wide = (SIGNED if is_signed else UNSIGNED)[2 * width]
    return np.multiply(typed(t, a), typed(t, b), dtype=wide)


def _mul_hi(t: str, a: Operand, b: Operand) -> Bits:
    width, is_signed = integer_type(t)
    if width < 64:
        product = unsigned(_wide_product(t, a, b))
        product >>= product.dtype.type(width)
        return product.astype(UNSIGNED[width])
    x, y = bits(64, a), bits(64, b)
    high = _mul_hi_u64(x, y)
    if is_signed:
        high = high - np.where(signed(x) < 0, y, 0) - np.where(signed(y) < 0, x, 0)
    return high.astype(np.uint64)


def _mul_hi_u64(x: Bits, y: Bits) -> Bits:
    """The high half of the 128-bit product, from four 32-bit partial products."""
    x_low, x_high = x & np.uint64(0xFFFFFFFF), x >> 32
    y_low, y_high = y & np.uint64(0xFFFFFFFF), y >> 32
    middle = x_high * y_low + ((x_low * y_low) >> 32)
    other = x_low * y_high + (middle & np.uint64(0xFFFFFFFF))
    result: Bits = x_high * y_high + (middle >> 32) + (other >> 32)
    return result


def mad(t: str, a: Operand, b: Operand, c: Operand, half: str = "lo", *, sat: bool = False) -> Bits:
    """`mad.lo`, `mad.hi{.sat}` or `mad.wide`; `c` of the wide form has twice the width."""
    width, _ = integer_type(t)
    product = mul(t, a, b, half)
    if half == "wide":
        return product + bits(2 * width, c)
    return add(t, product, c, sat=sat)


def _bits24(t: str, value: Operand) -> Integers:
    """The low 24 bits, sign- or zero-extended to 64."""
    low = bits(32, value) << 8
    return (signed(low) >> 8).astype(np.int64) if t == "s32" else (low >> 8).astype(np.uint64)


def mul24(t: str, a: Operand, b: Operand, half: str = "lo") -> Bits:
    """`mul24.lo` and `mul24.hi`: bits 31..0 or 47..16 of the 48-bit product."""
    product = unsigned(_bits24(t, a) * _bits24(t, b))
    return (product if half == "lo" else product >> 16).astype(np.uint32)


def mad24(
    t: str, a: Operand, b: Operand, c: Operand, half: str = "lo", *, sat: bool = False
) -> Bits:
    """`mad24.lo` and `mad24.hi{.sat}`."""
    return add(t, mul24(t, a, b, half), c, sat=sat)


def add_carry(
    t: str, a: Operand, b: Operand, carry: Flags | bool | None = None
) -> tuple[Bits, Flags]:
    """`add.cc` / `addc`: the sum and CC.CF."""
    width, _ = integer_type(t)
    x, y = bits(width, a), bits(width, b)
    total = x + y
    out: Flags = total < x
    if carry is None:
        return total, out
    carried = total + predicate(carry).astype(total.dtype)
    return carried, out | (carried < total)


def sub_carry(
    t: str, a: Operand, b: Operand, carry: Flags | bool | None = None
) -> tuple[Bits, Flags]:
    """`sub.cc` / `subc`: the difference and CC.CF, which GPUs set if there was no borrow.

    The PTX ISA calls the flag a borrow, which makes no difference for chains of `sub.cc` and
    `subc`. But the 128-bit division of nvcc continues with `addc`, and ptxas passes on the carry
    of `a + ~b + 1`.
    """
    width, _ = integer_type(t)
    return add_carry(t, a, ~bits(width, b), True if carry is None else carry)


def mad_carry(
    t: str, a: Operand, b: Operand, c: Operand, half: str = "lo", carry: Flags | bool | None = None
) -> tuple[Bits, Flags]:
    """`mad.cc` / `madc`: half of the product plus `c` (plus carry), and CC.CF."""
    return add_carry(t, mul(t, a, b, half), c, carry)


def div(t: str, a: Operand, b: Operand) -> Bits:
    """`div`: truncates; all ones for a zero divisor."""
    width, is_signed = integer_type(t)
    x, y = bits(width, a), bits(width, b)
    zero = y == 0
    if not zero.any():
        return _quotient(x, y, is_signed)
    quotient = _quotient(x, y + zero, is_signed)
    result: Bits = quotient | -zero.astype(quotient.dtype)
    return result


def rem(t: str, a: Operand, b: Operand) -> Bits:
    """`rem`: has the dividend's sign; all ones for a zero divisor."""
    width, is_signed = integer_type(t)
    x, y = bits(width, a), bits(width, b)
    zero = y == 0
    if not zero.any():
        return x - _quotient(x, y, is_signed) * y
    safe = y + zero
    result: Bits = (x - _quotient(x, safe, is_signed) * safe) | -zero.astype(x.dtype)
    return result


def _quotient(x: Bits, y: Bits, is_signed: bool) -> Bits:
    """The truncated quotient for nonzero y; INT_MIN / -1 wraps.

    float64 quotients of integers up to 32 bits never round up to the next integer, and their
    division is several times as fast as NumPy's integer division.
    """
    if x.dtype.itemsize < 8:
        if is_signed:
            x, y = signed(x), signed(y)
        quotient = np.divide(x, y, dtype=np.float64).astype(np.int64)
        return unsigned(quotient).astype(UNSIGNED[x.dtype.itemsize * 8])
    if not is_signed:
        return x // y
    magnitude = _magnitude(x) // _magnitude(y)
    sign = unsigned(signed(x ^ y) >> 63)
    return (magnitude ^ sign) - sign


def _magnitude(x: Bits) -> Bits:
    return unsigned(np.abs(signed(x)))


def abs(t: str, a: Operand) -> Bits:
    """`abs`: INT_MIN stays INT_MIN."""
    return _magnitude(bits(integer_type(t)[0], a))


def neg(t: str, a: Operand) -> Bits:
    """`neg`: INT_MIN stays INT_MIN."""
    if t in PACKED:
        return packed(np.negative, 32, a)
    return -bits(integer_type(t)[0], a)


def min(t: str, a: Operand, b: Operand, *, relu: bool = False) -> Bits:
    """`min{.relu}`, also on pairs of 16 bits."""
    return _extremum(np.minimum, t, a, b, relu)


def max(t: str, a: Operand, b: Operand, *, relu: bool = False) -> Bits:
    """`max{.relu}`, also on pairs of 16 bits."""
    return _extremum(np.maximum, t, a, b, relu)


def _extremum(chosen: np.ufunc, t: str, a: Operand, b: Operand, relu: bool) -> Bits:
    if t in PACKED:
        return packed(lambda x, y: _extremum(chosen, PACKED[t], x, y, relu), 32, a, b)
    result = chosen(typed(t, a), typed(t, b))
    return unsigned(np.maximum(result, result.dtype.type(0)) if relu else result)


def sad(t: str, a: Operand, b: Operand, c: Operand) -> Bits:
    """`sad`: c + |a - b|, all modulo the width."""
    x, y = typed(t, a), typed(t, b)
    return bits(integer_type(t)[0], c) + unsigned(np.where(x < y, y - x, x - y))


def dp4a(at: str, bt: str, a: Operand, b: Operand, c: Operand) -> Bits:
    """`dp4a`: c plus the products of four bytes, modulo 2^32."""
    return bits(32, c) + _products(_bytes(at, a), _bytes(bt, b))


def dp2a(at: str, bt: str, half: str, a: Operand, b: Operand, c: Operand) -> Bits:
    """`dp2a.lo/.hi`: two 16-bit parts of a times the low or high two bytes of b, plus c."""
    first = 0 if half == "lo" else 2
    shorts = [_extended(at, part) for part in halves(bits(32, a))]
    return bits(32, c) + _products(shorts, _bytes(bt, b)[first : first + 2])


def _bytes(t: str, value: Operand) -> list[Bits]:
    word = bits(32, value)
    return [_extended(t, (word >> shift).astype(np.uint8)) for shift in (0, 8, 16, 24)]


def _extended(t: str, part: Bits) -> Bits:
    if t == "s32":
        return unsigned(signed(part).astype(np.int32))
    if t == "u32":
        return part.astype(np.uint32)
    raise NotImplementedError(f"dot products take .u32 and .s32, not .{t}")


def _products(xs: list[Bits], ys: list[Bits]) -> Bits:
    total = xs[0] * ys[0]
    for x, y in zip(xs[1:], ys[1:], strict=True):
        total = total + x * y
    return total
