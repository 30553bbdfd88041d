"""What accesses add up to, form by form: exact, open, growing, moving in a loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera.passes.byte_sets import intervals
from tessera.passes.footprint import both_ways
from tessera.passes.footprint.both_ways import Side, SureWrite, common_writes
from tessera.passes.footprint.recorder import Key, Recorder, TouchedBytes, _leaves_zone
from tessera.passes.footprint.zones import FIRST, REACH, SHARED, Zones, draw_zones, may_be_shared
from tessera.passes.lane_values.digits import Digit, RoundDigit, Split
from tessera.passes.lane_values.lanes import (
    HARD,
    MASK,
    MIXED,
    POINTER,
    U64,
    WIDE,
    Lanes,
    add,
    one_of,
    scalar,
    sloped,
    unknown,
)
from tessera.passes.lane_values.masks import ALL, NONE
from tessera.passes.lane_values.symbols import DataSymbol, SymbolForm
from tests.helpers.excerpts import flags, lanes_of

ZONES = Zones(0)
A, B = ZONES.address(FIRST), ZONES.address(FIRST + 1)
NULLS = 1 << 32


def ranges(*pairs: tuple[int, int]) -> Any:
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def told(recorder: Recorder) -> dict[tuple[int, int], Any]:
    """By instruction and object: the bytes that may and that surely are touched, what makes any
    byte possible, and whether all is exact."""
    recorder.finish()
    return {
        (key.at, key.zone - FIRST): (
            entry.may[0].tolist(),
            entry.sure[0].tolist(),
            entry.whole,
            entry.always,
        )
        for key, entry in recorder.touched.items()
    }


def added(address: Lanes, may: Any = ALL, sure: Any = ALL, width: int = 4) -> Recorder:
    recorder = Recorder(ZONES)
    recorder.add(5, 0, address, width, may, sure)
    return recorder


def test_exact_addresses() -> None:
    one = lanes_of(A, A + 8, B + 16, kind=POINTER)
    found = told(added(one))
    assert found[5, 0] == ([[0, 4], [8, 12]], [[0, 4], [8, 12]], None, True)
    assert found[5, 1] == ([[16, 20]], [[16, 20]], None, True)
    found = told(added(one, flags(1, 1, 1), flags(1, 0, 0)))
    assert found[5, 0] == ([[0, 4], [8, 12]], [[0, 4]], None, True)
    assert found[5, 1] == ([[16, 20]], [], None, True)
    found = told(added(one, flags(0, 1, 0), NONE))
    assert found == {(5, 0): ([[8, 12]], [], None, True)}
    assert told(added(lanes_of(A - 3, kind=POINTER)))[5, 0][0] == [[-3, 1]]


def test_addresses_in_no_object() -> None:
    for number, null in (
        (0, True),
        (NULLS - 1, True),
        (NULLS, False),
        (1 - NULLS, True),
        (-NULLS, False),
    ):
        recorder = added(lanes_of(number))
        assert told(recorder) == {}
        assert recorder.nulls == ({5: True} if null else {})
        assert recorder.unresolved == ({} if null else {(5, 0): 5}), number
    recorder = added(lanes_of(0, A), flags(1, 1), flags(0, 1))
    assert recorder.nulls == {5: False}
    recorder.add(5, 0, lanes_of(0, A), 4, flags(1, 1), flags(1, 0))
    assert recorder.nulls == {5: True}
    recorder.add(5, 0, lanes_of(0, B), 4, flags(1, 1), flags(0, 1))
    assert recorder.nulls == {5: True}
    absorbed = added(lanes_of(0), ALL, NONE)
    recorder.absorb(absorbed)
    assert recorder.nulls == {5: True}
    assert added(lanes_of(0, A), flags(1, 1), flags(1, 1)).nulls == {5: True}
    recorder = added(lanes_of(0, NULLS))
    assert (recorder.nulls, recorder.unresolved) == ({}, {(5, 0): 5})


def test_addresses_that_move_in_a_loop() -> None:
    recorder = Recorder(ZONES)
    for round in range(3):
        recorder.add(5, 0, lanes_of(A + 64 * round, A + 8 + 64 * round), 4, ALL, ALL)
    recorder.add(5, 0, lanes_of(A - 64, A - 56), 4, ALL, ALL)
    assert len(recorder._runs) == 1
    may = [[at, at + 4] for round in (-1, 0, 1, 2) for at in (64 * round, 64 * round + 8)]
    assert told(recorder)[5, 0] == (may, may, None, True)
    # Another width, other threads, or another distance by thread: no longer the same run.
    for width, may_be, sure, numbers in (
        (8, ALL, ALL, (A + 64, A + 72)),
        (4, flags(1, 0), flags(1, 0), (A + 64, A + 72)),
        (4, ALL, flags(1, 0), (A + 64, A + 72)),
        (4, flags(1, 0), ALL, (A + 64, A + 72)),
        (4, ALL, ALL, (A + 64, A + 76)),
        (4, ALL, ALL, (A + 64,)),
    ):
        recorder = added(lanes_of(A, A + 8))
        recorder.add(5, 0, lanes_of(*numbers), width, may_be, sure)
        alone = added(lanes_of(*numbers), may_be, sure, width)
        known, other = told(recorder)[5, 0], told(alone)[5, 0]
        assert known[0] == intervals.union([ranges((0, 4), (8, 12)), ranges(*other[0])]).tolist()
        assert known[1] == intervals.union([ranges((0, 4), (8, 12)), ranges(*other[1])]).tolist()


def test_addresses_that_move_as_one() -> None:
    recorder, address = Recorder(ZONES), lanes_of(A, A + 8, kind=POINTER)
    for distance in (64, 64, -192):
        recorder.add(5, 0, address, 4, ALL, ALL)
        address = add(address, scalar(distance), 64)
    recorder.add(5, 0, address, 4, ALL, ALL)
    assert recorder._runs[5, 0].moves == [0, 64, 128, -64]
    may = [[at, at + 4] for round in (-1, 0, 1, 2) for at in (64 * round, 64 * round + 8)]
    assert told(recorder)[5, 0] == (may, may, None, True)
    # Growing otherwise with the CTA, they move by no one distance.
    recorder = added(sloped(lanes_of(A), slopes((X, 100)), 64))
    recorder.add(5, 0, sloped(lanes_of(A + 1000), slopes((X, 200)), 64), 4, ALL, ALL)
    may = [[at, at + 4] for at in (0, 100, 200, 1000, 1200, 1400)]
    assert told(recorder)[5, 0] == (may, may, None, True)


def test_what_accesses_cost() -> None:
    """Work decides what is given up, so it has to follow what is done."""
    many = lanes_of(*[A + 8 * place for place in range(10)])
    back = lanes_of(*[A - 8 * place for place in range(10)])
    grows = sloped(lanes_of(A), slopes((X, 100)), 64)
    for address, may, work in (
        (lanes_of(A), ALL, 4 + 2),
        (many, ALL, 4 * 10 + 2),
        (many, np.arange(10)[None, :] < 3, 4 * 3 + 2),
        (back, ALL, (4 + 40) * 10 + 2),
        (grows, ALL, 4 + 2 * 6 + 2),
        (lanes_of(A, span=4), ALL, 1 + 1 + 8),
        (lanes_of(A, B, span=(4, 4)), ALL, 2 + 1 + 16 + 32),
    ):
        recorder = added(address, may, may)
        recorder.finish()
        assert recorder.work == work, (told(recorder), work)
    recorder = Recorder(ZONES)
    assert recorder.work == 0
    recorder.add_sure(SureWrite(5, 0, many.start, 4, ALL))
    assert recorder.work == 40
    recorder.add_bytes(5, 0, FIRST, ranges((0, 4), (8, 12)), ranges(), exact=True)
    assert recorder.work == 40 + 8 * 4


@pytest.mark.parametrize(
    ("parts", "each", "merged"),
    [(64, 65, False), (65, 63, False), (65, 64, True), (512, 1, False), (513, 1, True)],
)
def test_many_parts_are_merged(parts: int, each: int, merged: bool) -> None:
    recorder = Recorder(ZONES)
    for part in range(parts):
        listed = ranges(
            *((16 * (each * part + n), 16 * (each * part + n) + 4) for n in range(each))
        )
        recorder.add_bytes(5, 0, FIRST, listed, ranges(), exact=True)
        left = len(recorder.touched[Key(5, 0, FIRST)].may)
        assert (left == 1 and part > 0) == (merged and part == parts - 1)


def test_how_far_a_loop_may_move() -> None:
    """As far as a quarter of what belongs to an object; what is further is looked at anew."""
    quarter = REACH // 4
    for distance, kept in (
        (quarter - 1, True),
        (quarter, False),
        (1 - quarter, True),
        (-quarter, False),
        (REACH - 4, False),
    ):
        recorder = added(lanes_of(A))
        recorder.add(5, 0, lanes_of(A + distance), 4, ALL, ALL)
        assert len(recorder._runs[5, 0].moves) == (2 if kept else 1), distance
        both = sorted([[0, 4], [distance, distance + 4]])
        assert told(recorder)[5, 0] == (both, both, None, True)
        assert not recorder.unresolved
    recorder = added(lanes_of(A + REACH - 1))
    assert told(recorder)[5, 0][0] == [[REACH - 1, REACH + 3]]
    assert not recorder.unresolved
    recorder = added(lanes_of(A + REACH - 8))
    recorder.add(5, 0, lanes_of(A + REACH - 4), 4, ALL, ALL)
    told(recorder)
    assert not recorder.unresolved
    recorder.add(5, 0, lanes_of(A + REACH - 8), 4, ALL, ALL)
    recorder.add(5, 0, lanes_of(A + REACH - 3), 4, ALL, ALL)
    told(recorder)
    assert recorder.unresolved == {(5, 0): 5}


def test_what_leaves_an_object() -> None:
    for pair, leaves in (
        ((-REACH, REACH), False),
        ((-REACH - 1, 0), True),
        ((0, REACH + 1), True),
    ):
        assert bool(_leaves_zone(ranges(pair))) == leaves
        assert bool(_leaves_zone(ranges(pair, (0, 4)) if pair[1] == 0 else ranges(pair))) == leaves
    assert _leaves_zone(ranges((0, 4), (8, REACH + 1)))
    assert not _leaves_zone(ranges())


def test_open_addresses() -> None:
    found = told(added(lanes_of(A, A + 100, span=(7, 0), kind=POINTER, why=3)))
    assert found == {(5, 0): ([[0, 11], [100, 104]], [], None, False)}
    found = told(added(lanes_of(A, B, span=(7, 3), kind=POINTER, why=3)))
    assert found[5, 0] == ([[0, 11]], [], None, False)
    assert found[5, 1] == ([[0, 7]], [], None, False)
    # Of a thread that is not here, nothing counts.
    found = told(added(lanes_of(A, B, span=(7, 3), kind=POINTER), flags(0, 1)))
    assert found == {(5, 1): ([[0, 7]], [], None, False)}
    # Anything in an object: for all threads, or some.
    found = told(added(unknown(64, 3, A)))
    assert found == {(5, 0): ([], [], 3, False)}
    assert told(added(unknown(64, 3, A), NONE)) == {}
    some = lanes_of(A, A + 4, span=(MASK[64], 3), kind=POINTER, why=4)
    assert told(added(some)) == {(5, 0): ([[4, 11]], [], 4, False)}
    assert told(added(lanes_of(A, B, span=(MASK[64], 3), why=4))) == {
        (5, 0): ([], [], 4, False),
        (5, 1): ([[0, 7]], [], None, False),
    }
    # Of several numbers none is a null pointer for sure; an interval is no null pointer.
    recorder = added(lanes_of(0, A, span=(0, 7), why=4))
    assert (recorder.nulls, recorder.unresolved) == ({5: False}, {})
    recorder = added(lanes_of(0, A, span=(1, 7), why=4))
    assert (recorder.nulls, recorder.unresolved) == ({}, {(5, 0): 4})


@pytest.mark.parametrize(
    ("kind", "span", "doubt", "mixed", "unresolved"),
    [
        (POINTER, None, 0, False, False),
        (POINTER, MASK[64], 0, False, False),
        (MIXED, None, 1, True, False),
        (MIXED, 7, 1, True, False),
        (MIXED, MASK[64], 1, True, True),
        (HARD, None, 1, True, False),
        (HARD, 7, 1, False, False),
        (HARD, MASK[64], 1, False, True),
    ],
)
def test_addresses_made_of_several(
    kind: int, span: Any, doubt: int, mixed: bool, unresolved: bool
) -> None:
    recorder = added(lanes_of(A, span=span, kind=kind, why=3))
    assert recorder.doubt == doubt
    assert recorder.mixed == ({(5, 0)} if mixed else set())
    assert recorder.unresolved == ({(5, 0): 3} if unresolved else {})
    recorder = added(lanes_of(A, A, span=(span or 0, 0), kind=kind, why=3), flags(0, 1))
    assert not recorder.unresolved


def test_one_of_several_addresses() -> None:
    several = one_of([lanes_of(A, kind=POINTER), lanes_of(B, span=4, kind=POINTER, why=0)], 6)
    assert told(added(several)) == {
        (5, 0): ([[0, 4]], [], None, False),
        (5, 1): ([[0, 8]], [], None, False),
    }
    for why, wanted in ((-1, 6), (0, 0), (2, 2)):
        option = lanes_of(77 << 40, span=4, kind=POINTER, why=why)
        recorder = added(one_of([lanes_of(A, kind=POINTER), option], 6))
        assert recorder.unresolved == {(5, 0): wanted}
    recorder = added(one_of([lanes_of(A, kind=POINTER), lanes_of(0)], 6))
    assert recorder.nulls == {5: False}


X, Y = Digit(0, 1, 3), Digit(1, 1, 2)


def slopes(*pairs: tuple[Digit, Any]) -> dict[Digit, Any]:
    return {digit: np.atleast_2d(np.array(slope, dtype=U64)) for digit, slope in pairs}


def test_addresses_that_grow_with_the_cta() -> None:
    address = sloped(lanes_of(A, A + 8, kind=POINTER), slopes((X, 100), (Y, 1000)), 64)
    may = [[at, at + 4] for y in (0, 1000) for x in (0, 100, 200) for at in (x + y, x + y + 8)]
    assert told(added(address)) == {(5, 0): (may, may, None, True)}
    sure = [[at + y, at + y + 4] for y in (0, 1000) for at in (0, 100, 200)]
    assert told(added(address, ALL, flags(1, 0)))[5, 0] == (may, sure, None, True)
    # Growing by another distance in each thread: only what is sure once is sure.
    apart = sloped(lanes_of(A, A + 8, kind=POINTER), slopes((X, (100, 200))), 64)
    may = sorted([[x, x + 4] for x in (0, 100, 200)] + [[x, x + 4] for x in (8, 208, 408)])
    assert told(added(apart)) == {(5, 0): (may, may, None, True)}
    assert told(added(apart, ALL, NONE)) == {(5, 0): (may, [], None, True)}
    sure = [[x, x + 4] for x in (8, 208, 408)]
    assert told(added(apart, ALL, flags(0, 1)))[5, 0][1] == sure
    open_ = sloped(lanes_of(A, A + 8, span=(2, 2), kind=POINTER), slopes((X, (100, 200))), 64)
    found = told(added(open_))[5, 0]
    assert found[0] == [[at, end + 2] for at, end in may]
    assert found[1:] == ([], None, False)
    # Where a digit leads to another object, it has to be spelled out.
    for far in (B - A, REACH):
        away = sloped(lanes_of(A, kind=POINTER), slopes((X, far & MASK[64])), 64)
        with pytest.raises(Split):
            told(added(away))
        away = sloped(lanes_of(A, span=5, kind=POINTER), slopes((X, far & MASK[64])), 64)
        with pytest.raises(Split):
            told(added(away))


def test_addresses_that_grow_with_rounds() -> None:
    digit = RoundDigit(np.array([[2]], dtype=np.int64))
    address = sloped(lanes_of(A, kind=POINTER), slopes((digit, 100)), 64)
    may = [[at, at + 4] for at in (0, 100, 200)]
    assert told(added(address)) == {(5, 0): (may, may, None, True)}
    assert told(added(address, ALL, NONE))[5, 0] == (may, [], None, True)
    digit = RoundDigit(np.array([[2], [1]], dtype=np.int64))
    address = sloped(lanes_of([A], [A + 1000], kind=POINTER), slopes((digit, 100)), 64)
    may = [[at, at + 4] for at in (0, 100, 200, 1000, 1100)]
    assert told(added(address)) == {(5, 0): (may, may, None, True)}


def test_data_that_moves_all_threads_alike() -> None:
    def found(step: int, low: Any, high: Any, width: int = 4, **changed: Any) -> Any:
        ends = (np.atleast_2d(np.array(number, np.int64)) for number in (low, high))
        symbol = DataSymbol(0, *ends)
        most = int(np.max(high)) - int(np.min(low))
        reach = abs(step) * most
        start = min(step * int(np.min(low)), step * int(np.max(high)))
        address = lanes_of(A + 1000 + start, A + 1010 + start, span=(reach,) * 2, kind=POINTER)
        at = lanes_of(A + 1000, A + 1010).start
        terms = changed.get("terms", 1) * ((symbol, step),)
        address.form = SymbolForm(at, terms, **changed.get("form", {}))
        recorder = added(address, changed.get("may", ALL), width=width)
        return told(recorder)[5, 0]

    def moved(step: int, counts: Any, width: int = 4, starts: Any = (1000, 1010)) -> Any:
        pairs = [(s + step * k, s + step * k + width) for k in counts for s in starts]
        return intervals.union([ranges(*pairs)]).tolist()

    assert found(64, 0, 3) == (moved(64, range(4)), [], None, False)
    assert found(-64, 0, 3) == (moved(-64, range(4)), [], None, False)
    assert found(64, 2, 3)[0] == moved(64, (2, 3))
    assert found(-64, -2, 3)[0] == moved(-64, range(-2, 4))
    assert found(64, 5, 5)[0] == moved(64, [5])
    assert found(64, 0, 3, may=flags(0, 1))[0] == moved(64, range(4), starts=[1010])
    assert found(5, 0, 3, width=4)[0] == moved(5, range(4))
    most = 1 << 14
    assert len(found(64, 0, most - 1)[0]) == 2 * most
    # Else all between the ends is touched.
    for step, low, high, more in (
        (64, 0, most, {}),
        (4, 0, 3, {}),
        (-4, 0, 3, {}),
        (64, 0, 3, {"terms": 2}),
        (64, 0, 3, {"form": {"where": NONE}}),
        (64, (0, 0), (3, 3), {}),
        (64, 0, (3, 3), {}),
        (64, (0, 0), 3, {}),
    ):
        start = min(step * int(np.min(low)), step * int(np.max(high)))
        reach = abs(step) * int(np.max(high))
        wanted = [(at + start, at + start + reach + 4) for at in (1000, 1010)]
        assert found(step, low, high, **more)[0] == intervals.union([ranges(*wanted)]).tolist()


def test_bytes_found_in_another_way() -> None:
    recorder = Recorder(ZONES)
    recorder.add_bytes(5, 0, FIRST, ranges((0, 8)), ranges((0, 4)), exact=True)
    assert told(recorder) == {(5, 0): ([[0, 8]], [[0, 4]], None, True)}
    recorder.add_bytes(5, 0, FIRST, ranges((20, 30)), ranges(), exact=False)
    recorder.add_bytes(5, 0, FIRST, ranges(), ranges((4, 8)), exact=True)
    assert told(recorder) == {(5, 0): ([[0, 8], [20, 30]], [[0, 8]], None, False)}


def test_parts_of_a_launch_are_put_together() -> None:
    first, second = (Recorder(ZONES) for _ in range(2))
    for recorder, offset, null in ((first, 0, False), (second, 64, True)):
        recorder.add(5, 0, lanes_of(A + offset), 4, ALL, ALL)
        recorder.add(6, 0, lanes_of(0), 4, ALL, ALL if null else NONE)
        recorder.add(7, 0, lanes_of(A, span=offset), 4, ALL, ALL)
        recorder.finish()
    second.add(8, 0, unknown(64, 2, B), 4, ALL, ALL)
    second.add(9, 0, lanes_of(1 << 40), 4, ALL, ALL)
    second.add(10, 0, lanes_of(0), 4, ALL, NONE)
    second.finish()
    first.looked_up, second.looked_up = {1}, {2}
    first.asked, second.asked = {3}, {4}
    first.steady, second.steady = {5}, {6}
    first.bounded, second.bounded = {7}, {8}
    first.mixed, second.mixed = {(9, 0)}, {(10, 0)}
    first.doubt, second.doubt = 1, 2
    first.use_map(1, FIRST, ranges((0, 128)))
    second.use_map(1, FIRST, ranges((256, 384)))
    second.use_map(2, FIRST, ranges((0, 128)))
    first.map_owners, second.map_owners = {100: 1, 200: 2}, {200: 2, 300: 3}
    first.absorb(second)
    assert told(first) == {
        (5, 0): ([[0, 4], [64, 68]], [[0, 4], [64, 68]], None, True),
        (7, 0): ([[0, 68]], [], None, False),
        (8, 1): ([], [], 2, False),
    }
    assert first.nulls == {6: True, 10: False}
    assert first.unresolved == {(9, 0): 9}
    assert (first.looked_up, first.asked, first.steady) == ({1, 2}, {3, 4}, {5, 6})
    assert (first.bounded, first.mixed, first.doubt) == ({7, 8}, {(9, 0), (10, 0)}, 2)
    assert {at: (z, r.tolist()) for at, (z, r) in first.used_maps.items()} == {
        1: (FIRST, [[0, 128], [256, 384]]),
        2: (FIRST, [[0, 128]]),
    }
    assert (first.map_owners, first.map_conflict) == ({100: 1, 200: 2, 300: 3}, False)
    third = Recorder(ZONES)
    third.map_owners, third.doubt = {300: 4}, 1
    first.absorb(third)
    assert (first.map_conflict, first.doubt) == (True, 2)
    first.absorb(Recorder(ZONES))
    assert first.map_conflict
    fourth, fifth = Recorder(ZONES), Recorder(ZONES)
    fifth.map_conflict = True
    fourth.absorb(fifth)
    assert fourth.map_conflict


def test_maps_of_two_ctas_at_one_address() -> None:
    recorder = Recorder(ZONES)
    recorder.own_maps(np.array([8, 16, 8], U64), np.array([1, 2, 1]))
    assert not recorder.map_conflict
    recorder.own_maps(np.array([8, 16], U64), np.array([1, 3]))
    assert recorder.map_conflict
    recorder.use_map(1, FIRST, ranges((0, 128)))
    recorder.use_map(1, FIRST + 1, ranges((8, 136)))
    assert recorder.used_maps[1][0] == FIRST + 1
    assert recorder.used_maps[1][1].tolist() == [[8, 136]]


def test_bytes_collected_apart() -> None:
    def of(whole: int | None, always: bool) -> TouchedBytes:
        return TouchedBytes([ranges((0, 4))], [ranges((0, 2))], whole, always)

    for first, second, whole in ((None, None, None), (1, None, 1), (None, 2, 2), (1, 2, 1)):
        for ours in (False, True):
            for theirs in (False, True):
                one = of(first, ours)
                one.add(of(second, theirs))
                assert (one.whole, one.always) == (whole, ours and theirs)
    one = of(None, True)
    one.add(TouchedBytes([ranges((8, 9))], [ranges((4, 5))]))
    assert [r.tolist() for r in one.may + one.sure] == [[[0, 4], [8, 9]], [[0, 2], [4, 5]]]
    same = ranges((0, 4))
    both = TouchedBytes([same], [same])
    both.compact()
    assert both.sure[0] is both.may[0]
    other = TouchedBytes([same, ranges((4, 8))], [same])
    other.compact()
    assert (other.may[0].tolist(), other.sure[0].tolist()) == ([[0, 8]], [[0, 4]])


def test_what_was_touched_in_one_of_some_objects() -> None:
    recorder = Recorder(ZONES)
    recorder.add(5, 0, lanes_of(A + 8), 4, ALL, ALL)
    recorder.add(6, 1, lanes_of(B), 4, ALL, ALL)
    recorder.finish()
    recorder.asked = {FIRST}
    recorder.move_zone(FIRST, frozenset({FIRST + 1, FIRST + 2}), 9)
    assert told(recorder) == {
        (6, 1): ([[0, 4]], [[0, 4]], None, True),
        (5, 1): ([], [], 9, False),
        (5, 2): ([], [], 9, False),
    }
    assert recorder.asked == {FIRST, FIRST + 1, FIRST + 2}
    recorder.move_zone(FIRST + 3, frozenset({FIRST + 4}), 9)
    assert FIRST + 4 not in recorder.asked


def test_writes_that_turn_out_to_be_certain() -> None:
    recorder = added(lanes_of(A, A + 8), ALL, NONE)
    recorder.add_sure(SureWrite(5, 0, lanes_of(A, A + 8).start, 4, flags(0, 1)))
    assert told(recorder)[5, 0] == ([[0, 4], [8, 12]], [[8, 12]], None, True)
    recorder = Recorder(ZONES)
    lo = lanes_of(A).start
    recorder.add_sure(SureWrite(5, 0, lo, 4, ALL, slopes((X, 100))))
    assert told(recorder)[5, 0][1] == [[at, at + 4] for at in (0, 100, 200)]
    assert Key(5, 0, FIRST) in recorder.touched


# --- both sides of a branch ----------------------------------------------------------------


def write(*at: int, width: int = 4, sure: Any = ALL, at_slopes: Any = None) -> SureWrite:
    return SureWrite(1, 0, lanes_of(*at).start, width, sure, at_slopes or {})


def common(first: list[SureWrite], second: list[SureWrite]) -> list[Any]:
    return [
        (w.lo[w.sure | (w.lo < 0)].tolist(), w.width)
        for w in common_writes(Side(first), Side(second))
    ]


def test_bytes_that_both_sides_write() -> None:
    assert common([write(100)], [write(100)]) == [([100], 4)]
    assert common([write(100)], [write(104)]) == []
    assert common([write(100)], [write(103)]) == [([103], 1)]
    assert common([write(100)], [write(97)]) == [([100], 1)]
    assert common([write(100)], [write(96)]) == []
    assert common([write(100, width=16)], [write(104, width=4)]) == [([104], 4)]
    assert common([write(104, width=4)], [write(100, width=16)]) == [([104], 4)]
    narrow, wide = write(90, width=1), write(80, width=32)
    assert common([write(100)], [narrow, wide]) == [([100], 4)]
    assert common([], [write(1)]) == common([write(1)], []) == []
    grows = slopes((X, 100))
    assert common([write(100, at_slopes=grows)], [write(100)]) == []
    assert common([write(100, at_slopes=grows)], [write(100, at_slopes=grows)]) == [([100], 4)]


def test_threads_that_write_on_both_sides() -> None:
    first = write(100, 200, 300, sure=flags(1, 1, 1))
    second = write(100, 202, 308, sure=flags(1, 1, 1))
    found = [*common_writes(Side([first]), Side([second]))]
    assert [(w.width, w.sure.tolist(), w.lo[0].tolist()) for w in found] == [
        (2, [[False, True, False]], [100, 202, 308]),
        (4, [[True, False, False]], [100, 202, 308]),
    ]
    assert common([first], [write(100, 202, 308, sure=flags(0, 0, 1))]) == []
    (one,) = common_writes(Side([first]), Side([write(100, 202, 308, sure=flags(1, 0, 1))]))
    assert (one.width, one.sure.tolist()) == (4, [[True, False, False]])


def test_only_so_many_writes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(both_ways, "_MOST", 2)
    monkeypatch.setattr(both_ways, "_MOST_ELEMENTS", 100)
    side = Side()
    for kept in (1, 2, 2):
        side.add(write(0, 4))
        assert len(side.writes) == kept
    assert side.elements == 6
    monkeypatch.setattr(both_ways, "_MOST_ELEMENTS", 3)
    side = Side()
    for kept in (1, 1):
        side.add(write(0, 4))
        assert len(side.writes) == kept


# --- zones ---------------------------------------------------------------------------------


def test_what_belongs_to_an_object() -> None:
    for offset, inside in (
        (-REACH - 1, False),
        (-REACH, True),
        (0, True),
        (REACH - 1, True),
        (REACH, False),
    ):
        zone, found = ZONES.decode(np.array([(A + offset) & MASK[64]], U64))
        assert (int(zone[0]), int(found[0])) == ((FIRST, offset) if inside else (0, 0))
        low = (A + offset) & MASK[64]
        assert ZONES.between(low, low) == ((FIRST, A) if inside else None)
        low, high = sorted((low, A))
        assert ZONES.between(low, high) == ((FIRST, A) if inside else None)
    assert ZONES.between(A + 1, A) is None
    assert ZONES.between(0, 0) is None
    assert ZONES.common(np.array([], U64)) is None
    assert ZONES.address(FIRST, 7) == A + 7
    assert ZONES.address(FIRST, -A) == 0
    assert next(draw_zones(frozenset({A, 5}), 3840)).salt == 1
    assert next(draw_zones(frozenset({5}), 3840)).salt == 0
    for zone, shared in ((0, True), (SHARED, True), (3839, False), (3840, True), (FIRST, False)):
        assert may_be_shared(np.array([FIRST, zone])) == shared


def test_each_zone_has_its_place() -> None:
    used = [1, 2, 3, 4, *range(16, 20), *range(3840, 4096)]
    drawn = [Zones(salt, 20) for salt in range(4)]
    for zones in drawn:
        addresses = np.array([zones.address(zone) for zone in range(4096)], U64)
        assert not (addresses % U64(256)).any()
        assert len({int(address) >> 42 for address in addresses}) == 4096
        found, offsets = zones.decode(addresses)
        assert [zone for zone in range(4096) if found[zone]] == used
        assert found[used].tolist() == used
        assert not offsets.any()
        for zone in used:
            address = zones.address(zone)
            assert zones.between(address - 5, address + 5) == (zone, address)
    for even, odd in ((0, 1), (2, 3)):
        for zone in (1, 16, 4095):
            pair = drawn[even].address(zone) - (1 << 41), drawn[odd].address(zone) - (1 << 41)
            bits = (1 << 63) - 1 & ~(3 << 40) & ~255
            assert pair[0] ^ pair[1] == bits
    assert drawn[0].address(16) != drawn[2].address(16)


def test_wide_is_anything() -> None:
    assert told(added(lanes_of(A, span=WIDE - 1, kind=POINTER)))[5, 0][0] == [[0, WIDE + 3]]
    assert scalar(A).low().item() == A
