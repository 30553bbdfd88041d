"""Rules on values at the edges of their numbers: the last one below a limit and the limit, values
that are and that are not of the form that a rule is for."""

from __future__ import annotations

import operator as operators
from itertools import product
from typing import Any

import numpy as np
import pytest

from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.digits import Split
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
)
from tessera.passes.lane_values.masks import ALL, NONE, Mask
from tessera.passes.lane_values.symbols import (
    Assumptions,
    PredicateFacts,
    SumBound,
    number,
)
from tessera.passes.lane_values.warps import choose, elected_sides, merged_choice, source_threads
from tests.helpers.lane_cases import DIGIT, apart_by, grown, opcode, open_, parts, row, splits


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


# --- instructions ---
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


# --- warps and elections ---
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
