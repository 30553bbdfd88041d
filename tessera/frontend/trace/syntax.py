"""The parts of the syntax of trace records and their values.

A token's `start_pos` counts from the start of the text that was parsed, and the caller knows the
offset of that text. Nothing is resolved here: names stay names and numbers stay digits.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class SyntaxFault(Exception):
    """A text that is not in the grammar: characters `start` to `end` are to blame."""

    def __init__(self, start: int, end: int, message: str, label: str = "") -> None:
        super().__init__(message)
        self.start = start
        self.end = end
        self.message = message
        self.label = label


class Token(str):
    """A piece of a text: which terminal of the grammar it is, and where it starts."""

    __slots__ = ("start_pos", "type")
    type: str
    start_pos: int

    def __new__(cls, kind: str, text: str, start: int) -> Token:
        """A piece of a text that starts at an offset."""
        token = super().__new__(cls, text)
        token.type = kind
        token.start_pos = start
        return token

    @property
    def end_pos(self) -> int:
        """The end of the piece."""
        return self.start_pos + len(self)


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


class Field(NamedTuple):
    """`key=value` of a record, whose key starts at an offset in the record's text."""

    key: str
    value: str
    at: int
