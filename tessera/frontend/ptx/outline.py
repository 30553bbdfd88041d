"""Outlines of bodies: their statements as canonical text, which is equal for many of them.

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
import re
from collections import defaultdict
from collections.abc import Mapping
from itertools import compress, repeat
from operator import not_

from tessera.frontend.ptx import registers, values
from tessera.frontend.ptx.constants import number_constant
from tessera.frontend.ptx.declarations import PRAGMA
from tessera.frontend.ptx.registers import SHORT, Declared, Registers, leading, read_declaration
from tessera.frontend.ptx.statement_runs import INSTRUCTION, LOCATION, PROTOTYPE, TARGETS
from tessera.frontend.ptx.terminals import (
    BLANK,
    BLANKS,
    COMMENT,
    MODIFIER,
    NAME,
    NAME_CHARACTERS,
    STRING,
    TERMINALS,
)
from tessera.ir.ptx.unread import NO_STATEMENT, BodyOutline
from tessera.ir.verify_ptx.names import LABEL, TOKEN, kind_token

MAX_OUTLINED = 20
"""Bodies nested deeper than this have no outline."""

MAX_RARE = 100
"""The most statements that only the grammar reads: with more, it reads the body at once."""

MAX_LATE = 100
"""The most declarations behind instructions: each is looked for in the text."""

_MARK = NO_STATEMENT
_LABEL_MARK = "\1"
"""Statements that nothing has to check, the second of them a label; no PTX has these characters."""
_NO_INSTRUCTION = (_MARK, _LABEL_MARK, ".")
_LABEL_TOKEN = kind_token(LABEL)

_APART = "%_0"
"""How registers of blocks begin while those outside become tokens."""

_COMMENT = re.compile(COMMENT)
_COMMENT_OR_STRING = re.compile(rf"{COMMENT}|{STRING}")
_TELLING = re.compile(r'"[^"\n]*?[^\w \n"-][^"\n]*"')
"""A string with a character by which statements are split or recognised."""
_LOC = re.sub(r"\\(.)", r"\1", TERMINALS["LOC"])
_LOCATION = re.compile(rf"{LOCATION}(?:[ \t]*+//[^\n]*+)?")
_REGISTER = re.compile(rf"(%[{NAME_CHARACTERS}]++)")
_SIGILED = re.compile(rf"([$%][{NAME_CHARACTERS}]++)")
_DOLLAR_LABEL = re.compile(
    rf"(\$(?<![{NAME_CHARACTERS}%]\$)[{NAME_CHARACTERS}]++){BLANK}:(?!:|{BLANK}\.[bc])"
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
_TARGETS, _NAMES = re.compile(TARGETS), re.compile(NAME)

_INSTRUCTION = re.compile(rf"(?:@{BLANK}!?{BLANK}{NAME}{BLANK})?{NAME}(?:{MODIFIER})*+[^#]*+")
"""What may be an instruction that only the grammar reads."""

_IS_TOKEN = re.compile(re.escape(TOKEN)).match
# Both are kept from module to module.
_PLAIN: dict[str, str] = {}
"""The statements of pieces of bodies: instructions with nothing but blanks in front of them."""
_WELL_FORMED: set[str] = set()


def forget() -> None:
    """Forget what other modules have left here; measurements of one module begin with this."""
    _PLAIN.clear()
    _WELL_FORMED.clear()
    values.forget()
    registers.forget()
    number_constant.cache_clear()
    _outline_short_block.cache_clear()
    from tessera.frontend.ptx import grammar

    grammar.forget()


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
    declarations, start = leading(text)
    tokens = Registers(declarations, len(text))
    text = text[start:]
    if "{" in text and _has_blocks(text):
        text = _set_apart(_BEFORE_BRACE.sub(f":{_MARK};", f"{_MARK};{text}"))
    labels = _DOLLAR_LABEL.findall(text) if "$" in text else []
    if labels and not any(map(set(labels).intersection, [d.names for d in declarations])):
        tokens.update(dict.fromkeys(labels, _LABEL_TOKEN))
        marked = _with_tokens(text, _SIGILED, tokens)
        outline = _outline(
            marked.replace(f"{_LABEL_TOKEN}:", f"{_LABEL_MARK};"), declarations, labels
        )
        if outline is not None or tokens.are_unclear:
            return None if tokens.are_unclear else outline
        tokens.update(zip(labels, labels, strict=True))
    outline = _outline(_with_tokens(text, _REGISTER, tokens), declarations, [])
    return None if tokens.are_unclear else outline


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


# --- statements ----------------------------------------------------------------------------


def _outline(
    text: str, declarations: list[Declared], labels: list[str], *, is_block: bool = False
) -> BodyOutline | None:
    """The outline of a text without leading declarations, in which registers are tokens.

    `labels` are those whose definitions are marks already.
    """
    blocks: Mapping[str, int] = {}
    if text[:1] == _MARK:
        cut = _cut_blocks(text)
        if cut is None:
            return None
        text, blocks = cut
    pieces = text.split(";")
    others = _Others(labels)
    if others.without_labels(pieces.pop()):
        return None
    if len(_PLAIN) > values.MANY:
        _PLAIN.clear()
    canonical = list(map(_PLAIN.get, pieces, repeat("")))
    if "" in canonical:
        new = others.look_at([*dict.fromkeys(compress(pieces, map(not_, canonical)))])
        if new is None or sum(map(others.labeled.__contains__, pieces)) > len(others.labeled):
            return None
        canonical = [known or new[piece] for piece, known in zip(pieces, canonical, strict=True)]
    late = _late_declarations(others.late, text) if others.late else []
    if late is None or others.are_unclear() or (is_block and others.rare):
        return None
    if late and registers.repeat([*declarations, *late]):
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
    return BodyOutline(
        tuple([declared.declaration for declared in declarations]),
        tuple([declared.declaration for declared in late]),
        tuple(others.labels),
        frozenset(others.targets),
        tuple(canonical),
        frozenset(others.rare),
        tuple(known),
    )


class _Others:
    """What a body has besides instructions that other bodies had."""

    def __init__(self, labels: list[str]) -> None:
        self.labels = labels.copy()
        self.targets: set[str] = set()
        self.labeled: set[str] = set()
        self.late: list[str] = []
        self.rare: set[str] = set()

    def look_at(self, pieces: list[str]) -> dict[str, str] | None:
        """The statement of each piece, a mark where there is none; None if one is unusual."""
        bare: dict[str, str] = {}
        own: set[str] = set()
        for piece in pieces:
            text = piece.strip(BLANKS)
            if ":" in text and _LABEL.match(text):
                self.labeled.add(piece)
                text = self.without_labels(text)
                if _TARGETS.fullmatch(text):
                    self.targets.update(_NAMES.findall(text)[1:])
                    text = _MARK
                elif text[:1] == "." and re.fullmatch(PROTOTYPE, text):
                    text = _MARK
            if text[:1] == "." and not _PRAGMA.fullmatch(text):
                self.late.append(text)
                own.add(piece)
            bare[piece] = _MARK if text[:1] in _NO_INSTRUCTION else text
        texts = list(dict.fromkeys(bare.values()))
        statements = dict(zip(texts, values.without_values(texts), strict=True))
        for text, statement in statements.items():
            if statement != _MARK and not _is_well_formed(statement):
                if len(self.rare) == MAX_RARE or not _is_rare(text):
                    return None
                self.rare.add(text)
                statements[text] = text
        canonical = {piece: statements[text] for piece, text in bare.items()}
        own |= self.labeled
        _PLAIN.update(
            (piece, text)
            for piece, text in canonical.items()
            if piece not in own and text not in self.rare
        )
        return canonical

    def without_labels(self, piece: str) -> str:
        """The piece without the labels in front and without blanks; the labels join the list."""
        if ":" not in piece:
            return piece.strip(BLANKS)
        end = 0
        while label := _LABEL.match(piece, end):
            self.labels.append(label[1])
            end = label.end()
        return piece[end:].strip(BLANKS)

    def are_unclear(self) -> bool:
        """Whether labels are defined twice, or targets are registers; labels are none any more."""
        labels = self.labels
        if labels and (len(set(labels)) < len(labels) or any(map(_IS_TOKEN, labels))):
            return True
        if self.targets:
            self.targets -= {_LABEL_TOKEN, *labels}
        return any(map(_IS_TOKEN, self.targets))


def _late_declarations(pieces: list[str], text: str) -> list[Declared] | None:
    """The declarations behind instructions, if nothing that they declare is named before."""
    declarations: list[Declared] = []
    if len(pieces) > MAX_LATE:
        return None
    for piece in dict.fromkeys(pieces):
        declared = read_declaration(piece)
        if declared is None or text.count(piece) > 1:
            return None
        before = text[: text.index(piece)]
        if any(name in before for name in declared.names) or _may_hide(declared):
            return None
        declarations.append(declared)
    return declarations


def _may_hide(declared: Declared) -> bool:
    """Whether a variable may hide a register whose name is a token by now."""
    return any(name.startswith(TOKEN) for name in declared.names) or any(
        name[0] == "%" for name in declared.ranges
    )


def _outline_block(text: str) -> BodyOutline | None:
    return (_outline_short_block if len(text) <= SHORT else _outline_long_block)(text)


def _outline_long_block(text: str) -> BodyOutline | None:
    declarations, start = leading(text[1:-1])
    if any(map(_may_hide, declarations)):
        return None
    inside = text[start + 1 : -1]
    marked = f"{_MARK};{inside}" if "{" in inside else inside
    return _outline(marked, declarations, [], is_block=True)


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


def _is_well_formed(statement: str) -> bool:
    """Whether a statement is an ordinary instruction."""
    if statement in _WELL_FORMED:
        return True
    if INSTRUCTION.fullmatch(f"{statement};") is None:
        return False
    if len(_WELL_FORMED) > values.MANY:
        _WELL_FORMED.clear()
    _WELL_FORMED.add(statement)
    return True


def _is_rare(statement: str) -> bool:
    """Whether a statement is an instruction that only the grammar reads."""
    if not _INSTRUCTION.fullmatch(statement):
        return False
    from tessera.frontend.ptx.grammar import parse_instruction

    return parse_instruction(statement) is not None
