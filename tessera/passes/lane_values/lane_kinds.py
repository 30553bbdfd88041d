"""Kinds of values, by the addresses from which they are computed: none, one, or several.

Objects lie at multiples of 256, and nothing else is known of where they lie. The excerpt runs on
made-up addresses, so what it computes counts only as far as it does not depend on those. The kind
of a value says how it may:
- NUMBER: on no address. So are small distances in one object, and the low bits of addresses.
- POINTER: an address in an object plus a number, once.
- MIXED: a sum of addresses and their multiples; it may be one address, a distance, or nothing.
- LOW: bits of the above, of which the low 8 depend on no address: halves, bitwise operations.
- HARD: anything else that was computed from addresses.

An unknown value of a kind above POINTER may hide the distance from one object to another. It is no
index: an address that it was added to points anywhere.

Order: NUMBER < POINTER < MIXED < LOW < HARD. A sum, a product by a number and a selection of values
are of the greatest kind in them, with MIXED where addresses come together.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera.ir.ptx import syntax as ptx
from tessera.passes.lane_values.lanes import (
    HARD,
    LOW,
    MASK,
    MIXED,
    NUMBER,
    POINTER,
    Lanes,
    sum_kind,
)

TESTS = frozenset({"setp", "set", "min", "max"})
"""Instructions whose results depend on the order of their sources."""
_ALIGNMENT = 256
_BITWISE = frozenset({"and", "or", "xor", "not", "lop3"})
_NARROWS = frozenset({"b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "s32"})


def result_kind(opcode: ptx.Opcode, values: Sequence[Lanes], bits: int) -> int:
    """The kind of the result of an instruction that is not a test, of `bits` bits."""
    kinds = [value.kind for value in values]
    greatest = max(kinds)
    name, modifiers = opcode.name, opcode.modifiers
    if greatest == NUMBER:
        return NUMBER
    if name in {"mov", "cvta"}:
        return greatest
    if name == "selp":
        return max(kinds[:2])
    if name == "cvt":
        return _converted(greatest, modifiers)
    if name == "and" and _clears(values) is not None:
        return greatest if _clears(values) or greatest == HARD else NUMBER
    if name == "rem" and _keeps_low(values) and greatest < HARD:
        return NUMBER
    if name in _BITWISE:
        return max(greatest, LOW)
    return _arithmetic(name, modifiers, kinds, bits)


def _arithmetic(name: str, modifiers: tuple[str, ...], kinds: Sequence[int], bits: int) -> int:
    greatest = max(kinds)
    if name == "add":
        return sum_kind(kinds[0], kinds[1])
    if name == "sub":
        return sum_kind(kinds[0], negated(kinds[1]))
    if "hi" in modifiers or name not in {"mad", "mul", "neg", "shl"}:
        return HARD
    if name == "mad":
        return sum_kind(_product(kinds[:2]), kinds[2])
    if name in {"mul", "shl"}:
        return _product(kinds)
    return negated(greatest)


def negated(kind: int) -> int:
    """The kind of a negated value."""
    return MIXED if kind == POINTER else kind


def _product(kinds: Sequence[int]) -> int:
    if not all(kinds):
        return negated(max(kinds))
    # The low bits of a product depend on the low bits of its factors only.
    return max(LOW, *kinds)


def _converted(kind: int, modifiers: tuple[str, ...]) -> int:
    if kind in (POINTER, MIXED) and any(m in _NARROWS for m in modifiers):
        return LOW
    return kind


def _clears(values: Sequence[Lanes]) -> bool | None:
    """Of `and` with a number: True where it clears low bits only, which moves an address in its
    object, False where it leaves only low bits, None for anything else."""
    masks = [value for value in values if value.kind == NUMBER and value.span is None]
    if len(masks) != 1:
        return None
    low, high = masks[0].bounds()
    if high < _ALIGNMENT:
        return False
    return True if low >= MASK[64] - _ALIGNMENT + 1 else None


def _keeps_low(values: Sequence[Lanes]) -> bool:
    """Whether the second is a power of two that divides the alignment of objects."""
    divisor = values[1]
    if divisor.kind or divisor.span is not None:
        return False
    low, high = divisor.bounds()
    return low == high and 0 < low <= _ALIGNMENT and low & (low - 1) == 0
