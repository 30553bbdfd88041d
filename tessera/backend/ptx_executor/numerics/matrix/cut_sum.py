"""Sums of products in which every term is cut to a common unit, as in tensor cores.

In: factors [k, ...] whose slices broadcast against the accumulator, all float32. Out: the bits of
the rounded sums. `accumulate` describes the origin of the rule:

- The exponent of a product is the sum of the exponents of its factors. All products and the
  accumulator are cut, towards zero, to multiples of 2^(emax - kept), where emax is the largest
  exponent among them. The cut terms are summed exactly.
- An f32 result is cut towards zero to `result` bits, an f16 result rounded to nearest. A sum of
  zero is +0.0.

Products are computed block by block, all k at once, so that intermediate values stay in the
second-level cache. (Two threads are no faster: an operation on a block takes some tens of
microseconds, about as long as a switch of the interpreter between threads.) If all exponents are
far from the limits of float32, the computation uses float32 and int32, else float64. Every step is
exact, so results do not depend on the blocks.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tessera.backend.ptx_executor.numerics.bits import Bits, aligned_copy, aligned_empty
from tessera.backend.ptx_executor.numerics.formats import finish, narrow_half
from tessera.backend.ptx_executor.numerics.matrix.elements import Values
from tessera.backend.ptx_executor.numerics.rounding import F64, narrow, odd_f32

Where = tuple[slice, ...]

_ALL = slice(None)

# Products per block.
_BLOCK = 1 << 17
# The number of block shapes for which a thread keeps memory, a few MiB each.
_SPACES = 4
# Biased exponents between which float32 holds every product and its scaled value exactly, and the
# exponent that stands for zero: its sum with any other is below the sum of any two others.
_SAFE_LOW, _SAFE_HIGH, _ZERO = 37, 227, np.int16(-16000)
_NO_PRODUCT = -8000
# The number of products below 4 * 2^25 whose sum always fits into 32 bits.
_FIT = 16


@dataclass(frozen=True, slots=True)
class Rule:
    """Bits kept below the largest exponent, bits of an f32 result, lowest exponent of a factor."""

    kept: int
    result: int
    lowest: int


@dataclass(frozen=True, slots=True)
class Factor:
    """Slices [k, ...] of A or B: float32 values, biased exponents, whether any is subnormal."""

    values: Values
    exponents: Values
    has_subnormal: bool

    def spread(self, transform: Callable[[Values], Values]) -> Factor:
        """The factor with both arrays transformed: reshaped or repeated."""
        return Factor(transform(self.values), transform(self.exponents), self.has_subnormal)

    def pick(self, where: list[int] | Where) -> Factor:
        """Some of the slices, or the slices for a part of the accumulator."""
        return Factor(self.values[where], self.exponents[where], self.has_subnormal)


def factor(values: Values, lowest: int) -> Factor:
    """Values with their exponents; exponents of subnormals are raised to `lowest`."""
    if not values.flags.c_contiguous:
        values = aligned_copy(values)
    exponents = _exponents(values)
    zero = exponents == 0
    has_zero = bool(zero.any())
    has_subnormal = has_zero and bool((values[zero] != 0).any())
    if lowest > -126:
        np.maximum(exponents, np.int16(lowest + 127), out=exponents)
    if has_zero:
        exponents[zero] = _ZERO
    return Factor(values, exponents, has_subnormal)


def _exponents(values: Values) -> Values:
    """The biased exponents of contiguous float32 values."""
    exponents = aligned_empty(values.shape, np.int16)
    np.copyto(exponents, values.view(np.uint32) >> np.uint32(23), casting="unsafe")
    exponents &= np.int16(0xFF)
    return exponents


def sum_of_products(dt: str, a: Factor, b: Factor, c: Values, rule: Rule) -> Bits:
    """The bits of c + sum of a[k] * b[k], cut and rounded by the rule."""
    if dt not in ("f32", "f16"):
        raise NotImplementedError(f"matrix products do not accumulate in .{dt}")
    result: Bits = aligned_empty(c.shape, np.uint32 if dt == "f32" else np.uint16)
    for where, left, right in _blocks(c.shape, a.values.shape, b.values.shape):
        _sum_block(dt, a.pick(left), b.pick(right), c[where], rule, result[where])
    return result


def _sum_block(dt: str, a: Factor, b: Factor, c: Values, rule: Rule, result: Bits) -> None:
    space = _SCRATCH.space(a.values.shape[0], c.shape)
    _largest_exponents(a.exponents, b.exponents, c, space)
    if a.has_subnormal or b.has_subnormal or not _is_safe(space, c):
        result[...] = _round_any(dt, _wide_sum(a.values, b.values, c, rule), rule)
        return
    np.subtract(np.uint32(254 + rule.kept << 23), space.power, out=space.power)
    np.multiply(a.values, b.values, out=space.products)
    np.multiply(space.products, space.scale, out=space.products)
    # The cast truncates towards zero.
    np.copyto(space.flat_terms, space.flat_products, casting="unsafe")
    np.add.reduce(space.terms, axis=0, dtype=space.sums.dtype, out=space.sums)
    np.multiply(c, space.scale, out=space.first)
    np.trunc(space.first, out=space.first)
    np.copyto(space.total, space.sums)
    np.copyto(space.addend, space.first)
    space.total += space.addend
    _round_scaled(dt, space.total, space.scale, rule, result)


@functools.lru_cache(maxsize=64)
def _blocks(
    shape: tuple[int, ...], a: tuple[int, ...], b: tuple[int, ...]
) -> tuple[tuple[Where, Where, Where], ...]:
    """Parts of an accumulator and of factors of these shapes."""
    parts = tuple(_parts(shape, max(1, _BLOCK // a[0])))
    return tuple((part, _picked(a, part), _picked(b, part)) for part in parts)


def _parts(shape: tuple[int, ...], size: int) -> Iterator[Where]:
    """Parts of an array of about `size` elements, along its first one or two axes."""
    rest = math.prod(shape[1:])
    if rest <= size or len(shape) == 1:
        step = max(1, size // max(1, rest))
        yield from ((slice(start, start + step),) for start in range(0, shape[0], step))
        return
    step = max(1, size // max(1, math.prod(shape[2:])))
    for row in range(shape[0]):
        for start in range(0, shape[1], step):
            yield slice(row, row + 1), slice(start, start + step)


def _picked(shape: tuple[int, ...], where: Where) -> Where:
    """The index of a part of the accumulator in slices [k, ...] that broadcast against it."""
    picked = (part if size > 1 else _ALL for size, part in zip(shape[1:], where, strict=False))
    return (_ALL, *picked)


class _Workspace:
    """Arrays for the steps of one block: per product [k, ...], then per sum.

    Exponents, products and their cut terms use the same memory, one after the other.
    """

    __slots__ = (
        "addend",
        "clipped",
        "exponents",
        "first",
        "flat_products",
        "flat_terms",
        "largest",
        "power",
        "products",
        "scale",
        "sums",
        "terms",
        "total",
    )

    def __init__(self, depth: int, shape: tuple[int, ...]) -> None:
        deep = (depth, *shape)
        self.products: Values = aligned_empty(deep, np.float32)
        self.terms: Values = self.products.view(np.int32)
        self.flat_products: Values = self.products.reshape(-1)
        # With one axis, NumPy casts in place, element by element.
        self.flat_terms: Values = self.terms.reshape(-1)
        self.exponents: Values = self.flat_products.view(np.int16)[: math.prod(deep)].reshape(deep)
        self.largest: Values = aligned_empty(shape, np.int16)
        self.clipped: Values = aligned_empty(shape, np.int16)
        self.power: Values = aligned_empty(shape, np.uint32)
        self.scale: Values = self.power.view(np.float32)
        self.sums: Values = aligned_empty(shape, np.int32 if depth <= _FIT else np.int64)
        self.first: Values = aligned_empty(shape, np.float32)
        self.addend: Values = aligned_empty(shape, np.float64)
        self.total: Values = aligned_empty(shape, np.float64)


class _Scratch(threading.local):
    """Memory that the blocks of a thread reuse: new pages cost more than the sums."""

    def __init__(self) -> None:
        self._spaces: dict[tuple[int, tuple[int, ...]], _Workspace] = {}

    def space(self, depth: int, shape: tuple[int, ...]) -> _Workspace:
        """Arrays for a block of this shape, with undefined contents."""
        space = self._spaces.get((depth, shape))
        if space is None:
            if len(self._spaces) >= _SPACES:
                self._spaces.clear()
            space = self._spaces[depth, shape] = _Workspace(depth, shape)
        return space


_SCRATCH = _Scratch()


def _largest_exponents(a: Values, b: Values, c: Values, space: _Workspace) -> None:
    """The largest exponent among C and the products of factors with exponents `a` and `b`.

    It is stored in the `power` of the space: biased, at the exponent's position in a float32, and 0
    if it would be negative.
    """
    np.add(a, b, out=space.exponents)
    np.maximum.reduce(space.exponents, axis=0, out=space.largest)
    space.largest -= np.int16(127)
    np.maximum(space.largest, np.int16(0), out=space.clipped)
    np.copyto(space.power, space.clipped, casting="unsafe")
    space.power <<= np.uint32(23)
    of_c = space.first.view(np.uint32)
    np.bitwise_and(c.view(np.uint32), np.uint32(0xFF << 23), out=of_c)
    np.maximum(space.power, of_c, out=space.power)


def _is_safe(space: _Workspace, c: Values) -> bool:
    """Whether float32 is enough: all values finite, and no huge or tiny exponents except zeros.

    Sums of zeros only get an exponent that is safe. (A subnormal in C beside safe products lies
    far below the unit.)
    """
    power = space.power
    if not power.size:
        return True
    if np.maximum.reduce(power, axis=None) > _SAFE_HIGH << 23:
        return False
    if np.minimum.reduce(power, axis=None) >= _SAFE_LOW << 23:
        return True
    small = power < np.uint32(_SAFE_LOW << 23)
    if power[small].any() or c[small].any() or (space.largest[small] > _NO_PRODUCT).any():
        return False
    power[small] = 127 << 23
    return True


def _round_scaled(dt: str, total: F64, scale: Values, rule: Rule, result: Bits) -> None:
    """The bits of total / scale, which cannot leave the normal range of float32."""
    if dt == "f16":
        result[...] = _round_half(total / scale)
        return
    raw = total.view(np.uint64)
    raw &= _mask(rule)
    values = result.view(np.float32)
    np.copyto(values, total, casting="same_kind")
    values /= scale


def _mask(rule: Rule) -> np.uint64:
    """A mask that keeps the leading bits of a float64."""
    return np.uint64(~((1 << (53 - rule.result)) - 1) & (2**64 - 1))


def _wide_sum(a: Values, b: Values, c: Values, rule: Rule) -> F64:
    """The sum for any values, in float64; lanes with infinities or NaNs get their plain sum."""
    left, right, first = (values.astype(np.float64) for values in (a, b, c))
    plain = first + 0.0
    top = _wide_powers(first, -126)
    powers_a, powers_b = _wide_powers(left, rule.lowest), _wide_powers(right, rule.lowest)
    for k in range(a.shape[0]):
        plain = plain + left[k] * right[k]
        top = np.maximum(top, np.where(np.isfinite(plain), powers_a[k] * powers_b[k], 0.0))
    top[~((top > 0) & (top < np.inf))] = 1.0
    unit = top * 2.0**-rule.kept
    total = np.trunc(first / unit)
    for k in range(a.shape[0]):
        total = total + np.trunc(left[k] * right[k] / unit)
    return np.where(np.isfinite(plain), total * unit, plain)


def _wide_powers(values: F64, lowest: int) -> F64:
    powers = (values.view(np.uint64) & np.uint64(0x7FF0000000000000)).view(np.float64)
    return np.where(powers != 0, np.maximum(powers, 2.0**lowest), 0.0)


def _round_any(dt: str, total: F64, rule: Rule) -> Bits:
    """Bits of f32 (cut towards zero) or f16 (to nearest) of an exact sum, infinity or NaN."""
    total = total + 0.0
    if dt == "f16":
        return _round_half(total)
    values = (total.view(np.uint64) & _mask(rule)).view(np.float64)
    result: NDArray[np.float32] = values.astype(np.float32)
    small = np.abs(values) < 2.0**-126
    result[small] = narrow(values[small], "rz").view(np.float32)
    special = ~np.isfinite(total)
    if special.any():
        # The cut may have cleared the mantissa of a NaN.
        result[special] = total[special].astype(np.float32)
    return finish("f32", result)


def _round_half(total: F64) -> Bits:
    half = narrow_half("f16", odd_f32(total))
    half[half == 0x8000] = 0
    return half
