"""Bodies of functions that stay text until their statements are needed.

In: a text, and where a body begins in it. Out: a `TextBody`, with its outline (`outline`) if there
is one. Whatever is unusual has no outline: the body is then matched statement by statement
(`statement_runs`), and verified record by record.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tessera.frontend.ptx.outline import outline_body
from tessera.frontend.ptx.statement_runs import RunSplitter, statement_expression
from tessera.frontend.ptx.terminals import BLANKS, COMMENT, NAME, STRING
from tessera.frontend.text.bulk import collector_paused
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.unread import BodyOutline
from tessera.ir.verify_ptx.names import TOKEN

MAX_BLOCKS = 100
"""Bodies nested deeper than this are read token by token, which reports where they are too deep."""

LINES_WITH_BRACES = 50
"""How many lines that begin with `}` are taken for the end of a body."""

_PLAIN = rf'[^{{}}/"#]*+(?:(?>{COMMENT}|{STRING}|/(?!\*))[^{{}}/"#]*+)*+'
_INSIDE = _PLAIN
for _ in range(3):
    _INSIDE = rf"{_PLAIN}(?:\{{{_INSIDE}\}}{_PLAIN})*+"

_COMMENT_OR_STRING = re.compile(rf"{COMMENT}|{STRING}")
_NOT_PLAIN = re.compile(r'[{"/#]')
_NAME = re.compile(rf"(?<=[{BLANKS},\[({{{{!|@+-])(?!{TOKEN})({NAME})")


class TextBody(NamedTuple):
    """The statements between two offsets of a text, all of them ordinary."""

    text: str
    start: int
    end: int
    splitter: RunSplitter
    outline: BodyOutline | None

    def build(self) -> tuple[ptx.Statement, ...]:
        """Every statement."""
        text, start = self.text[self.start : self.end], self.start
        if self.outline is not None and self.outline.rare:
            from tessera.frontend.ptx.grammar import parse_body

            statements = parse_body(self.text, start - 1, self.end + 1)
            assert statements is not None, "every statement was read before"
            return statements
        with collector_paused():
            return tuple(self.splitter.split(without_comments(text), start))

    def instruction(self, text: str) -> ptx.Instruction:
        """The instruction that a text of the outline stands for."""
        if self.outline is not None and text in self.outline.rare:
            from tessera.frontend.ptx.grammar import parse_instruction

            rare = parse_instruction(text)
            assert rare is not None, "it was read before"
            return rare
        return self.splitter.instruction(text)

    def rename(self, texts: Sequence[str], names: Mapping[str, str]) -> list[str]:
        """Texts of the outline with other names; those that are tokens already stay."""
        parts = _NAME.split(";".join(texts))
        parts[1::2] = map(names.__getitem__, parts[1::2])
        return "".join(parts).split(";") if texts else []


class BodyReader:
    """Reads the bodies of one text."""

    def __init__(self, text: str, splitter: RunSplitter) -> None:
        self.text = text
        self.splitter = splitter
        self.wasted = 0

    def read(self, start: int) -> tuple[TextBody, int] | None:
        """The ordinary body whose `{` ends at `start`, and where the text goes on behind it."""
        text = self.text
        for end in self._ends(start):
            outline = outline_body(text[start:end])
            if outline is not None:
                return TextBody(text, start, end, self.splitter, outline), end + 1
        depth, position = 0, start
        while depth <= MAX_BLOCKS:
            statement = statement_expression().match(text, position)
            if statement is None:
                return None
            brace = statement[9]
            if brace == "}" and depth == 0:
                return TextBody(text, start, position, self.splitter, None), statement.end()
            depth += 0 if brace is None else 1 if brace == "{" else -1
            position = statement.end()
        return None

    def _ends(self, start: int) -> Iterator[int]:
        """Where the body may end. Wrong guesses may cost no more than reading the text once."""
        likely = None
        if self.wasted <= len(self.text):
            likely = _likely_end(self.text, start)
            if likely is not None:
                yield likely
            self.wasted += (len(self.text) if likely is None else likely) - start
        inside = _inside().match(self.text, start)
        end = inside.end() if inside else start
        if end != likely and self.text[end : end + 1] == "}":
            yield end


@functools.cache
def _inside() -> re.Pattern[str]:
    """The text up to a `}` that closes more braces than were opened; few files need it."""
    return re.compile(_INSIDE)


def _likely_end(text: str, start: int) -> int | None:
    """Where a body ends, if its `}` begins a line; a wrong guess gives no outline.

    A body without braces, comments and strings ends at the first `}`.
    """
    first = text.find("}", start)
    if first >= 0 and not _NOT_PLAIN.search(text, start, first):
        return first
    end, opened = start, 1
    for _ in range(LINES_WITH_BRACES):
        begin, end = end, text.find("\n}", end + 1)
        if end < 0:
            return None
        opened += text.count("{", begin, end) - text.count("}", begin, end) - 1
        end += 1
        if opened == 0:
            return end
        end += 1
    return None


def without_comments(text: str) -> str:
    """A text with blanks in the place of comments; it stays as it is if one of them has no end."""
    if "/" not in text or text.rfind("/*") > text.rfind("*/"):
        return text
    return _COMMENT_OR_STRING.sub(_blank, text)


def _blank(match: re.Match[str]) -> str:
    return match[0] if match[0][0] == '"' else " " * len(match[0])
