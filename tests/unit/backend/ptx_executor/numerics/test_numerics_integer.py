from __future__ import annotations

import random

import numpy as np
import pytest

from tessera.backend.ptx_executor.numerics import integer

TYPES = ["s16", "u16", "s32", "u32", "s64", "u64"]
COUNT = 400


def samples(width, seed):
    rng = random.Random(seed)
    edges = [0, 1, 2, (1 << width) - 1, 1 << (width - 1), (1 << (width - 1)) - 1, 1 << (width // 2)]
    values = [
        rng.choice(edges) if rng.random() < 0.4 else rng.getrandbits(width) for _ in range(COUNT)
    ]
    return np.array(values, f"uint{width}")


def parse(t):
    return int(t[1:]), t[0] == "s"


def to_int(raw, t):
    width, is_signed = parse(t)
    raw &= (1 << width) - 1
    return raw - (1 << width) if is_signed and raw >> (width - 1) else raw


def clamp(value, t):
    width, is_signed = parse(t)
    low, high = (
        (-(1 << (width - 1)), (1 << (width - 1)) - 1) if is_signed else (0, (1 << width) - 1)
    )
    return min(max(value, low), high)


def check(got, reference, *columns, width):
    assert got.dtype == np.dtype(f"uint{width}")
    for lane, row in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        expected = reference(*row) & ((1 << width) - 1)
        assert int(got[lane]) == expected, (
            [hex(x) for x in row],
            hex(int(got[lane])),
            hex(expected),
        )


@pytest.mark.parametrize("t", TYPES)
def test_add_sub_wrap_and_saturate(t):
    width, _ = parse(t)
    a, b = samples(width, 1), samples(width, 2)
    check(integer.add(t, a, b), lambda x, y: x + y, a, b, width=width)
    check(integer.sub(t, a, b), lambda x, y: x - y, a, b, width=width)

    def sat(sign):
        return lambda x, y: clamp(to_int(x, t) + sign * to_int(y, t), t)

    check(integer.add(t, a, b, sat=True), sat(1), a, b, width=width)
    check(integer.sub(t, a, b, sat=True), sat(-1), a, b, width=width)


@pytest.mark.parametrize("t", TYPES)
def test_products(t):
    width, _ = parse(t)
    a, b, c = (samples(width, seed) for seed in (1, 2, 3))

    def product(x, y):
        return to_int(x, t) * to_int(y, t)

    check(integer.mul(t, a, b, "lo"), product, a, b, width=width)
    check(integer.mul(t, a, b, "hi"), lambda x, y: product(x, y) >> width, a, b, width=width)
    check(integer.mad(t, a, b, c, "lo"), lambda x, y, z: product(x, y) + z, a, b, c, width=width)
    hi = integer.mad(t, a, b, c, "hi", sat=True)
    check(
        hi,
        lambda x, y, z: clamp((product(x, y) >> width) + to_int(z, t), t),
        a,
        b,
        c,
        width=width,
    )
    if width == 64:
        with pytest.raises(NotImplementedError):
            integer.mul(t, a, b, "wide")
        return
    d = samples(2 * width, 4)
    check(integer.mul(t, a, b, "wide"), product, a, b, width=2 * width)
    wide = integer.mad(t, a, b, d, "wide")
    check(wide, lambda x, y, z: product(x, y) + z, a, b, d, width=2 * width)


@pytest.mark.parametrize("t", ["s32", "u32"])
def test_products_of_24_bits(t):
    a, b, c = (samples(32, seed) for seed in (1, 2, 3))

    def low24(x):
        x &= 0xFFFFFF
        return x - (1 << 24) if t == "s32" and x >> 23 else x

    check(integer.mul24(t, a, b, "lo"), lambda x, y: low24(x) * low24(y), a, b, width=32)
    check(integer.mul24(t, a, b, "hi"), lambda x, y: low24(x) * low24(y) >> 16, a, b, width=32)
    check(
        integer.mad24(t, a, b, c, "hi", sat=True),
        lambda x, y, z: clamp(to_int(low24(x) * low24(y) >> 16, t) + to_int(z, t), t),
        a,
        b,
        c,
        width=32,
    )


@pytest.mark.parametrize("t", ["u32", "s32", "u64"])
def test_carry_chains(t):
    width, _ = parse(t)
    a, b, c = (samples(width, seed) for seed in (1, 2, 3))
    carry = samples(width, 4) & 1 != 0
    for flag in (None, carry):
        extra = np.zeros(COUNT, int) if flag is None else flag.astype(int)
        total, out = integer.add_carry(t, a, b, flag)
        rest, kept = integer.sub_carry(t, a, b, flag)
        mad, mad_out = integer.mad_carry(t, a, b, c, "hi", flag)
        for i, (x, y, z, e) in enumerate(
            zip(a.tolist(), b.tolist(), c.tolist(), extra.tolist(), strict=True)
        ):
            assert int(total[i]) + (int(out[i]) << width) == x + y + e
            taken = 0 if flag is None else 1 - e
            assert int(rest[i]) - (int(not kept[i]) << width) == x - y - taken
            high = (to_int(x, t) * to_int(y, t) >> width) & ((1 << width) - 1)
            assert int(mad[i]) + (int(mad_out[i]) << width) == high + z + e


@pytest.mark.parametrize("t", TYPES)
def test_division_truncates_and_never_raises(t):
    width, _ = parse(t)
    a, b = samples(width, 1), samples(width, 2)

    def quotient(x, y):
        x, y = to_int(x, t), to_int(y, t)
        return -1 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)

    def remainder(x, y):
        return -1 if y == 0 else to_int(x, t) - quotient(x, y) * to_int(y, t)

    check(integer.div(t, a, b), quotient, a, b, width=width)
    check(integer.rem(t, a, b), remainder, a, b, width=width)


@pytest.mark.parametrize("t", TYPES)
def test_order_and_magnitude(t):
    width, _ = parse(t)
    a, b, c = (samples(width, seed) for seed in (1, 2, 3))
    ints = lambda f: lambda *xs: f(*(to_int(x, t) for x in xs))  # noqa: E731
    check(integer.min(t, a, b), ints(min), a, b, width=width)
    check(integer.max(t, a, b), ints(max), a, b, width=width)
    relu = integer.min(t, a, b, relu=True)
    check(relu, ints(lambda x, y: max(min(x, y), 0)), a, b, width=width)
    check(integer.neg(t, a), lambda x: -x, a, width=width)
    if t[0] == "s":
        check(integer.abs(t, a), ints(abs), a, width=width)
    check(integer.sad(t, a, b, c), ints(lambda x, y, z: z + abs(x - y)), a, b, c, width=width)


def test_pairs_of_16_bits_do_not_carry_into_each_other():
    a, b = np.array([0x0001FFFF], np.uint32), np.array([0x00010001], np.uint32)
    assert integer.add("u16x2", a, b)[0] == 0x00020000
    assert integer.min("s16x2", 0x0001FFFF, 0xFFFE0001)[0] == 0xFFFEFFFF
    assert integer.max("u16x2", 0x0001FFFF, 0xFFFE0001)[0] == 0xFFFEFFFF
    assert integer.min("s16x2", 0x0001FFFF, 0xFFFE0001, relu=True)[0] == 0
    assert integer.neg("s16x2", 0x00010000)[0] == 0xFFFF0000


@pytest.mark.parametrize("at", ["u32", "s32"])
@pytest.mark.parametrize("bt", ["u32", "s32"])
def test_dot_products(at, bt):
    a, b, c = (samples(32, seed) for seed in (1, 2, 3))

    def part(x, t, size, index):
        return to_int(x >> (size * index), f"{t[0]}{size}")

    def four(x, y, z):
        return z + sum(part(x, at, 8, i) * part(y, bt, 8, i) for i in range(4))

    def two(first):
        return lambda x, y, z: (
            z + sum(part(x, at, 16, i) * part(y, bt, 8, first + i) for i in range(2))
        )

    check(integer.dp4a(at, bt, a, b, c), four, a, b, c, width=32)
    check(integer.dp2a(at, bt, "lo", a, b, c), two(0), a, b, c, width=32)
    check(integer.dp2a(at, bt, "hi", a, b, c), two(2), a, b, c, width=32)


def test_scalars_and_broadcasting():
    assert integer.add("s32", -1, 1).tolist() == [0]
    assert integer.add("u16", np.uint16(65535), np.array(2, np.uint16)).shape == (1,)
    assert integer.mul("u32", np.arange(4, dtype=np.uint32), 3).tolist() == [0, 3, 6, 9]
    with pytest.raises(NotImplementedError, match=r"\.f32"):
        integer.add("f32", 1, 2)
