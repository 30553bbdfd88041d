"""The constants of an initialiser, each with its place in the variable.

In: a `ptx.Variable` with an initialiser. Out: (byte offset, constant) pairs. A nested list starts
at its row; a list without nested ones fills the variable element by element.

Source: PTX ISA 9.0, section 5.4.4 (initialisers).
"""

from __future__ import annotations

from collections.abc import Iterator

from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.types import type_width

Element = ptx.Constant | ptx.InitializerField


def initial_elements(variable: ptx.Variable, size: int) -> Iterator[tuple[int, Element]]:
    """The elements of a variable of `size` bytes."""
    if variable.initializer is not None:
        width = type_width(variable.type)
        yield from _elements(variable.initializer, _lengths(variable, size), width, 0)


def _lengths(variable: ptx.Variable, size: int) -> tuple[int, ...]:
    """Lengths along each axis, a vector type being the last."""
    lengths = [d or 0 for d in variable.dimensions]
    if variable.vector is not None:
        lengths.append(variable.vector)
    if lengths and lengths[0] == 0:
        rest = type_width(variable.type)
        for length in lengths[1:]:
            rest *= length
        lengths[0] = size // rest if rest else 0
    return tuple(lengths)


def _elements(
    initializer: ptx.Initializer, lengths: tuple[int, ...], width: int, start: int
) -> Iterator[tuple[int, Element]]:
    if not isinstance(initializer, ptx.InitializerList):
        yield start, initializer
        return
    row = width
    for length in lengths[1:]:
        row *= length
    flat = not any(isinstance(e, ptx.InitializerList) for e in initializer.elements)
    step = width if flat else row
    for number, element in enumerate(initializer.elements):
        yield from _elements(element, lengths[1:], width, start + number * step)
