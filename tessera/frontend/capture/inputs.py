"""What a traced callable is called with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Arguments by place and by name."""

    plain: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Any]:
        """Those by place."""
        return iter(self.plain)

    def call(self, function: Callable[..., Any]) -> Any:
        """Call a function with them."""
        return function(*self.plain, **self.named)
