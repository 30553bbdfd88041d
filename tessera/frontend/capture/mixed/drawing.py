"""Drawing the next tokens of rows in a step, by the rules of the transformers library.

In: logits [row, token], and how each row draws. Out: a token for each row. The order is that of the
library: temperature, `top_k`, `top_p`, `min_p`. Tokens that are equally likely stay or go together,
so `top_k` may leave more than k, as in the library; of equal tokens at the end of `top_p`, the
library keeps some by the order of its sort, and this keeps all.

A draw takes the greatest of the scaled logits with noise of Gumbel's distribution, which is a token
by its probability. The noise of a row is a hash of its `uniform` and the token's number, so that it
depends on nothing else in the step.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from tessera.frontend.capture.mixed.floor_kernel import least_logit

_KERNEL = triton.jit(least_logit)
_TILE = 8192  # many loads at once: a program goes over its row alone
_BITS = {torch.bfloat16: 16, torch.float16: 20}


def draw(
    logits: Tensor,
    temperature: Tensor,
    uniform: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
) -> Tensor:
    """The next token of each row; the most likely one at a temperature of 0."""
    find = least_by_kernel if logits.is_cuda else least_by_sort
    least = find(logits, temperature, top_k, top_p, min_p)
    wide, heat = logits.float(), temperature[:, None]
    numbers = torch.arange(wide.shape[1], device=wide.device)[None]
    noise = gumbel((uniform * (1 << 24)).long()[:, None], numbers)
    noisy = wide / heat.clamp(min=1e-6) + noise
    noisy = noisy.masked_fill(wide < least[:, None], float("-inf"))
    return torch.where(heat > 0, noisy, wide).argmax(-1)


def least_by_kernel(
    logits: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor
) -> Tensor:
    """The least logit of each row that may be drawn; minus infinity where nothing is left out."""
    rows, size = logits.shape
    tile = min(_TILE, triton.next_power_of_2(size))
    if logits.stride(1) != 1:
        logits = logits.contiguous()
    out = torch.empty(rows, dtype=torch.float32, device=logits.device)
    _KERNEL[(rows,)](
        logits,
        temperature,
        top_k,
        top_p,
        min_p,
        out,
        logits.stride(0),
        SIZE=size,
        BITS=_BITS.get(logits.dtype, 32),
        TILE=tile,
        num_warps=max(tile // 512, 1),
    )
    return out


def least_by_sort(
    logits: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor
) -> Tensor:
    """The same by sorting."""
    ranked = logits.float().sort(descending=True).values
    heat = temperature.clamp(min=1e-30)[:, None]
    size = ranked.shape[1]
    count = torch.where(top_k > 0, top_k, size).clamp(max=size)
    by_count = ranked.gather(1, count[:, None] - 1)
    weights = torch.exp((ranked - ranked[:, :1]) / heat) * (ranked >= by_count)
    shares = weights / weights.sum(1, keepdim=True)
    is_left = (shares.cumsum(1) - shares < top_p[:, None]) | (top_p[:, None] >= 1)
    by_share = ranked.masked_fill(~is_left, float("inf")).amin(1, keepdim=True)
    by_part = ranked[:, :1] + heat * min_p[:, None].log()
    least = torch.cat([by_count, by_share, by_part], 1).amax(1)
    is_limited = (temperature > 0) & ((top_k > 0) | (top_p < 1) | (min_p > 0))
    return torch.where(is_limited, least, float("-inf"))


def gumbel(seed: Tensor, number: Tensor) -> Tensor:
    """Noise of Gumbel's distribution by a hash of two whole numbers (lowbias32, twice)."""
    mixed = (seed * 2 + 1) * 0x6C8E9CF5 + number
    for _ in range(2):
        mixed = mixed & 0xFFFFFFFF
        mixed = ((mixed ^ (mixed >> 16)) * 0x21F0AAAD) & 0xFFFFFFFF
        mixed = ((mixed ^ (mixed >> 15)) * 0x735A2D97) & 0xFFFFFFFF
        mixed = mixed ^ (mixed >> 15)
    share = (mixed.float() + 0.5) / 4294967808.0  # below 1 also where f32 rounds up
    return -torch.log(-torch.log(share))
