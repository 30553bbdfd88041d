"""Copies from the host to the GPU while a call is captured: constants of the trace.

A CUDA graph cannot hold a copy from pageable host memory, and every `torch.tensor(0.0,
device="cuda")` of PyTorch makes such a copy. Nothing runs during a capture, so the copy can be made
after it: the model gets uninitialised GPU memory, and `fill` copies the values that the host held
when the copy was requested. These values are then fixed in the trace, as `TSR6012` reports. Pinned
memory is left alone: a graph reads it on every run, so it is data of the call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from tessera.frontend.capture.operator_mode import name_of

_CONVERTS = "aten::_to_copy"
# Operators that take host memory beside GPU memory, and copy it.
_TAKES = frozenset(
    f"aten::{name}"
    for name in ("copy_", "index.Tensor", "_unsafe_index.Tensor", "index_put", "index_put_")
)


@dataclass(slots=True)
class HostCopies:
    """Constants in the order in which the model makes them, with the host's values of each."""

    constants: list[torch.Tensor] = field(default_factory=list)
    held: list[torch.Tensor] = field(default_factory=list)

    def made_by(
        self, func: torch._ops.OpOverload, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> torch.Tensor | None:
        """The result of a call that only copies from the host; None for another call."""
        source, device = args[0] if args else None, kwargs.get("device")
        if name_of(func) != _CONVERTS or not _is_on_host(source) or device is None:
            return None
        to = torch.device(str(device))
        if to.type == "cpu":
            return None
        plain = {"device": torch.device("cpu"), "non_blocking": False, "pin_memory": False}
        return self._constant(func(*args, **kwargs | plain), to)

    def given_to(self, func: torch._ops.OpOverload, args: tuple[object, ...]) -> tuple[object, ...]:
        """The arguments of a call, with constants in place of host tensors that it would copy."""
        first = args[0] if args else None
        if name_of(func) not in _TAKES or not isinstance(first, torch.Tensor) or _is_on_host(first):
            return args

        def on_gpu(value: object) -> object:
            if isinstance(value, list | tuple):
                return type(value)(map(on_gpu, value))
            if not isinstance(value, torch.Tensor) or not _is_on_host(value):
                return value
            return self._constant(value.clone(), first.device)

        return (first, *map(on_gpu, args[1:]))

    def fill(self) -> None:
        """Make the copies after the capture."""
        for constant, held in zip(self.constants, self.held, strict=True):
            constant.copy_(held)

    def _constant(self, held: torch.Tensor, device: torch.device) -> torch.Tensor:
        constant = torch.empty_strided(held.size(), held.stride(), dtype=held.dtype, device=device)
        self.constants.append(constant)
        self.held.append(held)
        return constant


def _is_on_host(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "cpu" and not value.is_pinned()


@contextmanager
def made_on_host() -> Iterator[None]:
    """Make `torch.tensor(..., device="cuda")` build its tensor on the host and copy it, so that a
    dispatch mode sees the copy."""
    name = "_set_only_lift_cpu_tensors"
    if not hasattr(torch._C, name):  # an older PyTorch, where the copy ends the capture
        yield
        return
    before = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        yield
    finally:
        torch._C._set_only_lift_cpu_tensors(before)
