"""Parse tree of `grammars/ptx.lark` to PTX records, reduction by reduction.

Lark calls one method per rule as the LALR parser reduces it; no tree is built in between. Faults
that the grammar does not see (a type that does not exist, a number too large, a nesting too deep)
go to `faults` with their place, and building goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lark import Token

from tessera.diagnostics import Source
from tessera.frontend.ptx.constants import Numbers, integer_constant
from tessera.frontend.ptx.declaration_builder import DeclarationBuilder
from tessera.frontend.ptx.declarations import declare_parameters
from tessera.frontend.ptx.expressions import MAX_DEPTH, Children
from tessera.frontend.ptx.faults import Faults
from tessera.frontend.ptx.statement_runs import RunSplitter
from tessera.ir.ptx import syntax as ptx


@dataclass(frozen=True, slots=True)
class _Parameters:
    """The parameters (or the results) of a function."""

    variables: tuple[ptx.Variable, ...]
    are_returns: bool


@dataclass(frozen=True, slots=True)
class BracedBody:
    """Statements between braces, and how deep the deepest block inside is."""

    statements: tuple[ptx.Statement, ...]
    at: int
    depth: int


@dataclass(frozen=True, slots=True)
class _Nested:
    """A block that is a statement of an outer body."""

    block: ptx.Block
    depth: int


class ModuleBuilder(DeclarationBuilder):
    """One method per rule of the grammar; `start` returns the module."""

    def __init__(self, source: Source, splitter: RunSplitter | None = None) -> None:
        self.source = source
        self.faults = Faults(source)
        self.splitter = RunSplitter() if splitter is None else splitter
        self.numbers = Numbers()

    # --- module ---------------------------------------------------------------------------

    def start(self, children: Children) -> ptx.Module:
        """The whole file."""
        (version, (target, *further), address_size), *items = children
        flat = [*further, *self.fragment(items)]
        major, minor = version.split()[1].split(".")
        return ptx.Module(
            version=(int(major[:9]), int(minor[:9])),
            target=target.names,
            address_size=address_size,
            items=tuple(flat),
            source=self.source,
        )

    def fragment(self, children: Children) -> list[ptx.Item]:
        """Items that were cut out of a file."""
        flat: list[ptx.Item] = []
        for item in children:
            flat += item if isinstance(item, list) else [item]
        return flat

    def header(self, children: Children) -> tuple[Token, list[ptx.Target], int | None]:
        """`.version`, `.target`, `.address_size`."""
        targets = [child for child in children if isinstance(child, ptx.Target)]
        size = children[-1]
        return children[0], targets, size if isinstance(size, int) else None

    def target(self, children: Sequence[Token]) -> ptx.Target:
        """`.target sm_90a, debug`."""
        return ptx.Target(tuple(map(str, children[1:])), _at(children))

    def further_target(self, children: Sequence[ptx.Target]) -> ptx.Target:
        """A `.target` after the header."""
        return children[0]

    def address_size(self, children: Sequence[Token]) -> int:
        """`.address_size 64`."""
        size = integer_constant(children[0]).value
        if size not in (32, 64):
            self._fault("TSR1009", f"address size is neither 32 nor 64: {size}", children[0])
        return size

    def file(self, children: Children) -> ptx.SourceFile:
        """`.file 1 "a.cu"`."""
        keyword, index, name, timestamp, size = children
        return ptx.SourceFile(
            _natural(index),
            str(name)[1:-1],
            timestamp and _natural(timestamp),
            size and _natural(size),
            keyword.start_pos,
        )

    def location(self, children: Children) -> ptx.Location:
        """`.loc 1 2 3`."""
        keyword, file, line, column, inlined = children
        numbers = (_natural(file), _natural(line), _natural(column))
        if inlined is None:
            return ptx.Location(*numbers, at=keyword.start_pos)
        name, offset, *origin = inlined
        return ptx.Location(
            *numbers,
            str(name),
            _natural(offset) if offset else 0,
            (_natural(origin[0]), _natural(origin[1]), _natural(origin[2])),
            keyword.start_pos,
        )

    def inlined(self, children: Sequence[object]) -> list[object]:
        """`, function_name f, inlined_at 1 2 3`."""
        return list(children)

    def section(self, children: Sequence[Token]) -> ptx.Section:
        """A debug section, kept as it is."""
        return ptx.Section(str(children[0]), _at(children))

    def alias(self, children: Sequence[Token]) -> ptx.Alias:
        """`.alias f, g;`."""
        return ptx.Alias(str(children[1]), str(children[2]), _at(children))

    def pragma(self, children: Sequence[Token]) -> ptx.Pragma:
        """`.pragma "nounroll";`."""
        return ptx.Pragma(tuple(str(text)[1:-1] for text in children[1:]), _at(children))

    # --- functions ------------------------------------------------------------------------

    def function(self, children: Sequence[object]) -> ptx.Function:
        """A kernel or device function, or the declaration of one."""
        tokens = [child for child in children if isinstance(child, Token)]
        *linkage, kind, name = tokens
        lists = [child for child in children if isinstance(child, _Parameters)]
        returns = next((p.variables for p in lists if p.are_returns), ())
        parameters = next((p.variables for p in lists if not p.are_returns), None)
        body = next((child for child in children if isinstance(child, BracedBody)), None)
        return ptx.Function(
            is_entry=kind == ".entry",
            name=str(name),
            linkage=str(linkage[0])[1:] if linkage else None,
            returns=returns,
            parameters=parameters or (),
            has_parameter_list=parameters is not None,
            directives=tuple(c for c in children if isinstance(c, ptx.Directive)),
            attributes=_attributes(children),
            body=None if body is None else body.statements,
            at=_at(children),
        )

    def returns(self, children: Sequence[object]) -> _Parameters:
        """The results of a function."""
        return _Parameters(self._listed(children), True)

    def parameters(self, children: Children) -> _Parameters:
        """The parameters of a function."""
        return _Parameters(self._listed(children), False)

    def _listed(self, children: Children) -> tuple[ptx.Variable, ...]:
        if children and isinstance(children[0], Token):
            return declare_parameters(str(children[0]), _at(children))
        return tuple(child for child in children if child is not None)

    def parameter(self, children: Sequence[object]) -> ptx.Variable:
        """One parameter."""
        return self._variables(children)[0]

    def directive(self, children: Sequence[object]) -> ptx.Directive:
        """`.maxntid 128, 1, 1`."""
        name, *values = (child for child in children if child is not None)
        constants = self.constants(values)
        self.faults.forget_places()
        return ptx.Directive(str(name)[1:], constants)

    def directive_pragma(self, children: Sequence[Token]) -> ptx.Directive:
        """`.pragma` between a function's head and its body."""
        return ptx.Directive("pragma", self.pragma(children).strings)

    flag = directive

    def attribute(self, children: Sequence[ptx.Attribute]) -> tuple[ptx.Attribute, ...]:
        """`.attribute(.managed)`."""
        return tuple(children)

    def attribute_entry(self, children: Children) -> ptx.Attribute:
        """`.unified(a, b)`."""
        name, *values = (child for child in children if child is not None)
        return ptx.Attribute(name=str(name)[1:], values=tuple(values))

    # --- bodies ---------------------------------------------------------------------------

    def body(self, children: Children) -> BracedBody:
        """Statements between braces."""
        statements: list[ptx.Statement] = []
        depth = 0
        for child in children[1:]:
            if isinstance(child, list):
                statements += child
            elif isinstance(child, _Nested):
                statements.append(child.block)
                depth = max(depth, child.depth)
            else:
                statements.append(child)
        return BracedBody(tuple(statements), _at(children), depth + 1)

    def block(self, children: Sequence[object]) -> _Nested:
        """A body inside a body."""
        body = self.body(children)
        if body.depth == MAX_DEPTH:
            self.faults.add(
                "TSR1008",
                "blocks are nested too deeply",
                body.at,
                body.at + 1,
                f"more than {MAX_DEPTH} blocks are open here",
            )
        if body.depth >= MAX_DEPTH:
            return _Nested(ptx.Block((), body.at), body.depth)
        return _Nested(ptx.Block(body.statements, body.at), body.depth)

    def run(self, children: Sequence[Token]) -> list[ptx.Statement]:
        """A run of ordinary statements."""
        return self.splitter.split(str(children[0]), _at(children))

    def instruction(self, children: Children) -> ptx.Instruction:
        """An instruction, read token by token."""
        guard, at = None, _at(children)
        if isinstance(children[0], tuple):
            (guard, at), *children = children
        tokens = [child for child in children if isinstance(child, Token)]
        nodes = [child for child in children if child is not None and not isinstance(child, Token)]
        opcode = self.splitter.opcode("".join(tokens))
        is_call = opcode.name == "call"
        operands = tuple(self.operand(node, is_call=is_call) for node in nodes)
        self.faults.forget_places()
        return ptx.Instruction(guard, opcode, operands, at)

    def guard(self, children: Sequence[Token]) -> tuple[ptx.Guard, int]:
        """`@!%p`."""
        return ptx.Guard(str(children[-1]), len(children) == 3), _at(children)

    def label(self, children: Sequence[Token]) -> ptx.LabelStatement:
        """`name:`."""
        return ptx.LabelStatement(str(children[0]), _at(children))

    def prototype(self, children: Sequence[object]) -> ptx.CallPrototype:
        """`name: .callprototype ...;`."""
        lists = [child for child in children if isinstance(child, _Parameters)]
        return ptx.CallPrototype(
            name=str(children[0]),
            returns=next((p.variables for p in lists if p.are_returns), ()),
            parameters=next((p.variables for p in lists if not p.are_returns), ()),
            directives=tuple(c for c in children if isinstance(c, ptx.Directive)),
            at=_at(children),
        )

    def target_list(self, children: Sequence[Token]) -> ptx.TargetList:
        """`name: .branchtargets a, b;`."""
        name, kind, *targets = children
        return ptx.TargetList(str(name), str(kind)[1:], tuple(map(str, targets)), _at(children))


def _at(children: Children) -> int:
    first = next(child for child in children if isinstance(child, Token))
    return first.start_pos or 0


def _natural(token: Token) -> int:
    return integer_constant(str(token)).value


def _attributes(children: Sequence[object]) -> tuple[ptx.Attribute, ...]:
    attributes: tuple[ptx.Attribute, ...] = ()
    for child in children:
        if isinstance(child, tuple) and child and isinstance(child[0], ptx.Attribute):
            attributes += child
    return attributes
