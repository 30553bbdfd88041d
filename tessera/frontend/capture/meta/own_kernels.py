"""Kernels of Triton's that a model launches itself, on tensors that have no memory.

In: a function that takes launches. Out: while it is in force nothing is compiled or launched; the
function gets the name of the kernel and the tensors that it is given. The kernel is not analysed:
`launched` takes it for one that reads and writes all of the memory that it is given a part of.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from unittest import mock

import torch

from tessera.frontend.capture.raw import RawOperator, RawTensor
from tessera.frontend.capture.tensors import raw_tensor, tensors_in
from tessera.ir.program.data_type import DataType

# Classes whose objects hold a kernel and are launched; a model that has one has imported them.
_KINDS = (
    ("triton.runtime.jit", "JITFunction"),
    ("triton.runtime.autotuner", "Autotuner"),
    ("triton.runtime.autotuner", "Heuristics"),
)


@contextmanager
def told_launches(on_launch: Callable[[str, list[torch.Tensor]], None]) -> Iterator[None]:
    """Report launches in place of making them."""

    def run(self: object, *given: object, grid: object = None, **named: object) -> None:
        tensors = [tensor for tensor in tensors_in((given, named)) if tensor.is_cuda]
        on_launch(_name_of(self), tensors)

    with ExitStack() as stack:
        for module, name in _KINDS:
            kind = getattr(sys.modules.get(module), name, None)
            if kind is not None:
                stack.enter_context(mock.patch.object(kind, "run", run))
        yield


def launched(
    name: str,
    tensors: list[torch.Tensor],
    address_of: Callable[[torch.Tensor], int],
    nodes: tuple[int, int],
) -> RawOperator | None:
    """A launch as an operator; None if it is given no memory."""
    whole = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if storage.nbytes():
            whole[storage._cdata] = _whole(tensor, address_of)
    if not whole:
        return None
    operands = tuple(whole.values())
    return RawOperator(
        operator=f"triton::{name}",
        reads=operands,
        writes=operands,
        attributes=(),
        first=nodes[0],
        last=nodes[1],
    )


def _whole(tensor: torch.Tensor, address_of: Callable[[torch.Tensor], int]) -> RawTensor:
    """All memory of a tensor: elements of its type, or bytes where those leave a rest."""
    size = tensor.untyped_storage().nbytes()
    count, rest = divmod(size, tensor.itemsize)
    elements = raw_tensor(tensor.as_strided((count,), (1,), 0), address_of)
    return replace(elements, dtype=DataType.U8, shape=(size,)) if rest else elements


def _name_of(kernel: object) -> str:
    """The name of the function below what tunes it."""
    while hasattr(kernel, "fn"):
        kernel = kernel.fn
    return str(getattr(kernel, "__name__", "kernel"))
