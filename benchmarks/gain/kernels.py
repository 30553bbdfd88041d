"""Triton kernels of a Llama-like step, plain enough that every access is known before it runs.

Rows of the step are decode tokens first, then a chunk of a prompt. Sizes that differ from mix to
mix are arguments, not constants, so that one compiled kernel serves all of them. All sizes are
multiples of the tiles: nothing is masked but the causal edge.
"""

# Triton has no types here, and its names are its own.
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

HEAD = 128
GROUP = 4  # heads of queries that share one head of keys and values


@triton.jit
def embed(tokens, table, out, SIZE: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, SIZE)
    token = tl.load(tokens + row)
    tl.store(out + row * SIZE + at, tl.load(table + token.to(tl.int64) * SIZE + at))


@triton.jit
def most_likely(scores, out, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """The token with the highest score of each row."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    best = tl.full((BLOCK,), -1e30, tl.float32)
    where = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, SIZE, BLOCK):
        score = tl.load(scores + row * SIZE + start + at).to(tl.float32)
        where = tl.where(score > best, start + at, where)
        best = tl.maximum(score, best)
    tl.store(out + row, tl.max(tl.where(best == tl.max(best), where, 0)))


@triton.jit
def rms_norm(x, weight, out, SIZE: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, SIZE)
    value = tl.load(x + row * SIZE + at).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value) / SIZE + 1e-5)
    scaled = (value * scale).to(tl.bfloat16) * tl.load(weight + at)
    tl.store(out + row * SIZE + at, scaled)


@triton.jit
def silu_mul(both, out, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(both + row * (2 * SIZE) + at).to(tl.float32)
    up = tl.load(both + row * (2 * SIZE) + SIZE + at).to(tl.float32)
    tl.store(out + row * SIZE + at, (gate * tl.sigmoid(gate) * up).to(tl.bfloat16))


@triton.jit(do_not_specialize=["rows"])
def gemm(
    a,
    b,
    residual,
    out,
    rows,
    columns,
    depth,
    ADD: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    DEEP: tl.constexpr,
):
    """out = a @ b^T (+ residual), all by rows; tiles in groups of DEEP rows of tiles."""
    tile = tl.program_id(0)
    tiles_m, tiles_n = rows // BM, columns // BN
    group = tile // (DEEP * tiles_n)
    first = group * DEEP
    deep = tl.minimum(tiles_m - first, DEEP)
    m = first + (tile % (DEEP * tiles_n)) % deep
    n = (tile % (DEEP * tiles_n)) // deep
    row = m * BM + tl.arange(0, BM)
    column = n * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    left = a + row[:, None] * depth + inner[None, :]
    right = b + column[None, :] * depth + inner[:, None]
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, depth // BK):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += BK
        right += BK
    place = row[:, None] * columns + column[None, :]
    if ADD:
        total += tl.load(residual + place).to(tl.float32)
    tl.store(out + place, total.to(tl.bfloat16))


@triton.jit
def _turned(source, cos, sin, position, HALF: tl.constexpr):
    """A head with its two halves turned by the angles of a position."""
    at = tl.arange(0, HALF)
    c = tl.load(cos + position * HALF + at)
    s = tl.load(sin + position * HALF + at)
    first = tl.load(source + at).to(tl.float32)
    second = tl.load(source + HALF + at).to(tl.float32)
    return (first * c - second * s).to(tl.bfloat16), (first * s + second * c).to(tl.bfloat16)


@triton.jit(do_not_specialize=["row0", "position"])
def rotate_decode(
    qkv, cos, sin, queries, keys, values, row0, position, CONTEXT: tl.constexpr, HEADS: tl.constexpr
):
    """One token per sequence, all at one position: queries turned, keys and values to the cache."""
    token, head = tl.program_id(0), tl.program_id(1)
    HALF: tl.constexpr = 64
    at = tl.arange(0, HALF)
    row = qkv + (row0 + token) * ((HEADS * 6) * 128)
    for one in range(4):
        number = head * 4 + one
        first, second = _turned(row + number * 128, cos, sin, position, HALF)
        target = queries + token * (HEADS * 4 * 128) + number * 128
        tl.store(target + at, first)
        tl.store(target + HALF + at, second)
    place = ((token * HEADS + head) * CONTEXT + position) * 128
    first, second = _turned(row + (HEADS * 4 + head) * 128, cos, sin, position, HALF)
    tl.store(keys + place + at, first)
    tl.store(keys + place + HALF + at, second)
    whole = tl.arange(0, 128)
    tl.store(values + place + whole, tl.load(row + (HEADS * 5 + head) * 128 + whole))


@triton.jit(do_not_specialize=["row0", "position"])
def rotate_prefill(
    qkv, cos, sin, queries, keys, values, row0, position, CONTEXT: tl.constexpr, HEADS: tl.constexpr
):
    """A chunk of one sequence: queries turned, keys and values to its cache."""
    token, head = tl.program_id(0), tl.program_id(1)
    HALF: tl.constexpr = 64
    at = tl.arange(0, HALF)
    row = qkv + (row0 + token) * ((HEADS * 6) * 128)
    here = position + token
    for one in range(4):
        number = head * 4 + one
        first, second = _turned(row + number * 128, cos, sin, here, HALF)
        target = queries + token * (HEADS * 4 * 128) + number * 128
        tl.store(target + at, first)
        tl.store(target + HALF + at, second)
    place = (head * CONTEXT + here) * 128
    first, second = _turned(row + (HEADS * 4 + head) * 128, cos, sin, here, HALF)
    tl.store(keys + place + at, first)
    tl.store(keys + place + HALF + at, second)
    whole = tl.arange(0, 128)
    tl.store(values + place + whole, tl.load(row + (HEADS * 5 + head) * 128 + whole))


@triton.jit(do_not_specialize=["row0"])
def attention_decode(
    queries,
    keys,
    values,
    out,
    row0,
    CONTEXT: tl.constexpr,
    HEADS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One token of a sequence against its whole cache: a program per head of keys."""
    token, head = tl.program_id(0), tl.program_id(1)
    lane = tl.arange(0, 16)  # four of them are queries: a product has at least 16 rows
    at = tl.arange(0, 128)
    inner = tl.arange(0, BLOCK)
    start = (token * HEADS + head) * 4 * 128
    q = tl.load(queries + start + (lane[:, None] % 4) * 128 + at[None, :])
    cache = (token * HEADS + head).to(tl.int64) * (CONTEXT * 128)
    k_at = keys + cache + inner[None, :] * 128 + at[:, None]
    v_at = values + cache + inner[:, None] * 128 + at[None, :]
    top = tl.full((16,), -1e30, tl.float32)
    below = tl.zeros((16,), tl.float32)
    total = tl.zeros((16, 128), tl.float32)
    for _ in range(0, CONTEXT // BLOCK):
        score = tl.dot(q, tl.load(k_at)) * 0.12751744  # log2(e) / sqrt(128)
        most = tl.maximum(top, tl.max(score, 1))
        weight = tl.exp2(score - most[:, None])
        shrink = tl.exp2(top - most)
        below = below * shrink + tl.sum(weight, 1)
        total = total * shrink[:, None]
        total = tl.dot(weight.to(tl.bfloat16), tl.load(v_at), total)
        top = most
        k_at += BLOCK * 128
        v_at += BLOCK * 128
    total = total / below[:, None]
    place = out + row0 * (HEADS * 4 * 128) + start + lane[:, None] * 128 + at[None, :]
    tl.store(place, total.to(tl.bfloat16), mask=lane[:, None] < 4)


@triton.jit(do_not_specialize=["row0", "position"])
def attention_prefill(
    queries,
    keys,
    values,
    out,
    row0,
    position,
    CONTEXT: tl.constexpr,
    HEADS: tl.constexpr,
    BM: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A tile of the chunk's queries of one head against what they see of the cache."""
    tile, head = tl.program_id(0), tl.program_id(1)
    row = tile * BM + tl.arange(0, BM)
    at = tl.arange(0, 128)
    inner = tl.arange(0, BLOCK)
    wide: tl.constexpr = HEADS * 4 * 128
    q = tl.load(queries + row[:, None] * wide + head * 128 + at[None, :])
    cache = (head // 4) * (CONTEXT * 128)
    k_at = keys + cache + inner[None, :] * 128 + at[:, None]
    v_at = values + cache + inner[:, None] * 128 + at[None, :]
    top = tl.full((BM,), -1e30, tl.float32)
    below = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, 128), tl.float32)
    seen = position + (tile + 1) * BM
    for start in range(0, seen, BLOCK):
        score = tl.dot(q, tl.load(k_at)) * 0.12751744
        known = (start + inner)[None, :] <= (position + row)[:, None]
        score = tl.where(known, score, -1e30)
        most = tl.maximum(top, tl.max(score, 1))
        weight = tl.exp2(score - most[:, None])
        shrink = tl.exp2(top - most)
        below = below * shrink + tl.sum(weight, 1)
        total = total * shrink[:, None]
        total = tl.dot(weight.to(tl.bfloat16), tl.load(v_at), total)
        top = most
        k_at += BLOCK * 128
        v_at += BLOCK * 128
    total = total / below[:, None]
    place = out + (row0 + row)[:, None] * wide + head * 128 + at[None, :]
    tl.store(place, total.to(tl.bfloat16))
