"""A vision-language model like Qwen2.5-VL: a vision tower whose tokens join the prompt."""

from __future__ import annotations

import torch
from layers import (
    DTYPE,
    RMSNorm,
    SwiGLU,
    attend,
    causal,
    check_heads,
    linear,
    on_gpu,
    rotary_tables,
    rotate,
)
from torch import Tensor, nn


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = RMSNorm(hidden)
        self.qkv = linear(hidden, 3 * hidden, bias=True)
        self.o = linear(hidden, hidden)
        self.norm2 = RMSNorm(hidden)
        self.mlp = SwiGLU(hidden, 3 * hidden)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, seen: Tensor | None) -> Tensor:
        batch, length, hidden = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        found = attend(rotate(q, cos, sin), rotate(k, cos, sin), v, seen)
        x = x + self.o(found.transpose(1, 2).reshape(batch, length, hidden))
        return x + self.mlp(self.norm2(x))


class VisionLanguage(nn.Module):
    def __init__(
        self,
        vocabulary: int,
        hidden: int,
        layers: int,
        heads: int,
        vision: int,
        patches: int,
        length: int,
    ) -> None:
        super().__init__()
        self.patch = linear(3 * 14 * 14, vision)
        self.tower = nn.ModuleList(Block(vision, heads) for _ in range(layers))
        self.merge = linear(4 * vision, hidden)
        self.embedding = nn.Parameter(torch.randn(vocabulary, hidden).to(DTYPE))
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm = RMSNorm(hidden)
        total = length + patches // 4
        for name, size, count in (("v", vision, patches), ("t", hidden, total)):
            cos, sin = rotary_tables(count, size // heads)
            self.register_buffer(f"{name}_cos", cos)
            self.register_buffer(f"{name}_sin", sin)
        self.register_buffer("seen", causal(total))

    def forward(self, image: Tensor, tokens: Tensor) -> Tensor:
        x = self.patch(image)
        for block in self.tower:
            x = block(x, self.v_cos, self.v_sin, None)
        batch, patches, vision = x.shape
        seen = self.merge(x.view(batch, patches // 4, 4 * vision))
        y = torch.cat((seen, self.embedding[tokens]), 1)
        for block in self.blocks:
            y = block(y, self.t_cos, self.t_sin, self.seen)
        return self.norm(y[:, -1:]) @ self.embedding.T


def step(
    vocabulary: int = 256,
    hidden: int = 128,
    layers: int = 1,
    heads: int = 4,
    vision: int = 64,
    patches: int = 64,
    batch: int = 1,
    length: int = 16,
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    check_heads(hidden, heads)
    check_heads(vision, heads)
    if patches % 4:
        raise ValueError(f"{patches} patches cannot be merged by fours")
    torch.manual_seed(0)
    model = VisionLanguage(vocabulary, hidden, layers, heads, vision, patches, length)
    image = torch.randn(batch, patches, 3 * 14 * 14).to(DTYPE)
    return on_gpu(model, image, torch.randint(0, vocabulary, (batch, length)))
