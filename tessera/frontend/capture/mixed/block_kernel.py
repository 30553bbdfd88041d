"""Attention of tokens of many sequences over a cache in blocks, in Triton.

In: queries [token, head, size], caches of keys and values [block, place, key head, size], the table
of blocks, the row and position of each token; perhaps a mask [token, context], perhaps sinks. Out:
[token, head, size]. Tokens are taken in groups of QUERIES; the first token of a row in its group
computes all tokens of this row there, so that the tokens of a prompt share what they read, and
every answer has a program of its own. A program has one key head with all query heads that share
it. It goes through the keys up to the last position of its tokens, a tile at a time, and keeps the
greatest score and the sum of shares so far.
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
    tokens: tl.tensor,
    stride_t: tl.tensor,
    stride_h: tl.tensor,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    SIZE: tl.constexpr,
    VALUE: tl.constexpr,
    QUERIES: tl.constexpr,
    WIDE_GROUP: tl.constexpr,
    WIDE_SIZE: tl.constexpr,
    WIDE_VALUE: tl.constexpr,
    SCALE: tl.constexpr,
    CAP: tl.constexpr,
    HAS_MASK: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """The tokens of one row in a group, and one key head. WIDE_... are powers of two that hold the
    sizes; without a mask, tokens see all keys up to their own; scores have no cap if CAP is 0."""
    first = tl.program_id(0)
    head = tl.program_id(1)
    row = tl.load(rows + first)
    before = tl.load(rows + first - 1, mask=first % QUERIES != 0, other=-1)
    if before == row:
        return
    line = tl.arange(0, QUERIES * WIDE_GROUP)
    token = (first // QUERIES * QUERIES + line // WIDE_GROUP).to(tl.int64)
    own = head * GROUP + line % WIDE_GROUP
    in_step = (token >= first) & (token < tokens)
    is_own = in_step & (tl.load(rows + token, mask=in_step, other=-1) == row)
    position = tl.load(positions + token, mask=is_own, other=-1)
    last = tl.max(position, 0)
    is_own = is_own & (line % WIDE_GROUP < GROUP)
    inner = tl.arange(0, WIDE_SIZE)
    outer = tl.arange(0, WIDE_VALUE)
    query = tl.load(
        queries + (token * stride_t + own * stride_h)[:, None] + inner[None, :],
        mask=is_own[:, None] & (inner < SIZE)[None, :],
        other=0.0,
    )
    top = tl.full((QUERIES * WIDE_GROUP,), float("-inf"), tl.float32)
    total = tl.zeros((QUERIES * WIDE_GROUP,), tl.float32)
    if HAS_SINKS:
        top = tl.load(sinks + own, mask=is_own, other=0.0).to(tl.float32)
        total += 1.0
    mixed = tl.zeros((QUERIES * WIDE_GROUP, WIDE_VALUE), tl.float32)
    for start in range(0, last + 1, TILE):
        at = start + tl.arange(0, TILE)
        is_there = at <= last
        block = tl.load(table + row * COLUMNS + at // BLOCK, mask=is_there, other=0)
        place = (block * BLOCK + at % BLOCK) * HEADS + head
        key = tl.load(
            keys + place[None, :] * SIZE + inner[:, None],
            mask=is_there[None, :] & (inner < SIZE)[:, None],
            other=0.0,
        )
        seen = at[None, :] <= position[:, None]
        if HAS_MASK:
            given = mask + token[:, None] * (COLUMNS * BLOCK) + at[None, :]
            seen = seen & (tl.load(given, mask=seen & is_own[:, None], other=0) != 0)
        scores = tl.dot(query, key, input_precision="ieee") * SCALE
        if CAP > 0:
            scores = CAP * (2.0 * tl.sigmoid(scores * (2.0 / CAP)) - 1.0)
        scores = tl.where(seen, scores, float("-inf"))
        now = tl.maximum(top, tl.max(scores, 1))
        shift = tl.where(now == float("-inf"), 0.0, now)
        shares = tl.exp(scores - shift[:, None])
        kept = tl.exp(top - shift)
        total = total * kept + tl.sum(shares, 1)
        value = tl.load(
            values + place[:, None] * VALUE + outer[None, :],
            mask=is_there[:, None] & (outer < VALUE)[None, :],
            other=0.0,
        )
        mixed = mixed * kept[:, None]
        mixed = tl.dot(shares.to(value.dtype), value, mixed, input_precision="ieee")
        top = now
    tl.store(
        out + ((token * (HEADS * GROUP) + own) * VALUE)[:, None] + outer[None, :],
        (mixed / tl.where(is_own, total, 1.0)[:, None]).to(out.dtype.element_ty),
        mask=is_own[:, None] & (outer < VALUE)[None, :],
    )
