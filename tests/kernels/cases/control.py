"""Control flow: recursion, calls through pointers, jump tables, divergence, structs, arrays."""

from __future__ import annotations

import struct

import numpy as np

from tests.kernels.case import Case, Expect, Launch, Run, Struct
from tests.kernels.rng import Rng

I32 = np.int32


def wrap(value: int) -> int:
    """An integer as C's 32-bit int holds it."""
    return (value + 2**31) % 2**32 - 2**31


def ackermann(m: int, n: int) -> int:
    if m == 0:
        return n + 1
    return ackermann(m - 1, 1) if n == 0 else ackermann(m - 1, ackermann(m, n - 1))


def recursion(rng: Rng) -> Run:
    count = 45
    m, n = rng.integers(0, 3, count), rng.integers(0, 4, count)
    expected = np.array(
        [ackermann(*pair) for pair in zip(m.tolist(), n.tolist(), strict=True)], I32
    )
    launch = Launch("recursion", 1, 64, ["out", "m", "n", I32(count)])
    return Run({"out": np.zeros(count, I32), "m": m, "n": n}, [launch], {"out": expected})


def indirect(rng: Rng) -> Run:
    n = 100
    x, which = rng.f32(n), rng.integers(0, 3, n)
    expected = np.choose(which, [x * 2, -x, x * x]) + np.float32(1)
    buffers = {"out": np.zeros(n, np.float32), "x": x, "which": which}
    launch = Launch("indirect", 2, 64, ["out", "x", "which", I32(n)])
    return Run(buffers, [launch], {"out": expected})


def reverse_bits(value: int) -> int:
    return wrap(int(f"{value % 2**32:032b}"[::-1], 2))


def switched(op: int, v: int, old: int) -> int:
    if op == 3:
        for k in range(5):
            v = wrap(v * 3 + k)
    results = {
        0: v + 17,
        1: v * v,
        2: reverse_bits(v),
        3: v ^ 0x5555,
        4: v ^ 0x5555,
        5: int(v / 7),
        6: old - v,
        7: old,
    }
    return wrap(results.get(op, -1))


def switches(rng: Rng) -> Run:
    n = 190
    op, a, out = rng.integers(-1, 10, n), rng.bits(I32, n), rng.bits(I32, n)
    rows = zip(op.tolist(), a.tolist(), out.tolist(), strict=True)
    expected = np.array([switched(*row) for row in rows], I32)
    launch = Launch("switches", 3, 64, ["out", "op", "a", I32(n)])
    return Run({"out": out, "op": op, "a": a}, [launch], {"out": expected})


def interpret(program: list[int], acc: int, index: int) -> int:
    other, pc = index, index % 5
    for _ in range(40):
        code = program[pc]
        if code == 0:
            acc += other
        elif code == 1:
            acc -= 3
        elif code == 2:
            other ^= acc
        elif code == 3:
            acc *= 5
        elif code == 4:
            pc += 2 * (acc & 1)
        elif code == 5:
            other = (acc % 2**32).bit_count()
        elif code == 6:
            acc = (acc % 2**32) >> 1
        elif code == 7:
            acc, other = other, acc
        elif code == 8:
            acc = max(acc, other)
        elif code == 9:
            pc = (pc + other) & 15
        elif code == 10:
            acc = ~acc
        elif code == 11:
            return acc
        elif code == 12:
            other += program[(pc + 1) & 31]
        else:
            acc = 32 - (other % 2**32).bit_length()
        acc, other = wrap(acc), wrap(other)
        pc = (pc + 1) & 31
    return wrap(acc + other)


def interpreter(rng: Rng) -> Run:
    n = 150
    program, seed = rng.integers(0, 15, 40, dtype=np.uint8), rng.bits(I32, n)
    program[program == 11] = 3
    program[13] = 11
    expected = [interpret(program.tolist(), s, i) for i, s in enumerate(seed.tolist())]
    launch = Launch("interpreter", 2, 96, ["out", "program", "seed", I32(n)])
    buffers = {"out": np.zeros(n, I32), "program": program, "seed": seed}
    return Run(buffers, [launch], {"out": np.array(expected, I32)})


def collatz_steps(v: int) -> int:
    count = 0
    while v != 1:
        v = 3 * v + 1 if v & 1 else v >> 1
        count += 1
        if count == 100:
            break
    return count


def collatz(rng: Rng) -> Run:
    n = 203
    start = rng.integers(1, 10000, n, dtype=np.uint32)
    launch = Launch("collatz", 4, 64, ["steps", "start", I32(n)])
    expected = np.array([collatz_steps(v) for v in start.tolist()], I32)
    return Run({"steps": np.zeros(n, I32), "start": start}, [launch], {"steps": expected})


