"""Bits of a value that are known whatever the data: compilers write `+` and `%` as bit operations.

In: the known bits of the operands of an instruction. Out: the known bits of its result, as a mask
and their values. `shl` and `mul` by constants give low zeros, `and` keeps the bits that both
operands know, a bound gives high zeros, and a sum of values without common bits is their `or`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessera.ir.opcodes import is_type
from tessera.ir.ptx import syntax as ptx


@dataclass(frozen=True, slots=True)
class KnownBits:
    """`value` at the bits of `mask`; the other bits of `value` are zero."""

    mask: int
    value: int

    @property
    def low_zeros(self) -> int:
        """The number of lowest bits that are known to be zero."""
        zeros = self.mask & ~self.value
        return ((zeros + 1) & ~zeros).bit_length() - 1

    def join(self, other: KnownBits) -> KnownBits:
        """The bits that are known to be equal in both."""
        mask = self.mask & other.mask & ~(self.value ^ other.value)
        return KnownBits(mask, self.value & mask)


NOTHING = KnownBits(0, 0)


def constant_bits(value: int, bits: int) -> KnownBits:
    """All bits of a number."""
    mask = (1 << bits) - 1
    return KnownBits(mask, value & mask)


def bounded_bits(high: int, bits: int) -> KnownBits:
    """The high zeros of a value from 0 to `high`."""
    return KnownBits(((1 << bits) - 1) & ~((1 << high.bit_length()) - 1), 0)


def both(left: KnownBits, right: KnownBits) -> KnownBits:
    """The combination of two facts about one value."""
    return KnownBits(left.mask | right.mask, left.value | right.value)


def opcode_bits(opcode: ptx.Opcode, values: Sequence[KnownBits], bits: int) -> KnownBits:
    """The result of an instruction that writes a register of `bits` bits."""
    modifiers = set(opcode.modifiers)
    if {"hi", "sat", "cc"} & modifiers or ("wide" in modifiers and opcode.name != "mul"):
        return NOTHING
    types = [modifier for modifier in opcode.modifiers if is_type(modifier)]
    if opcode.name == "shr" and types and types[-1].startswith("s"):
        return NOTHING
    return result_bits(opcode.name, values, bits)


def result_bits(name: str, values: Sequence[KnownBits], bits: int) -> KnownBits:
    """The result of a plain operation on values of `bits` bits."""
    everything = (1 << bits) - 1
    if any(not 0 <= v.mask <= everything for v in values):
        values = [KnownBits(v.mask & everything, v.value & everything) for v in values]
    match name:
        case "mov" | "cvta":
            return values[0]
        case "and" | "or" | "xor":
            return _logic(name, values[0], values[1])
        case "not":
            return KnownBits(values[0].mask, ~values[0].value & values[0].mask)
        case "shl" | "shr":
            return _shift(name, values[0], values[1], bits)
        case "add" if _apart(values[0], values[1], everything):
            return _logic("or", values[0], values[1])
        case "add" | "sub":
            zeros = min(v.low_zeros for v in values[:2])
            return KnownBits((1 << min(zeros, bits)) - 1, 0)
        case "mul":
            zeros = min(values[0].low_zeros + values[1].low_zeros, bits)
            return KnownBits((1 << zeros) - 1, 0)
    return NOTHING


def _apart(left: KnownBits, right: KnownBits, everything: int) -> bool:
    """Whether no bit can be set in both, so that the sum has no carries."""
    may = [everything & ~value.mask | value.value for value in (left, right)]
    return may[0] & may[1] == 0


def _logic(name: str, left: KnownBits, right: KnownBits) -> KnownBits:
    ones = left.value, right.value
    zeros = left.mask & ~left.value, right.mask & ~right.value
    if name == "and":
        sure_ones, sure_zeros = ones[0] & ones[1], zeros[0] | zeros[1]
    elif name == "or":
        sure_ones, sure_zeros = ones[0] | ones[1], zeros[0] & zeros[1]
    else:
        mask = left.mask & right.mask
        return KnownBits(mask, (left.value ^ right.value) & mask)
    return KnownBits(sure_ones | sure_zeros, sure_ones)


def _shift(name: str, value: KnownBits, amount: KnownBits, bits: int) -> KnownBits:
    everything = (1 << bits) - 1
    if amount.mask & 0xFFFFFFFF != 0xFFFFFFFF:
        return NOTHING
    by = min(amount.value & 0xFFFFFFFF, bits)
    if name == "shl":
        low = (1 << by) - 1
        return KnownBits((value.mask << by | low) & everything, value.value << by & everything)
    high = everything & ~(everything >> by)
    return KnownBits(value.mask >> by | high, value.value >> by)
