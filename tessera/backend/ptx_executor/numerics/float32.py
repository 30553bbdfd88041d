"""f32 arithmetic, correctly rounded in every mode.

Rounding to nearest without `.ftz` is NumPy's float32 arithmetic. `fma` and the directed modes go
through float64, in which products of f32 are exact and sums are rounded to odd.

Source: PTX ISA, floating-point instructions.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tessera.backend.ptx_executor.numerics.bits import BLOCK, Bits, Operand, bits
from tessera.backend.ptx_executor.numerics.formats import finish, flush
from tessera.backend.ptx_executor.numerics.rounding import F64, check_mode, narrow, odd_sum

F32 = NDArray[np.float32]
Operands = tuple[F32, F32, F32]

_SHIFT = np.int64(35)
_TIE = np.int64(-(2**63))
# Twice the bits of the smallest normal, minus one. (Zero minus one wraps around to a larger value.)
_SUBNORMAL = np.uint32(0x00FFFFFF)


def load(a: Operand, ftz: bool) -> F32:
    """The values of an operand; with `ftz`, subnormals are flushed."""
    raw = bits(32, a)
    return (flush("f32", raw) if ftz else raw).view(np.float32)


def store(raw: Bits, ftz: bool, sat: bool) -> Bits:
    """Apply the modifiers of a result: `.ftz`, then `.sat` to [+0.0, 1.0] with NaN to +0.0."""
    if ftz:
        raw = flush("f32", raw)
    return saturate(raw) if sat else raw


def saturate(raw: Bits) -> Bits:
    """Clamp f32 bits to [+0.0, 1.0]; NaN and everything negative become +0.0."""
    values = raw.view(np.float32)
    clamped = np.minimum(np.fmax(values, np.float32(0)), np.float32(1))
    # fmax may keep -0.0; adding +0.0 makes it positive.
    clamped += np.float32(0)
    return clamped.view(np.uint32)


OPERATIONS: dict[str, np.ufunc] = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


def arithmetic(op: str, a: Operand, b: Operand, rounding: str, ftz: bool, sat: bool) -> Bits:
    """a + b, a - b or a * b."""
    x, y = load(a, ftz), load(b, ftz)
    if rounding == "rn":
        return store(finish("f32", OPERATIONS[op](x, y)), ftz, sat)
    left, right = x.astype(np.float64), y.astype(np.float64)
    if op == "mul":
        return store(narrow(left * right, rounding), ftz, sat)
    return store(_rounded_sum(left, right if op == "add" else -right, rounding), ftz, sat)


def _rounded_sum(x: F64, y: F64, rounding: str) -> Bits:
    """x + y in a directed mode; an exact zero of opposite signs is -0.0 when rounding down."""
    check_mode(rounding)
    total = odd_sum(x, y)
    result = narrow(total, rounding)
    if rounding != "rm":
        return result
    cancelled = (total == 0) & (np.signbit(x) != np.signbit(y))
    return np.where(cancelled, np.uint32(0x80000000), result)


def fma(a: Operand, b: Operand, c: Operand, rounding: str, ftz: bool, sat: bool) -> Bits:
    """a * b + c with one rounding."""
    x, y, z = load(a, ftz), load(b, ftz), load(c, ftz)
    if rounding == "rn":
        return store(fused(x, y, z, _round_fused, np.dtype(np.uint32)), ftz, sat)
    product = x.astype(np.float64) * y.astype(np.float64)
    return store(_rounded_sum(product, z.astype(np.float64), rounding), ftz, sat)


# --- a * b + c in float64 ------------------------------------------------------------------


def fused(
    x: F32,
    y: F32,
    z: F32,
    finish: Callable[[F64, F64, Operands], Bits],
    dtype: np.dtype[np.unsignedinteger],
) -> Bits:
    """Concatenate `finish(total, scratch, operands)` over blocks of lanes, in reused memory.

    The product of two f32 (or shorter) values is exact in float64; the sum is rounded once.
    `finish` rounds it to the destination and corrects lanes where two roundings could differ from
    one.
    """
    shape = np.broadcast_shapes(x.shape, y.shape, z.shape)
    flat = [
        part.reshape(-1) if part.size == 1 else np.broadcast_to(part, shape).reshape(-1)
        for part in (x, y, z)
    ]
    count = math.prod(shape)
    result = np.empty(count, dtype)
    size = min(count, BLOCK)
    total, scratch = np.empty(size), np.empty(size)
    for start in range(0, count, BLOCK):
        stop = min(start + BLOCK, count)
        a, b, c = (part if part.size == 1 else part[start:stop] for part in flat)
        p, q = total[: stop - start], scratch[: stop - start]
        np.copyto(p, a)
        np.copyto(q, b)
        np.multiply(p, q, out=p)
        np.copyto(q, c)
        np.add(p, q, out=p)
        result[start:stop] = finish(p, q, (a, b, c))
    return result.reshape(shape)


def exact_sum(operands: Operands, where: NDArray[np.intp], shape: tuple[int, ...]) -> F64:
    """The odd-rounded sum of some lanes of a block."""
    x, y, z = (np.broadcast_to(part, shape)[where].astype(np.float64) for part in operands)
    return odd_sum(x * y, z)


def _round_fused(total: F64, scratch: F64, operands: Operands) -> Bits:
    """Round the float64 sum; only lanes with a tie or a subnormal need a second step.

    Rounding twice is wrong only if the first rounding lands exactly between two f32 values, whose
    spacing differs for subnormals.
    """
    result: F32 = total.astype(np.float32)
    # Shifting left leaves the 29 bits that f32 drops; a tie is the most negative integer.
    low = scratch.view(np.int64)
    np.left_shift(total.view(np.int64), _SHIFT, out=low)
    magnitude = result.view(np.uint32) << np.uint32(1)
    magnitude -= np.uint32(1)
    if low.min() == _TIE or magnitude.min() < _SUBNORMAL:
        where = np.flatnonzero((low == _TIE) | (magnitude < _SUBNORMAL))
        result[where] = exact_sum(operands, where, total.shape).astype(np.float32)
    return finish("f32", result)


def div(a: Operand, b: Operand, rounding: str, ftz: bool) -> Bits:
    """a / b. A quotient of f32 values is never so close to a tie that float64 rounds it to one."""
    x, y = load(a, ftz), load(b, ftz)
    if rounding == "rn":
        return store(finish("f32", x / y), ftz, False)
    return store(narrow(x.astype(np.float64) / y.astype(np.float64), rounding), ftz, False)


def sqrt(a: Operand, rounding: str, ftz: bool) -> Bits:
    """The square root; -0.0 keeps its sign."""
    x = load(a, ftz)
    if rounding == "rn":
        return store(finish("f32", np.sqrt(x)), ftz, False)
    return store(narrow(np.sqrt(x.astype(np.float64)), rounding), ftz, False)


def rcp(a: Operand, rounding: str, ftz: bool) -> Bits:
    """1 / a."""
    return div(0x3F800000, a, rounding, ftz)
