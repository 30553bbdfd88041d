from __future__ import annotations

import random

import numpy as np
import pytest

from tessera.backend.ptx_executor.numerics import video

COUNT = 300
SELECTORS = [None, "b0", "b3", "h0", "h1"]
OPERATIONS = {
    "vadd": lambda x, y: x + y,
    "vsub": lambda x, y: x - y,
    "vabsdiff": lambda x, y: abs(x - y),
    "vmin": min,
    "vmax": max,
}


def words(seed):
    rng = random.Random(seed)
    edges = [0, 1, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 0x80008000, 0x7F80FF01]
    return [rng.choice(edges) if rng.random() < 0.3 else rng.getrandbits(32) for _ in range(COUNT)]


def pick(word, selector, t):
    size, low = {None: (32, 0)}.get(selector, (8, 8 * int((selector or "b0")[1])))
    if selector and selector[0] == "h":
        size, low = 16, 16 * int(selector[1])
    field = word >> low & ((1 << size) - 1)
    return field - (1 << size) if t[0] == "s" and field >> (size - 1) else field


def clamp(value, t, size):
    low, high = (-(1 << (size - 1)), (1 << (size - 1)) - 1) if t[0] == "s" else (0, (1 << size) - 1)
    return min(max(value, low), high)


def signed(word, t):
    return word - (1 << 32) if t[0] == "s" and word >> 31 else word


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize(("dt", "at", "bt"), [("s32", "s32", "u32"), ("u32", "u32", "s32")])
def test_scalar_forms(op, dt, at, bt):
    a, b, c = words(1), words(2), words(3)
    arrays = [np.array(x, np.uint32) for x in (a, b, c)]
    for asel, bsel in ((None, None), ("b3", "h1"), ("h0", "b0")):
        for sat in (False, True):
            plain = video.scalar(op, dt, at, bt, *arrays[:2], asel=asel, bsel=bsel, sat=sat)
            best = video.scalar(
                op, dt, at, bt, *arrays[:2], asel=asel, bsel=bsel, sat=sat, op2="max", c=arrays[2]
            )
            merged = video.scalar(
                op, dt, at, bt, *arrays[:2], asel=asel, bsel=bsel, sat=sat, dsel="b2", c=arrays[2]
            )
            for i in range(COUNT):
                exact = OPERATIONS[op](pick(a[i], asel, at), pick(b[i], bsel, bt))
                value = (clamp(exact, dt, 32) if sat else exact) & 0xFFFFFFFF
                assert plain[i] == value
                assert best[i] == max(signed(value, dt), signed(c[i], dt)) & 0xFFFFFFFF
                byte = (clamp(exact, dt, 8) if sat else exact) & 0xFF
                assert merged[i] == (c[i] & 0xFF00FFFF) | byte << 16


def test_shifts():
    a = np.array([0x80000001, 5], np.uint32)
    assert video.scalar("vshl", "u32", "u32", "u32", a, 33, mode="wrap").tolist() == [2, 10]
    assert video.scalar("vshl", "u32", "u32", "u32", a, 33, mode="clamp").tolist() == [0, 0]
    assert video.scalar("vshr", "s32", "s32", "u32", a, 31, mode="clamp").tolist() == [
        0xFFFFFFFF,
        0,
    ]


def test_vmad():
    a, b, c = (np.array(words(seed), np.uint32) for seed in (4, 5, 6))
    got = video.vmad("s32", "s32", "u32", a, b, c, asel="h1", bsel="b0", scale="shr7", sat=True)
    for i in range(COUNT):
        exact = pick(int(a[i]), "h1", "s32") * pick(int(b[i]), "b0", "u32") + signed(
            int(c[i]), "s32"
        )
        assert got[i] == clamp(exact >> 7, "s32", 32) & 0xFFFFFFFF
    got = video.vmad("s32", "s32", "s32", a, b, c, asel="b0", bsel="b0", negate="c", plus_one=True)
    for i in range(COUNT):
        exact = pick(int(a[i]), "b0", "s32") * pick(int(b[i]), "b0", "s32")
        assert got[i] == (exact - signed(int(c[i]), "s32") + 1) & 0xFFFFFFFF


def test_vset():
    a, b = np.array([0x80, 0x01], np.uint32), np.array([0x01, 0x01], np.uint32)
    assert video.scalar("lt", "u32", "s32", "s32", a, b, asel="b0", bsel="b0").tolist() == [1, 0]
    assert video.scalar("lt", "u32", "u32", "u32", a, b, asel="b0", bsel="b0").tolist() == [0, 0]
    assert video.scalar("eq", "u32", "u32", "u32", a, b, op2="add", c=7).tolist() == [7, 8]


@pytest.mark.parametrize("lanes", [2, 4])
@pytest.mark.parametrize("op", [*OPERATIONS, "vavrg"])
def test_simd_forms(op, lanes):
    size = 32 // lanes
    a, b, c = words(1), words(2), words(3)
    arrays = [np.array(x, np.uint32) for x in (a, b, c)]
    letter = "h" if lanes == 2 else "b"
    mask = letter + ("0" if lanes == 2 else "20")
    for dt in ("s32", "u32"):
        for sat in (False, True):
            got = video.simd(op, dt, dt, dt, *arrays, lanes=lanes, mask=mask, sat=sat)
            added = video.simd(op, dt, dt, dt, *arrays, lanes=lanes, sat=sat, add=True)
            for i in range(COUNT):
                expected, total = c[i], c[i]
                for lane in range(lanes):
                    x, y = (pick(word, f"{letter}{lane}", dt) for word in (a[i], b[i]))
                    if op == "vavrg":
                        exact = (abs(x + y) + 1) // 2 * (1 if x + y >= 0 else -1)
                    else:
                        exact = OPERATIONS[op](x, y)
                    value = clamp(exact, dt, size) if sat else exact
                    field = value & ((1 << size) - 1)
                    total += value
                    if str(lane) in mask:
                        clear = ((1 << size) - 1) << (size * lane)
                        expected = expected & ~clear | field << (size * lane)
                assert got[i] == expected
                assert added[i] == total & 0xFFFFFFFF


def test_simd_selectors_cross_registers():
    a, b = np.array([0x11112222], np.uint32), np.array([0x33334444], np.uint32)
    # .h32 takes both half-words of b for operand a.
    got = video.simd("vadd", "u32", "u32", "u32", a, b, 0, lanes=2, asel="h32", bsel="h01")
    assert got[0] == ((0x3333 + 0x2222) << 16) | (0x4444 + 0x1111)
    got = video.simd("gt", "u32", "u32", "u32", a, b, 0, lanes=2, asel="h32", bsel="h10")
    assert got[0] == 0x00010001
    with pytest.raises(NotImplementedError):
        video.simd("vadd", "u32", "u32", "u32", a, b, 0, lanes=2, asel="h321")
