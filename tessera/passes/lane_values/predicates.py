"""Predicates over `Lanes`: true, false, or unknown per thread; comparisons make them.

In: values, or predicates. Out: what comparisons and boolean instructions make of them. Predicates
have no slopes.

Source: PTX ISA 9.0, sections 9.7.6 (set, setp) and table 16 (comparison operators).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tessera.ir.arrays import Flags, Floats, Words
from tessera.ir.opcodes import type_bits
from tessera.ir.opcodes.comparisons import COMPARISON_SIGNS, UNSIGNED_NAMES
from tessera.ir.ptx import syntax as ptx
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.facts import combined_facts, comparison_facts, inverted
from tessera.passes.lane_values.lanes import MASK, U64, Lanes
from tessera.passes.lane_values.sloped_ops import sloped_comparison

Values = Sequence[Lanes]


def _both(values: Values) -> Lanes:
    a, b = values
    low = a.low() & b.low()
    high = (a.low() + lanes.spans(a)) & (b.low() + lanes.spans(b))
    result = lanes.settle(low, high - low, 1, lanes.reason(a, b))
    result.facts = combined_facts("and", values)
    return result


def _either(values: Values) -> Lanes:
    a, b = values
    low = a.low() | b.low()
    high = (a.low() + lanes.spans(a)) | (b.low() + lanes.spans(b))
    result = lanes.settle(low, high - low, 1, lanes.reason(a, b))
    result.facts = combined_facts("or", values)
    return result


def _differ(values: Values) -> Lanes:
    a, b = values
    open_ = lanes.spans(a) | lanes.spans(b)
    return lanes.settle((a.low() ^ b.low()) & ~open_, open_, 1, lanes.reason(a, b))


def invert(value: Lanes) -> Lanes:
    """The negation of a predicate."""
    span = lanes.spans(value)
    result = lanes.settle((U64(1) - value.low()) & ~span, span, 1, value.why)
    result.facts = inverted(value.facts)
    if value.signs is not None:
        key, negative, other = value.signs
        result.signs = lanes.BySign(key, invert(negative), invert(other))
    return result


PREDICATES: dict[str, Callable[[Values], Lanes]] = {
    "mov": lambda values: values[0],
    "and": _both,
    "or": _either,
    "xor": _differ,
    "not": lambda values: invert(values[0]),
}


Pair = tuple[Words, Words]

_FLOATS = {"f32": np.float32, "f64": np.float64}
_FLOAT_COMPARISONS: dict[str, Callable[[Floats, Floats], Flags]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def compare_function(opcode: ptx.Opcode, types: list[str]) -> Callable[[Values], Lanes] | None:
    """The function of `setp` or `set`, without its boolean operator; None if unknown."""
    name = next((m for m in opcode.modifiers if m in COMPARISON_SIGNS), None)
    if name is None or not types:
        return None
    kind = types[-1]
    test = _float_test(opcode, name, kind) if kind in _FLOATS else _integer_test(name, kind)
    if test is None or opcode.name == "setp":
        return test
    if types[0] not in {"u32", "s32"} or {"and", "or", "xor"} & set(opcode.modifiers):
        return None
    return lambda values: lanes.mul(test(values), lanes.scalar(MASK[32]), 32)


def _integer_test(name: str, kind: str) -> Callable[[Values], Lanes] | None:
    if kind[0] not in "bsu" or not kind[1:].isdigit():
        return None
    bits, signed = type_bits(kind), kind[0] == "s"
    operator = UNSIGNED_NAMES.get(name, name)
    return lambda values: compare(operator, values[0], values[1], bits, signed)


def compare(operator: str, a: Lanes, b: Lanes, bits: int, signed: bool) -> Lanes:
    """A predicate; unknown where the bounds do not decide it."""
    if a.slopes or b.slopes:
        return sloped_comparison(operator, a, b, bits, signed=signed)
    bounds = lanes.biased_bounds if signed else lanes.unsigned_bounds
    left, right = bounds(a, bits), bounds(b, bits)
    true, false = _decide(operator, left, right)
    decided = true.astype(U64)
    if a.span is None and b.span is None:
        return Lanes(decided)
    result = lanes.settle(decided, (~(true | false)).astype(U64), 1, lanes.reason(a, b))
    result.facts = comparison_facts(operator, a, b, bits, signed=signed)
    return result


def _decide(operator: str, a: Pair, b: Pair) -> tuple[Flags, Flags]:
    """The threads for which the comparison must hold, and those for which it cannot hold."""
    match operator:
        case "lt":
            return a[1] < b[0], a[0] >= b[1]
        case "le":
            return a[1] <= b[0], a[0] > b[1]
        case "gt":
            return a[0] > b[1], a[1] <= b[0]
        case "ge":
            return a[0] >= b[1], a[1] < b[0]
    same = (a[0] == a[1]) & (b[0] == b[1]) & (a[0] == b[0])
    apart = (a[1] < b[0]) | (b[1] < a[0])
    return (same, apart) if operator == "eq" else (apart, same)


def _float_test(opcode: ptx.Opcode, name: str, kind: str) -> Callable[[Values], Lanes] | None:
    """Ordered comparisons of exact values: an argument against a constant, mostly."""
    test = _FLOAT_COMPARISONS.get(name)
    if test is None:
        return None
    flush = "ftz" in opcode.modifiers

    def compare_floats(values: Values) -> Lanes:
        a, b = values[0], values[1]
        if a.span is not None or b.span is not None:
            return lanes.between(0, 1, 1, lanes.reason(a, b))
        left, right = _as_float(a.low(), kind, flush), _as_float(b.low(), kind, flush)
        holds = test(left, right) & ~(np.isnan(left) | np.isnan(right))
        return Lanes(holds.astype(U64))

    return compare_floats


def _as_float(values: Words, kind: str, flush: bool) -> Floats:
    if kind == "f64":
        return values.view(np.float64)
    floats = values.astype(np.uint32).view(np.float32)
    tiny = np.float32(2.0**-126)
    return np.where(np.abs(floats) < tiny, np.float32(0), floats) if flush else floats
