"""How tight the regions of the analysis are, against the bytes that the CPU backend logs.

    python -m benchmarks.analysis.tightness [-o FILE]

Over every kernel case of `tests/kernels` and every layer of `tests/kernels/layers.py`, by class:
the share of (launch, buffer, direction) whose region is exactly the bytes logged, the median and
worst over-approximation (region over logged bytes, 1 where exact), and the share of full writes
that are proven MUST. Every miss is listed with the instruction and the reason. What the data
decides (an index or a branch) is counted apart: a bound over all data cannot equal what one run
touches. Which accesses these are is the analysis's own account, so `all` is the number to trust.
Pinned launches are listed, not counted. An atomic is never a MUST write and counts as no full
write.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import defaultdict
from typing import Any

from benchmarks.common import ROOT, arguments, machine, write
from tessera.ir.graph.access import Access, AccessKind, AddressClass, Certainty
from tessera.ir.graph.region import Unknown, WholeBuffer
from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets import intervals
from tessera.passes.dependences.access_regions import AccessRegions
from tests.helpers.access_oracle import Comparison, compare
from tests.helpers.case_program import case_program
from tests.kernels.case import Case
from tests.kernels.cases import CASES
from tests.kernels.cpu import run_case
from tests.kernels.layers import LAYERS, Layer

ALL: tuple[Case, ...] = (*CASES, *LAYERS)

# The modules that tests/data/kernels/build.py makes with NVRTC.
NVRTC = frozenset({"elementwise", "reduce", "shared", "warp", "math", "model", "model_strict"})
CLASSES = {
    "kv-write": ("kv_",),
    "split-k": ("splitk",),
    "gemm": ("gemm", "matmul", "wmma", "mma_", "grouped"),
    "attention": ("attention", "paged"),
    "convolution": ("conv", "depthwise", "blur"),
    "norm": ("layernorm", "rmsnorm"),
    "softmax": ("softmax", "cross_entropy"),
    "rotary": ("rope",),
    "scan": ("scan",),
    "transpose": ("transpose", "copy_3d"),
    "reduction": ("sum_", "minmax", "argmax", "reduce", "redux", "histogram"),
    "elementwise": (
        "add",
        "saxpy",
        "axpb",
        "mul",
        "relu",
        "fma",
        "ops_",
        "gelu",
        "silu",
        "cast",
        "dropout",
        "quantize",
        "threed",
        "_f32",
        "_f64",
    ),
}


def class_of(case: Case) -> str:
    if isinstance(case, Layer):
        return case.kind
    return next((c for c, parts in CLASSES.items() if any(p in case.name for p in parts)), "other")


def compiler_of(case: Case) -> str:
    """Which compiler made a case's PTX, from what the file says."""
    if isinstance(case, Layer):
        return case.compiler
    if case.module.startswith("triton"):
        return "triton"
    if case.module.startswith("handwritten"):
        return "by hand"
    return "nvrtc" if case.module in NVRTC else "nvcc"


def is_decided_by_data(accesses: tuple[Access, ...], kind: AccessKind) -> bool:
    """Whether an index or a branch on data bounds these accesses."""
    chosen = [a for a in accesses if a.kind in (kind, AccessKind.ATOMIC)]
    certain = {a.region for a in chosen if a.certainty is Certainty.MUST}
    return any(
        a.address is not AddressClass.DIRECT
        or (
            a.certainty is Certainty.MAY
            and a.kind is not AccessKind.ATOMIC
            and a.region not in certain
        )
        for a in chosen
    )


def reason(accesses: tuple[Access, ...], kind: AccessKind) -> str:
    """Why a region is wider than what was touched, or a write not certain."""
    for access in accesses:
        if access.kind not in (kind, AccessKind.ATOMIC) or access.certainty is Certainty.MUST:
            continue
        place = str(access.span).replace(f"{ROOT}/", "")
        where = f"`{access.text}`" if access.span is None else f"`{access.text}` at {place}"
        if isinstance(access.region, WholeBuffer | Unknown):
            return f"{where}: {access.region.reason}"
        if access.kind is AccessKind.ATOMIC:
            return f"{where}: which bytes an atomic leaves changed depends on what was there"
        if access.address is not AddressClass.DIRECT:
            return f"{where}: an index from memory bounds it"
        return f"{where}: whether it happens depends on data"
    return "its region was narrowed or widened to few pieces"


