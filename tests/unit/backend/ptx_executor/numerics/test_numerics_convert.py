from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from tessera.backend.ptx_executor.numerics import quiet
from tessera.backend.ptx_executor.numerics.convert import cvt, cvt_pack
from tests.helpers.each import each
from tests.helpers.numerics_reference import SHAPES, encode, random_bits, value

MODES = ["rn", "rz", "rm", "rp"]
INTEGERS = ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"]
ALL_HALVES = np.arange(65536, dtype=np.uint16)


@pytest.fixture(autouse=True)
def _quiet():
    with quiet():
        yield


def sign_of(raw, t):
    return raw >> (SHAPES[t][0] - 1)


@pytest.mark.parametrize("dt", ["f32", "f64"])
def test_every_f16_widens_exactly(dt):
    got = cvt(dt, "f16", ALL_HALVES)
    wide = ALL_HALVES.view(np.float16).astype(np.float32 if dt == "f32" else np.float64)
    nan = np.isnan(wide)
    assert np.array_equal(got[~nan], wide.view(got.dtype)[~nan])
    assert np.isnan(got.view(wide.dtype)[nan]).all()


def test_every_bf16_widens_exactly():
    got = cvt("f32", "bf16", ALL_HALVES)
    expected = ALL_HALVES.astype(np.uint32) << 16
    assert np.array_equal(got, expected)


def neighbours_of_ties(t):
    """f32 values on, just below and just above every half-way point of a 16-bit format."""
    if t == "bf16":
        ties = (np.arange(0x8000, dtype=np.uint32) << 16) | 0x8000
    else:
        finite = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
        following = np.append(finite[1:], 65536.0)
        ties = ((finite + following) / 2).astype(np.float32).view(np.uint32)
    spread = np.concatenate([ties - 1, ties, ties + 1])
    return np.concatenate([spread, spread | 0x80000000])


def test_f32_to_f16_at_every_tie():
    raw = neighbours_of_ties("f16")
    got = cvt("f16", "f32", raw, rounding="rn")
    expected = raw.view(np.float32).astype(np.float16).view(np.uint16)
    assert np.array_equal(got, expected)


def test_f32_to_bf16_at_every_tie():
    raw = neighbours_of_ties("bf16")
    got = cvt("bf16", "f32", raw, rounding="rn").astype(np.int64)
    low, high = raw & 0xFFFF, (raw >> 16).astype(np.int64)
    up = (low > 0x8000) | ((low == 0x8000) & (high & 1 == 1))
    expected = high + up
    nan = (raw & 0x7FFFFFFF) > 0x7F800000
    expected[nan] = 0x7FFF
    assert np.array_equal(got, expected)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("dt", "st"),
    [(d, s) for s in ("f32", "f64") for d in ("f16", "bf16")] + [("f32", "f64"), ("bf16", "f16")],
)
def test_float_narrowing_in_every_mode(dt, st, mode):
    raw = random_bits(st, 1500, 7)
    if st == "f64":
        # Values near the narrow format's own range, so that not everything overflows.
        raw[::2] = random_bits("f32", 750, 8).view(np.float32).astype(np.float64).view(np.uint64)
        raw[1::4] ^= np.uint64(1)
    got = cvt(dt, st, raw, rounding=mode)
    for lane, bits in enumerate(raw.tolist()):
        exact = value(st, bits)
        if st == "f64" and exact != exact:
            assert value(dt, int(got[lane])) != value(dt, int(got[lane]))
            continue
        expected = encode(dt, exact, mode, sign_of(bits, st))
        assert int(got[lane]) == expected, (hex(bits), hex(int(got[lane])), hex(expected))


@pytest.mark.parametrize("rounding", ["rni", "rzi", "rmi", "rpi"])
@pytest.mark.parametrize("t", ["f16", "f32", "f64"])
def test_rounding_to_integral_floats(t, rounding):
    raw = random_bits(t, 1000, 3)
    got = cvt(t, t, raw, rounding=rounding)
    for lane, bits in enumerate(raw.tolist()):
        exact = value(t, bits)
        if t == "f64" and exact != exact:
            assert int(got[lane]) == bits | 1 << 51
            continue
        if isinstance(exact, Fraction):
            exact = Fraction(round_integral(exact, rounding))
        assert int(got[lane]) == encode(t, exact, "rn", sign_of(bits, t)), hex(bits)


def round_integral(exact, rounding):
    return {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}[rounding](exact)


def bounds(t):
    width = int(t[1:])
    return (-(1 << (width - 1)), (1 << (width - 1)) - 1) if t[0] == "s" else (0, (1 << width) - 1)


