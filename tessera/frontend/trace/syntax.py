"""Text of trace records and their values to syntax, by `grammars/trace.lark`.

In: the text after `//!`, or the text of one value. Out: Lark tokens in small tuples; a token's
`start_pos` counts from the start of the text that was parsed, and the caller knows where that
stands. What is wrong with a text is a `SyntaxFault`: where in the text, and what was expected.
Nothing is resolved here: names stay names and numbers stay digits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, cast

from lark import Lark, Token, Transformer, UnexpectedInput

from tessera.frontend.text.grammar import grammar_text

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
    "VERSION": "the version `1`",
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
_FIELD_WITHOUT_VALUE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*=)([\[{])?")
_MAX_LIST_DEPTH = 8
_PLAIN_RECORDS = (("launch", "KERNEL"), ("buffer", "NAME"), ("variant", "ARCH"))


class SyntaxFault(Exception):
    """A text that is not in the grammar: characters `start` to `end` are to blame."""

    def __init__(self, start: int, end: int, message: str, label: str = "") -> None:
        super().__init__(message)
        self.start = start
        self.end = end
        self.message = message
        self.label = label


class AddressSyntax(NamedTuple):
    """`BUFFER` or `BUFFER+BYTES`."""

    buffer: Token
    offset: Token | None


class WordSyntax(NamedTuple):
    """`OFFSET:ADDRESS` inside `@{...}`."""

    offset: Token
    target: AddressSyntax


class ScalarSyntax(NamedTuple):
    """`TYPE:VALUE`."""

    type: Token
    value: Token


class ByValueSyntax(NamedTuple):
    """`b8[N]:HEX@{...}`."""

    type: Token
    size: Token
    digits: Token
    words: tuple[WordSyntax, ...]


ArgumentSyntax = AddressSyntax | ScalarSyntax | ByValueSyntax


class OperandSyntax(NamedTuple):
    """`BUF+OFF:dtype[shape]{strides}`."""

    address: AddressSyntax
    dtype: Token
    shape: tuple[Token, ...]
    strides: tuple[Token, ...] | None


class AttributeSyntax(NamedTuple):
    """`"key": value` of an `op`: the value's tokens, lists as tuples."""

    key: Token
    value: Any


@dataclass(frozen=True, slots=True)
class Field:
    """`key=value` of a record: `at` and `value_at` are offsets in the record's text."""

    key: str
    value: str
    at: int
    value_at: int


class _Build(Transformer[Token, Any]):
    """One method per rule: what the LALR parser keeps when it reduces."""

    def record(self, children: list[Token]) -> list[Token]:
        return children

    def integer(self, children: list[Token]) -> Token:
        return children[0]

    def triple(self, children: list[Token]) -> tuple[Token, ...]:
        return tuple(children)

    def shape(self, children: list[Token]) -> tuple[Token, ...]:
        return tuple(children)

    def address(self, children: list[Token | None]) -> AddressSyntax:
        return AddressSyntax(cast(Token, children[0]), children[1])

    def word(self, children: list[Any]) -> WordSyntax:
        return WordSyntax(*children)

    def pointers(self, children: list[WordSyntax | None]) -> tuple[WordSyntax, ...]:
        return tuple(word for word in children if word is not None)

    def pointer(self, children: list[AddressSyntax]) -> AddressSyntax:
        return children[0]

    def scalar(self, children: list[Token]) -> ScalarSyntax:
        return ScalarSyntax(*children)

    def by_value(self, children: list[Any]) -> ByValueSyntax:
        kind, count, digits, words = children
        return ByValueSyntax(kind, count, digits, words or ())

    def arguments(self, children: list[ArgumentSyntax | None]) -> tuple[ArgumentSyntax, ...]:
        return tuple(argument for argument in children if argument is not None)

    def operands(self, children: list[OperandSyntax | None]) -> tuple[OperandSyntax, ...]:
        return tuple(operand for operand in children if operand is not None)

    def operand(self, children: list[Any]) -> OperandSyntax:
        return OperandSyntax(*children)

    def dimensions(self, children: list[Token | None]) -> tuple[Token, ...]:
        return tuple(token for token in children if token is not None)

    def strides(self, children: list[Token | None]) -> tuple[Token, ...]:
        return tuple(token for token in children if token is not None)

    def attributes(self, children: list[AttributeSyntax | None]) -> tuple[AttributeSyntax, ...]:
        return tuple(entry for entry in children if entry is not None)

    def attribute(self, children: list[Any]) -> AttributeSyntax:
        return AttributeSyntax(*children)

    def list(self, children: list[Any]) -> tuple[Any, ...]:
        return tuple(child for child in children if child is not None)


