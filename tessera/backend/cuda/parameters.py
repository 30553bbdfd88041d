"""Kernel parameters: the bytes of every argument, laid out as the driver wants to read them.

In: the arguments of a launch and where buffers are. Out: the address of an array of pointers, one
per argument, and what must stay alive behind it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np

from tessera.ir.program.program import Argument, ByValue, Pointer, Scalar

AddressOf = Callable[[Pointer], int]


@dataclass(frozen=True, slots=True)
class LaunchParameters:
    """`address` is what a launch is given; 0 for a kernel without parameters."""

    address: int
    kept: tuple[Any, ...]


def argument_bytes(argument: Argument, address_of: AddressOf) -> bytes:
    """The bytes that a kernel receives for an argument."""
    match argument:
        case Pointer():
            return struct.pack("<Q", address_of(argument))
        case Scalar():
            return argument.bits.to_bytes(argument.type.bytes, "little")
        case ByValue():
            content = bytearray(argument.content)
            for word in argument.pointers:
                content[word.offset : word.offset + 8] = struct.pack("<Q", address_of(word.target))
            return bytes(content)
        case _:
            assert_never(argument)


def pack_words(words: Sequence[int]) -> LaunchParameters:
    """The parameters of a kernel that takes 64-bit words only."""
    return _pack([struct.pack("<Q", word) for word in words])


def pack_parameters(arguments: Sequence[Argument], address_of: AddressOf) -> LaunchParameters:
    """The parameters of a launch."""
    return _pack([argument_bytes(argument, address_of) for argument in arguments])


def _pack(values: Sequence[bytes]) -> LaunchParameters:
    if not values:
        return LaunchParameters(0, ())
    # 16 bytes apart at least, so that every value is aligned as its type may want.
    starts = np.cumsum([0, *(-(-max(len(v), 1) // 16) * 16 for v in values)])
    block = np.zeros(int(starts[-1]), np.uint8)
    for start, value in zip(starts, values, strict=False):
        block[start : start + len(value)] = np.frombuffer(value, np.uint8)
    pointers = (block.ctypes.data + starts[:-1]).astype(np.uint64)
    return LaunchParameters(int(pointers.ctypes.data), (block, pointers))
