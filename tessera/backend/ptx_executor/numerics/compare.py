"""Comparisons and selection: `setp`, `set`, `selp`, `slct`.

A comparison of floats is ordered (false if an operand is NaN) unless its name ends in `u`.

Source: PTX ISA, comparison and selection instructions.
"""

from __future__ import annotations

from collections.abc import Callable

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
PACKED = {"f16x2": "f16", "bf16x2": "bf16"}


def compare(op: str, t: str, a: Operand, b: Operand, *, ftz: bool = False) -> Flags:
    """Whether `a op b` holds, per lane."""
    if t in FORMATS:
        if op not in _OF_FLOATS:
            raise NotImplementedError(f"comparison .{op} of floats does not exist")
        return _OF_FLOATS[op](_values(t, a, ftz), _values(t, b, ftz))
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


def _differ(x: Floats, y: Floats) -> Flags:
    """PTX's ordered `.ne`; the != of NumPy is unordered."""
    return (x < y) | (x > y)


# The unordered forms are the negations of the opposite ordered ones.
_OF_FLOATS: dict[str, Callable[[Floats, Floats], Flags]] = {
    **_ORDERED,
    "ne": _differ,
    "neu": np.not_equal,
    "equ": lambda x, y: ~_differ(x, y),
    "ltu": lambda x, y: ~np.greater_equal(x, y),
    "leu": lambda x, y: ~np.greater(x, y),
    "gtu": lambda x, y: ~np.less_equal(x, y),
    "geu": lambda x, y: ~np.less(x, y),
    "num": lambda x, y: np.equal(x, x) & np.equal(y, y),
    "nan": lambda x, y: np.not_equal(x, x) | np.not_equal(y, y),
}


def compare_x2(
    op: str, t: str, a: Operand, b: Operand, *, ftz: bool = False
) -> tuple[Flags, Flags]:
    """Comparison of the low and of the high halves of packed floats."""
    low, high = zip(halves(bits(32, a)), halves(bits(32, b)), strict=True)
    scalar = PACKED[t]
    return compare(op, scalar, *low, ftz=ftz), compare(op, scalar, *high, ftz=ftz)


def set_result(dt: str, p: Flags | bool) -> Bits:
    """The value that `set` writes: for true, all ones (integers) or 1.0 (floats); else zero."""
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
