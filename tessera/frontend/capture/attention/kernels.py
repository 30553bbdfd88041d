"""Attention over keys and values as they lie, in Triton: one kernel for prompts, for single tokens
and for what is between, and one that puts the parts of a split cache together.

In: queries [batch, head, token, size], keys and values [batch, head, key, size] (or pages of them,
behind a table), all by strides, the last one 1. Out: results [batch, head, token, size].

A program has a tile of rows of one head of keys. With PACK = 1 a row is a token of one head of
queries; with PACK = heads of queries per head of keys, the rows of a tile are all of these heads,
token by token, so that keys and values are read once for all of them. The keys that a tile may see
are walked in blocks with a running softmax (FlashAttention-2, arXiv:2307.08691). Blocks that all
rows see completely are not masked. With SPLIT the blocks of a tile are divided over several
programs, which leave their results with the logarithm of their weights; `combine` adds them up.

Which keys token `m` sees: those before `keys` (or `lengths[batch]`), up to `m + offset` if CAUSAL,
and after `m + offset - window` if WINDOWED. `offset` may come from memory (`position`).
Weights are powers of two. The running maximum is in units of log2 e, except where a mask is added
or a cap is put on: the least number of a mask must stay finite, so scores stay as they are.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _columns(SIZE: tl.constexpr, WIDE: tl.constexpr, FIRST: tl.constexpr):
    """Columns of a part of a head, and whether they are there."""
    at = FIRST + tl.arange(0, WIDE)
    return at, at < SIZE


@triton.jit
def _block(
    base,
    place,
    at,
    there,
    is_key,
    batch,
    head,
    start,
    CHECK: tl.constexpr,
    PADDED: tl.constexpr,
    MAPPED: tl.constexpr,
    ROWS: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Rows of keys or values; what is not there is zero."""
    if MAPPED:
        block = base.load([batch, head, start, 0]).reshape(ROWS, WIDE)
    else:
        pointers = base + place[:, None] + at[None, :]
        if CHECK and PADDED:
            block = tl.load(pointers, mask=is_key[:, None] & there[None, :], other=0.0)
        elif CHECK:
            block = tl.load(pointers, mask=is_key[:, None], other=0.0)
        elif PADDED:
            block = tl.load(pointers, mask=there[None, :], other=0.0)
        else:
            block = tl.load(pointers)
    return block


