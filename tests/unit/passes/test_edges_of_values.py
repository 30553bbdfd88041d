"""Rules on values at the edges of their numbers: the last one below a limit and the limit, values
that are and that are not of the form that a rule is for."""

from __future__ import annotations

import operator as operators
from itertools import product
from typing import Any

import numpy as np
import pytest

from tessera.ir.ptx import syntax as ptx
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.digits import Digit, RoundDigit, RoundLimit, Split
from tessera.passes.lane_values.facts import selected_facts
from tessera.passes.lane_values.lane_bits import extract_field, insert_field
from tessera.passes.lane_values.lane_kinds import result_kind
from tessera.passes.lane_values.lane_ops import _extreme, lane_function
from tessera.passes.lane_values.lanes import (
    FAR,
    HARD,
    LOW,
    MASK,
    MOST_OPTIONS,
    NUMBER,
    POINTER,
    U64,
    WIDE,
    ElectedValue,
    Lanes,
    scalar,
    sloped,
)
from tessera.passes.lane_values.masks import ALL, NONE, Mask
from tessera.passes.lane_values.named_values import _value_key, named
from tessera.passes.lane_values.narrowing import narrowed, unnamed
from tessera.passes.lane_values.sloped_ops import (
    _interval_quotient,
    sloped_bits,
    sloped_division,
    sloped_moved_product,
    sloped_right_shift,
)
from tessera.passes.lane_values.slopes import (
    WholeForm,
    _cut,
    apart,
    check,
    form,
    nonnegative,
)
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
from tessera.passes.lane_values.warps import choose, elected_sides, merged_choice, source_threads

DIGIT = Digit(0, 1, 5)


def opcode(text: str) -> ptx.Opcode:
    name, *modifiers = text.split(".")
    return ptx.Opcode(name, tuple(modifiers))


def open_(low: int, span: int) -> Lanes:
    return Lanes(scalar(low).low(), scalar(span).low(), 7)


def grown(start: int, slope: int, bits: int = 32, digit: Digit = DIGIT) -> Lanes:
    return sloped(scalar(start, bits), {digit: np.array([[slope]], dtype=U64)}, bits)


def row(*numbers: int, kind: Any = U64) -> np.ndarray:
    return np.array([numbers], dtype=kind)


def parts(value: Lanes) -> tuple[int, int]:
    """The least number, and the unknown part."""
    return value.start.item(), lanes.spans(value).item()


def splits(compute: Any) -> Split | None:
    try:
        compute()
    except Split as split:
        return split
    return None


# --- numbers, intervals, options -----------------------------------------------------------


def test_intervals_of_nearly_all_numbers() -> None:
    assert parts(lanes.between(1, MASK[32], 32, 0)) == (1, MASK[32] - 1)
    assert parts(lanes.between(-1, MASK[32] - 1, 32, 0)) == (0, MASK[32])
    for span, kept in ((WIDE - 1, WIDE - 1), (WIDE, MASK[64]), (WIDE + 1, MASK[64])):
        settled = lanes.settle(row(8), row(span), 64, 0)
        assert parts(settled) == (8 if kept < WIDE else 0, kept)
        assert parts(lanes.settle(row(8), row(span), 64, 0, keeps_anchor=True)) == (8, kept)


@pytest.mark.parametrize(
    ("distance", "near"), [(FAR - 1, True), (FAR, False), (-FAR, True), (-FAR - 1, False)]
)
def test_numbers_that_are_too_far_apart_for_one_object(distance: int, near: bool) -> None:
    assert lanes.is_near(scalar(1 << 50), scalar((1 << 50) + distance)) is near
    hull = lanes.hull(scalar(1 << 50), scalar((1 << 50) + distance), 64)
    lower = (1 << 50) + min(distance, 0)
    assert parts(hull) == (lower if near else 0, MASK[64])


def apart_by(count: int, kind: int = NUMBER) -> list[Lanes]:
    return [lanes.of_kind(scalar((place + 1) << 44), kind) for place in range(count)]


