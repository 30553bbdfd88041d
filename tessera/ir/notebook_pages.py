"""The page that a notebook shows for a record, made by a function from a higher layer.

In: a maker, which `tessera/__init__.py` sets. Out: the HTML of a record. This module imports
nothing, so that `import tessera` stays fast.
"""

from __future__ import annotations

from collections.abc import Callable

_makers: list[Callable[[object], str]] = []


def make_pages_with(maker: Callable[[object], str]) -> None:
    """Set the maker of pages; the package calls this once, on import."""
    _makers[:] = [maker]


def html_of(record: object) -> str:
    """The HTML that a notebook shows for a record: its report page."""
    (maker,) = _makers
    return maker(record)
