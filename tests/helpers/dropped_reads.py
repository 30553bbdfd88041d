"""Traces with a read that is taken out of what the analysis says: plans made of that are wrong.

`CASES` are traces, where their steps are placed, and the read that is dropped: of a step, of a
buffer, and from which byte on. Without that, each is planned and runs as it should.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from unittest import mock

from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.graph.access import AccessKind
from tessera.ir.graph.region import Interval
from tessera.ir.plan.plan import Plan
from tessera.ir.program.program import Program
from tessera.passes.dependences import dependences
from tessera.passes.dependences.launch_report import StepAccesses
from tests.helpers import plan_files

_KERNELS = """\
//! module m
.version 8.0
.target sm_80
.address_size 64
.visible .entry own(.param .u64 t, .param .u32 n)
{
    .reg .b32 %r<10>; .reg .b64 %d<8>; .reg .pred %p<4>;
    ld.param.u64 %d1, [t];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, 0;
    mov.u32 %r5, 1;
    mov.u32 %r6, 0;
L:
    setp.ne.u32 %p1, %r2, 0;
    @%p1 st.global.u32 [%d3], %r5;
    mul.wide.u32 %d2, %r2, 4;
    add.u64 %d3, %d1, %d2;
    @%p1 ld.global.u32 %r6, [%d3];
    add.u32 %r5, %r5, %r6;
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p2, %r2, %r1;
    @%p2 bra L;
    st.global.u32 [%d3], %r5;
    ret;
}
""" + "".join(
    f"""\
.visible .entry {name}(.param .u64 out, .param .u64 x, .param .u64 z)
{{
    .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .pred %p;
    ld.param.u64 %d1, [out]; ld.param.u64 %d2, [x]; ld.param.u64 %d3, [z];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %d4, %r1, 4;
    add.u64 %d5, %d1, %d4; add.u64 %d6, %d2, %d4; add.u64 %d7, %d3, %d4;
    ld.global.u32 %r2, [%d6];
    {body}
    st.global.u32 [%d5], %r4;
DONE:
    ret;
}}
"""
    for name, body in {
        "plus": "ld.global.u32 %r3, [%d7]; add.u32 %r4, %r2, %r3;",
        "more": "ld.global.u32 %r3, [%d5]; mad.lo.u32 %r4, %r3, 31, %r2;",
        "pick": ("ld.global.u32 %r3, [%d7]; setp.ne.u32 %p, %r3, 0; selp.u32 %r4, %r2, %r1, %p;"),
        "odd": ("and.b32 %r3, %r2, 1; setp.ne.u32 %p, %r3, 0; mov.u32 %r4, %r2; @!%p bra DONE;"),
        "twice": "mad.lo.u32 %r4, %r2, 2, %r1;",
    }.items()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A trace, its placement, and what is dropped of it."""

    temps: str
    steps: tuple[str, ...]
    places: str
    step: int = 0
    buffer: str = ""
    first_byte: int = 0

    def program(self) -> Program:
        """The trace."""
        buffers = "".join(
            f"//! buffer {name} bytes=256 role={role} dtype=u32\n"
            for name, role in (("x", "input"), *((t, "temp") for t in self.temps), ("y", "output"))
        )
        steps = "".join(map(_launch, self.steps))
        return parse_trace(f"//! tessera.trace 1\n{buffers}{_KERNELS}{steps}", "trace.ptx")

    def plan(self, **more: object) -> Plan:
        """A plan, by what the analysis says now."""
        plan_files._read.cache_clear()
        return plan_files.plan_of([self.program()], [list(self.places)], **more)  # type: ignore[arg-type]


def _launch(step: str) -> str:
    """`twice:32 t x x`: 32 threads, else 64."""
    kernel, *arguments = step.split()
    name, _, threads = kernel.partition(":")
    given = ", ".join(arguments)
    return f"//! launch m.{name} grid=1,1,1 block={threads or 64},1,1 args=[{given}]\n"


CASES = {
    # The read that issue 36 found: a load after the only definition of its address, which the
    # store to the same register before it has not seen yet.
    "own store": Case(
        temps="t", steps=("own:1 t u32:64", "plus y x t"), places="ab", step=0, buffer="t"
    ),
    "half of a temp of another device": Case(
        temps="t",
        steps=("twice t x x", "plus y t t"),
        places="ab",
        step=1,
        buffer="t",
        first_byte=128,
    ),
    "half of an input": Case(
        temps="t",
        steps=("twice t x x", "plus y t x"),
        places="ab",
        step=1,
        buffer="x",
        first_byte=64,
    ),
    "an output that is added to": Case(
        temps="", steps=("more y x x",), places="a", step=0, buffer="y"
    ),
    "the rest of a temp that is written in part": Case(
        temps="t",
        steps=("twice:32 t x x", "plus y x t"),
        places="aa",
        step=1,
        buffer="t",
        first_byte=128,
    ),
    "whether a temp is zero": Case(
        temps="t", steps=("pick y x t", "twice t x x"), places="aa", step=0, buffer="t"
    ),
    "a temp whose place another has": Case(
        temps="tuv",
        steps=("twice t x x", "twice u t t", "twice v u u", "plus y v t"),
        places="aaaa",
        step=3,
        buffer="t",
    ),
}


@contextmanager
def dropped(case: Case) -> Iterator[None]:
    """The analysis does not see a read."""
    real = dependences.without_read_back

    def without(program: Program, steps: tuple[StepAccesses, ...]) -> tuple[StepAccesses, ...]:
        number = next(b.id for b in program.buffers if b.name == case.buffer)
        found = list(real(program, steps))
        accesses = []
        for access in found[case.step].accesses:
            if access.buffer == number and access.kind is AccessKind.READ:
                if not case.first_byte:
                    continue
                access = replace(access, region=Interval(0, case.first_byte))
            accesses.append(access)
        found[case.step] = replace(found[case.step], accesses=tuple(accesses), pattern=None)
        return tuple(found)

    with mock.patch.object(dependences, "without_read_back", without):
        yield
    plan_files._read.cache_clear()
