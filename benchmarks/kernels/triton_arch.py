"""Triton products and attention, compiled to PTX for several architectures without a GPU.

    python benchmarks/kernels/triton_arch.py FOLDER

Writes one PTX file per kernel, tile and architecture, and `index.json` (what each is, its warps and
shared memory). Sizes are arguments, so one text serves all shapes. Needs Triton 3.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

ARCHITECTURES = (80, 89, 90, 100, 120)


@triton.jit
def gemm(  # type: ignore[no-untyped-def]
    a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros([BM, BN], dtype=tl.float32)
    left = a + (rows % m)[:, None] * k + inner[None, :]
    right = b + inner[:, None] + (cols % n)[None, :] * k
    for first in range(0, k, BK):
        x = tl.load(left, mask=inner[None, :] < k - first, other=0.0)
        y = tl.load(right, mask=inner[:, None] < k - first, other=0.0)
        total += tl.dot(x, y)
        left += BK
        right += BK
    mask = (rows < m)[:, None] & (cols < n)[None, :]
    tl.store(c + rows[:, None] * n + cols[None, :], total.to(c.dtype.element_ty), mask=mask)


@triton.jit
def grouped_gemm(  # type: ignore[no-untyped-def]
    a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """The order of Triton's tutorial: eight rows of tiles at a time."""
    pid = tl.program_id(0)
    across, down = tl.cdiv(n, BN), tl.cdiv(m, BM)
    group = pid // (8 * across)
    high = min(down - group * 8, 8)
    row = group * 8 + (pid % (8 * across)) % high
    col = (pid % (8 * across)) // high
    rows = (row * BM + tl.arange(0, BM)) % m
    cols = (col * BN + tl.arange(0, BN)) % n
    inner = tl.arange(0, BK)
    total = tl.zeros([BM, BN], dtype=tl.float32)
    left = a + rows[:, None] * k + inner[None, :]
    right = b + inner[:, None] * n + cols[None, :]
    for step in range(0, tl.cdiv(k, BK)):
        x = tl.load(left, mask=inner[None, :] < k - step * BK, other=0.0)
        y = tl.load(right, mask=inner[:, None] < k - step * BK, other=0.0)
        total += tl.dot(x, y)
        left += BK
        right += BK * n
    rows = row * BM + tl.arange(0, BM)
    cols = col * BN + tl.arange(0, BN)
    mask = (rows < m)[:, None] & (cols < n)[None, :]
    tl.store(c + rows[:, None] * n + cols[None, :], total.to(c.dtype.element_ty), mask=mask)


