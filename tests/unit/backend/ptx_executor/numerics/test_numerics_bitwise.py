from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from tessera.backend.ptx_executor.numerics import bitwise, compare
from tests.helpers.each import each

COUNT = 600


def words(width, seed, small=None):
    rng = random.Random(seed)
    values = [rng.getrandbits(width) for _ in range(COUNT)]
    if small is not None:
        values = [rng.randrange(small) if rng.random() < 0.9 else v for v in values]
    else:
        values = [rng.choice([0, 1, (1 << width) - 1, 1 << (width - 1), v, v]) for v in values]
    return np.array(values, f"uint{width}")


def check(got, reference, *columns):
    mask = (1 << (got.dtype.itemsize * 8)) - 1
    for lane, row in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        expected = reference(*row) & mask
        assert int(got[lane]) == expected, (
            [hex(x) for x in row],
            hex(int(got[lane])),
            hex(expected),
        )


def bit(value, index):
    return value >> index & 1


def to_signed(value, width):
    return value - (1 << width) if value >> (width - 1) else value


@each(range(256))
def test_lop3_follows_its_table(lut):
    a, b, c = 0xF0, 0xCC, 0xAA
    assert int(bitwise.lop3(a, b, c, lut)[0]) & 0xFF == lut


def test_lop3_bool():
    value, p = bitwise.lop3_bool("or", np.array([0, 1], np.uint32), 0xFFFFFFFF, 0, 0xC0, False)
    assert value.tolist() == [0, 1]
    assert p.tolist() == [False, True]
    assert bitwise.lop3_bool("and", 1, 1, 0, 0xC0, False)[1].tolist() == [False]


@pytest.mark.parametrize("width", [16, 32, 64])
def test_shifts_clamp(width):
    a, n = words(width, 1), words(32, 2, small=width + 4)
    mask = (1 << width) - 1
    check(bitwise.shl(f"b{width}", a, n), lambda x, y: x << min(y, width), a, n)
    check(bitwise.shr(f"u{width}", a, n), lambda x, y: (x & mask) >> min(y, width), a, n)
    check(bitwise.shr(f"s{width}", a, n), lambda x, y: to_signed(x, width) >> min(y, width), a, n)
    assert bitwise.shl(f"b{width}", a, 3).tolist() == [(x << 3) & mask for x in a.tolist()]
    assert not bitwise.shl(f"b{width}", a, width).any()


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
def test_funnel_shift(mode):
    lo, hi, n = words(32, 1), words(32, 2), words(32, 3, small=40)

    def amount(k):
        return min(k, 32) if mode == "clamp" else k & 31

    check(
        bitwise.shf("l", mode, lo, hi, n),
        lambda a, b, k: ((b << 32 | a) << amount(k)) >> 32,
        lo,
        hi,
        n,
    )
    check(bitwise.shf("r", mode, lo, hi, n), lambda a, b, k: (b << 32 | a) >> amount(k), lo, hi, n)


@pytest.mark.parametrize("width", [32, 64])
def test_counting_and_finding(width):
    a = words(width, 1)
    a[:width] = [1 << i for i in range(width)]
    t = f"b{width}"
    check(bitwise.popc(t, a), lambda x: bin(x).count("1"), a)
    check(bitwise.clz(t, a), lambda x: width - x.bit_length(), a)
    check(bitwise.brev(t, a), lambda x: int(f"{x:0{width}b}"[::-1], 2), a)
    assert bitwise.popc(t, a).dtype == bitwise.clz(t, a).dtype == np.uint32

    def top(x):
        return x.bit_length() - 1

    def flipped(x):
        return x ^ ((1 << width) - 1) if x >> (width - 1) else x

    check(bitwise.bfind(f"u{width}", a), top, a)
    check(bitwise.bfind(f"s{width}", a), lambda x: top(flipped(x)), a)
    amount = bitwise.bfind(f"s{width}", a, shiftamt=True)
    check(amount, lambda x: width - 1 - top(flipped(x)) if flipped(x) else -1, a)


@pytest.mark.parametrize("t", ["u32", "s32", "u64", "s64"])
def test_bit_fields(t):
    width = int(t[1:])
    a, b = words(width, 1), words(width, 2)
    pos, length = words(32, 3, small=80), words(32, 4, small=80)

    def extract(x, p, n):
        p, n = p & 255, n & 255
        sign = bit(x, min(p + n - 1, width - 1)) if t[0] == "s" and n else 0
        return sum((bit(x, p + i) if i < n and p + i < width else sign) << i for i in range(width))

    def insert(x, y, p, n):
        p, n = p & 255, n & 255
        for i in range(n):
            if p + i < width:
                y = y & ~(1 << (p + i)) | bit(x, i) << (p + i)
        return y

    check(bitwise.bfe(t, a, pos, length), extract, a, pos, length)
    check(bitwise.bfi(f"b{width}", a, b, pos, length), insert, a, b, pos, length)


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
def test_masks_and_extension(mode):
    a, b, value = words(32, 1, small=40), words(32, 2, small=40), words(32, 3)

    def mask(start, size):
        if mode == "wrap":
            start, size = start & 31, size & 31
        return ((1 << min(size, 64)) - 1) << min(start, 64)

    def extend(signed):
        def reference(x, n):
            n = n & 31 if mode == "wrap" else min(n, 32)
            low = x & ((1 << n) - 1)
            return low - (1 << n) if signed and n and bit(x, n - 1) else low

        return reference

    check(bitwise.bmsk(mode, a, b), mask, a, b)
    check(bitwise.szext("u32", mode, value, b), extend(False), value, b)
    check(bitwise.szext("s32", mode, value, b), extend(True), value, b)


