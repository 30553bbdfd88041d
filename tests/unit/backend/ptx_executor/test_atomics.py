"""Atomics against a plain loop over the lanes, with few and with many conflicts."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers.cpu_kernels import run

MASK = {32: (1 << 32) - 1, 64: (1 << 64) - 1}


def signed(value: int, width: int) -> int:
    return value - (1 << width) if value >> (width - 1) else value


def apply(op: str, kind: str, old: int, b: int) -> int:
    width = int(kind[1:])
    if op == "add":
        return (old + b) & MASK[width]
    if op in ("min", "max"):
        pick = min if op == "min" else max
        if kind[0] == "s":
            return pick((old, b), key=lambda v: signed(v, width))
        return pick(old, b)
    if op == "inc":
        return 0 if old >= b else old + 1
    if op == "dec":
        return b if old == 0 or old > b else old - 1
    return {"and": old & b, "or": old | b, "xor": old ^ b, "exch": b}[op]


CASES = [
    *[("add", k) for k in ("u32", "s32", "u64")],
    *[(op, k) for op in ("min", "max") for k in ("u32", "s32", "u64", "s64")],
    *[(op, k) for op in ("and", "or", "xor", "exch") for k in ("b32", "b64")],
    ("inc", "u32"),
    ("dec", "u32"),
]


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("spread", [1, 7, 64])
@pytest.mark.parametrize(("op", "kind"), CASES)
def test_integers_in_lane_order(op: str, kind: str, spread: int, space: str):
    """Each lane combines a value made from its number into word (lane % spread)."""
    width = int(kind[1:])
    size = width // 8
    register = "%rd" if width == 64 else "%r"
    place = "%rd7" if space == "shared" else "%rd8"
    body = f"""
        .shared .align 8 .b8 s[1024];
        rem.u32 %r5, %r1, {spread};
        mul.lo.u32 %r6, %r1, 2654435761;
        cvt.u64.u32 %rd20, %r6;
        shl.b64 %rd21, %rd20, 31;
        xor.b64 %rd20, %rd20, %rd21;
        mov.u32 %r20, %r6;
        mul.lo.u32 %r7, %r5, {size};
        cvt.u64.u32 %rd5, %r7;
        mov.u64 %rd6, s;
        add.u64 %rd7, %rd6, %rd5;
        add.u64 %rd8, %rd1, %rd5;
        setp.ge.u32 %p1, %r1, {spread};
        mul.wide.u32 %rd10, %r1, 8;
        add.u64 %rd11, %rd1, %rd10;
        ld.global.b{width} {register}30, [%rd8];
        @!%p1 st.shared.b{width} [%rd7], {register}30;
        bar.sync 0;
        atom.{space}.{op}.{kind} {register}31, [{place}], {register}20;
        st.global.b{width} [%rd11+2048], {register}31;
        bar.sync 0;
        ld.shared.b{width} {register}32, [%rd7];
        {f"@!%p1 st.global.b{width} [%rd8], {register}32;" if space == "shared" else ""}
    """
    start = np.random.default_rng(1).integers(0, 1 << 63, 512).astype(np.uint64)
    out, _ = run(body, block=160, initial=start)
    kind_of_word = np.uint32 if width == 32 else np.uint64
    memory = start.view(kind_of_word)[:spread].tolist()
    olds = []
    for lane in range(160):
        b = lane * 2654435761 & MASK[32]
        if width == 64:
            b ^= (b << 31) & MASK[64]
        olds.append(memory[lane % spread])
        memory[lane % spread] = apply(op, kind, memory[lane % spread], b)
    assert out.view(kind_of_word)[:spread].tolist() == memory
    assert out[256 : 256 + 160].view(kind_of_word)[:: 64 // width].tolist() == olds


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("spread", [1, 5, 80])
def test_float_sums_in_lane_order(kind: str, spread: int):
    dtype = np.float32 if kind == "f32" else np.float64
    size = dtype().itemsize
    source, register = ("%f1", "%f2") if kind == "f32" else ("%fd1", "%fd2")
    body = f"""
        cvt.rn.{kind}.u32 {source}, %r3;
        mul.{kind} {source}, {source}, {"0f3DCCCCCD" if kind == "f32" else "0d3FB999999999999A"};
        rem.u32 %r5, %r3, {spread};
        mul.wide.u32 %rd5, %r5, {size};
        add.u64 %rd6, %rd1, %rd5;
        atom.global.add.{kind} {register}, [%rd6], {source};
    """
    out, _ = run(body, grid=3, block=100, initial=np.zeros(spread, dtype))
    expected = np.zeros(spread, dtype)
    scale = dtype(np.float32(0.1)) if kind == "f32" else dtype(0.1)
    for lane in range(300):
        expected[lane % spread] += dtype(lane) * scale
    assert (out.view(np.uint8) == expected.view(np.uint8)).all()


def test_compare_and_swap_in_lane_order():
    out, _ = run(
        """
        add.u32 %r5, %r1, 1;
        atom.global.cas.b32 %r6, [%rd1], %r1, %r5;
        st.global.u32 [%rd2+4], %r6;
        """,
        block=100,
        count=101,
    )
    assert out.tolist() == [100, *range(100)]


def test_reductions_and_vectors():
    out, _ = run(
        """
        red.global.add.u32 [%rd1], %r1;
        red.global.max.s32 [%rd1+4], %r1;
        mov.f32 %f1, 0f3F800000;
        red.global.add.v2.f32 [%rd1+8], {%f1, %f1};
        """,
        block=64,
        count=4,
    )
    assert out[:2].tolist() == [64 * 63 // 2, 63]
    assert out[2:].view(np.float32).tolist() == [64, 64]
