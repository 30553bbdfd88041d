"""Values by the least and the greatest number they may be, and back.

In: `Lanes`. Out: bounds per thread as unsigned numbers, or as signed ones with 2**(bits-1) added,
so that the order of unsigned numbers is that of signed ones.
"""

from __future__ import annotations

import numpy as np

from tessera.ir.arrays import Flags, Words
from tessera.passes.lane_values.lane_values import MASKS, U64, Lanes, settle


def wraps(value: Lanes, bits: int) -> Flags:
    """Where the interval passes 2**bits - 1, so that it is no interval of unsigned numbers."""
    if value.span is None:
        return np.zeros((1, 1), dtype=np.bool_)
    return value.span > (MASKS[bits] - value.lo)


def unsigned_bounds(value: Lanes, bits: int) -> tuple[Words, Words]:
    """The least and greatest unsigned number that a lane may hold."""
    if value.span is None:
        return value.lo, value.lo
    wrap = wraps(value, bits)
    low = np.where(wrap, U64(0), value.lo)
    high = np.where(wrap, MASKS[bits], value.lo + np.minimum(value.span, MASKS[bits] - value.lo))
    return low, high


def biased_bounds(value: Lanes, bits: int) -> tuple[Words, Words]:
    """Bounds of the signed number plus 2**(bits-1), so that unsigned order is signed order."""
    half = U64(1 << (bits - 1))
    return unsigned_bounds(Lanes((value.lo + half) & MASKS[bits], value.span, value.why), bits)


def from_bounds(low: Words, high: Words, bits: int, why: int) -> Lanes:
    """The value with these unsigned bounds."""
    return settle(low, high - low, bits, why)


def from_biased(low: Words, high: Words, bits: int, why: int) -> Lanes:
    """The value with these biased bounds."""
    half = U64(1 << (bits - 1))
    return settle(low - half, high - low, bits, why)