def nested_value(v: int) -> int:
    total = 0
    for a in range(v & 7):
        if a == 5:
            continue
        for b in range(a, (v >> 3) & 7):
            if a ^ b == 6:
                break
            if v & (1 << b):
                total += a * b + 1
                if total > 60:
                    return -total
            elif v & (2 << a):
                total -= 1
            else:
                total += 2
                while total & 3:
                    total += 2
    return total


def nested(rng: Rng) -> Run:
    n = 250
    # An even total before `do total += 2 while total & 3` keeps that loop finite.
    x = np.array([v for v in rng.integers(0, 1 << 16, 4000).tolist() if ends(v)][:n], I32)
    expected = np.array([nested_value(v) for v in x.tolist()], I32)
    launch = Launch("nested", 4, 64, ["out", "x", I32(n)])
    return Run({"out": np.zeros(n, I32), "x": x}, [launch], {"out": expected})


def ends(v: int) -> bool:
    """Whether `nested_value` ends: its inner loop never does from an odd total."""
    total = 0
    for a in range(v & 7):
        for b in range(a, (v >> 3) & 7) if a != 5 else ():
            if a ^ b == 6:
                break
            if v & (1 << b):
                total += a * b + 1
                if total > 60:
                    return True
            elif v & (2 << a):
                total -= 1
            else:
                if total & 1:
                    return False
                total += 2 + (total + 2) % 4
    return True


def barrier_in_loop(rng: Rng) -> Run:
    blocks, rounds = 3, 5
    x = rng.bits(I32, blocks, 64)
    expected = x.copy()
    for block in range(blocks):
        stage = x[block].astype(np.int64)
        for r in range(rounds + block):
            stage = (stage * 3 + np.roll(stage, -(r + 1))) % 2**32
        expected[block] = stage.astype(np.uint32).view(I32)
    launch = Launch("barrier_in_loop", blocks, 64, ["out", "x", I32(rounds)])
    return Run({"out": np.zeros_like(x), "x": x}, [launch], {"out": expected})


def struct_param(rng: Rng) -> Run:
    n = 77
    x = rng.f32(n)
    points = [(3, -2, 0.5), (-7, 100, 2.0), (0, 9, -1.25)]
    packed = b"".join(struct.pack("<hhf", *point) for point in points)
    data = struct.pack("<QQibxxxd", 0, 0, n, -5, 1.5) + packed
    px, py, weight = (np.array(column)[np.arange(n) % 3] for column in zip(*points, strict=True))
    expected = Expect(x * 1.5 + px - py * weight - 5, rtol=1e-6, atol=2e-5)
    launch = Launch("struct_param", 2, 64, [Struct(data, {0: "out", 8: "x"})])
    return Run({"out": np.zeros(n, np.float32), "x": x}, [launch], {"out": expected})


def unaligned(rng: Rng) -> Run:
    n = 50
    layout = np.dtype([("kind", "u1"), ("value", "<u4"), ("tail", "<u2")])
    x = rng.bits(np.uint8, n * 7)
    records = x.view(layout)[::-1].copy()
    records["value"] += records["kind"]
    records["tail"] ^= 0xFF00
    launch = Launch("unaligned", 1, 64, ["out", "x", I32(n)])
    return Run(
        {"out": np.zeros(n * 7, np.uint8), "x": x}, [launch], {"out": records.view(np.uint8)}
    )


def local_value(v: int) -> int:
    stack = [k * k for k in range(32)]
    for k in range(20):
        stack[(v >> (k & 15)) & 31] += k + 1
    top = 0
    while v:
        stack[top & 31] = wrap(stack[top & 31] ^ v)
        v = (v % 2**32) >> 3
        top += 1
    total = 0
    for entry in stack:
        total = wrap(total * 31 + entry)
    return total


def local_array(rng: Rng) -> Run:
    n = 99
    x = rng.bits(I32, n)
    expected = np.array([local_value(v) for v in x.tolist()], I32)
    launch = Launch("local_array", 2, 64, ["out", "x", I32(n)])
    return Run({"out": np.zeros(n, I32), "x": x}, [launch], {"out": expected})


BUILDERS = (
    recursion,
    indirect,
    switches,
    interpreter,
    collatz,
    nested,
    barrier_in_loop,
    struct_param,
    unaligned,
    local_array,
)
CASES = tuple(Case(build.__name__, "control", build) for build in BUILDERS)
