"""Calls of library operators on the CPU backend, with NumPy arrays in and out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tessera.backend.ptx_executor.device import Device
from tessera.backend.ptx_executor.operators.run import run
from tessera.backend.ptx_executor.simt.launch import LaunchResult
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import (
    AttributeValue,
    BufferId,
    LaunchId,
    LibraryCall,
    Operand,
    Pointer,
)

_PLAIN = {
    "float32": "f32",
    "float64": "f64",
    "float16": "f16",
    "int8": "s8",
    "int16": "s16",
    "int32": "s32",
    "int64": "s64",
    "uint8": "u8",
    "bool": "bool",
    "complex64": "c64",
}
Tensor = tuple[np.ndarray, str]


def typed(values: np.ndarray | Tensor) -> Tensor:
    """An array of stored bits with the name of its type; `bf16` and others are given as pairs."""
    return values if isinstance(values, tuple) else (values, _PLAIN[values.dtype.name])


def bf16(values: np.ndarray) -> Tensor:
    """Values rounded to bf16."""
    raw = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((raw + 0x7FFF + ((raw >> 16) & 1)) >> 16).astype(np.uint16), "bf16"


def from_bf16(raw: np.ndarray) -> np.ndarray:
    return (raw.astype(np.uint32) << 16).view(np.float32)


class Calls:
    """A device with the tensors of one call on it."""

    def __init__(self) -> None:
        self.device = Device()
        self.places: list[int] = []
        self.result: LaunchResult | None = None

    def place(self, values: np.ndarray, dtype: str, name: str) -> Operand:
        array = self.device.array(np.atleast_1d(values), name)
        self.places.append(array.address)
        return Operand(
            pointer=Pointer(BufferId(len(self.places) - 1)),
            dtype=DataType(dtype),
            shape=tuple(values.shape),
        )

    def call(
        self,
        operator: str,
        reads: Sequence[np.ndarray | Tensor],
        writes: Sequence[tuple[tuple[int, ...], str]],
        in_place: bool = False,
        **attributes: AttributeValue,
    ) -> list[np.ndarray]:
        """The results as stored; with `in_place` the first read is the first write."""
        read = [self.place(*typed(one), f"r{n}") for n, one in enumerate(reads)]
        written = [read[0]] if in_place else []
        arrays = {}
        for number, (shape, dtype) in enumerate(writes[len(written) :]):
            blank = np.zeros(shape, _storage(dtype))
            written.append(self.place(blank, dtype, f"w{number}"))
        step = LibraryCall(
            id=LaunchId(0),
            operator=operator,
            reads=tuple(read),
            writes=tuple(written),
            attributes=tuple(attributes.items()),
        )
        self.result = run(self.device, step, lambda buffer: self.places[buffer])
        for number, operand in enumerate(written):
            start = self.places[operand.pointer.buffer] - self.device.space.base
            size = math.prod(operand.shape) * operand.dtype.bytes
            raw = self.device.space.bytes[start : start + size].copy()
            arrays[number] = raw.view(_storage(operand.dtype.value)).reshape(operand.shape)
        return list(arrays.values())


def _storage(dtype: str) -> np.dtype:
    plain = {name: kind for kind, name in _PLAIN.items()}
    return np.dtype(plain.get(dtype, f"uint{8 * DataType(dtype).bytes}"))


def call(operator: str, reads: Sequence, writes: Sequence, **rest) -> list[np.ndarray]:
    """One call on a device of its own."""
    return Calls().call(operator, reads, writes, **rest)