@each(product(INTEGERS, ("f16", "bf16", "f32", "f64"), ("rni", "rzi", "rmi", "rpi")))
def test_float_to_integer_clamps(dt, st, rounding):
    width = int(dt[1:])
    raw = random_bits(st, 300, 5)
    rng = np.random.default_rng(9)
    scaled = rng.standard_normal(300) * 2.0 ** rng.integers(0, width + 1, 300)
    typed = {"f32": np.float32, "f64": np.float64, "f16": np.float16}.get(st)
    if typed is not None:
        raw = np.concatenate([raw, scaled.astype(typed).view(raw.dtype)])
    got = cvt(dt, st, raw, rounding=rounding)
    low, high = bounds(dt)
    for lane, bits in enumerate(raw.tolist()):
        exact = value(st, bits)
        if exact != exact:
            expected = 1 << (width - 1) if width == 64 or st == "f64" else 0
            expected = expected if dt[0] == "u" or expected == 0 else -expected
        elif isinstance(exact, float):
            expected = high if exact > 0 else low
        else:
            expected = min(max(round_integral(exact, rounding), low), high)
        mask = (1 << max(width, 16)) - 1
        assert int(got[lane]) == expected & mask, (hex(bits), hex(int(got[lane])), expected)


@each(product(("f16", "bf16", "f32", "f64"), ("s8", "u16", "s32", "u32", "s64", "u64"), MODES))
def test_integer_to_float(dt, st, mode):
    width = int(st[1:])
    rng = np.random.default_rng(1)
    shift = rng.integers(0, width, 400)
    raw = rng.integers(0, 1 << width, 400, dtype=np.uint64, endpoint=False) >> shift.astype(
        np.uint64
    )
    edges = [0, 1, (1 << width) - 1, 1 << (width - 1), (1 << (width - 1)) - 1]
    raw[: len(edges)] = edges
    # Ties: a set bit just below the precision of the destination, with and without a tail.
    ties = [
        (1 << (width - 2)) + (1 << max(width - 2 - p, 0)) + e
        for p in (8, 11, 24, 53)
        for e in (-1, 0, 1)
    ]
    raw[10 : 10 + len(ties)] = [x % (1 << width) for x in ties]
    got = cvt(dt, st, raw.astype(f"uint{max(width, 16)}"), rounding=mode)
    low, _ = bounds(st)
    for lane, bits in enumerate(raw.tolist()):
        exact = bits - (1 << width) if low < 0 and bits >> (width - 1) else bits
        assert int(got[lane]) == encode(dt, Fraction(exact), mode), (hex(bits), hex(int(got[lane])))


@each(product(INTEGERS, INTEGERS))
def test_integer_to_integer(dt, st):
    source, target = int(st[1:]), int(dt[1:])
    rng = np.random.default_rng(2)
    raw = rng.integers(0, 1 << source, 200, dtype=np.uint64, endpoint=False)
    raw[:4] = [0, (1 << source) - 1, 1 << (source - 1), (1 << (source - 1)) - 1]
    # Registers may be wider than the source type: the high bits do not count.
    register = raw.astype(np.uint64) | np.uint64(0xABCD << 48 if source < 64 else 0)
    plain, clamped = cvt(dt, st, register), cvt(dt, st, register, sat=True)
    low, high = bounds(dt)
    mask = (1 << max(target, 16)) - 1
    for lane, bits in enumerate(raw.tolist()):
        exact = bits - (1 << source) if st[0] == "s" and bits >> (source - 1) else bits
        wrapped = exact & ((1 << target) - 1)
        wrapped = wrapped - (1 << target) if dt[0] == "s" and wrapped >> (target - 1) else wrapped
        assert int(plain[lane]) == wrapped & mask
        assert int(clamped[lane]) == min(max(exact, low), high) & mask


def test_tf32():
    raw = np.array(
        [0x3F801000, 0x3F801FFF, 0x3F803000, 0x7F7FFFFF, 0xFF800000, 0x7F800001], np.uint32
    )
    assert [hex(x) for x in cvt("tf32", "f32", raw, rounding="rna").tolist()] == [
        "0x3f802000",
        "0x3f802000",
        "0x3f804000",
        "0x7f800000",
        "0xff800000",
        "0x7f800000",
    ]
    assert cvt("tf32", "f32", raw[:3], rounding="rn").tolist() == [
        0x3F800000,
        0x3F802000,
        0x3F804000,
    ]
    assert cvt("tf32", "f32", raw[:3], rounding="rz").tolist() == [
        0x3F800000,
        0x3F800000,
        0x3F802000,
    ]
    relu = cvt("tf32", "f32", raw, rounding="rn", relu=True, satfinite=True)
    assert relu.tolist()[3:] == [0x7F7FE000, 0, 0x7FFFE000]


def test_modifiers():
    assert cvt("f32", "f32", np.array([1], np.uint32), ftz=True)[0] == 0
    assert cvt("f32", "f32", np.array([0x40000000], np.uint32), sat=True)[0] == 0x3F800000
    assert cvt("f16", "f32", np.array([0x47800000], np.uint32), satfinite=True)[0] == 0x7BFF
    assert cvt("s32", "f32", np.array([0x807FFFFF], np.uint32), rounding="rmi", ftz=True)[0] == 0
    assert cvt("s32", "f32", np.array([0x807FFFFF], np.uint32), rounding="rmi")[0] == 0xFFFFFFFF


