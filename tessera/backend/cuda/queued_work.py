"""Describes a step of a trace on a compute queue, for the backend and for emitted programs.

In: a step and the architecture of its code. Out: a record with everything resolved but addresses;
the parameters of a launch, once addresses are known; a name for messages. `enqueue` turns the
record into driver calls, `emit_python` into Python source.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

from tessera.backend.cuda.call_structures import LaunchParameters, pack
from tessera.ir.program.program import (
    Argument,
    ByValue,
    Launch,
    LaunchId,
    LibraryCall,
    Memcpy,
    Memset,
    ModuleId,
    Pointer,
    Scalar,
    Work,
    for_arch,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCall:
    """A kernel of a module in one variant, with its launch sizes and arguments."""

    step: LaunchId
    module: ModuleId
    arch: str
    launch: Launch

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """The arguments, in the order of the parameters."""
        return self.launch.arguments

    @property
    def is_plain(self) -> bool:
        """Whether `cuLaunchKernel` can launch it."""
        return self.launch.cluster is None and not self.launch.cooperative


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCall:
    """A memset: a run of equal elements."""

    target: Pointer
    value: int
    element_bytes: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyCall:
    """A copy of bytes from one buffer to another on the same device."""

    target: Pointer
    source: Pointer
    size: int


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """A call of a library operator."""

    call: LibraryCall


QueuedWork = KernelCall | SetCall | CopyCall | OperatorCall


def describe_step(step: Work, arch: str) -> QueuedWork:
    """The record of a step; `arch` matters for launches only."""
    match step:
        case Launch():
            launch = for_arch(step, arch)
            return KernelCall(step=step.id, module=step.module, arch=arch, launch=launch)
        case Memset():
            count = step.bytes // step.element_bytes
            return SetCall(
                target=step.target,
                value=step.value,
                element_bytes=step.element_bytes,
                count=count,
            )
        case Memcpy():
            return CopyCall(target=step.target, source=step.source, size=step.bytes)
        case LibraryCall():
            return OperatorCall(step)
        case _:
            assert_never(step)


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


def step_name(step: Work) -> str:
    """The name of a step in messages."""
    match step:
        case Launch():
            return step.kernel
        case LibraryCall():
            return step.operator
        case Memset():
            return "memset"
        case Memcpy():
            return "memcpy"
        case _:
            assert_never(step)
