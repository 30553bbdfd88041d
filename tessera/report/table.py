"""Tables and lists that fit what they are read on.

In: rows of cells, or one text. Out: lines; nothing is printed here. With a `width`, that of a
terminal, no line is wider: texts are wrapped, names lose their middle, and a table that is too
wide even then is shown as a list of its rows. Without one, for a file or a pipe, every row is one
line and nothing is cut. Numbers are never cut.

Cells are plain text: no markup, no colours, and characters that would steer the terminal are
replaced. `rich.cells` counts columns; the reason not to use `rich.table` is in
`docs/developer/decisions/0014-tables-by-our-own-layout.md`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from tessera.report.diagnostics import columns_of, safe

TRUST = "how far to trust these figures: docs/concepts/accuracy.md"
"""The end of every report with predicted figures."""
_ELLIPSIS = "..."
_LEAST_WIDTH = 20  # a narrower terminal is not worth fitting
_LEAST_TEXT = 12  # least columns of a text that is wrapped or cut
_TAB = 4
_WORD = re.compile(r"\s*\S+")


class Fit(Enum):
    """What happens to the cells of a column if the table is too wide."""

    KEEP = "keep"
    WRAP = "wrap"
    CUT = "cut"


@dataclass(frozen=True, slots=True)
class Column:
    """How to show a column: its title, its alignment, its least width."""

    title: str = ""
    fit: Fit = Fit.KEEP
    right: bool = False
    least: int = 0


def right(*titles: str) -> tuple[Column, ...]:
    """Columns of numbers, with their titles."""
    return tuple(Column(title, right=True) for title in titles)


def amount(count: int, singular: str, plural: str | None = None) -> str:
    """`1 byte`, `2 bytes`."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"


def table(
    columns: Sequence[Column],
    rows: Iterable[Sequence[str]],
    width: int | None = None,
    *,
    indent: int = 2,
    gap: int = 2,
) -> list[str]:
    """The lines of a table, with a line of titles if it has any."""
    body = [tuple(map(_clean, row)) for row in rows]
    titles = [tuple(column.title for column in columns)]
    head = titles if any(titles[0]) else []
    widths = [
        max(column.least, max(map(columns_of, cells), default=0))
        for column, cells in zip(columns, _transposed(columns, head + body), strict=True)
    ]
    margin, between = " " * indent, " " * gap
    room = None if width is None else _room(width) - indent - gap * (len(columns) - 1)
    if room is None or sum(widths) <= room:
        return [
            margin + between.join(map(_padded, row, widths, columns)).rstrip()
            for row in head + body
        ]
    narrowed = _narrowed(columns, widths, body, room)
    if narrowed is None:
        return list(_stacked(columns, body, _room(width), indent))
    return [
        margin + between.join(map(_padded, line, narrowed, columns)).rstrip()
        for row_number, row in enumerate(head + body)
        for line in _lines_of(columns, row, narrowed, is_head=row_number < len(head))
    ]


def item(text: str, width: int | None = None, *, indent: int = 0, hanging: int = 4) -> list[str]:
    """One text as lines; those after the first stand `hanging` columns further right."""
    text = _clean(text)
    if width is None:
        return [" " * indent + text]
    first, *rest = wrapped(text, _room(width) - indent)
    if rest:
        # Text after the first line has less room, so it is divided again.
        rest = wrapped(text[len(first) :].lstrip(), _room(width) - indent - hanging)
    return [" " * indent + first, *(" " * (indent + hanging) + line for line in rest)]


def fitted(text: str, width: int | None = None) -> str:
    """A whole text: names in it cannot steer the terminal, and long lines are divided.

    Text that does not fit a line continues in the next, indented a little further.
    """
    lines = text.split("\n")
    if width is None:
        return "\n".join(map(safe, lines))
    return "\n".join(part for line in lines for part in _divided(line, width))


def _divided(line: str, width: int) -> list[str]:
    text = line.lstrip(" ")
    return item(text, width, indent=len(line) - len(text))


# --- one cell ----------------------------------------------------------------------------------


