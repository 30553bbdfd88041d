"""The `key=value` fields of a record, held against the keys that its kind has.

In: the tokens of a record. Out: `Fields`, which finds a value, says where it stands, and reads it
through `Values`. Unknown, repeated and missing keys are faults of the record.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tessera.frontend.trace.findings import RecordAbandoned, TraceFindings, did_you_mean
from tessera.frontend.trace.split import Line
from tessera.frontend.trace.syntax import Field, Token
from tessera.ir.program.program import DEFAULT_STREAM

REQUIRED_KEYS: dict[str, tuple[str, ...]] = {
    "buffer": ("bytes", "role"),
    "resident": ("data",),
    "module": (),
    "launch": ("grid", "block", "args"),
    "variant": (),
    "memset": ("bytes", "value"),
    "memcpy": ("bytes",),
    "op": ("reads", "writes"),
    "event": (),
    "wait": (),
}
OPTIONAL_KEYS: dict[str, tuple[str, ...]] = {
    "buffer": ("dtype", "shape"),
    "resident": (),
    "module": ("arch",),
    "launch": ("smem", "cluster", "cooperative", "stream"),
    "variant": ("grid", "block", "smem", "cluster", "args"),
    "memset": ("element_bytes", "stream"),
    "memcpy": ("stream",),
    "op": ("attrs", "stream"),
    "event": ("stream",),
    "wait": ("stream",),
}

_STREAM = re.compile(r"[A-Za-z0-9_$.]+")


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of one record. `base` is where the record's text starts in the trace."""

    line: Line
    base: int
    by_key: dict[str, Field]

    def __contains__(self, key: str) -> bool:
        return key in self.by_key

    def value(self, key: str) -> tuple[str, int]:
        """The text of a value and where it starts."""
        field = self.by_key[key]
        return field.value, self.base + field.value_at

    def place(self, key: str) -> tuple[int, int]:
        """Where a value stands, or the whole record if the key is not there."""
        field = self.by_key.get(key)
        if field is None:
            return (self.line.start, self.line.end)
        start = self.base + field.value_at
        return (start, start + len(field.value))


def read_fields(
    line: Line, base: int, names: Sequence[Token], given: Sequence[Field], findings: TraceFindings
) -> Fields:
    """The fields of a record, once its keys are known to be right."""
    required, optional = REQUIRED_KEYS[line.kind], OPTIONAL_KEYS[line.kind]
    by_key: dict[str, Field] = {}
    sound = True
    for field in given:
        place = (base + field.at, base + field.at + len(field.key))
        if field.key not in required and field.key not in optional:
            _unknown_key(findings, line.kind, field.key, place)
            sound = False
        elif field.key in by_key:
            findings.error("TSR1105", f"key `{field.key}` is given twice", place)
            sound = False
        else:
            by_key[field.key] = field
    if missing := [f"`{key}=`" for key in required if key not in by_key]:
        if sound:
            end = base + (_end(names, given) or line.end - base)
            plural = "s" if len(missing) > 1 else ""
            message = f"`{line.kind}` lacks the key{plural} {', '.join(missing)}"
            findings.error("TSR1106", message, (end, end + 1))
        sound = False
    if not sound:
        raise RecordAbandoned
    return Fields(line, base, by_key)


def read_stream(fields: Fields, findings: TraceFindings) -> str:
    """`stream=S`, or the default stream."""
    if "stream" not in fields:
        return DEFAULT_STREAM
    text, at = fields.value("stream")
    if not _STREAM.fullmatch(text):
        findings.fail(
            "TSR1103",
            f"`{text[:40]}` is not the name of a stream",
            (at, at + len(text)),
            "letters, digits, `_`, `$` and `.`",
        )
    return text


def _end(names: Sequence[Token], given: Sequence[Field]) -> int:
    """Where the last token of a record ends."""
    if given:
        return given[-1].value_at + len(given[-1].value)
    return names[-1].end_pos or 0 if names else 0


def _unknown_key(findings: TraceFindings, kind: str, key: str, place: tuple[int, int]) -> None:
    known = REQUIRED_KEYS[kind] + OPTIONAL_KEYS[kind]
    keys = ", ".join(f"`{name}`" for name in known) or "none"
    findings.error(
        "TSR1104",
        f"unknown key `{key}` of `{kind}`",
        place,
        notes=(f"its keys: {keys}",),
        hint=did_you_mean(key, known),
    )
