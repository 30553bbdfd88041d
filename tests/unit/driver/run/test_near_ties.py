"""Places of values that are nearly equal may come in another order; others may not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera.driver.run.tolerance import NearTies, distance, near_ties
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import Buffer, BufferId, Role

KINDS = {"float32": DataType.F32, "int64": DataType.S64, "int32": DataType.S32}
# Of the first row 1 and 2 are nearly equal, of the second nothing is.
ROWS = np.array([[0.4, 0.3, 0.3000001, 0.1], [0.1, 0.2, 0.5, 0.7]], np.float32)


def buffer(name: str, array: np.ndarray) -> Buffer:
    return Buffer(
        id=BufferId(0),
        name=name,
        bytes=array.nbytes,
        role=Role.OUTPUT,
        dtype=KINDS[str(array.dtype)],
        shape=array.shape or None,
    )


def flat(array: np.ndarray) -> Any:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def compared(recorded: Any, found: Any, *floats: np.ndarray) -> NearTies | None:
    left, right = np.asarray(recorded), np.asarray(found)
    beside = [(buffer(f"v{n}", array), flat(array)) for n, array in enumerate(floats)]
    return near_ties(buffer("i", left), flat(left), flat(right), beside, None)


SORTED = [[0, 2, 1, 3], [3, 2, 1, 0]]
VALUES = np.take_along_axis(ROWS, np.array(SORTED), 1)


@pytest.mark.parametrize("evidence", [ROWS, VALUES])
def test_a_sort_may_swap_what_is_nearly_equal(evidence: np.ndarray) -> None:
    ties = compared(SORTED, [[0, 1, 2, 3], [3, 2, 1, 0]], evidence)
    assert ties is not None
    assert (ties.places, ties.count, ties.values) == (2, 8, "v0")
    assert 0 < ties.error <= ties.tolerance
    assert "`i` has another order in 2 of 8 places" in ties.text("i")


@pytest.mark.parametrize("evidence", [ROWS, VALUES])
@pytest.mark.parametrize(
    "wrong",
    [
        [[2, 0, 1, 3], [3, 2, 1, 0]],  # a place that is not nearly equal
        [[0, 1, 2, 3], [3, 2, 0, 1]],  # another row is wrong, too
        [[0, 1, 1, 3], [3, 2, 1, 0]],  # a place twice
        [[0, 1, 4, 3], [3, 2, 1, 0]],  # a place that is not there
        [[0, -1, 2, 3], [3, 2, 1, 0]],
    ],
)
def test_other_orders_are_wrong(evidence: np.ndarray, wrong: Any) -> None:
    assert compared(SORTED, wrong, evidence) is None


def test_orders_of_other_axes_types_and_directions() -> None:
    columns = np.ascontiguousarray(ROWS.T)
    left, right = np.array(SORTED, np.int32).T, np.array([[0, 1, 2, 3], [3, 2, 1, 0]], np.int32).T
    assert compared(np.ascontiguousarray(left), np.ascontiguousarray(right), columns) is not None
    upward = [row[::-1] for row in SORTED]
    assert compared(upward, [[3, 2, 1, 0], [0, 1, 2, 3]], ROWS) is not None


@pytest.mark.parametrize(
    ("recorded", "found", "near"),
    [
        ([[0, 2], [3, 2]], [[0, 1], [3, 2]], True),  # `topk`: what is left out is nearly equal
        ([[0, 2], [3, 2]], [[0, 3], [3, 2]], False),
        ([0, 3], [0, 2], False),  # `argmax`
    ],
)
def test_parts_of_an_order(recorded: Any, found: Any, near: bool) -> None:
    assert (compared(recorded, found, ROWS) is not None) == near


def test_the_greatest_of_all_is_one_place() -> None:
    logits = np.array([[1.0, 5.0, 2.0], [5.0000001, 3.0, 5.0]], np.float32)
    assert compared(np.int64(3), np.int64(1), logits) is not None
    assert compared(np.int64(3), np.int64(2), logits) is None
    assert compared([1, 0], [1, 2], logits) is not None
    assert compared([2, 0], [2, 2], logits) is None  # it was not the greatest, nor the least


def test_values_in_order_are_no_evidence_for_places_that_come_new() -> None:
    assert compared([[0, 2]], [[0, 1]], np.array([[0.4, 0.3000001]], np.float32)) is None


@pytest.mark.parametrize("beside", [(), (np.array([[np.nan] * 4] * 2, np.float32),), (ROWS[:1],)])
def test_without_values_integers_have_to_be_equal(beside: tuple[np.ndarray, ...]) -> None:
    assert compared(SORTED, [[0, 1, 2, 3], [3, 2, 1, 0]], *beside) is None
    assert compared(ROWS, ROWS[::-1], ROWS) is None  # values are no places


def test_elements_are_counted_as_elements() -> None:
    left = np.array([1 << 60, 7, 300, -1], np.int64)
    right = left + np.array([1, 0, 256, 0])
    apart = distance(DataType.S64, flat(left), flat(right))
    assert (apart.different, apart.count, apart.element) == (2, 4, 2)
    assert "element 2: 556 instead of 300" in apart.text()
    near = distance(DataType.S64, flat(left[:1]), flat(right[:1]))
    assert not near.is_within
    assert f"{(1 << 60) + 1} instead of {1 << 60}" in near.text()
    pair = np.array([1 + 2j, 3 + 4j], np.complex64)
    apart = distance(DataType.C64, flat(pair), flat(pair + np.array([0, 1j], np.complex64)))
    assert (apart.different, apart.count, apart.element) == (1, 2, 1)