def test_fns():
    mask, base = words(32, 1), words(32, 2, small=32) & 31
    offset = (words(32, 3, small=9).astype(np.int64) % 9 - 4).astype(np.int32).view(np.uint32)

    def reference(m, start, n):
        n = to_signed(n, 32)
        if n == 0:
            return start if bit(m, start) else -1
        step, count, at = (1 if n > 0 else -1), abs(n), start
        while 0 <= at < 32:
            count -= bit(m, at)
            if count == 0:
                return at
            at += step
        return -1

    check(bitwise.fns(mask, base, offset), reference, mask, base, offset)


def test_prmt():
    a, b, control = words(32, 1), words(32, 2), words(32, 3)

    def source(x, y, index):
        return (y << 32 | x) >> (8 * index) & 255

    def plain(x, y, c):
        result = 0
        for i in range(4):
            field = c >> (4 * i) & 15
            byte = source(x, y, field & 7)
            result |= (0xFF * (byte >> 7) if field & 8 else byte) << (8 * i)
        return result

    check(bitwise.prmt(a, b, control), plain, a, b, control)
    tables = {
        "f4e": ["3210", "4321", "5432", "6543"],
        "b4e": ["5670", "6701", "7012", "0123"],
        "rc8": ["0000", "1111", "2222", "3333"],
        "ecl": ["3210", "3211", "3222", "3333"],
        "ecr": ["0000", "1110", "2210", "3210"],
        "rc16": ["1010", "3232", "1010", "3232"],
    }
    for mode, rows in tables.items():

        def by_table(x, y, c, rows=rows):
            return sum(
                source(x, y, int(digit)) << (8 * i) for i, digit in enumerate(reversed(rows[c & 3]))
            )

        check(bitwise.prmt(a, b, control, mode), by_table, a, b, control)


def test_cnot_is_one_for_zero():
    assert bitwise.cnot("b32", np.array([0, 5], np.uint32)).tolist() == [1, 0]


def test_integer_comparisons_respect_the_sign():
    a = np.array([0xFFFFFFFF, 1, 5], np.uint32)
    assert compare.compare("lt", "s32", a, 1).tolist() == [True, False, False]
    assert compare.compare("lt", "u32", a, 2).tolist() == [False, True, False]
    assert compare.compare("lo", "s32", a, 2).tolist() == [False, True, False]
    assert compare.compare("hs", "u32", a, 5).tolist() == [True, False, True]
    assert compare.compare("eq", "b16", 0x8000, 0x8000).tolist() == [True]


FLOATS = {
    "f32": (0x7FC00000, 0x3F800000, 0x40000000, 0x80000000, 0),
    "f64": (0x7FF8 << 48, 0x3FF0 << 48, 0x4000 << 48, 1 << 63, 0),
    "f16": (0x7E00, 0x3C00, 0x4000, 0x8000, 0),
    "bf16": (0x7FC0, 0x3F80, 0x4000, 0x8000, 0),
}
VALUES = (float("nan"), 1.0, 2.0, -0.0, 0.0)


@pytest.mark.parametrize("t", FLOATS)
def test_float_comparisons(t):
    ordered = {
        "eq": lambda x, y: x == y,
        "ne": lambda x, y: x < y or x > y,
        "lt": lambda x, y: x < y,
        "le": lambda x, y: x <= y,
        "gt": lambda x, y: x > y,
        "ge": lambda x, y: x >= y,
    }
    for (a, x), (b, y) in itertools.product(zip(FLOATS[t], VALUES, strict=True), repeat=2):
        unordered = x != x or y != y
        for op, reference in ordered.items():
            assert compare.compare(op, t, a, b)[0] == reference(x, y), (op, x, y)
            assert compare.compare(op + "u", t, a, b)[0] == (unordered or reference(x, y)), (
                op,
                x,
                y,
            )
        assert compare.compare("num", t, a, b)[0] == (not unordered)
        assert compare.compare("nan", t, a, b)[0] == unordered


def test_comparison_with_ftz_and_pairs():
    assert compare.compare("eq", "f32", 1, 0, ftz=True)[0]
    assert not compare.compare("eq", "f32", 1, 0)[0]
    low, high = compare.compare_x2("lt", "f16x2", 0x40003C00, 0x3C004000)
    assert (low.tolist(), high.tolist()) == ([True], [False])


def test_set_and_selection():
    p = np.array([True, False])
    assert compare.set_result("s32", p).tolist() == [0xFFFFFFFF, 0]
    assert compare.set_result("f32", p).tolist() == [0x3F800000, 0]
    assert compare.set_result_x2("f16x2", p, ~p).tolist() == [0x00003C00, 0x3C000000]
    assert compare.set_result_x2("u16", p, ~p).tolist() == [0x0000FFFF, 0xFFFF0000]
    assert compare.selp("b32", 1, 2, p).tolist() == [1, 2]
    assert compare.selp("f64", 1, 2, p).dtype == np.uint64
    c = np.array([0, 0xFFFFFFFF, 0x80000000], np.uint32)
    assert compare.slct("u32", "s32", 1, 2, c).tolist() == [1, 2, 2]
    assert compare.slct("u32", "f32", 1, 2, c).tolist() == [1, 2, 1]
