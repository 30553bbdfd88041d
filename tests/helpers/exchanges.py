"""Random traces in which steps read several buffers that other steps have made: layers with `q`,
`k` and `v`, made each by steps of its own, wholly, in part, or in strides, and read by one step.

Integers only, so that results are equal to the byte; buffers of 64 words.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from tessera.backend.service import Model
from tessera.ir.plan.launch_program import HOST
from tessera.ir.program import program as ir
from tests.helpers.served import graph_of, model_of
from tests.helpers.traces import trace

WORDS = 64
_ENTRY = """
.visible .entry {name}(.param .u64 .ptr .global out, {pointers}, .param .u32 n)
{{
    .reg .pred %p;
    .reg .b32 %r<9>;
    .reg .b64 %rd<9>;
    mov.u32 %r1, %tid.x;
    ld.param.u32 %r0, [n];
    setp.ge.u32 %p, %r1, %r0;
    @%p bra DONE;
    ld.param.u64 %rd1, [out];
    mul.wide.u32 %rd3, %r1, {pitch};
    add.s64 %rd5, %rd1, %rd3;
    mov.u32 %r3, %r1;
    {loads}
    st.global.u32 [%rd5], %r3;
DONE:
    ret;
}}
"""
_LOAD = """
    ld.param.u64 %rd2, [{name}];
    add.s64 %rd4, %rd2, %rd3;
    ld.global.u32 %r2, [%rd4];
    mad.lo.u32 %r3, %r3, {factor}, %r2;
"""


def _kernel(name: str, sources: Sequence[str], pitch: int = 4) -> str:
    loads = "".join(_LOAD.format(name=own, factor=3 + 2 * n) for n, own in enumerate(sources))
    pointers = ", ".join(f".param .u64 .ptr .global {own}" for own in sources)
    return _ENTRY.format(name=name, pointers=pointers, pitch=pitch, loads=loads)


_KERNELS = (
    _kernel("one", ["x"]) + _kernel("other", ["x"], pitch=8) + _kernel("three", ["q", "k", "v"])
)


def exchange_program(seed: int, layers: int = 3) -> ir.Program:
    """A trace of some layers, each of four steps or more."""
    rng = random.Random(seed)
    roles = [("x", "input"), ("y", "output"), *((f"h{n}", "temp") for n in range(layers))]
    roles += [(f"{name}{n}", "temp") for n in range(layers) for name in "qkv"]
    buffers = [f"buffer {name} bytes={4 * WORDS} role={role} dtype=u32" for name, role in roles]
    steps, last = [], "x"
    for layer in range(layers):
        for name in rng.sample("qkv", 3):
            made = f"{name}{layer}"
            steps.append(_launch("one", made, last, WORDS))
            if rng.random() < 0.4:
                steps.append(_launch("other", made, last, WORDS // 2))
            if rng.random() < 0.3:
                half = rng.choice((16, 32))
                steps.append(_launch("one", f"{made}+{4 * half}", last, WORDS - half))
        target = "y" if layer == layers - 1 else f"h{layer}"
        steps.append(_launch("three", target, *(f"{name}{layer}" for name in "qkv"), WORDS))
        last = target
    return trace("\n".join(buffers), _KERNELS, "\n".join(steps))


def _launch(kernel: str, *given: object) -> str:
    *pointers, count = given
    args = ", ".join(map(str, pointers))
    return f"launch m.{kernel} grid=1,1,1 block={WORDS},1,1 smem=0 args=[{args}, u32:{count}]"


def exchange_model(seed: int, devices: str = "abc", **options: object) -> Model:
    """Such a trace on some devices at random: on few of them in a row, so that bytes meet."""
    rng = random.Random(seed)
    program = exchange_program(seed)
    placement = [devices[0]]
    for _ in range(len(program.steps) - 1):
        placement.append(placement[-1] if rng.random() < 0.6 else rng.choice(devices))
    given = {"slots": rng.randint(1, 3), "lanes": 1, **options}
    return model_of([program], [placement], graphs=[graph_of(program)], **given)


def joined(model: Model) -> int:
    """The transfers of several buffers."""
    rows = [transfer for trace in model.lowered.traces for transfer in trace.transfers]
    assert all(len(t.portions) == 1 for t in rows if HOST in (t.source, t.target))
    return sum(len(transfer.portions) > 1 for transfer in rows)
