"""Put something of ours in place of a part of PyTorch's, for as long as a context lasts.

In: a module or a class, the name of the part, and what makes another of it. Out: nothing where this
version has no such part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Part = TypeVar("Part")


@contextmanager
def replaced(owner: object, name: str, other: Callable[[Part], object]) -> Iterator[None]:
    """Put `other(part)` in place of the attribute `name` of `owner`."""
    before: Part | None = vars(owner).get(name)
    if before is None:
        yield
        return
    setattr(owner, name, other(before))
    try:
        yield
    finally:
        setattr(owner, name, before)
