"""Element and scalar types of buffers, arguments and operands, by their names in a trace.

The names are those of PTX if PTX has the type (`e4m3` and `e5m2` are its 8-bit floats). `bool` is
one byte, 0 or 1; `c64` and `c128` are pairs of `f32` and `f64`. Other types are bytes: `b8`.
"""

from __future__ import annotations

import enum

_BYTES = {
    **dict.fromkeys(("u8", "s8", "b8", "e4m3", "e5m2", "bool"), 1),
    **dict.fromkeys(("u16", "s16", "b16", "f16", "bf16"), 2),
    **dict.fromkeys(("u32", "s32", "b32", "f32"), 4),
    **dict.fromkeys(("u64", "s64", "b64", "f64", "c64"), 8),
    **dict.fromkeys(("c128",), 16),
}
_FLOATS = frozenset(("f16", "bf16", "f32", "f64", "e4m3", "e5m2"))
_BITS = frozenset(("b8", "b16", "b32", "b64"))


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

    def __init__(self, text: str) -> None:
        self.bytes: int = _BYTES[text]
        """Bytes of one element."""
        self.is_float: bool = text in _FLOATS
        """Whether an element is one floating-point number."""
        self.is_signed: bool = text.startswith("s")
        """Whether an element is a signed integer."""
        self.is_bits: bool = text in _BITS
        """Whether an element is untyped bits."""
