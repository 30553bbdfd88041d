"""A `Plan` as the text of a `.tsp` file: one record per line; `frontend.tsp` reads it back.

Strings are in quotes as JSON writes them, numbers by `repr`, so nothing is lost. Fields stand in
the order of the records, and every line begins with its kind.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields

from tessera.ir.plan import Plan

HEADER = "tessera-plan 1"
_LISTS = ("cards", "devices", "replicas", "baselines", "steps", "transfers")


def print_plan(plan: Plan) -> str:
    """The text of a plan."""
    return "\n".join((HEADER, *_lines(plan))) + "\n"


def _lines(plan: Plan) -> Iterator[str]:
    yield _record("plan", plan)
    for card in plan.cards:
        yield _record("card", card)
    for device in plan.devices:
        yield _record("device", device)
    for replica in plan.replicas:
        yield _record("replica", replica)
        for step in replica.steps:
            yield _record("step", step)
        for transfer in replica.transfers:
            yield _record("transfer", transfer)
    for baseline in plan.baselines:
        yield _record("baseline", baseline)


def _record(kind: str, record: object) -> str:
    names = (one.name for one in fields(record) if one.name not in _LISTS)  # type: ignore[arg-type]
    return " ".join((kind, *(f"{name}={_value(getattr(record, name))}" for name in names)))


def _value(value: object) -> str:
    return json.dumps(value) if isinstance(value, str) or value is None else repr(value)
