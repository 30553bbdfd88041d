"""Shifts, bit fields, permutations and counts over `Lanes`.

Shifts take any value by known amounts; the others take exact inputs only, and anything else is
unknown. Of values that grow with digits, shifts and fields (`bfe`) are followed; for the rest
digits are spelled out.

Source: PTX ISA 9.0, sections 9.7.1.19 to 9.7.1.26, 9.7.8.6 to 9.7.8.8, 9.7.9.7.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tessera.ir.arrays import Words
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.digits import Split
from tessera.passes.lane_values.lanes import MASK, U64, Lanes, digits_of, single
from tessera.passes.lane_values.sloped_ops import sign_extend, sloped_field, sloped_right_shift

Values = Sequence[Lanes]


def _usable(values: Values) -> bool:
    return all(v.span is None for v in values)


def _constant(value: Lanes) -> int | None:
    """The one value of every thread, or None; digits that it grows with are spelled out."""
    if value.slopes:
        raise Split(digits_of(value))
    return single(value)


def extract_field(values: Values, bits: int, signed: bool) -> Lanes:
    """`bfe`: `length` bits from `start`, extended."""
    a, start, length = values
    first, count = _constant(start), _constant(length)
    if first is None or count is None:
        return lanes.unknown(bits, lanes.reason(*values))
    first, count = first & 0xFF, count & 0xFF
    if count == 0:
        return lanes.scalar(0)
    if signed and bits == 32 and first >= bits:
        # The ISA has copies of the sign. ptxas 12.8 to 13.4 makes -1 of it whatever the sign, if it
        # knows the start and not `a`; an H200 ran that (`benchmarks/results/generated_gpu.json`).
        return lanes.between(-1, 0, bits, lanes.reason(*values))
    if a.span is not None:
        if signed or count >= bits:
            return lanes.unknown(bits, a.why)
        return lanes.between(0, (1 << count) - 1, bits, a.why)
    if a.slopes:
        if first >= bits:
            first, count = (bits - 1, 1) if signed else (0, 0)
        width = min(count, bits - first)
        return sloped_field(a, first, width, bits, signed=signed) if width else lanes.scalar(0)
    value = sign_extend(a, bits).low() if signed else a.low()
    shifted = value.view(np.int64) >> np.int64(min(first, 63)) if signed else value
    if not signed:
        result = value >> U64(first) if first < 64 else np.zeros_like(value)
        return Lanes(result & U64((1 << min(count, 64)) - 1) & U64(MASK[bits]))
    width = min(count, max(bits - first, 1))
    up = np.int64(64 - width)
    shifted = (shifted << up) >> up
    return Lanes(shifted.view(U64) & U64(MASK[bits]))


def insert_field(values: Values, bits: int, signed: bool) -> Lanes:
    """`bfi`: `length` bits of a put into b at `start`."""
    a, b, start, length = values
    first, count = _constant(start), _constant(length)
    if first is None or count is None or not _usable((a, b)):
        return lanes.unknown(bits, lanes.reason(*values))
    first, count = first & 0xFF, count & 0xFF
    field = (((1 << count) - 1) << first) & MASK[bits]
    if field == 0:
        return b
    return Lanes((b.low() & U64(MASK[bits] ^ field)) | ((a.low() << U64(first)) & U64(field)))


def shift_left(a: Lanes, b: Lanes, bits: int, signed: bool) -> Lanes:
    """`shl`: a product."""
    if b.span is not None:
        return lanes.unknown(bits, lanes.reason(a, b))
    amount = np.minimum(b.low(), U64(63))
    factor = np.where(b.low() >= U64(bits), U64(0), U64(1) << amount)
    return lanes.mul(a, Lanes(factor & U64(MASK[bits])), bits)


def shift_right(a: Lanes, b: Lanes, bits: int, signed: bool) -> Lanes:
    """`shr`, with copies of the sign or with zeros."""
    if a.slopes or b.slopes:
        return sloped_right_shift(a, b, bits, signed=signed)
    if b.span is not None:
        return lanes.unknown(bits, lanes.reason(a, b))
    amount = np.minimum(b.low(), U64(bits - 1))
    if signed:
        half = U64(1 << (bits - 1))
        low, high = lanes.biased_bounds(a, bits)
        bottom = _arithmetic_shift(low - half, amount)
        top = _arithmetic_shift(high - half, amount)
        return lanes.settle(bottom, top - bottom, bits, a.why)
    low, high = lanes.unsigned_bounds(a, bits)
    gone = b.low() >= U64(bits)
    low, high = np.where(gone, U64(0), low >> amount), np.where(gone, U64(0), high >> amount)
    return lanes.from_bounds(low, high, bits, a.why)


def _arithmetic_shift(values: Words, amount: Words) -> Words:
    return (values.view(np.int64) >> amount.astype(np.int64)).view(U64)


def shift_funnel(values: Values, left: bool, wrap: bool) -> Lanes:
    """`shf`: 32 bits out of the 64 bits b:a."""
    if not _usable(values):
        return lanes.unknown(32, lanes.reason(*values))
    a, b, c = (v.low() for v in values)
    amount = c & U64(31) if wrap else np.minimum(c, U64(32))
    both = (b << U64(32)) | a
    if left:
        # The upper half of both << amount; an amount of 32 leaves a there.
        return Lanes(((both << amount) >> U64(32)) & U64(MASK[32]))
    return Lanes((both >> amount) & U64(MASK[32]))


def permute_bytes(values: Values) -> Lanes:
    """`prmt.b32` in its default mode; copies of signs are a habit (`gpu_habits`)."""
    selector = _constant(values[2])
    if selector is None or not _usable(values):
        return lanes.unknown(32, lanes.reason(*values))
    both = (values[1].low() << U64(32)) | values[0].low()
    result = np.zeros_like(both)
    for place in range(4):
        choice = (selector >> (4 * place)) & 0xF
        byte = (both >> U64(8 * (choice & 7))) & U64(0xFF)
        result = result | (byte << U64(8 * place))
    return Lanes(result)


def lookup3(values: Values) -> Lanes:
    """`lop3`: any function of three bits."""
    table = _constant(values[3])
    if table is None or not _usable(values):
        return lanes.unknown(32, lanes.reason(*values))
    a, b, c = (v.low() for v in values[:3])
    full = U64(MASK[32])
    result = np.zeros_like(a | b | c)
    for row in range(8):
        if table >> row & 1:
            term = (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
            result = result | (term & full)
    return Lanes(result)


def by_value(value: Lanes, name: str, bits: int, signed: bool, amount: bool) -> Lanes:
    """`popc`, `clz`, `brev`, `bfind`, computed once per distinct value."""
    if value.span is not None:
        return _counted(value, name, bits)
    distinct, places = np.unique(value.low(), return_inverse=True)
    counts = [_count(int(v), name, bits, signed, amount) for v in distinct]
    return Lanes(np.array(counts, dtype=U64)[places].reshape(value.low().shape))


def _counted(value: Lanes, name: str, bits: int) -> Lanes:
    if name in {"popc", "clz"}:
        return lanes.between(0, bits, 32, value.why)
    return lanes.unknown(bits if name == "brev" else 32, value.why)


def _count(value: int, name: str, bits: int, signed: bool, amount: bool) -> int:
    if name == "popc":
        return value.bit_count()
    if name == "clz":
        return bits - value.bit_length()
    if name == "brev":
        return int(f"{value:0{bits}b}"[::-1], 2)
    if signed and value >> (bits - 1):
        value = ~value & MASK[bits]
    if value == 0:
        return MASK[32]
    place = value.bit_length() - 1
    return bits - 1 - place if amount else place
