"""Traces whose kernels compute addresses, held against what the CPU backend touches.

In: the text of a trace. Out: per launch whether it is pinned and whether its regions are exactly
the bytes touched; it fails where a byte was touched outside the regions, or a byte that must be
written was not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tessera.backend.ptx_executor.run import run_program
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets import intervals
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.dependences.launch_report import StepAccesses
from tests.helpers.access_oracle import compare

HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"


@dataclass(frozen=True, slots=True)
class Launched:
    """What the analysis said of one launch, which was right."""

    name: str
    pins: tuple[str, ...]
    is_exact: bool


def checked(text: str, fills: Sequence[int] = (0, 1)) -> list[Launched]:
    """Run a trace once for each fill of its buffers, and compare."""
    program = parse_trace(text, "pointers.ptx")
    steps = AnalysisManager(program).get(AccessRegions).steps
    exact = [True] * len(steps)
    for fill in fills:
        given = {
            b.name: np.frombuffer(fill.to_bytes(4, "little") * (-(-b.bytes // 4)), np.uint8)[
                : b.bytes
            ].copy()
            for b in program.buffers
            if b.role in (ir.Role.WEIGHT, ir.Role.INPUT, ir.Role.STATE)
        }
        for record in run_program(program, given).launches:
            step = steps[record.id]
            for found in compare(program, step, record.result.accesses):
                where = f"{step.name}, {found.buffer.name}"
                assert intervals.covers(found.may_read, found.read), where
                assert intervals.covers(found.may_write, found.written), where
                assert intervals.covers(found.written, found.must_write), where
                same = np.array_equal(found.may_write, found.written) and np.array_equal(
                    found.may_read, found.read
                )
                exact[record.id] = exact[record.id] and same
    return [
        Launched(step.name, tuple(str(pin.reason) for pin in step.pins), exact[i] and not step.pins)
        for i, step in enumerate(steps)
    ]


def analysed(text: str) -> tuple[StepAccesses, ...]:
    """What the analysis says of a trace that need not run."""
    return AnalysisManager(parse_trace(text, "pointers.ptx")).get(AccessRegions).steps


def kernel(name: str, count: int, body: str, more: str = "") -> str:
    """A kernel with pointers p0, p1 and so on in %p0, %p1 and so on, and the thread in %t."""
    names = ", ".join(f".param .u64 a{i}" for i in range(count))
    loads = "\n".join(f"  ld.param.u64 %p{i}, [a{i}];" for i in range(count))
    return f"""
.visible .entry {name}({names}{", " + more if more else ""})
{{
  .reg .b64 %p<{count + 1}>; .reg .b64 %d<64>; .reg .b32 %r<64>; .reg .pred %c<16>;
  .reg .b32 %t; .reg .b64 %o;
{loads}
  mov.u32 %t, %tid.x;
  mul.wide.u32 %o, %t, 4;
{body}
  ret;
}}
"""


def trace(buffers: str, module: str, launches: Sequence[str]) -> str:
    """The text of a trace with one module."""
    return "\n".join(["//! tessera.trace 1", buffers, "//! module m", HEADER + module, *launches])
