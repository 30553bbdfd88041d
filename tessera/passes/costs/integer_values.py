"""Integer instructions on known values: what `count_work` follows a thread with.

In: the values of the sources, the modifiers, the width and sign of the type. Out: the value, or
None where it is not defined here. Floating-point values are never known.
"""

from __future__ import annotations

from collections.abc import Callable

from tessera.ir.opcodes.comparisons import COMPARISON_TESTS

Value = int | None
Operation = Callable[[list[int], tuple[str, ...], int, bool], Value]


def fit(value: int, bits: int, signed: bool) -> int:
    """The value as a register of so many bits holds it."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def _compare(values: list[int], modifiers: tuple[str, ...], bits: int, signed: bool) -> Value:
    left, right = (fit(value, bits, signed) for value in values[:2])
    test = COMPARISON_TESTS.get(modifiers[0])
    if test is None:
        return None
    holds = test(left, right)
    if len(values) > 2 and len(modifiers) > 2:
        joined = {"and": holds and values[2], "or": holds or values[2]}.get(modifiers[1])
        return None if joined is None else int(bool(joined))
    return int(holds)


def _multiply(values: list[int], modifiers: tuple[str, ...], bits: int, signed: bool) -> Value:
    left, right = (fit(value, bits, signed) for value in values[:2])
    product, width = left * right, bits
    if "wide" in modifiers:
        width = 2 * bits
    elif "hi" in modifiers:
        product >>= bits
    if len(values) > 2:
        product += values[2]
    return fit(product, width, signed)


def _divide(values: list[int], _: tuple[str, ...], bits: int, signed: bool) -> Value:
    left, right = (fit(value, bits, signed) for value in values[:2])
    if right == 0:
        return None
    quotient = abs(left) // abs(right)
    return fit(quotient if (left < 0) == (right < 0) else -quotient, bits, signed)


def _remainder(values: list[int], modifiers: tuple[str, ...], bits: int, signed: bool) -> Value:
    quotient = _divide(values, modifiers, bits, signed)
    if quotient is None:
        return None
    left, right = (fit(value, bits, signed) for value in values[:2])
    return fit(left - quotient * right, bits, signed)


def _field(values: list[int], _: tuple[str, ...], bits: int, signed: bool) -> Value:
    length = values[2] & 0xFF
    field = (values[0] & ((1 << bits) - 1)) >> (values[1] & 0xFF) & ((1 << length) - 1)
    return fit(field, length, signed) if length else 0


def _simple(rule: Callable[..., int]) -> Operation:
    def run(values: list[int], _: tuple[str, ...], bits: int, signed: bool) -> Value:
        return fit(rule(*(fit(value, bits, signed) for value in values)), bits, signed)

    return run


def _shift(values: list[int], modifiers: tuple[str, ...], bits: int, signed: bool) -> Value:
    amount = min(values[1] & 0xFFFFFFFF, bits)
    left = fit(values[0], bits, signed)
    return fit(left >> amount, bits, signed)


OPERATIONS: dict[str, Operation] = {
    "mov": _simple(lambda a: a),
    "cvt": _simple(lambda a: a),
    "cvta": _simple(lambda a: a),
    "add": _simple(lambda a, b: a + b),
    "sub": _simple(lambda a, b: a - b),
    "and": _simple(lambda a, b: a & b),
    "or": _simple(lambda a, b: a | b),
    "xor": _simple(lambda a, b: a ^ b),
    "not": _simple(lambda a: ~a),
    "neg": _simple(lambda a: -a),
    "abs": _simple(abs),
    "min": _simple(min),
    "max": _simple(max),
    "shl": _simple(lambda a, b: a << min(b & 0xFFFFFFFF, 64)),
    "shr": _shift,
    "mul": _multiply,
    "mad": _multiply,
    "div": _divide,
    "rem": _remainder,
    "setp": _compare,
    "selp": lambda v, _, bits, signed: fit(v[0] if v[2] & 1 else v[1], bits, signed),
    "bfe": _field,
}
