"""Steps that take the same time because they differ only in the places of their buffers.

In: a program, its graph and the variant of every step. Out: a key per step; steps with equal keys
are measured once. A key has the code, the sizes of the launch, every number among its arguments,
and the size, type, shape, role and argument position of every buffer. The duration of a kernel also
depends on integers in memory (lengths, positions, indices). For buffers that are read and do not
hold floats, the key therefore also has the identity of the buffer and of the step that wrote it
last.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import assert_never

from tessera.ir.graph.graph import KernelGraph
from tessera.ir.program.program import (
    Argument,
    Buffer,
    BufferId,
    ByValue,
    Launch,
    LibraryCall,
    Memcpy,
    Memset,
    Operand,
    Pointer,
    Program,
    Scalar,
    Work,
    for_arch,
)


def step_keys(program: Program, graph: KernelGraph, arches: Sequence[str]) -> tuple[Hashable, ...]:
    """A key per step; steps with equal keys take equal times."""
    keys = []
    writer: dict[BufferId, int] = {}
    for step, arch in zip(program.work(), arches, strict=True):
        accesses = graph.nodes[step.id].accesses
        read = {access.buffer for access in accesses if access.kind.reads}
        deciding = sorted(b for b in read if not _holds_floats(program.buffers[b]))
        contents = tuple((buffer, writer.get(buffer, -1)) for buffer in deciding)
        keys.append((_AlikeKey(program).of(step, arch), contents))
        writer |= {access.buffer: int(step.id) for access in accesses if access.kind.writes}
    return tuple(keys)


def _holds_floats(buffer: Buffer) -> bool:
    return buffer.dtype is not None and buffer.dtype.is_float


class _AlikeKey:
    """Builds the key of one step; buffers are numbered in the order in which it names them."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._numbers: dict[BufferId, int] = {}

    def of(self, step: Work, arch: str) -> Hashable:
        match step:
            case Launch():
                launch = for_arch(step, arch)
                variant = self._program.modules[step.module].variant(arch)
                return (
                    "" if variant is None else variant.text,
                    launch.kernel,
                    (launch.grid, launch.block, launch.cluster, launch.shared_bytes),
                    launch.cooperative,
                    tuple(self._argument(argument) for argument in launch.arguments),
                )
            case Memset():
                return step.bytes, step.value, step.element_bytes, self._pointer(step.target)
            case Memcpy():
                return step.bytes, self._pointer(step.target), self._pointer(step.source)
            case LibraryCall():
                operands = tuple(self._operands((*step.reads, *step.writes)))
                return step.operator, step.attributes, len(step.reads), operands
            case _:
                assert_never(step)

    def _argument(self, argument: Argument) -> Hashable:
        match argument:
            case Pointer():
                return self._pointer(argument)
            case Scalar():
                return argument
            case ByValue():
                words = tuple((w.offset, self._pointer(w.target)) for w in argument.pointers)
                return argument.content, words
            case _:
                assert_never(argument)

    def _operands(self, operands: Sequence[Operand]) -> Iterator[Hashable]:
        for operand in operands:
            strides = operand.element_strides()
            yield self._pointer(operand.pointer), operand.dtype, operand.shape, strides

    def _pointer(self, pointer: Pointer) -> Hashable:
        number = self._numbers.setdefault(pointer.buffer, len(self._numbers))
        buffer = self._program.buffers[pointer.buffer]
        kind = (buffer.bytes, buffer.dtype, buffer.shape, buffer.role)
        return number, pointer.offset, kind
