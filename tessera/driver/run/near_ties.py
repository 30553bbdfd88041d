"""Orders that differ only among values that are equal within their tolerance.

In: a result of integers that two runs have given differently, and the results of floats beside it.
Out: `NearTies` if the integers are the places of ordered values (`sort`, `topk`, `argmax`), and if
each place that differs names a value as large as the other's, within the tolerance of its type.

Two kinds of results are evidence: the values in their order, as `sort` gives them, where both runs
name the same places of a row; and the tensor that was ordered, where the places lead to values that
are in order. Integers without either are no order, and have to be equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tessera.backend.service import Bytes
from tessera.driver.run.tolerance import as_numbers, scale_of, tolerance_of
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import Buffer

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
_PLACES = (DataType.S32, DataType.S64, DataType.U32, DataType.S16, DataType.U16, DataType.U8)


@dataclass(frozen=True, slots=True, kw_only=True)
class NearTies:
    """How many places differ out of how many, the buffer of the values, and how far those are
    apart at most."""

    places: int
    count: int
    values: str
    error: float
    tolerance: float

    def text(self, name: str) -> str:
        """For people; `name` is the result that has the places."""
        return (
            f"`{name}` has another order in {self.places} of {self.count} places, all among "
            f"values of `{self.values}` that are equal within the tolerance (at most "
            f"{self.error:.2g} of {self.tolerance:.2g} apart)"
        )


def near_ties(
    buffer: Buffer,
    recorded: Bytes,
    found: Bytes,
    floats: Iterable[tuple[Buffer, Bytes]],
    widened: DataType | None,
) -> NearTies | None:
    """Whether the places that differ are of values that are as good as equal; `floats` are the
    recorded results to look for those values in."""
    shape = _shape(buffer)
    if buffer.dtype not in _PLACES or shape is None:
        return None
    left, right = (as_numbers(buffer.dtype, part).astype(np.int64) for part in (recorded, found))
    for values, content in floats:
        of = _shape(values)
        tolerance = tolerance_of(values.dtype, widened)
        if not tolerance or of is None or values.dtype is None or not values.dtype.is_float:
            continue
        numbers = as_numbers(values.dtype, content).astype(np.float64)
        scale = scale_of(numbers)
        for pair in _pairs(left, right, shape, numbers, of, tolerance * scale):
            error = float(np.max(np.abs(pair[0] - pair[1]) / np.maximum(np.abs(pair[0]), scale)))
            if error <= tolerance:  # and it is a number
                return NearTies(
                    places=int((left != right).sum()),
                    count=len(left),
                    values=values.name,
                    error=error,
                    tolerance=tolerance,
                )
    return None


def _pairs(
    left: Places,
    right: Places,
    shape: tuple[int, ...],
    numbers: Floats,
    of: tuple[int, ...],
    slack: float,
) -> Iterator[tuple[Floats, Floats]]:
    """The values that both orders name, for every way in which these numbers are their evidence."""
    if len(left) == 1:
        yield from _from_source(left[None], right[None], numbers[None], slack)
    for axis in range(len(of)):
        rest = of[:axis] + of[axis + 1 :]
        rows = np.moveaxis(numbers.reshape(of), axis, -1).reshape(-1, of[axis])
        if shape == rest:
            yield from _from_source(left[:, None], right[:, None], rows, slack)
        if len(shape) == len(of) and shape[:axis] + shape[axis + 1 :] == rest:
            places = [np.moveaxis(p.reshape(shape), axis, -1) for p in (left, right)]
            first, second = (p.reshape(-1, shape[axis]) for p in places)
            yield from _from_source(first, second, rows, slack)
            if shape == of:
                yield from _from_values(first, second, rows, slack)


def _from_source(
    left: Places, right: Places, rows: Floats, slack: float
) -> Iterator[tuple[Floats, Floats]]:
    """Places in the rows of what was ordered: both orders have to be orders of it."""
    if not left.size or min(left.min(), right.min()) < 0:
        return
    if max(left.max(), right.max()) >= rows.shape[1] or not _are_distinct(left, right):
        return
    first, second = (np.take_along_axis(rows, places, 1) for places in (left, right))
    begins_at_end = any(
        bool((np.abs(first[:, 0] - end) <= slack).all()) for end in (rows.max(1), rows.min(1))
    )
    if begins_at_end and _is_ordered(first, slack):
        yield first, second


def _from_values(
    left: Places, right: Places, rows: Floats, slack: float
) -> Iterator[tuple[Floats, Floats]]:
    """Places beside the values in their order: where a place went, and what is there."""
    if not left.size or not _is_ordered(rows, slack) or not _are_distinct(left, right):
        return
    before, after = np.argsort(left, axis=1), np.argsort(right, axis=1)
    if np.array_equal(np.take_along_axis(left, before, 1), np.take_along_axis(right, after, 1)):
        yield np.take_along_axis(rows, before, 1), np.take_along_axis(rows, after, 1)


def _is_ordered(rows: Floats, slack: float) -> bool:
    steps = np.diff(rows, axis=1)
    return bool((steps <= slack).all() or (steps >= -slack).all())


def _are_distinct(*orders: Places) -> bool:
    return all(bool((np.diff(np.sort(order, axis=1), axis=1) > 0).all()) for order in orders)


def _shape(buffer: Buffer) -> tuple[int, ...] | None:
    """The extents of a buffer; those of a single number are none."""
    if buffer.shape is None and buffer.dtype is not None and buffer.bytes == buffer.dtype.bytes:
        return ()
    return buffer.shape
