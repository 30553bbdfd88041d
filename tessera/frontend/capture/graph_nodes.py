"""What nodes of a recorded graph call, and what they make."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def shape_of(node: object) -> tuple[int, ...] | None:
    """The shape of what a node makes, if that is a tensor with plain numbers for sizes."""
    value = value_of(node)
    if value is None or not all(isinstance(size, int) for size in value.shape):
        return None
    return tuple(value.shape)


def value_of(node: object) -> torch.Tensor | None:
    """The tensor that stands for what a node makes."""
    import torch

    meta = getattr(node, "meta", {})
    value = meta.get("example_value", meta.get("val"))
    return value if isinstance(value, torch.Tensor) else None


def call_of(node: object) -> tuple[str, tuple[object, ...]]:
    """The plain name of what a node calls, and its positional arguments."""
    target = getattr(node, "target", None)
    arguments = tuple(getattr(node, "args", ()))
    if getattr(node, "op", None) == "call_method":
        return str(target), arguments
    if getattr(node, "op", None) == "call_function":
        if target is operator.getitem:
            return "getitem", arguments
        return str(getattr(target, "__name__", "")), arguments
    return "", ()
