"""Kernels compiled by Triton 3.6 for sm_80 (mma.sync, cp.async) and sm_90 (wgmma, TMA).

Triton adds two parameters to every kernel: scratch memory, per block, and a profiling buffer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.kernels.case import DATA, Argument, Case, Expect, Launch, Run, Shape, dimensions
from tests.kernels.cases.model import philox, softmax
from tests.kernels.formats import from_bf16, from_e4m3, from_e5m2, to_tf32
from tests.kernels.rng import Rng

I32, F32, F16 = np.int32, np.float32, np.float16
FACTS: dict[str, dict[str, Any]] = json.loads((DATA / "triton.json").read_text())


def triton_run(
    module: str,
    grid: Shape,
    args: Sequence[Argument],
    buffers: dict[str, NDArray],
    expect: dict[str, Expect | NDArray],
    pointers: dict[str, dict[int, str]] | None = None,
) -> Run:
    """A launch with the block size, shared memory and scratch that Triton asks for."""
    facts = FACTS[module]
    blocks = int(np.prod(dimensions(grid)))
    scratch: Argument = np.uint64(0)
    if facts["scratch"]:
        scratch = "scratch"
        buffers = buffers | {"scratch": np.zeros(facts["scratch"] * blocks, np.uint8)}
    all_args = [*args, scratch, np.uint64(0)]
    launch = Launch(facts["kernel"], grid, facts["threads"], all_args, smem=facts["smem"])
    return Run(buffers, [launch], expect, pointers or {})


def add(rng: Rng) -> Run:
    n = 1000
    x, y = rng.f32(n), rng.f32(n)
    buffers = {"out": np.zeros(n, F32), "x": x, "y": y}
    return triton_run("triton_add", 4, ["out", "x", "y", I32(n)], buffers, {"out": x + y})


def row_softmax(rng: Rng) -> Run:
    rows, cols = 3, 333
    x = rng.f32(rows, cols, low=-9, high=9)
    expect = Expect(softmax(x.astype(np.float64)), rtol=1e-5, atol=1e-9)
    buffers = {"out": np.zeros_like(x), "x": x}
    return triton_run("triton_softmax", rows, ["out", "x", I32(cols)], buffers, {"out": expect})


def layernorm(arch: int) -> Case:
    module = f"triton_layernorm_{arch}"

    def build(rng: Rng) -> Run:
        rows, cols = 4, 400
        x, weight, bias = rng.bf16(rows, cols, low=-2, high=3), rng.bf16(cols), rng.bf16(cols)
        wide = from_bf16(x).astype(np.float64)
        d = wide - wide.mean(1, keepdims=True)
        normal = d / np.sqrt((d**2).mean(1, keepdims=True) + 1e-5)
        value = normal * from_bf16(weight) + from_bf16(bias)
        buffers = {"out": np.zeros_like(x), "x": x, "weight": weight, "bias": bias}
        args = ["out", "x", "weight", "bias", I32(cols), F32(1e-5)]
        expect = Expect(value, rtol=2**-8, atol=1e-5, format="bf16")
        return triton_run(module, rows, args, buffers, {"out": expect})

    return Case(module, module, build)


def product(
    module: str, kind: str, sizes: tuple[int, int, int], *, out: str, rows_b: bool, tol: float
) -> Case:
    """C = A B; B is stored as [K, N] or, without `rows_b`, as [N, K]."""

    def build(rng: Rng) -> Run:
        m, n, k = sizes
        a, left = operand(rng, kind, m, k)
        b, right = operand(rng, kind, n, k)
        exact = left @ right.T
        stored = np.ascontiguousarray(b.T) if rows_b else b
        empty = np.zeros((m, n), {"bf16": np.uint16, "f16": F16, "f32": F32, "s32": I32}[out])
        format_ = "bf16" if out == "bf16" else None
        expect: Expect | NDArray = Expect(exact, rtol=tol, atol=tol, format=format_)
        if out == "s32":
            expect = exact.astype(I32)
        args = ["c", "a", "b", I32(m), I32(n), I32(k)]
        grid = (-(-m // 64), -(-n // 64))
        return triton_run(module, grid, args, {"c": empty, "a": a, "b": stored}, {"c": expect})

    return Case(module, module, build)


def operand(rng: Rng, kind: str, rows: int, cols: int) -> tuple[NDArray, NDArray]:
    """Stored values and their exact meaning."""
    if kind == "bf16":
        bits = rng.bf16(rows, cols)
        return bits, from_bf16(bits).astype(np.float64)
    if kind == "e4m3":
        codes = rng.e4m3(rows, cols)
        return codes, from_e4m3(codes).astype(np.float64)
    if kind == "e5m2":
        codes = rng.e5m2(rows, cols)
        return codes, from_e5m2(codes).astype(np.float64)
    plain = {
        "f16": lambda: rng.f16(rows, cols),
        "tf32": lambda: to_tf32(rng.f32(rows, cols)),
        "s8": lambda: rng.bits(np.int8, rows, cols),
    }[kind]()
    return plain, plain.astype(np.float64)


def attention(module: str, kind: str, dim: int, causal: bool) -> Case:
    def build(rng: Rng) -> Run:
        heads, tokens, scale = 2, 100, 0.3
        stored, q = zip(*(operand(rng, kind, heads * tokens, dim) for _ in range(3)), strict=True)
        query, key, value = (part.reshape(heads, tokens, dim) for part in q)
        scores = np.einsum("htd,hsd->hts", query, key) * scale
        if causal:
            scores = np.where(np.tri(tokens, dtype=bool), scores, -np.inf)
        exact = softmax(scores) @ value
        buffers = dict(zip(("q", "k", "v"), stored, strict=True))
        buffers["out"] = np.zeros_like(stored[0])
        tol = 2**-7 if kind == "bf16" else 2e-3
        expect = Expect(exact, rtol=tol, atol=tol, format="bf16" if kind == "bf16" else None)
        args = ["out", "q", "k", "v", F32(scale), I32(tokens)]
        return triton_run(module, (2, heads), args, buffers, {"out": expect})

    return Case(module, module, build)


def paged_decode(rng: Rng) -> Run:
    seqs, heads, dim, max_blocks, pool = 3, 2, 32, 4, 12
    lengths = np.array([33, 64, 2], I32)
    tables = rng.permutation(pool).reshape(seqs, max_blocks)
    q, k, v = (
        rng.f16(seqs, heads, dim),
        rng.f16(pool, 16, heads, dim),
        rng.f16(pool, 16, heads, dim),
    )
    exact = np.zeros((seqs, heads, dim))
    for s, length in enumerate(lengths.tolist()):
        keys = k[tables[s]].reshape(-1, heads, dim)[:length].astype(np.float64)
        values = v[tables[s]].reshape(-1, heads, dim)[:length].astype(np.float64)
        exact[s] = np.einsum(
            "ht,thd->hd", softmax(np.einsum("hd,thd->ht", q[s], keys) * 0.25), values
        )
    buffers = {
        "out": np.zeros_like(q),
        "q": q,
        "k": k,
        "v": v,
        "tables": tables,
        "lengths": lengths,
    }
    args = ["out", "q", "k", "v", "tables", "lengths", F32(0.25), I32(heads), I32(max_blocks)]
    expect = Expect(exact, rtol=2e-3, atol=1e-4)
    return triton_run("triton_paged_decode", (seqs, heads), args, buffers, {"out": expect})


def grouped(rng: Rng) -> Run:
    rows, n, k = [40, 0, 7], 64, 96
    a, b = rng.bf16(sum(rows), k), rng.bf16(len(rows), k, n)
    starts = np.concatenate([[0], np.cumsum(rows)])
    exact = np.zeros((sum(rows), n))
    for e, count in enumerate(rows):
        part = slice(starts[e], starts[e] + count)
        exact[part] = from_bf16(a[part]).astype(np.float64) @ from_bf16(b[e])
    experts = range(len(rows))
    pointers = {
        "pa": {8 * e: f"a+{starts[e] * k * 2}" for e in experts},
        "pb": {8 * e: f"b+{e * k * n * 2}" for e in experts},
        "pc": {8 * e: f"c+{starts[e] * n * 2}" for e in experts},
    }
    buffers = {
        "c": np.zeros((sum(rows), n), np.uint16),
        "a": a,
        "b": b,
        "rows": np.array(rows, I32),
    }
    buffers |= {name: np.zeros(len(rows), np.uint64) for name in pointers}
    args = ["pc", "pa", "pb", "rows", I32(n), I32(k)]
    expect = Expect(exact, rtol=2**-8, atol=2e-5, format="bf16")
    return triton_run("triton_grouped_80", (2, 2, 3), args, buffers, {"c": expect}, pointers)


def dropout(rng: Rng) -> Run:
    n, p, seed = 700, F32(0.4), 12345
    x = rng.f32(n)
    word = philox(np.arange(n, dtype=np.uint64), seed)[:, 0].astype(np.uint32).view(I32)
    uniform = np.where(word < 0, -word - 1, word).astype(F32) * F32(4.6566127342e-10)
    kept = np.where(uniform > p, x.astype(np.float64) / (1 - float(p)), 0.0)
    buffers = {"out": np.zeros(n, F32), "x": x}
    args = ["out", "x", I32(n), p, I32(seed)]
    expect = Expect(kept, rtol=1e-6, atol=1e-12)
    return triton_run("triton_dropout", 3, args, buffers, {"out": expect})


def copy_3d(rng: Rng) -> Run:
    """Tiles that stick out: TMA fills with zeros what it reads there, and writes nothing."""
    sizes = (3, 13, 28)
    x = rng.f32(*sizes)
    buffers = {"out": np.zeros_like(x), "x": x}
    args = ["out", "x", *(I32(size) for size in sizes)]
    expect = x * F32(2) + F32(1)
    return triton_run("triton_copy_3d_90", (2, 2, 2), args, buffers, {"out": expect})


def reduce_tiles(rng: Rng) -> Run:
    m, n = 32, 96
    x = rng.integers(-9999, 9999, m, n)
    tiles = x.reshape(4, 8, 3, 32).transpose(0, 2, 1, 3).reshape(12, 8, 32)
    start, low = rng.integers(-99, 99, 8, 32), np.full((8, 32), -(2**31), I32)
    expect: dict[str, Expect | NDArray] = {
        "total": (start + tiles.sum(0)).astype(I32),
        "top": tiles.max(0),
    }
    buffers = {"total": start, "top": low, "x": x}
    args = ["total", "top", "x", I32(m), I32(n)]
    return triton_run("triton_reduce_tiles_90", (4, 3), args, buffers, expect)


def scan_rows(rng: Rng) -> Run:
    x = rng.integers(-99, 99, 3, 451)
    buffers = {"out": np.zeros_like(x), "x": x}
    expect = np.cumsum(x, 1).astype(I32)
    return triton_run("triton_scan", 3, ["out", "x", I32(451)], buffers, {"out": expect})


def sort_rows(rng: Rng) -> Run:
    x = rng.bits(I32, 5, 64)
    buffers = {"out": np.zeros_like(x), "x": x}
    return triton_run("triton_sort", 5, ["out", "x"], buffers, {"out": np.sort(x, 1)})


def histogram(rng: Rng) -> Run:
    x = rng.integers(0, 32, 900)
    buffers = {"out": np.zeros(32, I32), "x": x}
    expect = np.bincount(x, minlength=32).astype(I32)
    return triton_run("triton_histogram", 4, ["out", "x", I32(900)], buffers, {"out": expect})


def argmax_rows(rng: Rng) -> Run:
    x = np.round(rng.f32(6, 200) * 30).astype(F32)
    buffers = {"where": np.zeros(6, I32), "top": np.zeros(6, F32), "x": x}
    expect = {"where": x.argmax(1).astype(I32), "top": x.max(1)}
    return triton_run("triton_argmax", 6, ["where", "top", "x", I32(200)], buffers, expect)


def silu_mul(rng: Rng) -> Run:
    n = 500
    gate, up = rng.bf16(n, low=-6, high=6), rng.bf16(n)
    g = from_bf16(gate).astype(np.float64)
    value = Expect(g / (1 + np.exp(-g)) * from_bf16(up), rtol=2**-8, atol=1e-7, format="bf16")
    buffers = {"out": np.zeros(n, np.uint16), "gate": gate, "up": up}
    args = ["out", "gate", "up", I32(n)]
    return triton_run("triton_silu_mul", 2, args, buffers, {"out": value})


def quantize(rng: Rng) -> Run:
    rows, cols = 5, 200
    x = rng.bf16(rows, cols, low=-3, high=3)
    wide = from_bf16(x).astype(np.float64)
    scale = np.abs(wide).max(1) / 448
    expect: dict[str, Expect | NDArray] = {
        "out": Expect(wide / scale[:, None], rtol=2**-4 * 1.001, atol=2**-10, format="e4m3"),
        "scale": Expect(scale, rtol=1e-6),
    }
    buffers = {"out": np.zeros((rows, cols), np.uint8), "scale": np.zeros(rows, F32), "x": x}
    return triton_run("triton_quantize", rows, ["out", "scale", "x", I32(cols)], buffers, expect)


CASES = (
    Case("triton_add", "triton_add", add),
    Case("triton_softmax", "triton_softmax", row_softmax),
    layernorm(80),
    layernorm(90),
    product("triton_matmul_bf16_80", "bf16", (70, 80, 112), out="bf16", rows_b=True, tol=2**-7),
    product("triton_matmul_bf16_90", "bf16", (70, 80, 144), out="bf16", rows_b=True, tol=2**-7),
    product("triton_matmul_f16_80", "f16", (70, 80, 112), out="f16", rows_b=True, tol=2e-3),
    product("triton_matmul_tf32_80", "tf32", (70, 80, 112), out="f32", rows_b=True, tol=1e-4),
    product("triton_matmul_tf32_90", "tf32", (64, 128, 96), out="f32", rows_b=False, tol=1e-4),
    product("triton_matmul_e5m2_80", "e5m2", (64, 128, 96), out="f16", rows_b=False, tol=2e-3),
    product("triton_matmul_e4m3_90", "e4m3", (64, 128, 192), out="bf16", rows_b=False, tol=2**-7),
    product("triton_matmul_int8_80", "s8", (64, 128, 96), out="s32", rows_b=False, tol=0),
    product("triton_matmul_int8_90", "s8", (64, 128, 192), out="s32", rows_b=False, tol=0),
    product("triton_matmul_tma_90", "bf16", (112, 80, 160), out="bf16", rows_b=False, tol=2**-7),
    product(
        "triton_matmul_special_90", "bf16", (112, 80, 320), out="bf16", rows_b=False, tol=2**-7
    ),
    Case("triton_copy_3d_90", "triton_copy_3d_90", copy_3d),
    Case("triton_reduce_tiles_90", "triton_reduce_tiles_90", reduce_tiles),
    attention("triton_attention_80", "f16", 32, True),
    attention("triton_attention_90", "bf16", 64, True),
    attention("triton_attention_full_90", "f16", 32, False),
    Case("triton_paged_decode", "triton_paged_decode", paged_decode),
    Case("triton_grouped_80", "triton_grouped_80", grouped),
    Case("triton_dropout", "triton_dropout", dropout),
    Case("triton_scan", "triton_scan", scan_rows),
    Case("triton_sort", "triton_sort", sort_rows),
    Case("triton_histogram", "triton_histogram", histogram),
    Case("triton_argmax", "triton_argmax", argmax_rows),
    Case("triton_silu_mul", "triton_silu_mul", silu_mul),
    Case("triton_quantize", "triton_quantize", quantize),
)