@triton.jit
def flash(  # type: ignore[no-untyped-def]
    q, k, v, o, length, group, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr
):
    """Causal attention; grid: blocks of queries, heads of all batches; `group` share a head."""
    start, head = tl.program_id(0), tl.program_id(1)
    rows = start * BM + tl.arange(0, BM)
    wide = tl.arange(0, D)
    base = head.to(tl.int64) * length * D
    shared = (head // group).to(tl.int64) * length * D
    query = tl.load(q + base + rows[:, None] * D + wide[None, :], mask=rows[:, None] < length)
    top = tl.full([BM], -1e30, dtype=tl.float32)
    total = tl.zeros([BM], dtype=tl.float32)
    result = tl.zeros([BM, D], dtype=tl.float32)
    last = min((start + 1) * BM, length)
    for first in range(0, last, BN):
        cols = first + tl.arange(0, BN)
        inside = cols[:, None] < length
        key = tl.load(k + shared + cols[:, None] * D + wide[None, :], mask=inside, other=0.0)
        score = tl.dot(query, tl.trans(key)) * scale
        score = tl.where(rows[:, None] >= cols[None, :], score, -1e30)
        high = tl.maximum(top, tl.max(score, 1))
        weight = tl.exp2(score - high[:, None])
        fade = tl.exp2(top - high)
        total = total * fade + tl.sum(weight, 1)
        value = tl.load(v + shared + cols[:, None] * D + wide[None, :], mask=inside, other=0.0)
        result = result * fade[:, None] + tl.dot(weight.to(tl.bfloat16), value)
        top = high
    result = result / total[:, None]
    mask = rows[:, None] < length
    tl.store(o + base + rows[:, None] * D + wide[None, :], result.to(tl.bfloat16), mask=mask)


@triton.jit
def decode(  # type: ignore[no-untyped-def]
    q, k, v, o, length, group, part, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr
):
    """One query per head over a part of the keys; grid: heads that share keys, batches, parts."""
    head = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    rows = tl.arange(0, BM)
    wide = tl.arange(0, D)
    mine = rows[:, None] < group
    shared = head.to(tl.int64) * length * D
    base = head.to(tl.int64) * group * D
    query = tl.load(q + base + rows[:, None] * D + wide[None, :], mask=mine, other=0.0)
    top = tl.full([BM], -1e30, dtype=tl.float32)
    total = tl.zeros([BM], dtype=tl.float32)
    result = tl.zeros([BM, D], dtype=tl.float32)
    begin = tl.program_id(2) * part
    end = min(begin + part, length)
    for first in range(begin, end, BN):
        cols = first + tl.arange(0, BN)
        inside = cols[:, None] < end
        key = tl.load(k + shared + cols[:, None] * D + wide[None, :], mask=inside, other=0.0)
        score = tl.dot(query, tl.trans(key)) * scale
        score = tl.where(cols[None, :] < end, score, -1e30)
        high = tl.maximum(top, tl.max(score, 1))
        weight = tl.exp2(score - high[:, None])
        fade = tl.exp2(top - high)
        total = total * fade + tl.sum(weight, 1)
        value = tl.load(v + shared + cols[:, None] * D + wide[None, :], mask=inside, other=0.0)
        result = result * fade[:, None] + tl.dot(weight.to(tl.bfloat16), value)
        top = high
    place = o + (base * tl.num_programs(2) + tl.program_id(2) * group * D).to(tl.int64)
    out = (result / total[:, None]).to(tl.bfloat16)
    tl.store(place + rows[:, None] * D + wide[None, :], out, mask=mine)


# Name, kernel, sizes, warps, stages: the same for all architectures.
CASES: tuple[tuple[str, Any, dict[str, int], int, int], ...] = (
    ("gemm16", gemm, {"BM": 16, "BN": 64, "BK": 128}, 4, 3),
    ("gemm64", gemm, {"BM": 64, "BN": 64, "BK": 64}, 4, 3),
    ("gemm128", gemm, {"BM": 128, "BN": 128, "BK": 32}, 4, 3),
    ("grouped", grouped_gemm, {"BM": 128, "BN": 128, "BK": 64}, 8, 2),
    ("wide", grouped_gemm, {"BM": 128, "BN": 256, "BK": 64}, 8, 3),
    ("flash64", flash, {"BM": 64, "BN": 64, "D": 128}, 4, 2),
    ("flash64s", flash, {"BM": 64, "BN": 64, "D": 128}, 4, 1),
    ("flash128", flash, {"BM": 128, "BN": 64, "D": 128}, 8, 2),
    ("flash128n", flash, {"BM": 128, "BN": 32, "D": 128}, 4, 2),
    ("flash128w", flash, {"BM": 128, "BN": 128, "D": 128}, 8, 2),
    ("decode", decode, {"BM": 16, "BN": 64, "D": 128}, 4, 2),
)
_DEBUG = re.compile(r"^\s*(\.loc|\.file|//|\$L__tmp\d+:).*\n", re.MULTILINE)


def signature(kernel: Any, constants: dict[str, int]) -> dict[str, str]:
    kinds = {"scale": "fp32"}
    pointers = ("a", "b", "c", "q", "k", "v", "o")
    names = [name for name in kernel.arg_names if name not in constants]
    is_gemm = names[0] == "a"
    return {
        name: kinds.get(
            name, "i32" if (is_gemm and name == "k") or name not in pointers else "*bf16"
        )
        for name in names
    } | dict.fromkeys(constants, "constexpr")


def build(folder: Path) -> None:
    index: dict[str, object] = {}
    folder.mkdir(parents=True, exist_ok=True)
    for name, kernel, constants, warps, stages in CASES:
        kinds = signature(kernel, constants)
        places = {(kernel.arg_names.index(key),): value for key, value in constants.items()}
        aligned = {
            (place,): [["tt.divisibility", 16]]
            for place, key in enumerate(kernel.arg_names)
            if kinds[key].startswith("*") or (kinds[key] == "i32" and key not in ("group",))
        }
        for arch in ARCHITECTURES:
            source = ASTSource(kernel, kinds, places, aligned)
            target = GPUTarget("cuda", arch, 32)
            options = {"num_warps": warps, "num_stages": stages}
            made = triton.compile(source, target=target, options=options)
            text = made.asm["ptx"]
            text = _DEBUG.sub("", text.split("\t.section")[0])
            path = folder / f"{name}_sm{arch}.ptx"
            path.write_text(text)
            index[path.name] = {
                "kernel": made.metadata.name,
                "triton": triton.__version__,
                "constants": constants,
                "arch": arch,
                "threads": made.metadata.num_warps * 32,
                "shared": made.metadata.shared,
            }
            print(path.name, len(text), flush=True)
    (folder / "index.json").write_text(json.dumps(index, indent=1) + "\n")


if __name__ == "__main__":
    build(Path(sys.argv[1]))