@pytest.mark.parametrize("count", [2, MOST_OPTIONS, MOST_OPTIONS + 1])
def test_one_of_several_values(count: int) -> None:
    found = lanes.one_of(apart_by(count), 3)
    few = count <= MOST_OPTIONS
    assert len(found.options) == (count if few else 0)
    assert (found.kind, found.why) == (NUMBER if few else HARD, 3)
    assert parts(found) == (0, MASK[64])
    pointers = lanes.one_of(apart_by(count, POINTER), 3)
    assert pointers.kind == (POINTER if few else HARD)
    moved = lanes.negate(pointers, 64)
    assert [o.start.item() for o in moved.options] == (
        [(-(place + 1) << 44) & MASK[64] for place in range(count)] if few else []
    )


def test_options_in_one_object_are_put_together() -> None:
    for kinds in ((POINTER, LOW), (LOW, POINTER), (NUMBER, NUMBER)):
        near = [lanes.of_kind(scalar(n), kind) for n, kind in zip((64, 96), kinds, strict=True)]
        found = lanes.one_of([*near, scalar(1 << 45)], 0)
        assert [parts(o) for o in found.options] == [(64, 32), (1 << 45, 0)]
        assert found.options[0].kind == max(kinds)
        alone = lanes.one_of(near, 0)
        assert (alone.options, parts(alone), alone.kind) == ((), (64, 32), max(kinds))


def test_values_of_which_one_grows_are_not_joined() -> None:
    """Nor if the other one may be anything."""
    for other in (scalar(8), lanes.of_kind(lanes.unknown(64, 0), HARD), grown(8, 5, 64)):
        for pair in ((other, grown(8, 4, 64)), (grown(8, 4, 64), other)):
            split = splits(lambda p=pair: lanes.join(*p, 64))
            assert split is not None
            assert split.digits == (DIGIT,)
    assert lanes.join(grown(8, 4, 64), grown(16, 4, 64), 64).slopes == {DIGIT: row(4)}


def test_values_with_other_options_are_not_equal() -> None:
    two, three = (lanes.one_of(apart_by(count), 0) for count in (2, 3))
    assert lanes.equal(two, lanes.one_of(apart_by(2), 1))
    assert not lanes.equal(two, three)
    assert not lanes.equal(three, two)
    assert not lanes.equal(two, lanes.one_of(apart_by(3)[1:], 0))


@pytest.mark.parametrize(
    ("mask", "kind"),
    [
        (255, NUMBER), (256, LOW), (MASK[64], POINTER), (MASK[64] - 255, POINTER),
        (MASK[64] - 256, LOW), (MASK[64] - 257, LOW), (1 << 63, LOW),
    ],
)  # fmt: skip
def test_what_a_mask_leaves_of_an_address(mask: int, kind: int) -> None:
    address = lanes.of_kind(scalar(1 << 20), POINTER)
    assert result_kind(opcode("and.b64"), [address, scalar(mask)], 64) == kind
    assert result_kind(opcode("and.b64"), [scalar(mask), address], 64) == kind


# --- instructions --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["u8", "s8"])
@pytest.mark.parametrize("operator", ["lt", "le", "gt", "ge", "eq", "ne"])
def test_comparisons_of_all_short_intervals(operator: str, kind: str) -> None:
    """Known where all numbers agree, and only there; between both ends of the type as well."""
    function = lane_function(opcode(f"setp.{operator}.{kind}"))
    assert function is not None
    holds = getattr(operators, operator)
    top = 128 if kind == "s8" else 0
    ends = [(low, span) for low in (0, 1, 2, 127, 128, 254) for span in (0, 1, 2)]
    for a, b in product(ends, ends):
        if max(sum(a), sum(b)) > 255:
            continue
        found = function([scalar(low) if span == 0 else open_(low, span) for low, span in (a, b)])
        pairs = product(*(range(low, low + span + 1) for low, span in (a, b)))
        answers = {int(holds(x ^ top, y ^ top)) for x, y in pairs}
        known = (answers.pop(), 0) if len(answers) == 1 else (0, 1)
        if top and any(low < 128 <= low + span for low, span in (a, b)):
            continue  # as signed numbers these are any
        assert parts(found) == known, (a, b)


