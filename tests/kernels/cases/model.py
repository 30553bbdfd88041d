"""Kernels of model inference."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tests.kernels.case import Case, Expect, Launch, Run
from tests.kernels.formats import from_bf16
from tests.kernels.rng import Rng

I32 = np.int32
F32 = np.float32


def softmax(x: NDArray) -> NDArray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def paged_attention(rng: Rng) -> Run:
    seqs, heads, dim, max_blocks, pool = 3, 2, 40, 4, 11
    lengths = np.array([37, 1, 64], I32)
    tables = rng.permutation(pool)[: seqs * max_blocks]
    tables = np.resize(tables, (seqs, max_blocks)).astype(I32)
    q = rng.f32(seqs, heads, dim, low=-2, high=2)
    keys, values = rng.f32(pool, 16, heads, dim), rng.f32(pool, 16, heads, dim)
    out = np.zeros((seqs, heads, dim))
    for s, length in enumerate(lengths.tolist()):
        k = keys[tables[s]].reshape(-1, heads, dim)[:length].astype(np.float64)
        v = values[tables[s]].reshape(-1, heads, dim)[:length].astype(np.float64)
        weights = softmax(np.einsum("hd,thd->ht", q[s], k) * 0.15)
        out[s] = np.einsum("ht,thd->hd", weights, v)
    args = [
        "out",
        "q",
        "keys",
        "values",
        "tables",
        "lengths",
        I32(heads),
        I32(dim),
        I32(max_blocks),
        F32(0.15),
    ]
    buffers = {
        "out": np.zeros((seqs, heads, dim), F32),
        "q": q,
        "keys": keys,
        "values": values,
        "tables": tables,
        "lengths": lengths,
    }
    launch = Launch("paged_attention", (seqs, heads), 32, args, smem=4 * 64)
    return Run(buffers, [launch], {"out": Expect(out, rtol=1e-5, atol=1e-5)})


def grouped_gemm(rng: Rng) -> Run:
    rows, n, k = [5, 0, 12, 1], 20, 17
    total = sum(rows)
    a, b = rng.f32(total, k), rng.f32(len(rows), k, n)
    starts = np.concatenate([[0], np.cumsum(rows)])
    expected = np.zeros((total, n))
    for e, count in enumerate(rows):
        part = slice(starts[e], starts[e] + count)
        expected[part] = a[part].astype(np.float64) @ b[e]
    experts = range(len(rows))
    pointers = {
        "pa": {8 * e: f"a+{starts[e] * k * 4}" for e in experts},
        "pb": {8 * e: f"b+{e * k * n * 4}" for e in experts},
        "pc": {8 * e: f"c+{starts[e] * n * 4}" for e in experts},
    }
    table = np.zeros(len(rows), np.uint64)
    buffers = {
        "c": np.zeros((total, n), F32),
        "a": a,
        "b": b,
        "rows": np.array(rows, I32),
        "pa": table,
        "pb": table.copy(),
        "pc": table.copy(),
    }
    args = ["pc", "pa", "pb", "rows", I32(n), I32(k)]
    launch = Launch("grouped_gemm", (2, 3, 4), (16, 4), args)
    return Run(buffers, [launch], {"c": Expect(expected, rtol=1e-5, atol=1e-5)}, pointers)


def route_top2(rng: Rng) -> Run:
    tokens, experts = 75, 8
    logits = rng.f32(tokens, experts, low=-4, high=4)
    order = np.argsort(-logits, axis=1, kind="stable")[:, :2].astype(I32)
    pair = np.take_along_axis(logits, order, 1).astype(np.float64)
    weight = softmax(pair)
    buffers = {
        "expert": np.zeros((tokens, 2), I32),
        "weight": np.zeros((tokens, 2), F32),
        "load": np.zeros(experts, I32),
        "logits": logits,
    }
    args = ["expert", "weight", "load", "logits", I32(tokens), I32(experts)]
    expected = {
        "expert": order,
        "weight": Expect(weight, rtol=1e-5, atol=1e-6),
        "load": np.bincount(order.ravel(), minlength=experts).astype(I32),
    }
    return Run(buffers, [Launch("route_top2", 2, 64, args)], expected)


def selective_scan(rng: Rng) -> Run:
    length, channels = 12, 40
    x, delta = rng.f32(length, channels), rng.f32(length, channels, low=-3, high=2)
    delta[0, 0] = 25
    a = rng.f32(channels, 16, low=-2, high=0)
    b, c, d = rng.f32(length, 16), rng.f32(length, 16), rng.f32(channels)
    state = np.zeros((channels, 16))
    y = np.zeros((length, channels))
    for t in range(length):
        dt = np.log1p(np.exp(delta[t].astype(np.float64)))[:, None]
        state = np.exp(dt * a) * state + dt * b[t] * x[t][:, None]
        y[t] = state @ c[t].astype(np.float64) + d * x[t]
    buffers = {"y": np.zeros_like(x), "x": x, "delta": delta, "a": a, "b": b, "c": c, "d": d}
    args = ["y", "x", "delta", "a", "b", "c", "d", I32(length), I32(channels)]
    launch = Launch("selective_scan", 2, 32, args)
    return Run(buffers, [launch], {"y": Expect(y, rtol=1e-5, atol=1e-4)})


def conv2d(rng: Rng) -> Run:
    channels, h, width, filters = 3, 9, 13, 4
    image, w = rng.f32(channels, h, width), rng.f32(filters, channels, 3, 3)
    padded = np.pad(image.astype(np.float64), ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    expected = np.einsum("cyxij,fcij->fyx", windows, w)
    args = ["out", "image", "w", I32(channels), I32(h), I32(width), I32(filters)]
    buffers = {"out": np.zeros((filters, h, width), F32), "image": image, "w": w}
    launch = Launch("conv2d", (2, 3, filters), (8, 4), args)
    return Run(buffers, [launch], {"out": Expect(expected, rtol=1e-5, atol=1e-5)})


def depthwise1d(rng: Rng) -> Run:
    length, channels = 11, 50
    x, w = rng.bf16(length, channels), rng.bf16(channels, 4)
    padded = np.pad(from_bf16(x).astype(np.float64), ((3, 0), (0, 0)))
    weights = from_bf16(w)
    total = sum(padded[k : k + length] * weights[:, k] for k in range(4))
    expected = Expect(total / (1 + np.exp(-total)), rtol=2**-8, atol=1e-6, format="bf16")
    buffers = {"out": np.zeros_like(x), "x": x, "w": w}
    launch = Launch("depthwise1d", length, 64, ["out", "x", "w", I32(length), I32(channels)])
    return Run(buffers, [launch], {"out": expected})


def fft256(rng: Rng) -> Run:
    x = rng.f32(3, 256, 2)
    spectrum = np.fft.fft(x[..., 0].astype(np.float64) + 1j * x[..., 1], axis=1)
    expected = Expect(np.stack([spectrum.real, spectrum.imag], -1), rtol=1e-5, atol=3e-5)
    launch = Launch("fft256", 3, 128, ["out", "x"])
    return Run({"out": np.zeros_like(x), "x": x}, [launch], {"out": expected})


def philox(counter: NDArray[np.uint64], seed: int) -> NDArray[np.uint64]:
    """Philox 4x32-10 of (counter, 0, 0, 0)."""
    mask = np.uint64(2**32 - 1)
    zero = np.zeros_like(counter)
    x, y, z, w = counter, zero, zero, zero
    k0, k1 = seed % 2**32, seed >> 32
    for _ in range(10):
        p0, p1 = x * np.uint64(0xD2511F53), z * np.uint64(0xCD9E8D57)
        shift = np.uint64(32)
        x, y, z, w = (
            (p1 >> shift) ^ y ^ np.uint64(k0),
            p1 & mask,
            (p0 >> shift) ^ w ^ np.uint64(k1),
            p0 & mask,
        )
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return np.stack([x, y, z, w], -1)


def dropout(rng: Rng) -> Run:
    n, keep, seed = 303, F32(0.75), 0x123456789ABCDEF
    x = rng.f32(n)
    words = philox(np.arange(76, dtype=np.uint64), seed).ravel()[:n]
    kept = words.astype(np.uint32).astype(F32) * F32(2.0**-32) < keep
    expected = np.where(kept, x / keep, F32(0)).astype(F32)
    launch = Launch("dropout", 2, 64, ["out", "x", keep, np.uint64(seed), I32(n)])
    return Run({"out": np.zeros(n, F32), "x": x}, [launch], {"out": expected})


def threefry(rng: Rng) -> Run:
    n, k0, k1 = 100, 0x243F6A88, 0x85A308D3
    keys = [k0, k1, k0 ^ k1 ^ 0x1BD11BDA]
    rotate = [13, 15, 26, 6, 17, 29, 16, 24]
    values = []
    for i in range(n):
        x, y = (i + k0) % 2**32, k1
        for r in range(20):
            x = (x + y) % 2**32
            turn = rotate[r % 8]
            y = ((y << turn | y >> (32 - turn)) % 2**32) ^ x
            if r % 4 == 3:
                x = (x + keys[(r // 4 + 1) % 3]) % 2**32
                y = (y + keys[(r // 4 + 2) % 3] + r // 4 + 1) % 2**32
        values += [x, y]
    launch = Launch("threefry", 1, 128, ["out", np.uint32(k0), np.uint32(k1), I32(n)])
    return Run({"out": np.zeros(2 * n, np.uint32)}, [launch], {"out": np.array(values, np.uint32)})


def embedding(rng: Rng) -> Run:
    table, ids = rng.f32(30, 24), rng.integers(0, 30, 17, dtype=np.int64)
    launch = Launch("embedding", 17, 24, ["out", "table", "ids", I32(24)])
    buffers = {"out": np.zeros((17, 24), F32), "table": table, "ids": ids}
    return Run(buffers, [launch], {"out": table[ids]})


def cross_entropy(rng: Rng) -> Run:
    rows, classes = 9, 100
    logits, target = rng.f32(rows, classes, low=-6, high=6), rng.integers(0, classes, rows)
    wide = logits.astype(np.float64)
    expected = np.log(np.exp(wide).sum(1)) - wide[np.arange(rows), target]
    launch = Launch("cross_entropy", rows, 32, ["loss", "logits", "target", I32(classes)])
    buffers = {"loss": np.zeros(rows, F32), "logits": logits, "target": target}
    return Run(buffers, [launch], {"loss": Expect(expected, rtol=1e-5, atol=1e-5)})


BUILDERS = (
    paged_attention,
    grouped_gemm,
    route_top2,
    selective_scan,
    conv2d,
    depthwise1d,
    fft256,
    dropout,
    threefry,
    embedding,
    cross_entropy,
)
CASES = (
    *(Case(build.__name__, "model", build) for build in BUILDERS),
    *(Case(f"{build.__name__}_strict", "model_strict", build) for build in BUILDERS),
)
