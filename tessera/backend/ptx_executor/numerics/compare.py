"""Comparisons and selection: `setp`, `set`, `selp`, `slct`.

A comparison of floats is ordered (false if an operand is NaN) unless its name ends in `u`.

Source: PTX ISA, comparison and selection instructions.
"""

from __future__ import annotations

import numpy as np

from tessera.backend.ptx_executor.numerics.bits import (
    UNSIGNED,
    Bits,
    Operand,
    bits,
    halves,
    integer_type,
    join,
    predicate,
    select,
    signed,
    typed,
)
from tessera.backend.ptx_executor.numerics.formats import FORMATS, flush, widen
from tessera.ir.arrays import Flags, Floats

_ORDERED: dict[str, np.ufunc] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_UNSIGNED_ORDER = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
# The unordered forms are the negations of the opposite ordered ones.
_UNORDERED = {
    "ltu": np.greater_equal,
    "leu": np.greater,
    "gtu": np.less_equal,
    "geu": np.less,
}
PACKED = {"f16x2": "f16", "bf16x2": "bf16"}


def compare(op: str, t: str, a: Operand, b: Operand, *, ftz: bool = False) -> Flags:
    """Whether `a op b` holds, per lane."""
    if t in FORMATS:
        return _compare_floats(op, _values(t, a, ftz), _values(t, b, ftz))
    width, _ = integer_type(t)
    if op in _UNSIGNED_ORDER:
        op, t = _UNSIGNED_ORDER[op], f"u{width}"
    if op not in _ORDERED:
        raise NotImplementedError(f"comparison .{op}.{t} does not exist")
    result: Flags = _ORDERED[op](typed(t, a), typed(t, b))
    return result


def _values(t: str, a: Operand, ftz: bool) -> Floats:
    raw = bits(FORMATS[t].width, a)
    return widen(t, flush(t, raw) if ftz else raw)


def _compare_floats(op: str, x: Floats, y: Floats) -> Flags:
    if op == "ne":
        # NumPy's != is unordered, PTX's .ne is not.
        return (x < y) | (x > y)
    if op in _ORDERED:
        result: Flags = _ORDERED[op](x, y)
        return result
    if op == "neu":
        return np.not_equal(x, y)
    if op == "equ":
        return ~((x < y) | (x > y))
    if op in _UNORDERED:
        return np.logical_not(_UNORDERED[op](x, y))
    if op == "num":
        given: Flags = (x == x) & (y == y)
        return given
    if op == "nan":
        given = (x != x) | (y != y)
        return given
    raise NotImplementedError(f"comparison .{op} of floats does not exist")


def compare_x2(
    op: str, t: str, a: Operand, b: Operand, *, ftz: bool = False
) -> tuple[Flags, Flags]:
    """Comparison of the low and of the high halves of packed floats."""
    low, high = zip(halves(bits(32, a)), halves(bits(32, b)), strict=True)
    scalar = PACKED[t]
    return compare(op, scalar, *low, ftz=ftz), compare(op, scalar, *high, ftz=ftz)


def set_result(dt: str, p: Flags | bool) -> Bits:
    """What `set` writes for true: all ones for integers, 1.0 for floats."""
    truth = predicate(p)
    if dt in FORMATS:
        form = FORMATS[dt]
        return truth * UNSIGNED[form.width].type(form.one)
    dtype = UNSIGNED[integer_type(dt)[0]]
    return -truth.astype(dtype)


def set_result_x2(dt: str, low: Flags, high: Flags) -> Bits:
    """`set_result` for packed floats, or for the u16/s16 pairs of `set.u32.f16x2`."""
    scalar = PACKED.get(dt, dt)
    return join(bits(16, set_result(scalar, low)), bits(16, set_result(scalar, high)))


def selp(t: str, a: Operand, b: Operand, p: Flags | bool) -> Bits:
    """`selp`: a where p, else b."""
    width = FORMATS[t].width if t in FORMATS else integer_type(t)[0]
    return select(predicate(p), bits(width, a), bits(width, b))


def slct(t: str, ct: str, a: Operand, b: Operand, c: Operand, *, ftz: bool = False) -> Bits:
    """`slct`: a where c >= 0 (-0.0 counts, NaN does not), else b."""
    if ct == "f32":
        return selp(t, a, b, _values("f32", c, ftz) >= 0)
    if ct != "s32":
        raise NotImplementedError(f"slct selects by .s32 or .f32, not by .{ct}")
    return selp(t, a, b, signed(bits(32, c)) >= 0)
