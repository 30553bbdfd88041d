"""Integer instructions as plain Python functions, with the rule that loops need of each.

In: an opcode. Out: a function of the bits of its sources, and a `LineRule`; None for opcodes left
to `integer_values`, which covers all opcodes and is slower. A test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from tessera.ir.opcodes import is_type, type_bits
from tessera.ir.ptx import syntax as ptx
from tessera.planning.prices.loop_forms import LineRule

Integers = Callable[..., int]

_PLAIN_MODIFIERS = frozenset({"lo", "wide", "uni", "and", "or", "xor"})
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_JOINS: dict[str, Callable[[int, int], int]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}


@cache
def plain_function(opcode: ptx.Opcode, count: int) -> tuple[Integers, LineRule] | None:
    """The function of an opcode with a number of sources, or None; division by 0 raises."""
    types = [m for m in opcode.modifiers if is_type(m)]
    if not types or any(t[0] not in "bsup" or not (t == "pred" or t[1:].isdigit()) for t in types):
        return None
    bits = 1 if types[-1] == "pred" else type_bits(types[-1])
    if bits > 64:
        return None
    is_signed = types[-1][0] == "s"
    rest = [m for m in opcode.modifiers if not is_type(m)]
    if opcode.name == "setp":
        return _comparison(rest, bits, is_signed, count)
    if any(m not in _PLAIN_MODIFIERS for m in rest):
        return None
    if opcode.name == "cvt":
        return _conversion(types, bits, is_signed) if len(types) == 2 and count == 1 else None
    if opcode.name in ("mul", "mad"):
        return _multiplication(opcode.name, rest, bits, is_signed, count)
    made = _SIMPLE.get((opcode.name, count))
    if made is None or (bits == 1 and opcode.name not in ("and", "or", "xor", "not", "mov")):
        return None
    kind, build = made
    return build(bits, is_signed), LineRule(kind, bits, bits, is_signed)


def _sign(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _comparison(
    rest: list[str], bits: int, is_signed: bool, count: int
) -> tuple[Integers, LineRule] | None:
    name = rest[0] if rest else ""
    if name in _UNSIGNED:
        name, is_signed = _UNSIGNED[name], False
    compare = _COMPARISONS.get(name)
    join = _JOINS.get(rest[1]) if len(rest) == 2 else None
    if compare is None or len(rest) > 2 or count != len(rest) + 1 or bool(join) != (count == 3):
        return None
    mask = (1 << bits) - 1

    def plain(a: int, b: int) -> int:
        if is_signed:
            return int(compare(_sign(a, bits), _sign(b, bits)))
        return int(compare(a & mask, b & mask))

    rule = LineRule("compare", bits, 1, is_signed, name)
    if join is None:
        return plain, rule
    return lambda a, b, p: join(plain(a, b), p & 1), rule


def _conversion(types: list[str], bits: int, is_signed: bool) -> tuple[Integers, LineRule] | None:
    if "pred" in types:
        return None
    wide = type_bits(types[0])
    mask, source = (1 << wide) - 1, (1 << bits) - 1
    rule = LineRule("line", bits, wide, is_signed)
    if is_signed:
        return lambda a: _sign(a, bits) & mask, rule
    return lambda a: a & source & mask, rule


def _multiplication(
    name: str, rest: list[str], bits: int, is_signed: bool, count: int
) -> tuple[Integers, LineRule] | None:
    if count != (2 if name == "mul" else 3) or rest not in (["lo"], ["wide"]):
        return None
    wide = bits if rest == ["lo"] else 2 * bits
    if wide > 64:
        return None
    mask, source = (1 << wide) - 1, (1 << bits) - 1

    def product(a: int, b: int) -> int:
        if is_signed:
            return _sign(a, bits) * _sign(b, bits)
        return (a & source) * (b & source)

    rule = LineRule("product", bits, wide, is_signed)
    if name == "mul":
        return lambda a, b: product(a, b) & mask, rule
    return lambda a, b, c: (product(a, b) + c) & mask, rule


def _wrapped(function: Integers) -> Callable[[int, bool], Integers]:
    def build(bits: int, is_signed: bool) -> Integers:
        mask = (1 << bits) - 1
        return lambda *given: function(*given) & mask

    return build


def _numbers(function: Integers) -> Callable[[int, bool], Integers]:
    """On the numbers that the bits stand for."""

    def build(bits: int, is_signed: bool) -> Integers:
        mask = (1 << bits) - 1
        if is_signed:
            return lambda a, b: function(_sign(a, bits), _sign(b, bits)) & mask
        return lambda a, b: function(a & mask, b & mask) & mask

    return build


def _left(bits: int, is_signed: bool) -> Integers:
    mask = (1 << bits) - 1
    return lambda a, b: 0 if b & 0xFFFFFFFF >= bits else (a << (b & 0xFFFFFFFF)) & mask


def _right(bits: int, is_signed: bool) -> Integers:
    mask = (1 << bits) - 1
    if is_signed:
        return lambda a, b: (_sign(a, bits) >> min(b & 0xFFFFFFFF, bits)) & mask
    return lambda a, b: (a & mask) >> min(b & 0xFFFFFFFF, bits)


def _quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _remainder(a: int, b: int) -> int:
    return a - b * _quotient(a, b)


def _select(bits: int, is_signed: bool) -> Integers:
    mask = (1 << bits) - 1
    return lambda a, b, p: (a if p & 1 else b) & mask


_SIMPLE: dict[tuple[str, int], tuple[str, Callable[[int, bool], Integers]]] = {
    ("add", 2): ("line", _wrapped(lambda a, b: a + b)),
    ("sub", 2): ("line", _wrapped(lambda a, b: a - b)),
    ("neg", 1): ("line", _wrapped(lambda a: -a)),
    ("mov", 1): ("line", _wrapped(lambda a: a)),
    ("not", 1): ("line", _wrapped(lambda a: ~a)),
    ("and", 2): ("mask", _wrapped(lambda a, b: a & b)),
    ("or", 2): ("join", _wrapped(lambda a, b: a | b)),
    ("xor", 2): ("join", _wrapped(lambda a, b: a ^ b)),
    ("shl", 2): ("left", _left),
    ("shr", 2): ("right", _right),
    ("selp", 3): ("choice", _select),
    ("min", 2): ("order", _numbers(min)),
    ("max", 2): ("order", _numbers(max)),
    ("div", 2): ("divide", _numbers(_quotient)),
    ("rem", 2): ("divide", _numbers(_remainder)),
}
