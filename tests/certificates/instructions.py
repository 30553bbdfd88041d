"""Integer instructions on exact numbers, for the checker of certificates.

In: an instruction and the values of its operands. Out: the value of its result. Written from the
text of the PTX ISA (sections 9.7.1 to 9.7.9); shares nothing with `tessera`. A result that is not
worked out here has no value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.certificates.ptx_reader import Instruction

Words = NDArray[np.uint64]
Flags = NDArray[np.bool_]
U = np.uint64
_COMPARISONS = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "lo": np.less, "ls": np.less_equal, "hi": np.greater,
    "hs": np.greater_equal,
}  # fmt: skip
_PLAIN: dict[str, Callable[[Words, Words], Words]] = {
    "add": np.add,
    "sub": np.subtract,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


class Value(NamedTuple):
    """A number, or an offset in a buffer, modulo 2**width; per thread."""

    buffer: str | None
    bits: Words


def number(value: int) -> Value:
    """The same number for all threads."""
    return Value(None, np.full((1, 1), value % 2**64, U))


def low(bits: Words, width: int) -> Words:
    """The low bits of a number."""
    return bits if width == 64 else bits & U(2**width - 1)


def signed(bits: Words, width: int) -> NDArray[np.int64]:
    """The number that bits stand for in two's complement."""
    return (bits << U(64 - width)).view(np.int64) >> np.int64(64 - width)


def computed(instruction: Instruction, values: list[Value], here: Flags) -> Value | None:
    """The result of an instruction for the threads that are here; None if it is not known."""
    name, parts, types = instruction.opcode, instruction.parts, instruction.types
    if name == "cvta":
        return values[0] if "global" in parts and len(values) == 1 else None
    if not types or any(kind[0] == "f" for kind in types) or {"cc", "sat"} & set(parts):
        return None
    if name == "mov":
        return values[0] if len(values) == 1 else None
    if name == "selp" and values[0].buffer == values[1].buffer and values[2].buffer is None:
        chosen = np.where(values[2].bits != 0, values[0].bits, values[1].bits)
        return Value(values[0].buffer, chosen)
    buffers = [value.buffer for value in values]
    words = [value.bits for value in values]
    if any(buffers):
        return _moved(instruction, buffers, words)
    kind = types[-1]
    width = 1 if kind == "pred" else int(kind[1:])
    found = _number(instruction, kind, width, words, here)
    return None if found is None else Value(None, found)


def _moved(instruction: Instruction, buffers: list[str | None], words: list[Words]) -> Value | None:
    """Sums and differences of 64 bits with a place in a buffer."""
    name, parts, kind = instruction.opcode, instruction.parts, instruction.types[-1]
    if name == "add" and kind[1:] == "64" and buffers.count(None) == 1:
        return Value(buffers[0] or buffers[1], words[0] + words[1])
    if name == "sub" and kind[1:] == "64" and buffers[1] in (None, buffers[0]):
        return Value(None if buffers[1] else buffers[0], words[0] - words[1])
    is_wide = ("lo" if kind[1:] == "64" else "wide") in parts and kind[1:] in ("32", "64")
    if name == "mad" and is_wide and buffers[:2] == [None, None]:
        product = _product(parts, kind, words[0], words[1])
        return None if product is None else Value(buffers[2], product + words[2])
    return None


def _number(
    instruction: Instruction, kind: str, width: int, words: list[Words], here: Flags
) -> Words | None:
    name, parts, a = instruction.opcode, instruction.parts, words[0]
    match name, len(words):
        case "add" | "sub" | "and" | "or" | "xor", 2:
            return low(_PLAIN[name](a, words[1]), width)
        case "neg", 1:
            return low(U(0) - a, width)
        case "not", 1:
            return low(~a, width)
        case "setp", 2 if len(parts) == 2 and parts[0] in _COMPARISONS:
            x, y = _read(kind, a, words[1])
            return _COMPARISONS[parts[0]](x, y).astype(U)
        case "mul", 2:
            return _product(parts, kind, a, words[1])
        case "mad", 3:
            product = _product(parts, kind, a, words[1])
            total = 2 * width if "wide" in parts else width
            return None if product is None else low(product + words[2], total)
        case "cvt", 1 if len(parts) == len(instruction.types) == 2:
            # Cut to the source's type and to the target's, each time extended by its sign.
            (bits,) = _read(kind, a)
            (wide,) = _read(instruction.types[0], bits.view(U))
            return wide.view(U)
        case "shl" | "shr", 2:
            return _shifted(name, kind, a, low(words[1], 32))
        case "bfe", 3:
            return _field(kind, low(a, width), words[1] & U(255), words[2] & U(255))
        case "min" | "max", 2:
            x, y = _read(kind, a, words[1])
            return low((np.minimum if name == "min" else np.maximum)(x, y).view(U), width)
        case "div" | "rem", 2:
            return _divided(name, kind, a, words[1], here)
    return None


def _read(kind: str, *words: Words) -> list[NDArray[np.generic]]:
    """Operands as the numbers of a type."""
    width = int(kind[1:])
    return [signed(w, width) if kind[0] == "s" else low(w, width) for w in words]


def _product(parts: tuple[str, ...], kind: str, a: Words, b: Words) -> Words | None:
    """`mul` and the product of `mad`: the low, high or all bits."""
    width = int(kind[1:])
    x, y = (read.view(U) for read in _read(kind, a, b))
    if "lo" in parts:
        return low(x * y, width)
    if width == 64:
        return None
    if "wide" in parts:
        return low(x * y, 2 * width)
    return low((x * y) >> U(width), width) if "hi" in parts else None


def _shifted(name: str, kind: str, value: Words, amount: Words) -> Words:
    """Shifts by a number without a sign; a shift by the width or more leaves nothing but signs."""
    width = int(kind[1:])
    by = np.minimum(amount, U(63))
    if name == "shr" and kind[0] == "s":
        return low((signed(value, width) >> by.astype(np.int64)).view(U), width)
    moved = value << by if name == "shl" else low(value, width) >> by
    return np.where(amount >= U(width), U(0), low(moved, width))


def _field(kind: str, value: Words, start: Words, length: Words) -> Words:
    """`bfe`: bits from a place on; those past the end are the field's sign, or 0."""
    width = int(kind[1:])
    last = np.minimum(start + length - U(1), U(width - 1))
    is_negative = (kind[0] == "s") & (length > 0) & ((value >> last) & U(1) == 1)
    result = np.zeros((1, 1), U)
    for i in range(width):
        at = start + U(i)
        inside = (U(i) < length) & (at < U(width))
        bit = np.where(inside, (value >> np.minimum(at, U(63))) & U(1), is_negative.astype(U))
        result = result | (bit << U(i))
    return result


def _divided(name: str, kind: str, a: Words, b: Words, here: Flags) -> Words | None:
    """`div` and `rem`: towards zero, the rest with the sign of the dividend."""
    width = int(kind[1:])
    x, y = _read(kind, a, b)
    least = -(2 ** (width - 1)) if kind[0] == "s" else 2**64 - 1
    odd = (y == 0) | (x == least) | (y == least)
    if (here & odd).any():
        return None
    y = np.where(odd, y.dtype.type(1), y)
    if kind[0] != "s":
        return x // y if name == "div" else x % y  # type: ignore[no-any-return,operator]
    quotient = np.where((x < 0) != (y < 0), -1, 1) * (np.abs(x) // np.abs(y))
    return low((quotient if name == "div" else x - quotient * y).view(U), width)
