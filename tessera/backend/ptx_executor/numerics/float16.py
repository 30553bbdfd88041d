"""f16 and bf16 arithmetic, to nearest even (the only mode PTX has for them).

f32 is precise enough for sums of f16 and bf16: it has at least twice their precision plus two bits,
so rounding twice equals rounding once. Products are exact in f32, except bf16 products that are
subnormal in f32. `fma` needs float64; for bf16, whose range is that of f32, it needs an odd-rounded
sum.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tessera.backend.ptx_executor.numerics.bits import Bits, Operand, bits
from tessera.backend.ptx_executor.numerics.float32 import (
    F32,
    OPERATIONS,
    Operands,
    exact_sum,
    fused,
)
from tessera.backend.ptx_executor.numerics.formats import FORMATS, flush, narrow_half, widen
from tessera.backend.ptx_executor.numerics.rounding import F64, odd_f32

_SMALLEST_NORMAL = np.float32(2.0**-126)


def load(t: str, a: Operand, ftz: bool) -> F32:
    """The values of an operand as float32."""
    raw = bits(16, a)
    return widen(t, flush(t, raw) if ftz else raw)


def store(t: str, values: F32, ftz: bool, sat: bool, relu: bool = False) -> Bits:
    """Round to the format, then apply `.ftz`, `.sat`, `.relu`."""
    return modify(t, narrow_half(t, values.view(np.uint32)), ftz, sat, relu)


def modify(t: str, raw: Bits, ftz: bool, sat: bool, relu: bool = False) -> Bits:
    """`.ftz`; `.sat` to [+0.0, 1.0] with NaN to +0.0; `.relu`: negatives to +0.0, NaN stays."""
    if ftz:
        raw = flush(t, raw)
    if not (sat or relu):
        return raw
    form = FORMATS[t]
    nan = (raw & np.uint16(0x7FFF)) > form.infinity
    negative = (raw >> np.uint16(15)) != 0
    if sat:
        raw = np.where(negative | nan, np.uint16(0), np.minimum(raw, np.uint16(form.one)))
    return np.where(negative & ~nan, np.uint16(0), raw)


def arithmetic(op: str, t: str, a: Operand, b: Operand, ftz: bool, sat: bool) -> Bits:
    """a + b, a - b or a * b."""
    x, y = load(t, a, ftz), load(t, b, ftz)
    result = OPERATIONS[op](x, y)
    if op == "mul" and t == "bf16":
        tiny = (np.abs(result) < _SMALLEST_NORMAL) & (x != 0) & (y != 0)
        if tiny.any():
            result = odd_f32(x.astype(np.float64) * y).view(np.float32)
    return store(t, result, ftz, sat)


def fma(t: str, a: Operand, b: Operand, c: Operand, ftz: bool, sat: bool, relu: bool) -> Bits:
    """a * b + c with one rounding."""
    x, y, z = (load(t, value, ftz) for value in (a, b, c))
    raw = fused(x, y, z, _ROUND_FUSED[t], np.dtype(np.uint16))
    return modify(t, raw, ftz, sat, relu)


def _round_fused(t: str, total: F64, operands: Operands) -> Bits:
    """Round a float64 sum; only lanes that are ties or subnormal in f32 need a second step."""
    raw = total.astype(np.float32).view(np.uint32)
    cut = np.uint32(23 - FORMATS[t].mantissa)
    hard = (raw & np.uint32((1 << cut) - 1)) == np.uint32(1 << (cut - 1))
    magnitude = raw << np.uint32(1)
    magnitude -= np.uint32(1)
    limit = np.uint32(((128 - FORMATS[t].bias) << 24) - 1)
    if magnitude.min() < limit:
        hard |= magnitude < limit
    if hard.any():
        where = np.flatnonzero(hard)
        raw[where] = odd_f32(exact_sum(operands, where, total.shape))
    return narrow_half(t, raw)


_ROUND_FUSED: dict[str, Callable[[F64, F64, Operands], Bits]] = {
    "f16": lambda total, _, operands: _round_fused("f16", total, operands),
    "bf16": lambda total, _, operands: _round_fused("bf16", total, operands),
}
