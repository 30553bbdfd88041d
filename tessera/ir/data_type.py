"""Element and scalar types of buffers, arguments and operands, by their names in a trace.

PTX's name wherever PTX has one (`e4m3` and `e5m2` are its 8-bit floats); `bool` is one byte, 0
or 1; `c64` and `c128` are pairs of `f32` and `f64`. Types that are none of these are bytes: `b8`.
"""

from __future__ import annotations

import enum


class DataType(enum.Enum):
    """One type. The value is its name in a trace."""

    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"
    S8 = "s8"
    S16 = "s16"
    S32 = "s32"
    S64 = "s64"
    B8 = "b8"
    B16 = "b16"
    B32 = "b32"
    B64 = "b64"
    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"
    E4M3 = "e4m3"
    E5M2 = "e5m2"
    BOOL = "bool"
    C64 = "c64"
    C128 = "c128"

    @property
    def bytes(self) -> int:
        """Bytes of one element."""
        return _BYTES[self]

    @property
    def is_float(self) -> bool:
        """Whether an element is one floating-point number."""
        return self in _FLOATS

    @property
    def is_signed(self) -> bool:
        """Whether an element is a signed integer."""
        return self in _SIGNED

    @property
    def is_bits(self) -> bool:
        """Whether an element is untyped bits."""
        return self in _BITS


_BYTES = {
    DataType.U8: 1,
    DataType.U16: 2,
    DataType.U32: 4,
    DataType.U64: 8,
    DataType.S8: 1,
    DataType.S16: 2,
    DataType.S32: 4,
    DataType.S64: 8,
    DataType.B8: 1,
    DataType.B16: 2,
    DataType.B32: 4,
    DataType.B64: 8,
    DataType.F16: 2,
    DataType.BF16: 2,
    DataType.F32: 4,
    DataType.F64: 8,
    DataType.E4M3: 1,
    DataType.E5M2: 1,
    DataType.BOOL: 1,
    DataType.C64: 8,
    DataType.C128: 16,
}
_FLOATS = frozenset(
    (DataType.F16, DataType.BF16, DataType.F32, DataType.F64, DataType.E4M3, DataType.E5M2)
)
_SIGNED = frozenset((DataType.S8, DataType.S16, DataType.S32, DataType.S64))
_BITS = frozenset((DataType.B8, DataType.B16, DataType.B32, DataType.B64))
