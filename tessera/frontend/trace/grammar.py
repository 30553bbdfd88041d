"""Parses trace records and values with `grammars/trace.lark` if the patterns do not match them.

In: a text and the rule to read it by. Out: the syntax of `tessera.frontend.trace.syntax`, or a
`SyntaxFault` that says where in the text something else was expected. This module is imported only
for a text that needs it: importing Lark and building its tables costs more than a small trace.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import lark
from lark import Lark, Transformer, UnexpectedInput, v_args

from tessera.frontend.text.grammar import grammar_text
from tessera.frontend.trace.syntax import (
    AddressSyntax,
    AttributeSyntax,
    ByValueSyntax,
    OperandSyntax,
    ScalarSyntax,
    SyntaxFault,
    Token,
    WordSyntax,
)

_VALUE_RULES = (
    "integer",
    "triple",
    "shape",
    "address",
    "pointers",
    "argument",
    "arguments",
    "operands",
    "attributes",
)

_HUMAN_NAMES = {
    "VERSION": "the version `1` or `2`",
    "NAME": "a name",
    "KERNEL": "`MODULE.KERNEL`",
    "ARCH": "an architecture such as `sm_80`",
    "OPERATOR": "an operator such as `aten::mm.out`",
    "ADDRESS": "an address, `BUFFER` or `BUFFER+BYTES`",
    "POINTERS": "`@{OFFSET:ADDRESS, ...}`",
    "FIELD": "`key=value`",
    "INTEGER": "an integer",
    "EXTENT": "an extent",
    "BUFFER": "a name",
    "VALUE": "a value",
    "HEX": "hexadecimal digits",
    "STRING": "a string",
    "NUMBER": "a number",
    "CONSTANT": "`true`, `false` or `null`",
    "COMMA": "`,`",
    "COLON": "`:`",
    "PLUS": "`+`",
    "AT": "`@`",
    "X": "`x`",
    "LSQB": "`[`",
    "RSQB": "`]`",
    "LBRACE": "`{`",
    "RBRACE": "`}`",
    "$END": "the end",
}
_WORD = re.compile(r"[A-Za-z0-9_$.+%:-]+|\S")
_FIELD_WITHOUT_VALUE = re.compile(
    r"([A-Za-z_][A-Za-z0-9_]*(?::[A-Za-z_][A-Za-z0-9_.-]*)?=)([\[{])?"
)


def parse_by_grammar(text: str, rule: str) -> object:
    """The syntax of a text; `rule` is one of the grammar's start rules."""
    try:
        return trace_parser().parse(text, start=rule)
    except UnexpectedInput as problem:
        raise _fault(text, problem) from None


@cache
def trace_parser() -> Lark:
    """The parser of all start rules, built once."""
    return Lark(
        grammar_text("trace"),
        parser="lalr",
        start=["record", *_VALUE_RULES],
        transformer=_Build(),
        maybe_placeholders=True,
    )


def _with_own_tokens(
    build: Callable[[list[object]], object], _rule: str, children: list[object], _meta: object
) -> object:
    """Call a method of `_Build` with tokens that do not depend on Lark."""
    return build([_own(child) if isinstance(child, lark.Token) else child for child in children])


def _own(token: lark.Token) -> Token:
    return Token(token.type, str(token), token.start_pos or 0)


# The values of the parts of a rule, whose types differ from rule to rule.
Children = Sequence[Any]


@v_args(wrapper=_with_own_tokens)
class _Build(Transformer[Token, Any]):
    """One method per rule: what the LALR parser keeps when it reduces."""

    def record(self, children: Sequence[Token]) -> Sequence[Token]:
        return children

    def integer(self, children: Children) -> object:
        return children[0]

    pointer = integer

    def triple(self, children: Children) -> tuple[object, ...]:
        return tuple(child for child in children if child is not None)

    shape = pointers = arguments = operands = dimensions = strides = attributes = list = triple

    def address(self, children: Children) -> AddressSyntax:
        return AddressSyntax(*children)

    def word(self, children: Children) -> WordSyntax:
        return WordSyntax(*children)

    def scalar(self, children: Children) -> ScalarSyntax:
        return ScalarSyntax(*children)

    def by_value(self, children: Children) -> ByValueSyntax:
        kind, count, digits, words = children
        return ByValueSyntax(kind, count, digits, words or ())

    def operand(self, children: Children) -> OperandSyntax:
        return OperandSyntax(*children)

    def attribute(self, children: Children) -> AttributeSyntax:
        return AttributeSyntax(*children)


def _fault(text: str, problem: UnexpectedInput) -> SyntaxFault:
    """Lark's exception as a place in the text and a sentence."""
    token = getattr(problem, "token", None)
    at_end = token is not None and token.type == "$END"
    expected = _expected(problem)
    if at_end:
        end = len(_without_comment(text).rstrip())
        return SyntaxFault(end, end + 1, f"expected {expected}", "the text ends here")
    start = problem.pos_in_stream if problem.pos_in_stream is not None else len(text)
    if field := _FIELD_WITHOUT_VALUE.match(text, start):
        if field[2]:
            closing = {"[": "]", "{": "}"}[field[2]]
            message = f"no matching `{closing}` for the `{field[2]}` of `{field[1]}`"
            return SyntaxFault(field.start(2), field.end(2), message)
        if "FIELD" in _expected_terminals(problem):
            return SyntaxFault(field.start(1), field.end(1), f"`{field[1]}` has no value")
    word = _WORD.match(text, start)
    end = word.end() if word else start + 1
    return SyntaxFault(start, end, f"expected {expected}, found `{text[start:end][:40]}`")


def _expected_terminals(problem: UnexpectedInput) -> set[str]:
    names = getattr(problem, "accepts", None) or getattr(problem, "expected", None)
    return set(names or getattr(problem, "allowed", None) or ())


def _expected(problem: UnexpectedInput) -> str:
    terminals = _expected_terminals(problem)
    if len(terminals) > 1:
        terminals.discard("$END")  # the tokens that may follow are more helpful than "end of text"
    names = sorted(_HUMAN_NAMES.get(name, f"`{name}`") for name in terminals)
    if len(names) < 2:
        return names[0] if names else "something else"
    return ", ".join(names[:-1]) + " or " + names[-1]


def _without_comment(text: str) -> str:
    """The text before a `//` outside values, which is exact enough to place a caret."""
    return re.split(r"(?:^|\s)//", text, maxsplit=1)[0]
