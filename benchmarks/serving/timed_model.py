"""A language model whose kernels sleep: the CPU backend takes as long for a step as is asked.

A running sum per row is its state, and the next token a hash of it, so every token tells whether
rows, lengths and states were right. Decode takes all rows, prefill a chunk of one prompt. With two
stages each step has a kernel on a second device after the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tessera.ir.plan.plan import Plan
from tessera.ir.plan.print_plan import print_plan
from tessera.ir.program.program import Program
from tests.helpers.plan_files import plan_of
from tests.helpers.traces import trace

PRIME, VOCABULARY = 10007, 97

# tokens[row] of `count` tokens each go into the sum at rows[row]; copies first where it is asked.
KERNELS = """
.visible .entry pass(.param .u64 .ptr .global out, .param .u64 .ptr .global in,
                     .param .u32 nanoseconds)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<6>;
    ld.param.u32 %r0, [nanoseconds];
    nanosleep.u32 %r0;
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd1, %r1, 8;
    ld.param.u64 %rd2, [out];
    ld.param.u64 %rd3, [in];
    add.s64 %rd2, %rd2, %rd1;
    add.s64 %rd3, %rd3, %rd1;
    ld.global.b64 %rd4, [%rd3];
    st.global.b64 [%rd2], %rd4;
    ret;
}
.visible .entry step(.param .u64 .ptr .global next, .param .u64 .ptr .global tokens,
                     .param .u64 .ptr .global lengths, .param .u64 .ptr .global rows,
                     .param .u64 .ptr .global carried, .param .u32 count,
                     .param .u32 nanoseconds)
{
    .reg .pred %p<3>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<20>;
    ld.param.u32 %r0, [nanoseconds];
    nanosleep.u32 %r0;
    mov.u32 %r1, %tid.x;
    ld.param.u32 %r2, [count];
    mul.wide.u32 %rd1, %r1, 8;
    ld.param.u64 %rd2, [next];
    ld.param.u64 %rd3, [tokens];
    ld.param.u64 %rd4, [lengths];
    ld.param.u64 %rd5, [rows];
    ld.param.u64 %rd6, [carried];
    add.s64 %rd2, %rd2, %rd1;
    add.s64 %rd4, %rd4, %rd1;
    add.s64 %rd5, %rd5, %rd1;
    ld.global.b64 %rd7, [%rd5];
    shl.b64 %rd7, %rd7, 3;
    add.s64 %rd6, %rd6, %rd7;
    ld.global.b64 %rd8, [%rd6];
    ld.global.b64 %rd9, [%rd4];
    mul.lo.u32 %r3, %r1, %r2;
    mul.wide.u32 %rd10, %r3, 8;
    add.s64 %rd11, %rd3, %rd10;
    mov.u64 %rd12, 0;
MORE:
    setp.ge.s64 %p1, %rd12, %rd9;
    @%p1 bra DONE;
    ld.global.b64 %rd13, [%rd11];
    mul.lo.s64 %rd8, %rd8, 31;
    add.s64 %rd8, %rd8, %rd13;
    add.s64 %rd8, %rd8, 3;
    rem.s64 %rd8, %rd8, 10007;
    add.s64 %rd11, %rd11, 8;
    add.s64 %rd12, %rd12, 1;
    bra MORE;
DONE:
    st.global.b64 [%rd6], %rd8;
    rem.s64 %rd14, %rd8, 97;
    st.global.b64 [%rd2], %rd14;
    ret;
}
"""


def answer(prompt: Sequence[int], count: int) -> list[int]:
    """What the model says, by a plain loop."""
    value = 0
    for token in prompt:
        value = (value * 31 + token + 3) % PRIME
    made = [value % VOCABULARY]
    while len(made) < count:
        value = (value * 31 + made[-1] + 3) % PRIME
        made.append(value % VOCABULARY)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedModel:
    """Sizes and times: `stages` devices in each of `replicas`, times in milliseconds of each."""

    rows: int = 8
    chunk: int = 16
    batches: int = 2
    slots: int = 2
    replicas: int = 1
    stages: int = 1
    decode_ms: float = 40.0
    prefill_ms: float = 60.0

    def plan(self) -> Plan:
        """The plan, with these times as predictions."""
        parts = []
        for number in range(self.replicas):
            names = [f"{'abcd'[number]}{stage}" for stage in range(self.stages)]
            programs = [self._trace("prefill"), self._trace("decode")]
            made = plan_of(
                programs, [names, names], slots=self.slots, lanes=self.batches, shares=[0.5, 0.5]
            )
            (replica,) = made.replicas
            times = (self.prefill_ms * 1e6, self.decode_ms * 1e6)
            traces = tuple(
                replace(
                    placed, steps=tuple(replace(step, predicted_ns=ns) for step in placed.steps)
                )
                for placed, ns in zip(replica.traces, times, strict=True)
            )
            replica = replace(replica, share=1 / self.replicas, traces=traces)
            named = tuple(
                replace(planned, name=name)
                for planned, name in zip(made.traces, ("prefill", "decode"), strict=True)
            )
            parts.append(replace(made, replicas=(replica,), traces=named))
        mean = (self.prefill_ms + self.decode_ms) / 2 * 1e6
        each = mean / self.replicas
        return replace(
            parts[0],
            period_ns=each,
            bound=each,
            latency_ns=mean * self.stages,
            cards=tuple(card for part in parts for card in part.cards),
            devices=tuple(replace(d, busy_ns=each) for part in parts for d in part.devices),
            replicas=tuple(replica for part in parts for replica in part.replicas),
        )

    def write(self, path: Path) -> Path:
        """The plan as a file."""
        path.write_text(print_plan(self.plan()), encoding="utf-8")
        return path

    def _trace(self, kind: str) -> Program:
        is_decode = kind == "decode"
        rows, count = (self.rows, 1) if is_decode else (1, self.chunk)
        sleep = int((self.decode_ms if is_decode else self.prefill_ms) * 1e6)
        buffers = [
            f"buffer tokens bytes={8 * rows * count} role=input dtype=s64 shape={rows}x{count}",
            f"buffer lengths bytes={8 * rows} role=input dtype=s64 shape={rows}",
            f"buffer rows bytes={8 * rows} role=input dtype=s64 shape={rows}",
            f"buffer carried bytes={8 * self.rows} role=state dtype=s64 shape={self.rows}",
            f"buffer next bytes={8 * rows} role=output dtype=s64 shape={rows}",
        ]
        steps, tokens = [], "tokens"
        for stage in range(1, self.stages):
            buffers.append(f"buffer t{stage} bytes={8 * rows * count} role=temp dtype=s64")
            steps.append(
                f"launch m.pass grid=1,1,1 block={rows * count},1,1 "
                f"args=[t{stage}, {tokens}, u32:{sleep}]"
            )
            tokens = f"t{stage}"
        steps.append(
            f"launch m.step grid=1,1,1 block={rows},1,1 "
            f"args=[next, {tokens}, lengths, rows, carried, u32:{count}, u32:{sleep}]"
        )
        return trace("\n".join(buffers), KERNELS, "\n".join(steps))
