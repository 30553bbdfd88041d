"""What a traced callable is called with, and what else it holds: tensors with names.

An argument has the name of its parameter, also if it is given by place; what a callable holds (in
its closure, or as an attribute of a module that is no parameter) has the name of that. So two
traces of one model, such as prompts and single tokens with one cache, share memory by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import torch

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Arguments by place and by name."""

    plain: tuple[object, ...] = ()
    named: Mapping[str, object] = field(default_factory=dict)

    def __iter__(self) -> Iterator[object]:
        """Those by place."""
        return iter(self.plain)

    def tensors(self, function: Callable[..., object]) -> list[tuple[str, torch.Tensor]]:
        """The tensors in them, each with a name: that of its parameter, or its place."""
        from tessera.frontend.capture.watch import named_tensors

        names = _parameters(function)
        named = []
        for number, value in enumerate(self.plain):
            name = names[number] if number < len(names) else f"in{number}"
            named += named_tensors(name, value)
        for key, value in self.named.items():
            named += named_tensors(key, value)
        return named

    def call(self, function: Callable[..., R]) -> R:
        """Call a function with them."""
        return function(*self.plain, **self.named)


def held_tensors(function: Callable[..., object]) -> list[tuple[str, torch.Tensor]]:
    """Tensors that a callable holds besides parameters and buffers, such as those of a cache."""
    from torch.nn import Module

    from tessera.frontend.capture.watch import named_tensors

    origin = _origin(function)
    named = []
    for owner, module in origin.named_modules() if isinstance(origin, Module) else ():
        for name, value in vars(module).items():
            if not name.startswith("_"):
                named += named_tensors(f"{owner}.{name}" if owner else name, value)
    inner = origin.forward if isinstance(origin, Module) else origin
    inner = inspect.unwrap(getattr(inner, "__func__", inner))
    names = getattr(getattr(inner, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, getattr(inner, "__closure__", None) or (), strict=False):
        try:
            named += named_tensors(name, cell.cell_contents)
        except ValueError:  # a cell that is empty yet
            continue
    return named


def _origin(function: Callable[..., object]) -> Callable[..., object]:
    """What torch.compile was given."""
    origin: Callable[..., object] = getattr(function, "_orig_mod", function)
    return origin


def _parameters(function: Callable[..., object]) -> list[str]:
    """The names of parameters that are given by place."""
    from torch.nn import Module

    origin = _origin(function)
    try:
        signature = inspect.signature(origin.forward if isinstance(origin, Module) else origin)
    except (TypeError, ValueError):  # a builtin
        return []
    names = []
    for parameter in signature.parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            break
        names.append(parameter.name)
    return names
