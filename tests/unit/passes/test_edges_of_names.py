"""Sums of names, and what is known of them: at the limits, and of parts of sums."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lanes import (
    LOW,
    MASK,
    POINTER,
    WIDE,
    ElectedValue,
    Lanes,
    scalar,
)
from tessera.passes.lane_values.masks import ALL
from tessera.passes.lane_values.named_values import _value_key, named
from tessera.passes.lane_values.narrowing import narrowed, unnamed
from tessera.passes.lane_values.symbols import (
    Assumptions,
    PredicateFacts,
    SumBound,
    SymbolForm,
    extended,
    low_bits,
    number,
    plus,
    times,
    total,
)
from tests.helpers.lane_cases import apart_by, grown, opcode, open_, parts, row


def symbolic(low: int, high: int, *, factor: int = 1, at: int = 0) -> Lanes:
    value = lanes.unknown(64, 0)
    symbol = Assumptions().fresh(number(low), number(high))
    value.form = SymbolForm(row(at), ((symbol, factor),))
    return value


@pytest.mark.parametrize(
    ("span", "short"), [(WIDE - 1, True), (WIDE, False), (WIDE + 1, False), (0, True)]
)
def test_intervals_of_names_are_no_longer_than_an_object(span: int, short: bool) -> None:
    value = symbolic(0, span)
    assert parts(narrowed(value, 64)) == ((0, span) if short else parts(value))
    assert parts(narrowed(value, 64, wide=True)) == (0, span)


def test_a_value_without_its_names() -> None:
    told = PredicateFacts((SumBound((), number(0), number(0)),))
    sides = lanes.BySign((None, None), scalar(1), scalar(2))  # type: ignore[arg-type]
    assert unnamed(scalar(3)) is not None
    for name, given in (("form", symbolic(0, 5).form), ("facts", told), ("signs", sides)):
        value = open_(0, 9)
        setattr(value, name, given)
        bare = unnamed(value)
        assert (bare.form, bare.facts, bare.signs) == (None, None, None)
        assert parts(bare) == (0, 9)


def test_values_that_have_no_key() -> None:
    several = lanes.one_of(apart_by(2), 0)
    several.form = symbolic(0, 5).form
    chosen = symbolic(0, 5)
    chosen.choice = ElectedValue(1, row(1), row(0), ALL)
    pointer = lanes.of_kind(scalar(5), POINTER)
    for value in (several, chosen, pointer, grown(3, 4), open_(0, 5), Lanes(row(*range(4097)))):
        assert _value_key(value) is None
    for value in (symbolic(0, 5), scalar(7), Lanes(row(*range(4096)))):
        assert _value_key(value) is not None
    for result in (several, chosen, lanes.of_kind(open_(0, 5), LOW)):
        assert named(Assumptions(), opcode("add.u64"), [result], result, 64) is result
    assert named(Assumptions(), opcode("add.u64"), [open_(0, 5)], open_(0, 5), 64).form is not None


def test_sums_of_at_most_four_names() -> None:
    assumed = Assumptions()
    symbols = [assumed.fresh(number(0), number(3)) for _ in range(5)]
    form_ = SymbolForm(row(0), ((symbols[0], 1),))
    for count, symbol in enumerate(symbols[1:], 2):
        made = plus(form_, SymbolForm(row(0), ((symbol, 1),)), 32)
        assert (made is not None) is (count <= 4)
        form_ = made or form_


@pytest.mark.parametrize("name", ["and", "max", "min", "or", "xor", "add", "sub"])
def test_one_number_has_one_name_in_either_order(name: str) -> None:
    assumed, result = Assumptions(), open_(0, 7)
    values = [open_(0, 9), open_(0, 9)]
    for value in values:
        value.form = SymbolForm(row(0), ((assumed.fresh(number(0), number(9)), 1),))
    first, second, again = (
        named(assumed, opcode(f"{name}.u32"), given, result, 32).form
        for given in (values, values[::-1], values)
    )
    assert first is again
    assert (first is second) is (name not in ("add", "sub"))


@pytest.mark.parametrize(
    ("certain", "low", "high"),
    [
        (None, [3, 0], [5, 9]), ([False, False], [3, 0], [5, 9]), ([True, False], [3], [5]),
        ([True, True], [3], [5]),
    ],
)  # fmt: skip
def test_what_a_thread_that_is_surely_here_knows_holds_for_all(
    certain: list[bool] | None, low: list[int], high: list[int]
) -> None:
    """Of a number that all threads have; else it holds for those that may be here."""
    assumed = Assumptions()
    symbol = assumed.fresh(number(0), number(9), is_shared=True)
    here = None if certain is None else np.array([certain])
    told = SumBound(((symbol, 1),), number(3), number(5))
    assumed.assume((told,), np.array([[True, False]]), here)
    assert [symbol.low.tolist(), symbol.high.tolist()] == [[low], [high]]
    assumed.undo(0)
    assert [symbol.low.tolist(), symbol.high.tolist()] == [[[0]], [[9]]]


@pytest.mark.parametrize(
    ("start", "span", "small"),
    [
        (0, (1 << 31) - 1, True), (0, 1 << 31, False), ((1 << 31) - 1, 0, True),
        (1 << 31, 0, False), (MASK[64], 2, False), (5, 1, True),
    ],
)  # fmt: skip
def test_small_numbers_have_one_name_in_all_widths(start: int, span: int, small: bool) -> None:
    """Of 2**31 the signed minimum of 32 bits is another number."""
    assumed, result = Assumptions(), open_(0, 7)
    value = open_(start, span) if span else scalar(start)
    if span:
        value.form = SymbolForm(row(start), ((assumed.fresh(number(0), number(span)), 1),))
    other = open_(0, 9)
    other.form = SymbolForm(row(0), ((assumed.fresh(number(0), number(9)), 1),))
    found = [
        named(assumed, opcode(text), [value, other], result, bits).form
        for text, bits in (("min.s32", 32), ("min.u64", 64), ("max.u64", 64))
    ]
    assert (found[0] is found[1]) is small
    assert found[1] is not found[2]


def test_a_sum_without_names_is_no_form() -> None:
    symbol = Assumptions().fresh(number(0), number(9))
    form_ = SymbolForm(row(5), ((symbol, 1 << 8),))
    for bits, factor in ((8, None), (16, 256)):
        for made in (
            low_bits(form_, bits), times(form_, 1, bits), plus(form_, SymbolForm(row(0), ()), bits)
        ):  # fmt: skip
            assert (None if made is None else made.terms) == (factor and ((symbol, factor),))
    assert times(form_, 0, 32) is None
    assert plus(form_, SymbolForm(row(0), ((symbol, -256),)), 32) is None


def test_bounds_of_a_part_of_a_sum() -> None:
    """2x + y is from 0 to 5; it says nothing of 3x + y, x + y and y."""
    assumed = Assumptions()
    x, y, z = (assumed.fresh(number(0), number(100)) for _ in range(3))
    bound = SumBound(((x, 2), (y, 1)), number(0), number(5))
    x.sums = y.sums = (bound,)
    for terms, most in (
        (((x, 2), (y, 1)), 5), (((x, 4), (y, 2)), 10), (((x, 2), (y, 1), (z, 1)), 105),
        (((x, 3), (y, 1)), 400), (((x, 1), (y, 1)), 200), (((y, 1), (z, 1)), 200),
        (((x, 2), (z, 1)), 300), (((x, 4), (y, 1)), 500), (((x, 2), (y, 2)), 400),
    ):  # fmt: skip
        ends = total(terms)
        assert ends is not None
        assert [end.item() for end in ends] == [0, most], terms
    ends = total(((x, -2), (y, -1)))
    assert ends is not None
    assert [end.item() for end in ends] == [-5, 0]


def test_sums_that_are_too_large_to_count_with() -> None:
    large = Assumptions().fresh(number(0), number(1 << 40))
    for factor, known in ((1 << 20, True), (1 << 24, False)):
        form_ = SymbolForm(row(0), ((large, factor),))
        assert (total(form_.terms) is not None) is known
        assert extended(form_, 32, is_signed=False) is None
    small = Assumptions().fresh(number(-3), number(3))
    found = extended(SymbolForm(row(0), ((small, 1),)), 32, is_signed=True)
    assert found is not None
    assert found.at.item() == 0
    assert extended(SymbolForm(row(0), ((small, 1),)), 32, is_signed=False) is None