@triton.jit
def _walk(
    total,
    top,
    below,
    ready,
    q,
    q_rest,
    k,
    v,
    batch,
    head,
    table,
    mask,
    mask_row,
    last,
    is_row,
    low,
    high,
    keys,
    window,
    scale,
    soft_cap,
    stride_kp,
    stride_kn,
    stride_vp,
    stride_vn,
    stride_mn,
    CHECK: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr,
    MASK: tl.constexpr,
    SOFT_CAP: tl.constexpr,
    PAGE: tl.constexpr,
    SIZE: tl.constexpr,
    MAIN: tl.constexpr,
    REST: tl.constexpr,
    V_SIZE: tl.constexpr,
    V_WIDE: tl.constexpr,
    BLOCK_N: tl.constexpr,
    STAGES: tl.constexpr,
    MAPPED: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """The running softmax over the blocks from `low` to `high`; CHECK: not all of it is seen."""
    inner = tl.arange(0, BLOCK_N)
    at, there = _columns(SIZE, MAIN, 0)
    v_at, v_there = _columns(V_SIZE, V_WIDE, 0)
    for start in tl.range(low, high, BLOCK_N, num_stages=STAGES):
        key = start + inner
        is_key = key < keys
        if PAGE > 0:
            page = tl.load(table + key // PAGE, mask=is_key, other=0).to(tl.int64)
            k_place = page * stride_kp + (key % PAGE) * stride_kn
            v_place = page * stride_vp + (key % PAGE) * stride_vn
        else:
            k_place = key * stride_kn
            v_place = key * stride_vn
        if AHEAD:
            score = ready
            block = k.load([batch, head, start + BLOCK_N, 0]).reshape(BLOCK_N, MAIN)
            ready = tl.dot(q, block.T)
        else:
            block = _block(
                k, k_place, at, there, is_key, batch, head, start,
                CHECK, MAIN > SIZE, MAPPED, BLOCK_N, MAIN,
            )  # fmt: skip
            score = tl.dot(q, block.T)
        if REST > 0:
            rest_at, rest_there = _columns(SIZE, REST, MAIN)
            block = _block(
                k, k_place, rest_at, rest_there, is_key, batch, head, start,
                CHECK, MAIN + REST > SIZE, False, BLOCK_N, REST,
            )  # fmt: skip
            score = tl.dot(q_rest, block.T, score)
        if SOFT_CAP:
            # tanh by way of exp2; the argument in units of log2 e
            turned = tl.exp2(score * (scale * 2.8853900817779268 / soft_cap))
            score = soft_cap - 2 * soft_cap / (turned + 1)
        elif MASK == 2:
            score *= scale
        if MASK > 0:
            # rows and keys that are not there read nothing
            seen = is_row[:, None] & is_key[None, :]
            more = tl.load(
                mask + mask_row[:, None] + (key * stride_mn)[None, :], mask=seen, other=0
            )
            if MASK == 1:
                score = tl.where(more != 0, score, float("-inf"))
            else:
                score += more.to(tl.float32)
        if CHECK:
            if CAUSAL:
                seen = (key[None, :] <= last[:, None]) & is_key[None, :]
            else:
                seen = is_key[None, :]
            if WINDOWED:
                seen = seen & (key[None, :] > last[:, None] - window)
            score = tl.where(seen, score, float("-inf"))
        # What is left to scale: natural units where the scores are final, log2 e where they are not.
        if SOFT_CAP or MASK == 2:
            unit = 1.4426950408889634
            most = tl.maximum(top, tl.max(score, 1))
            # a row that has seen nothing yet has -inf, and -inf minus itself is no number
            base = tl.where(most == float("-inf"), 0.0, most)
            weight = tl.exp2((score - base[:, None]) * unit)
            shrink = tl.exp2((top - base) * unit)
        else:
            unit = scale * 1.4426950408889634
            most = tl.maximum(top, tl.max(score, 1) * unit)
            base = tl.where(most == float("-inf"), 0.0, most)
            weight = tl.exp2(score * unit - base[:, None])
            shrink = tl.exp2(top - base)
        below = below * shrink + tl.sum(weight, 1)
        total = total * shrink[:, None]
        block = _block(
            v, v_place, v_at, v_there, is_key, batch, head, start,
            CHECK, V_WIDE > V_SIZE, MAPPED, BLOCK_N, V_WIDE,
        )  # fmt: skip
        total = tl.dot(weight.to(block.dtype), block, total)
        top = most
    return total, top, below, ready


@triton.jit
def attention(
    q,
    k,
    v,
    out,
    partial,
    logs,
    mask,
    sinks,
    position,
    lengths,
    table,
    tokens,
    keys,
    heads,
    offset,
    window,
    scale,
    soft_cap,
    stride_qb,
    stride_qh,
    stride_qm,
    stride_kb,
    stride_kh,
    stride_kn,
    stride_vb,
    stride_vh,
    stride_vn,
    stride_ob,
    stride_oh,
    stride_om,
    stride_mb,
    stride_mh,
    stride_mm,
    stride_mn,
    stride_tb,
    GROUP: tl.constexpr,
    PACK: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr,
    MASK: tl.constexpr,
    SOFT_CAP: tl.constexpr,
    SINKS: tl.constexpr,
    POSITION: tl.constexpr,
    LENGTHS: tl.constexpr,
    PAGE: tl.constexpr,
    SPLIT: tl.constexpr,
    SIZE: tl.constexpr,
    MAIN: tl.constexpr,
    REST: tl.constexpr,
    V_SIZE: tl.constexpr,
    V_WIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    STAGES: tl.constexpr,
    MAPPED: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """One tile of rows against the keys that it sees, or its part of them (SPLIT).

    Grid: heads / PACK, tiles of rows times splits, batch. The last tiles see most: they go first.
    """
    pack, batch = tl.program_id(0), tl.program_id(2).to(tl.int64)
    if SPLIT:
        splits = tl.num_programs(1) // tl.cdiv(tokens * PACK, BLOCK_M)
        part = tl.program_id(1) % splits
        tile = tl.program_id(1) // splits
    else:
        splits = 1
        part = 0
        tile = tl.num_programs(1) - 1 - tl.program_id(1)
    row = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    token = row // PACK
    head = pack * PACK + row % PACK
    is_row = token < tokens
    kv_head = pack * PACK // GROUP
    batch32 = tl.program_id(2)
    if POSITION:
        offset += tl.load(position).to(tl.int32)
    if LENGTHS:
        keys = tl.minimum(keys, tl.load(lengths + batch).to(tl.int32))

    # From `first` to `ends` there are keys that a row sees; all rows see `whole_from` to `whole_to`.
    first_token = tile * BLOCK_M // PACK
    last_token = tl.minimum((tile * BLOCK_M + BLOCK_M - 1) // PACK, tokens - 1)
    first = 0
    whole_from = 0
    ends = keys
    whole_to = keys
    if CAUSAL:
        ends = tl.maximum(tl.minimum(keys, last_token + offset + 1), 0)
        whole_to = tl.maximum(tl.minimum(keys, first_token + offset + 1), 0)
    if WINDOWED:
        first = tl.maximum(first_token + offset - window + 1, 0) // BLOCK_N * BLOCK_N
        whole_from = tl.maximum(last_token + offset - window + 1, 0)
        whole_from = tl.cdiv(whole_from, BLOCK_N) * BLOCK_N
    if SPLIT:
        each = tl.cdiv(tl.cdiv(ends - first, BLOCK_N), splits) * BLOCK_N
        first += part * each
        ends = tl.minimum(ends, first + each)
    whole_to = tl.minimum(whole_to // BLOCK_N * BLOCK_N, ends // BLOCK_N * BLOCK_N)
    whole_from = tl.minimum(tl.maximum(whole_from, first), tl.maximum(whole_to, first))
    whole_to = tl.maximum(whole_to, whole_from)

    q += batch * stride_qb + head[:, None].to(tl.int64) * stride_qh
    q += token[:, None] * stride_qm
    at, there = _columns(SIZE, MAIN, 0)
    if MAIN > SIZE:
        q_main = tl.load(q + at[None, :], mask=is_row[:, None] & there[None, :], other=0.0)
    else:
        q_main = tl.load(q + at[None, :], mask=is_row[:, None], other=0.0)
    q_rest = q_main
    if REST > 0:
        at, there = _columns(SIZE, REST, MAIN)
        q_rest = tl.load(q + at[None, :], mask=is_row[:, None] & there[None, :], other=0.0)
    if PAGE > 0:
        k += kv_head.to(tl.int64) * stride_kh
        v += kv_head.to(tl.int64) * stride_vh
        table += batch * stride_tb
    elif not MAPPED:
        k += batch * stride_kb + kv_head.to(tl.int64) * stride_kh
        v += batch * stride_vb + kv_head.to(tl.int64) * stride_vh
    mask_row = row
    if MASK > 0:
        mask += batch * stride_mb
        mask_row = head * stride_mh + token * stride_mm

    top = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    below = tl.zeros((BLOCK_M,), tl.float32)
    total = tl.zeros((BLOCK_M, V_WIDE), tl.float32)
    last = token + offset
    if AHEAD:
        block = k.load([batch32, kv_head, first, 0]).reshape(BLOCK_N, MAIN)
        ready = tl.dot(q_main, block.T)
    else:
        ready = 0
    if WINDOWED:
        total, top, below, ready = _walk(
            total, top, below, ready, q_main, q_rest, k, v, batch32, kv_head, table, mask, mask_row, last, is_row,
            first, whole_from, keys, window, scale, soft_cap,
            stride_kb, stride_kn, stride_vb, stride_vn, stride_mn,
            True, CAUSAL, WINDOWED, MASK, SOFT_CAP, PAGE,
            SIZE, MAIN, REST, V_SIZE, V_WIDE, BLOCK_N, STAGES, MAPPED, AHEAD,
        )  # fmt: skip
    total, top, below, ready = _walk(
        total, top, below, ready, q_main, q_rest, k, v, batch32, kv_head, table, mask, mask_row, last, is_row,
        whole_from, whole_to, keys, window, scale, soft_cap,
        stride_kb, stride_kn, stride_vb, stride_vn, stride_mn,
        False, CAUSAL, WINDOWED, MASK, SOFT_CAP, PAGE,
        SIZE, MAIN, REST, V_SIZE, V_WIDE, BLOCK_N, STAGES, MAPPED, AHEAD,
    )  # fmt: skip
    total, top, below, ready = _walk(
        total, top, below, ready, q_main, q_rest, k, v, batch32, kv_head, table, mask, mask_row, last, is_row,
        whole_to, ends, keys, window, scale, soft_cap,
        stride_kb, stride_kn, stride_vb, stride_vn, stride_mn,
        True, CAUSAL, WINDOWED, MASK, SOFT_CAP, PAGE,
        SIZE, MAIN, REST, V_SIZE, V_WIDE, BLOCK_N, STAGES, MAPPED, AHEAD,
    )  # fmt: skip

    v_at, v_there = _columns(V_SIZE, V_WIDE, 0)
    if SOFT_CAP or MASK == 2:
        top *= 1.4426950408889634
    if SPLIT:
        place = ((batch * heads + head) * tokens + token) * splits + part
        total = total / tl.where(below == 0.0, 1.0, below)[:, None]
        tl.store(
            partial + place[:, None] * V_SIZE + v_at[None, :],
            total,
            mask=is_row[:, None] & v_there[None, :],
        )
        tl.store(logs + place, top + tl.log2(below), mask=is_row)
        return
    if SINKS:
        sink = tl.load(sinks + head).to(tl.float32) * 1.4426950408889634
        most = tl.maximum(top, sink)
        below = below * tl.exp2(top - most) + tl.exp2(sink - most)
        total = total * tl.exp2(top - most)[:, None]
    total = total / tl.where(below == 0.0, 1.0, below)[:, None]
    out += batch * stride_ob + head[:, None].to(tl.int64) * stride_oh
    out += token[:, None] * stride_om
    if V_WIDE > V_SIZE:
        kept = is_row[:, None] & v_there[None, :]
        tl.store(out + v_at[None, :], total.to(out.dtype.element_ty), mask=kept)
    else:
        tl.store(out + v_at[None, :], total.to(out.dtype.element_ty), mask=is_row[:, None])


@triton.jit
def combine(
    partial,
    logs,
    out,
    sinks,
    tokens,
    heads,
    splits,
    stride_ob,
    stride_oh,
    stride_om,
    SINKS: tl.constexpr,
    V_SIZE: tl.constexpr,
    V_WIDE: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """The parts of one row, weighted. Grid: rows (batch, head, token)."""
    row = tl.program_id(0)
    token, head = row % tokens, row // tokens % heads
    batch = (row // tokens // heads).to(tl.int64)
    at = tl.arange(0, V_WIDE)
    part = tl.arange(0, SPLITS)
    place = row.to(tl.int64) * splits + part
    log = tl.load(logs + place, mask=part < splits, other=float("-inf"))
    each = tl.load(
        partial + place[:, None] * V_SIZE + at[None, :],
        mask=(part < splits)[:, None] & (at < V_SIZE)[None, :],
        other=0.0,
    )
    most = tl.max(log, 0)
    if SINKS:
        sink = tl.load(sinks + head).to(tl.float32) * 1.4426950408889634
        most = tl.maximum(most, sink)
    base = tl.where(most == float("-inf"), 0.0, most)
    weight = tl.exp2(log - base)
    below = tl.sum(weight, 0)
    if SINKS:
        below += tl.exp2(sink - base)
    total = tl.sum(each * weight[:, None], 0) / tl.where(below == 0.0, 1.0, below)
    place = batch * stride_ob + head.to(tl.int64) * stride_oh + token * stride_om
    tl.store(out + place + at, total.to(out.dtype.element_ty), mask=at < V_SIZE)