@pytest.mark.parametrize(
    "text",
    [
        "mul.wide.u64", "mul.wide.s64", "mad.wide.u64", "setp.lt", "setp.lo.f32", "setp.ltu.f32",
        "setp.num.f32", "min.relu.u32", "max.relu.s16", "add.relu.s32", "cvt.u32",
        "cvt.u32.u32.u32",
        "cvt.sat.u8.s32", "cvt.rn.f32.u32", "add.cc.u32",
    ],
)  # fmt: skip
def test_forms_of_which_nothing_is_computed(text: str) -> None:
    assert lane_function(opcode(text)) is None


@pytest.mark.parametrize(
    ("text", "numbers", "result"),
    [
        # An ordered comparison with something that is no number does not hold.
        ("setp.ne.f32", (0x7FC00000, 0x3F800000), 0),
        ("setp.ne.f32", (0x3F800000, 0x7FC00000), 0),
        ("setp.ne.f32", (0x3F800000, 0x40000000), 1),
        ("setp.eq.f32", (0x00000001, 0x80000000), 0),
        ("setp.eq.ftz.f32", (0x00000001, 0x80000000), 1),
        ("setp.eq.ftz.f32", (0x007FFFFF, 0), 1),
        ("setp.eq.ftz.f32", (0x00800000, 0), 0),
        ("min.relu.s32", (5, MASK[32] - 3), 0),
        ("max.relu.s32", (MASK[32] - 1, MASK[32] - 3), 0),
        ("abs.s32", (MASK[32] - 4,), 5),
        ("bfi.b32", (0xFF, 0x12345678, 32, 8), 0x12345678),
        ("bfi.b32", (0xFF, 0x12345678, 31, 8), 0x92345678),
        ("bfe.s64", (1 << 63, 0, 64), 1 << 63),
        ("bfe.s64", (5, 0, 64), 5),
        ("prmt.b32", (0x44332211, 0x88776655, 0x7351), 0x88446622),
    ],
)
def test_results_at_the_edges(text: str, numbers: tuple[int, ...], result: int) -> None:
    function = lane_function(opcode(text))
    assert function is not None
    assert parts(function([scalar(n) for n in numbers])) == (result, 0)


def test_the_absolute_value_of_an_interval_is_not_known() -> None:
    function = lane_function(opcode("abs.s32"))
    assert function is not None
    assert parts(function([open_(MASK[32], 2)])) == (0, MASK[32])


def test_a_field_of_a_value_that_grows() -> None:
    """Fields past the top: copies of the sign, which is taken apart, or nothing."""
    for value in (grown(5, 1, 64), grown(1 << 63, 1, 64)):
        for first in (63, 64, 65, 200):
            given = [value, scalar(first), scalar(3)]
            assert splits(lambda g=given: extract_field(g, 64, signed=True)) is not None
            if first > 63:
                plain = extract_field(given, 64, signed=False)
                assert (parts(plain), plain.slopes) == ((0, 0), {})
    top = extract_field([grown(1 << 31, 1), scalar(31), scalar(3)], 32, signed=False)
    assert (parts(top), top.slopes) == ((1, 0), {})
    kept = insert_field([scalar(7), scalar(9), scalar(255), scalar(1)], 64, signed=False)
    assert parts(kept) == (9, 0)


def test_the_least_of_three_is_taken_apart() -> None:
    for place in range(3):
        values = [scalar(5), scalar(6), scalar(7)]
        values[place] = grown(1, 1)
        with pytest.raises(Split):
            _extreme(values, 32, signed=False, largest=False)


def test_what_a_selected_number_tells() -> None:
    """If it is not 0; a number that grows from 0 may be another one."""
    symbol = Assumptions().fresh(number(0), number(9))
    told = tuple(SumBound(((symbol, 1),), number(n), number(n)) for n in (3, 4))
    condition = lanes.between(0, 1, 1, 0)
    condition.facts = PredicateFacts(told[:1], told[1:])
    for zero, tells in ((scalar(0), True), (scalar(1), False), (grown(0, 4), False),
                        (open_(0, 1), False), (Lanes(row(0, 4)), False)):  # fmt: skip
        first = selected_facts([scalar(5), zero, condition])
        second = selected_facts([zero, scalar(5), condition])
        assert first == (PredicateFacts(told[:1]) if tells else None)
        assert second == (PredicateFacts(told[1:]) if tells else None)


