"""Outlines of bodies: every distinct statement once, in canonical text, with its count.

In: the text of a body. Out: a `BodyOutline` (`ir.ptx.unread`), or None if something is unusual. A
register that the body declares becomes the token of its type, an integer `0`, comments and `.loc`
lines nothing. All of that is done to the whole text at once, by a few passes of C code, so what is
looked at statement by statement are the few hundred texts that are left, most of which earlier
bodies had too. Equal texts have equal verdicts: syntax and rules depend on the types of registers,
not on their numbers, and on what kind of number stands somewhere, not on its value (opcodes for
which that is not so keep their numbers, `values`).
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Mapping

from tessera.frontend.ptx import values
from tessera.frontend.ptx.declarations import DECLARATION, declare
from tessera.frontend.ptx.statement_runs import LOCATION, PRAGMA, PROTOTYPE, STATEMENT, TARGETS
from tessera.frontend.ptx.terminals import (
    BLANK,
    BLANKS,
    COMMENT,
    NAME,
    NAME_CHARACTERS,
    STRING,
    TERMINALS,
)
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.unread import BodyOutline
from tessera.ir.verify_ptx.names import LABEL, TOKEN, kind_token, variable_kind

MAX_OUTLINED = 20
"""Bodies nested deeper than this have no outline."""

MAX_LATE = 100
"""The most declarations and pragmas behind instructions: each is looked for in the text."""

SHORT = 2_000
"""Blocks with no more characters, such as those around calls, are remembered."""

_DIGITS = "0123456789"
_NUMBERED: dict[str, list[str]] = {}
_MARK = "\0"
_LABEL_MARK = "\1"
"""Statements that nothing has to check, the second of them a label; no PTX has these characters."""
_LABEL_TOKEN = kind_token(LABEL)

_APART = "%_0"
"""How registers of blocks begin while those outside become tokens."""

_COMMENT = re.compile(COMMENT)
_COMMENT_OR_STRING = re.compile(rf"{COMMENT}|{STRING}")
_TELLING = re.compile(r'"[^"\n]*?[^\w \n"-][^"\n]*"')
"""A string with a character by which statements are split or recognised."""
_LOC = re.sub(r"\\(.)", r"\1", TERMINALS["LOC"])
_LOCATION = re.compile(rf"{LOCATION}(?:[ \t]*+//[^\n]*+)?")
_DECLARATION = re.compile(rf"{BLANK}({DECLARATION}){BLANK};")
_REGISTER = re.compile(rf"(%[{NAME_CHARACTERS}]++)")
_SIGILED = re.compile(rf"([$%][{NAME_CHARACTERS}]++)")
_DOLLAR_LABEL = re.compile(
    rf"(\$(?<![{NAME_CHARACTERS}%]\$)[{NAME_CHARACTERS}]++){BLANK}:(?!:|{BLANK}\.)"
)
_REGISTERS = re.compile(r"\.reg(?![\w$:.])[^;]*+;")
_BRACE_OR_REGISTERS = re.compile(rf"[{{}}]|{_REGISTERS.pattern}")
_BEFORE_BRACE = re.compile(rf":(?={BLANK}[{{}}])")
"""The end of a label in front of a brace; with a mark after it, the label is a piece of its own."""
_AFTER_SEMICOLON = re.compile(rf";{BLANK}[{{}}]")
_STATEMENT_BRACES = re.compile(rf";(?:{BLANK}[{{}}])++")
_AFTER_COLON = re.compile(rf":{BLANK}[{{}}]")
_LABEL = re.compile(rf"{BLANK}({NAME}){BLANK}:(?!:)")
_PRAGMA = re.compile(PRAGMA)
_PROTOTYPE, _TARGETS, _NAMES = re.compile(PROTOTYPE), re.compile(TARGETS), re.compile(NAME)

_IS_TOKEN = re.compile(re.escape(TOKEN)).match
_WELL_FORMED: set[str] = set()  # kept from module to module


def forget() -> None:
    """Forget what other modules have left here; measurements of one module begin with this."""
    _WELL_FORMED.clear()
    values.forget()
    _declare.cache_clear()
    _outline_short_block.cache_clear()


# --- the whole text ------------------------------------------------------------------------


def outline_body(text: str) -> BodyOutline | None:
    """The outline of a body, or None if something in it is unusual."""
    if _MARK in text or _LABEL_MARK in text or ('"' in text and _TELLING.search(text)):
        return None
    if _LOC in text:
        text = _LOCATION.sub(f"{_MARK};", text)
    if "/" in text:
        if text.rfind("/*") > text.rfind("*/"):
            return None  # a comment without an end, which each `/*` would look for
        text = _COMMENT_OR_STRING.sub(_drop, text) if '"' in text else _COMMENT.sub(" ", text)
    declarations, start = _leading(text)
    registers = _Registers(declarations, len(text))
    text = text[start:]
    if "{" in text and _has_blocks(text):
        text = _set_apart(_BEFORE_BRACE.sub(f":{_MARK};", f"{_MARK};{text}"))
    labels = _DOLLAR_LABEL.findall(text) if "$" in text else []
    if labels and not set(labels) & {variable.name for variable in declarations}:
        registers.update(dict.fromkeys(labels, _LABEL_TOKEN))
        marked = _with_tokens(text, _SIGILED, registers)
        outline = _outline(
            marked.replace(f"{_LABEL_TOKEN}:", f"{_LABEL_MARK};"), declarations, labels
        )
        if outline is not None or registers.are_unclear:
            return None if registers.are_unclear else outline
        registers.update(zip(labels, labels, strict=True))
    outline = _outline(_with_tokens(text, _REGISTER, registers), declarations, [])
    return None if registers.are_unclear else outline


def _with_tokens(text: str, names: re.Pattern[str], tokens: dict[str, str]) -> str:
    parts = names.split(text)
    parts[1::2] = map(tokens.__getitem__, parts[1::2])
    return "".join(parts)


class _NamesApart(dict[str, str]):
    """Other names for some registers."""

    def __missing__(self, name: str) -> str:
        return name


def _set_apart(text: str) -> str:
    """The text with other names for registers of blocks that may hide registers outside."""
    parts: list[str] = []
    opened: list[tuple[int, _NamesApart]] = []
    done = 0
    if _APART in text or not any("%" in names for names in _REGISTERS.findall(text)):
        return text
    for mark in _BRACE_OR_REGISTERS.finditer(text):
        if mark[0] == "{":
            opened.append((mark.start(), _NamesApart()))
        elif mark[0] != "}":
            if opened and "<" not in mark[0]:
                names = _REGISTER.findall(mark[0])
                opened[-1][1].update((name, f"{_APART}{name[1:]}") for name in names)
        elif opened:
            start, names_apart = opened.pop()
            if names_apart and start >= done:
                block = text[start : mark.end()]
                parts += (text[done:start], _with_tokens(block, _REGISTER, names_apart))
                done = mark.end()
    return "".join(parts) + text[done:]


def _drop(match: re.Match[str]) -> str:
    return match[0] if match[0][0] == '"' else " "


def _leading(text: str) -> tuple[list[ptx.Variable], int]:
    """The declarations that a body or block begins with, and where they end."""
    declarations: list[ptx.Variable] = []
    position = 0
    while match := _DECLARATION.match(text, position):
        declarations += _declare(match[1])
        position = match.end()
    return declarations, position


@functools.lru_cache(maxsize=10_000)
def _declare(text: str) -> list[ptx.Variable]:
    return declare(text, 0)


class _Registers(dict[str, str]):
    """The tokens of registers by name; other names stand for themselves."""

    def __init__(self, declarations: list[ptx.Variable], length: int) -> None:
        self.ranges: dict[str, tuple[int, str]] = {}
        self.are_unclear = _repeat(declarations)
        for variable in declarations:
            name, count, token = variable.name, variable.count, _token(variable)
            if count is not None:
                # A name with a number could mean two things.
                self.are_unclear |= name in self.ranges or name[-1] in _DIGITS
                self.ranges[name] = count, token
                if count * 16 < length:
                    self.update(zip(_numbered(name, count), itertools.repeat(token)))
        for variable in declarations:
            if variable.space == "reg" and variable.count is None:
                self[variable.name] = _token(variable)

    def __missing__(self, name: str) -> str:
        prefix = name.rstrip(_DIGITS)
        count, token = self.ranges.get(prefix, (0, ""))
        digits = name[len(prefix) :]
        is_one = count and digits and len(digits) <= 10 and int(digits) < count
        self.are_unclear |= name.startswith(TOKEN)
        self[name] = known = token if is_one else name
        return known


def _repeat(declarations: list[ptx.Variable]) -> bool:
    """Whether a name is declared twice, which is a fault."""
    return len({variable.name for variable in declarations}) < len(declarations)


def _numbered(prefix: str, count: int) -> list[str]:
    """The names of a range; those of common ranges are the same objects each time."""
    names = _NUMBERED.get(prefix, [])
    if len(names) < count:
        names = [*names, *map(prefix.__add__, map(str, range(len(names), count)))]
        if count <= values.MANY and (prefix in _NUMBERED or len(_NUMBERED) < 50):
            _NUMBERED[prefix] = names
    return names[:count]


def _token(variable: ptx.Variable) -> str:
    return kind_token(variable_kind(variable))


# --- statements ----------------------------------------------------------------------------


def _outline(text: str, declarations: list[ptx.Variable], labels: list[str]) -> BodyOutline | None:
    """The outline of a text without leading declarations, in which registers are tokens.

    `labels` are those whose definitions are marks already.
    """
    blocks: Mapping[str, int] = {}
    if text[:1] == _MARK:
        cut = _cut_blocks(text)
        if cut is None:
            return None
        text, blocks = cut
    labels = labels.copy()
    targets: set[str] = set()
    pieces = text.split(";")
    if _without_labels(pieces.pop(), labels):
        return None
    distinct: defaultdict[str, int] = defaultdict(int)
    for piece, count in Counter(pieces).items():
        if ":" in piece and _LABEL.match(piece):
            if count > 1:
                return None
            piece = _without_labels(piece, labels)
            if _TARGETS.fullmatch(piece):
                targets.update(_NAMES.findall(piece)[1:])
            elif not _PROTOTYPE.fullmatch(piece):
                distinct[piece] += 1
        else:
            distinct[piece.strip()] += count
    if labels and (len(set(labels)) < len(labels) or any(map(_IS_TOKEN, labels))):
        return None
    if targets and not targets <= {_LABEL_TOKEN, *labels}:
        return None
    late = [piece for piece in distinct if piece[:1] == "."]
    taken = _late_declarations(late, text) if late else []
    if taken is None:
        return None
    for piece in late:
        del distinct[piece]
    if _repeat([*declarations, *taken]):
        return None
    statements = _well_formed(values.forget_in_statements(distinct))
    if statements is None:
        return None
    inside: defaultdict[str, int] = defaultdict(int)
    for block, count in blocks.items():
        inside[values.forget_in_block(block)] += count
    known: list[tuple[BodyOutline, int]] = []
    for block, count in inside.items():
        outline = _outline_block(block)
        if outline is None:
            return None
        known.append((outline, count))
    return BodyOutline(tuple(declarations), tuple(taken), tuple(labels), statements, tuple(known))


def _late_declarations(pieces: list[str], text: str) -> list[ptx.Variable] | None:
    """The variables that are declared behind instructions, if none is named before."""
    declarations: list[ptx.Variable] = []
    if len(pieces) > MAX_LATE:
        return None
    for piece in pieces:
        if _PRAGMA.fullmatch(piece):
            continue
        declaration = _DECLARATION.fullmatch(f"{piece};")
        if declaration is None or text.count(piece) > 1:
            return None
        before = text[: text.index(piece)]
        variables = _declare(declaration[1])
        if any(variable.name in before or _may_hide(variable) for variable in variables):
            return None
        declarations += variables
    return declarations


def _may_hide(variable: ptx.Variable) -> bool:
    """Whether a variable may hide a register whose name is a token by now."""
    name = variable.name
    return name.startswith(TOKEN) or (variable.count is not None and name[0] == "%")


def _outline_block(text: str) -> BodyOutline | None:
    return (_outline_short_block if len(text) <= SHORT else _outline_long_block)(text)


def _outline_long_block(text: str) -> BodyOutline | None:
    declarations, start = _leading(text[1:-1])
    if any(map(_may_hide, declarations)):
        return None
    inside = text[start + 1 : -1]
    return _outline(f"{_MARK};{inside}" if "{" in inside else inside, declarations, [])


_outline_short_block = functools.lru_cache(maxsize=10_000)(_outline_long_block)


def _has_blocks(text: str) -> bool:
    return (
        text.lstrip(BLANKS)[:1] == "{"
        or _AFTER_SEMICOLON.search(text) is not None
        or _AFTER_COLON.search(text) is not None
    )


def _cut_blocks(text: str) -> tuple[str, Mapping[str, int]] | None:
    """The text with marks in the place of its blocks, and the blocks; None if that is unclear."""
    parts: list[str] = []
    blocks: defaultdict[str, int] = defaultdict(int)
    depth = begin = done = 0
    for braces in _STATEMENT_BRACES.finditer(text):
        for position in range(braces.start() + 1, braces.end()):
            if text[position] == "{":
                if depth == 0:
                    parts.append(text[done:position])
                    begin = position
                depth += 1
            elif text[position] == "}":
                depth -= 1
            if not 0 <= depth <= MAX_OUTLINED:
                return None
            if text[position] == "}" and depth == 0:
                done = position + 1
                blocks[text[begin:done]] += 1
                parts.append(f"{_MARK};")
    if depth or any(_LABEL_MARK in block for block in blocks):
        return None
    return "".join(parts) + text[done:], blocks


def _without_labels(piece: str, labels: list[str]) -> str:
    """The piece without the labels in front and without blanks; the labels join the list."""
    end = 0
    while label := _LABEL.match(piece, end):
        labels.append(label[1])
        end = label.end()
    return piece[end:].strip(BLANKS)


def _well_formed(statements: dict[str, int]) -> dict[str, int] | None:
    """The instructions among statements, or None if one is not well formed."""
    statements.pop(_MARK, None)
    statements.pop(_LABEL_MARK, None)
    if len(_WELL_FORMED) > values.MANY:
        _WELL_FORMED.clear()
    for statement in statements:
        if statement in _WELL_FORMED:
            continue
        match = STATEMENT.fullmatch(f"{statement};")
        if match is None or 0 not in (match.start(2), match.start(3)):
            return None  # something else than an instruction, or something in front of it
        _WELL_FORMED.add(statement)
    return statements
