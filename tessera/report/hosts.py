"""The report of `tessc doctor --hosts`: hosts, the paths between them, and a matrix of links.

In: a `HostsReport`. Out: text for people, JSON, and TOML for a machine file.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter

from tessera.driver.hosts.examine_hosts import HostFacts, HostsReport
from tessera.frontend.machine.quantities import format_bytes, format_time
from tessera.report.diagnostics import safe
from tessera.report.table import Column, Fit, fitted, table

SCHEMA = "tessera-doctor-hosts/1"
_CLOCK_S = 5.0

_HOSTS = (Column("name"), Column("host"), Column("what it has", Fit.WRAP))
_WAYS = (Column("from"), Column("to"), Column("latency"), Column("bandwidth"))


def hosts_text(report: HostsReport, width: int | None = None) -> str:
    """The hosts, then the paths between them."""
    rows = []
    for fact in report.facts:
        free = "" if fact.free_bytes is None else f", {format_bytes(fact.free_bytes)} free"
        free += "".join(f", {count} x {gpu}" for gpu, count in Counter(fact.gpus).items())
        has = f"Tessera {fact.version}, Python {fact.python}, {fact.system}, {fact.cores} cores"
        what = f"cannot be used: {fact.problem}" if fact.problem else has + free + _clock(fact)
        rows.append((safe(fact.name), safe(fact.host), safe(what)))
    lines = [*table(_HOSTS, rows, width, indent=0)]
    if report.ways:
        ways = (
            (
                safe(way.source),
                safe(way.target),
                format_time(way.latency_ns),
                f"{format_bytes(way.bytes_per_s)}/s",
            )
            for way in report.ways
        )
        lines += ["", *table(_WAYS, ways, width, indent=0)]
    return fitted("\n".join(lines) + "\n", width)


def _clock(fact: HostFacts) -> str:
    """The offset of a host's clock from the driver's; empty if it is small."""
    if abs(fact.clock_ahead_s) < _CLOCK_S:
        return ""
    way = "ahead" if fact.clock_ahead_s > 0 else "behind"
    return f", clock {format_time(abs(fact.clock_ahead_s) * 1e9)} {way}"


def hosts_json(report: HostsReport) -> str:
    """The same as JSON."""
    value = {
        "schema": SCHEMA,
        "fine": report.is_fine,
        "hosts": [
            {
                "name": fact.name,
                "host": fact.host,
                "problem": fact.problem or None,
                "version": fact.version or None,
                "python": fact.python or None,
                "system": fact.system or None,
                "cores": fact.cores or None,
                "free_bytes": fact.free_bytes,
                "gpus": list(fact.gpus),
                "clock_ahead_s": round(fact.clock_ahead_s, 3),
            }
            for fact in report.facts
        ],
        "ways": [
            {
                "source": way.source,
                "target": way.target,
                "latency_ns": way.latency_ns,
                "bytes_per_s": way.bytes_per_s,
            }
            for way in report.ways
        ],
    }
    return json.dumps(value, indent=2) + "\n"


def matrix_toml(report: HostsReport) -> str:
    """The `[link_matrix]` of a machine file; pairs that were not measured have no link."""
    names = [fact.name for fact in report.facts]
    speeds = {(way.source, way.target): way.bytes_per_s for way in report.ways}
    rows = ",\n    ".join(
        json.dumps([f"{speeds[a, b] / 1e9:.6f}GB/s" if (a, b) in speeds else "-" for b in names])
        for a in names
    )
    latency_ns = statistics.median(way.latency_ns for way in report.ways) if report.ways else 0.0
    return (
        f"[link_matrix]\ndevices = {json.dumps(names)}\nbandwidth = [\n    {rows},\n]\n"
        f'latency = "{latency_ns / 1e3:.3f}us"\n'
    )
