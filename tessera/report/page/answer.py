"""The first section: what to do, what that brings, what it rests on, what would change it.

In: `Given`. Out: a `PageSection` with a headline, figures, a drawing of who does what, and bars of
throughput, latency and cost for the plan, every baseline, and what was simulated or measured.
Without a plan it is an overview of the trace. Error bars are those that are known: nine of ten
draws of the error bars of the steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tessera.frontend.machine.quantities import format_time
from tessera.ir.choices import Ending
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.graph.layers import kernel_family
from tessera.ir.objectives import THROUGHPUT
from tessera.ir.plan.plan import Baseline, Plan
from tessera.ir.program.program import Role
from tessera.report.advice import advice
from tessera.report.graph import Totals, address_class
from tessera.report.page.given import Document, Given, GivenTrace
from tessera.report.page.json_text import Json, inner, number
from tessera.report.page.model import PageSection
from tessera.report.page.verdict import (
    Interval,
    Spread,
    WhatIf,
    brings,
    changes,
    form_words,
    instead,
    rate_of,
    sources,
)
from tessera.report.page.who import who_does_what
from tessera.report.table import TRUST

_MOST_FAMILIES = 12
_WIDE_GAP = 0.1
_ENDED = {
    Ending.GAP: "the search ended when the plan was that near",
    Ending.NODES: "the search ended by the number of nodes",
    Ending.SEARCH: "local search was exhausted",
    Ending.CLOCK: "the search ended by the clock",
    Ending.INTERRUPTED: "the search was interrupted",
}


def answer_section(given: Given, spread: Spread, what_ifs: Sequence[WhatIf] = ()) -> PageSection:
    """The section on a plan."""
    plan, report = given.plan, given.plan_report
    assert plan is not None
    said = advice(plan)
    data = {
        "headline": said[:1].upper() + said[1:],
        "detail": brings(plan, report),
        "instead": instead(plan, report),
        "objective": plan.objective,
        "split": is_split(plan),
        "figures": _figures(plan, spread),
        "charts": _charts(plan, spread, given),
        "who": who_does_what(plan),
        "sources": sources(plan),
        "rests": _rests(plan, spread),
        "changes": changes(plan, what_ifs, report),
    }
    return PageSection(kind="answer", id="answer", title="Answer", data=data)


def is_split(plan: Plan) -> bool:
    """Whether a request goes through more than one device."""
    return any(len(replica.lowered.devices) > 1 for replica in plan.replicas)


# --- figures and bars ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _MeasureText:
    """A figure by which plans are compared, and where its values are.

    `of` takes it from a plan or a baseline, `spread` from the error bars, `simulated` and
    `measured` from the JSON of `tessc simulate` and `tessc run`; 0 if there is none.
    """

    label: str
    title: str
    unit: str
    better: str = "less is better"
    of: Callable[[Plan | Baseline], float]
    spread: Callable[[Spread], Interval]
    simulated: Callable[[Json], float] = lambda _: 0.0
    measured: Callable[[Json], float] = lambda _: 0.0


_MEASURES = (
    _MeasureText(
        label="Throughput",
        title="Throughput",
        unit="requests/s",
        better="more is better",
        of=lambda row: rate_of(row.period_ns),
        spread=lambda spread: spread.rate,
        simulated=lambda value: number(inner(value, "back_to_back"), "requests_per_s"),
        measured=lambda value: number(value, "requests_per_s"),
    ),
    _MeasureText(
        label="Latency, alone",
        title="Latency of a request alone",
        unit="ns",
        of=lambda row: row.latency_ns,
        spread=lambda spread: spread.alone_ns,
        simulated=lambda value: number(value, "latency_alone_ns"),
    ),
    _MeasureText(
        label="Latency, at that rate",
        title="Latency at the full rate",
        unit="ns",
        of=lambda row: row.loaded_latency_ns,
        spread=lambda spread: spread.loaded_ns,
        simulated=lambda value: _median_ns(inner(value, "back_to_back")),
        measured=lambda value: _median_ns(value),
    ),
    _MeasureText(
        label="Cost per million requests",
        title="Cost per million requests",
        unit="usd",
        of=lambda row: row.usd_per_request * 1e6,
        spread=lambda spread: _million(spread.usd),
    ),
)


def _figures(plan: Plan, spread: Spread) -> list[dict[str, object]]:
    return [
        {
            "label": measure.label,
            "unit": measure.unit,
            "value": measure.of(plan),
            "range": _range(measure.spread(spread)),
        }
        for measure in _MEASURES
        if measure.of(plan) > 0
    ]


def _million(interval: Interval) -> Interval:
    return None if interval is None else (interval[0] * 1e6, interval[1] * 1e6)


def _range(interval: Interval) -> list[float] | None:
    return None if interval is None else list(interval)


def _charts(plan: Plan, spread: Spread, given: Given) -> list[dict[str, object]]:
    return [
        {
            "title": measure.title,
            "unit": measure.unit,
            "better": measure.better,
            "rows": list(_bars(plan, spread, given, measure)),
        }
        for measure in _MEASURES
        if measure.of(plan) > 0
    ]


def _bars(
    plan: Plan, spread: Spread, given: Given, measure: _MeasureText
) -> Iterator[dict[str, object]]:
    """The plan, its baselines, and simulated and measured figures of the plan itself.

    Figures of the CPU backend are of another machine.
    """
    interval = measure.spread(spread)
    yield _bar(f"this plan ({plan.strategy})", measure.of(plan), interval, role="plan")
    for other in plan.baselines:
        if other.name != plan.strategy:
            yield _bar(other.name, measure.of(other), None)
    at_full_rate = [d for d in given.simulations if inner(d.value, "back_to_back")]
    for role, documents, value_of in (
        ("simulated", at_full_rate, measure.simulated),
        ("measured", given.runs, measure.measured),
    ):
        for document in documents:
            value = value_of(document.value) if document.value.get("backend") == "cuda" else 0.0
            if value > 0:
                yield _bar(f"{role} ({_short(document)})", value, None, role=role)


def _bar(name: str, value: float, interval: Interval, role: str = "") -> dict[str, object]:
    row = {"name": name, "value": value, "range": _range(interval), "role": role}
    return row if role else row | {"words": form_words(name)}


def _median_ns(value: Json) -> float:
    return number(inner(value, "latency_ns"), "p50")


def _short(document: Document) -> str:
    return document.name.replace("\\", "/").rpartition("/")[2]


def above_bound(plan: Plan) -> list[str]:
    """The time between the bound and a plan that is not near it, split by limit."""
    if plan.objective != THROUGHPUT or plan.gap < _WIDE_GAP:
        return []
    slots = max(plan.latency_ns * replica.share / replica.slots for replica in plan.replicas)
    levels = (
        ("the busiest GPU, with whole steps and what sending takes", _busiest_ns(plan)),
        ("slots, which cover less time than a request takes", slots),
        ("requests that wait for each other", plan.period_ns),
    )
    parts, reached = [], plan.bound
    for name, ns in levels:
        if ns > reached:
            parts.append(f"{format_time(ns - reached)} by {name}")
            reached = ns
    return [f"What lies between, per request: {'; '.join(parts)}."]


def _busiest_ns(plan: Plan) -> float:
    return max((device.busy_ns for device in plan.devices), default=0.0)


def _rests(plan: Plan, spread: Spread) -> list[str]:
    notes = []
    if plan.ended == Ending.GIVEN:
        notes.append("The plan is one that was asked for by name; no search chose it.")
        if plan.bound > 0:
            notes.append(f"It is {plan.gap:.2%} above the bound that no plan beats.")
    elif plan.bound > 0:
        ended = _ENDED.get(Ending(plan.ended), "")
        notes.append(f"Proven to be within {plan.gap:.2%} of the best plan; {ended}.")
        notes += above_bound(plan)
    else:
        notes.append("It is not proven how near the plan is to the best one.")
    if spread.rate is not None or spread.alone_ns is not None:
        notes.append(
            "Error bars hold nine of ten draws of how far the times of steps may be off. "
            "A plan file has none for the other rows."
        )
    notes.append(f"{TRUST[:1].upper()}{TRUST[1:]}.")
    return notes


# --- without a plan ------------------------------------------------------------------------------


def overview_section(trace: GivenTrace, several: bool, number_of: int) -> PageSection:
    """The size of a trace: steps, kernels, bytes, and steps that may touch anything."""
    graph = trace.graph
    classes = Counter(address_class(node) for node in graph.nodes)
    roles: Counter[str] = Counter()
    for buffer in graph.buffers:
        roles[buffer.role.value] += buffer.bytes
    moving = [edge for edge in graph.edges if edge.moves_bytes]
    weights = roles.get(Role.WEIGHT.value, 0)
    figures: list[dict[str, object]] = [
        {"label": "Steps", "unit": "", "value": len(graph.nodes), "range": None},
        {
            "label": "Kernels",
            "unit": "",
            "value": len({node.name for node in graph.nodes}),
            "range": None,
        },
        {"label": "Edges with bytes", "unit": "", "value": len(moving), "range": None},
        {"label": "Weights", "unit": "bytes", "value": weights, "range": None},
    ]
    indirect = classes["indexed"] + classes["pointer"]
    direct = len(graph.nodes) - indirect - classes["pinned"]
    data = {
        "headline": f"{len(graph.nodes):,} steps of {len(figures and set(_families(graph))):,} "
        "kinds of kernels",
        "detail": f"{direct:,} steps have addresses that the launch alone decides, {indirect:,} "
        f"also depend on data, {classes['pinned']:,} may touch anything.",
        "figures": figures,
        "charts": [_family_chart(graph)],
        "roles": [[role, size] for role, size in roles.most_common()],
        "notes": ["Give a plan (.tsp) too, and the page says where steps run and how fast."],
    }
    title = f"Overview of {trace.name}" if several else "Overview"
    return PageSection(kind="overview", id=f"overview-{number_of}", title=title, data=data)


def _families(graph: KernelGraph) -> list[str]:
    return [kernel_family(node.name) for node in graph.nodes]


def _family_chart(graph: KernelGraph) -> dict[str, object]:
    totals = Totals(graph)
    moved: Counter[str] = Counter()
    steps: Counter[str] = Counter()
    for node in graph.nodes:
        family = kernel_family(node.name)
        steps[family] += 1
        moved[family] += sum(total.reads + total.writes for total in totals.of(node))
    rows = [
        {
            "name": f"{family} ({steps[family]:,} steps)" if steps[family] > 1 else family,
            "value": size,
            "range": None,
            "role": "",
        }
        for family, size in moved.most_common(_MOST_FAMILIES)
    ]
    left = len(moved) - len(rows)
    better = f"the {len(rows)} largest of {len(moved)}" if left else ""
    return {"title": "Bytes read and written", "unit": "bytes", "better": better, "rows": rows}