def labels_of(case: Case) -> dict[str, str]:
    """What a row says of the case it is from."""
    return {"case": case.name, "class": class_of(case), "compiler": compiler_of(case)}


def rows_of(labels: dict[str, str], found: Comparison) -> list[dict[str, Any]]:
    """A row for reading a buffer and one for writing it, region against log."""
    rows = []
    for kind, logged, region in (
        (AccessKind.READ, found.read, found.may_read),
        (AccessKind.WRITE, found.written, found.may_write),
    ):
        if len(logged) == 0 and len(region) == 0:
            continue
        exact = logged.shape == region.shape and bool((logged == region).all())
        size = intervals.size(logged)
        must = intervals.size(found.must_write) if kind is AccessKind.WRITE else None
        atomic = any(a.kind is AccessKind.ATOMIC for a in found.accesses)
        missed = not exact or (must is not None and must != size and not atomic)
        rows.append(
            {
                **labels,
                "buffer": found.buffer.name,
                "kind": kind.value,
                "exact": exact,
                "by_data": is_decided_by_data(found.accesses, kind),
                "logged_bytes": size,
                "region_bytes": intervals.size(region),
                "must_bytes": must,
                "atomic": atomic,
                "reason": reason(found.accesses, kind) if missed else None,
            }
        )
    return rows


def measure() -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    pinned: list[dict[str, str]] = []
    seconds = 0.0
    for case in ALL:
        run = case.make()
        program = case_program(case, run)
        start = time.process_time()
        steps = AnalysisManager(program).get(AccessRegions).steps
        seconds += time.process_time() - start
        for step, log in zip(steps, run_case(case, run).logs, strict=True):
            if step.pins:
                pinned.append(
                    {"case": case.name, "class": class_of(case), "reason": str(step.pins[0].reason)}
                )
                continue
            for found in compare(program, step, log):
                rows += rows_of(labels_of(case), found)
    return {"rows": rows, "pinned": pinned, "analysis_seconds": round(seconds, 2)}


def share(rows: list[dict[str, Any]]) -> dict[str, Any]:
    exact = [row for row in rows if row["exact"]]
    over = [row["region_bytes"] / max(row["logged_bytes"], 1) for row in rows]
    writes = [row for row in rows if row["kind"] == "write" and not row["atomic"]]
    must = [row for row in writes if row["must_bytes"] == row["logged_bytes"]]
    return {
        "accesses": len(rows),
        "exact": len(exact),
        "exact_share": round(len(exact) / len(rows), 4) if rows else None,
        "median_over": round(statistics.median(over), 3) if over else None,
        "worst_over": round(max(over), 3) if over else None,
        "full_writes": len(writes),
        "proven_must": len(must),
        "must_share": round(len(must) / len(writes), 4) if writes else None,
    }


def summarise(found: dict[str, Any]) -> dict[str, Any]:
    direct = [row for row in found["rows"] if not row["by_data"]]
    by_data = [row for row in found["rows"] if row["by_data"]]
    classes: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in direct:
        classes[row["class"]].append(row)
    return {
        **machine(),
        "cases": len(ALL),
        "analysis_seconds": found["analysis_seconds"],
        "all": share(found["rows"]),
        "decided_by_launch": share(direct),
        "decided_by_data": share(by_data),
        "classes": {
            name: {
                "cases": len({row["case"] for row in rows}),
                "compilers": sorted({row["compiler"] for row in rows}),
                **share(rows),
                "decided_by_data": share([row for row in by_data if row["class"] == name]),
            }
            for name, rows in sorted(classes.items())
        },
        "misses": [row for row in found["rows"] if row["reason"] is not None],
        "pinned": found["pinned"],
    }


def main() -> None:
    parser = arguments(__doc__, "tightness.json")
    options = parser.parse_args()
    result = summarise(measure())
    write(result, options.output)
    print(json.dumps({k: v for k, v in result.items() if k not in ("misses",)}, indent=1))


if __name__ == "__main__":
    main()
