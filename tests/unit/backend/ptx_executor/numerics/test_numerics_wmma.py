from __future__ import annotations

import numpy as np
import pytest

from tessera.backend.ptx_executor.numerics import matrix, quiet
from tessera.backend.ptx_executor.numerics.matrix import wgmma, wmma

WARPS = 3


@pytest.fixture(autouse=True)
def _quiet():
    with quiet():
        yield


def load(which, shape, t, whole):
    """What `wmma.load` does with a matrix [warp, row, column] of element bits."""
    rows, columns = wmma.positions(which, shape, t)
    return wmma.pack(which, t, whole[:, rows, columns])


def store(which, shape, t, fragment, whole):
    rows, columns = wmma.positions(which, shape, t)
    whole[:, rows, columns] = wmma.unpack_items(which, t, fragment)
    return whole


def halves(values, t):
    if t == "f16":
        return values.astype(np.float16).view(np.uint16)
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


REGISTERS = {
    ("m16n16k16", "f16"): (8, 8),
    ("m32n8k16", "f16"): (8, 8),
    ("m8n32k16", "f16"): (8, 8),
    ("m16n16k16", "bf16"): (4, 4),
    ("m32n8k16", "bf16"): (8, 2),
    ("m8n32k16", "bf16"): (2, 8),
    ("m16n16k16", "s8"): (2, 2),
    ("m32n8k16", "u8"): (4, 1),
    ("m8n32k16", "s8"): (1, 4),
    ("m16n16k8", "tf32"): (4, 4),
    ("m8n8k4", "f64"): (1, 1),
    ("m8n8k32", "s4"): (1, 1),
    ("m8n8k128", "b1"): (1, 1),
}


@pytest.mark.parametrize(("shape", "t"), REGISTERS)
def test_fragment_sizes_are_those_of_ptx(shape, t):
    assert tuple(wmma.registers(which, shape, t)[0] for which in "ab") == REGISTERS[shape, t]


@pytest.mark.parametrize(("dt", "ct"), [("f32", "f32"), ("f16", "f16"), ("f16", "f32")])
@pytest.mark.parametrize("t", ["f16", "bf16"])
@pytest.mark.parametrize("shape", ["m16n16k16", "m32n8k16", "m8n32k16"])
def test_half_products(shape, t, dt, ct):
    rng = np.random.default_rng(0)
    a = rng.integers(-8, 8, (WARPS, *wmma.extent("a", shape))) / 4
    b = rng.integers(-8, 8, (WARPS, *wmma.extent("b", shape))) / 4
    c = rng.integers(-8, 8, (WARPS, *wmma.extent("c", shape))) / 4
    types = {"f32": (np.float32, np.uint32), "f16": (np.float16, np.uint16)}
    c_bits = c.astype(types[ct][0]).view(types[ct][1])
    d = wmma.mma(
        shape,
        dt,
        t,
        t,
        ct,
        load("a", shape, t, halves(a, t)),
        load("b", shape, t, halves(b, t)),
        load("c", shape, ct, c_bits),
    )
    assert len(d) == wmma.registers("d", shape, dt)[0]
    got = store("d", shape, dt, d, np.zeros(c.shape, types[dt][1])).view(types[dt][0])
    expected = (np.einsum("wik,wkj->wij", a, b) + c).astype(types[dt][0])
    assert np.array_equal(got, expected)


@pytest.mark.parametrize("shape", ["m16n16k16", "m32n8k16", "m8n32k16"])
def test_byte_products(shape):
    rng = np.random.default_rng(0)
    a = rng.integers(0, 256, (WARPS, *wmma.extent("a", shape)), dtype=np.uint8)
    b = rng.integers(0, 256, (WARPS, *wmma.extent("b", shape)), dtype=np.uint8)
    c = rng.integers(0, 2**32, (WARPS, *wmma.extent("c", shape)), dtype=np.uint32)
    d = wmma.mma(
        shape,
        "s32",
        "s8",
        "u8",
        "s32",
        load("a", shape, "s8", a),
        load("b", shape, "u8", b),
        load("c", shape, "s32", c),
    )
    got = store("d", shape, "s32", d, np.zeros_like(c))
    expected = np.einsum("wik,wkj->wij", a.view(np.int8).astype(np.int64), b.astype(np.int64))
    assert np.array_equal(got, (expected + c).astype(np.uint32))


