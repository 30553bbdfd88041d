"""The plan of a fleet: text for people, JSON for programs."""

from __future__ import annotations

import json
from math import inf

from tessera.driver.fleet.capacity import Capacity
from tessera.driver.fleet.choose_units import FleetChoice
from tessera.driver.fleet.emit.commands import EmittedFleet
from tessera.driver.fleet.engines import EngineRole
from tessera.driver.fleet.make_fleet import FleetReport
from tessera.driver.fleet.ways import UnitWay
from tessera.frontend.machine.quantities import format_time
from tessera.ir.objectives import FigureUnit
from tessera.report.fleet_start import start_json, start_lines
from tessera.report.standings import standings
from tessera.report.table import TRUST, Column, Fit, fitted, right, table

SCHEMA = "tessera-fleet/1"

_UNITS = (
    Column("units", right=True),
    Column("GPUs of each", fit=Fit.WRAP),
    Column("used as"),
    *right("batch", "requests/s", "usd/hour"),
)
_RIVALS = (
    Column(),
    *right("requests/s", "nine in ten", "usd/hour", "usd per million tokens"),
    Column("GPUs", fit=Fit.WRAP),
)


_ROLE_WORDS = {
    EngineRole.PROMPTS: "prompts",
    EngineRole.ANSWERS: "answers",
    EngineRole.SHARES: "shares of both",
}


def fleet_text(
    report: FleetReport,
    width: int | None = None,
    emitted: EmittedFleet | None = None,
    folder: str = "",
) -> str:
    """The report, for a terminal of that width or for a file.

    `emitted` is what starts the answer, written to `folder`.
    """
    work, options = report.work, report.options
    asked = "as many as these GPUs serve" if options.demand is None else f"{options.demand:g}/s"
    lines = [
        f"requests: {asked}, prompts of {work.prompt:.0f} tokens and answers of {work.answer:.0f}"
        f"{_limits(report)}",
        f"answer: {report.verdict[0]}",
        *(f"  {line}" for line in report.verdict[1:]),
    ]
    if report.chosen.units:
        lines += ["", *table(_UNITS, [*_unit_rows(report)], width)]
        lines += ["", *_totals(report), *_gap(report)]
        lines += ["", "beside it, with the same GPUs and limits:"]
        lines += table(_RIVALS, [_row(report, row) for row in _shown(report)], width)
        beside = [(row.name, report.doubts.get(row.name)) for row in report.rivals]
        unit = FigureUnit.RATE if options.demand is None else FigureUnit.USD
        lines += [fitted(line, width) for line in standings(beside, "the answer", unit)]
    if emitted is not None:
        lines += ["", *start_lines(emitted, folder)]
    lines += ["", *(fitted(f"- {note}", width) for note in (*report.notes, TRUST))]
    return "\n".join(lines) + "\n"


def _limits(report: FleetReport) -> str:
    slo = report.work.slo
    parts = [
        f"{name} {format_time(limit)}"
        for name, limit in (("TTFT", slo.ttft_ns), ("TPOT", slo.tpot_ns))
        if limit is not None
    ]
    return f"; {' and '.join(parts)} at {report.work.percentile}" if parts else ""


def _unit_rows(report: FleetReport) -> list[tuple[str, ...]]:
    prices = [kind.usd_per_hour or 0.0 for kind in report.offered.kinds]
    rows: list[tuple[str, ...]] = []
    for capacity, count in report.chosen.units:
        way = capacity.way
        usd = count * sum(n * p for n, p in zip(way.gpus, prices, strict=True))
        side = f"{capacity.rows} x {way.lanes}" if way.lanes > 1 else str(capacity.rows)
        used = ", ".join(filter(None, (str(way.strategy), way.note, _role(way))))
        rows.append((str(count), way.names, used, side, _served(capacity, count), f"{usd:.2f}"))
    return rows


def _role(way: UnitWay) -> str:
    return "" if way.role is EngineRole.BOTH else str(way.role)


def _served(capacity: Capacity, count: int) -> str:
    """What some units serve: of pools, prompts or answers; of shares, both of them."""
    both, reads, makes = (count * rate for rate in capacity.served)
    if capacity.way.role is EngineRole.SHARES:
        return f"{both + reads:.4g} prompts, {both + makes:.4g} answers"
    return f"{both + reads + makes:.4g}"


def _totals(report: FleetReport) -> list[str]:
    chosen, work, rate = report.chosen, report.work, report.served
    gpus = _gpus(report, chosen)
    price = "" if chosen.usd_per_hour is None else f", ${chosen.usd_per_hour:.2f} per hour"
    each = chosen.usd_per_million(work.answer, rate)
    cost = "" if each is None else f", ${each:.4g} per million tokens of answers"
    lines = [
        f"{gpus}{price}: {rate:.4g} requests/s, {rate * work.answer:.5g} tokens/s{cost}",
    ]
    low, high = report.bars[chosen.name]
    demand = report.options.demand
    short = ", so it may serve less than the demand" if demand is not None and low < demand else ""
    lines.append(
        f"it serves {chosen.rate:.4g} requests/s, {low:.4g} to {high:.4g} with the error bars"
        f"{short}"
    )
    if report.checked is not None:
        figures = report.checked.figures()
        said = ", ".join(
            f"{name} {format_time(figures[key]['p50'])} p50, {format_time(figures[key]['p99'])} p99"
            for name, key in (("TTFT", "ttft_ns"), ("TPOT", "tpot_ns"))
        )
        kept = "" if report.work.is_kept(report.checked) else "; the limits are NOT kept"
        lines.append(
            f"simulated with {len(report.checked.requests)} requests at that rate: {said}{kept}"
        )
        if report.margin > 1:
            lines.append(
                "at the rates of its units it did not keep the limits when it was simulated"
                if report.options.demand is None
                else f"chosen for {report.margin - 1:.0%} more than the demand: the cheapest mix "
                "for it did not keep the limits when it was simulated"
            )
    return lines


