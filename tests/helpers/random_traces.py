"""Random small traces that use memory in every way the lowering has to get right.

Integers only, so that results are equal to the byte whatever the order; buffers of 64 words. The
kernels read and write exactly, in strides, under conditions, at indices from memory, in place, and
through a module variable. Temps and outputs are reused, partly written, and read before a write.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from tessera.ir.program import program as ir
from tessera.ir.program.data_type import DataType
from tests.helpers.traces import trace

WORDS = 64
BYTES = 4 * WORDS
WARP = 32

_HEAD = """
    .reg .pred %p;
    .reg .b32 %r<9>;
    .reg .b64 %rd<9>;
    mov.u32 %r1, %tid.x;
    mov.u32 %r7, %ctaid.x;
    mov.u32 %r8, %ntid.x;
    mad.lo.u32 %r1, %r7, %r8, %r1;
    ld.param.u32 %r0, [n];
    setp.ge.u32 %p, %r1, %r0;
    @%p bra DONE;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [x];
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.u32 %r2, [%rd4];
    add.s64 %rd5, %rd1, %rd3;
"""
_BODIES = {
    "affine": "mad.lo.u32 %r3, %r2, 5, %r1; st.global.u32 [%rd5], %r3;",
    "mix": "ld.global.u32 %r3, [%rd5]; mad.lo.u32 %r3, %r3, 31, %r2; st.global.u32 [%rd5], %r3;",
    "every": "mul.wide.u32 %rd6, %r1, 8; add.s64 %rd6, %rd1, %rd6; st.global.u32 [%rd6], %r2;",
    "some": (
        "and.b32 %r3, %r2, 1; setp.eq.u32 %p, %r3, 1; @%p bra DONE; st.global.u32 [%rd5], %r2;"
    ),
    "scatter": (
        "and.b32 %r3, %r2, 15; mul.wide.u32 %rd6, %r3, 4; add.s64 %rd6, %rd1, %rd6;"
        "st.global.u32 [%rd6], %r1;"
    ),
    "gather": (
        "and.b32 %r3, %r2, 15; mul.wide.u32 %rd6, %r3, 4; add.s64 %rd6, %rd2, %rd6;"
        "ld.global.u32 %r4, [%rd6]; add.u32 %r4, %r4, %r1; st.global.u32 [%rd5], %r4;"
    ),
    "count": "atom.global.add.u32 %r3, [%rd1], %r2;",
    "total": (
        "mov.u64 %rd6, kept; atom.global.add.u32 %r3, [%rd6], %r2; ld.global.u32 %r4, [%rd6];"
        "st.global.u32 [%rd5], %r4;"
    ),
}
_BUFFERS = {
    ir.Role.INPUT: ("x0", "x1"),
    ir.Role.WEIGHT: ("w0",),
    ir.Role.STATE: ("s0", "s1"),
    ir.Role.TEMP: ("t0", "t1", "t2"),
    ir.Role.OUTPUT: ("y0", "y1"),
}


@dataclass(frozen=True, slots=True)
class Case:
    """A trace and a seed to go on with."""

    program: ir.Program
    seed: int


@cache
def _base() -> ir.Program:
    buffers = "\n".join(
        f"buffer {name} bytes={BYTES} role={role.value} dtype=u32 shape={WORDS}"
        for role, names in _BUFFERS.items()
        for name in names
    )
    kernels = ".global .align 4 .u32 kept = 7;\n" + "".join(
        f".visible .entry {name}(.param .u64 .ptr .global out, .param .u64 .ptr .global x,"
        f" .param .u32 n)\n{{{_HEAD}{body}\nDONE:\n ret;\n}}\n"
        for name, body in _BODIES.items()
    )
    return trace(buffers, kernels, "memset y0+0 bytes=4 value=0x00")


def random_program(
    seed: int,
    *,
    variable: bool = False,
    steps: int = 8,
    races: bool = True,
    wide: bool = False,
    ctas: int = 1,
) -> ir.Program:
    """A trace of `steps` steps; `variable` lets launches write a module variable. `ctas` is the
    number of CTAs of a launch.

    `wide`: buffers are larger and what steps touch lies further apart, so that a device holds parts
    of weights and states. `races`: threads of one launch may write the same word, and on a GPU any
    of them may win; or read a sum to which another warp still adds.
    """
    rng = random.Random(seed)
    base = _base()
    ids = {buffer.name: buffer.id for buffer in base.buffers}
    writable = [
        n
        for r, names in _BUFFERS.items()
        for n in names
        if r in (ir.Role.STATE, ir.Role.TEMP, ir.Role.OUTPUT)
    ]
    anything = [name for names in _BUFFERS.values() for name in names]
    left_out = {name for name, wanted in (("total", variable), ("scatter", races)) if not wanted}
    kernels = [name for name in _BODIES if name not in left_out]

    def one(number: int) -> ir.Step:
        target, source = rng.choice(writable), rng.choice(anything)
        at, start = rng.choice((0, 0, 0, 64, 128)), rng.choice((0, 0, 0, 64))
        kind = rng.random()
        if kind < 0.08:
            size = rng.choice((64, 128))
            return ir.Memset(
                id=ir.LaunchId(number),
                target=ir.Pointer(ids[target], at),
                bytes=size,
                value=rng.randrange(256),
            )
        if kind < 0.16 and source != target:
            return ir.Memcpy(
                id=ir.LaunchId(number),
                target=ir.Pointer(ids[target], at),
                source=ir.Pointer(ids[source], start),
                bytes=128,
            )
        kernel = rng.choice(kernels)
        room = (BYTES - max(at, start)) // 4
        count = rng.choice((room, 16, 7)) // (2 if kernel == "every" else 1)
        if kernel == "total" and not races:
            count = min(count, WARP)
        arguments = (
            ir.Pointer(ids[target], at),
            ir.Pointer(ids[source], start),
            ir.Scalar(DataType.U32, count),
        )
        return ir.Launch(
            id=ir.LaunchId(number),
            module=ir.ModuleId(0),
            kernel=kernel,
            grid=(ctas, 1, 1),
            block=(64 // ctas, 1, 1),
            arguments=arguments,
        )

    made = replace(base, steps=tuple(one(number) for number in range(steps)))
    return _spread(made) if wide else made


def _spread(program: ir.Program) -> ir.Program:
    """Buffers as many times as large, and every pointer as many times further into its buffer."""
    times = 16

    def moved(value: object) -> object:
        is_pointer = isinstance(value, ir.Pointer)
        return replace(value, offset=value.offset * times) if is_pointer else value

    def step(one: ir.Step) -> ir.Step:
        if isinstance(one, ir.Launch):
            return replace(one, arguments=tuple(map(moved, one.arguments)))
        pointers = {n: moved(getattr(one, n)) for n in ("target", "source") if hasattr(one, n)}
        return replace(one, **pointers)

    return replace(
        program,
        buffers=tuple(
            b
            if b.role is ir.Role.VARIABLE
            else replace(b, bytes=b.bytes * times, shape=(times * WORDS,))
            for b in program.buffers
        ),
        steps=tuple(map(step, program.steps)),
    )


def random_bytes(seed: int, *names: object) -> np.ndarray:
    """Contents of a buffer: small words, so that they differ from poison."""
    key = [seed, *(sum(map(ord, str(name))) for name in names)]
    return np.random.default_rng(key).integers(0, 1 << 16, WORDS, dtype=np.uint32).view(np.uint8)
