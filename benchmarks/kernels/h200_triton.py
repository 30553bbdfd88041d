"""Triton kernels of real models whose sizes are arguments: one compiled kernel, many rows.

`benchmarks.prediction.h200_cases` compiles them without a GPU. Products and attention are those of
serving systems in plain form: tiles in groups, an online softmax, splits of a long cache.

Longer than 400 lines because models combine these kernels freely.
"""

# Triton has no types here, and its names are its own.
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def gemm(
    a,
    b,
    residual,
    out,
    rows,
    columns,
    depth,
    ADD: tl.constexpr,
    GELU: tl.constexpr,
    MASKED: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    DEEP: tl.constexpr,
):
    """out = a @ b^T (+ residual), all by rows; MASKED: rows may end within a tile."""
    tile = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(rows, BM), columns // BN
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
        if MASKED:  # noqa: SIM108
            x = tl.load(left, mask=row[:, None] < rows, other=0.0)
        else:
            x = tl.load(left)
        total = tl.dot(x, tl.load(right), total)
        left += BK
        right += BK
    place = row[:, None] * columns + column[None, :]
    if GELU:
        total = 0.5 * total * (1.0 + tl.math.erf(total * 0.70710678))
    if MASKED:
        if ADD:
            total += tl.load(residual + place, mask=row[:, None] < rows, other=0.0).to(tl.float32)
        tl.store(out + place, total.to(out.dtype.element_ty), mask=row[:, None] < rows)
    else:
        if ADD:
            total += tl.load(residual + place).to(tl.float32)
        tl.store(out + place, total.to(out.dtype.element_ty))


@triton.jit
def flash_prefill(
    queries,
    keys,
    values,
    out,
    length,
    heads,
    group,
    CAUSAL: tl.constexpr,
    WIDTH: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
):
    """Attention of a tile of queries; [batch, heads, length, WIDTH], keys with heads / group."""
    tile, head = tl.program_id(0), tl.program_id(1)
    row = tile * BM + tl.arange(0, BM)
    at = tl.arange(0, WIDTH)
    inner = tl.arange(0, BN)
    batch = head // heads
    shared = batch * (heads // group) + (head % heads) // group
    q = tl.load(queries + (head * length + row)[:, None] * WIDTH + at[None, :])
    k_at = keys + shared * length * WIDTH + inner[None, :] * WIDTH + at[:, None]
    v_at = values + shared * length * WIDTH + inner[:, None] * WIDTH + at[None, :]
    top = tl.full((BM,), -1e30, tl.float32)
    below = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, WIDTH), tl.float32)
    seen = (tile + 1) * BM if CAUSAL else length
    for start in range(0, seen, BN):
        score = tl.dot(q, tl.load(k_at)) * 0.12751744
        if CAUSAL:
            score = tl.where((start + inner)[None, :] <= row[:, None], score, -1e30)
        most = tl.maximum(top, tl.max(score, 1))
        weight = tl.exp2(score - most[:, None])
        shrink = tl.exp2(top - most)
        below = below * shrink + tl.sum(weight, 1)
        total = total * shrink[:, None]
        total = tl.dot(weight.to(tl.bfloat16), tl.load(v_at), total)
        top = most
        k_at += BN * WIDTH
        v_at += BN * WIDTH
    total = total / below[:, None]
    tl.store(out + (head * length + row)[:, None] * WIDTH + at[None, :], total.to(tl.bfloat16))


