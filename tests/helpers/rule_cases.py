"""Kernels of `tests/data/rules`: what the analysis says, held against logs of the CPU backend.

A test makes a `Run` (buffers and launches, as in `tests/kernels/case.py`) and asks for the steps;
`check` runs it with its own contents and with adversarial ones, and fails where a byte that was
touched is in no may region, or where a must region was not written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tessera.diagnostics import TesseraError
from tessera.ir.graph.access import AccessKind, Certainty
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import region_bytes
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.dependences.launch_report import StepAccesses
from tests.helpers.access_oracle import compare
from tests.helpers.case_program import case_program
from tests.kernels.case import Launch, Run, Struct
from tests.kernels.cpu import run_case

RULES = Path(__file__).resolve().parents[1] / "data" / "rules"
Bytes = list[tuple[int, int]]


@dataclass(frozen=True)
class RuleCase:
    """A PTX file, as `case_program` and `run_case` take it."""

    ptx: Path


def case_of(module: str) -> RuleCase:
    return RuleCase(RULES / f"{module}.ptx")


def run_of(
    buffers: Mapping[str, NDArray], *launches: Launch, pointers: Mapping | None = None
) -> Run:
    return Run(buffers, launches, {}, pointers or {})


def analyse(module: str, run: Run) -> tuple[ir.Program, tuple[StepAccesses, ...]]:
    program = case_program(case_of(module), run)
    return program, AnalysisManager(program).get(AccessRegions).steps


def check(module: str, run: Run, also: tuple[Mapping[str, NDArray], ...] = ()) -> None:
    """Every byte logged lies in a may region, every must byte was written, whatever the data."""
    program, steps = analyse(module, run)
    filled = [
        {n: np.full_like(a.view(np.uint8), byte).view(a.dtype) for n, a in run.buffers.items()}
        for byte in (0, 0xFF)
    ]
    tried = [({}, True), *((a, True) for a in also), *((f, False) for f in filled)]
    for contents, must_run in tried:
        kept = {n: a for n, a in contents.items() if n not in run.pointers}
        try:
            logs = run_case(case_of(module), run, kept, 100_000 if must_run else 4000).logs
        except TesseraError:
            assert not must_run
            continue
        for step, log in zip(steps, logs, strict=True):
            for found in compare(program, step, log):
                where = f"{step.name}, buffer {found.buffer.name}"
                assert intervals.covers(found.may_read, found.read), where
                assert intervals.covers(found.may_write, found.written), where
                assert intervals.covers(found.written, found.must_write), where


def touched(
    program: ir.Program, step: StepAccesses, name: str, kind: AccessKind, *, must: bool = False
) -> Bytes:
    """The bytes of one buffer that a step may (or must) read, write or update."""
    buffer = next(b for b in program.buffers if b.name == name)
    parts = [
        region_bytes(a.region, buffer.bytes)
        for a in step.accesses
        if a.buffer == buffer.id and a.kind is kind and (not must or a.certainty is Certainty.MUST)
    ]
    return [(int(s), int(e)) for s, e in intervals.union(parts)]


def map_argument(text: str, content: bytes) -> Struct:
    """A tensor map by value whose tensor starts at a buffer address."""
    return Struct(bytes(8) + content[8:], {0: text})