def _gap(report: FleetReport) -> list[str]:
    """The bounds that no use of these GPUs beats, by these times."""
    if report.gap is None or report.bound is None:
        return []
    free = "if transfers, memory and limits cost nothing"
    if report.options.demand is None:
        most = f"serves more than {report.bound.whole:.4g} requests/s"
        return [f"by these times nothing {most}, {free}: gap {report.gap:.1%}"]
    return [
        f"by these times nothing costs less than ${report.bound.whole:.2f} per hour, {free}: gap "
        f"{report.whole_gap:.1%}; with parts of GPUs ${report.bound.fluid:.2f}, gap "
        f"{report.gap:.1%}"
    ]


def _shown(report: FleetReport) -> list[FleetChoice]:
    """The answer and the others; a form whose best mix is the answer has no row of its own."""
    own = report.chosen
    return [own, *(row for row in report.rivals if not row.units or row.units != own.units)]


def _row(report: FleetReport, choice: FleetChoice) -> tuple[str, ...]:
    if not choice.units:
        return choice.name, "-", "-", "-", "-", choice.why
    each = choice.usd_per_million(report.work.answer, report.options.demand)
    usd = "-" if choice.usd_per_hour is None else f"{choice.usd_per_hour:.2f}"
    cost = "-" if each is None else f"{each:.4g}"
    units = ", ".join(
        (f"{n} x ({c.way.names})" if sum(c.way.gpus) > 1 else f"{n} x {c.way.names}")
        + (f" for {_ROLE_WORDS.get(c.way.role)}" if c.way.role in _ROLE_WORDS else "")
        for c, n in choice.units
    )
    low, high = report.bars[choice.name]
    name = choice.name
    if choice is report.chosen:
        forms = ", ".join(row.name for row in report.rivals if row.units == choice.units)
        name = f"the answer ({forms})" if forms else "the answer"
    return name, f"{choice.rate:.4g}", f"{low:.4g} to {high:.4g}", usd, cost, units


def _gpus(report: FleetReport, choice: FleetChoice) -> str:
    kinds = report.offered.kinds
    counts = choice.gpus(len(kinds))
    return ", ".join(
        f"{n} {kind.label}" + (f" in {kind.node}" if kind.node else "")
        for kind, n in zip(kinds, counts, strict=True)
        if n
    )


# --- JSON ----------------------------------------------------------------------------------------


def fleet_json(report: FleetReport, emitted: EmittedFleet | None = None) -> str:
    """The report as JSON: schema `tessera-fleet/1`. `emitted` is what starts the answer."""
    work, options = report.work, report.options
    checked = report.checked
    document = {
        "schema": SCHEMA,
        "demand_per_s": options.demand,
        "prompt_tokens": work.prompt,
        "answer_tokens": work.answer,
        "percentile": work.percentile,
        "slo": {"ttft_ns": work.slo.ttft_ns, "tpot_ns": work.slo.tpot_ns},
        "kinds": [
            {
                "name": kind.label,
                "gpu": kind.gpu.key,
                "node": kind.node,
                "have": kind.have,
                "most": None if kind.most == inf else int(kind.most),
                "usd_per_hour": kind.usd_per_hour,
                "price_source": kind.price_source,
                "sources": report.model.shares(number),
            }
            for number, kind in enumerate(report.offered.kinds)
        ],
        "answer": {
            "verdict": list(report.verdict),
            **_choice_json(report, report.chosen),
            "margin": report.margin,
            "bound": None if report.bound is None else report.bound.fluid,
            "gap": report.gap,
            "whole_bound": None if report.bound is None else report.bound.whole,
            "whole_gap": report.whole_gap,
            "simulated": None
            if checked is None
            else {
                "requests": len(checked.requests),
                "limits_kept": work.is_kept(checked),
                **checked.figures(),
                **checked.rates(),
            },
        },
        "beside": [_choice_json(report, choice) for choice in report.rivals],
        "units": [
            {
                **_unit_json(capacity),
                "count_by_kind": list(capacity.way.gpus),
                "lanes": capacity.way.lanes,
                "requests_per_s": capacity.rate,
                "missed": capacity.missed,
            }
            for capacity in report.capacities
        ],
        "notes": list(report.notes),
        "start": None if emitted is None else start_json(emitted),
    }
    return json.dumps(document, indent=2) + "\n"


def _choice_json(report: FleetReport, choice: FleetChoice) -> dict[str, object]:
    against = report.doubts.get(choice.name)
    return {
        "name": choice.name,
        "requests_per_s": choice.rate,
        "usd_per_hour": choice.usd_per_hour,
        "usd_per_million_answer_tokens": choice.usd_per_million(
            report.work.answer, report.options.demand
        ),
        "gpus_by_kind": list(choice.gpus(len(report.offered.kinds))),
        "units": [{"count": n, **_unit_json(c)} for c, n in choice.units],
        "why": choice.why,
        "bar_requests_per_s": report.bars.get(choice.name),
        "against": None
        if against is None
        else {
            "gain": against.gain,
            "low": against.low,
            "high": against.high,
            "standing": against.standing.value,
            "measure": [{"step": step, "gpu": gpu} for step, gpu in against.causes],
        },
    }


def _unit_json(capacity: Capacity) -> dict[str, object]:
    both, reads, makes = capacity.served
    return {
        "strategy": str(capacity.way.strategy),
        "role": str(capacity.way.role),
        "gpus": capacity.way.names,
        "batch": capacity.rows,
        "prompts_per_s": both + reads,
        "answers_per_s": both + makes,
    }
