"""Matrix products against plain loops over the fragment layouts as the PTX ISA writes them."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.backend.ptx_executor.numerics import matrix, quiet
from tests.helpers.cpu_kernels import run
from tests.helpers.numerics_reference import value

WARPS = 3


@pytest.fixture(autouse=True)
def _quiet():
    with quiet():
        yield


def parse(shape):
    m, rest = shape[1:].split("n")
    n, k = rest.split("k")
    return int(m), int(n), int(k)


# Rows and columns of element i of a lane, transcribed per shape and element size.
def a_16x16_halves(group, thread, i):
    row = group if i in (0, 1, 4, 5) else group + 8
    return row, thread * 2 + (i & 1) + (8 if i >= 4 else 0)


def a_16x8_halves(group, thread, i):
    return (group if i < 2 else group + 8), thread * 2 + (i & 1)


def a_16x4_words(group, thread, i):
    return (group if i == 0 else group + 8), thread


def a_16xk_words(group, thread, i):
    return (group if i % 2 == 0 else group + 8), thread + 4 * (i // 2)


def a_8x4(group, thread, i):
    return group, thread


def a_16x16_bytes(group, thread, i):
    return (group if i < 4 else group + 8), thread * 4 + (i & 3)


def a_16x32_bytes(group, thread, i):
    row = group if i < 4 or 8 <= i < 12 else group + 8
    return row, thread * 4 + (i & 3) + (16 if i >= 8 else 0)


def a_8x16_bytes(group, thread, i):
    return group, thread * 4 + i


def a_16x64_nibbles(group, thread, i):
    row = group if i < 8 or 16 <= i < 24 else group + 8
    return row, thread * 8 + (i & 7) + (32 if i >= 16 else 0)


def a_16x32_nibbles(group, thread, i):
    return (group if i < 8 else group + 8), thread * 8 + (i & 7)


def a_8x32_nibbles(group, thread, i):
    return group, thread * 8 + i


def a_16x256_bits(group, thread, i):
    row = group if i < 32 or 64 <= i < 96 else group + 8
    return row, thread * 32 + (i & 31) + (128 if i >= 64 else 0)


def a_16x128_bits(group, thread, i):
    return (group if i < 32 else group + 8), thread * 32 + (i & 31)


def a_8x128_bits(group, thread, i):
    return group, thread * 32 + i


A_LAYOUTS = {
    ("m16n8k16", 16): a_16x16_halves,
    ("m16n8k8", 16): a_16x8_halves,
    ("m16n8k4", 32): a_16x4_words,
    ("m16n8k8", 32): a_16xk_words,
    ("m8n8k4", 64): a_8x4,
    ("m16n8k4", 64): a_16x4_words,
    ("m16n8k8", 64): a_16xk_words,
    ("m16n8k16", 64): a_16xk_words,
    ("m8n8k16", 8): a_8x16_bytes,
    ("m16n8k16", 8): a_16x16_bytes,
    ("m16n8k32", 8): a_16x32_bytes,
    ("m8n8k32", 4): a_8x32_nibbles,
    ("m16n8k32", 4): a_16x32_nibbles,
    ("m16n8k64", 4): a_16x64_nibbles,
    ("m8n8k128", 1): a_8x128_bits,
    ("m16n8k128", 1): a_16x128_bits,
    ("m16n8k256", 1): a_16x256_bits,
}


def b_layout(size, thread, i):
    """k of element i: `size`-bit elements fill a 32-bit register, four threads a chunk."""
    per = max(32 // size, 1)
    return thread * per + i % per + (i // per) * 4 * per


def decode(t, raw):
    if t in ("s8", "s4"):
        width = int(t[1:])
        return raw - (1 << width) if raw >> (width - 1) else raw
    if t in ("u8", "u4", "b1"):
        return raw
    if t == "tf32":
        return float(np.uint32(raw & 0xFFFFE000).view(np.float32))
    if t == "e4m3":
        exponent, fraction = raw >> 3 & 15, raw & 7
        magnitude = (fraction + (8 if exponent else 0)) * 2.0 ** (max(exponent, 1) - 10)
        return -magnitude if raw >> 7 else magnitude
    if t == "e5m2":
        return float(np.uint16(raw << 8).view(np.float16))
    return float(value(t, raw))


def random_elements(t, rng, shape):
    if t in ("f16", "bf16", "tf32", "f64"):
        values = rng.integers(-64, 64, shape) / 16.0
        if t == "f16":
            return values.astype(np.float16).view(np.uint16).astype(np.uint64)
        if t == "f64":
            return (values + rng.standard_normal(shape)).view(np.uint64)
        raw = values.astype(np.float32).view(np.uint32)
        # The low bits of a tf32 operand do not count.
        return (raw >> 16 if t == "bf16" else raw | 0xFFF).astype(np.uint64)
    if t in ("e4m3", "e5m2"):
        middle = 0x38 if t == "e4m3" else 0x3C
        codes = middle + rng.integers(-8, 8, shape)
        return (codes | rng.integers(0, 2, shape) << 7).astype(np.uint64)
    return rng.integers(0, 1 << int(t[1:]), shape).astype(np.uint64)


BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "e4m3": 8, "e5m2": 8}


def size_of(t):
    return BITS.get(t) or int(t[1:])


def place(t, matrices, layout, count):
    """Registers from matrices [warp, row, column]; layout(group, thread, i) -> (row, column)."""
    size = size_of(t)
    per = max(32 // size, 1)
    dtype = np.uint64 if size == 64 else np.uint32
    registers = np.zeros((count // per, len(matrices), 32), dtype)
    for lane in range(32):
        for i in range(count):
            row, column = layout(lane >> 2, lane & 3, i)
            field = matrices[:, row, column].astype(dtype)
            registers[i // per, :, lane] |= field << dtype(size * (i % per) if per > 1 else 0)
    return [register.reshape(-1) for register in registers]


def c_position(group, thread, i):
    return group + 8 * (i >> 1), thread * 2 + (i & 1)


def read_d(dt, registers, m):
    result = np.zeros((WARPS, m, 8), np.uint64)
    for lane in range(32):
        for i in range(m // 4):
            row, column = c_position(lane >> 2, lane & 3, i)
            if dt == "f16":
                field = registers[i // 2].reshape(WARPS, 32)[:, lane] >> np.uint32(16 * (i & 1))
                result[:, row, column] = field & 0xFFFF
            else:
                result[:, row, column] = registers[i].reshape(WARPS, 32)[:, lane]
    return result


BYTES = (("s8", "u8"), ("u8", "s8"))
NIBBLES = (("s4", "u4"), ("u4", "s4"))
FP8 = (("e4m3", "e5m2"), ("e5m2", "e4m3"))
CASES = [
    *[(s, d, t, t, d) for s in ("m16n8k16", "m16n8k8") for t in ("f16", "bf16") for d in ("f32",)],
    ("m16n8k16", "f16", "f16", "f16", "f16"),
    ("m16n8k8", "f16", "f16", "f16", "f16"),
    ("m16n8k16", "f32", "f16", "f16", "f16"),
    ("m16n8k4", "f32", "tf32", "tf32", "f32"),
    ("m16n8k8", "f32", "tf32", "tf32", "f32"),
    *[(s, "f64", "f64", "f64", "f64") for s in ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16")],
    *[(s, "s32", *ab, "s32") for s in ("m8n8k16", "m16n8k16", "m16n8k32") for ab in BYTES],
    *[(s, "s32", *ab, "s32") for s in ("m8n8k32", "m16n8k32", "m16n8k64") for ab in NIBBLES],
    *[(s, "s32", "b1", "b1", "s32") for s in ("m8n8k128", "m16n8k128", "m16n8k256")],
    *[(s, "f32", *ab, "f32") for s in ("m16n8k32", "m16n8k16") for ab in FP8],
]


@pytest.mark.parametrize(("shape", "dt", "at", "bt", "ct"), CASES)
def test_mma(shape, dt, at, bt, ct):
    m, n, k = parse(shape)
    rng = np.random.default_rng(m * k)
    size = size_of(at)
    a, b = random_elements(at, rng, (WARPS, m, k)), random_elements(bt, rng, (WARPS, n, k))
    c = random_elements({"s32": "s16", "f32": "tf32"}.get(ct, ct), rng, (WARPS, m, n))
    if ct == "f32":
        c &= np.uint64(0xFFFFE000)
    a_registers = place(at, a, A_LAYOUTS[shape, size], m * k // 32)
    b_registers = place(bt, b, lambda g, t, i: (g, b_layout(size, t, i)), n * k // 32)
    c_registers = place({"f32": "u32", "s32": "u32"}.get(ct, ct), c, c_position, m * n // 32)
    for op in ("xor", "and") if at == "b1" else (None,):
        d = matrix.mma(shape, dt, at, bt, ct, a_registers, b_registers, c_registers, op=op)
        got = read_d(dt, d, m)
        check_product(got, dt, at, bt, ct, a, b, c, op)


def check_product(got, dt, at, bt, ct, a, b, c, op):
    warps, m, _ = a.shape
    for warp, row, column in np.ndindex(warps, m, b.shape[1]):
        left = [decode(at, int(x)) for x in a[warp, row]]
        right = [decode(bt, int(x)) for x in b[warp, column]]
        initial = int(c[warp, row, column])
        found = int(got[warp, row, column])
        if at == "b1":
            ones = sum(x ^ y if op == "xor" else x & y for x, y in zip(left, right, strict=True))
            assert found == (initial + ones) % 2**32
        elif dt == "s32":
            assert found == (initial + sum(map(int.__mul__, left, right))) % 2**32
        elif dt == "f64":
            total = float(value("f64", initial))
            exact = total + sum(x * y for x, y in zip(left, right, strict=True))
            assert float(value("f64", found)) == pytest.approx(exact, rel=1e-12)
        else:
            # The test data are small multiples of powers of two: these sums are exact.
            total = float(value(ct, initial)) + sum(x * y for x, y in zip(left, right, strict=True))
            expected = np.float32(total) if dt == "f32" else np.float16(total)
            assert found == int(expected.view(np.uint32 if dt == "f32" else np.uint16))


def test_integer_overflow_wraps_or_saturates():
    ones = [np.full(32, 0x01010101, np.uint32)] * 4
    top = [np.full(32, 0x7FFFFFFF, np.uint32)] * 4
    wrapped = matrix.mma("m16n8k32", "s32", "s8", "s8", "s32", ones, ones[:2], top)
    assert {int(x) for x in np.concatenate(wrapped)} == {0x8000001F}
    clamped = matrix.mma("m16n8k32", "s32", "s8", "s8", "s32", ones, ones[:2], top, satfinite=True)
    assert {int(x) for x in np.concatenate(clamped)} == {0x7FFFFFFF}


def test_nan_and_infinity_reach_the_result():
    one, inf = 0x3F803F80, 0x7F803F80
    a = [np.full(32, inf, np.uint32)] * 4
    b = [np.full(32, one, np.uint32)] * 2
    c = [np.full(32, 0, np.uint32)] * 4
    d = matrix.mma("m16n8k16", "f32", "bf16", "bf16", "f32", a, b, c)
    assert {int(x) for x in np.concatenate(d)} == {0x7F800000}
    minus = [np.full(32, 0xFF800000, np.uint32)] * 4
    d = matrix.mma("m16n8k16", "f32", "bf16", "bf16", "f32", a, b, minus)
    assert {int(x) for x in np.concatenate(d)} == {0x7FFFFFFF}


@pytest.mark.parametrize("alayout", ["row", "col"])
@pytest.mark.parametrize("blayout", ["row", "col"])
@pytest.mark.parametrize(("dt", "ct"), [("f32", "f32"), ("f16", "f16"), ("f32", "f16")])
def test_volta_products_per_quad_pair(dt, ct, alayout, blayout):
    rng = np.random.default_rng(1)
    a, b = (random_elements("f16", rng, (4, 8, 4)) for _ in range(2))
    c = random_elements("f16" if ct == "f16" else "tf32", rng, (4, 8, 8))
    if ct == "f32":
        c &= np.uint64(0xFFFFE000)

    def position(layout, lane, i):
        low = lane % 4
        upper = 4 if lane >= 16 else 0
        return (low + upper, i) if layout == "own" else (i + upper, low)

    def c_at(t, lane, i):
        upper = 4 if lane >= 16 else 0
        if t == "f16":
            return lane % 4 + upper, i
        return (lane & 1) + (i & 2) + upper, (i & 4) + (lane & 2) + (i & 1)

    def halves(matrix_, layout):
        registers = np.zeros((2, 32), np.uint32)
        for lane in range(32):
            for i in range(4):
                row, k = position(layout, lane, i)
                registers[i // 2, lane] |= np.uint32(matrix_[(lane >> 2) & 3, row, k]) << np.uint32(
                    16 * (i % 2)
                )
        return list(registers)

    a_registers = halves(a, "own" if alayout == "row" else "turned")
    b_registers = halves(b, "own" if blayout == "col" else "turned")
    c_registers = np.zeros((8 if ct == "f32" else 4, 32), np.uint32)
    for lane in range(32):
        for i in range(8):
            row, column = c_at(ct, lane, i)
            field = np.uint32(c[(lane >> 2) & 3, row, column])
            if ct == "f32":
                c_registers[i, lane] = field
            else:
                c_registers[i // 2, lane] |= field << np.uint32(16 * (i % 2))
    d = matrix.mma(
        "m8n8k4",
        dt,
        "f16",
        "f16",
        ct,
        a_registers,
        b_registers,
        list(c_registers),
        alayout=alayout,
        blayout=blayout,
    )
    for lane in range(32):
        for i in range(8):
            pair = (lane >> 2) & 3
            row, column = c_at(dt, lane, i)
            total = float(value(ct, int(c[pair, row, column])))
            total += sum(
                float(value("f16", int(a[pair, row, k])))
                * float(value("f16", int(b[pair, column, k])))
                for k in range(4)
            )
            if dt == "f32":
                assert d[i][lane] == np.float32(total).view(np.uint32)
            else:
                found = d[i // 2][lane] >> np.uint32(16 * (i % 2)) & 0xFFFF
                assert found == np.float16(total).view(np.uint16)


def test_ldmatrix_stmatrix_movmatrix():
    rows = np.arange(2 * 32 * 16, dtype=np.uint32).astype(np.uint8).reshape(2, 32, 16)
    rows[1] ^= 0x5A
    registers = matrix.ldmatrix(rows, 4)
    for lane, index in ((0, 0), (5, 1), (31, 3)):
        row, column = lane // 4, lane % 4
        expected = rows[1, 8 * index + row, 4 * column : 4 * column + 4].view(np.uint32)[0]
        assert registers[index][1, lane] == expected
    assert np.array_equal(matrix.stmatrix(registers), rows)
    turned = matrix.ldmatrix(rows, 4, trans=True)
    halves = rows.view(np.uint16).reshape(2, 4, 8, 8)
    for lane in (0, 6, 29):
        low = halves[0, 2, 2 * (lane % 4), lane // 4]
        high = halves[0, 2, 2 * (lane % 4) + 1, lane // 4]
        assert turned[2][0, lane] == int(low) | int(high) << 16
    assert np.array_equal(matrix.stmatrix(turned, trans=True), rows)
    assert np.array_equal(matrix.movmatrix(registers[0]), turned[0])


def test_unknown_forms_are_refused():
    zero = [np.zeros(32, np.uint32)] * 4
    with pytest.raises(NotImplementedError, match="m16n8k24"):
        matrix.mma("m16n8k24", "f32", "f16", "f16", "f32", zero, zero[:2], zero)
    with pytest.raises(NotImplementedError):
        matrix.mma("m16n8k16", "f32", "q5", "q5", "f32", zero, zero[:2], zero)


@pytest.mark.parametrize(("rounding", "steps"), [("", 0), (".rz", 0), (".rn", 0), (".rp", 4)])
@pytest.mark.parametrize("opcode", ["mma", "wmma.mma"])
def test_products_of_f64_round_as_their_modifier_says(
    opcode: str, rounding: str, steps: int
) -> None:
    shape = "m8n8k4.row.col" if opcode == "mma" else "row.col.m8n8k4"
    body = f"""
        mov.f64 %fd1, 0d3FF0000000000000;  // 1
        mov.f64 %fd2, 0d43B0000000000000;  // 2^60, where doubles are 256 apart
        {opcode}.sync.aligned.{shape}{rounding}.f64.f64.f64.f64
            {{%fd3, %fd4}}, {{%fd1}}, {{%fd1}}, {{%fd2, %fd2}};
        mad.wide.u32 %rd3, %r1, 8, %rd1;
        st.global.f64 [%rd3], %fd3;
    """
    made, _ = run(body, dtype=np.float64)
    assert (made == 2.0**60 + 256 * steps).all()
