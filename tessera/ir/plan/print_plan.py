"""A `Plan` as the text of a `.tsp` file: one record per line; `frontend.plan.tsp` reads it back.

Strings are in quotes as JSON writes them, numbers by `repr`, so nothing is lost. Fields stand in
the order of the records; fields at their default are omitted. The records of a replica follow it,
indented. The text of a trace follows its record, each line after a `|`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, Field, fields

from tessera.ir.plan.division import Division
from tessera.ir.plan.plan import PlacedTrace, Plan, PlannedTrace, Replica, parts_of_placed
from tessera.ir.plan.print_launch import lowered_lines

FORMAT = "tessera-plan"
VERSION = 2
HOSTS_VERSION = 3
PARTS_VERSION = 4
PORTIONS_VERSION = 5
ROLES_VERSION = 6
NEW_IN = {
    HOSTS_VERSION: "landings",
    PARTS_VERSION: "cuts, twins and ranges of places",
    PORTIONS_VERSION: "transfers of several buffers",
    ROLES_VERSION: "shares of traces",
}
VERSIONS_READ = (1, VERSION, *NEW_IN)
"""Version 1 has no capacities and paths, version 2 nothing of `NEW_IN`.

A plan is written as the version that has what it needs, 2 at least: older programs read that.
"""
# Fields that are written as separate records or text.
NESTED = frozenset(
    (
        "cards",
        "devices",
        "capacities",
        "paths",
        "traces",
        "replicas",
        "baselines",
        "steps",
        "transfers",
        "lowered",
        "hand_overs",
        "text",
        "division",
    )
)


def print_plan(plan: Plan) -> str:
    """The text of a plan."""
    return "\n".join((f"{FORMAT} {version_of(plan)}", *_lines(plan))) + "\n"


def version_of(plan: Plan) -> int:
    """The version of the format that has all that a plan needs."""
    if any(replica.shares or replica.hand_overs for replica in plan.replicas):
        return ROLES_VERSION
    lowered = [replica.lowered for replica in plan.replicas]
    moves = (move for own in lowered for trace in own.traces for move in trace.transfers)
    if any(len(move.portions) > 1 for move in moves):
        return PORTIONS_VERSION
    ranged = (place for own in lowered for place in own.places if place.first or place.end)
    if any(ranged) or any(trace.division for trace in plan.traces):
        return PARTS_VERSION
    return HOSTS_VERSION if any(own.landings for own in lowered) else VERSION


def _lines(plan: Plan) -> Iterator[str]:
    yield _record("plan", plan)
    for card in plan.cards:
        yield _record("card", card)
    for device in plan.devices:
        yield _record("device", device)
    for capacity in plan.capacities:
        yield _record("capacity", capacity)
    for path in plan.paths:
        yield _record("path", path)
    for baseline in plan.baselines:
        yield _record("baseline", baseline)
    for replica in plan.replicas:
        yield from replica_lines(replica, [trace.division for trace in plan.traces])
    for trace in plan.traces:
        yield from _trace_lines(trace)


def replica_lines(replica: Replica, divisions: Sequence[Division]) -> Iterator[str]:
    """A replica: the device of each step, then the memory and operations of every device.

    `divisions` are those of the traces: lines of parts and twins say what they are, in a comment.
    """
    devices = ",".join(map(json.dumps, replica.lowered.devices))
    yield f"{_record('replica', replica)} devices={devices}"
    for placed in replica.traces:
        yield from (f"  {line}" for line in _placed_lines(placed, divisions[placed.trace]))
    for hand_over in replica.hand_overs:
        yield "  " + _record("hand_over", hand_over)
    yield from (f"  {line}" for line in lowered_lines(replica.lowered))


def _placed_lines(placed: PlacedTrace, division: Division) -> Iterator[str]:
    yield _record("placement", placed)
    parts = parts_of_placed(placed, division)
    for step in placed.steps:
        line = _record("step", step).replace("step step=", "step ", 1)
        part = parts.get(step.step)
        said = f" //{part.words(step.arch)}" if part is not None and part.count > 1 else ""
        yield f"  {line}{said}".replace("\n", " ")
    for transfer in placed.transfers:
        yield "  " + _record("move", transfer)


def _trace_lines(trace: PlannedTrace) -> Iterator[str]:
    yield _record("trace", trace)
    for cut in trace.division.cuts:
        yield "  " + _record("cut", cut).replace("cut step=", "cut ", 1)
    for twin in trace.division.twins:
        yield "  " + _record("twin", twin).replace("twin step=", "twin ", 1)
    yield from (f"|{line}" for line in trace.text.split("\n")[:-1])


def _record(kind: str, record: object) -> str:
    every = fields(record)  # type: ignore[arg-type]
    shown = (
        field for field in every if field.name not in NESTED and field.compare
    )  # no provenance
    return " ".join((kind, *(text for field in shown for text in _field(record, field))))


def _field(record: object, field: Field[object]) -> Iterator[str]:
    value = getattr(record, field.name)
    if field.default is MISSING or value != field.default:
        yield f"{field.name}={_value(value)}"


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(json.dumps, value))
    return json.dumps(value) if isinstance(value, str) or value is None else repr(value)