# --- names ---------------------------------------------------------------------------------


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


# --- values that grow ----------------------------------------------------------------------


@pytest.mark.parametrize("amount", [0, 1, 60, 61, 62, 63])
def test_shifts_by_nearly_all_bits(amount: int) -> None:
    value = grown(1 << 60, 1 << 58, 64, Digit(0, 1, 2))
    wanted = splits(lambda: sloped_right_shift(value, scalar(amount), 64, signed=False))
    assert (wanted is not None) is (amount > 61)
    narrow = grown(1 << 30, 1 << 30, 32, Digit(0, 1, 2))
    wanted = splits(lambda: sloped_right_shift(narrow, scalar(amount), 32, signed=False))
    assert (wanted is not None) is (amount >= 32)


@pytest.mark.parametrize(
    ("divisor", "known"), [(0, False), (1, True), ((1 << 62) - 1, True), (1 << 62, False)]
)
def test_divisors_of_values_that_grow(divisor: int, known: bool) -> None:
    value, by = grown(100, 7, 64), scalar(divisor)
    for remainder in (False, True):
        wanted = splits(
            lambda r=remainder: sloped_division(value, by, 64, signed=False, remainder=r)
        )
        assert (wanted is None) is known


def test_quotients_of_intervals_need_multiples() -> None:
    for slope, divisor, base in ((8, 8, None), (4, 8, 2), (2, 8, 4), (1, 8, 0), (3, 6, 2)):
        numbers = WholeForm(number(5), {DIGIT: number(slope)}, number(9))
        wanted = splits(lambda n=numbers, d=divisor: _interval_quotient(n, d))
        assert (None if wanted is None else wanted.base) == base
    found = _interval_quotient(WholeForm(number(5), {DIGIT: number(16)}, number(9)), 8)
    assert (found.start, found.slopes, found.span) == (number(0), {DIGIT: number(2)}, number(1))


def test_masks_of_all_bits_and_of_the_highest() -> None:
    """All bits are kept of what wraps around; one high bit is not followed, a lower one is."""
    value = grown(MASK[32] - 1, 1)
    for mask in (MASK[32],):
        found = sloped_bits("and", value, scalar(mask), 32)
        assert (parts(found)[0], found.slopes[DIGIT].item()) == (MASK[32] - 1, 1)
    wide = grown(3, 1 << 59, 64)
    assert splits(lambda: sloped_bits("and", wide, scalar(1 << 62), 64)) is not None
    found = sloped_bits("and", grown(3, 1, 64), scalar(1 << 61), 64)
    assert (parts(found), found.slopes) == ((0, 0), {})


@pytest.mark.parametrize(
    ("start", "factor", "amount", "known"),
    [
        ((1 << 31) + 8, (1 << 31) + 1, 30, None),  # a divisor of 2**62
        ((1 << 31) + 8, (1 << 31) + 1, 29, None),  # the product is too large
        ((1 << 29) + 8, (1 << 31) + 1, 28, 1),
        (12345, 4060407085, 31, 0),
    ],
)
def test_products_that_are_too_large_to_count_with(
    start: int, factor: int, amount: int, known: int | None
) -> None:
    """Two numbers side by side with one quotient."""
    value, by = grown(start, 1, 32, Digit(0, 1, 2)), scalar(factor)
    if known is None:
        with pytest.raises(Split):
            sloped_moved_product(value, by, amount, 32, signed=(False, False))
        return
    found = sloped_moved_product(value, by, amount, 32, signed=(False, False))
    assert (parts(found), found.slopes) == ((known, 0), {})


