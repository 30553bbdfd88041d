"""The kinds of records in a trace: the class that each makes, and its names and keys.

`RECORDS` is the only table of them: the reader walks it (`build_trace`), and tests compare the
grammar and the page on the format with it. The class that a kind makes gives the rest: a field with
a default is a key that may be left out, and the type of a field says how its value is read
(`Values.by_type`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, NamedTuple

from tessera.diagnostics import Span
from tessera.frontend.trace.findings import RecordAbandoned, TraceFindings, did_you_mean
from tessera.frontend.trace.syntax import Field, Token
from tessera.ir.program.program import (
    Buffer,
    Event,
    Launch,
    LaunchVariant,
    LibraryCall,
    Memcpy,
    Memset,
    Notes,
    PointerTable,
    Triple,
    Wait,
)
from tessera.ir.program.routing import Routing

MAX_BYTES = 1 << 48
# The lowest and the highest value of the keys that hold an integer.
LIMITS: dict[str, tuple[int, int]] = {
    "bytes": (1, MAX_BYTES),
    "smem": (0, 2**31 - 1),
    "cooperative": (0, 1),
    "element_bytes": (1, 4),
    "value": (0, 2**32 - 1),
}
# The highest value in each dimension of the keys that hold `X,Y,Z`.
HIGHEST: dict[str, Triple] = {
    "grid": (2**31 - 1, 65535, 65535),
    "block": (1024, 1024, 64),
    "cluster": (16, 16, 16),
}
# Keys that are shorter than the fields that they fill.
_FIELD_NAMES = {"smem": "shared_bytes", "args": "arguments", "attrs": "attributes"}
# The namespace of keys that no other producer may use.
_OWN = "tessera:"


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """`tessera.trace`: which version of the format a trace has."""

    version: str
    span: Span | None = None
    notes: Notes = ()


@dataclass(frozen=True, slots=True)
class ResidentRecord:
    """`resident`: the file with the contents of buffers."""

    data: str
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class RoutingRecord:
    """`routing`: how tokens choose experts."""

    law: Routing
    span: Span | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleRecord:
    """`module`: its PTX follows the record. `arch` is None if it is not given."""

    name: str
    arch: str | None = None
    name_place: tuple[int, int]
    arch_place: tuple[int, int]
    span: Span
    notes: Notes = ()


class RecordKey(NamedTuple):
    """A name or key of a record: its name in a trace, the field that it fills, and the field's
    type."""

    name: str
    field: str
    type: str
    required: bool


class RecordKind:
    """A kind of record: `names` follow its first word in this order, then `keys` in any order.

    Both are read in the order of the table, so the first fault in it is the one reported.
    """

    def __init__(
        self, record: type[Any], names: str, keys: str = "", *, ends_module: bool = False
    ) -> None:
        """`names` and `keys` are lists of words."""
        by_name = {one.name: one for one in fields(record)}
        self.record = record
        self.names = tuple(_key(name, by_name) for name in names.split())
        self.keys = tuple(_key(name, by_name) for name in keys.split())
        self.required_keys = tuple(key.name for key in self.keys if key.required)
        self.optional_keys = tuple(key.name for key in self.keys if not key.required)
        self.known_keys = self.required_keys + self.optional_keys
        self.takes_notes = "notes" in by_name
        self.ends_module = ends_module


def _key(name: str, by_name: dict[str, dataclasses.Field[object]]) -> RecordKey:
    its_field = by_name[_FIELD_NAMES.get(name, name)]
    kind = str(its_field.type).removesuffix(" | None")
    return RecordKey(name, its_field.name, kind, its_field.default is MISSING)


RECORDS = {
    "tessera.trace": RecordKind(VersionRecord, "version"),
    "buffer": RecordKind(Buffer, "name", "bytes role dtype shape"),
    "resident": RecordKind(ResidentRecord, "", "data"),
    "routing": RecordKind(RoutingRecord, "", "law"),
    "module": RecordKind(ModuleRecord, "name", "arch", ends_module=True),
    "launch": RecordKind(
        Launch, "kernel", "grid block cluster smem cooperative work args stream", ends_module=True
    ),
    "variant": RecordKind(LaunchVariant, "arch", "grid block cluster smem args"),
    "memset": RecordKind(Memset, "target", "bytes element_bytes value stream", ends_module=True),
    "memcpy": RecordKind(Memcpy, "target source", "bytes stream", ends_module=True),
    "op": RecordKind(LibraryCall, "operator", "reads writes attrs stream", ends_module=True),
    "pointers": RecordKind(PointerTable, "buffer words"),
    "event": RecordKind(Event, "name", "stream"),
    "wait": RecordKind(Wait, "event", "stream"),
}


RecordSyntax = tuple[Sequence[Token], Sequence[Field]]


@dataclass(slots=True)
class OpenRecord:
    """A record while it is read: each name and value with its place, and the fields so far."""

    kind: RecordKind
    start: int
    end: int
    given: dict[str, tuple[str, int]] = field(default_factory=dict)
    row: dict[str, Any] = field(default_factory=dict)
    notes: list[tuple[str, str]] = field(default_factory=list)

    def place(self, key: str) -> tuple[int, int]:
        """The place of a value, or of the whole record if the key is missing."""
        if key not in self.given:
            return (self.start, self.end)
        text, at = self.given[key]
        return (at, at + len(text))

    def make(self, findings: TraceFindings, **more: object) -> Any:
        """The finished record of its kind."""
        if self.notes:
            more["notes"] = tuple(self.notes)
        return self.kind.record(**self.row, **more, span=findings.span(self.start, self.end))


def open_record(
    word: str, place: tuple[int, int], base: int, syntax: RecordSyntax, findings: TraceFindings
) -> OpenRecord:
    """A record whose keys are those of its kind; `base` is the offset of its text in the trace."""
    names, values = syntax
    kind = RECORDS[word]
    opened = OpenRecord(kind, *place)
    given = opened.given
    known = kind.known_keys
    seen = set()
    sound = True
    for key, text, at in values:
        is_note = kind.takes_notes and ":" in key and not key.startswith(_OWN)
        if (key in known or is_note) and key not in seen:
            seen.add(key)
            if is_note:
                opened.notes.append((key, text))
            else:
                given[key] = text, base + at + len(key) + 1
            continue
        sound = False
        where = (base + at, base + at + len(key))
        if key in seen:
            findings.error("TSR1104", f"key `{key}` is given twice", where)
        else:
            _unknown_key(findings, word, key, known, where)
    if not sound:
        raise RecordAbandoned
    if missing := [f"`{key}=`" for key in kind.required_keys if key not in given]:
        end = base + _end(names, values) if names or values else place[1]
        plural = "s" if len(missing) > 1 else ""
        message = f"`{word}` lacks the key{plural} {', '.join(missing)}"
        findings.fail("TSR1104", message, (end, end + 1))
    for name, token in zip(kind.names, names, strict=True):
        given[name.name] = str(token), base + token.start_pos
    return opened


def _end(names: Sequence[Token], values: Sequence[Field]) -> int:
    """The end of the last token of a record."""
    if values:
        key, text, at = values[-1]
        return at + len(key) + 1 + len(text)
    return names[-1].end_pos


def _unknown_key(
    findings: TraceFindings, word: str, key: str, known: Sequence[str], place: tuple[int, int]
) -> None:
    findings.error(
        "TSR1104",
        f"unknown key `{key}` of `{word}`",
        place,
        notes=("its keys: " + ", ".join(f"`{name}`" for name in known),),
        hint=did_you_mean(key, known),
    )
