"""Attention over keys and values in place, in Triton: one kernel for any number of tokens, from
prompts to single tokens, and one that combines the parts of a split cache.

In: queries [batch, head, token, size], keys and values [batch, head, key, size] (or pages of them,
found by a table), all by strides, the last stride 1. Out: results [batch, head, token, size].

A program has a tile of rows of one head of keys. With PACK = 1 a row is a token of one head of
queries; with PACK = heads of queries per head of keys, the rows of a tile are all of these heads,
token by token, so that keys and values are read once for all of them. The keys that a tile may see
are walked in blocks (`blocks`). Blocks that all rows see completely are not masked. With SPLIT the
blocks of a tile are divided over several programs, which store their results with the logarithm of
their weights; `combine` sums them.

Which keys token `m` sees: those before `keys` (or `lengths[batch]`), up to `m + offset` if CAUSAL,
and after `m + offset - window` if WINDOWED. `offset` may come from memory (`position`). MASK is 1
for a boolean mask, 2 for a mask that is added, 3 for a boolean mask that fills hidden scores with
the least number of the type. A token that sees no key gets zeros, or NaN if NAN is set. LONG:
offsets do not fit in 32 bits.
"""

from __future__ import annotations

from tessera.frontend.capture.attention.blocks import columns_of, walk_blocks

try:
    import triton.language as tl
except ImportError:  # nothing is compiled then, but the module can be imported
    tl = None


