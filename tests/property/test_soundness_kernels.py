"""The analysis against the log of the CPU backend, over every kernel case.

Every byte read or written lies in a MAY region; every byte of a MUST region was written, with
the case's own contents and with adversarial ones. One counterexample is a bug of the first order.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tessera.diagnostics import TesseraError
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets import intervals
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.dependences.launch_report import StepAccesses
from tests.helpers.access_oracle import Log, compare
from tests.helpers.case_program import case_program
from tests.kernels.case import Case, Run
from tests.kernels.cases import CASES
from tests.kernels.cpu import case_result, run_case


def contents(run: Run, kind: str) -> dict[str, NDArray]:
    """Other contents for every buffer that holds no pointers."""
    plain = {name: array for name, array in run.buffers.items() if name not in run.pointers}
    byte = {"zeros": 0, "ones": 0xFF}[kind]
    return {
        name: np.full(np.ascontiguousarray(a).nbytes, byte, np.uint8).view(a.dtype).reshape(a.shape)
        for name, a in plain.items()
    }


def logged(case: Case, kind: str) -> list[Log]:
    """What each launch of a case touched."""
    if kind == "own":
        return case_result(case).logs
    run = case.make()
    return run_case(case, run, contents(run, kind), max_steps=4000).logs


@functools.cache
def analysed(case: Case) -> tuple[ir.Program, tuple[StepAccesses, ...]]:
    program = case_program(case, case.make())
    return program, AnalysisManager(program).get(AccessRegions).steps


def kinds() -> Iterator[Any]:
    """Each case with its own contents, and with zeros or ones in turn; `make slow` takes both."""
    for number, case in enumerate(CASES):
        for place, kind in enumerate(("zeros", "ones", "own")):
            marks = [pytest.mark.slow] if place == number % 2 else []
            yield pytest.param(kind, case, id=f"{kind}-{case.name}", marks=marks)


@pytest.mark.parametrize(("kind", "case"), [*kinds()])
def test_logged_bytes_are_in_the_regions(case: Case, kind: str) -> None:
    program, steps = analysed(case)
    try:
        logs = logged(case, kind)
    except TesseraError:
        # With contents that are none of its own a kernel may fault or never end.
        assert kind != "own"
        return
    for step, log in zip(steps, logs, strict=True):
        for found in compare(program, step, log):
            where = f"{step.name}, buffer {found.buffer.name}"
            assert intervals.covers(found.may_read, found.read), where
            assert intervals.covers(found.may_write, found.written), where
            assert intervals.covers(found.written, found.must_write), where
