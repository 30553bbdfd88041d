"""Conversion between device bytes and NumPy arrays, and rounding of results.

16- and 8-bit floats are widened to float32; integers and bools keep their type. A result is rounded
once, to nearest even, from the computed type (float32 or float64).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tessera.backend.ptx_executor.numerics.bits import unsigned
from tessera.backend.ptx_executor.numerics.formats import (
    FORMATS,
    SMALL,
    decode_table,
    narrow_half,
    widen,
)
from tessera.backend.ptx_executor.numerics.rounding import encode
from tessera.ir.operators.records import Bound
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import AttributeValue

Array = NDArray[Any]

_SMALL_FLOATS = (DataType.E4M3, DataType.E5M2)
_HALF_FLOATS = (DataType.F16, DataType.BF16)
COMPLEX = (DataType.C64, DataType.C128)


def storage(dtype: DataType) -> np.dtype[np.number]:
    """The NumPy type that holds the bits of an element."""
    if dtype is DataType.F32 or dtype is DataType.F64:
        return np.dtype(f"f{dtype.bytes}")
    if dtype in COMPLEX:
        return np.dtype(f"c{dtype.bytes}")
    return np.dtype(f"{'i' if dtype.is_signed else 'u'}{dtype.bytes}")


def decode(dtype: DataType, raw: Array) -> Array:
    """The values of stored bits."""
    if dtype is DataType.BOOL:
        result: Array = raw != 0
        return result
    if dtype in _HALF_FLOATS:
        return widen(dtype.value, np.ascontiguousarray(raw)).reshape(raw.shape)
    if dtype in _SMALL_FLOATS:
        return decode_table(dtype.value).astype(np.float32).take(raw)
    return raw


def round_to(dtype: DataType, values: Array) -> Array:
    """The bits of values rounded (floats) or wrapped (integers) to a type.

    A NaN has one pattern: which one NumPy computes depends on its place in the array.
    """
    if values.dtype.kind == "f" and (is_nan := np.isnan(values)).any():
        values = np.where(is_nan, values.dtype.type(np.nan), values)
    if dtype is DataType.BOOL:
        result: Array = (values != 0).astype(np.uint8)
        return result
    if dtype in _HALF_FLOATS:
        return _half(dtype.value, values)
    if dtype in _SMALL_FLOATS:
        return _small(dtype.value, np.asarray(values, np.float64))
    return values.astype(storage(dtype))


def _small(name: str, values: Array) -> Array:
    """8-bit floats, to nearest even; e4m3 has no infinity and uses its largest value instead."""
    return encode(SMALL[name], np.ascontiguousarray(values)).reshape(values.shape)


def _half(name: str, values: Array) -> Array:
    if values.dtype == np.float64:
        return encode(FORMATS[name], np.ascontiguousarray(values)).reshape(values.shape)
    single = np.ascontiguousarray(values, dtype=np.float32)
    return narrow_half(name, unsigned(single)).reshape(values.shape)


class CallValues:
    """The input of a function of the table: operands by name, attributes, result types.

    `bits` holds operands as stored, `values` their decoded values. In calls that only move
    elements, the two are the same.
    """

    def __init__(self, bound: Bound, bits: dict[str, list[Array]], *, moves_bits: bool) -> None:
        self.bound = bound
        self.values: dict[str, list[Array]] = bits
        if not moves_bits:
            self.values = {
                spec.name: [
                    decode(tensor.dtype, raw)
                    for tensor, raw in zip(tensors, bits[spec.name], strict=True)
                ]
                for spec, tensors in bound.reads
            }
        self.results = [operand for _, operand in bound.writes]

    def all(self, name: str) -> list[Array]:
        """The tensors of an operand that is a list."""
        return self.values[name]

    def __getitem__(self, name: str) -> Array:
        """A tensor, or the number given in its place."""
        tensors = self.values.get(name)
        if tensors:
            return tensors[0]
        return np.asarray(self.number(name))

    def has(self, name: str) -> bool:
        """Whether an operand is given, as a tensor or a number."""
        return self.bound.has(name) or self._given(name) is not None

    def _given(self, name: str) -> AttributeValue:
        return next((value for key, value in self.bound.attributes if key == name), None)

    def number(self, name: str) -> float:
        """A number among the attributes."""
        return self.bound.number(name)

    @property
    def is_float(self) -> bool:
        """Whether the arithmetic is in floating point."""
        kinds = [tensor.dtype for spec, tensors in self.bound.reads for tensor in tensors]
        numbers = (value for _, value in self.bound.attributes)
        return (
            any(kind.is_float for kind in kinds)
            or any(isinstance(value, float) for value in numbers)
            or self.results[0].dtype.is_float
        )

    @property
    def wide(self) -> np.dtype[np.number]:
        """The type of elementwise arithmetic: float32, float64 or 64-bit integers."""
        kinds = [tensor.dtype for _, tensors in self.bound.reads for tensor in tensors]
        kinds += [tensor.dtype for tensor in self.results]
        if self.is_float:
            return np.dtype(np.float64 if DataType.F64 in kinds else np.float32)
        return np.dtype(np.uint64 if DataType.U64 in kinds else np.int64)

    def float64(self, name: str) -> Array:
        """A tensor or number in float64."""
        return np.asarray(self[name], dtype=np.float64)
