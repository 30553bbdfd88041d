"""Integer instructions on `Lanes`.

In: an opcode. Out: a function from the values of its sources to those of its destinations, or
None if the instruction computes nothing that an address is made of (floating point, matrix
instructions, packed arithmetic): its results are then any value.

Exact inputs give exact results. Otherwise each function gives an interval that holds every
possible result; where no short rule does, the interval is everything.

Source: PTX ISA 9.0, sections 9.7.1, 9.7.6 to 9.7.9.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from tessera.ir.arrays import Words
from tessera.ir.opcodes import is_type, type_bits
from tessera.ir.ptx import syntax as ptx
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.facts import selected_facts
from tessera.passes.lane_values.gpu_habits import habit_of, result_bits
from tessera.passes.lane_values.lane_bits import (
    by_value,
    extract_field,
    insert_field,
    lookup3,
    permute_bytes,
    shift_funnel,
    shift_left,
    shift_right,
)
from tessera.passes.lane_values.lanes import MASK, U64, Lanes
from tessera.passes.lane_values.predicates import PREDICATES, compare_function
from tessera.passes.lane_values.sloped_ops import (
    sign_extend,
    sloped_bits,
    sloped_division,
    sloped_extreme,
    sloped_high_product,
    zero_extend,
)
from tessera.passes.lane_values.symbols import granularity

Values = Sequence[Lanes]
Function = Callable[[Values], Lanes]
Binary = Callable[[Lanes, Lanes, int, bool], Lanes]

_INTEGERS = {f"{letter}{bits}" for letter in "bsu" for bits in (8, 16, 32, 64)}


@cache
def lane_function(opcode: ptx.Opcode) -> Function | None:
    """The function of an opcode with one destination and plain operands, or None."""
    function, habit = _isa_function(opcode), habit_of(opcode)
    if function is None or habit is None:
        return function
    bits = result_bits(opcode)

    def unless_it_differs(values: Values) -> Lanes:
        if habit(values, bits):
            return lanes.unknown(bits, lanes.reason(*values))
        return function(values)

    return unless_it_differs


def _isa_function(opcode: ptx.Opcode) -> Function | None:
    types = [m for m in opcode.modifiers if is_type(m)]
    if not types or opcode.name in {"cvt", "setp", "set"}:
        return _other_function(opcode, types)
    kind = types[-1]
    if kind == "pred":
        return PREDICATES.get(opcode.name)
    if opcode.name in {"mov", "selp"} and type_bits(kind) in MASK:
        return PREDICATES["mov"] if opcode.name == "mov" else _select(type_bits(kind))
    if kind not in _INTEGERS or {"cc", "sat"} & set(opcode.modifiers):
        return None
    if "relu" in opcode.modifiers and (opcode.name not in {"min", "max"} or kind != "s32"):
        return None
    return _integer_function(opcode, type_bits(kind), kind.startswith("s"))


def source_bits(opcode: ptx.Opcode, place: int, bits: int) -> int:
    """The width of a source; shift amounts, fields and selectors are 32-bit."""
    name = opcode.name
    if name in {"shl", "shr"} and place == 1:
        return 32
    if (name == "bfe" and place >= 1) or (name == "bfi" and place >= 2):
        return 32
    if name in {"shf", "prmt", "lop3"}:
        return 32
    if "wide" in opcode.modifiers and place == 2:
        return 2 * bits
    return bits


def _other_function(opcode: ptx.Opcode, types: list[str]) -> Function | None:
    if opcode.name == "cvt":
        return _conversion(opcode, types)
    if opcode.name in {"setp", "set"}:
        return compare_function(opcode, types)
    return None


def _select(bits: int) -> Function:
    def select(values: Values) -> Lanes:
        first, second, condition = values
        chosen = lanes.merge(condition.low().astype(np.bool_), first, second)
        if condition.span is None:
            return chosen
        either = lanes.join(first, second, bits)
        either.why = lanes.reason(condition, either)
        result = lanes.merge(condition.span.astype(np.bool_), either, chosen)
        result.facts = selected_facts(values)
        return result

    return select


def _conversion(opcode: ptx.Opcode, types: list[str]) -> Function | None:
    if len(types) != 2 or not set(types) <= _INTEGERS or "sat" in opcode.modifiers:
        return None
    target, source = types

    def convert(values: Values) -> Lanes:
        value = lanes.truncate(values[0], type_bits(source))
        return extend(extend(value, source), target, truncate=True)

    return convert


def extend(value: Lanes, type: str, *, truncate: bool = False) -> Lanes:
    """A value of a type as 64 bits; with `truncate`, its low bits as that type first."""
    bits = type_bits(type)
    if truncate:
        value = lanes.truncate(value, bits)
    return sign_extend(value, bits) if type[0] == "s" else zero_extend(value, bits)


# --- integer arithmetic --------------------------------------------------------------------


def _integer_function(opcode: ptx.Opcode, bits: int, signed: bool) -> Function | None:
    name, modifiers = opcode.name, opcode.modifiers
    if name in {"mul", "mad"}:
        return _product(name == "mad", modifiers, bits, signed)
    if name in {"min", "max"}:
        rectified = (lanes.scalar(0),) if "relu" in modifiers else ()
        return lambda v: _rectified(_extreme(v, bits, signed, name == "max"), rectified, bits)
    simple = _SIMPLE.get(name)
    if simple is not None:
        return lambda v: simple(v, bits)
    binary = _BINARY.get(name)
    if binary is not None:
        return lambda v: binary(v[0], v[1], bits, signed)
    if name in {"bfe", "bfi"}:
        field = extract_field if name == "bfe" else insert_field
        return lambda v: field(v, bits, signed)
    if name == "shf":
        return lambda v: shift_funnel(v, "l" in modifiers, "wrap" in modifiers)
    if name == "prmt" and modifiers == ("b32",):
        return permute_bytes
    if name == "lop3" and modifiers == ("b32",):
        return lookup3
    if name in {"popc", "clz", "brev", "bfind"}:
        return lambda v: by_value(v[0], name, bits, signed, "shiftamt" in modifiers)
    return None


def _product(
    accumulates: bool, modifiers: tuple[str, ...], bits: int, signed: bool
) -> Function | None:
    part = next((m for m in modifiers if m in {"lo", "hi", "wide"}), "lo")
    width = 2 * bits if part == "wide" else bits
    if part == "wide" and bits > 32:
        return None

    def product(values: Values) -> Lanes:
        a, b = values[0], values[1]
        if part == "wide":
            grow = sign_extend if signed else zero_extend
            result = lanes.mul(grow(a, bits), grow(b, bits), 64)
            result = lanes.truncate(result, width)
        elif part == "hi":
            result = _high_product(a, b, bits, signed)
        else:
            result = lanes.mul(a, b, bits)
        return lanes.add(result, values[2], width) if accumulates else result

    return product


def _high_product(a: Lanes, b: Lanes, bits: int, signed: bool) -> Lanes:
    if a.slopes or b.slopes:
        return sloped_high_product(a, b, bits, signed=signed)
    if a.span is not None or b.span is not None:
        if bits <= 32 and not signed:
            wide = lanes.mul(zero_extend(a, bits), zero_extend(b, bits), 64)
            return shift_right(wide, lanes.scalar(bits), 64, signed=False)
        return lanes.unknown(bits, lanes.reason(a, b))
    if bits <= 32:
        grow = sign_extend if signed else zero_extend
        return Lanes(((grow(a, bits).low() * grow(b, bits).low()) >> U64(bits)) & U64(MASK[bits]))
    # The 128-bit product from four products of 32-bit halves, carries included.
    low, half = U64(0xFFFFFFFF), U64(32)
    a0, a1, b0, b1 = a.low() & low, a.low() >> half, b.low() & low, b.low() >> half
    middle = a1 * b0 + ((a0 * b0) >> half)
    cross = a0 * b1 + (middle & low)
    high = a1 * b1 + (middle >> half) + (cross >> half)
    if signed:
        top = U64(63)
        high = (
            high
            - np.where(a.low() >> top, b.low(), U64(0))
            - np.where(b.low() >> top, a.low(), U64(0))
        )
    return Lanes(high)


def _extreme(values: Values, bits: int, signed: bool, largest: bool) -> Lanes:
    if len(values) == 2 and any(value.slopes for value in values):
        return sloped_extreme(values[0], values[1], bits, signed=signed, largest=largest)
    bounds = lanes.biased_bounds if signed else lanes.unsigned_bounds
    pick = np.maximum if largest else np.minimum
    low, high = bounds(values[0], bits)
    for value in values[1:]:
        other_low, other_high = bounds(value, bits)
        low, high = pick(low, other_low), pick(high, other_high)
    rebuild = lanes.from_biased if signed else lanes.from_bounds
    return rebuild(low, high, bits, lanes.reason(*values))


def _rectified(value: Lanes, floor: Values, bits: int) -> Lanes:
    """With `.relu`, nothing below 0."""
    return _extreme((value, floor[0]), bits, signed=True, largest=True) if floor else value


def _absolute(values: Values, bits: int) -> Lanes:
    """Of exact numbers; the others are a habit (`gpu_habits`)."""
    value = values[0]
    negative = value.low() > U64(MASK[bits] >> 1)
    return Lanes(np.where(negative, U64(0) - value.low(), value.low()) & U64(MASK[bits]))


_SIMPLE: dict[str, Callable[[Values, int], Lanes]] = {
    "abs": _absolute,
    "neg": lambda values, bits: lanes.negate(values[0], bits),
    "not": lambda values, bits: lanes.sub(lanes.scalar(MASK[bits], bits), values[0], bits),
    "sad": lambda values, bits: lanes.unknown(bits, lanes.reason(*values)),
}


def _quotient(*, remainder: bool) -> Binary:
    """`div` or `rem`."""

    def quotient(a: Lanes, b: Lanes, bits: int, signed: bool) -> Lanes:
        if a.slopes or b.slopes:
            return sloped_division(a, b, bits, signed=signed, remainder=remainder)
        if signed and not _never_negative((a, b), bits):
            return _signed_quotient(a, b, bits, remainder=remainder)
        if b.span is not None:
            return lanes.unknown(bits, lanes.reason(a, b))
        low, high = lanes.unsigned_bounds(a, bits)
        divisor = np.maximum(b.low(), U64(1))
        first, last = low // divisor, high // divisor
        if remainder:
            same = first == last
            first = np.where(same, low % divisor, U64(0))
            last = np.where(same, high % divisor, divisor - U64(1))
        return _unless_zero(lanes.from_bounds(first, last, bits, a.why), b, bits)

    return quotient


def _never_negative(values: Values, bits: int) -> bool:
    top = U64(MASK[bits] >> 1)
    return all(bool((lanes.unsigned_bounds(v, bits)[1] <= top).all()) for v in values)


def _signed_quotient(a: Lanes, b: Lanes, bits: int, *, remainder: bool) -> Lanes:
    if a.span is not None or b.span is not None:
        return lanes.unknown(bits, lanes.reason(a, b))
    top = U64(MASK[bits] >> 1)
    a_negative, b_negative = a.low() > top, b.low() > top
    size = np.where(a_negative, U64(0) - a.low(), a.low()) & U64(MASK[bits])
    divisor = np.where(b_negative, U64(0) - b.low(), b.low()) & U64(MASK[bits])
    divisor = np.maximum(divisor, U64(1))
    if remainder:
        result, flip = size % divisor, a_negative
    else:
        result, flip = size // divisor, a_negative ^ b_negative
    signed = np.where(flip, U64(0) - result, result) & U64(MASK[bits])
    return _unless_zero(Lanes(signed), b, bits)


def _unless_zero(result: Lanes, divisor: Lanes, bits: int) -> Lanes:
    """Division by zero gives a value that the machine chooses."""
    zero = divisor.low() == U64(0)
    if not zero.any():
        return result
    return lanes.merge(zero, lanes.unknown(bits, result.why), result)


def _bitwise(name: str, exact: Callable[[Words, Words], Words], bounded: Binary) -> Binary:
    """`and`, `or` or `xor`: `exact` on numbers, `bounded` where one of them is an interval."""

    def function(a: Lanes, b: Lanes, bits: int, signed: bool) -> Lanes:
        if a.slopes or b.slopes:
            return sloped_bits(name, a, b, bits)
        if a.span is None and b.span is None:
            return Lanes(exact(a.low(), b.low()))
        return bounded(a, b, bits, signed)

    return function


def _and(a: Lanes, b: Lanes, bits: int, signed: bool) -> Lanes:
    if a.span is None:
        a, b = b, a
    low, high = lanes.unsigned_bounds(a, bits)
    if b.span is None:
        mask = b.low()
        unmasked = ~mask & U64(MASK[bits])
        # A mask that clears low bits only is monotone; any other keeps at most its own bits.
        rounds_down = (unmasked & (unmasked + U64(1))) == U64(0)
        bottom = np.where(rounds_down, low & mask, U64(0))
        top = np.where(rounds_down, high & mask, np.minimum(high, mask))
        # Bits above the highest one in which the bounds differ are those of both.
        same = (_all_ones(low ^ high) & mask) == U64(0)
        bottom, top = np.where(same, low & mask, bottom), np.where(same, low & mask, top)
        return lanes.from_bounds(bottom, top, bits, a.why)
    top = np.minimum(high, lanes.unsigned_bounds(b, bits)[1])
    return lanes.from_bounds(np.zeros_like(top), top, bits, lanes.reason(a, b))


def _or(a: Lanes, b: Lanes, bits: int, signed: bool) -> Lanes:
    alow, ahigh = lanes.unsigned_bounds(a, bits)
    blow, bhigh = lanes.unsigned_bounds(b, bits)
    if any(
        value.form is not None
        and bool(value.form.where.all())
        and int(high.max()) < granularity(value.form)
        for value, high in ((a, bhigh), (b, ahigh))
    ):
        # No bit is set in both.
        return lanes.add(a, b, bits)
    return lanes.from_bounds(
        np.maximum(alow, blow), _all_ones(ahigh | bhigh), bits, lanes.reason(a, b)
    )


def _xor(a: Lanes, b: Lanes, bits: int, signed: bool) -> Lanes:
    top = _all_ones(lanes.unsigned_bounds(a, bits)[1] | lanes.unsigned_bounds(b, bits)[1])
    return lanes.from_bounds(np.zeros_like(top), top, bits, lanes.reason(a, b))


def _all_ones(values: Words) -> Words:
    """The least 2**k - 1 that is not smaller."""
    for shift in (1, 2, 4, 8, 16, 32):
        values = values | (values >> U64(shift))
    return values


_BINARY: dict[str, Binary] = {
    "add": lambda a, b, bits, signed: lanes.add(a, b, bits),
    "sub": lambda a, b, bits, signed: lanes.sub(a, b, bits),
    "div": _quotient(remainder=False),
    "rem": _quotient(remainder=True),
    "and": _bitwise("and", np.bitwise_and, _and),
    "or": _bitwise("or", np.bitwise_or, _or),
    "xor": _bitwise("xor", np.bitwise_xor, _xor),
    "shl": shift_left,
    "shr": shift_right,
}
