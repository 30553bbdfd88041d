"""What the analysis says of the captured models, against the bytes that the CPU backend logs.

    python -m benchmarks.analysis.zoo [-o FILE]

For every trace of `examples/traces`: how many launches it has, how many accesses are direct,
indexed and through pointers, every pin with its reason and line, the share of (launch, buffer,
direction) whose region is exactly the bytes logged, and the share of full writes that are proven
MUST; those that data decides are counted apart (`benchmarks/analysis/tightness.py`). Regions hold
for every variant of a kernel; the log is of one, the sm_80 code where there is one. Library calls
and copies are compared like launches.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.analysis.tightness import rows_of, share
from benchmarks.common import ROOT, TRACES, arguments, machine, write
from tessera.backend.ptx_executor.run import run_program
from tessera.frontend.contents.open_contents import open_contents
from tessera.frontend.trace.read_trace import read_trace
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.dependences.launch_report import StepAccesses
from tests.helpers.access_oracle import compare

ARCH = "sm_80"
FILLED = (ir.Role.WEIGHT, ir.Role.INPUT, ir.Role.STATE)


def logs_of(program: ir.Program) -> dict[int, Any]:
    """The log of each launch."""
    archs = {variant.arch for module in program.modules for variant in module.variants}
    with open_contents(program, TRACES, seed=0) as contents:
        given = {b.name: contents.read(b) for b in program.buffers if b.role in FILLED}
    result = run_program(program, given, arch=ARCH if ARCH in archs else None)
    return {record.id: record.result.accesses for record in result.launches}


def classes_of(steps: tuple[StepAccesses, ...]) -> dict[str, int]:
    """How many accesses have each class of address."""
    found = Counter(access.address.value for step in steps for access in step.accesses)
    return dict(sorted(found.items()))


def pins_of(steps: tuple[StepAccesses, ...]) -> list[dict[str, Any]]:
    """Every reason for which a launch is pinned."""
    return [
        {
            "launch": int(step.id),
            "kernel": step.name,
            "reason": str(pin.reason),
            "at": _place(pin.span),
        }
        for step in steps
        for pin in step.pins
    ]


def _place(span: object) -> str | None:
    return None if span is None else str(span).removeprefix(f"{ROOT}/")


def measure(path: Path) -> dict[str, Any]:
    """One trace."""
    program = read_trace(path)
    start = time.process_time()
    steps = AnalysisManager(program).get(AccessRegions).steps
    seconds = time.process_time() - start
    rows: list[dict[str, Any]] = []
    for number, log in logs_of(program).items():
        step = steps[number]
        if step.pins:
            continue
        for found in compare(program, step, log):
            rows += rows_of({"launch": str(number), "kernel": step.name}, found)
    launches = sum(isinstance(step, ir.Launch) for step in program.steps)
    by_data = [row for row in rows if row["by_data"]]
    return {
        "launches": launches,
        "other_steps": len(program.steps) - launches,
        "kernels": len({step.name for step in steps}),
        "analysis_seconds": round(seconds, 2),
        "accesses": classes_of(steps),
        "pinned_launches": sum(bool(step.pins) for step in steps),
        "pins": pins_of(steps),
        "all": share(rows),
        "decided_by_launch": share([row for row in rows if not row["by_data"]]),
        "decided_by_data": share(by_data),
        "misses": [row for row in rows if row["reason"] is not None],
    }


def main() -> None:
    parser = arguments(__doc__, "zoo_analysis.json")
    options = parser.parse_args()
    traces = {path.stem: measure(path) for path in sorted(TRACES.glob("*.ptx"))}
    result = {
        **machine(),
        "arch": ARCH,
        "traces": traces,
    }
    write(result, options.output)
    for name, found in traces.items():
        launch, data = found["decided_by_launch"], found["decided_by_data"]
        print(
            f"{name}: {found['launches']} launches, {found['pinned_launches']} pinned;"
            f" {found['accesses']}; exact {launch['exact']}/{launch['accesses']},"
            f" MUST {launch['proven_must']}/{launch['full_writes']};"
            f" by data exact {data['exact']}/{data['accesses']}"
        )


if __name__ == "__main__":
    main()
