"""Traces that nobody would write: launches of soup kernels among copies, fills, calls and tables.

In: a seed. Out: the program of a trace. The same kernel is launched with other buffers, at other
places and with other numbers; some launches store addresses or follow those that lie in memory; for
what is said of programs (`tests/helpers/said.py`).
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace

from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.program.program import KnownContents, Program, Role
from tests.helpers.soup_kernels import HEAD, soup_kernel

PLAIN = HEAD.partition(".global")[0]
_BEGIN = """(.param .u64 x, .param .u64 y, .param .u32 n)
{
  .reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %d<8>;
  ld.param.u64 %d0, [x]; ld.param.u64 %d1, [y]; ld.param.u32 %r0, [n];
  mov.u32 %r1, %tid.x; mul.wide.u32 %d2, %r1, 4; mul.wide.u32 %d3, %r1, 8;
"""
BODIES = (
    "st.global.u64 [%d0], %d1;",
    "add.u64 %d4, %d1, %d2; st.global.u64 [%d0+8], %d4;",
    "ld.global.u64 %d4, [%d1]; st.global.u32 [%d4], %r1;",
    "ld.global.u64 %d4, [%d1+8]; add.u64 %d4, %d4, %d2; ld.global.u32 %r2, [%d4]; "
    "add.u64 %d5, %d0, %d2; st.global.u32 [%d5], %r2;",
    "ld.global.u64 %d4, [%d1]; ld.global.u64 %d5, [%d4]; st.global.u32 [%d5+4], %r1;",
    "ld.global.u64 %d4, [%d1]; st.global.u64 [%d0], %d4;",
    "add.u64 %d4, %d0, %d3; add.u64 %d5, %d1, %d3; ld.global.u64 %d6, [%d5]; "
    "st.global.u64 [%d4], %d6;",
    "add.u64 %d4, %d1, %d2; ld.global.u32 %r2, [%d4]; mul.wide.u32 %d5, %r2, 4; "
    "add.u64 %d5, %d0, %d5; st.global.u32 [%d5], %r1;",
    "setp.lt.u32 %p0, %r1, %r0; add.u64 %d4, %d0, %d2; @%p0 st.global.u32 [%d4], %r1;",
    "add.u64 %d4, %d0, %d2; red.global.add.u32 [%d4], %r0;",
    "add.u64 %d4, %d0, %d2; ld.global.u32 %r2, [%d4]; add.u32 %r2, %r2, %r0; "
    "st.global.u32 [%d4], %r2;",
    "ld.global.u32 %r2, [%d1]; setp.eq.u32 %p0, %r2, 0; add.u64 %d4, %d0, %d2; "
    "@%p0 st.global.u32 [%d4], %r2;",
    "",
)


class _Sequence:
    """The records of a trace while they are drawn."""

    def __init__(self, seed: int) -> None:
        self.draw = draw = random.Random(f"sequence {seed}")
        self.sizes = {name: draw.choice((8, 16, 100, 256, 4096, 4096)) for name in "bcde"}
        self.sizes["a"] = 256
        self.module = soup_kernel(draw.randrange(1 << 30), loops=False, runs=draw.random() < 0.6)
        self.soup = draw.random() < 0.5
        self.bodies = draw.sample(range(len(BODIES)), draw.choice((1, 2, 4)))
        self.steps: list[str] = []

    def place(self) -> str:
        """A buffer, or a place in it."""
        name = self.draw.choice("abcde")
        most = self.sizes[name]
        return f"{name}+{self.draw.choice((0, 0, 0, 4, 8, most // 8 * 4, most))}"

    def area(self, size: int) -> str:
        """So many bytes of a buffer that has them."""
        fitting = [name for name, most in self.sizes.items() if most >= size]
        name = self.draw.choice(fitting)
        return f"{name}+{self.draw.randrange((self.sizes[name] - size) // 4 + 1) * 4}"

    def step(self) -> str:
        """A record of one step; an empty one where what was drawn does not fit."""
        draw = self.draw
        match draw.choice(("launch", "launch", "launch", "again", "copy", "fill", "call")):
            case "again" if self.steps:
                words = draw.choice(self.steps)
                return words.replace("a+", "b+") if "launch" in words else words
            case "copy":
                size = draw.choice((4, 8, 8, 16, 24))
                target, source = self.area(size), self.area(size)
                if target[0] != source[0] and target[0] != "d":
                    return f"memcpy {target} {source} bytes={size}"
            case "fill":
                size, target = draw.choice((4, 8, 60)), self.area(8)
                if self.sizes[target[0]] - int(target[2:]) >= size and target[0] != "d":
                    return f"memset {target} bytes={size} value=1"
            case "call":
                target, source = self.area(24), self.area(24)
                if target[0] != "d":
                    strides = draw.choice(("", "{3,1}", "{1,2}"))
                    read = f"{source}:s32[2,3]{strides}"
                    return f"op aten::clone reads=[{read}] writes=[{target}:s32[2,3]] attrs={{}}"
            case _:
                return self.launch()
        return ""

    def launch(self) -> str:
        """A launch of a kernel of either module."""
        draw = self.draw
        shape = f"grid={draw.choice((1, 1, 2))},1,1 block={draw.choice((1, 8, 32))},1,1"
        number = f"u32:{draw.choice((0, 5, 40))}"
        if self.soup and draw.random() < 0.5:
            words = draw.choice(("", f"@{{8:{self.place()}}}", f"@{{0:{self.place()}}}"))
            given = f"b8[128]:{'01' * 8}{'00' * 120}{words}"
            both = f"{self.place()}, {self.place()}"
            return f"launch m.kernel {shape} args=[{both}, {given}, {number}, f32:1.0]"
        body = draw.choice(self.bodies)
        return f"launch t.k{body} {shape} args=[{self.place()}, {self.place()}, {number}]"

    def text(self) -> str:
        """The whole trace."""
        draw = self.draw
        roles = dict(
            zip("abce", draw.choices(("input", "output", "temp", "state"), k=4), strict=True)
        )
        roles["d"] = draw.choice(("weight", "state", "temp"))
        lines = ["//! tessera.trace 1"]
        lines += [f"//! buffer {n} bytes={s} role={roles[n]}" for n, s in self.sizes.items()]
        for name in draw.sample("abcde", draw.choice((0, 1, 2))):
            words = {8 * n: self.place() for n in range(min(2, self.sizes[name] // 8))}
            each = ",".join(f"{offset}:{place}" for offset, place in words.items())
            lines.append(f"//! pointers {name} @{{{each}}}")
        kernels = [f".visible .entry k{n}{_BEGIN}  {BODIES[n]}\n  ret;\n}}" for n in self.bodies]
        lines += ["//! module t", PLAIN + "\n".join(kernels)]
        if self.soup:
            lines += ["//! module m", self.module]
        for _ in range(draw.choice((2, 3, 5, 8))):
            self.steps.append(self.step())
        return "\n".join([*lines, *(f"//! {one}" for one in self.steps if one)]) + "\n"


def soup_sequence(seed: int) -> Program:
    """The program of a seed; of some, the contents of a weight are known."""
    sequence = _Sequence(seed)
    program = parse_trace(sequence.text(), "k.ptx")
    (weight,) = (one for one in program.buffers if one.name == "d")
    if weight.role is not Role.WEIGHT or sequence.draw.random() < 0.3:
        return program
    words = sequence.draw.choices((0, 1, 5, 40, 1 << 31), k=weight.bytes // 4)
    content = b"".join(word.to_bytes(4, "little") for word in words)
    digest = hashlib.sha256(content).hexdigest()
    return replace(program, known=(KnownContents(weight.id, content, digest),))
