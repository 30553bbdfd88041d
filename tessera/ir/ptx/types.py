"""Widths of the PTX types, and the state spaces as modifiers spell them.

Source: PTX ISA 9.0, sections 5.1 (state spaces), 5.2 (types), 5.2.3 (alternate formats).
"""

from __future__ import annotations

_TYPES_BY_BITS = {
    1: "b1 u1 pred",
    2: "u2 s2",
    4: "b4 s4 u4 e2m1",
    8: "b8 s8 u8 e4m3 e5m2 e3m2 e2m3 e2m1x2 ue8m0 ue4m3 ue5m3",
    16: "b16 s16 u16 f16 bf16 s8x2 u8x2 e4m3x2 e5m2x2 e3m2x2 e2m3x2 e2m1x4 ue8m0x2 ue5m3x2 s2f6x2",
    32: "b32 s32 u32 f32 f16x2 bf16x2 tf32 u16x2 s16x2 u8x4 s8x4 e4m3x4 e5m2x4 e3m2x4 e2m3x4",
    64: "b64 s64 u64 f64 f32x2 texref samplerref surfref",
    128: "b128",
}
_SCALAR_BITS = {name: bits for bits, names in _TYPES_BY_BITS.items() for name in names.split()}

VECTOR_COUNTS = {"v2": 2, "v4": 4, "v8": 8}

SPACES = frozenset(
    {
        "const",
        "global",
        "local",
        "param",
        "param::entry",
        "param::func",
        "shared",
        "shared::cta",
        "shared::cluster",
    }
)


def is_type(modifier: str) -> bool:
    """Whether a modifier (without its dot) names a type."""
    return modifier in _SCALAR_BITS


def is_float(type: str) -> bool:
    """Whether a type is a floating-point type, including packed types."""
    return type.startswith(("f", "bf", "tf", "e", "ue"))


def type_bits(type: str) -> int:
    """Bits of one value of a type (`f16x2` is one value); KeyError if it is not a type."""
    return _SCALAR_BITS[type.removeprefix(".")]


def type_width(type: str) -> int:
    """Bytes that one value of a type takes in memory; KeyError if it is not a type."""
    return (type_bits(type) + 7) // 8


def state_space(modifier: str) -> str | None:
    """The state space that a modifier names; a constant bank (`const[2]`) is `const`."""
    if modifier in SPACES:
        return modifier
    return "const" if modifier.startswith("const[") else None
