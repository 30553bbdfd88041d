"""Diagnostics as text: full (for people), concise (one line each), JSON (for programs).

In: `Diagnostic` records. Out: strings; nothing is printed here. Text of the user's file is shown
with tabs expanded, and with control, format and undecodable characters replaced, so that a file
cannot steer the terminal and the caret stands under the token. A long line is shown as a window
around the caret; its cost does not grow with the line.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tessera.diagnostics import Diagnostic, Label, Severity

LIMIT = 20

_TAB = 4
_WINDOW = 100  # characters of a line that are shown at most
_BEFORE = 40  # of these, characters before the label
_ELLIPSIS = "..."
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_UNSAFE = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))

_COLORS = {
    Severity.ERROR: "\x1b[1;31m",
    Severity.WARNING: "\x1b[1;33m",
    Severity.NOTE: "\x1b[1;36m",
}
_BLUE, _BOLD, _CYAN, _RESET = "\x1b[1;34m", "\x1b[1m", "\x1b[1;36m", "\x1b[0m"


# --- which, and in what order ----------------------------------------------------------------


def in_order(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Sorted by position; files in the order in which they first appear, no position last."""
    every = tuple(diagnostics)
    files: dict[str, int] = {}
    for diagnostic in every:
        if diagnostic.primary:
            files.setdefault(diagnostic.primary.span.source.name, len(files))

    def key(diagnostic: Diagnostic) -> tuple[int, int, int]:
        if diagnostic.primary is None:
            return len(files), 0, 0
        span = diagnostic.primary.span
        return files[span.source.name], span.source.first_line, span.start

    return tuple(sorted(every, key=key))


