"""`op` records through PyTorch, on the stream of a device.

In: a library call and where its operands are. Out: a function that hands it over. The operator is
one of the checked-in table, whose names are PyTorch's; its arguments are matched by name with the
schema that PyTorch has for it. Tensors are views of device memory: nothing is copied, but for
operators that make their result themselves. PyTorch chooses the library and its algorithm as for
the whole GPU, also on a slice, so that results do not depend on where a step runs; where it makes
no difference to them, the library is told the SMs of the slice (`library_calls`).

A call may be made while its stream is captured: then memory that it wants for itself is memory that
nobody else has. Otherwise that comes from PyTorch's allocator, which keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import nullcontext
from typing import Any

from tessera.backend.cuda.api import DriverError, Handle
from tessera.backend.cuda.faults import missing
from tessera.backend.cuda.library_calls import first_run, make_memory, own_memory, told_sms
from tessera.backend.cuda.parameters import AddressOf
from tessera.backend.service import ServiceFault
from tessera.diagnostics import error
from tessera.ir.operators.records import AttributeKind
from tessera.ir.operators.table import Bound, OperatorMismatch, bind
from tessera.ir.program.program import AttributeValue, BufferId, LibraryCall, Operand

_TYPES = {
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "s8": "int8",
    "s16": "int16",
    "s32": "int32",
    "s64": "int64",
    "b8": "uint8",
    "b16": "int16",
    "b32": "int32",
    "b64": "int64",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "bool": "bool",
    "c64": "complex64",
    "c128": "complex128",
}
_FLOATS = ("f16", "bf16", "f32", "f64", "e4m3", "e5m2")


class _TorchMemory:
    """Device memory as PyTorch takes it from others."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


class OperatorRefused(DriverError):
    """A call that PyTorch refused, or could not make while its stream was captured."""


# By what tells calls apart: the SMs to tell the library, once it has been called.
_TRIED: dict[object, int | None] = {}


def prepare_call(
    call: LibraryCall,
    address_of: AddressOf,
    ordinal: int,
    stream: Handle,
    *,
    sms: int | None = None,
    scratch: Collection[BufferId] = (),
) -> Callable[[], tuple[int]]:
    """A function that hands the call over; it raises `OperatorRefused` where PyTorch refuses it.

    `sms` are those of a slice. `scratch` are buffers that hold nothing that is needed: a call that
    writes only these, and reads no indices, is made once, before it is captured.
    """
    torch = _torch(call)
    try:
        bound = bind(call)
    except OperatorMismatch as reason:
        diagnostic = error("TSR5001", f"`{call.operator}` cannot be called: {reason}", call.span)
        raise ServiceFault(diagnostic, step=call.id, name=call.operator) from None
    if not call.operator.startswith("aten::"):
        diagnostic = error(
            "TSR5001",
            f"`{call.operator}` has no kernel and is no operator of PyTorch: it cannot run",
            call.span,
            hint="trace the model on a GPU, or with `--no-fuse`, where operators are PyTorch's",
        )
        raise ServiceFault(diagnostic, step=call.id, name=call.operator)
    caller = _Caller(torch, address_of, ordinal)
    operator = caller.find(bound.operator.name)
    placed, named, results = caller.arguments(operator, bound, call)
    queue = torch.cuda.ExternalStream(int(stream), device=f"cuda:{ordinal}")
    make_memory(ordinal, stream, queue)

    def run(told: int | None) -> None:
        captured = torch.cuda.is_current_stream_capturing()
        memory = own_memory(ordinal, stream) if captured else nullcontext()
        with memory, told_sms(ordinal, told):
            made = operator(*placed, **named)
            if results:
                given = made if isinstance(made, tuple | list) else (made,)
                tensors = [argument for argument in given if isinstance(argument, torch.Tensor)]
                for target, value in zip(results, tensors, strict=False):
                    target.copy_(value)

    key = _kind_of(call, ordinal, sms)
    if key not in _TRIED and _may_try(call, scratch) and not bound.operator.is_in_place:
        reads, writes = ([caller.tensor(x) for x in some] for some in (call.reads, call.writes))
        noise = [x for x, at in zip(reads, call.reads, strict=True) if at.pointer.buffer in scratch]
        try:
            with torch.cuda.stream(queue), torch.no_grad():
                _TRIED[key] = first_run(ordinal, run, noise=noise, results=writes, sms=sms)
            queue.synchronize()
        except RuntimeError:
            _TRIED[key] = None  # what it is, the first request will say

    def hand_over() -> tuple[int]:
        try:
            with torch.cuda.stream(queue), torch.no_grad():
                run(_TRIED.get(key))
        except RuntimeError as problem:
            raise OperatorRefused(call.operator, 999, str(problem).splitlines()[0]) from None
        return (0,)

    return hand_over


