"""Which request goes into which slot: random beginnings and ends against the rules."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tessera.backend.host_loop.slot_book import SlotBook
from tests.helpers.share import share


@pytest.mark.parametrize("seed", share(range(20)))
def test_rules_hold(seed: int) -> None:
    rng = random.Random(seed)
    slots, lanes, depth = rng.randint(1, 5), rng.randint(1, 6), rng.randint(1, 3)
    book = SlotBook(slots=slots, lanes=lanes, depth=depth)
    under_way: list[tuple[int, int]] = []
    for _ in range(300):
        lane = rng.randrange(lanes)
        if len(under_way) < slots * depth and rng.random() < 0.6:
            slot = book.take(lane)
            mine = {s for s, other in under_way if other == lane}
            if slot is None:
                assert mine, "a lane with nothing under way finds a slot"
                continue
            assert mine <= {slot}, "all of a lane is in one slot"
            under_way.append((slot, lane))
            assert Counter(s for s, _ in under_way)[slot] <= depth
        elif under_way:
            slot, ended = under_way.pop(rng.randrange(len(under_way)))
            book.give_back(slot, ended)
        assert book.is_idle(lane) == (lane not in {other for _, other in under_way})


def test_empty_slots_come_first() -> None:
    book = SlotBook(slots=3, lanes=6, depth=2)
    assert sorted(book.take(lane) for lane in range(3)) == [0, 1, 2]
    assert sorted(book.take(lane) for lane in range(3, 6)) == [0, 1, 2]


def test_a_lane_comes_back_to_its_slot() -> None:
    book = SlotBook(slots=2, lanes=2, depth=1)
    assert book.take(1) == 1
    book.give_back(1, 1)
    assert book.take(1) == 1


def test_of_full_slots_the_one_that_began_first() -> None:
    book = SlotBook(slots=2, lanes=5, depth=3)
    assert [book.take(lane) for lane in (1, 0)] == [1, 0]
    assert book.take(2) == 1
