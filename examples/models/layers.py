"""Layers that the models share: plain PyTorch, attention written as products."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

DTYPE = torch.bfloat16


class RMSNorm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size, dtype=DTYPE))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)
        return (wide * scale).to(x.dtype) * self.weight


def linear(size_in: int, size_out: int, *, bias: bool = False) -> nn.Linear:
    made = nn.Linear(size_in, size_out, bias=bias, dtype=DTYPE)
    nn.init.normal_(made.weight, std=1 / math.sqrt(size_in))
    if bias:
        nn.init.zeros_(made.bias)
    return made


def rotary_tables(length: int, size: int, base: float = 10000.0) -> tuple[Tensor, Tensor]:
    steps = torch.arange(0, size, 2).float() / size
    angles = torch.outer(torch.arange(length).float(), base**-steps)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn pairs (first and second half) of the last axis; `cos` and `sin` are [length, half]."""
    first, second = x.float().chunk(2, -1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), -1).to(x.dtype)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """[batch, heads, length, size]; fewer heads of k and v are shared by groups of queries."""
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k = k.repeat_interleave(groups, 1)
        v = v.repeat_interleave(groups, 1)
    scores = (q @ k.transpose(-1, -2)).float() * (1 / math.sqrt(q.shape[-1]))
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, -1).to(v.dtype) @ v


def causal(length: int, window: int | None = None) -> Tensor:
    """Whether position i sees position j."""
    i = torch.arange(length)[:, None]
    j = torch.arange(length)[None, :]
    seen = j <= i
    return seen if window is None else seen & (j > i - window)


class SwiGLU(nn.Module):
    def __init__(self, size: int, inner: int) -> None:
        super().__init__()
        self.gate = linear(size, inner)
        self.up = linear(size, inner)
        self.down = linear(inner, size)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.nn.functional.silu(self.gate(x)) * self.up(x))


def check_heads(hidden: int, heads: int, *, rotary: bool = True) -> None:
    """Refuse sizes that no attention can have, before a GPU is asked."""
    if heads < 1 or hidden % heads or (rotary and hidden // heads % 2):
        parts = "even parts" if rotary else "parts"
        raise ValueError(f"{hidden} cannot be cut into {heads} {parts}, one per head")


def on_gpu(model: nn.Module, *inputs: Tensor) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The model and its inputs on the GPU, ready to be traced."""
    return model.cuda().eval(), tuple(tensor.cuda() for tensor in inputs)
