"""A language model of one kernel: a running sum per row is its state. Token 49 makes it trap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.serve.engine import Engine
from tessera.ir.plan.plan import Plan
from tests.helpers.plan_files import plan_of, plan_with_roles
from tests.helpers.traces import trace

POISON = 49
LIMIT_S = 300
KERNEL = """
.visible .entry step(.param .u64 .ptr .global next, .param .u64 .ptr .global tokens,
                     .param .u64 .ptr .global lengths, .param .u64 .ptr .global carried)
{
    .reg .pred %p<3>;
    .reg .b32 %r<2>;
    .reg .b64 %rd<16>;
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd1, %r1, 8;
    ld.param.u64 %rd2, [next];
    ld.param.u64 %rd3, [tokens];
    ld.param.u64 %rd4, [lengths];
    ld.param.u64 %rd5, [carried];
    add.s64 %rd6, %rd2, %rd1;
    add.s64 %rd7, %rd3, %rd1;
    add.s64 %rd8, %rd4, %rd1;
    add.s64 %rd9, %rd5, %rd1;
    ld.global.b64 %rd10, [%rd9];
    ld.global.b64 %rd11, [%rd8];
    ld.global.b64 %rd12, [%rd7];
    setp.eq.s64 %p1, %rd11, 0;
    @%p1 bra IDLE;
    setp.eq.s64 %p2, %rd12, 49;
    @%p2 trap;
    mul.lo.s64 %rd10, %rd10, 31;
    add.s64 %rd10, %rd10, %rd12;
    add.s64 %rd10, %rd10, 3;
    rem.s64 %rd10, %rd10, 10007;
IDLE:
    st.global.b64 [%rd9], %rd10;
    rem.s64 %rd13, %rd10, 47;
    st.global.b64 [%rd6], %rd13;
    ret;
}
"""
BUFFERS = """
buffer tokens bytes=16 role=input dtype=s64 shape=2x1
buffer lengths bytes=16 role=input dtype=s64 shape=2
buffer carried bytes=16 role=state dtype=s64 shape=2
buffer next bytes=16 role=output dtype=s64 shape=2
"""
STEP = "launch m.step grid=1,1,1 block=2,1,1 args=[next, tokens, lengths, carried]"


CHUNK = """
.visible .entry chunk(.param .u64 .ptr .global next, .param .u64 .ptr .global tokens,
                      .param .u64 .ptr .global lengths, .param .u64 .ptr .global rows,
                      .param .u64 .ptr .global carried)
{
    .reg .pred %p<2>;
    .reg .b64 %rd<16>;
    ld.param.u64 %rd1, [next];
    ld.param.u64 %rd2, [tokens];
    ld.param.u64 %rd3, [lengths];
    ld.param.u64 %rd4, [rows];
    ld.param.u64 %rd5, [carried];
    ld.global.b64 %rd6, [%rd3];
    ld.global.b64 %rd7, [%rd4];
    shl.b64 %rd7, %rd7, 3;
    add.s64 %rd5, %rd5, %rd7;
    ld.global.b64 %rd8, [%rd5];
LOOP:
    setp.eq.s64 %p1, %rd6, 0;
    @%p1 bra DONE;
    ld.global.b64 %rd9, [%rd2];
    mul.lo.s64 %rd8, %rd8, 31;
    add.s64 %rd8, %rd8, %rd9;
    add.s64 %rd8, %rd8, 3;
    rem.s64 %rd8, %rd8, 10007;
    add.s64 %rd2, %rd2, 8;
    sub.s64 %rd6, %rd6, 1;
    bra LOOP;
DONE:
    st.global.b64 [%rd5], %rd8;
    rem.s64 %rd10, %rd8, 47;
    st.global.b64 [%rd1], %rd10;
    ret;
}
"""
CHUNK_BUFFERS = """
buffer tokens bytes=32 role=input dtype=s64 shape=1x4
buffer lengths bytes=8 role=input dtype=s64 shape=1
buffer rows bytes=8 role=input dtype=s64 shape=1
buffer carried bytes=16 role=state dtype=s64 shape=2
buffer next bytes=8 role=output dtype=s64 shape=1
"""
CHUNK_STEP = "launch m.chunk grid=1,1,1 block=1,1,1 args=[next, tokens, lengths, rows, carried]"


def tiny_answer(prompt: Sequence[int], count: int) -> list[int]:
    """What the model answers: a plain loop."""
    value, tokens = 0, list(prompt)
    for number in range(len(prompt) + count - 1):
        value = (value * 31 + tokens[number] + 3) % 10007
        if number >= len(prompt) - 1:
            tokens.append(value % 47)
    return tokens[len(prompt) :]


def tiny_role_plan(
    shares: Sequence[Sequence[float]], hosts: Mapping[str, str] | None = None
) -> Plan:
    """Replicas with these shares of prefill steps (a chunk of 4 tokens) and decode steps."""
    programs = [trace(CHUNK_BUFFERS, CHUNK, CHUNK_STEP), trace(BUFFERS, KERNEL, STEP)]
    placements = [
        [[device] if share > 0 else None for share in own]
        for device, own in zip("abcd", shares, strict=False)
    ]
    return plan_with_roles(programs, placements, shares, hosts=hosts)


def tiny_plan(replicas: int = 2) -> Plan:
    """So many replicas, each on a card of its own with one batch of two rows."""
    parts = [
        plan_of([trace(BUFFERS, KERNEL, STEP)], [[name]], slots=1, lanes=1)
        for name in "abcd"[:replicas]
    ]
    whole = parts[0]
    return replace(
        whole,
        cards=tuple(card for part in parts for card in part.cards),
        devices=tuple(device for part in parts for device in part.devices),
        replicas=tuple(replace(part.replicas[0], share=1 / replicas) for part in parts),
    )


def fault_in_one_replica(engine: Engine) -> None:
    """A poisoned prompt ends with a fault, and no other answer with it."""
    expected = engine.generate([[1, 2], [3]], max_tokens=12)
    good = [engine.submit([1, 2], max_tokens=12), engine.submit([3], max_tokens=12)]
    bad = engine.submit([5, POISON], max_tokens=3)
    also = [engine.submit([1, 2], max_tokens=12) for _ in range(5)]
    with pytest.raises(TesseraError):
        bad.result(LIMIT_S)
    assert bad.ended == "fault"
    for number, answer in enumerate([*good, *also]):
        assert answer.result(LIMIT_S) == expected[1 if number == 1 else 0]
    assert engine.counts.restarts == 2
    assert engine.generate([[1, 2]], max_tokens=12) == expected[:1]
