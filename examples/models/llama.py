"""A dense decoder like Llama 3: grouped queries, rotary positions, SwiGLU.

`prefill` takes a prompt and fills the KV cache; `decode` takes one token per sequence and extends
it. Both have the same weights and the same cache, under the same names.
"""

from __future__ import annotations

import torch
from layers import (
    DTYPE,
    RMSNorm,
    SwiGLU,
    attend,
    check_heads,
    linear,
    on_gpu,
    rotary_tables,
    rotate,
)
from torch import Tensor, nn


class Attention(nn.Module):
    def __init__(self, hidden: int, heads: int, kv_heads: int, batch: int, context: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, hidden // heads
        self.q = linear(hidden, hidden)
        self.k = linear(hidden, kv_heads * self.size)
        self.v = linear(hidden, kv_heads * self.size)
        self.o = linear(hidden, hidden)
        shape = (batch, kv_heads, context, self.size)
        self.register_buffer("k_cache", torch.zeros(shape, dtype=DTYPE))
        self.register_buffer("v_cache", torch.zeros(shape, dtype=DTYPE))

    def forward(self, x: Tensor, place: Tensor, cos: Tensor, sin: Tensor, seen: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            project(x).view(batch, length, heads, self.size).transpose(1, 2)
            for project, heads in (
                (self.q, self.heads),
                (self.k, self.kv_heads),
                (self.v, self.kv_heads),
            )
        )
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        self.k_cache.index_copy_(2, place, k)
        self.v_cache.index_copy_(2, place, v)
        found = attend(q, self.k_cache, self.v_cache, seen)
        return self.o(found.transpose(1, 2).reshape(batch, length, -1))


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int, kv_heads: int, batch: int, context: int) -> None:
        super().__init__()
        self.norm1 = RMSNorm(hidden)
        self.attention = Attention(hidden, heads, kv_heads, batch, context)
        self.norm2 = RMSNorm(hidden)
        self.mlp = SwiGLU(hidden, 4 * hidden)

    def forward(self, x: Tensor, place: Tensor, cos: Tensor, sin: Tensor, seen: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x), place, cos, sin, seen)
        return x + self.mlp(self.norm2(x))


class Llama(nn.Module):
    """`place` holds the positions of the tokens in the context: the same for every sequence."""

    def __init__(
        self,
        vocabulary: int,
        hidden: int,
        layers: int,
        heads: int,
        kv_heads: int,
        batch: int,
        context: int,
    ) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(vocabulary, hidden).to(DTYPE))
        self.blocks = nn.ModuleList(
            Block(hidden, heads, kv_heads, batch, context) for _ in range(layers)
        )
        self.norm = RMSNorm(hidden)
        cos, sin = rotary_tables(context, hidden // heads)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)
        self.context = context

    def forward(self, tokens: Tensor, place: Tensor) -> Tensor:
        x = self.embedding[tokens]
        cos, sin = self.cos[place], self.sin[place]
        seen = torch.arange(self.context, device=place.device)[None, :] <= place[:, None]
        for block in self.blocks:
            x = block(x, place, cos, sin, seen)
        return self.norm(x[:, -1:]) @ self.embedding.T


def _model(
    vocabulary: int, hidden: int, layers: int, heads: int, kv_heads: int, batch: int, context: int
) -> Llama:
    check_heads(hidden, heads)
    if kv_heads < 1 or heads % kv_heads:
        raise ValueError(f"{heads} heads cannot share {kv_heads} heads of keys evenly")
    torch.manual_seed(0)
    return Llama(vocabulary, hidden, layers, heads, kv_heads, batch, context)


def prefill(
    vocabulary: int = 512,
    hidden: int = 128,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    batch: int = 1,
    context: int = 64,
    length: int = 32,
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    if not 0 < length <= context:
        raise ValueError(f"{length} tokens do not fit into a context of {context}")
    model = _model(vocabulary, hidden, layers, heads, kv_heads, batch, context)
    tokens = torch.randint(0, vocabulary, (batch, length))
    return on_gpu(model, tokens, torch.arange(length))


def decode(
    vocabulary: int = 512,
    hidden: int = 128,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    batch: int = 1,
    context: int = 64,
    length: int = 32,
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    if not 0 <= length < context:
        raise ValueError(f"there is no place {length} in a context of {context}")
    model = _model(vocabulary, hidden, layers, heads, kv_heads, batch, context)
    tokens = torch.randint(0, vocabulary, (batch, 1))
    return on_gpu(model, tokens, torch.tensor([length]))
