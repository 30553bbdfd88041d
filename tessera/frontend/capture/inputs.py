"""What a traced callable is called with."""

from __future__ import annotations

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

    def tensors(self) -> list[tuple[str, torch.Tensor]]:
        """The tensors in them, each with a name: its place, or that of its argument."""
        from tessera.frontend.capture.watch import tensors_in

        named = [(f"in{number}", tensor) for number, tensor in enumerate(tensors_in(self.plain))]
        for key, value in self.named.items():
            parts = list(tensors_in(value))
            named += [(key if len(parts) == 1 else f"{key}.{n}", t) for n, t in enumerate(parts)]
        return named

    def call(self, function: Callable[..., R]) -> R:
        """Call a function with them."""
        return function(*self.plain, **self.named)