@triton.jit
def flash_decode(
    queries,
    keys,
    values,
    out,
    sums,
    context,
    part,
    GROUP: tl.constexpr,
    WIDTH: tl.constexpr,
    BN: tl.constexpr,
):
    """One query per sequence against `part` tokens of its cache; [batch * heads, context, WIDTH].

    Grid: heads of keys of all sequences, parts. Results of parts and their sums are joined later.
    """
    head, split = tl.program_id(0), tl.program_id(1)
    lane = tl.arange(0, 16)
    at = tl.arange(0, WIDTH)
    inner = tl.arange(0, BN)
    q = tl.load(queries + (head * GROUP + lane % GROUP)[:, None] * WIDTH + at[None, :])
    cache = (head.to(tl.int64) * context + split * part) * WIDTH
    k_at = keys + cache + inner[None, :] * WIDTH + at[:, None]
    v_at = values + cache + inner[:, None] * WIDTH + at[None, :]
    top = tl.full((16,), -1e30, tl.float32)
    below = tl.zeros((16,), tl.float32)
    total = tl.zeros((16, WIDTH), tl.float32)
    for _ in range(0, part // BN):
        score = tl.dot(q, tl.load(k_at)) * 0.12751744
        most = tl.maximum(top, tl.max(score, 1))
        weight = tl.exp2(score - most[:, None])
        shrink = tl.exp2(top - most)
        below = below * shrink + tl.sum(weight, 1)
        total = total * shrink[:, None]
        total = tl.dot(weight.to(tl.bfloat16), tl.load(v_at), total)
        top = most
        k_at += BN * WIDTH
        v_at += BN * WIDTH
    slot = (split * tl.num_programs(0) + head) * GROUP + lane
    place = out + slot[:, None] * WIDTH + at[None, :]
    tl.store(place, (total / below[:, None]).to(tl.bfloat16), mask=lane[:, None] < GROUP)
    tl.store(sums + slot, top + tl.log2(below), mask=lane < GROUP)


@triton.jit
def join_parts(parts, sums, out, count, splits, WIDTH: tl.constexpr):
    """Join the parts of `flash_decode`."""
    row = tl.program_id(0)
    at = tl.arange(0, WIDTH)
    top = -1e30
    for split in range(0, splits):
        top = tl.maximum(top, tl.load(sums + split * count + row))
    below = 0.0
    total = tl.zeros((WIDTH,), tl.float32)
    for split in range(0, splits):
        weight = tl.exp2(tl.load(sums + split * count + row) - top)
        below += weight
        total += weight * tl.load(parts + (split * count + row) * WIDTH + at).to(tl.float32)
    tl.store(out + row * WIDTH + at, (total / below).to(tl.bfloat16))


@triton.jit
def rms_norm(x, weight, out, SIZE: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, SIZE)
    value = tl.load(x + row * SIZE + at).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value) / SIZE + 1e-5)
    scaled = (value * scale).to(tl.bfloat16) * tl.load(weight + at)
    tl.store(out + row * SIZE + at, scaled)


