"""The scalar and SIMD video instructions, such as `vadd`, `vset`, `vadd2` and `vset4`.

Operands are bytes, half-words or words selected from 32-bit registers, extended to more bits than
any result needs. The result is clamped or truncated to the destination and merged into it.

Source: PTX ISA, video instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tessera.backend.ptx_executor.numerics.bits import Bits, Operand, bits, signed

Wide = NDArray[np.int64]

_SELECT = {f"b{i}": (8, 8 * i) for i in range(4)} | {f"h{i}": (16, 16 * i) for i in range(2)}


def _pick(t: str, value: Operand, selector: str | None) -> Wide:
    """A selected part of a register, extended by the signedness of `t`."""
    size, low = (32, 0) if selector is None else _selection(selector)
    field = (bits(32, value) >> np.uint32(low)) << np.uint32(32 - size)
    if t[0] == "s":
        return (signed(field) >> np.int32(32 - size)).astype(np.int64)
    return (field >> np.uint32(32 - size)).astype(np.int64)


def _selection(selector: str) -> tuple[int, int]:
    try:
        return _SELECT[selector]
    except KeyError:
        raise NotImplementedError(f"video selector .{selector} does not exist") from None


def _bounds(t: str, size: int) -> tuple[int, int]:
    return (-(1 << (size - 1)), (1 << (size - 1)) - 1) if t[0] == "s" else (0, (1 << size) - 1)


def _clamp(dt: str, value: Wide, size: int) -> Wide:
    return np.clip(value, *_bounds(dt, size))


def _average(x: Wide, y: Wide) -> Wide:
    """The average, rounded away from zero."""
    total = x + y
    return np.where(total >= 0, (total + 1) >> 1, -((1 - total) >> 1))


_OPERATIONS: dict[str, Callable[[Wide, Wide], Wide]] = {
    "vadd": np.add,
    "vsub": np.subtract,
    "vabsdiff": lambda x, y: np.abs(x - y),
    "vmin": np.minimum,
    "vmax": np.maximum,
    "vavrg": _average,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _operate(op: str, x: Wide, y: Wide) -> Wide:
    """The result of an operation; a comparison of `vset` gives 1 or 0."""
    if op not in _OPERATIONS:
        raise NotImplementedError(f"video operation {op} does not exist")
    return _OPERATIONS[op](x, y).astype(np.int64, copy=False)


def _shift(op: str, x: Wide, y: Wide, mode: str | None) -> Wide:
    amount = y & 31 if mode == "wrap" else np.clip(y, 0, 32)
    if op == "vshr":
        return x >> amount
    # Video instructions use signed 34-bit values: bits that a shift moves beyond them are lost.
    return (x << amount) << 30 >> 30


def _merge(dt: str, value: Wide, c: Operand | None, op2: str | None, dsel: str | None) -> Bits:
    """The second stage: accumulate with c, or place the result into part of c."""
    low = (value & 0xFFFFFFFF).astype(np.uint32)
    if c is None:
        return low
    third = bits(32, c)
    if dsel is not None:
        size, position = _selection(dsel)
        mask = np.uint32(((1 << size) - 1) << position)
        return (third & ~mask) | ((low << np.uint32(position)) & mask)
    if op2 == "add":
        return low + third
    other = _pick(dt, third, None)
    own = _pick(dt, low, None)
    if op2 == "min":
        return (np.minimum(own, other) & 0xFFFFFFFF).astype(np.uint32)
    if op2 == "max":
        return (np.maximum(own, other) & 0xFFFFFFFF).astype(np.uint32)
    raise NotImplementedError(f"video second operation .{op2} does not exist")


def scalar(
    op: str,
    dt: str,
    at: str,
    bt: str,
    a: Operand,
    b: Operand,
    *,
    asel: str | None = None,
    bsel: str | None = None,
    sat: bool = False,
    mode: str | None = None,
    op2: str | None = None,
    dsel: str | None = None,
    c: Operand | None = None,
) -> Bits:
    """`vadd`, `vsub`, `vabsdiff`, `vmin`, `vmax`, `vshl`, `vshr`; `vset` by its comparison."""
    x, y = _pick(at, a, asel), _pick(bt, b, bsel)
    value = _shift(op, x, y, mode) if op in ("vshl", "vshr") else _operate(op, x, y)
    if sat:
        size = 32 if dsel is None else _selection(dsel)[0]
        value = _clamp(dt, value, size)
    return _merge(dt, value, c, op2, dsel)


def vmad(
    dt: str,
    at: str,
    bt: str,
    a: Operand,
    b: Operand,
    c: Operand,
    *,
    asel: str | None = None,
    bsel: str | None = None,
    negate: str | None = None,
    plus_one: bool = False,
    sat: bool = False,
    scale: str | None = None,
) -> Bits:
    """`vmad`: a * b + c with `-` on an operand or `.po`, shifted right, saturated."""
    product = _pick(at, a, asel) * _pick(bt, b, bsel)
    # The types of a and b, and negation, decide whether c and the result are signed; dt does not.
    is_signed = "s32" in (at, bt) or negate in ("a", "b")
    third = _pick("s32" if is_signed else "u32", c, None)
    if negate in ("a", "b"):
        product = -product
    elif negate == "c":
        third = -third
    total = product + third + (1 if plus_one else 0)
    shift = {None: 0, "shr7": 7, "shr15": 15}[scale]
    total = total >> shift
    if sat:
        total = _clamp("s32" if is_signed or negate == "c" else "u32", total, 32)
    return (total & 0xFFFFFFFF).astype(np.uint32)


def _lane(t: str, pair: Sequence[Bits], lanes: int, selector: int) -> Wide:
    """Lane number `selector` of the registers {a, b}, extended."""
    register, index = divmod(selector, lanes)
    name = f"{'h' if lanes == 2 else 'b'}{index}"
    return _pick(t, pair[register], name)


def _selectors(selector: str | None, lanes: int, second: bool) -> list[int]:
    """The lane numbers of `.h10` or `.b7654`, lowest lane first; b's own lanes by default."""
    if selector is None:
        return [index + (lanes if second else 0) for index in range(lanes)]
    digits = selector[1:]
    if selector[0] not in "hb" or len(digits) != lanes or not digits.isdigit():
        raise NotImplementedError(f"video selector .{selector} does not exist")
    return [int(digit) for digit in reversed(digits)]


