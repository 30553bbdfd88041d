"""Widths of the PTX types, and the state spaces as modifiers spell them.

Source: PTX ISA 9.0, sections 5.1 (state spaces), 5.2 (types), 5.2.3 (alternate formats).
"""

from __future__ import annotations

_SCALAR_BITS = {
    **{f"{letter}{bits}": bits for letter in "bsu" for bits in (8, 16, 32, 64)},
    "b1": 1,
    "u1": 1,
    "b4": 4,
    "s4": 4,
    "u4": 4,
    "u2": 2,
    "s2": 2,
    "b128": 128,
    "f16": 16,
    "f32": 32,
    "f64": 64,
    "f16x2": 32,
    "f32x2": 64,
    "bf16": 16,
    "bf16x2": 32,
    "tf32": 32,
    "u16x2": 32,
    "s16x2": 32,
    "u8x4": 32,
    "s8x4": 32,
    "s8x2": 16,
    "u8x2": 16,
    "e4m3": 8,
    "e5m2": 8,
    "e3m2": 8,
    "e2m3": 8,
    "e2m1": 4,
    "e4m3x2": 16,
    "e5m2x2": 16,
    "e3m2x2": 16,
    "e2m3x2": 16,
    "e2m1x2": 8,
    "e4m3x4": 32,
    "e5m2x4": 32,
    "e3m2x4": 32,
    "e2m3x4": 32,
    "e2m1x4": 16,
    "ue8m0": 8,
    "ue4m3": 8,
    "ue8m0x2": 16,
    "ue5m3": 8,
    "ue5m3x2": 16,
    "s2f6x2": 16,
    "pred": 1,
    "texref": 64,
    "samplerref": 64,
    "surfref": 64,
}

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
    """Whether a type is a floating-point one, packed ones included."""
    return type.startswith(("f", "bf", "tf", "e", "ue"))


def type_bits(type: str) -> int:
    """Bits of one value of a type (`f16x2` is one value); KeyError for what is no type."""
    return _SCALAR_BITS[type.removeprefix(".")]


def type_width(type: str) -> int:
    """Bytes that one value of a type takes in memory; KeyError for what is no type."""
    return (type_bits(type) + 7) // 8


def state_space(modifier: str) -> str | None:
    """The state space that a modifier names; a constant bank (`const[2]`) is `const`."""
    if modifier in SPACES:
        return modifier
    return "const" if modifier.startswith("const[") else None
