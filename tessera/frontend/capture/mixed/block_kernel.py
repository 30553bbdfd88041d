"""Attention of tokens of many sequences over a cache in blocks, in Triton.

In: queries [token, head, size], caches of keys and values [block, place, key head, size], the table
of blocks, the row and position of each token, a mask [token, context]; perhaps sinks. Out: [token,
head, size]. A program has one token and one key head with all query heads that share it. It goes
through the keys of the token's sequence up to its own position, a tile at a time, and keeps the
greatest score and the sum of shares so far. What it writes depends on no data.
"""

from __future__ import annotations

try:
    import triton.language as tl
except ImportError:  # nothing is compiled then, but the module can be imported
    tl = None


def block_attention(
    queries: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    table: tl.tensor,
    rows: tl.tensor,
    positions: tl.tensor,
    mask: tl.tensor,
    sinks: tl.tensor,
    out: tl.tensor,
    stride_t: tl.tensor,
    stride_h: tl.tensor,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    SIZE: tl.constexpr,
    VALUE: tl.constexpr,
    WIDE_GROUP: tl.constexpr,
    WIDE_SIZE: tl.constexpr,
    WIDE_VALUE: tl.constexpr,
    SCALE: tl.constexpr,
    CAP: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """One token and one key head. WIDE_... are powers of two from 16 on that hold the sizes;
    scores have no cap if CAP is 0."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    row = tl.load(rows + token)
    position = tl.load(positions + token)
    group = tl.arange(0, WIDE_GROUP)
    inner = tl.arange(0, WIDE_SIZE)
    outer = tl.arange(0, WIDE_VALUE)
    is_head = group < GROUP
    own = head * GROUP + group
    query = tl.load(
        queries + token * stride_t + own[:, None] * stride_h + inner[None, :],
        mask=is_head[:, None] & (inner < SIZE)[None, :],
        other=0.0,
    )
    top = tl.full((WIDE_GROUP,), float("-inf"), tl.float32)
    total = tl.zeros((WIDE_GROUP,), tl.float32)
    if HAS_SINKS:
        top = tl.load(sinks + own, mask=is_head, other=0.0).to(tl.float32)
        total += 1.0
    mixed = tl.zeros((WIDE_GROUP, WIDE_VALUE), tl.float32)
    for first in range(0, position + 1, TILE):
        at = first + tl.arange(0, TILE)
        is_there = at <= position
        block = tl.load(table + row * COLUMNS + at // BLOCK, mask=is_there, other=0)
        seen = tl.load(mask + token * (COLUMNS * BLOCK) + at, mask=is_there, other=0) != 0
        place = (block * BLOCK + at % BLOCK) * HEADS + head
        key = tl.load(
            keys + place[None, :] * SIZE + inner[:, None],
            mask=seen[None, :] & (inner < SIZE)[:, None],
            other=0.0,
        )
        scores = tl.dot(query, key, input_precision="ieee") * SCALE
        if CAP > 0:
            scores = CAP * (2.0 * tl.sigmoid(scores * (2.0 / CAP)) - 1.0)
        scores = tl.where(seen[None, :], scores, float("-inf"))
        now = tl.maximum(top, tl.max(scores, 1))
        shift = tl.where(now == float("-inf"), 0.0, now)
        shares = tl.exp(scores - shift[:, None])
        kept = tl.exp(top - shift)
        total = total * kept + tl.sum(shares, 1)
        value = tl.load(
            values + place[:, None] * VALUE + outer[None, :],
            mask=seen[:, None] & (outer < VALUE)[None, :],
            other=0.0,
        )
        mixed = mixed * kept[:, None]
        mixed = tl.dot(shares.to(value.dtype), value, mixed, input_precision="ieee")
        top = now
    tl.store(
        out + (token * (HEADS * GROUP) + own[:, None]) * VALUE + outer[None, :],
        (mixed / total[:, None]).to(out.dtype.element_ty),
        mask=is_head[:, None] & (outer < VALUE)[None, :],
    )
