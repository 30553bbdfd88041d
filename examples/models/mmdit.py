"""A diffusion step like SD3.5: text and image streams with joint attention and modulation."""

from __future__ import annotations

import torch
from layers import DTYPE, attend, check_heads, linear, on_gpu
from torch import Tensor, nn


def modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    wide = x.float()
    mean = wide.mean(-1, keepdim=True)
    spread = torch.rsqrt((wide - mean).square().mean(-1, keepdim=True) + 1e-6)
    return ((wide - mean) * spread).to(x.dtype) * (1 + scale[:, None]) + shift[:, None]


class Stream(nn.Module):
    """The part of a block that one stream has for itself."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.adapt = linear(hidden, 6 * hidden, bias=True)
        self.qkv = linear(hidden, 3 * hidden, bias=True)
        self.o = linear(hidden, hidden, bias=True)
        self.up = linear(hidden, 4 * hidden, bias=True)
        self.down = linear(4 * hidden, hidden, bias=True)


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.text = Stream(hidden)
        self.image = Stream(hidden)

    def forward(self, text: Tensor, image: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
        both = ((self.text, text), (self.image, image))
        parts = [s.adapt(torch.nn.functional.silu(time)).chunk(6, -1) for s, _ in both]
        joint = []
        for (stream, x), (shift, scale, *_) in zip(both, parts, strict=True):
            made = stream.qkv(modulate(x, shift, scale))
            joint.append(made.view(x.shape[0], x.shape[1], 3, self.heads, -1))
        q, k, v = torch.cat(joint, 1).permute(2, 0, 3, 1, 4)
        found = attend(q, k, v, None).transpose(1, 2).reshape(text.shape[0], -1, text.shape[-1])
        split = found.split((text.shape[1], image.shape[1]), 1)
        results = []
        for (stream, x), own, part in zip(both, split, parts, strict=True):
            _, _, gate1, shift, scale, gate2 = part
            x = x + gate1[:, None] * stream.o(own)
            made = torch.nn.functional.gelu(stream.up(modulate(x, shift, scale)))
            results.append(x + gate2[:, None] * stream.down(made))
        return results[0], results[1]


class MMDiT(nn.Module):
    def __init__(self, hidden: int, layers: int, heads: int, channels: int) -> None:
        super().__init__()
        self.enter = linear(channels, hidden, bias=True)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.leave = linear(hidden, channels, bias=True)

    def forward(self, latent: Tensor, text: Tensor, time: Tensor) -> Tensor:
        image = self.enter(latent)
        for block in self.blocks:
            text, image = block(text, image, time)
        return latent - 0.1 * self.leave(image)


def step(
    hidden: int = 64,
    layers: int = 2,
    heads: int = 4,
    channels: int = 64,
    batch: int = 1,
    text: int = 16,
    image: int = 64,
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    check_heads(hidden, heads, rotary=False)
    torch.manual_seed(0)
    model = MMDiT(hidden, layers, heads, channels)
    latent = torch.randn(batch, image, channels).to(DTYPE)
    words = torch.randn(batch, text, hidden).to(DTYPE)
    return on_gpu(model, latent, words, torch.randn(batch, hidden).to(DTYPE))
