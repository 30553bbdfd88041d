"""A fault of a kernel is told once, however many accesses and launches show it."""

from __future__ import annotations

from functools import partial

import pytest

from tessera.diagnostics import Diagnostic, Source
from tessera.frontend.trace.read_trace import examine_trace
from tessera.passes.dependences.stored_addresses import stored_addresses
from tessera.passes.footprint import footprint
from tests.helpers.traces import COPY, HEADER, dependences, trace

LAUNCHES = 60
BUFFERS = """
buffer x bytes=4096 role=input
buffer t bytes=4096 role=temp
buffer w bytes=4096 role=weight
buffer table bytes=64 role=input
buffer y bytes=4096 role=output
"""
FOLLOW = """
.visible .entry follow(.param .u64 out, .param .u64 table)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [table];
    ld.global.u64 %rd4, [%rd1];
    ld.global.u32 %r2, [%rd4];
    ld.param.u64 %rd5, [out];
    st.global.u32 [%rd5], %r2;
    ret;
}
"""
SUM = """
.visible .entry sum(.param .u64 out, .param .u64 x)
{
    .reg .f32 %f<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [x];
    ld.global.f32 %f0, [%rd1];
    ld.global.f32 %f1, [%rd1+4];
    ld.global.f32 %f2, [%rd1+8];
    ld.param.u64 %rd2, [out];
    st.global.f32 [%rd2], %f0;
    ret;
}
"""
COUNT = """
.visible .entry count(.param .u64 out, .param .u32 n)
{
    .reg .pred %p;
    .reg .b32 %r<5>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, 0;
    mov.u32 %r3, 1;
LOOP:
    mad.lo.u32 %r3, %r3, 1664525, 1013904223;
    and.b32 %r4, %r3, 12;
    cvt.u64.u32 %rd2, %r4;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r2;
    add.u32 %r2, %r2, 3;
    setp.lt.u32 %p, %r2, %r1;
    @%p bra LOOP;
    ret;
}
"""


def copies(target: str, source: str, count: int = 8) -> str:
    """Launches of one kernel that differ in their offsets."""
    lines = (
        f"launch m.copy grid=1,1,1 block=32,1,1 args=[{target}, {source}, u32:{count}]"
        for _ in range(LAUNCHES)
    )
    return "\n".join(line.replace("#", str(4 * n)) for n, line in enumerate(lines))


def told(steps: str) -> list[Diagnostic]:
    program = trace(BUFFERS, COPY + FOLLOW + SUM + COUNT, steps)
    found = dependences(program)
    return [*found.diagnostics, *stored_addresses(program, found.graph)]


FOLLOWING = "launch m.follow grid=1,1,1 block=1,1,1 args=[y, table]"
REPEATED = {
    "TSR2001": "\n".join([FOLLOWING] * LAUNCHES),
    "TSR2002": "\n".join(
        f"pointers table @{{{8 * n}:x}}\nmemset table+{8 * n} bytes=8 value=0" for n in range(8)
    ),
    "TSR2003": copies("w+#", "x"),
    "TSR2004": copies("y", "x+4092"),
    "TSR2005": copies("y", "u64:0"),
    "TSR2006": "\n".join(
        ["launch m.count grid=1,1,1 block=1,1,1 args=[y, u32:4000000000]"] * LAUNCHES
    ),
    "TSR2007": copies("y", "t+#"),
    "TSR2008": copies("y+#", "x").replace("]", "] stream=a") + "\n" + copies("x+#", "y"),
    "TSR2015": "pointers table @{0:x}\n"
    + "\n".join(f"memcpy y+{8 * n} table bytes=8" for n in range(LAUNCHES)),
}


@pytest.mark.parametrize("code", REPEATED)
def test_many_launches_one_finding(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A loop is too long sooner: what the real limit does, `test_findings.py` knows.
    early = partial(footprint.find_footprint, exact_budget=20_000_000)
    monkeypatch.setattr(footprint, "find_footprint", early)
    found = [one for one in told(REPEATED[code]) if one.code == code]
    assert len(found) == 1, [str(one.headline) for one in found]
    assert any("more steps (lines" in note for note in found[0].notes), found[0].notes


def test_loads_of_one_launch_are_counted() -> None:
    (only,) = told("launch m.sum grid=1,1,1 block=1,1,1 args=[y, t]")
    assert only.code == "TSR2007"
    assert only.primary is not None
    line = only.primary.span.source.position(only.primary.span.start)[0]
    assert only.notes == (f"the same in 2 more places (lines {line + 1} and {line + 2})",)


def test_a_fault_that_is_there_once_has_no_count() -> None:
    (only,) = told(copies("y", "t").splitlines()[0])
    assert only.notes == ()


def test_different_kernels_are_told_apart() -> None:
    steps = copies("y", "t") + "\nlaunch m.sum grid=1,1,1 block=1,1,1 args=[y, t]"
    assert [one.code for one in told(steps)] == ["TSR2007", "TSR2007"]


def test_different_reasons_for_a_pin_are_told_apart() -> None:
    other = "launch m.follow grid=1,1,1 block=1,1,1 args=[y, u64:4096]"
    found = [one for one in told(f"{FOLLOWING}\n{other}\n{FOLLOWING}") if one.code == "TSR2001"]
    assert len({str(one.headline) for one in found}) == len(found)


def test_a_number_for_a_pointer_is_told_once() -> None:
    launch = "//! launch m.copy grid=1,1,1 block=1,1,1 args=[u64:{}, x, u32:0]\n"
    text = "//! tessera.trace 1\n//! buffer x bytes=64 role=input\n//! module m\n" + HEADER + COPY
    text += "".join(launch.format(n + 1) for n in range(LAUNCHES))
    (only,) = examine_trace(Source("t.ptx", text)).diagnostics
    assert only.code == "TSR1135"
    assert only.notes[0].startswith("the same in 59 more steps (lines ")
