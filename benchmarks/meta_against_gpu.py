"""Traces on shapes against captures of the same models on a GPU: the same operators, roles, edges?

    python -m benchmarks.meta_against_gpu -o out/gpu/meta_against_gpu.json

Each model of `examples/models` is captured on the GPU by the route `eager`, and traced by
`--device meta --no-fuse`. Compared, in order: operators with the shapes and types of operands
(attention is one operator on both sides, whatever kernel PyTorch chose), the roles of named
buffers, and the edges between steps. A model that is in the file is not done again; `--seconds`
ends the run early.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.captured import FILES, STEPS, roles
from tessera.diagnostics import TesseraError
from tessera.driver.trace.capture_trace import TraceOptions, trace_call
from tessera.driver.trace.meta_trace import trace_fake
from tessera.frontend.capture.model_file import find_model, load_model
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.dependences import Dependences


def operators(program: ir.Program) -> Iterator[str]:
    """Steps as text, without the names of buffers; every attention is one."""
    for step in program.work():
        if not isinstance(step, ir.LibraryCall):
            yield type(step).__name__
            continue
        name = "attention" if "scaled_dot_product" in step.operator else step.operator
        reads = [f"{o.dtype.value}{list(o.shape)}" for o in step.reads]
        writes = [f"{o.dtype.value}{list(o.shape)}" for o in step.writes]
        if name == "attention":
            reads, writes = reads[:3], writes[:1]
        yield f"{name} {reads} {writes}"


def edges(program: ir.Program) -> set[tuple[int, int]]:
    graph = AnalysisManager(program).get(Dependences).graph
    return {(int(edge.source), int(edge.target)) for edge in graph.edges}


def compared(name: str) -> dict[str, Any]:
    place = find_model(f"{FILES}/{name}")
    try:
        options = TraceOptions(route="eager", data=False)
        real = trace_call(*load_model(place, {}), options).program
        fake = trace_fake(lambda: load_model(place, {}), fused=False).trace.program
    except TesseraError as refused:
        return {"refused": refused.diagnostics[0].headline}
    mine, theirs = list(operators(fake)), list(operators(real))
    first = next((i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), None)
    same = mine == theirs
    return {
        "operators": [len(mine), len(theirs)],
        "same_operators": same,
        "first_difference": None if first is None else [mine[first], theirs[first]],
        "same_roles": roles(fake) == roles(real),
        "same_edges": edges(fake) == edges(real) if same else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=300.0)
    given = parser.parse_args()
    rows = json.loads(given.output.read_text()) if given.output.exists() else {}
    start = time.monotonic()
    for name in STEPS:
        if name in rows or time.monotonic() - start > given.seconds:
            continue
        rows[name] = compared(name)
        print(name, rows[name], flush=True)
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
