"""Instructions and calls that no rule covers: pinned, with the reason and the line."""

from __future__ import annotations

import pytest

from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.program.program import Program
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.dependences.launch_report import StepAccesses

HEAD = """//! tessera.trace 1
//! buffer x bytes=4096 role=input
//! buffer y bytes=4096 role=output
//! module m
.version 8.6
.target sm_100a
.address_size 64
.extern .func (.param .b32 result) cudaLaunchDeviceV2(.param .b64 buffer, .param .b64 stream);
.extern .func (.param .b32 result) elsewhere(.param .b64 a);
.visible .entry k(.param .u64 y, .param .align 64 .b8 map[128])
{
    .reg .b16 %h<4>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<8>;
    .reg .pred %p<3>;
    .shared .align 128 .b8 tile[1024];
    .param .b64 first;
    .param .b64 second;
    .param .b32 code;
    ld.param.u64 %rd1, [y];
    mov.b64 %rd2, map;
    cvta.param.u64 %rd3, %rd2;
    mov.u32 %r1, 0;
"""


def program(body: str, pointers: str = "@{0:x}") -> Program:
    launch = f"//! launch m.k grid=1,1,1 block=1,1,1 args=[y, b8[128]:{'00' * 128}{pointers}]\n"
    return parse_trace(f"{HEAD}{body}\n    ret;\n}}\n{launch}", "t.ptx")


def analysed(body: str) -> StepAccesses:
    (step,) = AnalysisManager(program(body)).get(AccessRegions).steps
    return step


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            "call (code), cudaLaunchDeviceV2, (first, second);",
            "it launches kernels from the device",
        ),
        (
            "call (code), elsewhere, (first);",
            "it calls `elsewhere`, which the module does not define",
        ),
        ("multimem.red.global.add.u32 [%rd1], %r1;", "it accesses multicast memory"),
    ],
)
def test_pinned(body: str, reason: str) -> None:
    step = analysed(f"st.param.b64 [first], %rd1; st.param.b64 [second], %rd1;\n{body}")
    assert [str(pin.reason) for pin in step.pins] == [reason]
    (finding,) = step.diagnostics
    assert finding.code == "TSR2001"
    assert finding.primary is not None
    line = finding.primary.span.source.line_text(finding.primary.span.start)
    assert line.strip() == body
    assert {int(a.buffer) for a in step.accesses} == {0, 1}


@pytest.mark.parametrize(
    "copy",
    [
        "cp.async.bulk.tensor.3d.shared::cta.global.im2col.mbarrier::complete_tx::bytes"
        " [tile], [%rd3, {%r1, %r1, %r1}], [tile], {%h1};",
        "cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes"
        " [tile], [%rd3, {%r1, %r1, %r1, %r1, %r1}], [tile];",
    ],
)
def test_other_modes_may_touch_all_of_the_tensor(copy: str) -> None:
    """The map of zeros is a tensor of one byte at x; its one byte is all of it."""
    step = analysed(copy)
    assert not step.pins
    (access,) = step.accesses
    assert (int(access.buffer), access.certainty.value, access.address.value) == (
        0,
        "may",
        "indexed",
    )


@pytest.mark.parametrize(
    "line",
    [
        "prefetch.tensormap [%rd3];",
        "cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd3, {%r1, %r1}];",
        "cp.async.bulk.prefetch.L2.global [%rd1], 64;",
        "prefetch.global.L2 [%rd1];",
    ],
)
def test_prefetches_touch_nothing(line: str) -> None:
    step = analysed(line)
    assert (step.accesses, step.pins) == ((), ())