@pytest.mark.parametrize(("by", "amount"), [(7, 2), (3, 1), (12, 3), (1000, 9)])
def test_divisions_by_multiplying_are_divisions(by: int, amount: int) -> None:
    """Of a grid whose numbers are multiples, and some more; a half alone would be no sum."""
    factor = scalar(-(-(1 << (32 + amount)) // by))
    for more in (0, by - 1):
        value = grown(2 * by + more, by, 32, Digit(0, 1, 500))
        found = sloped_moved_product(value, factor, amount, 32, signed=(False, False))
        assert (parts(found), [s.item() for s in found.slopes.values()]) == ((2, 0), [1])


def test_whole_numbers_of_a_value_that_fills_its_type() -> None:
    """From 128 on, 256 numbers are those from -128 to 127; one more is not."""
    for count, fits in ((255, True), (256, True), (257, False)):
        digit = Digit(0, 1, count)
        value = Lanes(row(128))
        value.slopes = {digit: row(1)}
        wanted = splits(lambda v=value, d=digit: form(v, 8, (d,), signed=True))
        assert (wanted is None) is fits
        if fits:
            assert form(value, 8, (digit,), signed=True).start.item() == -128


def test_whole_numbers_of_threads_of_which_some_may_be_anything() -> None:
    """And of intervals past the end of the type, which are anything, too."""
    value = Lanes(row(5, 9, 250, 126), row(255, 2, 6, 1), 0)
    for signed, starts, reaches in (
        (False, [0, 9, 0, 126], [255, 2, 255, 1]), (True, [-128, 9, -6, 126], [255, 2, 6, 1])
    ):  # fmt: skip
        found = form(value, 8, (DIGIT,), signed=signed)
        assert (found.start.tolist(), found.span.tolist()) == ([starts], [reaches])


def test_numbers_that_are_too_large_to_count_with() -> None:
    for start, slope, span, fits in (
        ((1 << 62) - 1, 0, 0, True), (1 << 62, 0, 0, False), (-(1 << 62), 0, 0, False),
        (1 - (1 << 62), 0, 0, True), ((1 << 62) - 5, 1, 0, True), ((1 << 62) - 4, 1, 0, False),
        ((1 << 62) - 5, -1, 0, True), ((1 << 62) - 4, -1, 0, False),
        ((1 << 62) - 9, 1, 4, True), ((1 << 62) - 8, 1, 4, False),
    ):  # fmt: skip
        wanted = splits(
            lambda s=start, m=slope, p=span: check(number(s), {DIGIT: number(m)}, (), number(p))
        )
        assert (wanted is None) is fits, (start, slope, span)


def test_the_outer_round_is_limited_first() -> None:
    """What holds for all rounds of one is asked without the other, which comes later."""
    outer, inner = (RoundDigit(np.array([[3]])) for _ in "ab")
    for slopes, digit, rounds in (
        ({outer: number(3), inner: number(1)}, outer, 1),
        ({outer: number(0), inner: number(1)}, inner, 2),
        ({inner: number(1), outer: number(3)}, inner, 2),
    ):
        with pytest.raises(RoundLimit) as wanted:
            nonnegative(number(-2), slopes)
        assert (wanted.value.digit, wanted.value.counts.item()) == (digit, rounds)


def test_cuts_where_some_threads_do_not_grow() -> None:
    """0, 1, 2, ... 9 less 4, and a thread that stays below 0."""
    digit = Digit(0, 1, 10)
    slopes = {digit: row(0, 1, kind=np.int64)}
    cut = _cut(number(-4), slopes, np.array([[True, True]]))
    assert (cut.digits, cut.cuts) == ((digit,), ())
    assert _cut(number(-4), slopes, np.array([[False, True]])).cuts == (4,)
    slopes = {digit: row(0, -1, kind=np.int64)}
    assert _cut(number(4), slopes, np.array([[False, True]])).cuts == (5,)


def test_ctas_with_the_most_rounds_stand_for_all() -> None:
    """Three CTAs with 3, 6 and 4 rounds that start alike; rounds are another digit then."""
    last = np.array([2, 5, 3]).reshape(3, 1, 1)
    digit = RoundDigit(last)
    mask = np.ones((3, 1, 4), dtype=np.bool_)
    for start, threads in ((row(8), 1), (row(8, 8, 9, 9), 4)):
        ((here, slopes),) = apart({digit: row(4)}, mask, start)
        assert (here.shape, bool(here.all())) == ((1, 1, threads), True)
        assert [(d.count, s.item()) for d, s in slopes.items()] == [(6, 4)]
    mask[1] = False
    ((here, slopes),) = apart({digit: row(4)}, mask, row(8))
    assert [d.count for d in slopes] == [4]


@pytest.mark.parametrize("count", [1023, 1024, 1025])
def test_threads_that_grow_in_many_ways(count: int) -> None:
    slopes, mask = {DIGIT: np.arange(1, count + 1, dtype=U64)[None, :]}, np.ones((1, count), bool)
    wanted = splits(lambda: list(apart(slopes, mask, row(0))))
    assert (wanted is None) is (count <= 1024)


def test_one_round_is_no_digit_and_its_threads_are_kept() -> None:
    digit = RoundDigit(np.zeros((2, 1), dtype=np.int64))
    mask = np.array([[True, False], [True, False]])
    ((here, slopes),) = apart({digit: row(4)}, mask, row(8, 9))
    assert (here.tolist(), slopes) == ([[True, False]], {})


# --- warps and elections -------------------------------------------------------------------


def test_threads_that_are_read_are_known_where_all_is() -> None:
    plain, wide = scalar(3), Lanes(row(*range(32)))
    modes = ("sync", "idx", "b32")
    rows = Lanes(np.array([[3], [4]], dtype=U64))
    for lane, clamp, everybody, known in (
        (plain, scalar(31), True, True), (wide, scalar(31), True, True),
        (plain, scalar(31), False, False), (open_(0, 3), scalar(31), True, False),
        (plain, open_(15, 16), True, False), (plain, Lanes(row(*[31, 15] * 16)), True, False),
        (rows, scalar(31), True, False), (rows, Lanes(row(31, 15)), True, False),
    ):  # fmt: skip
        found = source_threads(lane, clamp, modes, everybody, 32)
        assert (found is not None) is known
        if known and found is not None:
            assert found.tolist() == ([3] * 32 if lane is plain else [*range(32)])


def elected(election: int, hit: int = 1, miss: int = 0) -> Lanes:
    value = lanes.unknown(1, 0)
    value.choice = ElectedValue(election, row(hit), row(miss), ALL)
    return value


def test_results_that_depend_on_one_election_only() -> None:
    def sum_of(values: Any) -> tuple[Lanes, ...]:
        return (lanes.add(values[0], values[1], 32),)

    for values, known in (
        ([elected(4), scalar(3)], True), ([elected(4), elected(4)], True),
        ([elected(4), elected(5)], False), ([scalar(2), scalar(3)], False),
    ):  # fmt: skip
        (result,) = choose(sum_of, values)
        assert (result.choice is not None) is known
    (result,) = choose(sum_of, [elected(4), scalar(3)])
    assert result.choice is not None
    assert [n.item() for n in result.choice[1:3]] == [4, 3]

    def anything(values: Any) -> tuple[Lanes, ...]:
        return (lanes.unknown(32, 9),)

    (result,) = choose(anything, [elected(4), scalar(3)])
    assert result.choice is None
    assert merged_choice(ALL, scalar(3), elected(4)) is None


def test_threads_that_are_here_if_they_are_elected() -> None:
    """The threads of an election within the same one are those that it elected, within none those
    that are surely here; another election says nothing."""
    texts = {"may": "xxxx", "sure": "x...", "elected": ".xx.", "chosen": "xx.x"}
    flags = {name: np.array([[c == "x" for c in text]]) for name, text in texts.items()}
    for election, known in ((-1, "x..."), (4, ".xx."), (5, None)):
        mask = Mask(flags["may"], flags["may"], flags["sure"])
        mask.with_election(election, flags["elected"])
        before = None if known is None else np.array([[c == "x" for c in known]])
        passed = mask.narrow(elected(4))
        assert passed is not None
        assert passed.election == (-1 if before is None else 4)
        assert before is None or (passed.elected == before).all()
        hit, miss = elected_sides(mask, flags["chosen"], elected(4), is_side=False)
        assert (hit[0], miss[0]) == ((-1, -1) if before is None else (4, 4))
        if before is not None:
            assert (hit[1] == before & flags["chosen"]).all()
            assert not miss[1].any()
            _, miss = elected_sides(mask, flags["chosen"], elected(4, 0, 1), is_side=False)
            assert (miss[1] == before & flags["chosen"]).all()
        for taken, is_side in ((elected(4), True), (lanes.unknown(1, 0), False)):
            sides = elected_sides(mask, flags["chosen"], taken, is_side=is_side)
            assert sides == ((-1, NONE), (-1, NONE))
