"""Read a plan file, `.tsp`: the text that `ir.plan_text` prints.

In: text. Out: a `Plan`. An unknown version, record or key, a missing one, and a value that is no
finite number are errors with their line; nothing is skipped but comments and empty lines.
"""

from __future__ import annotations

import json
import re
import types
import typing
from dataclasses import fields
from math import isfinite
from typing import Any

from tessera.diagnostics import Source, Span, TesseraError, error
from tessera.ir.plan import (
    Baseline,
    PlacedStep,
    Plan,
    PlanCard,
    PlanDevice,
    PlannedTransfer,
    Replica,
)
from tessera.ir.plan_text import HEADER

_KINDS: dict[str, type[Any]] = {
    "plan": Plan, "card": PlanCard, "device": PlanDevice, "replica": Replica,
    "step": PlacedStep, "transfer": PlannedTransfer, "baseline": Baseline,
}  # fmt: skip
_LISTS = ("cards", "devices", "replicas", "baselines", "steps", "transfers")
_FIELD = re.compile(r"\s+([a-z_]+)=(\"(?:[^\"\\]|\\.)*\"|[^\s\"]+)")


def parse_plan(text: str, name: str = "<plan>") -> Plan:
    """The plan in a text."""
    source = Source(name, text)
    lines = [line for line in _lines(source) if line[1].strip() and not line[1].startswith("//")]
    if not lines or lines[0][1].strip() != HEADER:
        at = lines[0][0] if lines else 0
        raise _bad(source, at, f"this is no plan: the first line must be `{HEADER}`")
    found: list[tuple[int, str, dict[str, Any]]] = []
    for offset, line in lines[1:]:
        found.append((offset, *_record(source, offset, line)))
    plans = [row for row in found if row[1] == "plan"]
    if len(plans) != 1:
        raise _bad(source, lines[-1][0], f"a plan has one `plan` record, this has {len(plans)}")
    return Plan(
        **plans[0][2],
        cards=tuple(PlanCard(**row) for _, kind, row in found if kind == "card"),
        devices=tuple(PlanDevice(**row) for _, kind, row in found if kind == "device"),
        replicas=_replicas(source, found),
        baselines=tuple(Baseline(**row) for _, kind, row in found if kind == "baseline"),
    )


def _replicas(source: Source, found: list[tuple[int, str, dict[str, Any]]]) -> tuple[Replica, ...]:
    shares: list[float] = []
    steps: list[list[PlacedStep]] = []
    transfers: list[list[PlannedTransfer]] = []
    for offset, kind, row in found:
        if kind == "replica":
            shares.append(row["share"])
            steps.append([])
            transfers.append([])
        elif kind in ("step", "transfer"):
            if not shares:
                raise _bad(source, offset, f"a `{kind}` record comes after its `replica`")
            if kind == "step":
                steps[-1].append(PlacedStep(**row))
            else:
                transfers[-1].append(PlannedTransfer(**row))
    return tuple(
        Replica(share=share, steps=tuple(own), transfers=tuple(moved))
        for share, own, moved in zip(shares, steps, transfers, strict=True)
    )


def _lines(source: Source) -> list[tuple[int, str]]:
    found, offset = [], 0
    for line in source.text.split("\n"):
        found.append((offset, line.rstrip("\r")))
        offset += len(line) + 1
    return found


def _record(source: Source, offset: int, line: str) -> tuple[str, dict[str, Any]]:
    kind = line.split(maxsplit=1)[0]
    record = _KINDS.get(kind)
    if record is None:
        raise _bad(source, offset, f"unknown record `{kind}`")
    hints = typing.get_type_hints(record)
    wanted = {one.name: hints[one.name] for one in fields(record) if one.name not in _LISTS}
    row: dict[str, Any] = {}
    end = len(kind)
    for match in _FIELD.finditer(line, end):
        if match.start() != end:
            break
        key, end = match[1], match.end()
        if key not in wanted or key in row:
            what = "unknown" if key not in wanted else "repeated"
            raise _bad(source, offset, f"{what} key `{key}` in a `{kind}` record")
        row[key] = _value(source, offset, key, match[2], wanted[key])
    if line[end:].strip():
        raise _bad(source, offset, f"cannot read `{line[end:].strip()[:40]}`")
    for key in wanted:
        if key not in row:
            raise _bad(source, offset, f"a `{kind}` record lacks the key `{key}`")
    return kind, row


def _value(source: Source, offset: int, key: str, text: str, wanted: Any) -> Any:
    options = typing.get_args(wanted) if isinstance(wanted, types.UnionType) else (wanted,)
    try:
        value = json.loads(text)
    except ValueError:
        value = ...
    if type(value) is int and float in options:
        value = float(value)
    if type(value) not in options or (isinstance(value, float) and not isfinite(value)):
        raise _bad(source, offset, f"`{key}={text}` is not a value of that key")
    return value


def _bad(source: Source, offset: int, headline: str) -> TesseraError:
    end = source.text.find("\n", offset)
    span = Span(source, offset, end if end >= 0 else len(source.text))
    return TesseraError(error("TSR3020", headline, span))