def test_packs_put_the_first_source_above():
    a, b = np.array([0x3F800000], np.uint32), np.array([0xC0000000], np.uint32)
    assert cvt("f16x2", "f32", a, b=b)[0] == 0x3C00C000
    assert cvt("bf16x2", "f32", a, b=b, relu=True)[0] == 0x3F800000
    assert cvt("e4m3x2", "f32", a, b=b)[0] == 0x38C0
    assert cvt("e5m2x2", "f16x2", np.array([0x3C00C000], np.uint32))[0] == 0x3CC0
    assert cvt("e2m1x2", "f32", a, b=b)[0] == 0x2C
    assert cvt("ue8m0x2", "f32", a, b=b, rounding="rz")[0] == 0x7F80
    assert cvt("bf16x2", "ue8m0x2", np.array([0x7F80], np.uint16))[0] == 0x3F804000


SMALL = {
    # exponent bits, mantissa bits, bias, largest, NaN code
    "e4m3": (4, 3, 7, 448, 0x7F),
    "e5m2": (5, 2, 15, 57344, 0x7F),
    "e2m3": (2, 3, 1, Fraction(15, 2), 0x1F),
    "e3m2": (3, 2, 3, 28, 0x1F),
    "e2m1": (2, 1, 1, 6, 0x07),
}


def small_values(name):
    exponent_bits, mantissa_bits, bias, largest, _ = SMALL[name]
    values = []
    for code in range(1 << (exponent_bits + mantissa_bits)):
        exponent, fraction = code >> mantissa_bits, code & ((1 << mantissa_bits) - 1)
        fraction += (1 << mantissa_bits) if exponent else 0
        exact = Fraction(fraction) * Fraction(2) ** (max(exponent, 1) - bias - mantissa_bits)
        if exact <= largest:
            values.append(exact)
    return values


@pytest.mark.parametrize("name", SMALL)
def test_every_f16_to_a_small_format(name):
    values = small_values(name)
    width = sum(SMALL[name][:2]) + 1
    grid = np.array([float(v) for v in values])
    raw = ALL_HALVES
    got = cvt(f"{name}x2", "f16x2", raw.astype(np.uint32))
    got = got & (15 if name == "e2m1" else 255)
    exact = raw.view(np.float16).astype(np.float64)
    magnitude = np.minimum(np.nan_to_num(np.abs(exact)), float(SMALL[name][3]))
    above = np.searchsorted(grid, magnitude)
    below = np.maximum(above - 1, 0)
    down, up = magnitude - grid[below], grid[above] - magnitude
    nearest = np.where((down < up) | ((down == up) & (below % 2 == 0)), below, above)
    expected = nearest | (np.signbit(exact).astype(int) << (width - 1))
    expected = np.where(np.isnan(exact), SMALL[name][4], expected)
    assert np.array_equal(got, expected)


@pytest.mark.parametrize("name", SMALL)
def test_small_formats_widen_exactly(name):
    values = small_values(name)
    codes = np.arange(len(values), dtype=np.uint16)
    got = cvt("f16x2", f"{name}x2", codes)
    expected = np.array([float(v) for v in values]).astype(np.float16).view(np.uint16)
    assert np.array_equal(got & 0xFFFF, expected)
    back = cvt(f"{name}x2", "f16x2", got)
    assert np.array_equal(back, codes)


def test_fp8_specials():
    inf, nan = 0x7F800000, 0x7FC00000
    a, b = np.array([inf, nan], np.uint32), np.array([inf | 1 << 31, 0], np.uint32)
    assert cvt("e4m3x2", "f32", a, b=b).tolist() == [0x7EFE, 0x7F00]
    assert cvt("e5m2x2", "f32", a, b=b).tolist() == [0x7BFB, 0x7F00]
    assert cvt("e2m1x2", "f32", a, b=b).tolist() == [0x7F, 0x70]
    assert cvt("f16x2", "e5m2x2", np.array([0x7C7E], np.uint16))[0] == 0x7C007FFF
    assert cvt("f16x2", "e4m3x2", np.array([0x7F7E], np.uint16))[0] == 0x7FFF5F00


def test_cvt_pack():
    a, b = np.array([70000, 5], np.uint32), np.array([0xFFFFFFFF, 300], np.uint32)
    assert cvt_pack("u16", "s32", a, b).tolist() == [0xFFFF0000, 0x0005012C]
    assert cvt_pack("s16", "s32", a, b).tolist() == [0x7FFFFFFF, 0x0005012C]
    assert cvt_pack("u8", "s32", a, b, 0x1234ABCD).tolist() == [0xABCDFF00, 0xABCD05FF]
    assert cvt_pack("s4", "s32", a, b, 0).tolist() == [0x7F, 0x57]


def test_what_does_not_exist_is_refused():
    with pytest.raises(NotImplementedError):
        cvt("f16x2", "f32", 0)
    with pytest.raises(NotImplementedError):
        cvt("s32", "f32", 0, rounding="rn")
    with pytest.raises(NotImplementedError):
        cvt("q7", "f32", 0)
