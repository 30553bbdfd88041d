"""Sections on runs: a run of a plan, a run of a trace, load over time.

In: the JSON of `tessc run` and `tessc simulate`. Out: `PageSection`s. Load over time is drawn where
a document has `windows`; `ttft_ns` and `tpot_ns` (percentiles) and `policy_switches` (`at_ns`,
`to`) are drawn where a document has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from tessera.report.page.given import Document, Given
from tessera.report.page.json_text import Json, inner, number, rows
from tessera.report.page.model import PageSection

_SHARES = ("p50", "p90", "p99", "max")
_TIMES = (
    ("response_ns", "Response"),
    ("latency_ns", "Latency"),
    ("ttft_ns", "Time to first token"),
    ("tpot_ns", "Time per output token"),
)
_WINDOW = (
    "from_ns",
    "to_ns",
    "came",
    "ended",
    "response_p50_ns",
    "response_p99_ns",
    "waiting_mean",
    "waiting_most",
)


def run_sections(given: Given) -> Iterator[PageSection]:
    """A section for each run."""
    several = len(given.runs) + len(given.trace_runs) > 1
    for index, document in enumerate(given.runs):
        yield _plan_run(document, f"run-{index}", several)
    for index, document in enumerate(given.trace_runs):
        yield _trace_run(document, f"trace-run-{index}", several)


def _title(document: Document, several: bool) -> str:
    return f"Run {Path(document.name).name}" if several else "Run"


def _plan_run(document: Document, own: str, several: bool) -> PageSection:
    value = document.value
    finished = value.get("finished")
    count = len(finished) if isinstance(finished, list) else 0
    hidden = value.get("transfer_hidden")
    verified = value.get("verified")
    busy = inner(value, "busy")
    bars = [{"name": name, "value": number(busy, name), "range": None, "role": ""} for name in busy]
    notes = []
    if value.get("backend") == "cpu":
        notes.append(
            "The CPU backend ran it, with one process per device: the results are those of GPUs, "
            "the times are not."
        )
    if isinstance(hidden, int | float):
        notes.append(f"{hidden:.0%} of the time of transfers was behind compute.")
    data = {
        "headline": f"{count:,} of {number(value, 'requests'):,.0f} requests finished, "
        f"{'verified' if verified else 'not verified'} against one device",
        "figures": [
            _figure("Throughput", "requests/s", number(value, "requests_per_s")),
            _figure("Time", "ns", number(value, "seconds") * 1e9),
            _figure("Sent between devices", "bytes", number(value, "bytes_between")),
        ],
        "percentiles": _percentiles(value),
        "charts": [{"title": "Busy", "unit": "share", "better": "", "rows": bars}] if bars else [],
        "outputs": _outputs(value),
        "errors": [_headline_of(row) for row in rows(value, "errors")],
        "notes": notes,
    }
    return PageSection(kind="run", id=own, title=_title(document, several), data=data)


def _headline_of(row: Json) -> str:
    return f"{row.get('code')}: {row.get('headline')}"


def _outputs(value: Json) -> list[list[object]]:
    return [
        [f"request {row.get('request')}", name, str(digest)]
        for row in rows(value, "outputs")
        for name, digest in inner(row, "sha256").items()
    ]


def _trace_run(document: Document, own: str, several: bool) -> PageSection:
    value = document.value
    launches = rows(value, "launches")
    data = {
        "headline": f"{len(launches):,} launches on one device of the CPU backend",
        "figures": [_figure("Time", "ns", number(value, "seconds") * 1e9)],
        "percentiles": [],
        "charts": [],
        "outputs": [
            [str(row.get("role")), str(row.get("name")), str(row.get("sha256"))]
            for row in rows(value, "buffers")
        ],
        "errors": [],
        "notes": [],
    }
    return PageSection(kind="run", id=own, title=_title(document, several), data=data)


def load_sections(given: Given) -> Iterator[PageSection]:
    """Load over time, for every document that has it."""
    documents = [*given.simulations, *given.runs]
    for index, document in enumerate(documents):
        value = document.value
        own = inner(value, "served") or value
        windows = [[number(row, key) for key in _WINDOW] for row in rows(own, "windows")]
        tokens = any(isinstance(own.get(key), Mapping) for key in ("ttft_ns", "tpot_ns"))
        if not windows and not tokens:
            continue
        came = inner(value, "arrivals")
        data = {
            "headline": _load_headline(own, came),
            "windows": windows,
            "percentiles": _percentiles(own),
            "switches": [
                [number(row, "at_ns"), str(row.get("to"))] for row in rows(own, "policy_switches")
            ],
            "notes": [f"From `{Path(document.name).name}`."],
        }
        title = "Load over time"
        if len(documents) > 1:
            title += f": {Path(document.name).name}"
        yield PageSection(kind="load", id=f"load-{index}", title=title, data=data)


def _load_headline(own: Json, came: Json) -> str:
    served = f"{number(own, 'requests_per_s'):,.1f} requests/s served"
    asked = number(came, "requests_per_s")
    return f"{served} of {asked:,.1f} asked for" if asked else served


def _percentiles(value: Json) -> list[list[object]]:
    return [
        [words, *(number(own, share) for share in _SHARES)]
        for key, words in _TIMES
        if (own := inner(value, key))
    ]


def _figure(label: str, unit: str, value: float) -> dict[str, object]:
    return {"label": label, "unit": unit, "value": value, "range": None}
