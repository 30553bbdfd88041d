"""Loads that are no reads in the graph: what a temporary held before changes no result.

Random kernels store to a temporary and load from it, under guards, behind branches and in loops, at
addresses of the thread and of others. Where the graph has no read of it, the CPU backend runs the
launch over two contents of it, and results are the same.
"""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

from tessera.backend.ptx_executor.device import Device
from tessera.diagnostics import TesseraError
from tessera.frontend.ptx.read_ptx import parse_module
from tests.helpers.share import least, share
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
ADDRESSES = ("%rd5", "%rd5", "%rd5+4", "%rd6", "%rd8", "%rd9", "%rd9")
GUARDS = ("", "", "@%p1 ", "@!%p1 ", "@%p2 ", "@%p3 ")
# What may come between, each with a guard or without.
OTHERS = (
    "add.s64 %rd9, %rd1, %rd3;",
    "add.s64 %rd9, %rd1, %rd4;",
    "mad.wide.u32 %rd9, %r9, 4, %rd5;",
    "xor.b64 %rd8, %rd8, 4;",
    "setp.lt.u32 %p2, %r2, 11;",
    "setp.lt.u32 %p2, %r9, 1;",
    "bar.sync 0;",
)
SKIP = "@%p2 bra over{0};\n{1}\nover{0}:"
REPEAT = """mov.u32 %r9, 0;
more{0}:
setp.ne.u32 %p3, %r9, 0;
{1}
add.u32 %r9, %r9, 1;
setp.lt.u32 %p4, %r9, 2;
@%p4 bra more{0};"""


class _Body:
    """Stores, loads and what changes their registers, mostly at one address and under one guard."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"read back {seed}")
        self.address, self.guard = (self.random.choice(of) for of in (ADDRESSES, GUARDS))
        # Often the address of the round before, which only the first round has not computed.
        self.is_late = self.random.random() < 0.3
        if self.is_late:
            self.address, self.guard = "%rd9", "@%p3 "

    def text(self) -> str:
        """The whole body: pieces, some of them behind a branch or in a loop."""
        choose = self.random.choice
        lines = ["" if self.is_late or choose((0, 1)) else "add.s64 %rd9, %rd1, %rd3;"]
        for number in range(choose((1, 1, 1, 2))):
            kinds = [choose(("store", "store", "other")) for _ in range(choose((1, 2, 3, 4)))]
            inner = "\n".join(map(self._piece, (*kinds, *choose((["load"], ["other", "load"])))))
            around = REPEAT if self.is_late else choose(("{1}", "{1}", SKIP, REPEAT))
            if around != REPEAT:
                inner = inner.replace("%p3", "%p1").replace("%r9", "%r2").replace("bar.sync 0;", "")
            lines.append(around.format(number, inner))
        # So that every byte may be stored by somebody.
        return "\n".join([*lines, choose(("", "st.global.v2.u32 [%rd5], {%r2, %r2};"))])

    def _piece(self, kind: str) -> str:
        choose = self.random.choice
        address = self.address if self.random.random() < 0.9 else choose(ADDRESSES)
        guard = self.guard if self.random.random() < 0.85 else choose(GUARDS)
        match kind:
            case "store":
                return f"{guard}st.global.{choose(('u32',) * 7 + ('u8',))} [{address}], %r2;"
            case "load":
                return f"{guard}ld.global.u32 %r5, [{address}];\nadd.u32 %r3, %r3, %r5;"
        # Mostly what changes the address or the guard.
        near = [
            o for o in OTHERS if self.address in o or self.guard.strip("@! ") in o.split(",")[0]
        ]
        other = choose(near if near and self.random.random() < 0.7 else OTHERS)
        return other if "bar" in other or self.random.random() < 0.7 else f"{guard}{other}"


def result(kernel: str, before: int) -> NDArray:
    with Device() as device:
        module = device.load(parse_module(HEADER + kernel, "k.ptx"))
        out = device.array(np.zeros(WORDS, np.uint32), "y")
        old = device.array(np.full(WORDS, before, np.uint32), "t")
        module["back"].launch(1, THREADS, [out.at(0), old.at(0), np.uint32(20)])
        return out.numpy()


def test_what_was_there_changes_nothing() -> None:
    own = 0
    for seed in share(range(600)):
        body = _Body(seed).text()
        kernel = KERNEL.replace("BODY", body)
        launch = f"launch m.back grid=1,1,1 block={THREADS},1,1 args=[y, t, u32:20]\n"
        (node,) = dependences(trace(BUFFERS, kernel, launch)).graph.nodes
        temp = [access for access in node.accesses if access.buffer == 0]
        if any(access.kind.reads for access in temp) or "ld.global.u32 %r5" not in body:
            continue
        try:
            first, second = result(kernel, 7), result(kernel, 1 << 20)
        except TesseraError:
            continue  # an address was used before it was computed
        own += 1
        np.testing.assert_array_equal(first, second, f"seed {seed}\n{body}")
    assert own > least(60, 8)
