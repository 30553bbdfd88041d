"""The least logit with which a token may still be drawn, for every row, in Triton.

In: logits [row, token], and the temperature, `top_k`, `top_p` and `min_p` of each row. Out: [row].
A program has one row. What `top_k` and `top_p` leave are the tokens from a logit on, the greatest
one from which on there are k of them, or the share p; ties are left whole. It is found without
sorting: floats are ordered as whole numbers, of which every pass over the row settles two bits. So
16 bits take eight passes. A row that is greedy, or has no limit, is not read at all.
"""

from __future__ import annotations

try:
    import triton.language as tl
except ImportError:  # nothing is compiled then, but the module can be imported
    tl = None


def least_logit(
    logits: tl.tensor,
    temperature: tl.tensor,
    top_k: tl.tensor,
    top_p: tl.tensor,
    min_p: tl.tensor,
    out: tl.tensor,
    stride: tl.tensor,
    SIZE: tl.constexpr,
    BITS: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """One row. BITS is how many leading bits tell its logits apart, an even number."""
    row = tl.program_id(0).to(tl.int64)
    heat = tl.load(temperature + row)
    count = tl.load(top_k + row)
    share = tl.load(top_p + row)
    least = tl.load(min_p + row)
    floor = tl.full((), float("-inf"), tl.float32)
    at = tl.arange(0, TILE)
    option = tl.arange(0, 4)
    if (heat > 0) & ((count > 0) | (share < 1) | (least > 0)):
        tops = tl.full((TILE,), float("-inf"), tl.float32)
        for first in range(0, SIZE, TILE):
            is_there = first + at < SIZE
            own = tl.load(logits + row * stride + first + at, mask=is_there, other=float("-inf"))
            tops = tl.maximum(tops, own.to(tl.float32))
        top = tl.max(tops, 0)
        for limit in tl.static_range(2):  # `top_k`, then `top_p` of what that leaves
            if count > 0 if limit == 0 else share < 1:
                goal = count.to(tl.float32)
                if limit == 1:
                    sums = tl.zeros((TILE,), tl.float32)
                    for first in range(0, SIZE, TILE):
                        is_there = first + at < SIZE
                        own = tl.load(
                            logits + row * stride + first + at, mask=is_there, other=float("-inf")
                        ).to(tl.float32)
                        sums += tl.where(own >= floor, tl.exp((own - top) / heat), 0.0)
                    goal = share * tl.sum(sums, 0)
                key = tl.full((), -(1 << 31), tl.int64)
                for turn in range(0, BITS // 2):
                    step = tl.full((), 1 << 30, tl.int64) >> (2 * turn)
                    keys = key + step * option
                    bits = tl.where(keys < 0, keys ^ 0x7FFFFFFF, keys).to(tl.int32)
                    bounds = bits.to(tl.float32, bitcast=True)
                    # Keys below that of minus infinity are of no number.
                    bounds = tl.where(keys < -2139095041, float("-inf"), bounds)
                    bounds = tl.maximum(bounds, floor)
                    weights = tl.zeros((4, TILE), tl.float32)
                    for first in range(0, SIZE, TILE):
                        is_there = first + at < SIZE
                        own = tl.load(
                            logits + row * stride + first + at, mask=is_there, other=float("-inf")
                        ).to(tl.float32)
                        weight = tl.where(is_there, 1.0, 0.0)
                        if limit == 1:
                            weight = tl.exp((own - top) / heat)
                        weights += tl.where(own[None, :] >= bounds[:, None], weight[None, :], 0.0)
                    is_enough = tl.sum(weights, 1) >= goal
                    key += step * tl.max(tl.where(is_enough, option, 0), 0)
                best = tl.where(key < 0, key ^ 0x7FFFFFFF, key).to(tl.int32)
                edge = best.to(tl.float32, bitcast=True)
                floor = tl.maximum(floor, tl.where(key < -2139095041, float("-inf"), edge))
        if least > 0:
            floor = tl.maximum(floor, top + heat * tl.log(least))
    tl.store(out + row, floor)