@triton.jit
def layer_norm(x, weight, bias, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < width
    value = tl.load(x + row * width + at, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(value) / width
    away = tl.where(mask, value - mean, 0.0)
    scale = tl.rsqrt(tl.sum(away * away) / width + 1e-5)
    w = tl.load(weight + at, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(bias + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + row * width + at, (away * scale * w + b).to(tl.bfloat16), mask=mask)


@triton.jit
def softmax_long(x, out, width, BLOCK: tl.constexpr):
    """Rows of any length, in three passes."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    top = tl.full((BLOCK,), -1e30, tl.float32)
    for first in range(0, width, BLOCK):
        value = tl.load(x + row * width + first + at, mask=first + at < width, other=-1e30)
        top = tl.maximum(top, value.to(tl.float32))
    most = tl.max(top, 0)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, width, BLOCK):
        value = tl.load(x + row * width + first + at, mask=first + at < width, other=-1e30)
        total += tl.exp(value.to(tl.float32) - most)
    scale = 1.0 / tl.sum(total, 0)
    for first in range(0, width, BLOCK):
        mask = first + at < width
        value = tl.load(x + row * width + first + at, mask=mask, other=-1e30)
        done = tl.exp(value.to(tl.float32) - most) * scale
        tl.store(out + row * width + first + at, done.to(tl.bfloat16), mask=mask)


@triton.jit
def softmax(x, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < width
    value = tl.load(x + row * width + at, mask=mask, other=-1e30).to(tl.float32)
    value = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * width + at, (value / tl.sum(value, 0)).to(tl.bfloat16), mask=mask)


@triton.jit
def gather_rows(index, table, out, width, BLOCK: tl.constexpr):
    """Rows of a table by number: embeddings, tokens of an expert."""
    row, part = tl.program_id(0), tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    mask = at < width
    number = tl.load(index + row).to(tl.int64)
    tl.store(out + row * width + at, tl.load(table + number * width + at, mask=mask), mask=mask)


@triton.jit
def silu_mul(both, out, width, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    mask = at < width
    gate = tl.load(both + row * (2 * width) + at, mask=mask).to(tl.float32)
    up = tl.load(both + row * (2 * width) + width + at, mask=mask).to(tl.float32)
    tl.store(out + row * width + at, (gate * tl.sigmoid(gate) * up).to(tl.bfloat16), mask=mask)


@triton.jit
def add(x, y, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)


@triton.jit
def gelu(x, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    value = tl.load(x + at, mask=mask).to(tl.float32)
    done = 0.5 * value * (1.0 + tl.math.erf(value * 0.70710678))
    tl.store(out + at, done.to(tl.bfloat16), mask=mask)


@triton.jit
def scan_rows(x, out, width, BLOCK: tl.constexpr):
    """Running sums along rows."""
    row = tl.program_id(0)
    carry = 0.0
    for first in range(0, width, BLOCK):
        at = first + tl.arange(0, BLOCK)
        mask = at < width
        value = tl.load(x + row * width + at, mask=mask, other=0.0).to(tl.float32)
        tl.store(out + row * width + at, (tl.cumsum(value, 0) + carry).to(tl.float32), mask=mask)
        carry += tl.sum(value, 0)


@triton.jit
def conv3x3(
    x,
    weight,
    out,
    height,
    width,
    channels,
    features,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """A 3x3 convolution with edges, [pixels, channels], weights [9, features, channels]."""
    pixel = tl.program_id(0) * BM + tl.arange(0, BM)
    feature = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    across, down = pixel % width, (pixel // width) % height
    total = tl.zeros((BM, BN), tl.float32)
    for tap in range(0, 9):
        dy, dx = tap // 3 - 1, tap % 3 - 1
        there = (across + dx >= 0) & (across + dx < width) & (down + dy >= 0) & (down + dy < height)
        source = x + (pixel + dy * width + dx)[:, None] * channels
        kernel = weight + tap * features * channels + feature[None, :] * channels
        for first in range(0, channels, BK):
            left = tl.load(source + (first + inner)[None, :], mask=there[:, None], other=0.0)
            total = tl.dot(left, tl.load(kernel + (first + inner)[:, None]), total)
    place = pixel[:, None] * features + feature[None, :]
    tl.store(out + place, total.to(tl.bfloat16))


@triton.jit
def place_heads(qkv, queries, keys, values, first, length, HEADS: tl.constexpr):
    """Rows of one stream to [heads, length, 128] from `first` on."""
    row, head = tl.program_id(0), tl.program_id(1)
    at = tl.arange(0, 128)
    source = qkv + row * (3 * HEADS * 128) + head * 128 + at
    target = (head * length + first + row) * 128 + at
    tl.store(queries + target, tl.load(source))
    tl.store(keys + target, tl.load(source + HEADS * 128))
    tl.store(values + target, tl.load(source + 2 * HEADS * 128))


@triton.jit
def merge_heads(x, out, first, length, HEADS: tl.constexpr):
    """Back to rows."""
    row, head = tl.program_id(0), tl.program_id(1)
    at = tl.arange(0, 128)
    value = tl.load(x + (head * length + first + row) * 128 + at)
    tl.store(out + row * (HEADS * 128) + head * 128 + at, value)


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
