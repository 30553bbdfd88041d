"""Throughput, latency and cost against each other, what limits the plan, and what would help.

In: a plan, its `tessc plan --json` report, and the results of following it. Out: a `PageSection`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera.ir.plan.plan import Plan
from tessera.report.page.followed import Followed
from tessera.report.page.given import Document
from tessera.report.page.json_text import Json, number, rows, texts
from tessera.report.page.model import PageSection
from tessera.report.page.verdict import rate_of

Point = dict[str, object]
_MOST_POINTS = 200


def tradeoffs_section(plan: Plan, report: Document | None, followed: Followed) -> PageSection:
    """The section."""
    points = _points(plan, report)
    value: Json = {} if report is None else report.value
    data = {
        "headline": _headline(points),
        "points": points,
        "rate": rate_of(plan.period_ns),
        "latency_ns": plan.latency_ns,
        "what_ifs": [[row.change, row.rate, row.latency_ns] for row in followed.what_ifs],
        "helpers": texts(value, "helpers"),
        "limits": [[str(row.get("name")), number(row, "ns")] for row in rows(value, "limits")],
        "notes": _notes(report, followed),
    }
    return PageSection(kind="tradeoffs", id="tradeoffs", title="Trade-offs and what-ifs", data=data)


def _headline(points: Sequence[Point]) -> str:
    front = [point for point in points if point["front"]]
    return f"{len(front)} of {len(points)} plans are beaten by none in everything"


def _points(plan: Plan, report: Document | None) -> list[Point]:
    found: dict[str, Point] = {}
    mine = {
        "period_ns": plan.period_ns,
        "latency_ns": plan.latency_ns,
        "usd_per_request": plan.usd_per_request,
    }
    _add(found, f"this plan ({plan.strategy})", mine, "plan")
    for other in plan.baselines:
        if other.name == plan.strategy:
            continue
        row = {
            "period_ns": other.period_ns,
            "latency_ns": other.latency_ns,
            "usd_per_request": other.usd_per_request,
        }
        _add(found, other.name, row, "")
    if report is not None:
        for key in ("frontier", "alternatives"):
            for own in rows(report.value, key)[:_MOST_POINTS]:
                name = str(own.get("name"))
                if name != plan.strategy:
                    _add(found, name, own, "")
    points = list(found.values())
    for point in points:
        point["front"] = not any(_beats(other, point) for other in points)
    return points


def _add(found: dict[str, Point], name: str, row: Json, role: str) -> None:
    period = number(row, "period_ns")
    if period <= 0 or name in found:
        return
    found[name] = {
        "name": name,
        "rate": rate_of(period),
        "latency_ns": number(row, "latency_ns"),
        "usd": number(row, "usd_per_request") * 1e6,
        "role": role,
        "front": False,
    }


def _beats(one: Point, other: Point) -> bool:
    """Whether a point is at least as good in every figure and better in one."""
    mine, theirs = _figures(one), _figures(other)
    return mine != theirs and all(a <= b for a, b in zip(mine, theirs, strict=True))


def _figures(point: Point) -> tuple[float, ...]:
    return -number(point, "rate"), number(point, "latency_ns"), number(point, "usd")


def _notes(report: Document | None, followed: Followed) -> list[str]:
    notes = []
    if followed.what_ifs:
        notes.append(
            "What-ifs are simulated with the same placement, slots and gates; a plan made anew for "
            "that machine may gain more. A GPU that is added serves whole requests, as its "
            "baseline does."
        )
    if report is None:
        notes.append(
            "Give what `tessc plan --json --pareto` prints, too: it has more plans, and what "
            "limits this one."
        )
    if followed.is_long:
        notes.append(
            "The plan is long, so it was followed once: there are no what-ifs here, and only the "
            "error bars of the plan itself. `tessc simulate --noise` draws more."
        )
    if followed.problem:
        notes.append(f"The plan could not be followed through time: {followed.problem}.")
    return notes
