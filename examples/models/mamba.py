"""A state-space model like Mamba-2: the scan in chunks, as products (Dao and Gu, 2024)."""

from __future__ import annotations

import torch
from layers import DTYPE, RMSNorm, check_heads, linear, on_gpu
from torch import Tensor, nn


class Mixer(nn.Module):
    def __init__(self, hidden: int, heads: int, state: int, chunk: int) -> None:
        super().__init__()
        inner = 2 * hidden
        self.inner, self.heads, self.state, self.chunk = inner, heads, state, chunk
        self.project = linear(hidden, 2 * inner + 2 * state + heads)
        self.taps = nn.Parameter(torch.randn(4, inner + 2 * state).to(DTYPE) / 2)
        self.decay = nn.Parameter(torch.linspace(0.0, 1.0, heads))
        self.bias = nn.Parameter(torch.zeros(heads))
        self.skip = nn.Parameter(torch.ones(heads))
        self.norm = RMSNorm(inner)
        self.out = linear(inner, hidden)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        sizes = (self.inner, self.inner + 2 * self.state, self.heads)
        gate, mixed, step = self.project(x).split(sizes, -1)
        padded = torch.nn.functional.pad(mixed, (0, 0, 3, 0))
        mixed = sum(padded[:, t : t + length] * self.taps[t] for t in range(4))
        mixed = torch.nn.functional.silu(mixed)
        value, b, c = mixed.split((self.inner, self.state, self.state), -1)
        step = torch.nn.functional.softplus(step.float() + self.bias)
        rate = -torch.exp(self.decay) * step
        value = value.view(batch, length, self.heads, -1).float()
        found = self._scan(value * step[..., None], rate, b.float(), c.float())
        found = found + value * self.skip[:, None]
        found = found.reshape(batch, length, -1).to(x.dtype)
        return self.out(self.norm(found * torch.nn.functional.silu(gate)))

    def _scan(self, value: Tensor, rate: Tensor, b: Tensor, c: Tensor) -> Tensor:
        batch, whole, heads, size = value.shape
        length = whole + -whole % self.chunk
        if length > whole:
            # What is added decays nothing and adds nothing.
            value, rate, b, c = (
                torch.nn.functional.pad(x, (0, 0) * (x.dim() - 2) + (0, length - whole))
                for x in (value, rate, b, c)
            )
        count = length // self.chunk
        value = value.view(batch, count, self.chunk, heads, size).permute(0, 1, 3, 2, 4)
        rate = rate.view(batch, count, self.chunk, heads).permute(0, 1, 3, 2)
        b = b.view(batch, count, 1, self.chunk, -1)
        c = c.view(batch, count, 1, self.chunk, -1)
        total = rate.cumsum(-1)
        between = total[..., :, None] - total[..., None, :]
        order = torch.ones(self.chunk, self.chunk, dtype=torch.bool, device=value.device).tril()
        weight = torch.exp(between.masked_fill(~order, float("-inf")))
        inside = ((c @ b.transpose(-1, -2)) * weight) @ value
        to_end = torch.exp(total[..., -1:] - total)
        made = (b.transpose(-1, -2) * to_end[..., None, :]) @ value
        carried = torch.zeros_like(made[:, 0])
        starts = []
        for place in range(count):
            starts.append(carried)
            carried = carried * torch.exp(total[:, place, :, -1])[..., None, None] + made[:, place]
        before = (c * torch.exp(total)[..., None]) @ torch.stack(starts, 1)
        found = inside + before
        return found.permute(0, 1, 3, 2, 4).reshape(batch, length, heads, size)[:, :whole]


class Mamba(nn.Module):
    def __init__(
        self, vocabulary: int, hidden: int, layers: int, heads: int, state: int, chunk: int
    ) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(vocabulary, hidden).to(DTYPE))
        self.norms = nn.ModuleList(RMSNorm(hidden) for _ in range(layers))
        self.mixers = nn.ModuleList(Mixer(hidden, heads, state, chunk) for _ in range(layers))
        self.norm = RMSNorm(hidden)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding[tokens]
        for norm, mixer in zip(self.norms, self.mixers, strict=True):
            x = x + mixer(norm(x))
        return self.norm(x) @ self.embedding.T


def step(
    vocabulary: int = 256,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 4,
    state: int = 16,
    chunk: int = 16,
    batch: int = 1,
    length: int = 64,
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    check_heads(2 * hidden, heads, rotary=False)
    torch.manual_seed(0)
    model = Mamba(vocabulary, hidden, layers, heads, state, chunk)
    return on_gpu(model, torch.randint(0, vocabulary, (batch, length)))
