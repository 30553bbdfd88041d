"""Loads that are no reads in the graph: what a temporary held before changes no result.

Random kernels store to a temporary and load from it, under guards, behind branches and in loops, at
addresses of the thread and of others. Where the graph has no read of it, the CPU backend runs the
launch over two contents of it, and results are the same.
"""

from __future__ import annotations

import numpy as np
from hypothesis import event, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tessera.backend.ptx_executor.device import Device
from tessera.frontend.ptx.read_ptx import parse_module
from tests.helpers.traces import HEADER, dependences, trace

THREADS = 32
WORDS = 2 * THREADS + 4
KERNEL = """
.visible .entry back(.param .u64 out, .param .u64 t, .param .u32 n)
{
    .reg .pred %p<8>;
    .reg .b32 %r<16>;
    .reg .b64 %rd<16>;
    ld.param.u64 %rd1, [t];
    ld.param.u64 %rd2, [out];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, 0;
    xor.b32 %r4, %r2, 1;
    mul.wide.u32 %rd3, %r2, 8;
    mul.wide.u32 %rd4, %r4, 8;
    add.s64 %rd5, %rd1, %rd3;
    add.s64 %rd6, %rd1, %rd4;
    add.s64 %rd7, %rd2, %rd3;
    mov.b64 %rd8, %rd5;
    setp.lt.u32 %p1, %r2, %r1;
    setp.lt.u32 %p2, %r2, 7;
    BODY
    st.global.u32 [%rd7], %r3;
    ret;
}
"""
BUFFERS = f"""
buffer t bytes={4 * WORDS} role=temp
buffer y bytes={4 * WORDS} role=output
"""
GUARDS = ("", "", "@%p1 ", "@!%p1 ", "@%p2 ")
ADDRESSES = ("%rd5", "%rd5", "%rd5", "%rd5+4", "%rd6", "%rd8", "%rd9")
STORES = ("st.global.u32 [{}], %r2;",) * 3 + ("st.global.u8 [{}], %r2;",)
LOADS = ("ld.global.u32 %r5, [{}]; add.u32 %r3, %r3, %r5;",)
OTHERS = (
    "add.s64 %rd9, %rd1, %rd3;",
    "xor.b64 %rd8, %rd8, 4;",
    "setp.lt.u32 %p2, %r2, 11;",
    "bar.sync 0;",
)


@st.composite
def pieces(draw: st.DrawFn) -> str:
    """A store, a load or something between."""
    kind = draw(st.sampled_from((STORES, STORES, LOADS, LOADS, OTHERS)))
    text = draw(st.sampled_from(kind))
    if kind is OTHERS:
        return text
    first, *more = text.format(draw(st.sampled_from(ADDRESSES))).split("; ")
    return "; ".join((draw(st.sampled_from(GUARDS)) + first, *more))


@st.composite
def bodies(draw: st.DrawFn) -> str:
    """Pieces, some of them behind a branch or in a loop."""
    lines = ["add.s64 %rd9, %rd1, %rd3;"]
    for number in range(draw(st.integers(1, 4))):
        inner = "\n".join(draw(st.lists(pieces(), min_size=1, max_size=4)))
        match draw(st.sampled_from(("plain", "plain", "branch", "loop"))):
            case "plain":
                lines.append(inner)
            case "branch":
                inner = inner.replace("bar.sync 0;", "")
                lines.append(f"@%p2 bra over{number};\n{inner}\nover{number}:")
            case _:
                count = f"add.u32 %r9, %r9, 1; setp.lt.u32 %p4, %r9, 2; @%p4 bra more{number};"
                lines.append(f"mov.u32 %r9, 0;\nmore{number}:\n{inner}\n{count}")
    return "\n".join(lines)


def result(kernel: str, before: int) -> NDArray:
    with Device() as device:
        module = device.load(parse_module(HEADER + kernel, "k.ptx"))
        out = device.array(np.zeros(WORDS, np.uint32), "y")
        old = device.array(np.full(WORDS, before, np.uint32), "t")
        module["back"].launch(1, THREADS, [out.at(0), old.at(0), np.uint32(20)])
        return out.numpy()


@given(bodies())
def test_what_was_there_changes_nothing(body: str) -> None:
    kernel = KERNEL.replace("BODY", body)
    launch = f"launch m.back grid=1,1,1 block={THREADS},1,1 args=[y, t, u32:20]\n"
    (node,) = dependences(trace(BUFFERS, kernel, launch)).graph.nodes
    temp = [access for access in node.accesses if access.buffer == 0]
    loads = "ld.global.u32 %r5" in body
    if any(access.kind.reads for access in temp) or not loads:
        event("it may read, or loads nothing")
        return
    event("what it loads is its own")
    np.testing.assert_array_equal(result(kernel, 7), result(kernel, 1 << 20))
