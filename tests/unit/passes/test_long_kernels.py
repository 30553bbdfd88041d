"""Long kernels: exact regions, and work in proportion to what was read, in counted operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tessera.diagnostics import Source
from tessera.driver.analyze import read_program
from tessera.ir.graph.access import Access, Certainty
from tessera.ir.graph.region import Interval
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.footprint.steps import StepRunner

_HEAD = """//! tessera.trace 1
//! buffer y bytes={bytes} role=output
//! buffer x bytes=131072 role=input
//! module m
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 y, .param .u64 x)
{{
  .reg .pred %p<70000>;
  .reg .b32 %r<70000>;
  .reg .b64 %d<70000>;
  ld.param.u64 %d1, [y];
  ld.param.u64 %d2, [x];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.u32 %r5, %r3, 32, %r4;
  mul.wide.u32 %d3, %r5, 4;
  add.u64 %d4, %d1, %d3;
  add.u64 %d5, %d2, %d3;
  mov.u32 %r10, %r5;
"""
_TAIL = """
  ret;
}
//! launch m.k grid=1000,1,1 block=32,1,1 args=[y, x]
"""
_STORE = """
  and.b32 %r6, %r10, 1023;
  mul.wide.u32 %d6, %r6, 4;
  add.u64 %d7, %d1, %d6;
  st.global.u32 [%d7], %r5;
"""


def kernel(lines: Iterator[str], size: int = 131072) -> ir.Program:
    """32 threads in each of 1000 CTAs; `%r5` is the thread's number, `%d4` its word in y."""
    text = _HEAD.format(bytes=size) + "\n".join(lines) + _TAIL
    return read_program(Source("t.ptx", text))[0]


def reused(count: int) -> Iterator[str]:
    """Few names for many values, most of which nothing reads."""
    for i in range(count // 2):
        one, two = 10 + i % 20, 10 + (i + 7) % 20
        yield f"add.u32 %r{one}, %r5, {i}; xor.b32 %r{two}, %r{one}, {i & 7};"
    yield _STORE


def accesses(program: ir.Program) -> tuple[Access, ...]:
    """What the launch touches."""
    (step,) = AnalysisManager(program).get(AccessRegions).steps
    assert not step.diagnostics
    return step.accesses


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> Callable[[ir.Program], int]:
    """How many instructions a launch is followed through, over all pieces of its grid."""
    count = 0
    step = StepRunner.step

    def counted(*args: object) -> None:
        nonlocal count
        count += 1
        step(*args)  # type: ignore[arg-type]

    def of(program: ir.Program) -> int:
        nonlocal count
        count = 0
        accesses(program)
        return count

    monkeypatch.setattr(StepRunner, "step", counted)
    return of


def test_what_nothing_reads_is_not_followed(followed: Callable[[ir.Program], int]) -> None:
    """Whatever the names of registers: nearly all of these instructions decide nothing."""
    assert max(followed(kernel(reused(count))) for count in (400, 4000)) < 200


def test_a_long_kernel_is_exact() -> None:
    (write,) = accesses(kernel(reused(16_000)))
    assert (write.region, write.certainty) == (Interval(0, 4096), Certainty.MUST)


@pytest.mark.slow
def test_a_very_long_kernel_is_exact() -> None:
    (write,) = accesses(kernel(reused(64_000)))
    assert (write.region, write.certainty) == (Interval(0, 4096), Certainty.MUST)


_OTHER_READERS = {
    "a name that a store reads": "add.u32 %r10, %r5, 7; st.global.u32 [%d4], %r10;",
    "a name that a guard reads": "setp.lt.u32 %p1, %r5, 7; @%p1 st.global.u32 [%d4], 1;",
    "a name in the other half of a move": "mov.b64 {%r10, %r11}, %d4; mov.b64 %d8, {%r10, %r11};"
    "st.global.u32 [%d8], 1;",
}


@pytest.mark.parametrize("lines", _OTHER_READERS.values(), ids=_OTHER_READERS)
def test_a_name_that_is_used_twice_keeps_both_values(lines: str) -> None:
    """A write that nothing reads leaves a name with what it held before, for nobody."""
    alone = accesses(kernel(iter([lines])))
    both = accesses(kernel(iter(["mov.u32 %r10, %r4;", "mov.u32 %r10, 3;", lines, _STORE])))
    assert set(alone) <= set(both)
