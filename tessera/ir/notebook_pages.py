"""The page that a notebook shows of a record, made by a function from a higher layer.

In: a maker, which `tessera/__init__.py` hands in. Out: HTML of a record. This module imports
nothing, so that `import tessera` costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable

_makers: list[Callable[[object], str]] = []


def make_pages_with(maker: Callable[[object], str]) -> None:
    """Take the maker of pages; the package hands it in once, when it is imported."""
    _makers[:] = [maker]


def html_of(record: object) -> str:
    """What a notebook shows of a record: its report page."""
    (maker,) = _makers
    return maker(record)
