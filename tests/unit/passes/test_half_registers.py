"""Records of which registers are halves of one 64-bit value, one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera.frontend.ptx.read_ptx import parse_module
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.flatten import flatten
from tessera.passes.footprint.halves import _KEPT, Half, Halves, _anywhere, _from, _is, result_half
from tessera.passes.lane_values.digits import Digit
from tessera.passes.lane_values.lanes import (
    HARD,
    MASK,
    MIXED,
    NUMBER,
    POINTER,
    WIDE,
    ElectedValue,
    Lanes,
    one_of,
    scalar,
    sloped,
)
from tessera.passes.lane_values.lanes import LOW as LOW_BITS
from tests.helpers.excerpts import EVERYBODY, excerpt, lanes_of, told
from tests.helpers.pointer_cases import HEADER

ADDRESS = lanes_of(4096, span=7, kind=POINTER)
OTHER = lanes_of(8192, 8196, kind=POINTER)
LOW, HIGH = Half(ADDRESS, "%d1", 0), Half(ADDRESS, "%d1", 1)
UP = HIGH._replace(up=True)
LOW_UP = LOW._replace(up=True)


def instructions(lines: list[str]) -> tuple[ptx.Instruction, ...]:
    declared = ".reg .b64 %d<9>; .reg .b32 %r<9>; .reg .pred %c<3>;"
    text = f"{HEADER}.visible .entry k() {{ {declared} {' '.join(lines)} ret; }}"
    (function,) = parse_module(text).functions()
    return flatten(function).instructions


def test_which_instructions_have_to_do_with_halves() -> None:
    always, known = {"cvt", "and", "shr"}, {"mov", "shl", "bfi", "selp", "or", "xor", "add"}
    halves = Halves()
    for name in always | known | {"mul", "sub"}:
        assert halves.may_touch(ptx.Opcode(name, ())) == (name in always), name
    halves.note("%r1", None, LOW)
    halves.note("%r1", ADDRESS, None)
    assert not halves.registers
    halves.note("%r1", ADDRESS, LOW)
    for name in always | known | {"mul", "sub"}:
        assert halves.may_touch(ptx.Opcode(name, ())) == (name in always | known), name
    halves.moved["key",] = (), None
    halves.clear()
    assert not halves.registers
    assert not halves.moved


def test_a_register_is_a_half_until_it_is_written() -> None:
    halves, value = Halves(), lanes_of(1)
    halves.note("%r1", value, LOW)
    name = ptx.Name("%r1")
    assert halves.of(name, {"%r1": value}) is LOW
    assert halves.of(name, {"%r1": lanes_of(1)}) is None
    assert halves.of(name, {}) is None
    assert halves.of(ptx.Name("%r2"), {"%r2": value}) is None
    assert halves.of(ptx.Name("%r1", "x"), {"%r1": value}) is None
    assert halves.of(ptx.Not(name), {"%r1": value}) is None


@pytest.mark.parametrize("first", [None, LOW, HIGH, UP, LOW_UP])
@pytest.mark.parametrize("second", [None, LOW, HIGH, UP, LOW_UP])
@pytest.mark.parametrize("up", [False, True])
def test_two_halves_are_whole(first: Half | None, second: Half | None, up: bool) -> None:
    fits = {id(first), id(second)} == {id(LOW), id(UP if up else HIGH)}
    assert Halves().whole(first, second, up=up) is (ADDRESS if fits else None)


def test_halves_of_two_values_are_not_whole() -> None:
    alike = Half(lanes_of(4096, span=7, kind=POINTER), "%d1", 1)
    elsewhere = HIGH._replace(origin="%d2")
    for high in (alike, elsewhere):
        assert Halves().whole(LOW, high, up=False) is None
        assert Halves().whole(high, LOW, up=False) is None


def test_halves_that_other_threads_send() -> None:
    halves = Halves()
    half = Half(lanes_of(10, 20, 30), "%d1", 1)
    moved = halves.shuffled(half, np.array([2, 0, 0]), 3)
    assert moved is not None
    assert told(moved.whole) == ([30, 10, 10], None)
    assert (moved.origin, moved.place, moved.up) == ("%d1", 1, False)
    again = halves.shuffled(half._replace(place=0), np.array([2, 0, 0]), 3)
    assert again is not None
    assert again.whole is moved.whole  # so that both halves are those of one value
    other = halves.shuffled(half, np.array([2, 0, 1]), 3)
    assert other is not None
    assert told(other.whole) == ([30, 10, 20], None)
    anyone = halves.shuffled(half, None, 3)
    assert anyone is not None
    assert told(anyone.whole) == ([10], [20])
    assert halves.shuffled(half._replace(up=True), None, 3) is None
    assert halves.shuffled(None, None, 3) is None
    far = half._replace(whole=lanes_of(0, 1 << 39))
    assert halves.shuffled(far, None, 2) is None


def test_selected_halves() -> None:
    halves = Halves()
    first = Half(lanes_of(10, 20, kind=POINTER), "%d1", 0)
    second = Half(lanes_of(50, 60, kind=POINTER), "%d2", 0)
    chosen = lanes_of(1, 0)
    found = halves.selected(first, second, chosen)
    assert found is not None
    assert told(found.whole) == ([10, 60], None)
    assert (found.place, found.up) == (0, False)
    high = halves.selected(first._replace(place=1), second._replace(place=1), chosen)
    assert high is not None
    assert high.whole is found.whole
    assert (high.origin, high.place) == (found.origin, 1)
    for other in (
        halves.selected(second, first, chosen),
        halves.selected(first, second._replace(origin="%d3"), chosen),
        halves.selected(first, second, lanes_of(1, 0)),
    ):
        assert other is not None
        assert (other.whole, other.origin) != (found.whole, found.origin)
    either = halves.selected(first, second, lanes_of(1, 0, span=(0, 1)))
    assert either is not None
    assert told(either.whole) == ([10, 20], [0, 40])
    elected = lanes_of(0, span=1)
    elected.choice = ElectedValue(0, *[np.ones((1, 1), np.uint64)] * 2, np.ones((1, 1), np.bool_))
    for pair in (
        (None, second, chosen),
        (first, None, chosen),
        (first, second._replace(place=1), chosen),
        (first, second._replace(up=True), chosen),
        (first, second, elected),
    ):
        assert halves.selected(*pair) is None


def test_only_some_moved_values_are_kept() -> None:
    halves = Halves()
    for number in range(_KEPT):
        halves._keep((number,), (), None)
    assert len(halves.moved) == _KEPT == 64
    halves._keep((_KEPT,), (), ADDRESS)
    assert halves.moved == {(_KEPT,): ((), ADDRESS)}


OPEN = lanes_of(4096, span=7)  # an index that is not known
CLOSED = lanes_of(4096)
N32, M32 = lanes_of(32), lanes_of(MASK[32])
WHOLE = "whole"
RESULTS: list[tuple[str, list[Lanes], list[Half | None], Any]] = [
    # Moves of a half, in 32 and 64 bits.
    ("mov.b32 %r1, %r2;", [N32], [LOW], LOW),
    ("mov.u64 %d1, %d2;", [N32], [UP], UP),
    ("mov.pred %c1, %c2;", [N32], [LOW], None),
    ("cvt.u64.u32 %d1, %r2;", [N32], [HIGH], HIGH),
    ("cvt.s64.u32 %d1, %r2;", [N32], [HIGH], HIGH),
    ("cvt.u64.s32 %d1, %r2;", [N32], [HIGH], None),
    ("cvt.u64.u16 %d1, %r2;", [N32], [HIGH], None),
    ("cvt.u16.u32 %r1, %r2;", [N32], [HIGH], None),
    # The lower half of 64 bits: of a whole value, or of one that holds a half.
    ("cvt.u32.u64 %r1, %d2;", [ADDRESS], [None], Half(ADDRESS, "%d2", 0)),
    ("cvt.s32.s64 %r1, %d2;", [OPEN], [None], Half(OPEN, "%d2", 0)),
    ("cvt.u32.u64 %r1, %d2;", [OTHER], [None], Half(OTHER, "%d2", 0)),
    ("cvt.u32.u64 %r1, %d2;", [CLOSED], [None], None),
    ("cvt.u32.u64 %r1, %d2;", [OPEN], [HIGH], HIGH),
    ("cvt.u32.u64 %r1, %d2;", [OPEN], [UP], None),
    ("cvt.sat.u32.u64 %r1, %d2;", [OPEN], [None], None),
    ("cvt.rn.f32.u64 %r1, %d2;", [OPEN], [None], None),
    ("cvt.rni.u32.f64 %r1, %d2;", [OPEN], [None], None),
    ("cvt.u16.u64 %r1, %d2;", [OPEN], [None], None),
    ("and.b64 %d1, %d2, 4294967295;", [OPEN, M32], [None, None], Half(OPEN, "%d2", 0)),
    ("and.b64 %d1, %d2, 4294967294;", [OPEN, lanes_of(MASK[32] - 1)], [None, None], None),
    ("and.b64 %d1, %d2, %d3;", [OPEN, lanes_of(MASK[32], span=1)], [None, None], None),
    ("and.b32 %r1, %r2, %r3;", [OPEN, M32], [None, None], None),
    ("and.b64 %d1, 5, %d2;", [OPEN, M32], [None, None], None),
    # The upper half.
    ("shr.u64 %d1, %d2, 32;", [OPEN, N32], [None, None], Half(OPEN, "%d2", 1)),
    ("shr.b64 %d1, %d2, 32;", [ADDRESS, N32], [None, None], Half(ADDRESS, "%d2", 1)),
    ("shr.u64 %d1, %d2, 32;", [CLOSED, N32], [None, None], None),
    ("shr.s64 %d1, %d2, 32;", [OPEN, N32], [None, None], None),
    ("shr.u64 %d1, %d2, 31;", [OPEN, lanes_of(31)], [None, None], None),
    ("shr.u64 %d1, %d2, 32;", [OPEN, N32], [LOW, None], None),
    ("shr.u32 %r1, %r2, 32;", [OPEN, N32], [None, None], None),
    ("shl.b64 %d1, %d2, 32;", [OPEN, N32], [HIGH, None], UP),
    ("shl.b64 %d1, %d2, 32;", [OPEN, N32], [LOW, None], None),
    ("shl.b64 %d1, %d2, 32;", [OPEN, N32], [UP, None], None),
    ("shl.b64 %d1, %d2, 32;", [OPEN, N32], [None, None], None),
    ("shl.b64 %d1, %d2, 33;", [OPEN, lanes_of(33)], [HIGH, None], None),
    ("shl.b32 %r1, %r2, 32;", [OPEN, N32], [HIGH, None], None),
    # Chosen, and put together.
    ("selp.b32 %r1, %r2, %r3, %c1;", [N32, N32, lanes_of(1)], [LOW, LOW, None], "selected"),
    ("selp.b32 %r1, %r2, %r3, %c1;", [N32, N32, lanes_of(1)], [LOW, HIGH, None], None),
    ("selp.b64 %d1, %d2, %d3, %c1;", [N32, N32, lanes_of(1)], [LOW, LOW, None], None),
    ("bfi.b64 %d1, %d2, %d3, 32, 32;", [OPEN, OPEN, N32, N32], [HIGH, LOW, None, None], WHOLE),
    ("bfi.b64 %d1, %d2, %d3, 32, 32;", [OPEN, OPEN, N32, N32], [LOW, HIGH, None, None], None),
    ("bfi.b64 %d1, %d2, %d3, 32, 32;", [OPEN, OPEN, N32, N32], [None, LOW, None, None], None),
    ("bfi.b64 %d1, %d2, %d3, 31, 32;", [OPEN, OPEN, M32, N32], [HIGH, LOW, None, None], None),
    ("bfi.b64 %d1, %d2, %d3, 32, 31;", [OPEN, OPEN, N32, M32], [HIGH, LOW, None, None], None),
    ("bfi.b32 %r1, %r2, %r3, 32, 32;", [OPEN, OPEN, N32, N32], [HIGH, LOW, None, None], None),
    *(
        (f"{name} %d1, %d2, %d3;", [OPEN, OPEN], pair, result)
        for name in ("or.b64", "xor.b64", "add.s64", "add.u64")
        for pair, result in (([UP, LOW], WHOLE), ([LOW, UP], WHOLE), ([HIGH, LOW], None))
    ),
    ("or.b32 %r1, %r2, %r3;", [OPEN, OPEN], [UP, LOW], None),
    ("add.cc.u64 %d1, %d2, %d3;", [OPEN, OPEN], [UP, LOW], None),
    ("sub.u64 %d1, %d2, %d3;", [OPEN, OPEN], [UP, LOW], None),
]


def test_what_an_instruction_makes_of_halves() -> None:
    made = instructions([row[0] for row in RESULTS])
    for instruction, (text, values, halves, wanted) in zip(made, RESULTS, strict=False):
        found = result_half(instruction, values, halves, Halves())
        if wanted == "selected":
            assert isinstance(found, Half)
            assert told(found.whole) == told(ADDRESS)
        elif wanted == WHOLE:
            assert found is ADDRESS, text
        else:
            assert found == wanted, text
            assert type(found) is type(wanted), text


def test_one_number_of_all_threads() -> None:
    several = one_of([scalar(0), scalar(1 << 40)], -1)
    assert _is(lanes_of(32), 32)
    assert not _is(lanes_of(32), 31)
    assert not _is(lanes_of(32, 32), 32)
    assert not _is(lanes_of(32, span=0), 32)
    assert not _is(sloped(lanes_of(32), {Digit(0, 1, 2): np.array([[1]], np.uint64)}, 64), 32)
    assert not _is(several, 0)
    alone = lanes_of(32)
    alone.options = (alone,)
    assert not _is(alone, 32)


def slopes_of(value: Lanes) -> dict[int, Any]:
    return {digit.count: slope.tolist() for digit, slope in value.slopes.items()}


def test_the_value_of_another_thread() -> None:
    sources = np.array([1, 1, 0])
    assert told(_from(lanes_of(7, span=(1, 2, 3)), sources, 3)) == ([7, 7, 7], [2, 2, 1])
    rows = _from(lanes_of([1, 2, 3], [4, 5, 6]), sources, 3)
    assert told(rows) == ([[2, 2, 1], [5, 5, 4]], None)
    value = lanes_of(1, 2, 3, why=5, kind=HARD)
    value.slopes = {Digit(0, 1, 9): np.array([[10, 20, 30]], np.uint64)}
    value.options = (lanes_of(8, 9, 10), lanes_of(11, 12, 13))
    moved = _from(value, sources, 3)
    assert slopes_of(moved) == {9: [[20, 20, 10]]}
    assert [told(option)[0] for option in moved.options] == [[9, 9, 8], [12, 12, 11]]
    assert moved.kind == HARD
    assert _from(lanes_of(1, span=1, why=5), sources, 3).why == 5


def test_the_value_of_any_thread() -> None:
    def anywhere(value: Lanes) -> Any:
        found = _anywhere(value)
        return None if found is None else told(found)

    far = 1 << 39
    assert anywhere(lanes_of(30, 10, 20)) == ([10], [20])
    assert anywhere(lanes_of([30, 10], [5, 5])) == ([[10], [5]], [[20], [0]])
    assert anywhere(lanes_of(30, 10, span=(1, 50))) == ([10], [50])
    assert anywhere(lanes_of(7)) == ([7], None)
    assert anywhere(lanes_of(0, far)) is None
    assert anywhere(lanes_of(0, far - 1)) == ([0], [MASK[64]])  # in one object, anywhere
    assert anywhere(lanes_of(0, WIDE - 1)) == ([0], [WIDE - 1])
    assert anywhere(lanes_of(9, span=WIDE)) == ([9], [MASK[64]])
    assert anywhere(lanes_of(9, 10, span=(WIDE - 1, 0))) == ([9], [WIDE - 1])
    value = lanes_of(3, 4, why=6, span=(0, 1), kind=POINTER)
    value.slopes = {Digit(0, 1, 9): np.array([[2]], np.uint64)}
    found = _anywhere(value)
    assert found is not None
    assert (slopes_of(found), found.kind, found.why) == ({9: [[2]]}, POINTER, 6)
    value.slopes = {Digit(0, 1, 9): np.array([[2, 2]], np.uint64)}
    assert _anywhere(value) is None
    several = one_of([lanes_of(1, 2, kind=POINTER), lanes_of(1 << 41, kind=POINTER)], 4)
    found = _anywhere(several)
    assert found is not None
    assert [told(option) for option in found.options] == [([1], [1]), ([1 << 41], None)]
    assert found.why == 4
    several.options = (lanes_of(1, 2), lanes_of(1, far + 1))
    assert _anywhere(several) is None


def test_what_halves_are_made_of() -> None:
    """The lower half of an address is known by its low bits; of anything else nothing is."""
    run = excerpt("mov.b64 {%r1, %r2}, %d1; cvt.u64.u32 %d2, %r1; cvt.u64.u32 %d3, %r2;",
                  needed=["%d2", "%d3"])  # fmt: skip
    (cut,) = run.steps("mov.b64")
    for kind, low, high in (
        (NUMBER, NUMBER, NUMBER),
        (POINTER, LOW_BITS, HARD),
        (MIXED, LOW_BITS, HARD),
        (LOW_BITS, LOW_BITS, HARD),
        (HARD, HARD, HARD),
    ):
        run.registers["%d1"] = lanes_of((5 << 32) + 7, kind=kind)
        run.step(cut, EVERYBODY)
        found = run.registers["%r1"], run.registers["%r2"]
        assert [told(value) for value in found] == [([7], None), ([5], None)]
        assert [value.kind for value in found] == [low, high]
