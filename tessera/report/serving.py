"""The report on requests for text, simulated or measured: text for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from tessera.driver.serve.measures import ServingReport, Slo
from tessera.frontend.machine.quantities import format_bytes, format_time
from tessera.report.diagnostics import safe
from tessera.report.table import Column, Fit, fitted, right, table

SCHEMA = "tessera-serving/1"

_FIELDS = (Column(least=12), Column(fit=Fit.WRAP))
_TIMES = (Column(), *right("p50", "p90", "p99", "most"))
_QUEUE = right("from", "waiting mean", "most")
_SHOWN_WINDOWS = 10
_NAMES = {"ttft_ns": "TTFT", "tpot_ns": "TPOT", "end_to_end_ns": "end to end"}


def serving_text(
    report: ServingReport, written: Sequence[str] = (), width: int | None = None
) -> str:
    """The report, for a terminal of that width or for a file."""
    rates = report.rates()
    rows = [
        (
            "requests",
            f"{len(report.requests)} in {format_time(report.span_ns)}: {_endings(report)}",
        ),
        (
            "rates",
            f"{rates['requests_per_s']:.4g} requests/s, "
            f"{rates['answer_tokens_per_s']:.5g} tokens/s out, "
            f"{rates['prompt_tokens_per_s']:.5g} in",
        ),
        (
            "goodput",
            f"{rates['goodput_per_s']:.4g} requests/s ({rates['good_share']:.1%}) with "
            f"{_limits(report.slo)}",
        ),
        ("steps", ", ".join(f"{safe(name)} {count}" for name, count in report.steps.items())),
    ]
    if report.policies():
        parts = (f"{safe(name)} {count}" for name, count in report.policies().items())
        rows.append(("policies", f"{', '.join(parts)}; {len(report.switches)} switches"))
    moved = report.hand_overs()
    if moved:
        rows.append(
            (
                "hand-overs",
                f"{moved['count']:.0f} of {format_bytes(moved['bytes'] / moved['count'])} and "
                f"{format_time(moved['handed_ns'])} in the mean, "
                f"{format_time(moved['handed_most_ns'])} at most; {format_time(moved['held_ns'])} "
                "of TTFT",
            )
        )
    if report.reused or report.preempted:
        share = report.reused / max(sum(served.prompt for served in report.requests), 1)
        shown = f"{report.reused} tokens of prompts ({share:.1%}) were in the cache"
        rows.append(("reused", f"{shown}; {report.preempted} answers were put off"))
    if report.busy:
        shares = (f"{safe(name)} {share:.0%}" for name, share in report.busy.items())
        rows.append(("busy", ", ".join(shares)))
    if report.answers_digest:
        rows.append(("answers", f"tokens of all requests sha256 {report.answers_digest[:16]}"))
    times = [
        (_NAMES[name], *(format_time(values[share]) for share in ("p50", "p90", "p99", "max")))
        for name, values in report.figures().items()
    ]
    windows = report.queue()
    step = max(len(windows) // _SHOWN_WINDOWS, 1)
    queue = [
        (
            format_time(group[0].from_ns),
            f"{sum(window.mean for window in group) / len(group):.1f}",
            str(max(window.most for window in group)),
        )
        for group in (windows[at : at + step] for at in range(0, len(windows), step))
    ]
    lines = [f"{safe(report.name)}, {report.source}:", *table(_FIELDS, rows, width)]
    if report.whole:
        lines += ["", *table(_TIMES, times, width)]
    else:
        lines += ["", "no request was answered to its end, so there are no times"]
    if any(window.most for window in windows):
        lines += ["", *table(_QUEUE, queue, width)]
    lines += ["", *(f"- {note}" for note in report.notes)] if report.notes else []
    lines += [f"wrote {safe(path)}" for path in written]
    return fitted("\n".join(lines) + "\n", width)


def _endings(report: ServingReport) -> str:
    return ", ".join(f"{count} {how}" for how, count in sorted(report.endings().items()))


def _limits(slo: Slo) -> str:
    parts = []
    if slo.ttft_ns is not None:
        parts.append(f"TTFT within {format_time(slo.ttft_ns)}")
    if slo.tpot_ns is not None:
        parts.append(f"TPOT within {format_time(slo.tpot_ns)}")
    return " and ".join(parts) or "no limits"


def serving_json(report: ServingReport) -> str:
    """The report, for programs."""
    return json.dumps(serving_value(report), indent=2) + "\n"


def serving_value(report: ServingReport) -> Mapping[str, object]:
    """The report as JSON values."""
    return {
        "schema": SCHEMA,
        "plan": report.name,
        "source": report.source,
        "requests": len(report.requests),
        "ended": report.endings(),
        "span_ns": report.span_ns,
        **report.rates(),
        **report.figures(),
        "slo": {"ttft_ns": report.slo.ttft_ns, "tpot_ns": report.slo.tpot_ns},
        "steps": dict(report.steps),
        "policies": report.policies(),
        "hand_overs": report.hand_overs(),
        "reused_tokens": report.reused,
        "preempted": report.preempted,
        "answers_sha256": report.answers_digest,
        "switches": [{"at_ns": at_ns, "policy": policy} for at_ns, policy in report.switches],
        "devices_busy": dict(report.busy),
        "queue": [
            {
                "from_ns": window.from_ns,
                "to_ns": window.to_ns,
                "waiting_mean": window.mean,
                "waiting_most": window.most,
            }
            for window in report.queue()
        ],
        "notes": list(report.notes),
    }
