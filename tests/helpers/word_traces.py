"""Traces whose steps overwrite words that hold addresses: by hand, and at random."""

from __future__ import annotations

import random

from tessera.ir.program.program import Program
from tests.helpers.traces import trace

# p = table[0]; p[0] += 1. Then table[0] and table[1] change places.
SWAP = """
.visible .entry bump(.param .u64 table)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [table];
    ld.global.u64 %rd2, [%rd1];
    ld.global.u32 %r1, [%rd2];
    add.u32 %r1, %r1, 1;
    st.global.u32 [%rd2], %r1;
    ret;
}
.visible .entry swap(.param .u64 table)
{
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [table];
    ld.global.u64 %rd2, [%rd1];
    ld.global.u64 %rd3, [%rd1+8];
    st.global.u64 [%rd1], %rd3;
    st.global.u64 [%rd1+8], %rd2;
    ret;
}
"""


def swap_trace(role: str = "state") -> Program:
    """Every request counts in the buffer that the last one did not count in."""
    buffers = f"""
    buffer t bytes=16 role={role} dtype=u64 shape=2
    buffer a bytes=64 role=state dtype=u32 shape=16
    buffer b bytes=64 role=state dtype=u32 shape=16
    buffer y bytes=64 role=output dtype=u32 shape=16
    pointers t @{{0:a,8:b}}
    """
    steps = """
    launch m.bump grid=1,1,1 block=1,1,1 args=[t]
    launch m.swap grid=1,1,1 block=1,1,1 args=[t]
    memcpy y a bytes=64
    """
    return trace(buffers, SWAP, steps)


_TARGETS = ("a", "b", "c")
_WORDS = 4


def word_trace(seed: int) -> Program:
    """Kernels that store, copy, load and follow words of two tables, in any order.

    Every word is an address of one of three buffers, always: whatever is loaded may be followed.
    """
    rng = random.Random(seed)
    roles = [rng.choice(("state", "temp", "input", "output")) for _ in range(2)]
    buffers = [f"buffer {t} bytes=64 role={rng.choice(('state', 'output'))}" for t in _TARGETS]
    for name, role in zip("tu", roles, strict=True):
        buffers.append(f"buffer {name} bytes={8 * _WORDS} role={role}")
        words = (f"{8 * n}:{rng.choice(_TARGETS)}+{8 * rng.randrange(8)}" for n in range(_WORDS))
        buffers.append(f"pointers {name} @{{{','.join(words)}}}")
    kernels, steps = [], []
    for number in range(rng.randint(1, 4)):
        if rng.random() < 0.2:
            target, source = rng.sample("tu", 2)
            at = 8 * rng.randrange(_WORDS - 1)
            steps.append(f"memcpy {target}+{at} {source} bytes={8 * rng.randint(1, 1)}")
            continue
        kernels.append(_kernel(f"k{number}", rng))
        # The second table may be the first again, at another word.
        first, second = rng.choice(("t", "u")), rng.choice(("t", "u"))
        args = f"{first}, {second}, {', '.join(rng.sample(_TARGETS, 2))}"
        shape = rng.choice(("grid=1,1,1 block=4,1,1", "grid=4,1,1 block=1,1,1"))
        steps.append(f"launch m.k{number} {shape} args=[{args}]")
    if not steps:
        steps = ["memset c bytes=64 value=1"]
    return trace("\n".join(buffers), "".join(kernels), "\n".join(steps))


def _kernel(name: str, rng: random.Random) -> str:
    """`%d1`, `%d2` are tables; `%d3` up to `%d7` always hold addresses of targets."""
    if rng.random() < 0.5:
        lines = [_statement(rng) for _ in range(rng.randint(2, 7))]
    else:
        # Short ones, in which little else makes words unknown.
        lines = [_statement(rng, kind) for kind in (0, 4, 8) if rng.random() < 0.9]
        rng.shuffle(lines)
    body = "\n    ".join(line for lines_of in lines for line in lines_of)
    return f"""
.visible .entry {name}(.param .u64 t, .param .u64 u, .param .u64 p, .param .u64 q)
{{
    .reg .pred %p<4>;
    .reg .b32 %r<8>;
    .reg .b64 %d<20>;
    ld.param.u64 %d1, [t];
    ld.param.u64 %d2, [u];
    ld.param.u64 %d3, [p];
    ld.param.u64 %d4, [q];
    mov.u64 %d5, %d3;
    mov.u64 %d6, %d4;
    mov.u64 %d7, %d3;
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    add.u32 %r3, %r1, %r2;
    mul.wide.u32 %d10, %r3, 8;
    setp.eq.u32 %p1, %r3, {rng.randrange(4)};
    {body}
    ret;
}}
"""


def _statement(rng: random.Random, kind: int | None = None) -> list[str]:
    """One of: store an address, load one (by constant, thread or data), follow one."""
    table = rng.choice(("%d1", "%d2"))
    address = f"%d{rng.randint(3, 7) if kind is None else rng.choice((3, 5))}"
    at = f"[{table}+{8 * rng.randrange(_WORDS if kind is None else 2)}]"
    moved = [f"add.u64 %d11, {table}, %d10;"]
    guard = rng.choice(("", "", "@%p1 "))
    match rng.randrange(9) if kind is None else kind:
        case 0 | 1:
            return [f"{guard}st.global.u64 {at}, {address};"]
        case 2:
            return [*moved, f"{guard}st.global.u64 [%d11], {address};"]
        case 3:
            return [f"{guard}atom.global.exch.b64 {address}, {at}, %d{rng.randint(3, 7)};"]
        case 4 | 5:
            return [f"ld.global.u64 {address}, {at};"]
        case 6:
            return [*moved, f"ld.global.u64 {address}, [%d11];"]
        case 7:
            # The index comes from data, and stays in the table.
            return [
                f"ld.global.u32 %r4, [{address}];",
                "and.b32 %r4, %r4, 3;",
                "mul.wide.u32 %d12, %r4, 8;",
                f"add.u64 %d12, {table}, %d12;",
                f"ld.global.u64 {address}, [%d12];",
            ]
        case _:
            return [f"{guard}st.global.u32 [{address}], {rng.randrange(100)};"]
