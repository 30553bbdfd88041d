"""Blocks of keys and values, walked with a running softmax: what the attention kernels share.

In: Triton's tensors. Out: functions for `kernels`. FlashAttention-2, arXiv:2307.08691.
Weights are powers of two. The running maximum is in units of log2 e, except where a mask is added
or filled in with a number (MASK of 2 or 3) or a cap is put on: the least number of a mask must stay
finite, so scores stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable

try:
    import triton
    import triton.language as tl
except ImportError:  # then nothing is compiled, but what stands here can be looked at
    triton = None


def jit(function: Callable[..., object]) -> triton.JITFunction:
    """A function for kernels; without Triton, as it is."""
    return function if triton is None else triton.jit(function)


def columns(
    SIZE: tl.constexpr, WIDE: tl.constexpr, FIRST: tl.constexpr
) -> tuple[tl.tensor, tl.tensor]:
    """Columns of a part of a head, and whether they are there."""
    at = FIRST + tl.arange(0, WIDE)
    return at, at < SIZE


_columns = jit(columns)


def block_of(
    base: tl.tensor,
    place: tl.tensor,
    at: tl.tensor,
    there: tl.tensor,
    is_key: tl.tensor,
    CHECK: tl.constexpr,
    PADDED: tl.constexpr,
) -> tl.tensor:
    """Rows of keys or values; what is not there is zero."""
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


_block = jit(block_of)


def walk(
    total: tl.tensor,
    top: tl.tensor,
    below: tl.tensor,
    q: tl.tensor,
    q_rest: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    table: tl.tensor,
    mask: tl.tensor,
    mask_row: tl.tensor,
    last: tl.tensor,
    is_row: tl.tensor,
    low: tl.tensor,
    high: tl.tensor,
    keys: tl.tensor,
    window: tl.tensor,
    scale: tl.tensor,
    soft_cap: tl.tensor,
    stride_kp: tl.tensor,
    stride_kn: tl.tensor,
    stride_vp: tl.tensor,
    stride_vn: tl.tensor,
    stride_mn: tl.tensor,
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
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
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
        block = _block(k, k_place, at, there, is_key, CHECK, MAIN > SIZE)
        score = tl.dot(q, block.T)
        if REST > 0:
            rest_at, rest_there = _columns(SIZE, REST, MAIN)
            block = _block(k, k_place, rest_at, rest_there, is_key, CHECK, MAIN + REST > SIZE)
            score = tl.dot(q_rest, block.T, score)
        if SOFT_CAP:
            # tanh by way of exp2; the argument in units of log2 e
            turned = tl.exp2(score * (scale * 2.8853900817779268 / soft_cap))
            score = soft_cap - 2 * soft_cap / (turned + 1)
        elif MASK >= 2:
            score *= scale
        if MASK > 0:
            # rows and keys that are not there read nothing
            seen = is_row[:, None] & is_key[None, :]
            more = tl.load(
                mask + mask_row[:, None] + (key * stride_mn)[None, :], mask=seen, other=0
            )
            if MASK == 1:
                score = tl.where(more != 0, score, float("-inf"))
            elif MASK == 3:
                # a row of which no key is seen has the mean of all of them
                score = tl.where(more != 0, score, -1e30)
            else:
                score += more.to(tl.float32)
        if CHECK:
            seen = is_key[None, :]
            if CAUSAL:
                seen = seen & (key[None, :] <= last[:, None])
            if WINDOWED:
                seen = seen & (key[None, :] > last[:, None] - window)
            score = tl.where(seen, score, float("-inf"))
        # What is left to scale: scores that are final are natural, others have all of it ahead.
        if SOFT_CAP or MASK >= 2:
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
        block = _block(v, v_place, v_at, v_there, is_key, CHECK, V_WIDE > V_SIZE)
        total = tl.dot(weight.to(block.dtype), block, total)
        top = most
    return total, top, below


walk_blocks = jit(walk)
columns_of = _columns
