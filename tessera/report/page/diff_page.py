"""The page of `tessc diff`: the tables of two plans side by side, and why their figures differ.

In: a `PlanDiff`. Out: a `Page`. The rows are those of the text (`report.diff`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tessera.driver.diff_plans import Cause, PlanDiff
from tessera.report.diff import (
    CAUSES,
    MOVES,
    PAIRS,
    RETIMED,
    SETTINGS,
    cause_row,
    cause_steps,
    move_row,
    moved_title,
    pair_row,
    retimed_row,
)
from tessera.report.page.model import Page, PageSection
from tessera.report.table import Column


def diff_page(found: PlanDiff) -> Page:
    """The page of a diff."""
    sections = [_words(found)]
    if not found.is_equal:
        sections += _tables(found)
    title = f"{found.names[0]} and {found.names[1]}"
    return Page(title=title, sections=tuple(sections))


def _words(found: PlanDiff) -> PageSection:
    paragraphs = [f"First: `{found.names[0]}`. Second: `{found.names[1]}`."]
    if found.is_equal:
        paragraphs.append("The plans are equal.")
    else:
        paragraphs.append(moved_title(found).rstrip(":").capitalize() + ".")
        paragraphs += [f"Trace `{name}`: {said}." for name, said in found.traces]
        paragraphs += [f"{note[:1].upper()}{note[1:]}." for note in found.notes]
    return _section("text", "what", "What differs", {"paragraphs": paragraphs})


def _tables(found: PlanDiff) -> Iterator[PageSection]:
    yield _table_section("figures", "Predictions", PAIRS, map(pair_row, found.figures))
    if found.causes:
        charts = [
            {
                "title": "requests per second, with more and more of the second plan",
                "unit": "requests/s",
                "better": "higher",
                "rows": [_bar(cause, found.causes) for cause in found.causes],
            }
        ]
        yield _section("bars", "causes", "Why the numbers change", {"charts": charts})
        rows = [cause_row(cause, last) for cause, last in cause_steps(found.causes)]
        yield _table_section("cause-figures", "The same in numbers", CAUSES, rows)
    parts = (
        ("settings", "What was asked for, and where", SETTINGS, found.settings),
        ("moved", "Steps that moved", MOVES, [move_row(found, move) for move in found.moves]),
        (
            "retimed",
            "Steps that stay and take another time",
            RETIMED,
            [retimed_row(found, row) for row in found.retimed],
        ),
        ("devices", "Load of devices per request", PAIRS, list(map(pair_row, found.devices))),
        ("memory", "Memory", PAIRS, list(map(pair_row, found.memory))),
        ("transfers", "Moved per request", PAIRS, list(map(pair_row, found.transfers))),
        ("links", "Links", PAIRS, list(map(pair_row, found.links))),
    )
    for name, title, columns, cells in parts:
        if cells:
            yield _table_section(name, title, columns, cells)


def _bar(cause: Cause, causes: Sequence[Cause]) -> dict[str, object]:
    rate = 1e9 / cause.period_ns if cause.period_ns > 0 else 0.0
    role = "plan" if cause is causes[-1] else "simulated"
    return {"name": cause.name, "value": rate, "range": None, "role": role}


def _table_section(
    name: str,
    title: str,
    columns: Sequence[Column],
    rows: Iterator[Sequence[str]] | Sequence[Sequence[str]],
) -> PageSection:
    heads = [{"title": c.title, "unit": "", "right": c.right} for c in columns]
    data = {"columns": heads, "rows": [list(row) for row in rows], "caption": title, "size": 20}
    return _section("table", name, title, data)


def _section(kind: str, name: str, title: str, data: dict[str, object]) -> PageSection:
    return PageSection(kind=kind, id=name, title=title, data=data)
