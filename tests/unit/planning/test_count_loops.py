"""Loops in closed form count what walking every round counts; plain functions are the slow ones."""

from __future__ import annotations

import random

import pytest

from tessera.diagnostics import Source
from tessera.frontend.ptx.read_ptx import parse_source
from tessera.ir.ptx import syntax as ptx
from tessera.planning.prices import thread_walk
from tessera.planning.prices.integer_functions import plain_function
from tessera.planning.prices.integer_values import value_of
from tessera.planning.prices.loop_forms import FOREVER, room, turns
from tessera.planning.prices.thread_code import ThreadCode, thread_code
from tessera.planning.prices.thread_walk import Tally, ThreadWalk
from tests.helpers.share import share

HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u32 n, .param .u32 m)
{
    .reg .pred %p<20>;
    .reg .b32 %r<60>;
    .reg .b64 %rd<20>;
    .reg .f32 %f<4>;
    ld.param.u32 %r1, [n];
    ld.param.u32 %r2, [m];
"""


def code_of(body: str) -> ThreadCode:
    module = parse_source(Source("loop.ptx", HEAD + body + "\n    ret;\n}\n"))
    return thread_code(next(iter(module.kernels())))


def walked(body: str, n: int, m: int) -> Tally:
    code = code_of(body)
    values: list[int | None] = [None] * len(code.places)
    return ThreadWalk(code, {"fp32": 0}, values, {"n": n, "m": m}, 0).run()


def plain_walk(monkeypatch: pytest.MonkeyPatch, body: str, n: int, m: int) -> Tally:
    with monkeypatch.context() as patch:
        patch.setattr(thread_walk, "_PERIODS", ())
        patch.setattr(thread_walk, "_MOST_STEPS", 10_000_000)
        return walked(body, n, m)


def random_body(rng: random.Random) -> str:
    """Up to two nested loops with counters, wraps, masks, shifts and guarded work."""
    step, inner_step = rng.choice((1, 2, 3, 16, -1)), rng.choice((1, 4, 32))
    sign = rng.choice("su")
    going_down = step < 0
    first = "%r1" if going_down else str(rng.choice((0, 5, 100)))
    until = "gt" if going_down else "lt"
    bound = str(rng.choice((0, 3))) if going_down else "%r1"
    sign = "s" if going_down else sign
    inner = f"""
    mov.u32 %r6, {rng.choice(("0", "%r3"))};
IN: add.f32 %f1, %f1, %f1;
    add.s32 %r6, %r6, {inner_step};
    setp.{rng.choice(("lt", "le"))}.s32 %p3, %r6, {rng.choice(("%r2", "%r1"))};
    @%p3 bra IN;"""
    pool = [
        f"and.b32 %r7, %r3, {rng.choice((1, 3, 7, 0xFFFFFFFC))}; setp.eq.s32 %p4, %r7, 0;",
        "add.s32 %r8, %r8, 1; setp.ge.s32 %p5, %r8, 3; selp.b32 %r8, 0, %r8, %p5;",
        "xor.b32 %r9, %r9, 1; setp.ne.s32 %p4, %r9, 0;",
        f"shr.u32 %r7, %r3, {rng.choice((1, 2))}; setp.gt.u32 %p4, %r7, {rng.choice((9, 50))};",
        "min.s32 %r7, %r3, 40; setp.lt.s32 %p4, %r7, 40;",
        f"rem.u32 %r7, %r3, {rng.choice((2, 3, 4))}; setp.eq.s32 %p4, %r7, 0;",
        f"setp.eq.s32 %p4, %r3, {rng.choice((33, 64, 77))};",
        "mul.lo.s32 %r7, %r3, 12; or.b32 %r7, %r7, 3; setp.lt.s32 %p4, %r7, 500;",
        "mul.lo.s32 %r7, %r3, %r3; setp.lt.s32 %p4, %r7, 3000;",
        "mov.b64 %rd1, {%r50, %r3}; mov.b64 {_, %r7}, %rd1; setp.lt.s32 %p4, %r7, 60;",
    ]
    chosen = "\n    ".join(
        f"{text}\n    @%p{rng.choice((4, 5))} fma.rn.f32 %f2, %f2, %f2, %f2;"
        for text in rng.sample(pool, rng.randint(0, 3))
    )
    return f"""
    mov.u32 %r3, {first};
    mov.u32 %r8, 0; mov.u32 %r9, 0;
    setp.eq.s32 %p4, %r1, 3; setp.eq.s32 %p5, %r1, 4;
OUT:
    {chosen}{inner if rng.random() < 0.5 else ""}
    add.s32 %r3, %r3, {step};
    setp.{until}.{sign}32 %p1, %r3, {bound};
    @%p1 bra OUT;"""


@pytest.mark.parametrize("seed", share(range(60)))
def test_closed_forms_count_what_every_round_counts(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    body, n, m = random_body(rng), rng.randint(1, 90), rng.randint(1, 40)
    fast, slow = walked(body, n, m), plain_walk(monkeypatch, body, n, m)
    assert fast.counts == slow.counts
    assert fast.sure == slow.sure
    assert fast.walked <= slow.walked


@pytest.mark.parametrize("seed", share(range(12)))
def test_long_loops_take_few_steps(seed: int) -> None:
    body = """
    mov.u32 %r3, 0; mov.u32 %r8, 0;
OUT:
    add.s32 %r8, %r8, 1; setp.ge.s32 %p5, %r8, PERIOD; selp.b32 %r8, 0, %r8, %p5;
    @%p5 add.f32 %f1, %f1, %f1;
    mov.u32 %r6, 0;
IN: fma.rn.f32 %f1, %f1, %f1, %f1;
    add.s32 %r6, %r6, 1;
    setp.ne.s32 %p3, %r6, %r2;
    @%p3 bra IN;
    add.s32 %r3, %r3, 1;
    setp.lt.s32 %p1, %r3, %r1;
    @%p1 bra OUT;"""
    rng = random.Random(seed)
    period, n, m = rng.randint(1, 6), rng.randint(10**3, 10**7), rng.randint(10**3, 10**7)
    found = walked(body.replace("PERIOD", str(period)), n, m)
    assert found.counts[thread_walk.UNITS] == 2.0 * n * m + n // period
    assert found.sure
    assert found.walked < 20_000


def test_a_loop_without_end_is_not_sure() -> None:
    found = walked("L: add.f32 %f1, %f1, %f1;\n bra L;", 1, 1)
    assert not found.sure
    assert found.walked < 100


def test_a_data_dependent_loop_is_not_jumped_over() -> None:
    found = walked("L: ld.global.u32 %r5, [%rd1];\n setp.ne.s32 %p1, %r5, 0;\n @!%p1 bra L;", 1, 1)
    assert not found.sure


def test_room_and_turns_against_counting() -> None:
    rng = random.Random(3)
    checks = {
        "lt": lambda d: d < 0,
        "le": lambda d: d <= 0,
        "gt": lambda d: d > 0,
        "ge": lambda d: d >= 0,
        "eq": lambda d: d == 0,
        "ne": lambda d: d != 0,
    }
    for _ in range(1000):
        distance, rise = rng.randint(-40, 40), rng.randint(-9, 9)
        name = rng.choice(list(checks))
        now = checks[name](distance)
        most = next((t for t in range(100) if checks[name](distance + (t + 1) * rise) != now), 100)
        found = turns(distance, rise, name)
        assert found == most or (most == 100 and found == FOREVER)
        value = rng.randint(0, 255)
        half = range(128, 256) if value >= 128 else range(128)
        most = next((t for t in range(300) if value + (t + 1) * rise not in half), 300)
        assert room(value, rise, 8) == (FOREVER if rise == 0 else most)


OPCODES = (
    "add.s32",
    "add.u64",
    "sub.s32",
    "sub.u16",
    "neg.s32",
    "mov.b32",
    "mov.u64",
    "not.b32",
    "not.pred",
    "and.b32",
    "and.pred",
    "or.b32",
    "xor.b32",
    "xor.pred",
    "shl.b32",
    "shl.b64",
    "shr.u32",
    "shr.s32",
    "shr.s64",
    "selp.b32",
    "selp.u64",
    "min.s32",
    "min.u32",
    "max.s64",
    "div.s32",
    "div.u32",
    "rem.s32",
    "rem.u32",
    "mul.lo.s32",
    "mul.lo.u64",
    "mul.wide.s32",
    "mul.wide.u32",
    "mul.wide.u16",
    "mad.lo.s32",
    "mad.wide.u32",
    "mad.wide.s32",
    "cvt.u32.u64",
    "cvt.s64.s32",
    "cvt.u64.u32",
    "cvt.u16.u32",
    "cvt.s32.s8",
    "setp.lt.s32",
    "setp.le.u32",
    "setp.gt.s64",
    "setp.ge.u16",
    "setp.eq.b32",
    "setp.ne.s32",
    "setp.lo.u32",
    "setp.hs.u32",
    "setp.lt.and.s32",
    "setp.eq.or.b32",
)


@pytest.mark.parametrize("text", OPCODES)
def test_plain_functions_are_the_slow_ones(text: str) -> None:
    name, *modifiers = text.split(".")
    opcode = ptx.Opcode(name, tuple(modifiers))
    count = {"selp": 3, "mad": 3, "neg": 1, "mov": 1, "not": 1, "cvt": 1}.get(name, 2)
    count += name == "setp" and len(modifiers) == 3
    made = plain_function(opcode, count)
    assert made is not None
    rng = random.Random(text)
    for _ in range(60):
        numbers = [rng.choice((0, 1, 2, 31, 40, 2**31 - 1, 2**31, 2**32 - 1)) for _ in range(count)]
        if "pred" in modifiers:
            numbers = [n & 1 for n in numbers]
        if name in ("selp", "setp") and count == 3:
            numbers[2] &= 1
        slow = value_of(opcode, tuple(numbers))
        try:
            assert slow is None or made[0](*numbers) == slow % (1 << made[1].result_bits), numbers
        except ZeroDivisionError:
            assert numbers[1] == 0 or numbers[1] % 2**32 == 0