def _mask(mask: str | None, lanes: int) -> list[bool]:
    """Flags of the lanes that a mask (`.h0`, `.b310`) writes; all by default."""
    if mask is None:
        return [True] * lanes
    return [str(index) in mask[1:] for index in range(lanes)]


def simd(
    op: str,
    dt: str,
    at: str,
    bt: str,
    a: Operand,
    b: Operand,
    c: Operand,
    *,
    lanes: int,
    mask: str | None = None,
    asel: str | None = None,
    bsel: str | None = None,
    sat: bool = False,
    add: bool = False,
) -> Bits:
    """`vadd2`, `vset4` and so on: results replace lanes of c, or are added to c with `.add`."""
    size = 32 // lanes
    pair = np.broadcast_arrays(bits(32, a), bits(32, b))
    firsts, seconds = _selectors(asel, lanes, False), _selectors(bsel, lanes, True)
    result = bits(32, c)
    field = (1 << size) - 1
    for index, writes in enumerate(_mask(mask, lanes)):
        if not writes:
            continue
        x, y = _lane(at, pair, lanes, firsts[index]), _lane(bt, pair, lanes, seconds[index])
        value = _operate(op, x, y)
        value = _clamp(dt, value, size) if sat else value
        if add:
            # The lane's result is added to c with all its bits.
            result = result + (value & 0xFFFFFFFF).astype(np.uint32)
        else:
            position = np.uint32(size * index)
            cleared = result & ~np.uint32(field << (size * index))
            result = cleared | ((value & field).astype(np.uint32) << position)
    return result
