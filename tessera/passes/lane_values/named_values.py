"""Instructions on values with names (`symbols`): operands with what is known of them, results with
names of their own, and values that are kept apart by the sign of a number.

In: an opcode and the values of its sources. Out: operands, or results.

A result that is an interval, and no sum of symbols, gets a symbol; the same instruction on the same
numbers gets the same one. Where all numbers are small and not negative, the width of the
instruction makes no difference. A result of which all values are multiples of a power of two is
that number times its symbol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tessera.ir.opcodes import is_type, type_bits
from tessera.ir.ptx import syntax as ptx
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lanes import MASK, NUMBER, U64, BySign, Lanes
from tessera.passes.lane_values.masks import ALL
from tessera.passes.lane_values.narrowing import narrowed
from tessera.passes.lane_values.symbols import (
    Assumptions,
    Bounds,
    DataSymbol,
    PredicateFacts,
    SumBound,
    SymbolForm,
    all_of,
    granularity,
    joined,
    number,
    only_where,
)

Results = tuple[Lanes, ...]
# These look at numbers and keep no anchor, so they may be given intervals of any length.
_LOOK = frozenset({"and", "bfe", "div", "max", "min", "rem", "setp", "shr"})
_EITHER_ORDER = frozenset({"and", "max", "min", "or", "xor"})
_SMALL = 1 << 31
_MOST_NUMBERS = 1 << 12
_COARSEST = 1 << 20


def told_operands(
    assumed: Assumptions, opcode: ptx.Opcode, values: Sequence[Lanes]
) -> Sequence[Lanes]:
    """The operands with all that is known of them in this instruction."""
    types = [m for m in opcode.modifiers if is_type(m)]
    if opcode.name in _LOOK and types:
        bits = min(64, type_bits(types[0]))
        return [narrowed(v, bits, wide=True) if v.kind == NUMBER else v for v in values]
    if opcode.name != "selp" or values[2].facts is None:
        return values
    chosen = list(values)
    for place, told in enumerate(values[2].facts):
        mark = len(assumed.trail)
        assumed.assume(told, ALL)
        chosen[place] = narrowed(values[place], type_bits(types[0]))
        assumed.undo(mark)
    return chosen


def named(
    assumed: Assumptions, opcode: ptx.Opcode, values: Sequence[Lanes], result: Lanes, bits: int
) -> Lanes:
    """A result of `bits` bits with a symbol for what is unknown in it."""
    if result.kind != NUMBER or result.slopes or result.choice:
        return result
    assert result.span is not None
    if bits < 8 or bool((result.span >= U64(MASK[bits] >> (bits == 64))).any()):
        return result
    key = _key(assumed, opcode, values, result, bits)
    form = assumed.names.get(key)
    if form is None:
        step = _granularity(opcode.name, values)
        step = step if not (result.start & U64(step - 1)).any() else 1
        high = (result.span // U64(step)).view(np.int64)
        symbol = assumed.fresh(np.zeros((1, 1), dtype=np.int64), high)
        form = SymbolForm(result.start, ((symbol, step),))
        if key is not None:
            assumed.name(key, form)
    copy = lanes.copied(result)
    copy.form = form
    return copy


def _key(
    assumed: Assumptions, opcode: ptx.Opcode, values: Sequence[Lanes], result: Lanes, bits: int
) -> object | None:
    """What is equal for instructions that compute the same number; None if that is not known."""
    parts = [_value_key(value) for value in values]
    if any(part is None for part in parts):
        return None
    if opcode.name in _EITHER_ORDER:
        parts.sort(key=repr)
    small = all(_is_small(value) for value in (*values, result))
    types = tuple(m for m in opcode.modifiers if is_type(m))
    others = tuple(m for m in opcode.modifiers if not is_type(m))
    width = None if small and opcode.name in {"and", "max", "min"} else (types, bits)
    return (opcode.name, others, width, assumed.case, *parts)


def _is_small(value: Lanes) -> bool:
    return (
        int((value.start + lanes.spans(value)).max()) < _SMALL and int(value.start.max()) < _SMALL
    )


def _value_key(value: Lanes) -> object | None:
    if value.slopes or value.kind or value.options or value.choice or value.size > _MOST_NUMBERS:
        return None
    if value.span is None:
        return (value.start.shape, value.start.tobytes(), ())
    form = value.form
    if form is None or not form.where.all():
        return None
    terms = tuple((symbol.number, factor) for symbol, factor in form.terms)
    return (form.at.shape, form.at.tobytes(), terms)


def _granularity(name: str, values: Sequence[Lanes]) -> int:
    """A power of two that every result is a multiple of."""
    operands = values[:2]
    each = [_of_value(value) for value in operands]
    match name:
        case "min" | "max" | "selp" | "or" | "xor":
            return min(each)
        case "and":
            return max(each)
        case "mul":
            return min(each[0] * each[1], _COARSEST)
    return 1


def _of_value(value: Lanes) -> int:
    form = lanes.form_of(value)
    if form is None or value.slopes or value.kind or not form.where.all():
        return 1
    return granularity(form)


def loaded_number(assumed: Assumptions, value: Lanes, bits: int, *, is_shared: bool) -> Lanes:
    """A number from memory, of which nothing is known but its type; apart by its sign where it may
    be any number of its width."""
    assert value.span is not None
    result = lanes.copied(value)
    if int(value.span.max()) < MASK[bits]:
        high = value.span.view(np.int64)
        symbol = assumed.fresh(np.zeros((1, 1), dtype=np.int64), high, is_shared=is_shared)
        result.form = SymbolForm(value.start, ((symbol, 1),))
        return result
    half = 1 << (bits - 1)
    sides: list[Lanes] = []
    pair: list[DataSymbol] = []
    for low, high_end in ((-half, -1), (0, half - 1)):
        symbol = assumed.fresh(number(low), number(high_end), is_shared=is_shared)
        symbol.is_case = True
        side = lanes.copied(value)
        side.form = SymbolForm(np.zeros((1, 1), dtype=U64), ((symbol, 1),))
        sides.append(narrowed(side, bits))
        pair.append(symbol)
    result.signs = BySign((pair[0], pair[1]), *sides)
    return result


# --- by sign -------------------------------------------------------------------------------


def by_sign(
    assumed: Assumptions, evaluate: Callable[[Sequence[Lanes]], Results], values: Sequence[Lanes]
) -> Results:
    """The results of an instruction, apart for the sign of the number that some were computed from.

    Facts about symbols that are of one case only hold in any case: in the other one they are about
    nothing.
    """
    key = next(value.signs.key for value in values if value.signs is not None)
    whole = evaluate([_without(value) for value in values])
    outer = assumed.case
    sides: list[Results] = []
    for negative in (True, False):
        given = [
            (value.signs.negative if negative else value.signs.other)
            if value.signs is not None and value.signs.key is key
            else value
            for value in values
        ]
        assumed.case = (outer, key, negative)
        sides.append(evaluate([_without(value) for value in given]))
    assumed.case = outer
    return tuple(
        _both_signs(key, *results) for results in zip(whole, sides[0], sides[1], strict=True)
    )


def _without(value: Lanes) -> Lanes:
    if value.signs is None:
        return value
    copy = lanes.copied(value)
    copy.signs = None
    return copy


def _both_signs(
    key: tuple[DataSymbol, DataSymbol], whole: Lanes, negative: Lanes, other: Lanes
) -> Lanes:
    if whole.span is None or whole.options:
        return whole
    if all(s.form is None and s.facts is None and s.span is not None for s in (negative, other)):
        return whole
    result = lanes.copied(whole)
    result.signs = BySign(key, negative, other)
    told = (_told(key[0], negative), _told(key[1], other))
    sides = [
        all_of((*_of_case(first), *_of_case(second), *joined(first, second)))
        for first, second in zip(*told, strict=True)
    ]
    result.facts = PredicateFacts(*sides) if any(sides) else None
    return result


def _told(symbol: DataSymbol, side: Lanes) -> PredicateFacts:
    """What a value tells if it is not 0, and if it is 0, in the case of one sign: where it is
    neither, it is not the case."""
    known = side.facts or PredicateFacts()
    if side.span is not None or side.slopes:
        return known
    never = SumBound(((symbol, 1),), number(1), number(0))
    return PredicateFacts(
        (*known.true, *only_where([never], side.start == U64(0))),
        (*known.false, *only_where([never], side.start != U64(0))),
    )


def _of_case(bounds: Bounds) -> Bounds:
    return tuple(b for b in bounds if any(symbol.is_case for symbol, _ in b.terms))