@cache
def _parser() -> Lark:
    return Lark(
        grammar_text("trace"),
        parser="lalr",
        start=["record", *_VALUE_RULES],
        transformer=_Build(),
        maybe_placeholders=True,
    )


def parse_record(text: str) -> tuple[list[Token], list[Field]]:
    """The names of a record and its fields; its first word must be known."""
    plain = _plain_record(text)
    return _parse_record_by_grammar(text) if plain is None else plain


def parse_value(rule: str, text: str) -> Any:
    """The syntax of one value; `rule` is one of the grammar's start rules."""
    if rule == "attributes":
        _refuse_deep_lists(text)
    return _parse(text, rule)


# --- the common cases, by the grammar's own terminals ---------------------------------------


@dataclass(frozen=True, slots=True)
class _Patterns:
    """Regular expressions made of terminals: whole records, one field, one simple argument."""

    records: tuple[tuple[str, re.Pattern[str]], ...]
    field: re.Pattern[str]
    address: re.Pattern[str]
    scalar: re.Pattern[str]


@cache
def _patterns() -> _Patterns:
    def terminal(name: str) -> str:
        return f"(?:{_parser().get_terminal(name).pattern.to_regexp()})"

    field, name = terminal("FIELD"), terminal("BUFFER")
    return _Patterns(
        records=tuple(
            (kind, re.compile(rf"[ \t]*{word}[ \t]+({terminal(kind)})(?:[ \t]+{field})*[ \t\r]*"))
            for word, kind in _PLAIN_RECORDS
        ),
        field=re.compile(field),
        address=re.compile(rf"({name})(?:\+({terminal('INTEGER')}))?"),
        scalar=re.compile(rf"({name}):({terminal('VALUE')})"),
    )


def _plain_record(text: str) -> tuple[list[Token], list[Field]] | None:
    """A common record without comments: what the grammar would give, at a tenth of the cost."""
    patterns = _patterns()
    for kind, pattern in patterns.records:
        if record := pattern.fullmatch(text):
            start, end = record.span(1)
            name = Token(kind, record[1], start_pos=start, end_pos=end)
            fields = patterns.field.finditer(text, end)
            return [name], [_field(field[0], field.start()) for field in fields]
    return None


def plain_argument(text: str) -> tuple[str, str, str] | None:
    """`x+4` as ("x", "+", "4"), `x` as ("x", "+", "0"), `u32:7` as ("u32", ":", "7").

    None for anything else, which the grammar then reads or refuses.
    """
    patterns = _patterns()
    if match := patterns.address.fullmatch(text):
        return match[1], "+", match[2] or "0"
    if match := patterns.scalar.fullmatch(text):
        return match[1], ":", match[2]
    return None


def _field(text: str, at: int) -> Field:
    key, _, value = text.partition("=")
    return Field(key, value, at, at + len(key) + 1)


# --- the grammar ---------------------------------------------------------------------------


def _parse_record_by_grammar(text: str) -> tuple[list[Token], list[Field]]:
    tokens = cast("list[Token]", _parse(text, "record"))
    fields = [_field(str(token), token.start_pos or 0) for token in tokens if token.type == "FIELD"]
    return [token for token in tokens if token.type != "FIELD"], fields


def _parse(text: str, rule: str) -> Any:
    try:
        return _parser().parse(text, start=rule)
    except UnexpectedInput as problem:
        raise _fault(text, problem) from None


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
        terminals.discard("$END")  # what may follow says more than that nothing has to
    names = sorted(_HUMAN_NAMES.get(name, f"`{name}`") for name in terminals)
    if len(names) < 2:
        return names[0] if names else "something else"
    return ", ".join(names[:-1]) + " or " + names[-1]


def _without_comment(text: str) -> str:
    """The text before a `//` that no value holds: good enough to place a caret."""
    return re.split(r"(?:^|\s)//", text, maxsplit=1)[0]


def _refuse_deep_lists(text: str) -> None:
    """Raise where lists nest deeper than any operator needs (and Python could compare)."""
    depth = 0
    for bracket in re.finditer(r'"(?:[^"\\]|\\.)*"|[\[\]]', text):
        depth += {"[": 1, "]": -1}.get(bracket[0], 0)
        if depth > _MAX_LIST_DEPTH:
            start = bracket.start()
            message = f"lists nest deeper than {_MAX_LIST_DEPTH} levels"
            raise SyntaxFault(start, start + 1, message)
