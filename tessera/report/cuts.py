"""How steps can be cut into parts, as `tessc analyze --why-not-cut` shows it.

In: a `driver.analyze.Report` with cuts. Out: text and JSON; nothing is printed here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from tessera.driver.analyze import Report
from tessera.ir.program.program import Launch, Work, for_arch
from tessera.ir.program.step_names import work_name
from tessera.passes.division.legal_cuts import CutAxis, RefusedAxis, StepCuts, tried_edges
from tessera.report.diagnostics import safe

SCHEMA = "tessera-cuts/1"


def cuts_text(report: Report) -> str:
    """The steps, those together that can be cut alike: each axis, and why there are not more."""
    work = tuple(report.program.work())
    alike: dict[tuple[str, ...], list[int]] = {}
    for cuts in report.cuts:
        head = f"{safe(work_name(work[cuts.step]))}{_extent(report, work[cuts.step])}"
        alike.setdefault((head, *_rows(cuts, work[cuts.step])), []).append(cuts.step)
    blocks = (
        "\n".join([f"{_steps(steps)} {head}", *(f"  {row}" for row in rows)])
        for (head, *rows), steps in alike.items()
    )
    return "\n".join(blocks) + "\n"


def _steps(numbers: list[int]) -> str:
    shown = ", ".join(f"#{number}" for number in numbers[:8])
    return shown if len(numbers) <= 8 else f"{shown} and {len(numbers) - 8} more"


def _extent(report: Report, work: Work) -> str:
    """The grid of a launch, and those of architectures with another."""
    if not isinstance(work, Launch):
        return ""
    grids = [
        f"{variant.arch}: {_triple(for_arch(work, variant.arch).grid)}"
        for variant in report.program.modules[work.module].variants
        if for_arch(work, variant.arch).grid != work.grid
    ]
    return f", grid {_triple(work.grid)}" + (f" ({', '.join(grids)})" if grids else "")


def _triple(extent: tuple[int, int, int]) -> str:
    return "x".join(map(str, extent))


def _rows(cuts: StepCuts, work: Work) -> Iterator[str]:
    for axis in cuts.axes:
        yield f"can be cut along {axis.axis}: {_places(axis, work)}"
    for refused in cuts.refused:
        along = f" along {refused.axis}" if refused.axis else ""
        yield f"cannot be cut{along}: {safe(str(refused.reason))}{_at(refused)}"


def _places(axis: CutAxis, work: Work) -> str:
    what = "CTAs" if isinstance(work, Launch) else "bytes" if axis.axis == "bytes" else "elements"
    each = "each" if axis.multiple == 1 else f"each multiple of {axis.multiple}"
    tried = _tried(axis, work)
    told = f" (tried at {', '.join(map(str, tried))})" if tried else ""
    return f"{axis.extent} {what}, at {each}{told}"


def _tried(axis: CutAxis, work: Work) -> tuple[int, ...]:
    """The edges that stand for all, where a launch was not tried at each."""
    tried = tried_edges(axis)[1:-1] if isinstance(work, Launch) else ()
    return tried if len(tried) < (axis.extent - 1) // axis.multiple else ()


def _at(refused: RefusedAxis) -> str:
    return "" if refused.span is None else f" ({safe(str(refused.span))})"


def cuts_json(report: Report) -> str:
    """The steps as one JSON document."""
    work = tuple(report.program.work())
    steps = [
        {
            "step": cuts.step,
            "name": work_name(work[cuts.step]),
            "axes": [
                {
                    "axis": axis.axis,
                    "extent": axis.extent,
                    "multiple": axis.multiple,
                    "tried": list(_tried(axis, work[cuts.step])),
                }
                for axis in cuts.axes
            ],
            "refused": [
                {
                    "axis": refused.axis or None,
                    "reason": str(refused.reason),
                    "place": None if refused.span is None else str(refused.span),
                }
                for refused in cuts.refused
            ],
        }
        for cuts in report.cuts
    ]
    return json.dumps({"schema": SCHEMA, "file": report.name, "steps": steps}, indent=2) + "\n"
