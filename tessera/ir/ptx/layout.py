"""The size, alignment and initial constants of a PTX variable.

In: a `ptx.Variable` of any state space except `.reg`. Out: its size in bytes, or None if only the
linker or the launch knows it (`.extern .shared .b8 buffer[]`); pairs of byte offset and constant.

Source: PTX ISA 9.0, section 5.4 (declarations: vectors, arrays, initialisers, alignment).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.types import type_width

Element = ptx.Constant | ptx.InitializerField


def element_bytes(variable: ptx.Variable) -> int:
    """Bytes of one element of an array, or of the variable itself; a vector is one element."""
    return type_width(variable.type) * (variable.vector or 1)


def alignment(variable: ptx.Variable) -> int:
    """The declared alignment, else the natural alignment: the size of an element."""
    return variable.align or element_bytes(variable)


def size_bytes(variable: ptx.Variable) -> int | None:
    """Bytes of the whole variable; None if an open dimension has no initialiser."""
    if None not in variable.dimensions:
        return element_bytes(variable) * prod(d for d in variable.dimensions if d is not None)
    if not isinstance(variable.initializer, ptx.InitializerList):
        return None
    # Only the first dimension may be left open.
    inner = [d for d in variable.dimensions[1:] if d is not None]
    if len(inner) != len(variable.dimensions) - 1:
        return None
    return element_bytes(variable) * prod(inner) * len(variable.initializer.elements)


def packed_bytes(variables: Iterable[ptx.Variable]) -> int:
    """Bytes of consecutive aligned variables, without those of open size."""
    end = 0
    for variable in variables:
        size = size_bytes(variable)
        if size is not None:
            align = alignment(variable)
            end = (end + align - 1) // align * align + size
    return end


def initial_elements(variable: ptx.Variable, size: int) -> Iterator[tuple[int, Element]]:
    """The elements of the initialiser of a variable of `size` bytes, each with its byte offset.

    A nested list starts at its row; a list without nested ones fills the variable in order.
    """
    if variable.initializer is not None:
        width = type_width(variable.type)
        yield from _elements(variable.initializer, _lengths(variable, size), width, 0)


def _lengths(variable: ptx.Variable, size: int) -> tuple[int, ...]:
    """The lengths along each axis; a vector type is the last axis."""
    lengths = [d or 0 for d in variable.dimensions]
    if variable.vector is not None:
        lengths.append(variable.vector)
    if lengths and lengths[0] == 0:
        rest = type_width(variable.type) * prod(lengths[1:])
        lengths[0] = size // rest if rest else 0
    return tuple(lengths)


def _elements(
    initializer: ptx.Initializer, lengths: tuple[int, ...], width: int, start: int
) -> Iterator[tuple[int, Element]]:
    if not isinstance(initializer, ptx.InitializerList):
        yield start, initializer
        return
    row = width * prod(lengths[1:])
    flat = not any(isinstance(e, ptx.InitializerList) for e in initializer.elements)
    step = width if flat else row
    for number, element in enumerate(initializer.elements):
        yield from _elements(element, lengths[1:], width, start + number * step)
