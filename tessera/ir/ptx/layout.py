"""How many bytes a PTX variable takes, and at what alignment.

In: a `ptx.Variable` of any state space but `.reg`. Out: its size, or None where only the linker
or the launch knows it (`.extern .shared .b8 buffer[]`).

Source: PTX ISA 9.0, section 5.4 (declarations: vectors, arrays, initialisers, alignment).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.types import type_width


def element_bytes(variable: ptx.Variable) -> int:
    """Bytes of one element of an array, or of the variable itself; a vector is one element."""
    return type_width(variable.type) * (variable.vector or 1)


def alignment(variable: ptx.Variable) -> int:
    """The alignment declared, else the natural one: the size of an element."""
    return variable.align or element_bytes(variable)


def size_bytes(variable: ptx.Variable) -> int | None:
    """Bytes of the whole variable; None where a dimension is open and nothing closes it."""
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
    """Bytes that variables take one after the other, aligned, those of open size left out."""
    end = 0
    for variable in variables:
        size = size_bytes(variable)
        if size is not None:
            align = alignment(variable)
            end = (end + align - 1) // align * align + size
    return end
