"""Puts quantized weights into a trace: their sizes, their scales, and the products that read them.

In: a program of fused operators, and how its weights are quantized. Out: the program with the
weights of the checkpoint. A product with a quantized weight is `tessera::quantized_linear`; experts
and latent attention keep their operators, with narrower weights and scales among their operands. A
weight that anything else reads, too, keeps its type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from tessera.frontend.capture.meta.quantized import Quantization
from tessera.ir.program import program as ir
from tessera.ir.program.data_type import DataType

_WEIGHT_AT = {"aten::mm": 1, "aten::addmm": 2}
_STACKS = ("tessera::experts",)


def quantize(
    program: ir.Program, quantization: Quantization, is_layer: Callable[[str], bool]
) -> ir.Program:
    """The program with quantized weights of the layers that `is_layer` names."""
    calls = [step for step in program.steps if isinstance(step, ir.LibraryCall)]
    uses: dict[int, list[bool]] = {}
    for call in calls:
        places = set(_weights_at(call))
        for at, operand in enumerate(call.reads):
            uses.setdefault(int(operand.pointer.buffer), []).append(at in places)
    covered = [
        buffer
        for buffer in program.buffers
        if buffer.role is ir.Role.WEIGHT
        and is_layer(buffer.name)
        and quantization.covers(buffer.name)
        and all(uses.get(int(buffer.id), (False,)))
    ]
    if not covered:
        return program
    maker = _Quantizer(program, quantization, {int(buffer.id) for buffer in covered})
    steps = tuple(
        maker.step(step) if isinstance(step, ir.LibraryCall) else step for step in program.steps
    )
    return replace(program, buffers=tuple(maker.buffers), steps=steps)


def _weights_at(call: ir.LibraryCall) -> list[int]:
    """The places of weights among the operands that a call reads."""
    if call.operator in _WEIGHT_AT:
        return [_WEIGHT_AT[call.operator]]
    if call.operator == "tessera::merged_linear":
        return [at for at, o in enumerate(call.reads) if at and len(o.shape) == 2]
    if call.operator == "tessera::latent_attention":
        return [3]
    if call.operator in _STACKS:
        return [at for at, o in enumerate(call.reads) if len(o.shape) == 3]
    return []


class _Quantizer:
    """One program. Private and mutable."""

    def __init__(self, program: ir.Program, how: Quantization, covered: set[int]) -> None:
        self.how, self.covered = how, covered
        self.buffers = list(program.buffers)
        self._more: dict[int, tuple[ir.Operand, ...]] = {}

    def step(self, call: ir.LibraryCall) -> ir.LibraryCall:
        """A call with quantized weights."""
        places = [at for at in _weights_at(call) if self._is_covered(call.reads[at])]
        if not places:
            return call
        made = [self._weight(o) if at in places else (o,) for at, o in enumerate(call.reads)]
        if call.operator == "tessera::latent_attention":
            return replace(call, reads=tuple(some[0] for some in made))
        if call.operator in _STACKS:
            return replace(call, reads=tuple(operand for some in made for operand in some))
        if len(places) != len(_weights_at(call)):  # side by side with one that is not quantized
            kept = [self._weight(o)[0] if at in places else o for at, o in enumerate(call.reads)]
            return replace(call, reads=tuple(kept))
        first = 1 if call.operator == "aten::addmm" else 0
        rest = [some for at, some in enumerate(made) if at != first]
        if call.operator == "aten::addmm":
            rest = rest[::-1]  # the bias after the weight
        arithmetic = self.how.arithmetic or call.reads[first].dtype
        return replace(
            call,
            operator="tessera::quantized_linear",
            reads=(call.reads[first], *(operand for some in rest for operand in some)),
            attributes=(("arithmetic", arithmetic.value),),
        )

    def _is_covered(self, operand: ir.Operand) -> bool:
        return int(operand.pointer.buffer) in self.covered

    def _weight(self, operand: ir.Operand) -> tuple[ir.Operand, ...]:
        """The narrow weight, its scales and its zeros."""
        number = int(operand.pointer.buffer)
        if number not in self._more:
            self._more[number] = self._side_tensors(operand)
            self.buffers[number] = self._narrow_buffer(self.buffers[number])
        return (self._narrow(operand), *self._more[number])

    def _narrow_buffer(self, buffer: ir.Buffer) -> ir.Buffer:
        width = buffer.dtype.bytes if buffer.dtype else 2
        size = buffer.bytes // width * self.how.bits // 8
        shape = buffer.shape
        if shape and self.how.bits == 4:
            shape = (*shape[:-1], shape[-1] // 2)
        if shape is not None and prod(shape) != size:
            shape = None
        return replace(buffer, bytes=size, dtype=self.how.kind, shape=shape)

    def _narrow(self, operand: ir.Operand) -> ir.Operand:
        """The operand in the narrow type; of 4 bits, two elements that lie together are one."""
        strides = operand.element_strides()
        offset = operand.pointer.offset // operand.dtype.bytes * self.how.bits // 8
        shape = operand.shape
        if self.how.bits == 4:
            at = strides.index(1)
            shape = (*shape[:at], shape[at] // 2, *shape[at + 1 :])
            strides = tuple(1 if step == 1 else step // 2 for step in strides)
        pointer = ir.Pointer(operand.pointer.buffer, offset)
        return replace(operand, pointer=pointer, dtype=self.how.kind, shape=shape, strides=strides)

    def _side_tensors(self, operand: ir.Operand) -> tuple[ir.Operand, ...]:
        *stack, inputs, results = operand.shape
        groups = -(-inputs // self.how.group) if self.how.group else 1
        rows = -(-results // self.how.rows) if self.how.rows else 1
        name = self.buffers[operand.pointer.buffer].name
        made = [self._added(f"{name}{self.how.scale_name}", self.how.scale, (*stack, groups, rows))]
        if self.how.zeros:
            zeros = (*stack, groups, -(-results * self.how.bits // 8))
            made.append(self._added(f"{name}_zeros", DataType.U8, zeros))
        return tuple(made)

    def _added(self, name: str, dtype: DataType, shape: tuple[int, ...]) -> ir.Operand:
        number = ir.BufferId(len(self.buffers))
        size = prod(shape) * dtype.bytes
        self.buffers.append(
            ir.Buffer(
                id=number, name=name, bytes=size, role=ir.Role.WEIGHT, dtype=dtype, shape=shape
            )
        )
        return ir.Operand(pointer=ir.Pointer(number), dtype=dtype, shape=shape)