def wrapped(text: str, width: int) -> list[str]:
    """A text in lines of at most `width` columns, divided between words if possible."""
    if columns_of(text) <= width:
        return [text]
    lines, line, used = [], "", 0
    for word in _WORD.findall(text):
        size = columns_of(word)
        if used + size > width and line:
            lines.append(line)
            line, used = "", 0
            word = word.lstrip()
            size = columns_of(word)
        if size > width:
            *full, word = _chopped(word, width)
            lines += full
            size = columns_of(word)
        line, used = line + word, used + size
    return [*lines, line]


def shortened(text: str, width: int) -> str:
    """A text without its middle: names of one family differ at their ends."""
    if columns_of(text) <= width:
        return text
    room = width - len(_ELLIPSIS)
    front = _chopped(text, room // 2)[0]
    back = _chopped(text[::-1], room - room // 2)[0][::-1]
    return f"{front}{_ELLIPSIS}{back}"


def _chopped(text: str, width: int) -> list[str]:
    if text.isascii():
        return [text[start : start + width] for start in range(0, len(text), width)]
    pieces = [""]
    for character in text:
        if pieces[-1] and columns_of(pieces[-1] + character) > width:
            pieces.append("")
        pieces[-1] += character
    return pieces


def _clean(text: str) -> str:
    return safe(text) if "\t" not in text else safe(text.expandtabs(_TAB))


def _padded(cell: str, width: int, column: Column) -> str:
    if cell.isascii():
        return cell.rjust(width) if column.right else cell.ljust(width)
    blanks = " " * (width - columns_of(cell))
    return blanks + cell if column.right else cell + blanks


# --- the layout --------------------------------------------------------------------------------


def _room(width: int | None) -> int:
    return max(width or 0, _LEAST_WIDTH)


def _transposed(
    columns: Sequence[Column], rows: Sequence[Sequence[str]]
) -> Iterable[Sequence[str]]:
    return zip(*rows, strict=True) if rows else [()] * len(columns)


def _narrowed(
    columns: Sequence[Column], widths: list[int], body: Sequence[Sequence[str]], room: int
) -> list[int] | None:
    """Widths that fit: titles are wrapped first, then the widest texts give way; or None."""
    least = []
    for column, cells, width in zip(columns, _transposed(columns, body), widths, strict=True):
        content = max(map(columns_of, cells), default=0)
        title = max(map(columns_of, column.title.split()), default=0)
        if column.fit is not Fit.KEEP:
            content = min(content, _LEAST_TEXT)
        least.append(min(width, max(content, title, column.least)))
    if sum(least) > room:
        return None
    flexible = [column.fit is not Fit.KEEP for column in columns]
    fitted = [w if flexes else m for w, m, flexes in zip(widths, least, flexible, strict=True)]
    while (over := sum(fitted) - room) > 0:
        wide = [place for place in range(len(fitted)) if fitted[place] > least[place]]
        place = max(wide, key=lambda place: fitted[place])
        others = [fitted[other] for other in wide if fitted[other] < fitted[place]]
        step = fitted[place] - max([least[place], *others])
        fitted[place] -= max(1, min(step, over))
    return fitted


def _lines_of(
    columns: Sequence[Column], row: Sequence[str], widths: Sequence[int], *, is_head: bool
) -> Iterator[Sequence[str]]:
    """A row as lines: more than one if a cell is wrapped."""
    if all(columns_of(cell) <= width for cell, width in zip(row, widths, strict=True)):
        yield row
        return
    cells = [
        [shortened(cell, width)] if column.fit is Fit.CUT and not is_head else wrapped(cell, width)
        for column, cell, width in zip(columns, row, widths, strict=True)
    ]
    height = max(map(len, cells))
    for line in range(height):
        yield [lines[line] if line < len(lines) else "" for lines in cells]


def _stacked(
    columns: Sequence[Column], body: Sequence[Sequence[str]], width: int, indent: int
) -> Iterator[str]:
    """The rows one below the other, each cell on a line of its own."""
    for row in body:
        first, *rest = row
        if first:
            yield from item(first, width, indent=indent)
        for column, cell in zip(columns[1:], rest, strict=True):
            if cell:
                said = f"{column.title}: {cell}" if column.title else cell
                yield from item(said, width, indent=indent + 2)
