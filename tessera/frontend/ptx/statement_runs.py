"""Runs of ordinary statements: the fast path through a function body.

`RUN` is the regular expression of the grammar's RUN terminal. It accepts up to `RUN_LENGTH`
statements, each a label, a `.loc` line, a pragma, a plain declaration or an instruction whose
operands are names, numbers, vectors, addresses, pairs and argument lists, spelled without comments
inside a statement. All repeats are possessive, so matching is linear and keeps no stack.
`RunSplitter` takes such a text apart again into records. Anything else is left to the rules of
`grammars/ptx.lark`; a run must accept nothing that they refuse, nor read it differently.

Operands repeat: a splitter remembers the record of every operand text and every operand list, so
equal operands are one object and most statements cost one dictionary look-up.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from tessera.frontend.ptx.constants import integer_constant, number_constant, strings_in
from tessera.frontend.ptx.declarations import (
    DECLARATION,
    FLAGS,
    PARAMETER_LIST,
    PRAGMA,
    declare,
    declare_parameters,
    read_directives,
)
from tessera.frontend.ptx.terminals import (
    BLANK,
    BLANKS,
    GAP,
    INTEGER,
    MODIFIER,
    NAME,
    NUMBER,
    SINK,
    TERMINALS,
    listed,
)
from tessera.ir.ptx import syntax as ptx

RUN_LENGTH = 400

REFERENCE = rf"(?:{NAME}|{SINK})(?:{MODIFIER})?"
ATOM = rf"(?:{REFERENCE}|{NUMBER})"
ATOMS = listed(ATOM, r"})")
VECTOR = rf"\{{{BLANK}{ATOMS}\}}"
BASE = rf"{NAME}(?:{BLANK}\+{BLANK}-?{INTEGER})?"
ADDRESS = rf"\[{BLANK}(?:{BASE}|{INTEGER}){BLANK}(?:,{BLANK}(?:{VECTOR}|{NAME}){BLANK})*+\]"
PLAIN = rf"(?:{REFERENCE}(?:{BLANK}\|{BLANK}{REFERENCE})?|{NUMBER}|!{BLANK}{NAME})"
GROUP = rf"\({BLANK}(?:{ATOMS})?\)"
OPERAND = rf"(?:{PLAIN}|{ADDRESS}|{VECTOR}|{GROUP})"
OPERANDS = listed(OPERAND, ";")

SPACES = r"[ \t]"
TRIPLE = rf"{INTEGER}{SPACES}++{INTEGER}{SPACES}++{INTEGER}"
INLINED = (
    rf",{SPACES}*+function_name{SPACES}++{NAME}(?:{SPACES}*+\+{SPACES}*+{INTEGER})?"
    rf"{SPACES}*+,{SPACES}*+inlined_at{SPACES}++{TRIPLE}"
)
LOCATION = rf"{TERMINALS['LOC']}{SPACES}++{TRIPLE}(?:{SPACES}*+{INLINED})?(?!{BLANK}[,0-9])"
# `name: .callprototype` and its like are statements of their own.
LABEL = rf"{NAME}{BLANK}:(?!{GAP}(?:\.callprototype\b|{TERMINALS['TARGET_LIST']}))"


def _instruction(capture: str) -> str:
    guard = rf"({capture}@{BLANK}!?{BLANK}{NAME})?{BLANK}"
    opcode = rf"({capture}{NAME}(?:{MODIFIER})*+)"
    return rf"{guard}{opcode}{BLANK}({capture}(?:{OPERANDS})?);"


def _statement(capture: str) -> str:
    label = rf"({capture}{LABEL})"
    location = rf"({capture}{LOCATION})"
    declaration = rf"({capture}{DECLARATION}){BLANK};"
    pragma = rf"({capture}{PRAGMA}){BLANK};"
    instruction = _instruction(capture)
    return rf"{GAP}(?:{label}|{instruction}|{location}|{declaration}|{pragma})"


ONE_STATEMENT = _statement("?:")
RUN = rf"(?:{ONE_STATEMENT}){{1,{RUN_LENGTH}}}+"
# What calls and branches through registers may go to: a statement, but not one of a run.
_EMPTY_OR_LIST = rf"(?:{BLANK}(?:{PARAMETER_LIST}|\({BLANK}\)))?"
PROTOTYPE = (
    rf"\.callprototype(?![\w$:]){_EMPTY_OR_LIST}{BLANK}{SINK}{_EMPTY_OR_LIST}"
    rf"(?:{BLANK}{FLAGS})*+"
)
TARGETS = rf"{TERMINALS['TARGET_LIST']}{BLANK}{NAME}(?:{BLANK},{BLANK}{NAME})*+"
_AIMS = rf"{NAME}{BLANK}:{BLANK}(?:{PROTOTYPE}|{TARGETS})"
INSTRUCTION = re.compile(_instruction(""))
"""One instruction with its parts."""
_ATOM = re.compile(ATOM)
_NAME = re.compile(NAME)


@functools.cache
def statement_expression() -> re.Pattern[str]:
    """One statement with its parts, or a brace (the last group); small files do not need it."""
    return re.compile(rf"{_statement('')}|{GAP}(?:({_AIMS}){BLANK};|([{{}}]))")


@functools.cache
def _operand_expression() -> re.Pattern[str]:
    return re.compile(OPERAND)


def _location(text: str) -> Callable[[int], ptx.Location]:
    """A function from an offset to the `.loc` record of a whole line."""
    head, _, inlined = text.partition(",")
    file, line, column = map(_natural, head.split()[1:])
    if not inlined:
        return functools.partial(ptx.Location, file, line, column, None, 0, None)
    function, _, where = inlined.partition(",")
    name, _, offset = function.split(None, 1)[1].partition("+")
    first, second, third = map(_natural, where.split()[1:])
    return functools.partial(
        ptx.Location,
        file,
        line,
        column,
        name.strip(),
        _natural(offset.strip() or "0"),
        (first, second, third),
    )


def _aims(text: str, at: int) -> ptx.CallPrototype | ptx.TargetList:
    """`name: .callprototype (...) _ (...)` or `name: .branchtargets a, b`, which starts at `at`."""
    head, _, rest = text.partition(":")
    name = _name_in(head)
    kind, *targets = _NAME.findall(rest)
    if kind != "callprototype":
        return ptx.TargetList(name, kind, tuple(targets), at)
    start = middle = text.index(kind) + len(kind)
    if text[start:].lstrip(BLANKS)[0] == "(":
        middle = text.index(")", start) + 1
    returns = declare_parameters(text[start:middle], at + start)
    parameters = declare_parameters(text[middle:], at + middle)
    return ptx.CallPrototype(
        name=name,
        returns=returns,
        parameters=parameters,
        directives=read_directives(text[text.index("_", middle) :]),
        at=at,
    )


def _natural(text: str) -> int:
    return int(text) if text.isdigit() and text[0] != "0" else integer_constant(text).value


class _BuiltOnDemand(dict[str, Any]):
    """A dictionary that builds missing values on access."""

    def __init__(self, build: Callable[[str], Any]) -> None:
        self.build = build

    def __missing__(self, text: str) -> object:
        value = self[text] = self.build(text)
        return value


class RunSplitter:
    """Takes runs apart into statements, sharing equal opcodes and operands between them."""

    @functools.cached_property
    def _opcodes(self) -> dict[str, ptx.Opcode]:
        return _BuiltOnDemand(_opcode)

    @functools.cached_property
    def _guards(self) -> dict[str, ptx.Guard]:
        return _BuiltOnDemand(_guard)

    @functools.cached_property
    def _locations(self) -> dict[str, Callable[[int], ptx.Location]]:
        return _BuiltOnDemand(_location)

    @functools.cached_property
    def _operands(self) -> dict[str, ptx.Operand]:
        return _BuiltOnDemand(self._operand)

    @functools.cached_property
    def _lists(self) -> dict[str, tuple[ptx.Operand, ...]]:
        return _BuiltOnDemand(self._operand_list)

    def split(self, text: str, base: int) -> list[ptx.Statement]:
        """The statements of a text that starts at offset `base` of its source, blocks included."""
        statements: list[ptx.Statement] = []
        append = statements.append
        opcodes, guards, lists = self._opcodes, self._guards, self._lists
        locations = self._locations
        instruction = ptx.Instruction
        outer: list[tuple[list[ptx.Statement], int]] = []
        scanner = statement_expression().scanner(text)  # type: ignore[attr-defined]
        for match in iter(scanner.match, None):
            label, guard, opcode, operands, location, declaration, pragma, aims, brace = (
                match.groups()
            )
            if guard is not None:
                at = base + match.start(2)
                append(instruction(guards[guard], opcodes[opcode], lists[operands], at))
            elif opcode is not None:
                at = base + match.start(3)
                append(instruction(None, opcodes[opcode], lists[operands], at))
            elif label is not None:
                append(ptx.LabelStatement(_name_in(label), base + match.start(1)))
            elif declaration is not None:
                statements += declare(declaration, base + match.start(6))
            elif location is not None:
                append(locations[location](base + match.start(5)))
            elif pragma is not None:
                append(ptx.Pragma(strings_in(pragma), base + match.start(7)))
            elif aims is not None:
                append(_aims(aims, base + match.start(8)))
            elif brace == "{":
                outer.append((statements, base + match.start(9)))
                statements = []
                append = statements.append
            else:
                inside = tuple(statements)
                statements, at = outer.pop()
                append = statements.append
                append(ptx.Block(inside, at))
        return statements

    def instruction(self, text: str) -> ptx.Instruction:
        """The instruction that a text is, without its `;`."""
        match = INSTRUCTION.fullmatch(f"{text};")
        assert match is not None, "it was read before"
        guard, opcode, operands = match.groups()
        read = None if guard is None else self._guards[guard]
        return ptx.Instruction(read, self._opcodes[opcode], self._lists[operands], 0)

    def opcode(self, text: str) -> ptx.Opcode:
        """The shared record of an opcode with its modifiers."""
        return self._opcodes[text]

    def _operand_list(self, text: str) -> tuple[ptx.Operand, ...]:
        return tuple(map(self._operands.__getitem__, _operand_expression().findall(text)))

    def _operand(self, text: str) -> ptx.Operand:
        match text[0]:
            case "[":
                return ptx.Address(self._address_parts(text))
            case "{":
                return ptx.Vector(self._atoms(text))
            case "(":
                return ptx.Group(self._atoms(text))
            case "!":
                return ptx.Not(ptx.Name(_name_in(text)))
        if "|" in text:
            first, second = map(_reference, _ATOM.findall(text))
            return ptx.Pair(first, second)
        return _atom(text)

    def _atoms(self, text: str) -> tuple[ptx.Operand, ...]:
        return tuple(map(self._operands.__getitem__, _ATOM.findall(text)))

    def _address_parts(self, text: str) -> tuple[ptx.Operand, ...]:
        head, comma, rest = text[1:-1].partition(",")
        base, *displacement = _ATOM.findall(head)
        first: ptx.Operand = self._operands[base]
        if displacement:
            first = ptx.Offset(ptx.Name(base), integer_constant(displacement[0]))
        return (first, *self._operand_list(rest)) if comma else (first,)


def _name_in(text: str) -> str:
    name = _NAME.search(text)
    assert name is not None
    return name[0]


def _guard(text: str) -> ptx.Guard:
    return ptx.Guard(_name_in(text), "!" in text)


@functools.lru_cache(maxsize=4096)
def _opcode(text: str) -> ptx.Opcode:
    name, *modifiers = text.split(".")
    return ptx.Opcode(name, tuple(modifiers))


def _atom(text: str) -> ptx.Name | ptx.Sink | ptx.Integer | ptx.Float:
    if text[0] == "-" or text[0].isdigit():
        return number_constant(text)
    return _reference(text)


def _reference(text: str) -> ptx.Name | ptx.Sink:
    name, dot, component = text.partition(".")
    return ptx.Sink() if text == "_" else ptx.Name(name, component if dot else None)
