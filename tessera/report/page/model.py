"""The records of a report page: sections of JSON values.

In: nothing. Out: frozen records, and the one JSON value that a page carries (`tessera-report/1`).
Every section has a `kind`, which says how it is drawn: `assets` has one script for each kind, a
section of an unknown kind is refused here. `figures`, `bars`, `table` and `text` are for anybody;
the others belong to the module here that makes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from tessera.diagnostics import TesseraError

SCHEMA = "tessera-report/1"
KINDS = (
    "answer",
    "overview",
    "graph",
    "placement",
    "timeline",
    "roofline",
    "tradeoffs",
    "load",
    "run",
    "made",
    "figures",
    "bars",
    "table",
    "text",
)
MOST_ELEMENTS = 3000
"""Most elements that a page draws at a time; sections share them (`budget` of a section)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSection:
    """A part of a page. `id` is unique in it; `data` is JSON: texts, numbers, lists, tables."""

    kind: str
    id: str
    title: str
    data: Mapping[str, object]
    note: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"there is no section of kind `{self.kind:.60}`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """All sections, in order. `subject` has the digests of the plan and the traces."""

    title: str
    sections: tuple[PageSection, ...]
    subject: Mapping[str, object] = field(default_factory=dict)

    def section(self, name: str) -> PageSection | None:
        """The section with that id."""
        return next((section for section in self.sections if section.id == name), None)


def page_value(page: Page) -> dict[str, object]:
    """The page as one JSON value."""
    return {
        "schema": SCHEMA,
        "title": page.title,
        "subject": dict(page.subject),
        "sections": [
            {
                "kind": section.kind,
                "id": section.id,
                "title": section.title,
                "note": section.note,
                "data": dict(section.data),
            }
            for section in page.sections
        ],
    }


def page_of(value: object, name: str) -> Page:
    """The page in a JSON value; raises `TesseraError` if the value holds none."""
    schema = value.get("schema") if isinstance(value, dict) else None
    if schema != SCHEMA:
        shown = f"`{schema:.60}`" if isinstance(schema, str) else "missing"
        raise bad_page(name, f"its schema is {shown}, not `{SCHEMA}`")
    if not isinstance(value, dict) or "subject" not in value:
        raise bad_page(name, "it has no subject")
    try:
        page = msgspec.convert(value, Page)
    except msgspec.ValidationError as problem:
        raise bad_page(name, f"{problem!s:.200}") from None
    if len({section.id for section in page.sections}) < len(page.sections):
        raise bad_page(name, "two of its sections have one id")
    return page


def bad_page(name: str, why: str) -> TesseraError:
    """A page that cannot be read back."""
    return TesseraError.of(
        "TSR1916",
        f"`{name}` is no report page that can be read back: {why}",
        hint="make it again with `tessc report`, from the files that its last section names",
    )
