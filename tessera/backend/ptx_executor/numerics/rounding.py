"""Rounding exact results to a format in any mode.

The computation is in float64, so that the stored value is either exact or *odd-rounded* (its last
bit is set if any bits were cut off). Rounding this value once more to a format with at least two
bits less is the same as rounding the exact result, in every mode (Boldo and
Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to
odd").
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tessera.backend.ptx_executor.numerics.bits import UNSIGNED, Bits
from tessera.backend.ptx_executor.numerics.formats import FloatLayout, finish
from tessera.ir.arrays import Flags, Floats

F64 = NDArray[np.float64]

MODES = ("rn", "rz", "rm", "rp")


def check_mode(rounding: str) -> None:
    """Refuse a rounding modifier other than the four IEEE modes."""
    if rounding not in MODES:
        raise NotImplementedError(f"rounding .{rounding} is not supported here")


def two_sum(a: F64, b: F64) -> tuple[F64, F64]:
    """RN(a + b) and its exact error (Knuth), for finite results."""
    total = a + b
    virtual = total - a
    return total, (a - (total - virtual)) + (b - virtual)


def odd_sum(a: F64, b: F64) -> F64:
    """a + b rounded to odd; infinities and NaNs as in a + b."""
    total, error = two_sum(a, b)
    return make_odd(total, error)


def make_odd(value: F64, error: F64) -> F64:
    """The odd rounding of value + error, given value = RN(value + error)."""
    raw = value.view(np.uint64)
    inexact = (error != 0) & np.isfinite(value) & (error == error)
    even = (raw & np.uint64(1)) == 0
    # An even RN result moves one unit towards the exact value, which makes it odd.
    grow = (error > 0) == (value > 0)
    step = np.where(grow, np.uint64(1), np.uint64(0xFFFFFFFFFFFFFFFF))
    return (raw + np.where(inexact & even, step, np.uint64(0))).view(np.float64)


def narrow(values: Floats, rounding: str = "rn") -> Bits:
    """float64 values (exact or odd-rounded) as canonical f32 bits, in one of the four modes."""
    nearest: NDArray[np.float32] = values.astype(np.float32)
    if rounding == "rn":
        return finish("f32", nearest)
    check_mode(rounding)
    return finish("f32", _directed(nearest, values, rounding))


def _directed(nearest: NDArray[np.float32], exact: Floats, rounding: str) -> NDArray[np.float32]:
    """Move a nearest result by one unit where the mode requires the other neighbour."""
    value = nearest.astype(np.float64)
    above, below = value > exact, value < exact
    raw = nearest.view(np.uint32)
    negative = (raw >> np.uint32(31)) != 0
    if rounding == "rz":
        out, back = np.False_, np.where(negative, below, above)
    elif rounding == "rm":
        out, back = above & negative, above & ~negative
    else:
        out, back = below & ~negative, below & negative
    unit = np.uint32(1)
    result: NDArray[np.float32] = (raw + out * unit - back * unit).view(np.float32)
    return result


def odd_f32(values: Floats) -> Bits:
    """float64 values as f32 bits rounded to odd, ready for one more rounding to 16 bits."""
    nearest: NDArray[np.float32] = values.astype(np.float32)
    raw = nearest.view(np.uint32)
    back = nearest.astype(np.float64)
    # Round towards zero first (also where a finite value became infinity), then set the sticky bit.
    raw -= np.abs(back) > np.abs(values)
    raw |= (nearest != values) & (values == values)
    return raw


def encode(
    form: FloatLayout, values: F64, rounding: str = "rn", *, satfinite: bool = False
) -> Bits:
    """float64 values (exact or odd-rounded) as bits of a narrower format.

    `rounding` may also be `rna`: to nearest, ties away from zero. NaN becomes canonical. With
    `satfinite` (the only way for formats without infinity) results clamp to the largest value.
    """
    raw = values.view(np.uint64)
    negative = (raw >> np.uint64(63)) != 0
    magnitude = raw & np.uint64(0x7FFFFFFFFFFFFFFF)
    exponent = (magnitude >> np.uint64(52)).astype(np.int64)
    significand = magnitude & np.uint64(0xFFFFFFFFFFFFF)
    significand |= (exponent > 0).astype(np.uint64) << np.uint64(52)
    # The biased exponent e in the narrow format; a subnormal loses up to 1 - e more bits.
    target = np.maximum(exponent, 1) - (1023 - form.bias)
    cut = (52 - form.mantissa) + np.clip(1 - target, 0, 63)
    cut = np.minimum(cut, 63)
    kept = round_shift(significand, cut.astype(np.uint64), negative, rounding)
    # `kept` holds the hidden bit, so it adds one to the exponent field, and so does a carry.
    field = np.maximum(target - 1, 0).astype(np.uint64)
    result = kept + (field << np.uint64(form.mantissa))
    finite = magnitude < np.uint64(0x7FF0000000000000)
    overflow = finite & (result > np.uint64(form.largest))
    result = np.where(overflow, _overflowed(form, negative, rounding), result)
    result = np.where(finite, result, np.uint64(form.infinity))
    if satfinite:
        result = np.minimum(result, np.uint64(form.largest))
    result |= negative.astype(np.uint64) << np.uint64(form.width - 1)
    result = np.where(values != values, np.uint64(form.nan), result)
    return result.astype(UNSIGNED[max(form.width, 8)])


def round_shift(significand: Bits, cut: Bits, negative: Flags, rounding: str) -> Bits:
    """`significand >> cut` (uint64, cut 1..63) rounded in the given mode."""
    kept = significand >> cut
    rest = significand & ((np.uint64(1) << cut) - np.uint64(1))
    half = np.uint64(1) << (cut - np.uint64(1))
    if rounding == "rn":
        up = (rest > half) | ((rest == half) & ((kept & np.uint64(1)) != 0))
    elif rounding == "rna":
        up = rest >= half
    elif rounding == "rz":
        return kept
    elif rounding == "rm":
        up = negative & (rest != 0)
    elif rounding == "rp":
        up = ~negative & (rest != 0)
    else:
        raise NotImplementedError(f"rounding .{rounding} is not supported here")
    result: Bits = kept + up.astype(np.uint64)
    return result


def _overflowed(form: FloatLayout, negative: Flags, rounding: str) -> Bits:
    """Infinity, or the largest finite value if the mode does not round to infinity."""
    infinity, largest = np.uint64(form.infinity), np.uint64(form.largest)
    if rounding in ("rn", "rna"):
        return np.broadcast_to(infinity, negative.shape)
    if rounding == "rz":
        return np.broadcast_to(largest, negative.shape)
    return np.where(negative == (rounding == "rm"), infinity, largest)
