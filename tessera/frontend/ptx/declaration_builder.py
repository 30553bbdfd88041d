"""The part of the PTX builder that makes variables: declarations, initialisers, qualifiers.

In: the parse tree of a declaration, rule by rule. Out: one `ptx.Variable` per name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lark import Token

from tessera.frontend.ptx.constants import Numbers, integer_constant
from tessera.frontend.ptx.declarations import OPAQUE_TYPES, TYPES, VECTORS
from tessera.frontend.ptx.expressions import MAX_DEPTH, Children, ExpressionBuilder
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.constants import integer_value


class DeclarationBuilder(ExpressionBuilder):
    """Rules of `grammars/ptx.lark` about variables."""

    numbers: Numbers

    def variable(self, children: Sequence[object]) -> list[ptx.Variable]:
        """A declaration: one record per name."""
        variables = self._variables(children)
        self.faults.forget_places()
        return variables

    def space(self, children: Children) -> tuple[str, Token, int | None]:
        """`.global`, `.const[2]`."""
        keyword, *bank = (child for child in children if child is not None)
        return "space", keyword, integer_constant(str(bank[1])).value if bank else None

    def align(self, children: Sequence[ptx.Integer]) -> tuple[str, int]:
        """`.align 16`."""
        return "align", children[0].value

    def pointer(self, _: Sequence[object]) -> tuple[str, None]:
        """`.ptr`."""
        return "pointer", None

    def pointer_space(self, children: Sequence[Token]) -> tuple[str, Token]:
        """The `.global` of `.ptr .global`."""
        return "pointer_space", children[0]

    def type(self, children: Sequence[Token]) -> tuple[str, Token]:
        """`.f32` or `.v4`."""
        return "type", children[0]

    def qualifier(self, children: Sequence[object]) -> tuple[str, object]:
        """An attribute list among the qualifiers."""
        return "attributes", children[0]

    def dimension(self, children: Children) -> tuple[int | None]:
        """`[4]` or `[]`."""
        bracket, size = children
        if size is None:
            return (None,)
        value = integer_value(self.constant(size))
        if value is None or value < 0:
            self._fault("TSR1009", "array dimension is not a number of elements", bracket)
        return (value or 0,)

    def declarator(self, children: Children) -> tuple[Any, ...]:
        """`name<count>[size] = value`."""
        name, count, *dimensions, initializer = children
        return name, count, tuple(d[0] for d in dimensions), initializer

    def initializer_list(self, children: Sequence[object]) -> ptx.InitializerList:
        """`{ a, b }`."""
        return ptx.InitializerList(
            tuple(
                child
                if isinstance(child, ptx.InitializerList | ptx.InitializerField)
                else self.constant(child, symbols=True)
                for child in children[1:]
                if child is not None
            )
        )

    def number_list(self, children: Sequence[Token]) -> ptx.InitializerList:
        """`{ 1, 2, 3 }`, in one piece."""
        return self.numbers.table(str(children[0]))

    def initializer_field(self, children: Sequence[object]) -> ptx.InitializerField:
        """`filter_mode = nearest`."""
        return ptx.InitializerField(str(children[0]), self.constant(children[1], symbols=True))

    def _variables(self, children: Sequence[object]) -> list[ptx.Variable]:
        linkage = children[0] if isinstance(children[0], Token) else None
        qualifiers = [
            c
            for c in children
            if isinstance(c, tuple) and isinstance(c[0], str) and not isinstance(c[0], Token)
        ]
        declarators = [c for c in children if isinstance(c, tuple) and isinstance(c[0], Token)]
        keyword, bank = next(q[1:] for q in qualifiers if q[0] == "space")
        first = linkage or keyword
        common = self._qualify([q for q in qualifiers if q[0] != "space"], keyword)
        common = replace(
            common,
            space=str(keyword)[1:],
            bank=bank,
            at=first.start_pos or 0,
            linkage=str(linkage)[1:] if linkage else None,
        )
        return [self._declare(common, *declarator) for declarator in declarators]

    def _qualify(self, qualifiers: Sequence[tuple[str, Any]], keyword: Token) -> ptx.Variable:
        variable = ptx.Variable(space="", type="", name="")
        for kind, value in qualifiers:
            if kind == "align":
                aim = "align" if variable.pointer_space is None else "pointer_align"
                variable = replace(variable, **{aim: value})
            elif kind == "pointer":
                variable = replace(variable, pointer_space="")
            elif kind == "pointer_space":
                if variable.pointer_space != "":
                    self._fault("TSR1001", f"`{value}` stands in a wrong place", value)
                variable = replace(variable, pointer_space=str(value)[1:])
            elif kind == "attributes":
                variable = replace(variable, attributes=variable.attributes + value)
            elif variable.pointer_space == "" and value[1:] in OPAQUE_TYPES:
                variable = replace(variable, pointer_space=str(value)[1:])
            elif value[1:] in VECTORS:
                variable = replace(variable, vector=VECTORS[value[1:]])
            else:
                if variable.type or value[1:] not in TYPES:
                    self._fault("TSR1013", f"`{value}` is not a type of a variable", value)
                variable = replace(variable, type=str(value)[1:])
        if not variable.type:
            self._fault("TSR1013", "declaration has no type", keyword)
        return variable

    def _declare(
        self,
        common: ptx.Variable,
        name: Token,
        count: ptx.Integer | None,
        dimensions: tuple[int | None, ...],
        initializer: object,
    ) -> ptx.Variable:
        if count is not None and common.space != "reg":
            self._fault("TSR1009", f"only registers come in ranges: `{name}<{count.text}>`", name)
        if initializer is not None and not isinstance(initializer, ptx.InitializerList):
            initializer = self.constant(initializer, symbols=True)
        if _nesting(initializer) > MAX_DEPTH:
            self._fault("TSR1008", "initialiser is nested too deeply", name)
            initializer = None
        return replace(
            common,
            name=str(name),
            count=None if count is None else count.value,
            dimensions=dimensions,
            initializer=initializer,
        )

    def _fault(self, code: str, headline: str, token: Token, label: str = "") -> None:
        self.faults.add(code, headline, token.start_pos or 0, token.end_pos or 0, label)


def _nesting(initializer: object) -> int:
    """How deep the braces of an initialiser are nested (constants are checked on their own)."""
    depth, level = 0, [initializer]
    while level:
        level = [e for i in level if isinstance(i, ptx.InitializerList) for e in i.elements]
        depth += bool(level)
    return depth
