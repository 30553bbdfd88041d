"""Graphs as a compiler is given them, for tests of what a capture puts in place of their calls.

PyTorch is imported where it is needed: who uses this has skipped without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def recorded(function: Callable[..., Any], *inputs: Any) -> Any:
    """The graph of a function as a compiler is given it."""
    import torch

    graphs: list[Any] = []

    def keep(module: Any, _: Any) -> Any:
        graphs.append(module.graph)
        return module.forward

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(function, backend=keep, fullgraph=True, dynamic=False)(*inputs)
    (graph,) = graphs
    return graph


def tensors(*shapes: tuple[int, ...], dtype: Any = None) -> list[Any]:
    """Random ones, in 16 bits unless said otherwise."""
    import torch

    return [torch.randn(*shape).to(dtype or torch.bfloat16) for shape in shapes]


class OnGpu:
    """A tensor of the host that counts as one of a GPU."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __getattr__(self, name: str) -> Any:
        return True if name == "is_cuda" else getattr(self.tensor, name)


def take_as_on_gpu(monkeypatch: pytest.MonkeyPatch, rewrite: Any) -> None:
    """What a module that rewrites graphs sees of tensors is as if they were on a GPU."""
    held = rewrite.value_of

    def value_of(node: object) -> Any:
        tensor = held(node)
        return None if tensor is None else OnGpu(tensor)

    monkeypatch.setattr(rewrite, "value_of", value_of)
