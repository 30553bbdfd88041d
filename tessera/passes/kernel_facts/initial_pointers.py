"""Pointers in the initialisers of module variables.

In: a program. Out: per variable the words that hold the address of another variable when a module
is loaded, in the form of a `pointers` table: `.global .u64 p = generic(x)+4;`, and structs that a
compiler writes byte by byte (`0xFF(x), 0xFF00(x), ...`). A word counts only if all variants of the
module agree on it.

Module variables persist from request to request, so the value of a word is known only if no step of
the program may write it; see `access_regions`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tessera.ir.program import program as ir
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.constants import integer_value
from tessera.ir.ptx.layout import initial_elements
from tessera.ir.ptx.types import type_width

Words = dict[int, ir.Pointer]
Sum = tuple[str, int]
"""A symbol and a number of bytes."""


def initial_pointers(
    program: ir.Program, variables: Mapping[ir.ModuleId, Mapping[str, ir.BufferId]]
) -> dict[ir.BufferId, Words]:
    """The pointers of all module variables when the modules are loaded."""
    pointers: dict[ir.BufferId, Words] = {}
    for module in program.modules:
        named = variables.get(module.id, {})
        for name, buffer in named.items():
            size = program.buffers[buffer].bytes
            tables = [_variable_words(v.ptx, name, size, named) for v in module.variants]
            words = {o: p for o, p in tables[0].items() if all(t.get(o) == p for t in tables)}
            if words:
                pointers[buffer] = words
    return pointers


def _variable_words(
    module: ptx.Module, name: str, size: int, named: Mapping[str, ir.BufferId]
) -> Words:
    variable = next((v for v in module.variables() if v.name == name), None)
    if variable is None or variable.initializer is None:
        return {}
    sums = {
        offset: (mask, symbol)
        for offset, constant in initial_elements(variable, size)
        if not isinstance(constant, ptx.InitializerField)
        for mask, symbol in _symbol_sums(constant)
    }
    words = dict(_whole_words(sums) if type_width(variable.type) == 8 else _byte_words(sums))
    return {
        offset: ir.Pointer(named[symbol], addend)
        for offset, (symbol, addend) in words.items()
        if symbol in named and addend >= 0
    }


def _whole_words(sums: Mapping[int, tuple[int, Sum]]) -> Iterator[tuple[int, Sum]]:
    return ((offset, symbol) for offset, (mask, symbol) in sums.items() if mask == 0)


def _byte_words(sums: Mapping[int, tuple[int, Sum]]) -> Iterator[tuple[int, Sum]]:
    """Runs of eight bytes that are the bytes of one address, lowest first."""
    for start, (_, symbol) in sums.items():
        masks = [(0xFF << 8 * place, symbol) for place in range(8)]
        if all(sums.get(start + place) == masks[place] for place in range(8)):
            yield start, symbol


def _symbol_sums(constant: ptx.Constant) -> Iterator[tuple[int, Sum]]:
    """A symbol plus a number, with the byte of the sum that the constant selects (0 for all)."""
    mask = 0
    if isinstance(constant, ptx.MaskedByte):
        mask, constant = constant.mask.value, constant.operand
    symbol_sum = _sum(constant)
    if symbol_sum is not None:
        yield mask, symbol_sum


def _sum(constant: ptx.Constant) -> Sum | None:
    match constant:
        case ptx.Name(name=name):
            return name, 0
        case ptx.Generic(operand=inner):
            return _sum(inner)
        case ptx.Binary(operator="+" | "-" as operator, left=left, right=right):
            base, moved = _sum(left), integer_value(right)
            if base is None or moved is None:
                return None
            return base[0], base[1] + (moved if operator == "+" else -moved)
        case _:
            return None
