"""How far apart two results of one launch are, in the numbers that their bytes stand for.

In: bytes of a buffer from two runs, and its type. Out: the worst element, and whether it is within
the tolerance of the type. An error is measured against the element or, where that is smaller,
against a hundredth of the largest one: sums in another order lose relative precision near zero.
Integers have to be equal; NaN equals NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tessera.backend.service import Bytes
from tessera.ir.program.data_type import DataType

TOLERANCE = {
    DataType.F64: 1e-10,
    DataType.F32: 1e-4,
    DataType.F16: 5e-3,
    DataType.BF16: 3e-2,
    DataType.E4M3: 0.15,
    DataType.E5M2: 0.3,
    DataType.C64: 1e-4,
    DataType.C128: 1e-10,
}
_FLOOR = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """The worst element of a comparison: where, what was expected and what was found."""

    element: int
    expected: float
    found: float
    error: float
    tolerance: float

    @property
    def is_within(self) -> bool:
        """Whether the tolerance covers it."""
        return self.error <= self.tolerance

    def text(self) -> str:
        """For people."""
        return (
            f"element {self.element}: {self.found:.8g} instead of {self.expected:.8g}, "
            f"error {self.error:.2g} of {self.tolerance:.2g} allowed"
        )


def distance(dtype: DataType | None, expected: Bytes, actual: Bytes) -> Distance:
    """Compare the bytes of one buffer, or of a run of whole elements of it."""
    left, right = _numbers(dtype, expected), _numbers(dtype, actual)
    tolerance = TOLERANCE.get(dtype, 0.0) if dtype is not None else 0.0
    if not len(left):
        return Distance(element=0, expected=0.0, found=0.0, error=0.0, tolerance=tolerance)
    with np.errstate(invalid="ignore", over="ignore"):
        same = (left == right) | (np.isnan(left) & np.isnan(right))
        finite = np.abs(left[np.isfinite(left)])
        floor = _FLOOR * float(finite.max()) if len(finite) else 0.0
        scale = np.maximum(np.abs(left), max(floor, np.finfo(np.float64).tiny))
        errors = np.where(same, 0.0, np.abs(left - right) / scale)
    errors = np.where(np.isnan(errors), np.inf, errors)
    worst = int(np.argmax(errors))
    return Distance(
        element=worst,
        expected=float(left[worst]),
        found=float(right[worst]),
        error=float(errors[worst]),
        tolerance=tolerance,
    )


_GUESSES = (DataType.F32, DataType.BF16, DataType.F16, DataType.F64)


def nearest(
    dtype: DataType | None, expected: Bytes, actual: Bytes
) -> tuple[DataType | None, Distance]:
    """Compare in the buffer's own type, or in the one that a launch may have put there instead.

    Memory is reused: a buffer may hold elements of another type than its last, or have none.
    """
    first = distance(dtype, expected, actual)
    if first.is_within:
        return dtype, first
    for guess in _GUESSES:
        if guess is not dtype and len(expected) % guess.bytes == 0:
            other = distance(guess, expected, actual)
            if other.is_within:
                return guess, other
    return dtype, first


def _numbers(dtype: DataType | None, content: Bytes) -> npt.NDArray[np.float64]:
    """Elements as binary64; integers of 64 bits lose no difference, since they must be equal."""
    raw = np.ascontiguousarray(content)
    elements: npt.NDArray[Any]
    match dtype:
        case DataType.F64 | DataType.C128:
            elements = raw.view(np.float64)
        case DataType.F32 | DataType.C64:
            elements = raw.view(np.float32)
        case DataType.F16:
            elements = raw.view(np.float16)
        case DataType.BF16:
            elements = (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        case DataType.E5M2:
            elements = (raw.astype(np.uint16) << 8).view(np.float16)
        case DataType.E4M3:
            elements = _from_e4m3(raw)
        case _:
            elements = raw
    return elements.astype(np.float64)


def _from_e4m3(raw: Bytes) -> npt.NDArray[np.float64]:
    exponent, fraction = (raw >> 3) & 15, (raw & 7).astype(np.float64)
    normal = (8.0 + fraction) * 2.0 ** (exponent.astype(np.float64) - 10.0)
    values = np.where(exponent == 0, fraction * 2.0**-9, normal)
    values = np.where((raw & 0x7F) == 0x7F, np.nan, values)
    return np.where(raw & 0x80, -values, values)
