"""Random traces with everything that records can say, for whoever plans and runs them.

Odd sizes and offsets, overlapping views, strided and byte-wide stores, copies and fills, library
calls on strided tensors, structs with addresses, words that hold addresses, several streams with
events, inputs and states that are written, launches that touch nothing. Integers only.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.helpers.traces import HEADER

Buffer = tuple[str, str, int]
"""Name, role and bytes."""

_INDEX = """
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    ld.param.u32 %r5, [n]; setp.ge.u32 %p1, %r4, %r5; @%p1 bra DONE;
    mul.wide.u32 %d4, %r4, 4;
"""
_LOAD = "add.u64 %d7, %d2, %d4; ld.global.u32 %r6, [%d7]; add.u64 %d5, %d1, %d4;"
_BODIES = {
    "add": f"{_LOAD} ld.global.u32 %r7, [%d5]; add.u32 %r6, %r6, %r7; st.global.u32 [%d5], %r6;",
    "some": f"{_LOAD} and.b32 %r7, %r6, 1; setp.eq.u32 %p2, %r7, 1; @%p2 st.global.u32 [%d5], %r6;",
    "scatter": (
        f"{_LOAD} and.b32 %r7, %r6, 15; mul.wide.u32 %d8, %r7, 4; add.u64 %d8, %d1, %d8;"
        "red.global.add.u32 [%d8], %r6;"
    ),
    "most": f"{_LOAD} atom.global.max.u32 %r7, [%d1], %r6;",
    "vector": (
        "mul.wide.u32 %d8, %r4, 16; add.u64 %d9, %d2, %d8; add.u64 %d10, %d1, %d8;"
        "ld.global.v4.u32 {%r6, %r7, %r8, %r9}, [%d9]; st.global.v2.u32 [%d10], {%r9, %r6};"
        "st.global.u32 [%d10+12], %r7;"
    ),
    "follow": (
        "ld.global.u64 %d8, [%d2]; ld.global.u64 %d9, [%d2+8]; add.u64 %d8, %d8, %d4;"
        "add.u64 %d9, %d9, %d4; ld.global.u32 %r6, [%d8]; ld.global.u32 %r7, [%d9];"
        "xor.b32 %r6, %r6, %r7; add.u64 %d5, %d1, %d4; st.global.u32 [%d5], %r6;"
    ),
}
_NEEDS = {"add": (4, 4), "some": (4, 4), "scatter": (0, 4), "most": (0, 4), "vector": (16, 16)}
"""Bytes per thread of what is written and of what is read; a scatter and `most` write 64."""
_REGISTERS = (
    ".reg .pred %p<3>; .reg .b16 %h<3>; .reg .b32 %r<12>; .reg .b64 %q<3>; .reg .b64 %d<12>;"
)


def _kernel(name: str, body: str) -> str:
    return (
        f".visible .entry {name}(.param .u64 o, .param .u64 x, .param .u32 n)\n{{\n{_REGISTERS}"
        f"{_INDEX}    ld.param.u64 %d1, [o]; ld.param.u64 %d2, [x];\n    {body}\n"
        "DONE:\n    ret;\n}\n"
    )


def _copying(name: str, width: int, to_stride: int, from_stride: int) -> str:
    kind, register = {1: ("u8", "%h"), 2: ("u16", "%h"), 4: ("u32", "%r"), 8: ("u64", "%q")}[width]
    target = f"{register}{6 if width == 4 else 1}"
    return _kernel(
        name,
        f"mul.wide.u32 %d8, %r4, {to_stride}; add.u64 %d5, %d1, %d8;"
        f"mul.wide.u32 %d9, %r4, {from_stride}; add.u64 %d7, %d2, %d9;"
        f"ld.global.{kind} {target}, [%d7]; st.global.{kind} [%d5], {target};",
    )


_STRUCT = f"""
.visible .entry packed(.param .align 8 .b8 s[24], .param .u32 n)
{{
    {_REGISTERS}{_INDEX}
    ld.param.u64 %d1, [s]; ld.param.u64 %d2, [s+8]; ld.param.u32 %r8, [s+16];
    {_LOAD} add.u32 %r6, %r6, %r8; st.global.u32 [%d5], %r6;
DONE:
    ret;
}}
"""


@dataclass
class _Maker:
    """The steps of a trace while they are made up."""

    rng: random.Random
    sizes: dict[str, int]
    writable: list[str]
    table: bool
    streams: int
    kernels: list[str] = field(default_factory=lambda: [_STRUCT])
    steps: list[str] = field(default_factory=list)
    events: int = 0

    def area(self, size: int, align: int, *, write: bool = False) -> str | None:
        """So many bytes of some buffer, as a trace writes them."""
        names = self.writable if write else list(self.sizes)
        fitting = [name for name in names if self.sizes[name] >= size and name != "table"]
        if not fitting:
            return None
        name = self.rng.choice(fitting)
        return f"{name}+{self.rng.randrange((self.sizes[name] - size) // align + 1) * align}"

    def record(self, text: str) -> None:
        stream = f" stream={self.rng.randrange(self.streams)}" if self.streams > 1 else ""
        self.steps.append(f"//! {text}{stream}\n")

    def pair(self, written: int, read: int, align: int = 4) -> tuple[str, str] | None:
        target, source = self.area(written, align, write=True), self.area(read, align)
        return None if target is None or source is None else (target, source)

    def launch(self, kernel: str, target: str, source: str, threads: int) -> None:
        block = self.rng.choice([1, 4, 32])
        grid = -(-threads // block) + self.rng.choice([0, 0, 1])
        count = self.rng.choice([threads] * 6 + [0])
        self.record(
            f"launch m.{kernel} grid={max(grid, 1)},1,1 block={block},1,1 "
            f"args=[{target}, {source}, u32:{count}]"
        )

    def copy_kernel(self) -> None:
        width, threads = self.rng.choice([1, 2, 4, 8]), self.rng.choice([1, 3, 8, 20])
        to, of = width * self.rng.choice([1, 1, 2, 3]), width * self.rng.choice([0, 1, 2])
        found = self.pair(to * (threads - 1) + width, of * (threads - 1) + width, width)
        if found:
            name = f"copy{len(self.kernels)}"
            self.kernels.append(_copying(name, width, to, of))
            self.launch(name, *found, threads)

    def kernel(self) -> None:
        name, threads = self.rng.choice(list(_NEEDS)), self.rng.choice([1, 3, 8, 16])
        written, read = (need * threads for need in _NEEDS[name])
        found = self.pair(written or 64, read, 16 if name == "vector" else 4)
        if found:
            self.launch(name, *found, threads)

    def follow(self) -> None:
        target = self.area(32, 4, write=True)
        if self.table and target:
            self.launch("follow", target, "table", self.rng.choice([1, 8]))

    def packed(self) -> None:
        found = self.pair(32, 32)
        if found:
            words = f"{'00' * 16}{'05000000'}{'00' * 4}@{{0:{found[0]},8:{found[1]}}}"
            self.record(f"launch m.packed grid=1,1,1 block=8,1,1 args=[b8[24]:{words}, u32:8]")

    def memcpy(self) -> None:
        size = self.rng.choice([1, 3, 16, 33])
        found = self.pair(size, size, 1)
        if found and found[0].partition("+")[0] != found[1].partition("+")[0]:
            self.record(f"memcpy {found[0]} {found[1]} bytes={size}")

    def memset(self) -> None:
        width = self.rng.choice([1, 2, 4])
        size = width * self.rng.choice([1, 7, 16])
        target = self.area(size, width, write=True)
        if target:
            value = self.rng.randrange(1, 1 << (8 * width))
            self.record(f"memset {target} bytes={size} value={value} element_bytes={width}")

    def tensor(self, rows: int, columns: int, *, write: bool = False) -> str | None:
        pitch = columns + self.rng.choice([0, 1, 2])
        found = self.area(4 * (pitch * (rows - 1) + columns), 4, write=write)
        return None if found is None else f"{found}:s32[{rows},{columns}]{{{pitch},1}}"

    def call(self) -> None:
        shape = self.rng.choice([(2, 3), (4, 2), (1, 5)])
        reads = [self.tensor(*shape), self.tensor(*shape)]
        out = self.tensor(*shape, write=True)
        if None not in (*reads, out):
            name, count = self.rng.choice([("add.Tensor", 2), ("mul.Tensor", 2), ("clone", 1)])
            given = ", ".join(str(one) for one in reads[:count])
            self.record(f"op aten::{name} reads=[{given}] writes=[{out}] attrs={{}}")

    def meet(self) -> None:
        if self.streams > 1:
            for kind in ("event", "wait"):
                stream = self.rng.randrange(self.streams)
                self.steps.append(f"//! {kind} e{self.events} stream={stream}\n")
            self.events += 1


def shared_buffers(rng: random.Random) -> list[Buffer]:
    """States and weights, which several traces may have in common."""
    states = [(f"s{n}", "state", rng.choice([132, 256])) for n in range(rng.randint(0, 2))]
    return states + [(f"w{n}", "weight", rng.choice([64, 260])) for n in range(rng.randint(0, 2))]


def wild_trace(seed: int, shared: Sequence[Buffer]) -> str:
    """A trace as text; the same for the same seed."""
    rng = random.Random(seed)
    buffers = list(shared)
    for role, most in (("input", 2), ("output", 2), ("temp", 3)):
        for number in range(rng.randint(1, most)):
            buffers.append((f"{role[0]}{number}", role, rng.choice([16, 37, 100, 128, 256, 260])))
    sizes = {name: size for name, _, size in buffers}
    targets = [name for name, size in sizes.items() if size >= 64]
    table = bool(targets) and rng.random() < 0.4
    words = ""
    if table:
        buffers.append(("table", rng.choice(["input", "temp", "output"]), 32))
        ends = [
            f"{8 * n}:{name}+{rng.randrange(0, sizes[name] - 32, 4)}"
            for n, name in enumerate(rng.choices(targets, k=2))
        ]
        words = f"//! pointers table @{{{','.join(ends)}}}\n"
    maker = _Maker(
        rng=rng,
        sizes=sizes,
        table=table,
        streams=rng.choice([1, 1, 2, 3]),
        writable=[name for name, role, _ in buffers if role != "weight" and name != "table"],
    )
    makers: list[Callable[[], None]] = [
        maker.copy_kernel,
        maker.copy_kernel,
        maker.kernel,
        maker.kernel,
        maker.follow,
        maker.packed,
        maker.memcpy,
        maker.memset,
        maker.call,
        maker.meet,
    ]
    for _ in range(rng.randint(3, 14)):
        rng.choice(makers)()
    if not any(not line.startswith(("//! event", "//! wait")) for line in maker.steps):
        maker.steps.append("//! memset o0 bytes=1 value=1\n")
    declared = "".join(f"//! buffer {n} bytes={size} role={role}\n" for n, role, size in buffers)
    kernels = "".join(_kernel(name, body) for name, body in _BODIES.items())
    return (
        f"//! tessera.trace 1\n{declared}{words}//! module m\n{HEADER}"
        f"{kernels}{''.join(maker.kernels)}{''.join(maker.steps)}"
    )
