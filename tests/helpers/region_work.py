"""Programs as works for `region_check`: their launches with the regions of the analysis.

Launches that are pinned, or that change a variable of their module, are run and not checked.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tessera.driver.load import load
from tessera.frontend.contents.open_contents import open_contents
from tessera.ir.graph.access import Access, AccessKind, Certainty
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import regions_bytes
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.dependences.launch_report import StepAccesses
from tests.helpers.case_program import case_program
from tests.helpers.region_check import Bytes, Step, Work
from tests.kernels.case import Case

# What runs on an H200, best first.
ARCHITECTURES = ("sm_90a", "sm_90", "sm_89", "sm_86", "sm_80", "sm_75", "sm_70", "sm_60")


def case_work(case: Case) -> Work:
    """A kernel case."""
    run = case.make()
    program = case_program(case, run)
    contents = [bytes_of(run.buffers[b.name]) for b in program.declared_buffers()]
    return work_of(case.name, program, [case.ptx.read_text()], contents)


def trace_work(path: Path) -> Work:
    """A trace with its contents; what follows the first library call is left out."""
    program = load(path)
    with open_contents(program, os.path.dirname(path) or ".", seed=0) as contents:
        filled = [bytes_of(np.asarray(contents.read(b))) for b in program.declared_buffers()]
    variants = [_best(module) for module in program.modules]
    return work_of(path.stem, program, [variant.text for variant in variants], filled)


def _best(module: ir.ProgramModule) -> ir.ModuleVariant:
    by_arch = {variant.arch: variant for variant in module.variants}
    return next(by_arch[arch] for arch in ARCHITECTURES if arch in by_arch)


def bytes_of(array: Any) -> Bytes:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).copy()


def work_of(
    name: str,
    program: ir.Program,
    texts: Sequence[str],
    contents: Sequence[Bytes],
    regions: Sequence[StepAccesses] | None = None,
) -> Work:
    """A program with the bytes of its declared buffers, and the regions of its steps."""
    regions = regions or AnalysisManager(program).get(AccessRegions).steps
    steps: list[Step] = []
    for work, found in zip(program.work(), regions, strict=True):
        if isinstance(work, ir.LibraryCall):
            break
        steps.append(_step(program, work, found))
    return Work(
        name=name,
        texts=texts,
        buffers=[(b.name, b.bytes) for b in program.declared_buffers()],
        contents=contents,
        pointers=[
            (int(table.buffer), word.offset, int(word.target.buffer), word.target.offset)
            for table in program.pointer_tables
            for word in table.words
        ],
        steps=steps,
    )


def _step(program: ir.Program, work: ir.Work, found: StepAccesses) -> Step:
    def total(chosen: list[Access]) -> dict[int, list[list[int]]]:
        by_buffer: dict[int, list[Access]] = {}
        for access in chosen:
            by_buffer.setdefault(int(access.buffer), []).append(access)
        return {
            buffer: intervals.clip(
                regions_bytes((a.region for a in accesses), program.buffers[buffer].bytes),
                0,
                program.buffers[buffer].bytes,
            ).tolist()
            for buffer, accesses in by_buffer.items()
            if program.buffers[buffer].role is not ir.Role.VARIABLE
        }

    accesses = list(found.accesses)
    certain = [a for a in accesses if a.kind is AccessKind.WRITE and a.certainty is Certainty.MUST]
    # What a launch leaves in a variable of its module would be there in the next run of it.
    leaves = any(
        a.kind.writes and program.buffers[a.buffer].role is ir.Role.VARIABLE for a in accesses
    )
    return Step(
        _value(program, work, pinned=bool(found.pins) or leaves),
        total([a for a in accesses if a.kind.reads]),
        total([a for a in accesses if a.kind.writes]),
        total(certain),
    )


def _value(program: ir.Program, work: ir.Work, *, pinned: bool) -> dict[str, Any]:
    match work:
        case ir.Launch():
            launch = ir.for_arch(work, _best(program.modules[work.module]).arch)
            return {
                "kind": "launch",
                "pinned": pinned,
                "text": int(launch.module),
                "kernel": launch.kernel,
                "grid": launch.grid,
                "block": launch.block,
                "smem": launch.shared_bytes,
                "cluster": launch.cluster,
                "cooperative": launch.cooperative,
                "args": [_argument(argument) for argument in launch.arguments],
            }
        case ir.Memset():
            element = work.value.to_bytes(work.element_bytes, "little")
            return {
                "kind": "memset",
                "target": _pointer(work.target),
                "element": element.hex(),
                "bytes": work.bytes,
            }
        case ir.Memcpy():
            return {
                "kind": "memcpy",
                "target": _pointer(work.target),
                "source": _pointer(work.source),
                "bytes": work.bytes,
            }
    raise ValueError(f"{work} runs on no machine here")


def _pointer(pointer: ir.Pointer) -> list[int]:
    return [int(pointer.buffer), pointer.offset]


def _argument(argument: ir.Argument) -> dict[str, Any]:
    """Bytes, and the offsets in them that hold addresses."""
    match argument:
        case ir.Pointer():
            return {"bytes": bytes(8).hex(), "addresses": [[0, *_pointer(argument)]]}
        case ir.Scalar():
            raw = argument.bits.to_bytes(argument.type.bytes, "little")
            return {"bytes": raw.hex(), "addresses": []}
        case ir.ByValue():
            words = [[word.offset, *_pointer(word.target)] for word in argument.pointers]
            return {"bytes": argument.content.hex(), "addresses": words}
