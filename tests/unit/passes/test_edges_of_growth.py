"""Values that grow with digits and rounds: what is followed, what is taken apart, and the last
numbers that are counted with."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.passes.lane_values.digits import Digit, RoundDigit, RoundLimit, Split
from tessera.passes.lane_values.lanes import (
    MASK,
    U64,
    Lanes,
    scalar,
)
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
    number,
)
from tests.helpers.lane_cases import DIGIT, grown, parts, row, splits


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
