"""The report of `tessc run` on a trace: text for people, JSON for programs."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tessera.driver.run.run_trace import RunReport
from tessera.frontend.machine.quantities import format_time
from tessera.report.diagnostics import safe
from tessera.report.table import Column, Fit, fitted, table

_BUFFERS = (Column(least=6), Column(fit=Fit.CUT), Column(fit=Fit.WRAP))


def _kept(report: RunReport) -> list[dict[str, Any]]:
    return [
        {
            "name": buffer.name,
            "role": buffer.role.value,
            "bytes": buffer.bytes,
            "dtype": None if buffer.dtype is None else buffer.dtype.value,
            "shape": None if buffer.shape is None else list(buffer.shape),
            "sha256": hashlib.sha256(content.data).hexdigest(),
        }
        for buffer, content in report.kept()
    ]


def ran_json(report: RunReport) -> str:
    """The same as JSON."""
    launches = [
        {"id": record.id, "kernel": record.kernel, "steps": record.result.steps}
        for record in report.result.launches
    ]
    data = {
        "schema": "tessera-run/1",
        "trace": report.name,
        "backend": "cpu",
        "seconds": round(report.seconds, 3),
        "launches": launches,
        "buffers": _kept(report),
        "printed": report.result.output,
    }
    return json.dumps(data, indent=2) + "\n"


def ran_text(report: RunReport, outputs: str | None, width: int | None = None) -> str:
    """The report of a run, with a digest of every buffer that it leaves."""
    count = len(report.result.launches)
    launches = "1 launch" if count == 1 else f"{count} launches"
    took = format_time(report.seconds * 1e9)
    lines = [f"ran {launches} of {safe(report.name)} on the CPU backend in {took}"]
    rows = []
    for row in _kept(report):
        shape = "" if row["shape"] is None else " " + "x".join(map(str, row["shape"]))
        kind = "" if row["dtype"] is None else f", {row['dtype']}{shape}"
        size = f"{row['bytes']} bytes{kind}"
        rows.append((row["role"], row["name"], f"{size}, sha256 {row['sha256'][:16]}"))
    lines += table(_BUFFERS, rows, width)
    if outputs is not None:
        lines.append(f"wrote {safe(outputs)}")
    return fitted("\n".join(lines) + "\n", width)
