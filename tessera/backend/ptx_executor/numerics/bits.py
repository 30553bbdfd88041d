"""Registers as arrays of raw bits: coercion, signed views, halves, lanes of packed types.

A register is an unsigned array of 16, 32 or 64 bits per lane. Every operand passes through
`bits`, so the functions above this module also take Python integers and NumPy scalars. Scalars
become arrays of shape (1,): NumPy computes 0-d arrays as scalars, which are slower, immutable
and warn on wrap-around.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tessera.ir.arrays import Flags, Integers, Signed

# Unsigned integers whose width is known only at run time. NumPy's stubs type them as signed after a
# shift by a Python integer, so the type checker sees integers of either sign.
Bits = Integers
Numbers = NDArray[np.integer | np.floating]
Operand = Bits | int
T = TypeVar("T", bound=np.generic)

UNSIGNED: dict[int, np.dtype[np.unsignedinteger]] = {
    8: np.dtype(np.uint8),
    16: np.dtype(np.uint16),
    32: np.dtype(np.uint32),
    64: np.dtype(np.uint64),
}
SIGNED: dict[int, np.dtype[np.signedinteger]] = {
    8: np.dtype(np.int8),
    16: np.dtype(np.int16),
    32: np.dtype(np.int32),
    64: np.dtype(np.int64),
}
_LINE = 64  # bytes of a cache line
# Lanes per block of `blocked`.
BLOCK = 16384
INTEGER_TYPES: dict[str, tuple[int, bool]] = {
    f"{kind}{width}": (width, kind == "s") for width in (8, 16, 32, 64) for kind in "sub"
}


def integer_type(t: str) -> tuple[int, bool]:
    """Width and signedness of an integer or untyped PTX type."""
    try:
        return INTEGER_TYPES[t]
    except KeyError:
        raise NotImplementedError(f"integer type .{t} is not supported here") from None


def bits(width: int, value: Operand) -> Bits:
    """`value` as an unsigned array of `width` bits, at least 1-d; wider values are truncated."""
    dtype = UNSIGNED[width]
    if not isinstance(value, np.ndarray):
        return np.array([int(value) & ((1 << width) - 1)], dtype)
    if value.dtype != dtype:
        value = value.astype(dtype)
    return value if value.ndim else value.reshape(1)


def signed(value: Bits) -> Signed:
    """The same bits read as two's complement."""
    return value.view(SIGNED[value.dtype.itemsize * 8])


def unsigned(value: Numbers) -> Bits:
    """The bits of an array of signed integers or floats."""
    return value.view(UNSIGNED[value.dtype.itemsize * 8])


def typed(t: str, value: Operand) -> Integers:
    """`value` as an array of the signed or unsigned integer type `t`."""
    width, is_signed = integer_type(t)
    array = bits(width, value)
    return signed(array) if is_signed else array


def predicate(value: Flags | Operand) -> Flags:
    """A predicate as a bool array that is at least 1-d."""
    return np.atleast_1d(np.asarray(value, np.bool_))


def halves(value: Bits) -> tuple[Bits, Bits]:
    """The low and high half of each element, in the next narrower type."""
    half = value.dtype.itemsize * 4
    narrow = UNSIGNED[half]
    return value.astype(narrow), (value >> half).astype(narrow)


def join(low: Bits, high: Bits) -> Bits:
    """Elements of twice the width, from low and high halves."""
    half = low.dtype.itemsize * 8
    wide = UNSIGNED[2 * half]
    result: Bits = low.astype(wide) | (high.astype(wide) << half)
    return result


def packed(function: Callable[..., Bits], width: int, *operands: Operand) -> Bits:
    """Apply `function` to both halves of `width`-bit operands, and pack the two results.

    Contiguous operands of one shape are viewed as arrays of twice the length, without shifts.
    """
    arrays = [bits(width, value) for value in operands]
    narrow = UNSIGNED[width // 2]
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    lanes = [np.ascontiguousarray(array).view(narrow) for array in arrays]
    if all(array.shape == shape for array in arrays):
        return function(*lanes).view(UNSIGNED[width])
    pairs = [lane.reshape(*array.shape, 2) for lane, array in zip(lanes, arrays, strict=True)]
    result = np.ascontiguousarray(function(*pairs))
    return result.view(UNSIGNED[width]).reshape(shape)


def blocked(function: Callable[..., Bits], *operands: Numbers) -> Bits:
    """`function(*operands)` in blocks of lanes whose temporaries stay in the cache.

    Use it for functions with many passes: new memory for each temporary costs more than the
    arithmetic. The operands broadcast; the result has their common shape.
    """
    shape = np.broadcast_shapes(*(operand.shape for operand in operands))
    count = math.prod(shape)
    if count <= BLOCK:
        return function(*operands)
    flat = [
        operand.reshape(-1)
        if operand.shape == shape or operand.size == 1
        else np.broadcast_to(operand, shape).reshape(-1)
        for operand in operands
    ]
    parts = []
    for start in range(0, count, BLOCK):
        chunk = slice(start, start + BLOCK)
        parts.append(function(*(row if row.size == 1 else row[chunk] for row in flat)))
    return np.concatenate(parts).reshape(shape)


def select(p: Flags, a: Bits, b: Bits) -> Bits:
    """`a` where `p`, else `b`, for unsigned bits of one type.

    Multiplies by the predicate instead of branching on it: with lanes that disagree at random
    this takes an eighth of the time of `np.where`.
    """
    chosen: Bits = np.multiply(a ^ b, p)
    chosen ^= b
    return chosen


def aligned_empty(shape: tuple[int, ...], dtype: type[T] | np.dtype[T]) -> NDArray[T]:
    """Like `np.empty`, aligned to a cache line.

    A vector load that straddles two cache lines takes twice as long, and NumPy aligns to 16 bytes
    only. This pays off for memory that is used many times.
    """
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    raw = np.empty(size + _LINE, np.uint8)
    skip = -raw.__array_interface__["data"][0] % _LINE
    return raw[skip : skip + size].view(kind).reshape(shape)


def aligned_copy(values: NDArray[T]) -> NDArray[T]:
    """A contiguous copy, aligned to a cache line."""
    made = aligned_empty(values.shape, values.dtype)
    np.copyto(made, values)
    return made