def at_most(diagnostics: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    """The first `LIMIT` in order; warnings and notes make room for errors."""
    if len(diagnostics) <= LIMIT:
        return tuple(diagnostics)
    errors = [d for d in diagnostics if d.severity is Severity.ERROR][:LIMIT]
    room = LIMIT - len(errors)
    others = [d for d in diagnostics if d.severity is not Severity.ERROR][:room]
    kept = {id(d) for d in (*errors, *others)}
    return tuple(d for d in diagnostics if id(d) in kept)


def render_full(diagnostics: Iterable[Diagnostic], color: bool = False) -> str:
    """All diagnostics in full, separated by blank lines; the last line counts the rest."""
    ordered = in_order(diagnostics)
    shown = at_most(ordered)
    parts = [full(diagnostic, color) for diagnostic in shown]
    if rest := len(ordered) - len(shown):
        parts.append(f"and {rest} more")
    return "\n\n".join(parts)


def render_concise(diagnostics: Iterable[Diagnostic]) -> str:
    """One line each: `file:line:column: error[CODE] headline`."""
    ordered = in_order(diagnostics)
    shown = at_most(ordered)
    lines = [concise(diagnostic) for diagnostic in shown]
    if rest := len(ordered) - len(shown):
        lines.append(f"and {rest} more")
    return "\n".join(lines)


def render_json(diagnostics: Iterable[Diagnostic]) -> str:
    """All diagnostics, one JSON object per line."""
    return "\n".join(json.dumps(to_json(diagnostic)) for diagnostic in in_order(diagnostics))


# --- one diagnostic --------------------------------------------------------------------------


def concise(diagnostic: Diagnostic) -> str:
    """The one-line form."""
    where = f"{safe(str(diagnostic.primary.span))}: " if diagnostic.primary else ""
    headline = _one_line(str(diagnostic.headline))
    return f"{where}{diagnostic.severity.value}[{diagnostic.code}] {headline}"


def to_json(diagnostic: Diagnostic) -> dict[str, object]:
    """The form described in `docs/reference/json.md`."""
    primary = diagnostic.primary
    return {
        "code": diagnostic.code,
        "severity": diagnostic.severity.value,
        "headline": str(diagnostic.headline),
        "primary": _label_json(primary) if primary else None,
        "secondary": [_label_json(label) for label in diagnostic.secondary],
        "notes": list(diagnostic.notes),
        "hint": diagnostic.hint,
    }


def full(diagnostic: Diagnostic, color: bool = False) -> str:
    """The form for people: headline, excerpt with labels, notes, and a hint after a blank line."""
    paint = _Paint(color)
    tone = _COLORS[diagnostic.severity]
    kind = paint(tone, f"{diagnostic.severity.value}[{diagnostic.code}]")
    lines = [kind + paint(_BOLD, f": {_one_line(str(diagnostic.headline))}")]
    lines += _excerpt(diagnostic, paint, tone)
    for note in diagnostic.notes:
        lines += _paragraph(paint(_CYAN, "note"), note, "      ")
    if diagnostic.hint:
        lines.append("")
        lines += _paragraph(paint(_CYAN, "hint"), diagnostic.hint, "      ")
    return "\n".join(lines)


def safe(text: str) -> str:
    """User text, with characters replaced that would not print or would steer the terminal."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    unsafe = character != "\t" and unicodedata.category(character) in _UNSAFE
    return _REPLACEMENT if unsafe else character


def _one_line(text: str) -> str:
    return safe(" ".join(text.splitlines()))


def _paragraph(kind: str, text: str, indent: str) -> list[str]:
    first, *rest = text.splitlines() or [""]
    return [f"{kind}: {safe(first)}", *(indent + safe(line) for line in rest)]


def _label_json(label: Label) -> dict[str, object]:
    source = label.span.source
    line, column = source.position(label.span.start)
    end_line, end_column = source.position(label.span.end)
    return {
        "file": source.name,
        "line": line,
        "column": column,
        "end_line": end_line,
        "end_column": end_column,
        "text": label.text,
    }


# --- the excerpt -----------------------------------------------------------------------------


class _Paint:
    """Wraps text in a colour, or leaves it alone."""

    __slots__ = ("_enabled",)

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled

    def __call__(self, tone: str, text: str) -> str:
        return f"{tone}{text}{_RESET}" if self._enabled and text else text


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One label with the part of its line that is shown: offsets into the source's text."""

    label: Label
    line: int
    start: int
    end: int
    cut_left: bool
    cut_right: bool
    is_primary: bool

    @property
    def excerpt(self) -> tuple[int, int, int]:
        """Rows with the same excerpt share the line above their markers."""
        return self.line, self.start, self.end


def _excerpt(diagnostic: Diagnostic, paint: _Paint, tone: str) -> list[str]:
    primary = diagnostic.primary
    if primary is None:
        return []
    rows = [_row(primary, True), *(_row(label, False) for label in diagnostic.secondary)]
    width = len(str(max(row.line for row in rows)))
    home = primary.span.source
    by_file: dict[str, list[_Row]] = {home.name: []}
    for row in rows:
        by_file.setdefault(row.label.span.source.name, []).append(row)
    lines: list[str] = []
    for name, group in by_file.items():
        group.sort(key=lambda row: (row.line, row.start, row.label.span.start))
        anchor = primary.span if name == home.name else group[0].label.span
        arrow = "-->" if name == home.name else ":::"
        lines.append(f"{' ' * width}{paint(_BLUE, arrow)} {safe(str(anchor))}")
        lines.append(paint(_BLUE, f"{' ' * width} |"))
        lines += _file_rows(group, width, paint, tone)
    return lines


def _file_rows(group: list[_Row], width: int, paint: _Paint, tone: str) -> list[str]:
    lines: list[str] = []
    shown: tuple[int, int, int] | None = None
    for row in group:
        if row.excerpt != shown:
            shown = row.excerpt
            gutter = paint(_BLUE, f"{row.line:>{width}} |")
            lines.append(f"{gutter} {_shown_line(row)}".rstrip())
        gutter = paint(_BLUE, f"{' ' * width} |")
        marker_tone = tone if row.is_primary else _BLUE
        lines.append(f"{gutter} {_marker(row, paint, marker_tone)}")
    return lines


def _row(label: Label, is_primary: bool) -> _Row:
    """The window of the label's line: all of it if short, else some of it around the label."""
    span = label.span
    text = span.source.text
    at = min(max(span.start, 0), len(text))
    line_start = text.rfind("\n", 0, at) + 1
    line_end = text.find("\n", at)
    line_end = len(text) if line_end < 0 else line_end
    if line_end > line_start and text[line_end - 1] == "\r":
        line_end -= 1
    start, end = line_start, line_end
    if line_end - line_start > _WINDOW:
        start = max(line_start, min(at - _BEFORE, line_end - _WINDOW))
        end = min(line_end, start + _WINDOW)
    return _Row(
        label=label,
        line=span.source.position(at)[0],
        start=start,
        end=end,
        cut_left=start > line_start,
        cut_right=end < line_end,
        is_primary=is_primary,
    )


def _shown_line(row: _Row) -> str:
    text = row.label.span.source.text[row.start : row.end]
    left = _ELLIPSIS if row.cut_left else ""
    return left + _expand(text, len(left)) + (_ELLIPSIS if row.cut_right else "")


def _marker(row: _Row, paint: _Paint, tone: str) -> str:
    """Blanks up to the label, then carets or dashes under it, then its text."""
    text = row.label.span.source.text
    at = min(max(row.label.span.start, row.start), row.end)
    stop = min(max(row.label.span.end, at), row.end)
    left = len(_ELLIPSIS) if row.cut_left else 0
    before = left + columns_of(_expand(text[row.start : at], left))
    through = left + columns_of(_expand(text[row.start : stop], left))
    mark = ("^" if row.is_primary else "-") * max(through - before, 1)
    said = f"{mark} {_one_line(row.label.text)}" if row.label.text else mark
    return " " * before + paint(tone, said)


def _expand(text: str, column: int) -> str:
    """Tabs to spaces and unprintable characters replaced; `column` is where the text starts."""
    if text.isascii() and text.isprintable():
        return text
    parts: list[str] = []
    for character in text:
        shown = " " * (_TAB - column % _TAB) if character == "\t" else _visible(character)
        parts.append(shown)
        column += columns_of(shown)
    return "".join(parts)


def columns_of(text: str) -> int:
    """The number of terminal columns of a text: 2 for wide characters, 0 for combining ones."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # few texts need it

    return cell_len(text)