def test_tf32_and_f64_products():
    rng = np.random.default_rng(0)
    for shape, t, dt in (("m16n16k8", "tf32", "f32"), ("m8n8k4", "f64", "f64")):
        dtype, raw = (np.float64, np.uint64) if t == "f64" else (np.float32, np.uint32)
        a, b, c = (
            (rng.integers(-8, 8, (WARPS, *wmma.extent(w, shape))) / 4).astype(dtype) for w in "abc"
        )
        d = wmma.mma(
            shape,
            dt,
            t,
            t,
            dt,
            load("a", shape, t, a.view(raw)),
            load("b", shape, t, b.view(raw)),
            load("c", shape, dt, c.view(raw)),
        )
        got = store("d", shape, dt, d, np.zeros(c.shape, raw)).view(dtype)
        assert np.array_equal(got, np.einsum("wik,wkj->wij", a, b) + c)


@pytest.mark.parametrize(("t", "k", "size"), [("s4", 32, 4), ("u4", 32, 4), ("b1", 128, 1)])
def test_sub_byte_products(t, k, size):
    shape = f"m8n8k{k}"
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 1 << size, (WARPS, 8, k), dtype=np.int64) for _ in range(2))
    per = 32 // size
    weights = 1 << (size * np.arange(per))
    words = [(x.reshape(WARPS, 8, -1, per) * weights).sum(-1).astype(np.uint32) for x in (a, b)]
    rows, columns = wmma.positions("a", shape, t)
    fragment_a = wmma.pack("a", t, words[0][:, rows, columns // per])
    rows, columns = wmma.positions("b", shape, t)
    fragment_b = wmma.pack("b", t, words[1][:, columns, rows // per])
    zero = load("c", shape, "s32", np.zeros((WARPS, 8, 8), np.uint32))
    d = wmma.mma(shape, "s32", t, t, "s32", fragment_a, fragment_b, zero, op="xor")
    got = store("d", shape, "s32", d, np.zeros((WARPS, 8, 8), np.uint32))
    if t == "b1":
        expected = (a[:, :, None, :] ^ b[:, None, :, :]).sum(-1)
    else:
        signed = [(x ^ 8) - 8 if t == "s4" else x for x in (a, b)]
        expected = np.einsum("wik,wjk->wij", *signed)
    assert np.array_equal(got, expected.astype(np.uint32))


# --- wgmma ---------------------------------------------------------------------------------


def descriptor(start, leading, stride, mode):
    return (start >> 4) | (leading >> 4) << 16 | (stride >> 4) << 32 | mode << 62


def swizzled(address, mode):
    bits = {0: 0, 1: 3, 2: 2, 3: 1}[mode]
    return address ^ (((address >> 7) & ((1 << bits) - 1)) << 4)


WIDTH = {0: 16, 1: 128, 2: 64, 3: 32}


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
@pytest.mark.parametrize("rows", [8, 64, 128])
def test_k_major_operands_are_read_back(mode, rows):
    width, k, start = WIDTH[mode], 16, 4096
    tile = np.random.default_rng(0).integers(0, 65536, (rows, k), dtype=np.uint16)
    leading, stride = (128, 256) if mode == 0 else (16, 8 * width)
    memory = np.zeros(1 << 16, np.uint8)
    for row in range(rows):
        for chunk in range(2):
            inside = chunk * leading if mode == 0 else chunk * 16
            at = start + (row // 8) * stride + (row % 8) * width + inside
            at = swizzled(at, mode)
            memory[at : at + 16] = tile[row, 8 * chunk : 8 * chunk + 8].view(np.uint8)
    where = wgmma.chunk_addresses(
        np.array([descriptor(start, leading, stride, mode)], np.uint64), rows, k, 16
    )
    chunks = memory[where[..., None] + np.arange(16)]
    assert np.array_equal(wgmma.elements("f16", chunks, rows, k)[0], tile)


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
@pytest.mark.parametrize("rows", [64, 128])
def test_mn_major_operands_are_read_back(mode, rows):
    width, k, start = WIDTH[mode], 16, 8192
    tile = np.random.default_rng(0).integers(0, 65536, (rows, k), dtype=np.uint16)
    atom = width // 2  # elements along the rows in one swizzle row
    blocks = rows // atom
    if mode == 0:
        by_rows, by_k = 128, 128 * blocks
        leading, stride = by_k, by_rows
    else:
        by_rows, by_k = 16 * width, 8 * width
        leading, stride = by_rows, by_k
    memory = np.zeros(1 << 16, np.uint8)
    for row in range(0, rows, 8):
        for kk in range(k):
            at = (
                start
                + (row // atom) * by_rows
                + (row % atom) * 2
                + (kk % 8) * width
                + (kk // 8) * by_k
            )
            at = swizzled(at, mode)
            memory[at : at + 16] = np.ascontiguousarray(tile[row : row + 8, kk]).view(np.uint8)
    where = wgmma.chunk_addresses(
        np.array([descriptor(start, leading, stride, mode)], np.uint64), rows, k, 16, mn_major=True
    )
    chunks = memory[where[..., None] + np.arange(16)]
    assert np.array_equal(wgmma.elements("bf16", chunks, rows, k, mn_major=True)[0], tile)


def accumulator_registers(total):
    """Registers [N/2][groups * 128] of a matrix [group, 64, N], element by element."""
    groups, _, n = total.shape
    registers = np.zeros((n // 2, groups, 128), np.uint32)
    for lane in range(128):
        warp, group, thread = lane // 32, lane % 32 // 4, lane % 4
        for i in range(n // 2):
            row = 16 * warp + group + 8 * (i // 2 % 2)
            registers[i, :, lane] = total[:, row, 8 * (i // 4) + 2 * thread + i % 2]
    return [register.reshape(-1) for register in registers]


@pytest.mark.parametrize("n", [8, 24])
@pytest.mark.parametrize("from_registers", [False, True])
def test_wgmma_product(n, from_registers):
    rng = np.random.default_rng(0)
    groups, k = 5, 16
    a, b = rng.integers(-8, 8, (groups, 64, k)) / 4, rng.integers(-8, 8, (groups, n, k)) / 4
    c = (rng.integers(-8, 8, (groups, 64, n)) / 4).astype(np.float32)
    a_bits, b_bits = halves(a, "bf16"), halves(b, "bf16")
    operand = a_bits
    if from_registers:
        registers = np.zeros((4, groups, 128), np.uint32)
        for lane in range(128):
            warp, group, thread = lane // 32, lane % 32 // 4, lane % 4
            for i in range(8):
                row = 16 * warp + group + (0 if i in (0, 1, 4, 5) else 8)
                column = 2 * thread + i % 2 + (8 if i >= 4 else 0)
                field = a_bits[:, row, column].astype(np.uint32)
                registers[i // 2, :, lane] |= field << np.uint32(16 * (i % 2))
        operand = [register.reshape(-1) for register in registers]
    d = accumulator_registers(c.view(np.uint32))
    shape = f"m64n{n}k16"
    expected = np.einsum("gik,gjk->gij", a, b)
    got = wgmma.mma(shape, "f32", "bf16", "bf16", d, operand, b_bits)
    wanted = accumulator_registers((expected + c).astype(np.float32).view(np.uint32))
    assert all(np.array_equal(x, y) for x, y in zip(got, wanted, strict=True))
    keep = np.repeat(np.arange(groups) % 2 == 0, 128)
    got = wgmma.mma(shape, "f32", "bf16", "bf16", d, operand, b_bits, scale_d=keep, scale_a=-1)
    wanted = np.where((np.arange(groups) % 2 == 0)[:, None, None], c, 0) - expected
    wanted = accumulator_registers(wanted.astype(np.float32).view(np.uint32))
    assert all(np.array_equal(x, y) for x, y in zip(got, wanted, strict=True))


def test_wgmma_f16_and_s32_accumulators():
    rng = np.random.default_rng(0)
    a, b = rng.integers(-8, 8, (2, 64, 16)) / 4, rng.integers(-8, 8, (2, 8, 16)) / 4
    zero = [np.zeros(256, np.uint32)] * 2
    got = wgmma.mma("m64n8k16", "f16", "f16", "f16", zero, halves(a, "f16"), halves(b, "f16"))
    total = np.einsum("gik,gjk->gij", a, b).astype(np.float16).view(np.uint16)
    wide = accumulator_registers(total.astype(np.uint32))
    assert np.array_equal(got[0], wide[0] | wide[1] << np.uint32(16))
    assert np.array_equal(got[1], wide[2] | wide[3] << np.uint32(16))
    a = rng.integers(0, 256, (2, 64, 32), dtype=np.uint8)
    b = rng.integers(0, 256, (2, 8, 32), dtype=np.uint8)
    got = wgmma.mma("m64n8k32", "s32", "s8", "u8", zero * 2, a, b)
    total = np.einsum("gik,gjk->gij", a.view(np.int8).astype(np.int64), b.astype(np.int64))
    wanted = accumulator_registers(total.astype(np.uint32))
    assert all(np.array_equal(x, y) for x, y in zip(got, wanted, strict=True))


def test_matrix_package_offers_wmma():
    assert matrix.wmma is wmma