def _may_try(call: LibraryCall, scratch: Collection[BufferId]) -> bool:
    """Whether a call does no harm, whatever memory holds: numbers in, and what it writes is
    written again before it is read."""
    return bool(scratch) and (
        all(operand.dtype.value in _FLOATS for operand in call.reads)
        and all(operand.pointer.buffer in scratch for operand in call.writes)
    )


def _kind_of(call: LibraryCall, ordinal: int, sms: int | None) -> object:
    operands = (
        (operand.dtype, operand.shape, operand.element_strides())
        for operand in (*call.reads, *call.writes)
    )
    return ordinal, sms, call.operator, tuple(operands), call.attributes


class _Caller:
    def __init__(self, torch: Any, address_of: AddressOf, ordinal: int) -> None:
        self.torch = torch
        self.address_of = address_of
        self.ordinal = ordinal

    def find(self, name: str) -> Any:
        """The operator of a name of the table: `aten::mm.out`."""
        base, _, overload = name.removeprefix("aten::").partition(".")
        return getattr(getattr(self.torch.ops.aten, base), overload or "default")

    def arguments(
        self, operator: Any, bound: Bound, call: LibraryCall
    ) -> tuple[list[Any], dict[str, Any], list[Any]]:
        """Arguments by place and by name, and tensors that results have to be copied to."""
        given = dict(call.attributes)
        kinds = {attribute.name: attribute.kind for attribute in bound.operator.attributes}
        results = [self.tensor(operand) for _, operand in bound.writes]
        outs = iter(results)
        named: dict[str, Any] = {}
        has_outs = False
        for argument in operator._schema.arguments:
            name = argument.name
            operands = bound.operands(name)
            if argument.is_out:
                named[name] = next(outs)
                has_outs = True
            elif operands:
                spec = next(spec for spec, _ in bound.reads if spec.name == name)
                tensors = [self.tensor(operand) for operand in operands]
                named[name] = tensors if spec.is_list else tensors[0]
            elif name in given and given[name] is not None:
                named[name] = self.value(given[name], kinds.get(name))
            elif not argument.has_default_value():
                named[name] = None
        placed: list[Any] = []
        for argument in operator._schema.arguments:
            if argument.kwarg_only or argument.name not in named:
                break
            placed.append(named.pop(argument.name))
        return placed, named, [] if has_outs or bound.operator.is_in_place else results

    def tensor(self, operand: Operand) -> Any:
        """A view of device memory."""
        kind = getattr(self.torch, _TYPES[operand.dtype.value])
        size = operand.extent_bytes()
        device = f"cuda:{self.ordinal}"
        if not size:
            return self.torch.empty(operand.shape, dtype=kind, device=device)
        memory = _TorchMemory(self.address_of(operand.pointer), size)
        raw = self.torch.as_tensor(memory, device=device)
        return raw.view(kind).as_strided(operand.shape, operand.element_strides())

    def value(self, value: AttributeValue, kind: AttributeKind | None) -> Any:
        """An attribute as PyTorch wants it."""
        if kind is AttributeKind.TYPE and isinstance(value, str):
            return getattr(self.torch, _TYPES.get(value, value))
        return list(value) if isinstance(value, tuple) else value


def _torch(call: LibraryCall) -> Any:
    try:
        import torch
    except ImportError:
        raise missing(
            "TSR5100",
            f"`{call.operator}` needs the package `torch`, which is not installed",
            hint="install `tessera-compiler[torch]`",
        ) from None
    return torch
