"""What `tessc diff` shows: text for people, JSON for programs; `report.page.diff_page` has a page.

In: a `PlanDiff`. Out: texts; nothing is printed here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from tessera.driver.diff_plans import Cause, FigurePair, MovedSteps, PlanDiff, Retimed
from tessera.frontend.machine.quantities import format_bytes, format_time
from tessera.ir.objectives import FigureUnit, Objective
from tessera.report.diagnostics import safe
from tessera.report.kernel_names import short_name
from tessera.report.table import TRUST, Column, Fit, amount, fitted, right, table

SCHEMA = "tessera-diff/1"
_MOST_ROWS = 12
_MOST_STEPS = 6
PAIRS = (Column(fit=Fit.WRAP), *right("first", "second", "change"))
SETTINGS = (Column(), Column("first", Fit.WRAP), Column("second", Fit.WRAP))
MOVES = (
    Column("steps", right=True),
    Column("kernels", Fit.CUT),
    Column("from", Fit.WRAP),
    Column("to", Fit.WRAP),
    Column("which", Fit.WRAP),
)
RETIMED = (
    Column("steps", right=True),
    Column("kernels", Fit.CUT),
    Column("on"),
    *right("first", "second"),
    Column("times from", Fit.WRAP),
)
CAUSES = (
    Column("with this of the second plan", Fit.WRAP),
    *right("requests/s", "change", "alone", "change"),
)


_DECIDES = {
    FigureUnit.RATE: "rate",
    FigureUnit.TIME: "latency alone",
    FigureUnit.USD: "cost per request",
}


# --- text --------------------------------------------------------------------------------------


def diff_text(found: PlanDiff, written: str | None = None, width: int | None = None) -> str:
    """The report, for a terminal of that width or for a file."""
    lines = [f"first:  {safe(found.names[0])}", f"second: {safe(found.names[1])}"]
    if found.is_equal:
        lines.append("the plans are equal")
    else:
        lines += _blocks(found, width)
    if written is not None:
        lines.append(f"wrote {safe(written)}")
    return fitted("\n".join(lines) + "\n", width)


def diff_answer(found: PlanDiff) -> str:
    """Which plan to take, by the goal of both."""
    first, second = found.plans
    if first.objective != second.objective:
        return f"take the one with your goal: first {first.objective}, second {second.objective}"
    if not any(said == "the same" for _, said in found.traces):
        return "no trace is the same in both, so their figures do not tell which to take"
    objective = Objective.named(first.objective)
    pair = next(pair for pair in found.figures if pair.name == _DECIDES[objective.unit])
    name, before, after, change = pair_row(pair)
    if not change:
        return f"take either, for {objective}: both have {name} {after}"
    if objective.value(second) < objective.value(first):
        return f"take the second, for {objective}: {name} {after}, the first {before}"
    return f"take the first, for {objective}: {name} {before}, the second {after}"


def _blocks(found: PlanDiff, width: int | None) -> Iterator[str]:
    yield f"answer: {diff_answer(found)}"
    yield ""
    yield from table(PAIRS, map(pair_row, found.figures), width)
    others = [(safe(name), said) for name, said in found.traces if said != "the same"]
    if others:
        yield "traces:"
        yield from (f"  {name}: {said}" for name, said in others)
    if found.settings:
        yield "what was asked for, and where:"
        yield from table(SETTINGS, found.settings, width)
    yield from _causes_block(found, width)
    yield moved_title(found)
    rows = [move_row(found, move) for move in found.moves]
    yield from _cut(table(MOVES, rows[:_MOST_ROWS], width), len(rows))
    if found.retimed:
        yield "steps that stay and take another time:"
        rows = [retimed_row(found, row) for row in found.retimed]
        yield from _cut(table(RETIMED, rows[:_MOST_ROWS], width), len(rows))
    titled = (
        ("load of devices per request:", found.devices),
        ("memory:", found.memory),
        ("moved per request:", found.transfers),
        ("links:", found.links),
    )
    for title, pairs in titled:
        if pairs:
            yield title
            shown = table(PAIRS, map(pair_row, pairs[:_MOST_ROWS]), width)
            yield from _cut(shown, len(pairs))
    yield from (f"note: {note}" for note in found.notes)
    yield TRUST


def _causes_block(found: PlanDiff, width: int | None) -> Iterator[str]:
    if not found.causes:
        return
    yield "why the numbers change (simulated, one thing after the other):"
    rows = [cause_row(cause, last) for cause, last in cause_steps(found.causes)]
    yield from table(CAUSES, rows, width)


def cause_steps(causes: Sequence[Cause]) -> Iterator[tuple[Cause, Cause | None]]:
    """Every cause with the one before it."""
    last: Cause | None = None
    for cause in causes:
        yield cause, last
        last = cause


def cause_row(cause: Cause, last: Cause | None) -> tuple[str, ...]:
    """The effect of a change on rate and latency, as a row."""
    rate = 1e9 / cause.period_ns if cause.period_ns > 0 else 0.0
    before = 0.0 if last is None or last.period_ns <= 0 else 1e9 / last.period_ns
    return (
        cause.name,
        f"{rate:.1f}",
        "" if last is None else _change(before, rate),
        format_time(cause.latency_ns),
        "" if last is None else _change(last.latency_ns, cause.latency_ns),
    )


def moved_title(found: PlanDiff) -> str:
    """The number of steps that moved."""
    count = sum(len(move.steps) for move in found.moves)
    if count:
        return f"{amount(count, 'step')} moved, {found.stayed} stay:"
    return f"no step moved, {found.stayed} stay" if found.stayed else "no step can be compared"


def move_row(found: PlanDiff, move: MovedSteps) -> tuple[str, ...]:
    """Steps that moved from one device to another, as a row."""
    listed = ", ".join(f"k{step}" for step in move.steps[:_MOST_STEPS])
    more = len(move.steps) - _MOST_STEPS
    which = f"{listed} and {more} more" if more > 0 else listed
    name = _named(found, move.trace, move.family)
    return (str(len(move.steps)), name, move.source, move.target, which)


def retimed_row(found: PlanDiff, row: Retimed) -> tuple[str, ...]:
    """Steps that keep their device and take another time, as a row."""
    first, second = row.sources
    times = first if first == second else f"{first}, now {second}"
    name = _named(found, row.trace, row.family)
    before, after = format_time(row.before_ns), format_time(row.after_ns)
    return (str(row.steps), name, row.device, before, after, times)


def _named(found: PlanDiff, trace: str, kind: str) -> str:
    named = short_name(kind)
    return f"{trace}: {named}" if len(found.plans[0].traces) > 1 else named


def pair_row(pair: FigurePair) -> tuple[str, str, str, str]:
    """A figure of both plans, as a row."""
    before, after = _value(pair.unit, pair.before), _value(pair.unit, pair.after)
    if pair.before is None or pair.after is None or before == after:
        change = ""
    elif pair.unit == "share":
        change = f"{100 * (pair.after - pair.before):+.2f} points"
    else:
        change = _change(pair.before, pair.after)
    return (pair.name, before, after, change)


def _value(unit: str, value: float | None) -> str:
    if value is None:
        return "-"
    match unit:
        case "ns":
            return format_time(value)
        case "bytes":
            return format_bytes(value)
        case "speed":
            return f"{format_bytes(value)}/s"
        case "usd":
            return f"${value * 1e6:.4f} per million"
        case "share":
            return f"{value:.2%}"
        case _:
            return f"{value:.1f} {unit}"


def _change(before: float, after: float) -> str:
    return f"{after / before - 1:+.1%}" if before > 0 else ""


def _cut(lines: list[str], count: int) -> Iterator[str]:
    yield from lines
    if count > _MOST_ROWS:
        yield f"  and {amount(count - _MOST_ROWS, 'more row')}; `--json` has all"


# --- JSON --------------------------------------------------------------------------------------


def diff_json(found: PlanDiff) -> str:
    """The differences for a program."""
    value = {
        "schema": SCHEMA,
        "first": found.names[0],
        "second": found.names[1],
        "equal": found.is_equal,
        "figures": list(map(_pair_value, found.figures)),
        "settings": [{"name": n, "first": a, "second": b} for n, a, b in found.settings],
        "traces": [{"name": name, "is": said} for name, said in found.traces],
        "moved": [
            {
                "trace": move.trace,
                "family": move.family,
                "from": move.source,
                "to": move.target,
                "steps": list(move.steps),
            }
            for move in found.moves
        ],
        "stayed": found.stayed,
        "retimed": [
            {
                "trace": row.trace,
                "family": row.family,
                "device": row.device,
                "steps": row.steps,
                "first_ns": row.before_ns,
                "second_ns": row.after_ns,
                "sources": list(row.sources),
            }
            for row in found.retimed
        ],
        "devices": list(map(_pair_value, found.devices)),
        "memory": list(map(_pair_value, found.memory)),
        "transfers": list(map(_pair_value, found.transfers)),
        "links": list(map(_pair_value, found.links)),
        "causes": [
            {"name": c.name, "period_ns": c.period_ns, "latency_ns": c.latency_ns}
            for c in found.causes
        ],
        "notes": list(found.notes),
    }
    return json.dumps(value, indent=2) + "\n"


def _pair_value(pair: FigurePair) -> dict[str, object]:
    return {"name": pair.name, "unit": pair.unit, "first": pair.before, "second": pair.after}
