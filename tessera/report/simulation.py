"""What `tessc simulate` shows: text for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from tessera.driver.waiting import TimeByPlace
from tessera.frontend.machine.quantities import format_time
from tessera.ir.plan.plan_digest import plan_digest
from tessera.report.diagnostics import safe
from tessera.report.spent import shares_text, time_json
from tessera.report.table import TRUST, Column, Fit, amount, fitted, right, table
from tessera.simulation.report import (
    Claim,
    SimulationReport,
    middle,
    percentiles,
    rate_of,
    served_rate,
)
from tessera.simulation.simulate import Simulation

SCHEMA = "tessera-simulate/1"

_FIELDS = (Column(least=12), Column(fit=Fit.WRAP))
_CLAIMS = (Column(), *right("the plan says", "simulated", "off"))
_WINDOWS = right("from", "came", "ended", "response p50", "p99", "waiting mean", "most")
_PLACES = (Column(fit=Fit.CUT), Column(right=True))
_LEAST_SHOWN = 0.0005


def simulation_text(
    report: SimulationReport,
    written: Sequence[str] = (),
    width: int | None = None,
    spent: TimeByPlace | None = None,
) -> str:
    """The report, for a terminal of that width or for a file."""
    lines = [_title(report), f"answer: {simulation_answer(report)}"]
    lines += table(_FIELDS, _figures(report), width)
    if report.served is not None:
        lines += ["", _served_title(report), *table(_FIELDS, _served(report), width)]
    if report.arrivals is not None:
        rows = [
            (
                format_time(window.from_ns),
                str(window.came),
                str(window.ended),
                format_time(window.p50_ns) if window.came else "",
                format_time(window.p99_ns) if window.came else "",
                f"{window.mean_waiting:.1f}",
                str(window.most_waiting),
            )
            for window in report.windows()
        ]
        lines += ["", *table(_WINDOWS, rows, width)] if rows else []
    claims = [
        (claim.name, _figure(claim.unit, claim.claimed), _figure(claim.unit, claim.simulated), off)
        for claim in report.claims()
        for off in [f"{round(claim.off, 4) + 0.0:+.2%}"]
    ]
    if claims:
        lines += ["", *table(_CLAIMS, claims, width)]
    lines += _busy_lines(report, width)
    if spent is not None:
        shares = [(name, shares_text(own)) for name, (own, _) in spent.items()]
        lines += ["time of devices in the timeline:", *table(_FIELDS, shares, width)]
    lines += [TRUST, *(f"wrote {safe(path)}" for path in written)]
    return fitted("\n".join(lines) + "\n", width)


def _title(report: SimulationReport) -> str:
    slots = sum(replica.slots for replica in report.replicas)
    sequences = sum(replica.lanes for replica in report.replicas)
    policy = f", policy {safe(report.policy)}" if report.policy else ""
    rules = "the CPU backend" if report.options.backend == "cpu" else "GPUs"
    return (
        f"{safe(report.name)}, simulated by the rules of {rules}: "
        f"{amount(len(report.replicas), 'replica')}, {amount(slots, 'slot')}, "
        f"{amount(sequences, 'sequence')}{policy}"
    )


def simulation_answer(report: SimulationReport) -> str:
    """Whether the plan keeps up with what comes, or serves what it says."""
    full = rate_of(report.full.period_ns)
    if report.arrivals is not None and report.served is not None:
        asked = asked_rate(report)
        part = f"{asked / full:.1%} of what it can serve" if full and asked else ""
        last = f"p99 of the response {format_time(percentiles(report.served.responses_ns)['p99'])}"
        if not part:
            return f"all requests come at once: {last}"
        if asked > full:
            return f"use more GPUs or send less: requests come at {part}, and wait ever longer"
        return f"the plan keeps up: requests come at {part}; {last}"
    rates = [claim for claim in report.claims() if claim.name == "rate"]
    off = round(rates[0].off, 4) if rates else 0.0
    than = f"{abs(off):.2%} {'more' if off > 0 else 'less'} than" if off else "as"
    said = f", {than} the plan says" * bool(rates)
    return f"{_figure('requests/s', full)} back to back{said}"


def _figures(report: SimulationReport) -> list[tuple[str, str]]:
    """Requests back to back, and one alone."""
    full = report.full
    rows = [
        ("throughput", f"{_figure('requests/s', rate_of(full.period_ns))}, back to back"),
        ("latency", f"{format_time(report.alone_ns)} alone; loaded {_shares(full.latencies_ns)}"),
    ]
    if report.draws:
        fulls = [draw.full for draw in report.draws]
        low, high = middle([rate_of(simulation.period_ns) for simulation in fulls])
        first, last = middle([simulation.latency_ns for simulation in fulls])
        rows.append(
            (
                "with noise",
                f"{_number(low)} to {_figure('requests/s', high)}, loaded p50 "
                f"{format_time(first)} to {format_time(last)}: nine in ten of {len(fulls)} draws",
            )
        )
    return rows


def _served_title(report: SimulationReport) -> str:
    if report.arrivals is None:
        return f"{amount(report.options.requests or 0, 'request')} back to back:"
    arrivals, speed = report.arrivals, report.options.speed
    faster = f", {speed:g} times as fast" if speed != 1.0 else ""
    return (
        f"{amount(len(arrivals.requests), 'request')} of {safe(arrivals.name)} ({arrivals.form}"
        f"{faster}) in {format_time(arrivals.span_ns / speed)}:"
    )


def _served(report: SimulationReport) -> list[tuple[str, str]]:
    served = report.served
    assert served is not None
    rows = [("served", _figure("requests/s", served_rate(served)))]
    if report.arrivals is not None:
        asked = asked_rate(report)
        full = rate_of(report.full.period_ns)
        load = f", {asked / full:.1%} of what the plan can serve" if full and asked else ""
        text = f"{_figure('requests/s', asked)}{load}" if asked else "all at once"
        rows.insert(0, ("asked for", text))
        rows.append(("response", _shares(served.responses_ns)))
    rows.append(("latency", _shares(served.latencies_ns)))
    if report.arrivals is not None:
        mean, most = _waiting(report)
        rows.append(("waiting", f"{mean:.2f} requests in the mean, at most {most}"))
    if report.draws:
        drawn = [draw.served for draw in report.draws if draw.served is not None]
        name, values = (
            ("response", [percentiles(each.responses_ns)["p99"] for each in drawn])
            if report.arrivals is not None
            else ("latency", [percentiles(each.latencies_ns)["p99"] for each in drawn])
        )
        low, high = middle(values)
        rows.append(("with noise", f"{name} p99 {format_time(low)} to {format_time(high)}"))
    return rows


def asked_rate(report: SimulationReport) -> float:
    """The mean arrival rate of requests; 0 if all arrive at once. No more can be served."""
    if report.arrivals is None or len(report.arrivals.requests) < 2:
        return 0.0
    span = report.arrivals.span_ns / report.options.speed
    return len(report.arrivals.requests) * rate_of(span)


def _waiting(report: SimulationReport) -> tuple[float, int]:
    windows = report.windows()
    if not windows:
        return 0.0, 0
    mean = sum(window.mean_waiting for window in windows) / len(windows)
    return mean, max(window.most_waiting for window in windows)


def _busy_lines(report: SimulationReport, width: int | None) -> list[str]:
    """How busy devices and links were; idle ones are left out."""
    shown = report.served if report.arrivals is not None else report.full
    devices, links = _split(report, shown or report.full)
    lines = []
    for title, shares in (("busy devices:", devices), ("busy links:", links)):
        rows = _rows(shares)
        lines += [title, *table(_PLACES, rows, width)] if rows else []
    return ["", *lines] if lines else []


def _split(
    report: SimulationReport, simulation: Simulation
) -> tuple[dict[str, float], dict[str, float]]:
    names = {device.name for device in report.plan.devices}
    devices = {name: share for name, share in simulation.busy.items() if name in names}
    links = {name: share for name, share in simulation.busy.items() if name not in names}
    return devices, links


def _rows(shares: Mapping[str, float]) -> list[tuple[str, str]]:
    ranked = sorted(shares.items(), key=lambda entry: (-entry[1], entry[0]))
    return [(name, f"{share:.1%}") for name, share in ranked if share >= _LEAST_SHOWN]


# --- JSON ----------------------------------------------------------------------------------------


def simulation_json(report: SimulationReport, spent: TimeByPlace | None = None) -> str:
    """The report for a program."""
    arrivals, options = report.arrivals, report.options
    value = {
        "schema": SCHEMA,
        "plan": report.name,
        "plan_digest": plan_digest(report.plan),
        "backend": options.backend,
        "policy": report.policy,
        "replicas": [
            {"share": r.share, "slots": r.slots, "lanes": r.lanes, "devices": r.lowered.devices}
            for r in report.replicas
        ],
        "latency_alone_ns": report.alone_ns,
        "back_to_back": _simulation_json(report, report.full),
        "arrivals": None
        if arrivals is None
        else {
            "name": arrivals.name,
            "format": arrivals.form,
            "requests": len(arrivals.requests),
            "span_ns": arrivals.span_ns / options.speed,
            "speed": options.speed,
            "requests_per_s": asked_rate(report),
        },
        "served": None if report.served is None else _served_json(report, report.served),
        "time": None if spent is None else time_json(spent),
        "claims": [_claim_json(claim) for claim in report.claims()],
        "noise": [
            {
                "draw": draw.number,
                "period_ns": draw.full.period_ns,
                "latency_ns": percentiles(draw.full.latencies_ns),
                "response_ns": None
                if draw.served is None
                else percentiles(draw.served.responses_ns),
            }
            for draw in report.draws
        ],
    }
    return json.dumps(value, indent=2) + "\n"


def _simulation_json(report: SimulationReport, simulation: Simulation) -> dict[str, object]:
    devices, links = _split(report, simulation)
    return {
        "requests_per_s": rate_of(simulation.period_ns),
        "period_ns": simulation.period_ns,
        "latency_ns": percentiles(simulation.latencies_ns),
        "devices_busy": devices,
        "links_busy": links,
        "operations": simulation.traffic.operations,
    }


def _served_json(report: SimulationReport, served: Simulation) -> dict[str, object]:
    mean, most = _waiting(report)
    return {
        **_simulation_json(report, served),
        "requests_per_s": served_rate(served),
        "requests": len(served.traffic.passages),
        "response_ns": percentiles(served.responses_ns),
        "waiting_mean": mean,
        "waiting_most": most,
        "windows": [
            {
                "from_ns": window.from_ns,
                "to_ns": window.to_ns,
                "came": window.came,
                "ended": window.ended,
                "response_p50_ns": window.p50_ns,
                "response_p99_ns": window.p99_ns,
                "waiting_mean": window.mean_waiting,
                "waiting_most": window.most_waiting,
            }
            for window in report.windows()
        ],
    }


def _claim_json(claim: Claim) -> dict[str, object]:
    return {
        "name": claim.name,
        "unit": claim.unit,
        "claimed": claim.claimed,
        "simulated": claim.simulated,
        "off": claim.off,
    }


# --- words ---------------------------------------------------------------------------------------


def _figure(unit: str, value: float) -> str:
    if unit == "ns":
        return format_time(value)
    if unit == "usd":
        return f"${value * 1e6:.4f} per million"
    if value == 0:
        return "no rate"
    return f"{_number(value)} {unit}"


def _number(value: float) -> str:
    return f"{value:.1f}" if value >= 10 else f"{value:.4g}"


def _shares(values: Sequence[float]) -> str:
    return ", ".join(f"{name} {format_time(ns)}" for name, ns in percentiles(values).items())
