"""Scalars between text and bits: exact for every type, against NumPy where it has the type."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import BufferId, ByValue, Pointer, PointerWord, Scalar
from tessera.ir.program.scalar_text import FORMATS, float_value, scalar_bits, scalar_text


@pytest.mark.parametrize("kind", [DataType.E4M3, DataType.E5M2, DataType.F16, DataType.BF16])
def test_every_narrow_float_survives(kind: DataType) -> None:
    step = 1 if kind.bytes == 1 else 7
    for bits in range(0, 1 << (8 * kind.bytes), step):
        assert scalar_bits(kind, scalar_text(kind, bits)) == bits


@pytest.mark.parametrize(
    ("kind", "text", "bits"),
    [
        (DataType.F32, "1", 0x3F800000),
        (DataType.F32, "-0.0", 0x80000000),
        (DataType.F32, "0x3f800000", 0x3F800000),
        (DataType.F32, "inf", 0x7F800000),
        (DataType.F32, "-nan", 0xFFC00000),
        (DataType.F32, "3.4028235e38", 0x7F7FFFFF),
        (DataType.F32, "1.401298464324817e-45", 1),
        (DataType.F32, "7e-46", 0),
        (DataType.F32, "1e-999999999", 0),
        # Halfway to the next float plus a hair: through a double this would round down.
        (DataType.F32, "1.000000059604644775390626", 0x3F800001),
        (DataType.F32, "1.000000059604644775390625", 0x3F800000),
        (DataType.F64, "5e-324", 1),
        (DataType.E4M3, "448", 0x7E),
        (DataType.E4M3, "nan", 0x7F),
        (DataType.E5M2, "57344", 0x7B),
        (DataType.E5M2, "inf", 0x7C),
        (DataType.BF16, "1.5", 0x3FC0),
        (DataType.S8, "-128", 0x80),
        (DataType.U64, "0xffffffffffffffff", 0xFFFFFFFFFFFFFFFF),
        (DataType.B16, "0x1234", 0x1234),
    ],
)
def test_bits(kind: DataType, text: str, bits: int) -> None:
    assert scalar_bits(kind, text) == bits


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (DataType.F32, "3.4028236e38"),
        (DataType.F32, "1e999999999"),
        (DataType.F32, "0x1"),
        (DataType.F32, "-0x3f800000"),
        (DataType.F32, "1_0"),
        (DataType.F32, "infinity"),
        (DataType.F32, "\uff11"),
        (DataType.E4M3, "inf"),
        (DataType.E4M3, "480"),
        (DataType.S8, "128"),
        (DataType.U8, "256"),
        (DataType.U8, "-1"),
        (DataType.U8, "010"),
        (DataType.U8, "1.0"),
        (DataType.U32, "9" * 5000),
        (DataType.F64, "9" * 5000),
        (DataType.B32, ""),
    ],
)
def test_refused(kind: DataType, text: str) -> None:
    with pytest.raises(ValueError, match=r"`|too long|bits"):
        scalar_bits(kind, text)


def test_rounding_agrees_with_numpy() -> None:
    choose = random.Random(3)
    for _ in range(2000):
        number = choose.uniform(-1, 1) * 10 ** choose.randint(-44, 38)
        half = choose.uniform(-1, 1) * 10 ** choose.randint(-8, 4)
        double = struct.unpack("<Q", struct.pack("<d", number))[0]
        assert scalar_bits(DataType.F64, repr(number)) == double
        assert scalar_bits(DataType.F32, repr(number)) == int(np.float32(number).view(np.uint32))
        assert scalar_bits(DataType.F16, repr(half)) == int(np.float16(half).view(np.uint16))


def test_values_of_narrow_floats() -> None:
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16)
    layout = FORMATS[DataType.F16]
    assert all(float_value(layout, bits) == float(halves[bits]) for bits in range(0, 0x7C00, 11))


def test_records_refuse_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="pattern of 8 bits"):
        Scalar(DataType.U8, 256)
    word = PointerWord(8, Pointer(BufferId(0)))
    assert ByValue(bytes(16), (word,)).pointers == (word,)
    with pytest.raises(ValueError, match="inside the struct"):
        ByValue(bytes(15), (word,))
    with pytest.raises(ValueError, match="apart"):
        ByValue(bytes(32), (word, PointerWord(12, Pointer(BufferId(0)))))
    with pytest.raises(ValueError, match="must be zero"):
        ByValue(b"\1" * 16, (word,))
