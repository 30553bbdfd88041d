"""The report of `tessc run` on a plan: text for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tessera.driver.run.compare_runs import Verdict
from tessera.driver.run.digests import digests_of, digests_of_all
from tessera.driver.run.outcome import Figures, Outcome
from tessera.frontend.machine.quantities import format_bytes, format_time
from tessera.ir.plan.plan_digest import plan_digest
from tessera.report.diagnostics import safe
from tessera.report.spent import time_json, time_text
from tessera.report.table import Column, Fit, amount, fitted, table

_FIELDS = (Column(least=12), Column(fit=Fit.WRAP))
_DIGESTS = (Column(least=12), Column(fit=Fit.CUT), Column())
_MOST_DIGESTS = 8
_WORTH_SAYING_S = 1.0


def run_text(
    outcome: Outcome, verdict: Verdict | None, written: Sequence[str], width: int | None = None
) -> str:
    """The report of a run, for a terminal of that width or for a file."""
    figures = outcome.figures()
    total, done = len(outcome.turns), len(outcome.done)
    where = outcome.backend.shown_as
    lines = [
        f"ran {amount(done, 'request')} of {safe(outcome.opened.name)} on {where} "
        f"in {format_time(figures.seconds * 1e9)}"
    ]
    rows = []
    if done < total:
        rows.append(("finished", f"{done} of {total}: {_numbers(sorted(outcome.done))}"))
    if done:
        rows += _figure_rows(outcome, figures)
    lines += [*table(_FIELDS, rows, width), *_digest_lines(outcome, width)]
    if verdict is not None:
        lines.append(verdict_text(verdict))
        lines += [f"  {safe(note)}" for note in verdict.notes]
    lines += [f"wrote {safe(path)}" for path in written]
    return fitted("\n".join(lines) + "\n", width)


def verdict_text(verdict: Verdict) -> str:
    """One line on a verification that passed."""
    states = f" and the states of {amount(verdict.lanes, 'sequence')}" if verdict.lanes else ""
    equal = "equals" if verdict.requests == 1 and not states else "equal"
    unwritten = verdict.unwritten_bytes
    left_out = f", {format_bytes(unwritten)} that no step writes left out" if unwritten else ""
    return (
        f"verified: {amount(verdict.requests, 'request')}{states} {equal} the run on one device "
        f"{verdict.how} ({format_bytes(verdict.bytes)} compared{left_out})"
    )


def _figure_rows(outcome: Outcome, figures: Figures) -> list[tuple[str, str]]:
    replicas = outcome.opened.replicas
    slots = amount(sum(replica.lowered.slots for replica in replicas), "slot")
    sequences = amount(sum(replica.lowered.lanes for replica in replicas), "sequence")
    latency = ", ".join(f"{k} {format_time(v)}" for k, v in figures.latency_ns.items())
    moved = (
        f"{format_bytes(figures.bytes_between)} between devices, "
        f"{format_bytes(figures.bytes_from_host)} in, {format_bytes(figures.bytes_to_host)} out"
    )
    rows = [
        ("throughput", f"{figures.requests_per_s:.2f} requests/s ({slots}, {sequences})"),
        ("latency", latency),
        ("busy", ", ".join(f"{name} {share:.0%}" for name, share in figures.busy.items())),
        ("moved", moved),
    ]
    if figures.hidden is not None:
        spent = format_time(figures.transfer_ns)
        rows.append(("transfers", f"{spent}, {figures.hidden:.0%} behind compute"))
        rows.append(("time", time_text(figures.time)))
    if figures.command_s >= _WORTH_SAYING_S:
        spent = format_time(figures.command_s * 1e9)
        rows.append(("command", f"{spent} for inputs and digests, in none of these figures"))
    return rows


def _digest_lines(outcome: Outcome, width: int | None) -> list[str]:
    rows = [
        (f"request {request['request']}", name, f"sha256 {digest[:16]}")
        for request in _outputs(outcome)
        for name, digest in request["sha256"].items()
    ]
    rest = len(rows) - _MOST_DIGESTS
    more = [f"  and {rest} more"] if rest > 0 else []
    return [*table(_DIGESTS, rows[:_MOST_DIGESTS], width), *more]


def _outputs(outcome: Outcome) -> list[dict[str, Any]]:
    names = [trace.name for trace in outcome.opened.plan.traces]
    digests = outcome.digests or digests_of_all(outcome.done)
    return [
        {
            "request": turn.request,
            "trace": names[turn.trace],
            "lane": turn.sequence,
            "started_ns": outcome.done[turn.request].started_ns,
            "ended_ns": outcome.done[turn.request].ended_ns,
            "printed": outcome.done[turn.request].printed,
            "sha256": dict(digests[turn.request]),
        }
        for turn in outcome.turns
        if turn.request in outcome.done
    ]


def run_json(outcome: Outcome, verdict: Verdict | None) -> str:
    """The report of a run for a program."""
    figures = outcome.figures()
    data = {
        "schema": "tessera-plan-run/1",
        "plan": outcome.opened.name,
        "plan_digest": plan_digest(outcome.opened.plan),
        "backend": outcome.backend,
        "requests": len(outcome.turns),
        "finished": sorted(outcome.done),
        "complete": not outcome.fault,
        "seconds": round(figures.seconds, 6),
        "command_s": round(figures.command_s, 6),
        "requests_per_s": round(figures.requests_per_s, 4),
        "latency_ns": dict(figures.latency_ns),
        "busy": dict(figures.busy),
        "bytes_between": figures.bytes_between,
        "bytes_from_host": figures.bytes_from_host,
        "bytes_to_host": figures.bytes_to_host,
        "transfer_ns": figures.transfer_ns,
        "transfer_hidden": figures.hidden,
        "time": time_json(figures.time),
        "outputs": _outputs(outcome),
        "states": [dict(digests_of(states)) for states in outcome.states or ()],
        "verified": None
        if verdict is None
        else {
            "requests": verdict.requests,
            "lanes": verdict.lanes,
            "bytes": verdict.bytes,
            "unwritten_bytes": verdict.unwritten_bytes,
            "how": verdict.how,
            "notes": list(verdict.notes),
        },
        "errors": [
            {
                "code": diagnostic.code,
                "headline": str(diagnostic.headline),
                "notes": list(diagnostic.notes),
            }
            for diagnostic in outcome.fault
        ],
    }
    return json.dumps(data, indent=2) + "\n"


def _numbers(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:20]))
    return f"{shown}, ..." if len(numbers) > 20 else shown or "none"
