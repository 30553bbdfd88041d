"""What a call computes on the host: the contents that a captured call starts from, and its results.

In: a function that makes a callable and its inputs, and the buffers of the captured call. Out:
`HostBytes`: what inputs, weights and states hold before the call and after it, and what the call
returns, by the names of buffers. The model is made on the host (devices are taken out of its calls)
after PyTorch's generator was seeded, and called once, by PyTorch as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch._subclasses.fake_tensor import FakeTensor

from tessera.diagnostics import TesseraError
from tessera.frontend.capture.dry_run import without_gpu
from tessera.frontend.capture.inputs import Inputs, held_tensors, named_parameters
from tessera.frontend.capture.memory import CapturedMemory
from tessera.frontend.capture.no_gpu.interpreted import interpreted_kernels
from tessera.frontend.capture.problems import refusal
from tessera.frontend.capture.raw import RawBuffer, RawTensor
from tessera.frontend.capture.tensors import tensors_in, torch_type
from tessera.ir.program.program import Role

Bytes = npt.NDArray[np.uint8]
Made = tuple[Callable[..., object], Inputs]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostBytes:
    """Contents before and after the call; `problem` says why there are no results. `interpreted`
    names kernels of the model's own that Triton's interpreter computed."""

    before: dict[str, Bytes] = field(default_factory=dict)
    after: dict[str, Bytes] = field(default_factory=dict)
    problem: str = ""
    interpreted: tuple[str, ...] = ()


def call_on_host(
    make: Callable[[], Made],
    buffers: Mapping[str, RawBuffer],
    returned: Mapping[int, tuple[str, RawTensor]],
) -> HostBytes:
    """Make a model on the host and call it; `returned` is how results lie in their buffers."""
    try:
        with without_gpu(on_gpu=False), torch.no_grad():
            torch.manual_seed(0)
            function, inputs = make()
            memory, known = _known(function, inputs, buffers)
            before = {buffer.name: memory.read(buffer) for buffer in known}
    except TesseraError as failure:
        return HostBytes(problem=str(failure.diagnostics[0].headline))
    try:
        with without_gpu(on_gpu=False), torch.no_grad(), interpreted_kernels() as names:
            if any(buffer.lasting and name not in before for name, buffer in buffers.items()):
                inputs.call(function)  # a first call makes states that are not there yet
                memory, known = _known(function, inputs, buffers)
                before = {buffer.name: memory.read(buffer) for buffer in known}
            result = inputs.call(function)
    except (Exception, SystemExit) as problem:  # whatever the model raises
        headline = str(refusal(problem).diagnostics[0].headline)
        return HostBytes(before=before, problem=headline)
    after = {buffer.name: memory.read(buffer) for buffer in known}
    after |= _results(list(tensors_in(result)), buffers, returned)
    return HostBytes(before=before, after=after, interpreted=tuple(names))


def _results(
    tensors: Sequence[torch.Tensor],
    buffers: Mapping[str, RawBuffer],
    returned: Mapping[int, tuple[str, RawTensor]],
) -> dict[str, Bytes]:
    """The bytes of buffers that hold results; several results may be views of one buffer.

    What lies between them is taken from the host's own memory, where that is laid out alike. A
    buffer with bytes that are not known is left out.
    """
    contents: dict[str, Bytes] = {}
    covered: dict[str, Bytes] = {}
    odd = set()
    for place, (name, view) in returned.items():
        if name in buffers:
            size = buffers[name].bytes
            flat = contents.setdefault(name, np.zeros(size, np.uint8))
            known = covered.setdefault(name, np.zeros(size, np.uint8))
            start = view.address - buffers[name].address
            if place >= len(tensors) or not _lay_out(tensors[place], view, flat, start):
                odd.add(name)
                continue
            _lay_out(_everywhere(tensors[place], view), view, known, start)
            around = _around(tensors[place], view, start, size) if not known.all() else None
            if around is not None:
                flat[known == 0] = around[known == 0]
                known[:] = 1
    odd |= {name for name, known in covered.items() if not known.all()}
    return {name: content for name, content in contents.items() if name not in odd}


def _everywhere(tensor: torch.Tensor, place: RawTensor) -> torch.Tensor:
    """A tensor of the same shape whose bytes are all set."""
    kind = torch_type(place.dtype)
    ones = torch.full((tensor.element_size() if kind is None else kind.itemsize,), 255).byte()
    return ones.view(kind or tensor.dtype)[0].expand(tensor.shape)


def _around(tensor: torch.Tensor, place: RawTensor, start: int, size: int) -> Bytes | None:
    """The memory that a result of the host is in, if it lies there as in the captured call."""
    storage = tensor.untyped_storage()
    strides = zip(tensor.shape, tensor.stride(), place.strides, strict=True)
    is_alike = all(ours == theirs for count, ours, theirs in strides if count > 1)
    is_there = tensor.storage_offset() * tensor.element_size() == start
    if torch_type(place.dtype) is not tensor.dtype or storage.nbytes() != size:
        return None
    if not is_alike or not is_there:
        return None
    return np.asarray(torch.empty(0, dtype=torch.uint8).set_(storage).numpy())


def _known(
    function: Callable[..., object], inputs: Inputs, buffers: Mapping[str, RawBuffer]
) -> tuple[CapturedMemory, list[RawBuffer]]:
    """What the model and its inputs hold, by the names that the capture gives."""
    memory = CapturedMemory(lambda storage: int(storage.data_ptr()))
    for name, tensor in inputs.tensors(function):
        memory.add_tensor(tensor, name, Role.INPUT, lasting=True)
    named = named_parameters(function, lambda tensor: not isinstance(tensor, FakeTensor))
    for name, tensor in (*named, *held_tensors(function)):
        memory.add_tensor(tensor, name, Role.WEIGHT, lasting=True)
    known = [
        buffer
        for buffer in memory.in_order()
        if buffer.name in buffers and buffers[buffer.name].bytes == buffer.bytes
    ]
    return memory, known


def _lay_out(tensor: torch.Tensor, place: RawTensor, flat: Bytes, start: int) -> bool:
    """Put a result where the captured call leaves it, in the type that it has there (where the
    host computes in another one, as without the GPU's autocast); False if it is another one."""
    kind = torch_type(place.dtype)
    if kind is None or tuple(tensor.shape) != place.shape:
        return False
    theirs = tensor.dtype
    if (kind.is_floating_point, kind.is_complex) != (theirs.is_floating_point, theirs.is_complex):
        return False
    if start % kind.itemsize or len(flat) % kind.itemsize:
        return False
    laid = torch.from_numpy(flat).view(kind)
    laid = laid.as_strided(place.shape, place.strides, start // kind.itemsize)
    for dim, (size, stride) in enumerate(zip(place.shape, place.strides, strict=True)):
        if size > 1 and stride == 0:  # an expanded result has one place for all of these
            laid, tensor = laid.narrow(dim, 0, 1), tensor.narrow(dim, 0, 1)
    laid.copy_(tensor)
    return True
