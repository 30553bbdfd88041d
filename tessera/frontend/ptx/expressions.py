"""Reductions of the grammar's expression rules, and the conversion of expressions to operands.

`%p|%q`, `!%p`, `-%r`, `sym+4` and `(a, b)` are operands that look like expressions. They are read
as expressions, and `operand` gives them their own records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from lark import Token

from tessera.frontend.ptx.constants import fits, float_constant, integer_constant
from tessera.frontend.ptx.faults import Faults
from tessera.frontend.ptx.fold import FOLD_DEPTH, fold
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.constants import is_constant_name

MAX_DEPTH = 200
_ZERO = ptx.Integer("0", 0)
_Node = TypeVar("_Node")

# The children of a rule: tokens, and the values that the methods of other rules returned.
Children = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Parenthesised:
    """`(a, b)` before it is known whether it is an argument list or a bracketed expression."""

    elements: tuple[object, ...]


class ExpressionBuilder:
    """The reductions of the expression rules; their errors go to `faults`."""

    faults: Faults

    def name(self, children: Sequence[Token]) -> ptx.Name:
        """A register, symbol or label."""
        return self._noted(ptx.Name(str(children[0])), children[0])

    def sink(self, children: Sequence[Token]) -> ptx.Sink:
        """`_`."""
        return self._noted(ptx.Sink(), children[0])

    def component(self, children: Sequence[Token]) -> ptx.Name:
        """`name.x`."""
        return self._noted(ptx.Name(str(children[0]), str(children[1])[1:]), *children)

    def integer(self, children: Sequence[Token]) -> ptx.Integer:
        """An integer constant."""
        token = children[0]
        constant = integer_constant(str(token))
        if not fits(constant):
            self.faults.add(
                "TSR1007",
                "integer constant does not fit in 64 bits",
                token.start_pos or 0,
                token.end_pos or 0,
            )
        return self._noted(constant, token)

    def float(self, children: Sequence[Token]) -> ptx.Float:
        """A floating-point constant."""
        return self._noted(float_constant(str(children[0])), children[0])

    def group(self, children: Children) -> Parenthesised:
        """`( ... )`."""
        elements = tuple(child for child in children[1:] if child is not None)
        return self._noted(Parenthesised(elements), children[0])

    def unary(self, children: Children) -> ptx.Constant:
        """A sign or complement; a minus becomes part of a decimal number."""
        operator, operand = str(children[0]), self._scalar(children[1])
        node: ptx.Constant
        match operator, operand:
            case "-", ptx.Integer(text, value) if not text.startswith("-"):
                node = ptx.Integer("-" + text, -value)
            case "-", ptx.Float(text, _, _) if text[0] != "-" and text[:2].lower() not in (
                "0f",
                "0d",
            ):
                node = float_constant("-" + text)
            case "-", ptx.Float(text, _, _):
                token = children[0]
                self.faults.add(
                    "TSR1001",
                    f"`-` cannot stand before `{text}`",
                    token.start_pos,
                    token.end_pos,
                    "the sign is part of the bits of a hexadecimal float",
                )
                node = operand
            case _:
                node = ptx.Unary(operator, operand)
        return self._nested(node, children[0].start_pos, children[0].end_pos, operand)

    def binary(self, children: Children) -> ptx.Constant:
        """An operator between two expressions."""
        left, operator, right = children
        first, second = self._scalar(left), self._scalar(right)
        node = ptx.Binary(str(operator), first, second)
        start, _ = self.faults.place(left) or (operator.start_pos, 0)
        return self._nested(node, start, operator.end_pos, first, second)

    def conditional(self, children: Children) -> ptx.Constant:
        """`a ? b : c`."""
        condition, then, otherwise = map(self._scalar, children)
        node = ptx.Conditional(condition, then, otherwise)
        start, end = self.faults.place(children[0]) or (0, 1)
        return self._nested(node, start, end, condition, then, otherwise)

    def cast(self, children: Children) -> ptx.Constant:
        """`(.u64) a`."""
        parenthesis, kind, operand = children
        if kind not in (".s64", ".u64"):
            self.faults.add(
                "TSR1001",
                f"constants cannot be cast to `{kind}`",
                kind.start_pos,
                kind.end_pos,
                "expected `.s64` or `.u64`",
            )
        inner = self._scalar(operand)
        node = ptx.Cast(str(kind)[1:], inner)
        return self._nested(node, parenthesis.start_pos, parenthesis.end_pos, inner)

    def generic(self, children: Children) -> ptx.Constant:
        """`generic(symbol)`."""
        name, _, operand = children
        if name not in ("generic", "mask"):
            self.faults.add(
                "TSR1001",
                f"`{name}` cannot be applied to an operand",
                name.start_pos,
                name.end_pos,
                "expected `generic`",
            )
        return self._noted(ptx.Generic(self._scalar(operand)), name)

    def masked(self, children: Children) -> ptx.Constant:
        """`0xFF00(symbol)`."""
        mask, _, operand = children
        return self._noted(ptx.MaskedByte(integer_constant(str(mask)), self._scalar(operand)), mask)

    def subscript(self, children: Children) -> ptx.Subscript:
        """`name[index]`."""
        name, _, index = children
        inner = self.operand(index)
        if not isinstance(inner, ptx.Offset | ptx.Name):
            inner = self.constant(index)
        return self._noted(ptx.Subscript(str(name), inner), name)

    def vector(self, children: Children) -> ptx.Vector:
        """`{a, b}`."""
        return self._noted(ptx.Vector(tuple(map(self.operand, children[1:]))), children[0])

    def vector_pair(self, children: Children) -> ptx.Pair:
        """`{a, b}|%p`."""
        vector, _, second = children
        name = ptx.Sink() if second == "_" else ptx.Name(str(second))
        return ptx.Pair(vector, name)

    def address(self, children: Children) -> ptx.Address:
        """`[a+4]`."""
        return self._noted(ptx.Address(tuple(map(self.operand, children[1:]))), children[0])

    def unified_address(self, children: Children) -> ptx.Address:
        """`[a].unified`."""
        address, suffix = children
        return self._noted(ptx.Address(address.parts, str(suffix)[1:]), suffix)

    def operand(self, node: Any, *, is_call: bool = False) -> ptx.Operand:
        """The operand that an expression stands for."""
        if isinstance(node, Parenthesised):
            return self._group_or_constant(node, is_call)
        if isinstance(node, ptx.Binary) and node.operator == "|":
            first, second = node.left, node.right
            if isinstance(first, ptx.Name | ptx.Sink) and isinstance(second, ptx.Name | ptx.Sink):
                return ptx.Pair(first, second)
        match node:
            case ptx.Unary("!", ptx.Name() as name) if not is_constant_name(name):
                return ptx.Not(name)
            case ptx.Unary("-", ptx.Name() as name) if not is_constant_name(name):
                return ptx.Negated(name)
            case ptx.Binary():
                return self._offset(node) or self.constant(node)
            case ptx.Unary() | ptx.Conditional() | ptx.Cast():
                return self.constant(node)
        result: ptx.Operand = node
        return result

    def constants(self, nodes: Sequence[object]) -> tuple[ptx.Constant, ...]:
        """Expressions that must be constant; only the first that is not is reported."""
        before = len(self.faults.diagnostics)
        values = []
        for node in nodes:
            values.append(self.constant(node))
            if len(self.faults.diagnostics) > before:
                break
        return tuple(values)

    def constant(self, node: Any, *, symbols: bool = False) -> ptx.Constant:
        """An expression that must be constant; with `symbols`, up to the addresses of variables."""
        node = self._scalar(node)
        fallback = (self.faults.place(node) or (0, 0))[0]
        pending: list[tuple[object, int]] = [(node, 0)]
        while pending:
            inner, depth = pending.pop()
            if depth > MAX_DEPTH:
                self.faults.add_at("TSR1008", "expression is nested too deeply", node, fallback)
                return _ZERO
            match inner:
                case ptx.Integer() | ptx.Float():
                    continue
                case ptx.Name(_, None) if symbols or is_constant_name(inner):
                    continue
                case ptx.Unary() | ptx.Cast() | ptx.Generic() | ptx.MaskedByte():
                    pending.append((inner.operand, depth + 1))
                case ptx.Binary():
                    pending += [(inner.right, depth + 1), (inner.left, depth + 1)]
                case ptx.Conditional():
                    pending += [
                        (part, depth + 1) for part in (inner.otherwise, inner.then, inner.condition)
                    ]
                case _:
                    self.faults.add_at(
                        "TSR1001",
                        "expected a constant",
                        inner,
                        fallback,
                        "only numbers and `WARP_SZ` may stand in a constant expression",
                    )
                    return _ZERO
        result: ptx.Constant = node
        return result

    def _group_or_constant(self, node: Parenthesised, is_call: bool) -> ptx.Operand:
        match node.elements:
            case (ptx.Name() | ptx.Sink() as single,):
                return ptx.Group((single,))
            case (single,) if not is_call:
                return self.operand(self._scalar(single))
            case elements:
                return ptx.Group(tuple(map(self.operand, elements)))

    def _offset(self, node: ptx.Binary) -> ptx.Offset | None:
        """`name + constant...` as a base and a displacement, or None if it has another form."""
        spine: list[ptx.Binary] = []
        base: ptx.Constant = node
        while isinstance(base, ptx.Binary) and base.operator in ("+", "-"):
            spine.append(base)
            base = base.left
        if not isinstance(base, ptx.Name) or is_constant_name(base) or not spine:
            return None
        first = spine.pop()
        if first.operator != "+":
            self.faults.add_at(
                "TSR1001",
                f"expected `+` after `{base.name}`",
                first,
                0,
                "write a negative displacement as `+-4`",
            )
        displacement: ptx.Constant = first.right
        while spine:
            outer = spine.pop()
            displacement = ptx.Binary(outer.operator, displacement, outer.right)
        return ptx.Offset(base, self.constant(displacement))

    def _scalar(self, node: Any) -> Any:
        """A bracketed single expression without its brackets."""
        while isinstance(node, Parenthesised):
            if len(node.elements) != 1:
                start, end = self.faults.place(node) or (0, 1)
                self.faults.add("TSR1001", "expected one expression in parentheses", start, end)
                return _ZERO
            node = node.elements[0]
        return node

    def _nested(self, node: ptx.Constant, start: int, end: int, *parts: object) -> ptx.Constant:
        """A node with operators, or its value if the operators are nested deeply."""
        depth = 1 + max(map(self.faults.depth, parts))
        if depth == FOLD_DEPTH and (folded := fold(node)) is not None:
            node, depth = folded, 1
        self.faults.note(node, start, end, depth)
        return node

    def _noted(self, node: _Node, first: Token, last: Token | None = None) -> _Node:
        self.faults.note(node, first.start_pos or 0, (last or first).end_pos or 0)
        return node
