"""`op` records through PyTorch, on the stream of a device.

In: a library call and the addresses of its operands. Out: a function that hands the call over. The
operator is in the checked-in table, which uses PyTorch's names; arguments are matched by name with
PyTorch's schema of the operator. Tensors are views of device memory: nothing is copied, except for
operators that allocate their own result. Even on a slice, PyTorch chooses the library and its
algorithm as for the whole GPU, so that results do not depend on where a step runs. If the results
stay the same, the library is given the number of SMs of the slice.

A call may be made while its stream is captured, or not. If it is not captured, its temporary memory
comes from PyTorch's allocator, which keeps the memory. A captured call uses the same temporary
memory whenever the graph runs, so no other work may use that memory. Therefore everything that
libraries and operators allocate during capture, including cuBLAS's workspace, comes from a pool
that serves one stream only, whose work runs in order. Pools are never freed: a later stream may
have the same handle, and then finds the workspace that PyTorch still holds for it.

cuBLAS chooses how to compute a product by its number of SMs: that of the whole GPU, unless another
number is set (`told_sms`). Another choice may round differently. On a slice the number is therefore
set only if a trial on random numbers gave the same bytes with and without it (`first_run`), so that
results do not depend on where a step runs.

Source: PyTorch 2.11 (`torch.cuda.MemPool`), cuBLAS 13 (`cublasSetSmCountTarget`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tessera.backend.cuda.api import DriverError, Handle
from tessera.backend.cuda.faults import missing
from tessera.backend.cuda.queued_work import AddressOf
from tessera.backend.service import ServiceFault
from tessera.diagnostics import error
from tessera.ir.operators.records import AttributeKind
from tessera.ir.operators.table import Bound, OperatorMismatch, bind
from tessera.ir.program.program import AttributeValue, BufferId, LibraryCall, Operand

if TYPE_CHECKING:
    import torch

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


class TorchMemory:
    """Device memory in the form that PyTorch imports."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


class OperatorRefused(DriverError):
    """A call that PyTorch refused, or could not make while its stream was captured."""


# By the key of a call that has been made: the number of SMs to set for the library.
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
    """A function that hands the call over; it raises `OperatorRefused` if PyTorch refuses it.

    `sms` is the number of SMs of a slice. `scratch` are buffers whose contents are not needed: a
    call that writes only such buffers, and reads no indices, is made once before it is captured.
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
            _TRIED[key] = None  # the first request reports the error

    def hand_over() -> tuple[int]:
        try:
            with torch.cuda.stream(queue), torch.no_grad():
                run(_TRIED.get(key))
        except RuntimeError as problem:
            raise OperatorRefused(call.operator, 999, str(problem).splitlines()[0]) from None
        return (0,)

    return hand_over


def _may_try(call: LibraryCall, scratch: Collection[BufferId]) -> bool:
    """Whether a call is harmless whatever memory holds.

    It reads only floats, and its results are overwritten before they are read.
    """
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
        """Arguments by position and by name, and the tensors that results have to be copied to."""
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
        memory = TorchMemory(self.address_of(operand.pointer), size)
        raw = self.torch.as_tensor(memory, device=device)
        return raw.view(kind).as_strided(operand.shape, operand.element_strides())

    def value(self, value: AttributeValue, kind: AttributeKind | None) -> Any:
        """An attribute in the form that PyTorch expects."""
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


# With fewer elements, bytes could be equal by chance.
_LEAST_TRIED = 1 << 14
_POOLS: dict[tuple[int, int], torch.cuda.MemPool] = {}


@contextmanager
def own_memory(ordinal: int, stream: Handle) -> Iterator[None]:
    """Let PyTorch allocate from the pool of a stream."""
    import torch

    with torch.cuda.use_mem_pool(_POOLS[ordinal, int(stream)], f"cuda:{ordinal}"):
        yield


def make_memory(ordinal: int, stream: Handle, queue: torch.cuda.ExternalStream) -> None:
    """Make the pool of a stream, with cuBLAS's workspace for it, unless it exists."""
    import torch

    key = ordinal, int(stream)
    if key in _POOLS:
        return
    device = f"cuda:{ordinal}"
    with torch.cuda.device(ordinal):
        _POOLS[key] = torch.cuda.MemPool()
        with torch.cuda.stream(queue), torch.no_grad(), own_memory(ordinal, stream):
            ones = torch.ones(16, 16, dtype=torch.bfloat16, device=device)
            torch.mm(ones, ones)
            torch.addmm(ones[0], ones, ones)
        queue.synchronize()


@contextmanager
def told_sms(ordinal: int, sms: int | None) -> Iterator[None]:
    """Set the number of SMs that cuBLAS assumes; None: that of the GPU."""
    if sms is None:
        yield
        return
    import torch

    whole = torch.cuda.get_device_properties(ordinal).multi_processor_count
    handle = torch.cuda.current_blas_handle()
    before = torch._C._get_sm_carveout_experimental()
    torch._C._set_sm_carveout_experimental(whole - sms)
    _tell(handle, sms)
    try:
        yield
    finally:
        _tell(handle, 0)
        torch._C._set_sm_carveout_experimental(before)


def _tell(handle: int, sms: int) -> None:
    setter = _cublas_setter()
    if setter is not None:
        setter(ctypes.c_void_p(handle), ctypes.c_int(sms))


@cache
def _cublas_setter() -> Callable[..., int] | None:
    """The function `cublasSetSmCountTarget` of the library that PyTorch has loaded."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        path = line.rpartition(" ")[2]
        if "/libcublas.so" in path:
            setter: Callable[..., int] | None = getattr(
                ctypes.CDLL(path), "cublasSetSmCountTarget", None
            )
            return setter
    return None


def first_run(
    ordinal: int,
    run: Callable[[int | None], None],
    *,
    noise: Sequence[torch.Tensor],
    results: Sequence[torch.Tensor],
    sms: int | None,
) -> int | None:
    """Make a call before it is captured, so that its code is loaded; returns the SMs for cuBLAS.

    `noise` are operands without contents: they are filled with random numbers for the trial.
    """
    import torch

    run(None)
    kinds = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
    numbers = sum(result.numel() for result in results)
    if sms is None or numbers < _LEAST_TRIED or any(x.dtype not in kinds for x in results):
        return None
    generator = torch.Generator(f"cuda:{ordinal}").manual_seed(0)
    for operand in noise:
        if operand.dtype in kinds:
            operand.normal_(generator=generator)
    run(None)
    plain = [result.clone() for result in results]
    run(sms)
    same = all(torch.equal(a, b) for a, b in zip(plain, results, strict=True))
    return sms if same else None
