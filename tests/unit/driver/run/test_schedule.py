"""Which trace, lane and replica a request gets."""

from __future__ import annotations

from collections import Counter

import pytest

from tessera.driver.run.schedule import Turn, first_sequences, schedule


def test_lanes_take_turns_and_see_the_same_traces() -> None:
    turns = schedule(8, [0.5, 0.5], [(1.0, 2)])
    assert [turn.sequence for turn in turns] == [0, 1] * 4
    for lane in (0, 1):
        assert [turn.trace for turn in turns if turn.sequence == lane] == [0, 1, 0, 1]


def test_shares_are_kept_to_within_one_request() -> None:
    turns = schedule(90, [0.1, 0.9], [(0.75, 1), (0.25, 1)])
    replicas = Counter(turn.sequence for turn in turns)
    assert abs(replicas[0] - 67.5) <= 1
    for lane, count in replicas.items():
        rare = sum(turn.trace == 0 for turn in turns if turn.sequence == lane)
        assert abs(rare - 0.1 * count) <= 1


@pytest.mark.parametrize("trace", [0, 1])
def test_turns_count_the_requests_of_a_trace(trace: int) -> None:
    turns = [turn.turn for turn in schedule(7, [0.5, 0.5], [(1.0, 2)]) if turn.trace == trace]
    assert turns == list(range(len(turns)))


def test_lanes_of_later_replicas_follow_those_of_the_first() -> None:
    lanes = {turn.sequence for turn in schedule(12, [1.0], [(0.5, 2), (0.5, 3)])}
    assert lanes == {0, 1, 2, 3, 4}


def test_the_lanes_that_begin_with_a_trace() -> None:
    turns = schedule(12, [0.75, 0.25], [(0.5, 2), (0.5, 1)])
    (first,) = first_sequences([turn for turn in turns if turn.trace == 0])
    assert first == turns[0].sequence
    # Every lane begins with trace 0, so none begins with trace 1.
    assert first_sequences(turns) == {turns[0].sequence}
    assert first_sequences([Turn(0, 0, 2, 0), Turn(1, 1, 2, 0), Turn(2, 1, 0, 1)]) == {2, 0}