def attention(
    q: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    out: tl.tensor,
    partial: tl.tensor,
    logs: tl.tensor,
    mask: tl.tensor,
    sinks: tl.tensor,
    position: tl.tensor,
    lengths: tl.tensor,
    table: tl.tensor,
    tokens: tl.tensor,
    keys: tl.tensor,
    heads: tl.tensor,
    offset: tl.tensor,
    window: tl.tensor,
    scale: tl.tensor,
    soft_cap: tl.tensor,
    stride_qb: tl.tensor,
    stride_qh: tl.tensor,
    stride_qm: tl.tensor,
    stride_kb: tl.tensor,
    stride_kh: tl.tensor,
    stride_kn: tl.tensor,
    stride_vb: tl.tensor,
    stride_vh: tl.tensor,
    stride_vn: tl.tensor,
    stride_ob: tl.tensor,
    stride_oh: tl.tensor,
    stride_om: tl.tensor,
    stride_mb: tl.tensor,
    stride_mh: tl.tensor,
    stride_mm: tl.tensor,
    stride_mn: tl.tensor,
    stride_tb: tl.tensor,
    GROUP: tl.constexpr,
    PACK: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr,
    MASK: tl.constexpr,
    SOFT_CAP: tl.constexpr,
    SINKS: tl.constexpr,
    NAN: tl.constexpr,
    LONG: tl.constexpr,
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
) -> None:
    """One tile of rows and the keys that it sees, or its part of them (SPLIT).

    Grid: heads / PACK, tiles of rows times splits, batch. The last tiles see the most keys, so they
    run first.
    """
    pack, batch = tl.program_id(0), tl.program_id(2).to(tl.int64)
    if LONG:
        long = tl.full((), 1, tl.int64)
        stride_qm, stride_om = stride_qm * long, stride_om * long
        stride_kn, stride_vn = stride_kn * long, stride_vn * long
        stride_mh, stride_mm, stride_mn = stride_mh * long, stride_mm * long, stride_mn * long
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
    kv_head = (pack * PACK // GROUP).to(tl.int64)
    if POSITION:
        offset += tl.load(position).to(tl.int32)
    if LENGTHS:
        keys = tl.minimum(keys, tl.load(lengths + batch).to(tl.int32))

    # Rows see keys from `first` to `ends`; all of them see those from `whole_from` to `whole_to`.
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
    at, there = columns_of(SIZE, MAIN, 0)
    if MAIN > SIZE:
        q_main = tl.load(q + at[None, :], mask=is_row[:, None] & there[None, :], other=0.0)
    else:
        q_main = tl.load(q + at[None, :], mask=is_row[:, None], other=0.0)
    q_rest = q_main
    if REST > 0:
        at, there = columns_of(SIZE, REST, MAIN)
        q_rest = tl.load(q + at[None, :], mask=is_row[:, None] & there[None, :], other=0.0)
    if PAGE > 0:
        k += kv_head * stride_kh
        v += kv_head * stride_vh
        table += batch * stride_tb
    else:
        k += batch * stride_kb + kv_head * stride_kh
        v += batch * stride_vb + kv_head * stride_vh
    mask_row = row
    if MASK > 0:
        mask += batch * stride_mb
        mask_row = head * stride_mh + token * stride_mm

    top = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    below = tl.zeros((BLOCK_M,), tl.float32)
    total = tl.zeros((BLOCK_M, V_WIDE), tl.float32)
    last = token + offset
    if WINDOWED:
        total, top, below = walk_blocks(
            total, top, below, q_main, q_rest, k, v,
            table, mask, mask_row, last, is_row,
            first, whole_from, keys, window, scale, soft_cap,
            stride_kb, stride_kn, stride_vb, stride_vn, stride_mn,
            True, CAUSAL, WINDOWED, MASK, SOFT_CAP, PAGE,
            SIZE, MAIN, REST, V_SIZE, V_WIDE, BLOCK_N, STAGES,
        )  # fmt: skip
    total, top, below = walk_blocks(
        total, top, below, q_main, q_rest, k, v,
        table, mask, mask_row, last, is_row,
        whole_from, whole_to, keys, window, scale, soft_cap,
        stride_kb, stride_kn, stride_vb, stride_vn, stride_mn,
        False, CAUSAL, WINDOWED, MASK, SOFT_CAP, PAGE,
        SIZE, MAIN, REST, V_SIZE, V_WIDE, BLOCK_N, STAGES,
    )  # fmt: skip
    total, top, below = walk_blocks(
        total, top, below, q_main, q_rest, k, v,
        table, mask, mask_row, last, is_row,
        whole_to, ends, keys, window, scale, soft_cap,
        stride_kb, stride_kn, stride_vb, stride_vn, stride_mn,
        True, CAUSAL, WINDOWED, MASK, SOFT_CAP, PAGE,
        SIZE, MAIN, REST, V_SIZE, V_WIDE, BLOCK_N, STAGES,
    )  # fmt: skip

    v_at, v_there = columns_of(V_SIZE, V_WIDE, 0)
    if SPLIT:
        if MASK >= 2:
            # keys hidden by a number count if a row sees no others: below all other scores, but
            # finite
            top = tl.where((top < -1e29) & (below > 0.0), -11356.0, top)
        if SOFT_CAP or MASK >= 2:
            top *= 1.4426950408889634
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
        if SOFT_CAP or MASK >= 2:
            top *= 1.4426950408889634
        sink = tl.load(sinks + head).to(tl.float32) * 1.4426950408889634
        most = tl.maximum(top, sink)
        below = below * tl.exp2(top - most) + tl.exp2(sink - most)
        total = total * tl.exp2(top - most)[:, None]
    if not NAN:
        below = tl.where(below == 0.0, 1.0, below)
    total = total / below[:, None]
    out += batch * stride_ob + head[:, None].to(tl.int64) * stride_oh
    out += token[:, None] * stride_om
    if V_WIDE > V_SIZE:
        kept = is_row[:, None] & v_there[None, :]
        tl.store(out + v_at[None, :], total.to(out.dtype.element_ty), mask=kept)
    else:
        tl.store(out + v_at[None, :], total.to(out.dtype.element_ty), mask=is_row[:, None])


def combine(
    partial: tl.tensor,
    logs: tl.tensor,
    out: tl.tensor,
    sinks: tl.tensor,
    tokens: tl.tensor,
    heads: tl.tensor,
    splits: tl.tensor,
    stride_ob: tl.tensor,
    stride_oh: tl.tensor,
    stride_om: tl.tensor,
    SINKS: tl.constexpr,
    NAN: tl.constexpr,
    V_SIZE: tl.constexpr,
    V_WIDE: tl.constexpr,
    SPLITS: tl.constexpr,
) -> None:
    """The weighted sum of the parts of one row. Grid: rows (batch, head, token)."""
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
    if not NAN:
        below = tl.where(below == 0.0, 1.0, below)
    total = tl.sum(each * weight[:, None], 0) / below
    place = batch * stride_ob + head.to(tl.int64) * stride_oh + token * stride_om
    tl.store(out + place + at, total.to(out.dtype.element_ty), mask=at < V_SIZE)
