"""Bodies of functions that stay text until their statements are needed.

`body_end` finds the end of a body in which every statement is ordinary (`statement_runs`), blocks
included; only such bodies stay unread. `TextBody.sample` reduces a body to the statements that a
verifier must see. It replaces the number of every register that a range declares with a mark, so
that `add.s32 %r1, %r2, 5;` and `add.s32 %r7, %r1, 5;` are one text, and takes the first statement
of each text; a block counts as one statement. This is sound as long as the verdict on an
instruction depends only on that text, the types of the names in it, and whether each register lies
in its range. The last is checked here; names of other things stay in the text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass

from tessera.frontend.ptx.statement_runs import LOCATION, ONE_STATEMENT, STATEMENT, RunSplitter
from tessera.frontend.ptx.terminals import BLANK, GAP, NAME
from tessera.frontend.text.bulk import collector_paused
from tessera.ir.ptx import syntax as ptx

MAX_BLOCKS = 100
"""Bodies nested deeper than this are read token by token, which reports where they are too deep."""

MIN_SAMPLED = 2000
"""Bodies with fewer characters take less time to build than to sample."""

MOST_RANGES = 30
"""The most ranges that are sampled: each takes a walk over the text, and compilers declare one for
each type of register."""

SHORT = 40
"""The number of statements that are matched one by one, which needs no further expression."""

_GAP = re.compile(GAP)
_COMMENT = re.compile(r'//[^\n]*|/\*(?:[^*]|\*(?!/))*+\*/|"[^"\n]*+"')
_TELLING = re.compile(r'"[^"\n]*?[][;:{}%#.][^"\n]*"')
"""A string that contains a character by which statements are split or recognised."""
_LOCATION = re.compile(LOCATION)
_REGISTERS = re.compile(r"\.reg(?![\w$:.])[^;]*+;")
_BEFORE_BRACE = re.compile(r":(?=\s*+[{}])")
"""The end of a label in front of a brace; with a `;` after it, the label is a piece of its own."""
_BRACED = re.compile(r"(?:\A|;)\s*+[{}]")
_BRACES = frozenset("{}")
_LABEL = re.compile(rf"{BLANK}({NAME}){BLANK}:(?!:)")
_BRANCH = re.compile(
    rf"({BLANK}(?:@{BLANK}!?{BLANK}{NAME}#?)?{BLANK}bra(?:\.uni)?[ \t\r\n]++)({NAME}){BLANK}"
)


@functools.cache
def _statements() -> re.Pattern[str]:
    """Any number of ordinary statements; compiled for the first body that is not short."""
    return re.compile(rf"(?:{ONE_STATEMENT})*+")


def body_end(text: str, start: int) -> tuple[int, int] | None:
    """The end of the statements and of the `}` of an ordinary body whose `{` ends at `start`."""
    depth, end = 0, start
    for _ in range(SHORT):
        statement = STATEMENT.match(text, end)
        if statement is None:
            return None
        brace = statement[8]
        if brace == "}" and depth == 0:
            return end, statement.end() - 1
        depth += 0 if brace is None else 1 if brace == "{" else -1
        end = statement.end()
    return _long_body_end(text, end, depth)


def _long_body_end(text: str, position: int, depth: int) -> tuple[int, int] | None:
    skip = _statements().match
    while depth <= MAX_BLOCKS:
        skipped = skip(text, position)
        end = skipped.end() if skipped else position
        gap = _GAP.match(text, end)
        position = gap.end() if gap else end
        brace = text[position : position + 1]
        if brace == "}" and depth == 0:
            return end, position
        if brace not in _BRACES:
            return None
        depth += 1 if brace == "{" else -1
        position += 1
    return None


@dataclass(frozen=True, slots=True)
class TextBody:
    """The statements between two offsets of a text, all of them ordinary."""

    text: str
    start: int
    end: int
    splitter: RunSplitter

    def build(self) -> tuple[ptx.Statement, ...]:
        """Every statement."""
        with collector_paused():
            return tuple(self.splitter.split(self.text, 0, self.start, self.end))

    def sample(self) -> tuple[ptx.Statement, ...] | None:
        """Statements that represent all others, or None if every statement has to be checked."""
        if self.end - self.start < MIN_SAMPLED:
            return None
        text = self.text[self.start : self.end]
        if "//" in text or "/*" in text:
            text = _COMMENT.sub(_keep_string, text) if '"' in text else _COMMENT.sub(" ", text)
        if '"' in text and _TELLING.search(text):
            return None
        statements: list[ptx.Statement] = []
        if ".loc" in text:
            statements += self._locations(text)
            text = _LOCATION.sub(" ", text)
        text = _BEFORE_BRACE.sub(":;", text)
        ranges = self._ranges(text)
        if ranges is None:
            return None
        marked = _mark(text, ranges)
        if marked is None:
            return None
        shapes, originals = _pieces(marked), _pieces(text)
        if shapes is None or originals is None:
            return None
        labels = _take_labels(shapes)
        statements += map(ptx.LabelStatement, labels)
        chosen = _choose(shapes, set(labels))
        if chosen is None or len(set(labels)) != len(labels):
            return None
        text = ";".join([originals[index] for index in chosen]) + ";"
        statements += (s for s in self.splitter.split(text, 0) if type(s) is not ptx.LabelStatement)
        return tuple(statements)

    def _locations(self, text: str) -> Iterable[ptx.Statement]:
        """One `.loc` line of every file and inlined function."""
        first: dict[tuple[str, str], str] = {}
        for line in _LOCATION.findall(text):
            head, _, inlined = line.partition(",")
            first.setdefault((head.split(None, 2)[1], inlined.partition(",")[0]), line)
        return (s for line in first.values() for s in self.splitter.split(line, 0))

    def _ranges(self, text: str) -> dict[str, int] | None:
        """Declared ranges by prefix, or None if a name with a number may mean two things."""
        ranges: dict[str, int] = {}
        kinds: dict[str, set[tuple[str, int | None]]] = {}
        for declaration in _REGISTERS.findall(text):
            for variable in self.splitter.split(declaration, 0):
                assert isinstance(variable, ptx.Variable)
                name, count = variable.name, variable.count
                prefix = name.rstrip("0123456789") if count is None else name
                kinds.setdefault(prefix, set()).add((variable.type, variable.vector))
                if count is not None:
                    ranges[name] = min(count, ranges.get(name, count))
        if len(ranges) > MOST_RANGES:
            return None
        for prefix in ranges:
            if len(kinds[prefix]) > 1 or prefix[-1].isdigit():
                return None
        return ranges


@functools.lru_cache(maxsize=1000)
def _numbered(prefix: str) -> re.Pattern[str]:
    before = "" if prefix.startswith("%") else r"(?<![\w$%.])"
    return re.compile(rf"{before}{re.escape(prefix)}([0-9]++)(?![\w$])", re.ASCII)


def _mark(text: str, ranges: dict[str, int]) -> str | None:
    """The text with `#` for the numbers of registers, or None if one exceeds its range."""
    for prefix, count in ranges.items():
        pattern = _numbered(prefix)
        numbers = set(pattern.findall(text))
        if max(map(len, numbers), default=0) > 10 or max(map(int, numbers), default=0) >= count:
            return None
        text = pattern.sub(f"{prefix}#", text)
    return text


def _keep_string(match: re.Match[str]) -> str:
    return match[0] if match[0][0] == '"' else " "


def _pieces(text: str) -> list[str] | None:
    """The text cut at every `;` outside blocks; a block is one piece. None if that is unclear."""
    pieces = text.split(";")
    if not _BRACED.search(text):
        return pieces
    braced = [index for index, piece in enumerate(pieces) if piece.lstrip()[:1] in _BRACES]
    joined: list[str] = []
    inside: list[str] = []
    depth = done = 0
    for index in (*braced, len(pieces)):
        if depth:
            inside += [piece + ";" for piece in pieces[done:index]]
        else:
            joined += pieces[done:index]
        if index == len(pieces):
            break
        rest = pieces[index]
        while (lead := rest.lstrip())[:1] in _BRACES:
            depth += 1 if lead[0] == "{" else -1
            inside.append(lead[0])
            rest = lead[1:]
            if depth == 0:
                joined.append("".join(inside))
                inside.clear()
            elif depth < 0:
                return None
        (inside if depth else joined).append(rest + ";" if depth else rest)
        done = index + 1
    return joined if depth == 0 else None


def _take_labels(pieces: list[str]) -> list[str]:
    """Cut the labels off the front of the pieces and return them."""
    labels = []
    for index, piece in enumerate(pieces):
        if ":" not in piece or piece[0] == "{":
            continue
        end = 0
        while label := _LABEL.match(piece, end):
            labels.append(label[1])
            end = label.end()
        pieces[index] = piece[end:]
    return labels


def _choose(pieces: list[str], labels: set[str]) -> list[int] | None:
    """All declarations and the first of each kind of other piece, in order.

    None if a branch goes to no label of the body.
    """
    first = dict(zip(reversed(pieces), range(len(pieces) - 1, -1, -1), strict=True))
    declarations = [index for index, piece in enumerate(pieces) if piece.lstrip()[:1] == "."]
    chosen = []
    branches = set()
    for index in sorted({*first.values(), *declarations}):
        piece = pieces[index]
        branch = _BRANCH.fullmatch(piece)
        if branch is not None:
            if branch[2] not in labels:
                return None
            if branch[1] in branches:
                continue
            branches.add(branch[1])
        if piece and not piece.isspace():
            chosen.append(index)
    return chosen
