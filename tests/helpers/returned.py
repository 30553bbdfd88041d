"""A model whose one call returns tensors in every form that a call may return them in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class Part:
    """A result that is neither a tuple nor a dictionary."""

    total: Any
    more: list[Any]


def every_form() -> tuple[Any, dict[str, Any]]:
    """The model, and its inputs by name, on the host."""
    import torch

    class EveryForm(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(16, 16)

        def forward(self, x: Any, factor: Any) -> Any:
            made = self.linear(x)
            return {
                "whole": (made, made),
                "views": [made[0], made.t(), made[1, 3]],
                "empty": x.new_empty(0, 3),
                "old": (x, x[1:], self.linear.weight),
                "plain": (3, 2.5, True, None, "text"),
                "part": Part(made.mean(), [made.argmax(), (made > 0).any()]),
                "expanded": x.mean().expand(3),
                "halves": {"scaled": factor * 2, "sum": x.half().sum()},
            }

    inputs = {"x": torch.randn(2, 16), "factor": torch.tensor(2.5)}
    return EveryForm().eval(), inputs
