"""The contents of a body, counted: from its outline while it is text, which is not built for that.

In: a function. Out: its variables, in the order of their declarations, and its instructions with
how often each occurs. From an outline, one instruction stands for all that differ only in registers
of one type and in numbers. An outline that does not tell the order in which variables are declared
or functions called is not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.unread import BodyOutline


def body_contents(
    function: ptx.Function,
) -> tuple[list[ptx.Variable], Iterable[tuple[ptx.Instruction, int]]]:
    """The variables of a body, and its instructions with counts; a body of text stays text."""
    unread = function.unread
    outline = None if unread is None else unread.outline
    if unread is not None and outline is not None and _has_order(outline):
        instruct = unread.instruction
        counted = ((instruct(text), count) for text, count in _counted(outline))
        return list(_declared(outline)), counted
    statements = list(ptx.walk_statements(function.body or ()))
    variables = [item for item in statements if isinstance(item, ptx.Variable)]
    return variables, ((item, 1) for item in statements if isinstance(item, ptx.Instruction))


def _has_order(outline: BodyOutline) -> bool:
    """Whether an outline tells in which order variables are declared and functions called."""
    blocks = [block for block, _ in outline.blocks]
    if not all(map(_has_order, blocks)):
        return False
    inside = [variable for block in blocks for variable in _declared(block)]
    if any(variable.space in ("local", "shared") for variable in inside):
        return False
    leading = (variable for leader in outline.declarations for variable in leader.variables)
    if outline.late and not _register_types(inside) <= _register_types(leading):
        return False
    return not (any(map(_calls, blocks)) and any("call" in text for text in outline.pieces))


def _register_types(variables: Iterable[ptx.Variable]) -> set[str]:
    return {variable.type for variable in variables if variable.space == "reg"}


def _counted(outline: BodyOutline) -> Iterator[tuple[str, int]]:
    yield from outline.statements().items()
    for block, times in outline.blocks:
        yield from ((text, count * times) for text, count in _counted(block))


def _declared(outline: BodyOutline) -> Iterator[ptx.Variable]:
    for declaration in (*outline.declarations, *outline.late):
        yield from declaration.variables
    for block, times in outline.blocks:
        for _ in range(times):
            yield from _declared(block)


def _calls(outline: BodyOutline) -> bool:
    return any("call" in text for text, _ in _counted(outline))
