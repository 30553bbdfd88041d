"""What `tessc run` shows of a plan that ran: text for people, JSON for programs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from tessera.backend.known_backends import backend_named
from tessera.driver.run.compare_runs import Verdict
from tessera.driver.run.outcome import Figures, Outcome
from tessera.frontend.machine.quantities import format_bytes
from tessera.report.diagnostics import safe


def run_text(outcome: Outcome, verdict: Verdict | None, written: Sequence[str]) -> str:
    """The report of a run."""
    figures = outcome.figures()
    total, done = len(outcome.turns), len(outcome.done)
    where = backend_named(outcome.backend).shown_as
    lines = [
        f"ran {_count(done, 'request')} of {safe(outcome.opened.name)} on {where} "
        f"in {figures.seconds:.2f} s"
    ]
    if done < total:
        lines.append(f"  finished      {done} of {total}: {_numbers(sorted(outcome.done))}")
    if done:
        lines += _figure_lines(outcome, figures)
    lines += [f"  {row}" for row in _digest_lines(outcome)]
    if verdict is not None:
        lines.append(verdict_text(verdict))
        lines += [f"  {safe(note)}" for note in verdict.notes]
    lines += [f"wrote {safe(path)}" for path in written]
    return "\n".join(lines) + "\n"


def verdict_text(verdict: Verdict) -> str:
    """One line on a verification that passed."""
    states = f" and the states of {_count(verdict.lanes, 'sequence')}" if verdict.lanes else ""
    equal = "equals" if verdict.requests == 1 and not states else "equal"
    return (
        f"verified: {_count(verdict.requests, 'request')}{states} {equal} the run on one device "
        f"{verdict.how} ({format_bytes(verdict.bytes)} compared)"
    )


def _figure_lines(outcome: Outcome, figures: Figures) -> list[str]:
    latency = ", ".join(f"{k} {v / 1e6:.1f} ms" for k, v in figures.latency_ns.items())
    busy = ", ".join(f"{safe(name)} {share:.0%}" for name, share in figures.busy.items())
    replicas = outcome.opened.replicas
    slots = sum(replica.lowered.slots for replica in replicas)
    sequences = sum(replica.lowered.lanes for replica in replicas)
    lines = [
        f"  throughput    {figures.requests_per_s:.2f} requests/s "
        f"({_count(slots, 'slot')}, {_count(sequences, 'sequence')})",
        f"  latency       {latency}",
        f"  busy          {busy}",
        f"  moved         {format_bytes(figures.bytes_between)} between devices, "
        f"{format_bytes(figures.bytes_from_host)} in, {format_bytes(figures.bytes_to_host)} out",
    ]
    if figures.hidden is not None:
        spent = figures.transfer_ns / 1e6
        lines.append(f"  transfers     {spent:.1f} ms, {figures.hidden:.0%} behind compute")
    return lines


def _digest_lines(outcome: Outcome) -> list[str]:
    rows = []
    for request in _outputs(outcome):
        for name, digest in request["sha256"].items():
            rows.append(f"request {request['request']:<4} {safe(name)}  sha256 {digest[:16]}")
    shown = 8
    more = [f"and {len(rows) - shown} more"] if len(rows) > shown else []
    return [*rows[:shown], *more]


def _outputs(outcome: Outcome) -> list[dict[str, Any]]:
    names = [trace.name for trace in outcome.opened.plan.traces]
    return [
        {
            "request": turn.request,
            "trace": names[turn.trace],
            "lane": turn.sequence,
            "started_ns": outcome.done[turn.request].started_ns,
            "ended_ns": outcome.done[turn.request].ended_ns,
            "printed": outcome.done[turn.request].printed,
            "sha256": {
                name: hashlib.sha256(content.data).hexdigest()
                for name, content in outcome.done[turn.request].outputs.items()
            },
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
        "backend": outcome.backend,
        "requests": len(outcome.turns),
        "finished": sorted(outcome.done),
        "complete": not outcome.fault,
        "seconds": round(figures.seconds, 6),
        "requests_per_s": round(figures.requests_per_s, 4),
        "latency_ns": dict(figures.latency_ns),
        "busy": dict(figures.busy),
        "bytes_between": figures.bytes_between,
        "bytes_from_host": figures.bytes_from_host,
        "bytes_to_host": figures.bytes_to_host,
        "transfer_ns": figures.transfer_ns,
        "transfer_hidden": figures.hidden,
        "outputs": _outputs(outcome),
        "states": [
            {name: hashlib.sha256(content.data).hexdigest() for name, content in states.items()}
            for states in outcome.states or ()
        ],
        "verified": None
        if verdict is None
        else {
            "requests": verdict.requests,
            "lanes": verdict.lanes,
            "bytes": verdict.bytes,
            "how": verdict.how,
            "notes": list(verdict.notes),
        },
        "errors": [
            {
                "code": diagnostic.code,
                "headline": diagnostic.headline,
                "notes": list(diagnostic.notes),
            }
            for diagnostic in outcome.fault
        ],
    }
    return json.dumps(data, indent=2) + "\n"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _numbers(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:20]))
    return f"{shown}, ..." if len(numbers) > 20 else shown or "none"
