"""Kernel parameters: the bytes of every argument, laid out as the driver wants to read them.

In: the arguments of a launch and where buffers are. Out: the address of an array of pointers, one
per argument, and what must stay alive behind it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import assert_never

from tessera.backend.cuda.call_structures import LaunchParameters, pack
from tessera.ir.program.program import Argument, ByValue, Pointer, Scalar

AddressOf = Callable[[Pointer], int]


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
    return pack([struct.pack("<Q", word) for word in words])


def pack_parameters(arguments: Sequence[Argument], address_of: AddressOf) -> LaunchParameters:
    """The parameters of a launch."""
    return pack([argument_bytes(argument, address_of) for argument in arguments])
