"""Builds a model on a machine without a GPU.

Tensors that a model puts on a GPU while it is built stay on the host: a mode between the model's
code and PyTorch's functions removes devices from their arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from tessera.diagnostics import TesseraError
from tessera.frontend.capture.problems import RAISED, chain


@contextmanager
def without_gpu(*, on_gpu: bool = True) -> Iterator[None]:
    """Build a model without a GPU; on the GPU if there is one, unless `on_gpu` is false."""
    import torch
    from torch.overrides import TorchFunctionMode

    if on_gpu and torch.cuda.is_available():
        yield
        return

    class OnHost(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self,
            func: Callable[..., object],
            types: object,
            args: tuple[object, ...] = (),
            kwargs: dict[str, object] | None = None,
        ) -> object:
            if func is torch.Tensor.cuda:
                return args[0]
            named = {key: _on_host(value) for key, value in (kwargs or {}).items()}
            return func(*(_on_host(value) for value in args), **named)

    try:
        with OnHost():
            yield
    except TesseraError as failure:
        first, *rest = failure.diagnostics
        # PyTorch's exceptions about CUDA have no common type: only their texts identify them.
        causes = (cause for cause in chain(failure) if not isinstance(cause, TesseraError))
        told = " ".join(map(str, causes)).lower()
        if first.code != RAISED or not ("cuda" in told or "nvidia" in told):
            raise
        hint = "there is no GPU here: what the model asks of one itself (streams, generators) fails"
        raise TesseraError((replace(first, hint=hint), *rest)) from failure


def _on_host(value: object) -> object:
    """Replace a GPU with the host."""
    import torch

    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    is_name = isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))
    return "cpu" if is_name else value
