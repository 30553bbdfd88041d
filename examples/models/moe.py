"""A mixture of experts like gpt-oss: top-k routing, sliding-window and full attention in turn."""

from __future__ import annotations

import math

import torch
from layers import (
    DTYPE,
    RMSNorm,
    attend,
    causal,
    check_heads,
    linear,
    on_gpu,
    rotary_tables,
    rotate,
)
from torch import Tensor, nn


class Experts(nn.Module):
    """Each token goes through its `chosen` experts; their weights are gathered by index."""

    def __init__(self, hidden: int, inner: int, experts: int, chosen: int) -> None:
        super().__init__()
        self.chosen = chosen
        self.router = linear(hidden, experts)
        up = torch.randn(experts, hidden, 2 * inner) / math.sqrt(hidden)
        down = torch.randn(experts, inner, hidden) / math.sqrt(inner)
        self.up = nn.Parameter(up.to(DTYPE))
        self.down = nn.Parameter(down.to(DTYPE))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, hidden = x.shape
        flat = x.reshape(-1, hidden)
        scores = self.router(flat).float()
        total = torch.zeros_like(flat, dtype=torch.float32)
        best = []
        left = scores
        for _ in range(self.chosen):
            value, expert = left.max(-1)
            best.append((value, expert))
            left = left.scatter(-1, expert[:, None], float("-inf"))
        weights = torch.softmax(torch.stack([value for value, _ in best], -1), -1)
        for place, (_, expert) in enumerate(best):
            inner = torch.bmm(flat[:, None], self.up[expert])[:, 0]
            gate, up = inner.chunk(2, -1)
            made = torch.bmm((torch.nn.functional.silu(gate) * up)[:, None], self.down[expert])
            total = total + weights[:, place, None] * made[:, 0].float()
        return total.to(x.dtype).view(batch, length, hidden)


class Block(nn.Module):
    def __init__(
        self, hidden: int, heads: int, experts: int, chosen: int, length: int, window: int | None
    ) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = RMSNorm(hidden)
        self.qkv = linear(hidden, 3 * hidden, bias=True)
        self.o = linear(hidden, hidden, bias=True)
        self.norm2 = RMSNorm(hidden)
        self.experts = Experts(hidden, hidden, experts, chosen)
        self.register_buffer("seen", causal(length, window))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, hidden = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        found = attend(rotate(q, cos, sin), rotate(k, cos, sin), v, self.seen)
        x = x + self.o(found.transpose(1, 2).reshape(batch, length, hidden))
        return x + self.experts(self.norm2(x))


class MixtureOfExperts(nn.Module):
    def __init__(
        self,
        vocabulary: int,
        hidden: int,
        layers: int,
        heads: int,
        experts: int,
        chosen: int,
        length: int,
        window: int,
    ) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(vocabulary, hidden).to(DTYPE))
        self.blocks = nn.ModuleList(
            Block(hidden, heads, experts, chosen, length, None if n % 2 else window)
            for n in range(layers)
        )
        self.norm = RMSNorm(hidden)
        cos, sin = rotary_tables(length, hidden // heads)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding[tokens]
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.norm(x) @ self.embedding.T


def step(
    vocabulary: int = 256,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 4,
    experts: int = 8,
    chosen: int = 2,
    batch: int = 1,
    length: int = 32,
    window: int = 8,
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    check_heads(hidden, heads)
    if not 0 < chosen <= experts:
        raise ValueError(f"a token cannot go to {chosen} of {experts} experts")
    torch.manual_seed(0)
    model = MixtureOfExperts(vocabulary, hidden, layers, heads, experts, chosen, length, window)
    return on_gpu(model, torch.randint(0, vocabulary, (batch, length)))
