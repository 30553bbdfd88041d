"""The notation for entries in the files of the operator table.

In: names of operators and operands, with the marks of `docs/reference/operators.md`. Out: entries.
An operand is `name`, or `name:kind` if it has elements of one kind only, followed by marks: `?` may
be missing, `=` a number can replace it, `*` is a list, `@` only elements that indices choose are
used, `-` is not read, but overwritten or used for its shape.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterator

from tessera.ir.operators.records import (
    AttributeKind,
    AttributeSpec,
    Bound,
    Kinds,
    OperandSpec,
    Operator,
    Reach,
    ResultType,
    Shape,
    Work,
)
from tessera.ir.program.program import AttributeValue

ShapeRule = Callable[[Bound], tuple[Shape | None, ...]]
WorkRule = Callable[[Bound], Work]


class Required(enum.Enum):
    """The marker in place of the default of an attribute that must be given."""

    REQUIRED = enum.auto()


REQUIRED = Required.REQUIRED
Default = AttributeValue | Required

_OPERAND = re.compile(r"(\w+)(?::(\w+))?([?=*@-]*)")
_REACHES = {"@": Reach.INDEXED, "-": Reach.NONE}


def operands(text: str, kinds: Kinds = Kinds.ANY) -> tuple[OperandSpec, ...]:
    """Operands separated by spaces; `kinds` applies to operands that do not name a kind."""
    return tuple(_operand(part, kinds) for part in text.split())


def _operand(text: str, kinds: Kinds) -> OperandSpec:
    match = _OPERAND.fullmatch(text)
    assert match is not None, text
    name, own, marks = match.groups()
    return OperandSpec(
        name=name,
        kinds=kinds if own is None else Kinds[own.upper()],
        reach=next((_REACHES[mark] for mark in marks if mark in _REACHES), Reach.WHOLE),
        is_optional="?" in marks,
        is_list="*" in marks,
        or_number="=" in marks,
    )


def _attribute(name: str, kind: AttributeKind, default: Default) -> AttributeSpec:
    if default is REQUIRED:
        return AttributeSpec(name=name, kind=kind, is_required=True)
    return AttributeSpec(name=name, kind=kind, default=default)


def integer(name: str, default: Default = None) -> AttributeSpec:
    """An attribute that is an integer."""
    return _attribute(name, AttributeKind.INTEGER, default)


def integers(name: str, default: Default = None) -> AttributeSpec:
    """An attribute that is an integer or a list of integers."""
    return _attribute(name, AttributeKind.INTEGERS, default)


def number(name: str, default: Default = None) -> AttributeSpec:
    """An attribute that is a number."""
    return _attribute(name, AttributeKind.NUMBER, default)


def flag(name: str, default: Default = False) -> AttributeSpec:
    """An attribute that is true or false."""
    return _attribute(name, AttributeKind.BOOL, default)


def word(name: str, default: Default = None) -> AttributeSpec:
    """An attribute that is a string."""
    return _attribute(name, AttributeKind.TEXT, default)


def type_name(name: str, default: Default = None) -> AttributeSpec:
    """An attribute that names a type of elements."""
    return _attribute(name, AttributeKind.TYPE, default)


DIM = integer("dim", REQUIRED)
DTYPE = type_name("dtype")


def forms(
    names: str,
    reads: str | tuple[OperandSpec, ...],
    shapes: ShapeRule,
    work: WorkRule,
    *attributes: AttributeSpec,
    function: str = "",
    kinds: Kinds = Kinds.ANY,
    writes: str | tuple[OperandSpec, ...] = "out",
    result: ResultType = ResultType.SAME,
    namespace: str = "aten",
) -> Iterator[Operator]:
    """One entry per name; names are separated by spaces.

    The function has the first name without its overload, unless `function` is given. `kinds`
    applies to the operands that are read. A name that ends in `_` before its
    overload works in place.
    """
    listed = names.split()
    own = function or listed[0].partition(".")[0]
    for name in listed:
        yield Operator(
            name=f"{namespace}::{name}",
            function=own,
            reads=operands(reads, kinds) if isinstance(reads, str) else reads,
            writes=operands(writes) if isinstance(writes, str) else writes,
            attributes=attributes,
            shapes=shapes,
            work=work,
            result=result,
            is_in_place=name.partition(".")[0].endswith("_"),
        )
