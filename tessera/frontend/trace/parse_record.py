"""Text of trace records and their values to syntax, by `grammars/trace.lark`.

In: the text after `//!`, or the text of one value. Out: tokens in small tuples (`syntax`). A text
with an error raises `SyntaxFault` with the place and what was expected.

Common texts are matched by patterns made of the grammar's own terminals. A text that they do not
match, right or wrong, is left to the parser in `grammar`.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple, cast

from tessera.frontend.text.grammar import grammar_text
from tessera.frontend.trace.syntax import AddressSyntax, Field, SyntaxFault, Token

_MAX_LIST_DEPTH = 8
_ADDRESS = r"(?P<buffer><BUFFER>)(?:\+(?P<offset><INTEGER>))?"
_PLAIN_VALUES = {
    "address": _ADDRESS,
    "integer": "<INTEGER>",
    "triple": "(?P<x><INTEGER>),(?P<y><INTEGER>),(?P<z><INTEGER>)",
    "shape": "<EXTENT>(?:x<EXTENT>)*",
}
_TERMINAL = re.compile(r"^([A-Z]+): /(.*)/$", re.MULTILINE)
_FORM = re.compile(r'^(?:record:|      \|) "([a-z.]+)"((?: [A-Z]+)*?)( FIELD\*)?$', re.MULTILINE)


def parse_record(text: str) -> tuple[list[Token], list[Field]]:
    """The names of a record and its fields; its first word must be known."""
    plain = _plain_record(text)
    return _parse_record_by_grammar(text) if plain is None else plain


def parse_value(rule: str, text: str) -> Any:
    """The syntax of one value; `rule` is one of the grammar's start rules."""
    plain = _plain_value(rule, text)
    if plain is not None:
        return plain
    if rule == "attributes":
        _refuse_deep_lists(text)
    return _parse(text, rule)


# --- the common cases, by the grammar's own terminals ---------------------------------------


@cache
def terminals() -> dict[str, str]:
    """The grammar's terminals as regular expressions; only Lark knows the escapes of `STRING`."""
    return dict(_TERMINAL.findall(grammar_text("trace")))


@cache
def _pattern(form: str) -> re.Pattern[str]:
    """A form with the names of terminals in angle brackets, as a regular expression.

    Terminals have groups of their own, so that those of a form have names.
    """
    return re.compile(re.sub(r"<([A-Z]+)>", lambda name: f"(?:{terminals()[name[1]]})", form))


class RecordForm(NamedTuple):
    """How the grammar writes a kind of record: the terminals of its names, and whether it has keys.

    `start` matches its first word and names, `rest` its keys.
    """

    names: tuple[str, ...]
    start: re.Pattern[str]
    rest: re.Pattern[str]


@cache
def record_forms() -> dict[str, RecordForm]:
    """The kinds of records in the grammar's rule `record`, by first word."""
    forms = {}
    for word, names, fields in _FORM.findall(grammar_text("trace")):
        kinds = tuple(names.split())
        groups = "".join(rf"[ \t]+(?P<n{place}><{kind}>)" for place, kind in enumerate(kinds))
        start = _pattern(rf"[ \t]*{re.escape(word)}{groups}")
        rest = _pattern(r"(?:[ \t]+<FIELD>)*[ \t\r]*" if fields else r"[ \t\r]*")
        forms[word] = RecordForm(kinds, start, rest)
    return forms


def _plain_record(text: str) -> tuple[list[Token], list[Field]] | None:
    """A common record without comments: the same result as the grammar at a tenth of the cost."""
    form = record_forms().get(next(iter(text.split(None, 1)), ""))
    if form is None or not (start := form.start.match(text)):
        return None
    if not form.rest.fullmatch(text, start.end()):
        return None
    names = [_token(start, f"n{place}", kind) for place, kind in enumerate(form.names)]
    matches = _pattern("<FIELD>").finditer(text, start.end())
    return names, [_field(match[0], match.start()) for match in matches]


def plain_argument(text: str) -> tuple[str, str, str] | None:
    """`x+4` as ("x", "+", "4"), `x` as ("x", "+", "0"), `u32:7` as ("u32", ":", "7").

    None for anything else, which the grammar then reads or refuses.
    """
    if match := _pattern(_ADDRESS).fullmatch(text):
        return match["buffer"], "+", match["offset"] or "0"
    if match := _pattern("(?P<type><BUFFER>):(?P<value><VALUE>)").fullmatch(text):
        return match["type"], ":", match["value"]
    return None


def _plain_value(rule: str, text: str) -> object:
    """A common value without blanks or comments; None for anything else."""
    if rule not in _PLAIN_VALUES or not (match := _pattern(_PLAIN_VALUES[rule]).fullmatch(text)):
        return None
    if rule == "address":
        offset = _token(match, "offset", "INTEGER") if match["offset"] else None
        return AddressSyntax(_token(match, "buffer", "BUFFER"), offset)
    if rule == "integer":
        return _token(match, 0, "INTEGER")
    if rule == "triple":
        return tuple(_token(match, place, "INTEGER") for place in "xyz")
    extents = _pattern("<EXTENT>").finditer(text)
    return tuple(_token(extent, 0, "EXTENT") for extent in extents)


def _token(match: re.Match[str], place: int | str, kind: str) -> Token:
    return Token(kind, match[place], match.start(place))


def _field(text: str, at: int) -> Field:
    key, _, value = text.partition("=")
    return Field(key, value, at)


# --- the grammar ---------------------------------------------------------------------------


def _parse_record_by_grammar(text: str) -> tuple[list[Token], list[Field]]:
    tokens = cast("list[Token]", _parse(text, "record"))
    fields = [_field(str(token), token.start_pos) for token in tokens if token.type == "FIELD"]
    return [token for token in tokens if token.type != "FIELD"], fields


def _parse(text: str, rule: str) -> Any:
    # Imported here because Lark and its tables take longer than most traces.
    from tessera.frontend.trace.grammar import parse_by_grammar

    return parse_by_grammar(text, rule)


def _refuse_deep_lists(text: str) -> None:
    """Raise if lists nest deeper than any operator needs (and than Python can compare)."""
    depth = 0
    for bracket in re.finditer(r'"(?:[^"\\]|\\.)*"|[\[\]]', text):
        depth += {"[": 1, "]": -1}.get(bracket[0], 0)
        if depth > _MAX_LIST_DEPTH:
            start = bracket.start()
            message = f"lists nest deeper than {_MAX_LIST_DEPTH} levels"
            raise SyntaxFault(start, start + 1, message)
