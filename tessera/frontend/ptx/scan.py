"""Reads a module item by item: the fast path.

Ordinary items (variables with at most a number or a table of numbers, `.file`, debug sections,
functions whose heads and bodies are plain) are recognised by one regular expression each, without
Lark; bodies stay text (`body`). Everything else is cut out up to the next place where an item can
end and handed to `read_items`, the parser of `grammars/ptx.lark`. Nothing here reports a fault: if
neither can read an item, `scan_module` returns None and the caller reads the whole text with the
grammar, which reports the fault and its place.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence

from tessera.diagnostics import Source
from tessera.frontend.ptx.body import BodyReader, without_comments
from tessera.frontend.ptx.constants import Numbers, integer_constant, strings_in
from tessera.frontend.ptx.declarations import (
    DIRECTIVES,
    MODULE_VARIABLE,
    PRAGMA,
    module_variable,
    read_directives,
    read_parameters,
)
from tessera.frontend.ptx.statement_runs import RunSplitter
from tessera.frontend.ptx.terminals import (
    BLANK,
    COMMENT,
    GAP,
    INTEGER,
    LINKAGE,
    NAME,
    STRING,
    TERMINALS,
)
from tessera.ir.ptx import syntax as ptx

ReadItems = Callable[[int, int], "Sequence[ptx.Item] | None"]

_HEADER = re.compile(
    rf"{GAP}(?={TERMINALS['VERSION']})\.version[ \t]+([0-9]{{1,9}})\.([0-9]{{1,9}})(?![\w.$])"
    rf"{GAP}{TERMINALS['TARGET']}{BLANK}({NAME}(?:{BLANK},{BLANK}{NAME})*+)"
    rf"(?:{GAP}\.address_size{GAP}(32|64)(?![\w.$]))?",
    re.ASCII,
)
_GAP = re.compile(GAP)
_FILE = re.compile(
    rf"{TERMINALS['FILE']}{BLANK}({INTEGER}){BLANK}({STRING})"
    rf"(?:{BLANK},{BLANK}({INTEGER}){BLANK},{BLANK}({INTEGER}))?(?!{BLANK},)"
)
_SECTION = re.compile(TERMINALS["SECTION"])
_NAME = re.compile(NAME)
_ALIAS = re.compile(rf"{TERMINALS['ALIAS']}{BLANK}({NAME}){BLANK},{BLANK}({NAME}){BLANK};")
_PRAGMA = re.compile(rf"({PRAGMA}){BLANK};")
_IN_PARENTHESES = r"(\([^()]*+\))"
_FUNCTION = re.compile(
    rf"(?:({LINKAGE}){BLANK})?"
    rf"(?:({TERMINALS['ENTRY']})|{TERMINALS['FUNC']}(?:{BLANK}{_IN_PARENTHESES})?)"
    rf"{BLANK}({NAME}){BLANK}"
    rf"{_IN_PARENTHESES}?((?:{GAP}(?:{DIRECTIVES}|{PRAGMA}{BLANK};))*+){GAP}([{{;])"
)
_LINES = re.compile(r"#|@@|\.section")
"""The beginnings of what may hold `//` and `/*` that begin no comment."""
_COMMENT = re.compile(COMMENT)
# A comment without an end takes the rest of the text: nothing has to look for its end again.
_LANDMARK = re.compile(rf"[;{{}}]|{COMMENT}|/\*(?s:.*)|{STRING}|#[^\n]*+")


@functools.cache
def _variable() -> re.Pattern[str]:
    """A variable; few small files have one."""
    return re.compile(MODULE_VARIABLE)


def scan_module(source: Source, splitter: RunSplitter, read_items: ReadItems) -> ptx.Module | None:
    """The module in a source, if every item is ordinary or accepted by the grammar."""
    text = source.text
    header = _HEADER.match(text)
    if header is None:
        return None
    major, minor, targets, address_size = header.groups()
    items = _Scanner(source.text, splitter, read_items).items(header.end())
    if items is None:
        return None
    return ptx.Module(
        version=(int(major), int(minor)),
        target=tuple(_NAME.findall(targets)),
        address_size=int(address_size) if address_size else None,
        items=tuple(items),
        source=source,
    )


class _Scanner:
    def __init__(self, text: str, splitter: RunSplitter, read_items: ReadItems) -> None:
        self.text = text
        self.bodies = BodyReader(text, splitter)
        self.read_items = read_items
        self.numbers = Numbers()
        self.taken: list[ptx.Item] = []
        self._plain: str | None = None

    def plain(self) -> str:
        """The text with blanks in the place of comments, if that is simple."""
        if self._plain is None:
            simple = "/" in self.text and _LINES.search(self.text) is None
            self._plain = without_comments(self.text) if simple else self.text
        return self._plain

    def items(self, position: int) -> list[ptx.Item] | None:
        """The items from an offset to the end, or None."""
        text, taken = self.text, self.taken
        size = len(text)
        while True:
            gap = _GAP.match(text, position)
            position = gap.end() if gap else position
            if position == size:
                return taken
            end = self.ordinary(text, position)
            if end is None and self.plain() is not text:
                end = self.ordinary(self.plain(), position)
            if end is None:
                end = _item_end(text, position)
                others = self.read_items(position, end)
                if others is None:
                    return None
                taken += others
            position = end

    def ordinary(self, text: str, at: int) -> int | None:
        """Take the item at an offset, if it is ordinary, and return its end."""
        function = _FUNCTION.match(text, at)
        if function is not None:
            return self.function(function, at)
        if (file := _FILE.match(text, at)) is not None:
            index, name, timestamp, size = file.groups()
            self.taken.append(
                ptx.SourceFile(
                    _natural(index),
                    name[1:-1],
                    _natural(timestamp) if timestamp else None,
                    _natural(size) if size else None,
                    at,
                )
            )
            return file.end()
        if (section := _SECTION.match(text, at)) is not None:
            self.taken.append(ptx.Section(section[0], at))
            return section.end()
        if (alias := _ALIAS.match(text, at)) is not None:
            self.taken.append(ptx.Alias(alias[1], alias[2], at))
            return alias.end()
        if (pragma := _PRAGMA.match(text, at)) is not None:
            self.taken.append(ptx.Pragma(strings_in(pragma[1]), at))
            return pragma.end()
        if (variable := _variable().match(text, at)) is not None:
            self.taken += module_variable(variable, self.numbers)
            return variable.end()
        return None

    def function(self, head: re.Match[str], at: int) -> int | None:
        """Take a function, if its body is ordinary, and return its end."""
        linkage, entry, results, name, listed, directives, after = head.groups()
        returns = read_parameters(results, head.start(3))
        parameters = read_parameters(listed, head.start(5))
        if returns is None or parameters is None:
            return None
        if "/" in directives:
            if '"' in directives:
                return None
            directives = _COMMENT.sub(" ", directives)
        body, end = None, head.end()
        if after == "{":
            taken = self.bodies.read(end)
            if taken is None:
                return None
            body, end = taken
        function = ptx.Function(
            is_entry=entry is not None,
            name=name,
            linkage=linkage[1:] if linkage else None,
            returns=returns,
            parameters=parameters,
            has_parameter_list=listed is not None,
            directives=read_directives(directives) if directives else (),
            at=at,
        )
        if body is not None:
            function.leave_unread(body)
        self.taken.append(function)
        return end


def _item_end(text: str, position: int) -> int:
    """The next place where an item may end: after a `;` or `}` outside all braces."""
    depth = 0
    for mark in _LANDMARK.finditer(text, position):
        if mark[0] == "{":
            depth += 1
        elif mark[0] == "}":
            depth -= 1
            if depth <= 0 and not _goes_on(text, mark.end()):
                return mark.end()
        elif mark[0] == ";" and depth <= 0:
            return mark.end()
    return len(text)


def _goes_on(text: str, position: int) -> bool:
    """Whether the text after a `}` still belongs to the item: `= {...};`, `{...}, b;`."""
    gap = _GAP.match(text, position)
    end = gap.end() if gap else position
    return text[end : end + 1] in (";", ",")


def _natural(text: str) -> int:
    return integer_constant(text).value
