"""Steps written by hand with what models of other kinds use: small, random weights.

`MODULES` has a function for each, which gives a module and what it is called with, by name. They
are in no other list, and no kernel or rule was made for one of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Made = tuple[nn.Module, dict[str, Any]]
MODULES: dict[str, Callable[[], Made]] = {}


def module(function: Callable[[], Made]) -> Callable[[], Made]:
    MODULES[function.__name__] = function
    return function


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """The same for the same shape, whatever was drawn before."""
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator).to("cuda", dtype)


def whole(most: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(most)
    return torch.randint(0, most, shape, generator=generator).to("cuda")


def placed(model: nn.Module, dtype: torch.dtype = torch.float32) -> nn.Module:
    return model.to("cuda", dtype).eval()


class Called(nn.Module):
    """A function of a module and its inputs."""

    def __init__(self, function: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, *args: Any, **named: Any) -> Any:
        return self.function(self, *args, **named)


# --- recurrent, attention of torch.nn ------------------------------------------------------------


@module
def lstm_both_ways() -> Made:
    def call(m: Any, tokens: Tensor) -> Any:
        out, (h, c) = m.lstm(m.embedding(tokens))
        return m.head(out), h, c

    lstm = nn.LSTM(32, 24, num_layers=2, bidirectional=True, batch_first=True, dropout=0.1)
    parts = {"embedding": nn.Embedding(100, 32), "lstm": lstm, "head": nn.Linear(48, 10)}
    return placed(Called(call, **parts)), {"tokens": whole(100, 2, 9)}


@module
def gru_with_attention() -> Made:
    def call(m: Any, x: Tensor, memory: Tensor, h: Tensor) -> Any:
        out, last = m.gru(x, h)
        seen, weights = m.attention(out, memory, memory)
        h.copy_(last)
        return {"out": m.norm(out + seen), "weights": weights}

    parts = {
        "gru": nn.GRU(32, 32, batch_first=True),
        "attention": nn.MultiheadAttention(32, 4, batch_first=True),
        "norm": nn.LayerNorm(32),
    }
    inputs = {"x": numbers(2, 6, 32), "memory": numbers(2, 11, 32), "h": numbers(1, 2, 32)}
    return placed(Called(call, **parts)), inputs


@module
def rnn_cells() -> Made:
    def call(m: Any, x: Tensor) -> Any:
        h = x.new_zeros(x.shape[0], 16)
        c = torch.zeros_like(h)
        for t in range(x.shape[1]):
            h, c = m.cell(x[:, t], (h, c))
            h = m.gru(h, torch.tanh(c))
        return h

    parts = {"cell": nn.LSTMCell(8, 16), "gru": nn.GRUCell(16, 16)}
    return placed(Called(call, **parts)), {"x": numbers(3, 5, 8)}


@module
def encoder_layers() -> Made:
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, norm_first=False)
    model = nn.TransformerEncoder(layer, 2)

    def call(m: Any, src: Tensor, padding: Tensor) -> Any:
        return m.model(src, src_key_padding_mask=padding)

    padding = torch.zeros(2, 10, dtype=torch.bool, device="cuda")
    padding[1, 7:] = True
    return placed(Called(call, model=model)), {"src": numbers(2, 10, 64), "padding": padding}


@module
def encoder_decoder() -> Made:
    model = nn.Transformer(64, 4, 1, 2, 128, batch_first=True, norm_first=True, activation="gelu")

    def call(m: Any, src: Tensor, tgt: Tensor) -> Any:
        mask = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1], device=tgt.device)
        return m.model(src, tgt, tgt_mask=mask.to(tgt.dtype), tgt_is_causal=True)

    kind = torch.bfloat16
    inputs = {"src": numbers(2, 12, 64, dtype=kind), "tgt": numbers(2, 7, 64, dtype=kind)}
    return placed(Called(call, model=model), kind), inputs


@module
def einsum_attention() -> Made:
    def call(m: Any, x: Tensor) -> Any:
        q, k, v = torch.einsum("btd,dnhe->nbhte", x, m.qkv)
        scores = torch.einsum("bhte,bhse->bhts", q, k) / math.sqrt(q.shape[-1])
        scores = torch.einsum("bhts,hg->bgts", scores, m.mix) + m.bias
        return torch.einsum("bhts,bhse,hed->btd", scores.softmax(-1), v, m.out)

    parts = {
        "qkv": nn.Parameter(torch.randn(48, 3, 4, 16) / 7),
        "mix": nn.Parameter(torch.eye(4) + torch.randn(4, 4) / 10),
        "bias": nn.Parameter(torch.randn(4, 20, 20)),
        "out": nn.Parameter(torch.randn(4, 16, 48) / 8),
    }
    kind = torch.bfloat16
    return placed(Called(call, **parts), kind), {"x": numbers(2, 20, 48, dtype=kind)}


@module
def complex_rotary() -> Made:
    def rotate(x: Tensor, turn: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turn[None, :, None]).flatten(-2).to(x.dtype)

    def call(m: Any, x: Tensor, start: Tensor) -> Any:
        times = start + torch.arange(x.shape[1], device=x.device)
        turn = torch.polar(
            torch.ones(x.shape[1], 16, device=x.device), times[:, None] * m.rates.float()
        )
        q, k, v = m.qkv(x).view(*x.shape[:2], 3, 4, 32).unbind(2)
        q, k = rotate(q, turn), rotate(k, turn)
        y = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True)
        return m.out(y.transpose(1, 2).flatten(2))

    rates = 1e4 ** (-torch.arange(16) / 16.0)
    parts = {"qkv": nn.Linear(128, 384), "out": nn.Linear(128, 128), "rates": rates}
    model = placed(Called(call, **parts), torch.bfloat16)
    start = torch.tensor([3], device="cuda")
    return model, {"x": numbers(1, 24, 128, dtype=torch.bfloat16), "start": start}


# --- indices -------------------------------------------------------------------------------------


@module
def scatter_and_gather() -> Made:
    def call(m: Any, x: Tensor, edges: Tensor, table: Tensor) -> Any:
        source, target = edges
        messages = m.message(x[source])
        summed = torch.zeros_like(x).index_add_(0, target, messages)
        most = torch.full_like(x, -1e9).scatter_reduce_(
            0, target[:, None].expand_as(messages), messages, "amax"
        )
        table.index_put_((target % 5,), messages, accumulate=True)
        picked = torch.gather(summed, 1, (most * 0).long() + edges[0][:1, None] % 4)
        return F.relu(m.update(torch.cat([x, summed, most.clamp_min(0)], 1))), picked

    parts = {"message": nn.Linear(16, 16), "update": nn.Linear(48, 16)}
    inputs = {"x": numbers(12, 16), "edges": whole(12, 2, 40), "table": numbers(5, 16)}
    return placed(Called(call, **parts)), inputs


@module
def sorted_and_summed() -> Made:
    def call(m: Any, x: Tensor, steps: Tensor) -> Any:
        values, order = torch.sort(x, dim=-1, descending=True, stable=True)
        chance = values.softmax(-1).cumsum(-1)
        kept = torch.where(chance - values.softmax(-1) < 0.9, values, float("-inf"))
        back = torch.empty_like(x).scatter_(-1, order, kept)
        best, place = torch.topk(x, 3)
        where = torch.searchsorted(steps, best)
        return back.softmax(-1), place, where, torch.argsort(x, dim=0), x.cummax(-1).values

    steps = torch.linspace(-2, 2, 9, device="cuda")
    return placed(Called(call)), {"x": numbers(4, 50), "steps": steps}


@module
def embedding_bags() -> Made:
    def call(m: Any, dense: Tensor, ids: Tensor, offsets: Tensor) -> Any:
        bags = [bag(ids[n], offsets[n]) for n, bag in enumerate((m.one, m.two))]
        parts = torch.stack([m.bottom(dense), *bags], 1)
        crossed = torch.bmm(parts, parts.mT)
        rows, columns = torch.tril_indices(3, 3, offset=-1, device=dense.device)
        return m.top(torch.cat([parts[:, 0], crossed[:, rows, columns]], 1)).sigmoid()

    parts = {
        "one": nn.EmbeddingBag(50, 16, mode="sum"),
        "two": nn.EmbeddingBag(50, 16, mode="mean"),
        "bottom": nn.Sequential(nn.Linear(13, 16), nn.ReLU()),
        "top": nn.Linear(19, 1),
    }
    offsets = torch.tensor([[0, 2, 5, 9], [0, 1, 4, 4]], device="cuda")
    inputs = {"dense": numbers(4, 13), "ids": whole(50, 2, 12), "offsets": offsets}
    return placed(Called(call, **parts)), inputs


@module
def cache_in_blocks() -> Made:
    def call(m: Any, x: Tensor, cache: Tensor, slots: Tensor, table: Tensor, length: Tensor) -> Any:
        q, k, v = m.qkv(x).view(-1, 3, 4, 32).unbind(1)
        flat = cache.view(2, -1, 4, 32)
        flat[0, slots] = k
        flat[1, slots] = v
        keys, values = (cache[n][table].flatten(1, 2).transpose(1, 2) for n in (0, 1))
        allowed = torch.arange(keys.shape[2], device=x.device) < length[:, None]
        y = F.scaled_dot_product_attention(
            q[:, :, None], keys, values, attn_mask=allowed[:, None, None]
        )
        length.add_(1)
        return m.out(y.flatten(1))

    kind = torch.bfloat16
    parts = {"qkv": nn.Linear(128, 384), "out": nn.Linear(128, 128)}
    inputs = {
        "x": numbers(2, 128, dtype=kind),
        "cache": numbers(2, 6, 16, 4, 32, dtype=kind),
        "slots": torch.tensor([20, 5], device="cuda"),
        "table": torch.tensor([[3, 1], [0, 4]], device="cuda"),
        "length": torch.tensor([21, 6], device="cuda"),
    }
    return placed(Called(call, **parts), kind), inputs


@module
def beams() -> Made:
    def call(m: Any, scores: Tensor, x: Tensor, cache: Tensor) -> Any:
        chance = m.head(x).log_softmax(-1) + scores[:, None]
        best, flat = chance.flatten().topk(4)
        beam, token = flat // chance.shape[1], flat % chance.shape[1]
        cache.copy_(cache.index_select(0, beam))
        scores.copy_(best)
        return token, beam

    inputs = {"scores": numbers(4), "x": numbers(4, 24), "cache": numbers(4, 2, 8, 6)}
    return placed(Called(call, head=nn.Linear(24, 60))), inputs


# --- convolutions, pictures, sound ---------------------------------------------------------------


class _Residual(nn.Module):
    def __init__(self, width: int, time: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(4, width), nn.GroupNorm(4, width)])
        self.convolutions = nn.ModuleList([nn.Conv2d(width, width, 3, padding=1) for _ in "ab"])
        self.time = nn.Linear(time, 2 * width)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.convolutions[0](F.silu(self.norms[0](x)))
        scale, shift = self.time(F.silu(time))[:, :, None, None].chunk(2, 1)
        y = self.norms[1](y) * (1 + scale) + shift
        return x + self.convolutions[1](F.silu(y))


@module
def unet() -> Made:
    def call(m: Any, x: Tensor, time: Tensor) -> Any:
        angles = time[:, None].float() * torch.exp(torch.arange(8, device=x.device) * -1.1)
        t = torch.cat([angles.sin(), angles.cos()], -1).to(x.dtype)
        first = m.first(x)
        one = m.one(first, t)
        two = m.two(m.down(one), t)
        flat = two.flatten(2).transpose(1, 2)
        seen = m.attention(flat, flat, flat, need_weights=False)[0]
        two = two + seen.transpose(1, 2).view_as(two)
        wide = F.interpolate(two, scale_factor=2.0, mode="nearest")
        return m.last(torch.cat([m.up(wide), one], 1))

    parts = {
        "first": nn.Conv2d(4, 16, 3, padding=1),
        "one": _Residual(16, 16),
        "down": nn.Conv2d(16, 32, 3, stride=2, padding=1),
        "two": _Residual(32, 16),
        "attention": nn.MultiheadAttention(32, 2, batch_first=True),
        "up": nn.Conv2d(32, 16, 1),
        "last": nn.Conv2d(32, 4, 3, padding=1),
    }
    kind = torch.bfloat16
    inputs = {"x": numbers(1, 4, 12, 12, dtype=kind), "time": torch.tensor([17], device="cuda")}
    return placed(Called(call, **parts), kind), inputs


@module
def diffusion_block() -> Made:
    def call(m: Any, x: Tensor, c: Tensor) -> Any:
        tokens = m.patches(x).flatten(2).transpose(1, 2)
        s1, b1, g1, s2, b2, g2 = m.condition(F.silu(c))[:, None].chunk(6, -1)
        y = F.layer_norm(tokens, (64,)) * (1 + s1) + b1
        q, k, v = m.qkv(y).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        q, k = F.rms_norm(q, (16,), m.q_norm), F.rms_norm(k, (16,), m.k_norm)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        tokens = tokens + g1 * m.out(y)
        y = F.layer_norm(tokens, (64,)) * (1 + s2) + b2
        tokens = tokens + g2 * m.mlp(y)
        pixels = m.last(tokens).view(-1, 6, 6, 2, 2, 4)
        return torch.einsum("nhwpqc->nchpwq", pixels).reshape(-1, 4, 12, 12)

    parts = {
        "patches": nn.Conv2d(4, 64, 2, stride=2),
        "condition": nn.Linear(32, 384),
        "qkv": nn.Linear(64, 192),
        "q_norm": nn.Parameter(torch.ones(16)),
        "k_norm": nn.Parameter(torch.ones(16)),
        "out": nn.Linear(64, 64),
        "mlp": nn.Sequential(nn.Linear(64, 128), nn.GELU(approximate="tanh"), nn.Linear(128, 64)),
        "last": nn.Linear(64, 16),
    }
    kind = torch.bfloat16
    inputs = {"x": numbers(2, 4, 12, 12, dtype=kind), "c": numbers(2, 32, dtype=kind)}
    return placed(Called(call, **parts), kind), inputs


@module
def dilated_sound() -> Made:
    def call(m: Any, x: Tensor) -> Any:
        for n, layer in enumerate(m.layers):
            y = layer(F.pad(x, (2 * 2**n, 0)))
            a, b = y.chunk(2, 1)
            x = x + torch.tanh(a) * torch.sigmoid(b)
        return m.up(F.leaky_relu(x, 0.1))

    normed = torch.nn.utils.parametrizations.weight_norm
    layers = [normed(nn.Conv1d(16, 32, 3, dilation=2**n)) for n in range(3)]
    parts = {"layers": nn.ModuleList(layers), "up": nn.ConvTranspose1d(16, 8, 8, stride=4)}
    return placed(Called(call, **parts)), {"x": numbers(1, 16, 40)}


@module
def video() -> Made:
    model = nn.Sequential(
        nn.Conv3d(3, 16, (3, 5, 5), stride=(1, 2, 2), padding=(1, 2, 2)),
        nn.BatchNorm3d(16),
        nn.ReLU(inplace=True),
        nn.MaxPool3d((1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1)),
        nn.Conv3d(16, 32, 3, padding=1, groups=4),
        nn.Hardswish(),
        nn.AdaptiveAvgPool3d((1, 2, 2)),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(128, 10),
    )
    return placed(model), {"input": numbers(1, 3, 4, 24, 24)}


@module
def picture_operators() -> Made:
    def call(m: Any, x: Tensor) -> Any:
        y = m.norm(m.convolution(x))
        y = F.pixel_shuffle(F.avg_pool2d(y, 2), 2)
        tiles = F.unfold(y, 3, padding=1)
        again = F.fold(tiles, (8, 8), 3, padding=1)
        bent = F.interpolate(again, size=(11, 13), mode="bilinear", align_corners=False)
        cubic = F.interpolate(again, scale_factor=1.5, mode="bicubic")
        rolled = torch.roll(bent, (2, -3), (2, 3)).flip(3)
        return rolled, cubic, F.adaptive_max_pool2d(y, 3)

    parts = {
        "convolution": nn.Conv2d(3, 16, 3, padding=1, padding_mode="reflect"),
        "norm": nn.InstanceNorm2d(16, affine=True),
    }
    return placed(Called(call, **parts)), {"x": numbers(1, 3, 8, 8)}


@module
def bent_attention() -> Made:
    def call(m: Any, x: Tensor, picture: Tensor) -> Any:
        spots = m.spots(x).view(1, -1, 4, 2).tanh()
        seen = F.grid_sample(picture, spots, align_corners=False, padding_mode="border")
        weights = m.weights(x).softmax(-1)
        return torch.einsum("bcqp,bqp->bqc", seen, weights)

    parts = {"spots": nn.Linear(16, 8), "weights": nn.Linear(16, 4)}
    return placed(Called(call, **parts)), {"x": numbers(1, 9, 16), "picture": numbers(1, 16, 7, 7)}


@module
def frequencies() -> Made:
    def call(m: Any, x: Tensor) -> Any:
        spectrum = torch.fft.rfft(x, dim=1)
        return torch.fft.irfft(spectrum * torch.view_as_complex(m.filter), n=x.shape[1], dim=1)

    filters = nn.Parameter(torch.randn(17, 8, 2))
    return placed(Called(call, filter=filters)), {"x": numbers(2, 32, 8)}


# --- types ---------------------------------------------------------------------------------------


@module
def eight_bits() -> Made:
    def call(m: Any, x: Tensor) -> Any:
        scale = x.abs().amax(-1, keepdim=True) / 127
        narrow = torch.round(x / scale).clamp(-128, 127).to(torch.int8)
        wide = narrow.float() @ m.weight.float().T
        return wide * scale * m.scales + m.bias, narrow

    parts = {
        "weight": whole(255, 48, 32).sub(128).to(torch.int8),
        "scales": numbers(48).abs() / 100,
        "bias": nn.Parameter(torch.randn(48)),
    }
    model = Called(call, **parts).cuda().eval()
    return model, {"x": numbers(5, 32)}


@module
def eight_bit_floats() -> Made:
    def call(m: Any, x: Tensor) -> Any:
        narrow = (x / m.scale).clamp(-448, 448).to(torch.float8_e4m3fn)
        return (narrow.to(x.dtype) @ m.weight.to(x.dtype).T) * m.scale

    parts = {"weight": numbers(32, 48).to(torch.float8_e4m3fn), "scale": torch.tensor(0.02)}
    return Called(call, **parts).cuda().eval(), {"x": numbers(6, 48)}


@module
def four_bits() -> Made:
    def call(m: Any, x: Tensor) -> Any:
        low, high = m.packed & 0xF, m.packed >> 4
        weight = torch.stack([low, high], -1).flatten(1).to(torch.int8) - 8
        grouped = weight.view(32, -1, 16).to(x.dtype) * m.scales[..., None]
        return F.linear(x, grouped.flatten(1))

    packed = whole(256, 32, 32).to(torch.uint8)
    model = Called(call, packed=packed, scales=numbers(32, 4, dtype=torch.bfloat16) / 16)
    return model.cuda().eval(), {"x": numbers(3, 64, dtype=torch.bfloat16)}


@module
def many_adapters() -> Made:
    def call(m: Any, x: Tensor, which: Tensor) -> Any:
        low = torch.bmm(x, m.down[which])
        return m.base(x) + 0.5 * torch.bmm(low, m.up[which])

    parts = {
        "base": nn.Linear(64, 64),
        "down": nn.Parameter(torch.randn(5, 64, 8) / 8),
        "up": nn.Parameter(torch.randn(5, 8, 64) / 3),
    }
    inputs = {"x": numbers(3, 4, 64, dtype=torch.float16), "which": whole(5, 3)}
    return placed(Called(call, **parts), torch.float16), inputs


@module
def mixed_types() -> Made:
    def call(m: Any, x: Tensor, ids: Tensor) -> Any:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            y = m.one(x)
        hashed = ((ids * 2654435761) ^ (ids << 7)) % 64
        y = y.float() + m.table(hashed)
        exact = y.double().logcumsumexp(0)
        return exact.to(torch.float16), y > 0, hashed.to(torch.int32), exact.argmax(-1)

    parts = {"one": nn.Linear(32, 16), "table": nn.Embedding(64, 16)}
    return placed(Called(call, **parts)), {"x": numbers(5, 32), "ids": whole(1000, 5)}


# --- states, results -----------------------------------------------------------------------------


@module
def running_sums() -> Made:
    def call(m: Any, x: Tensor) -> Any:
        m.steps += 1
        m.mean.lerp_(x.mean(0), 0.1)
        m.history[(m.steps % 4)[None]] = x.sum(0)
        y = (x - m.mean) / (m.norm(x).std(0) + 1)
        return y, m.steps

    parts = {
        "steps": torch.tensor(2),
        "mean": torch.zeros(16),
        "history": torch.zeros(4, 16),
        "norm": nn.BatchNorm1d(16),
    }
    model = placed(Called(call, **parts))
    model.norm.train()
    return model, {"x": numbers(6, 16)}


@module
def results_that_were_there() -> Made:
    def call(m: Any, x: Tensor, cache: Tensor) -> Any:
        y = m.head(x)
        cache[:, 1:3].mul_(2)
        return x, x.view(-1), y, y.T, y, m.head.weight, cache[:, :2], None, 3

    model = placed(Called(call, head=nn.Linear(12, 12)))
    return model, {"x": numbers(4, 12), "cache": numbers(2, 5)}


@dataclass
class Result:
    """What a model may return."""

    logits: Tensor
    hidden: tuple[Tensor, ...]
    loss: Tensor | None = None


@module
def nested_results() -> Made:
    def call(
        m: Any, *, x: Tensor, mask: Tensor | None = None, scale: float = 1.0, **more: Any
    ) -> Any:
        hidden = [x]
        for layer in m.layers:
            hidden.append(F.gelu(layer(hidden[-1])) * scale + more["offsets"]["first"])
        logits = F.linear(hidden[-1], m.embedding.weight)
        return Result(logits=logits, hidden=tuple(hidden[1:]))

    layers = nn.ModuleList([nn.Linear(24, 24) for _ in range(2)])
    embedding = nn.Embedding(30, 24)
    model = placed(Called(call, layers=layers, embedding=embedding))
    offsets = {"first": numbers(24), "second": numbers(3)}
    return model, {"x": numbers(2, 24), "mask": None, "scale": 0.5, "offsets": offsets}


@module
def tied_and_shared() -> Made:
    def call(m: Any, tokens: Tensor) -> Any:
        x = m.embedding(tokens) * 24**0.5
        for _ in range(3):
            x = x + m.dropout(m.layer(F.rms_norm(x, (24,))))
        return m.head(x), m.last(m.head(x))

    embedding, head, last = nn.Embedding(40, 24), nn.Linear(24, 40, bias=False), nn.Linear(40, 24)
    head.weight = embedding.weight
    last.weight = nn.Parameter(torch.randn(24, 40))
    layer = nn.Sequential(nn.Linear(24, 48), nn.SiLU(), nn.Linear(48, 24))
    parts = {"embedding": embedding, "head": head, "last": last, "layer": layer}
    model = placed(Called(call, **parts, dropout=nn.Dropout(0.3)))
    return model, {"tokens": whole(40, 2, 7)}


@module
def tokens_in_a_loop() -> Made:
    def call(m: Any, token: Tensor, h: Tensor) -> Any:
        out = []
        for _ in range(3):
            h = m.cell(m.embedding(token), h)
            token = m.head(h).argmax(-1)
            out.append(token)
        return torch.stack(out, 1), h

    parts = {"embedding": nn.Embedding(30, 16), "cell": nn.GRUCell(16, 16)}
    model = placed(Called(call, **parts, head=nn.Linear(16, 30)))
    return model, {"token": whole(30, 2), "h": numbers(2, 16)}


@module
def cache_that_grows() -> Made:
    def call(m: Any, x: Tensor, past: tuple[Tensor, Tensor]) -> Any:
        q, k, v = (t.unflatten(-1, (2, 16)).transpose(1, 2) for t in m.qkv(x).chunk(3, -1))
        k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        y = F.scaled_dot_product_attention(q, k, v)
        return y.transpose(1, 2).flatten(2), (k, v)

    past = (numbers(1, 2, 9, 16), numbers(1, 2, 9, 16))
    return placed(Called(call, qkv=nn.Linear(32, 96))), {"x": numbers(1, 1, 32), "past": past}


# --- mixtures, state spaces, linear attention ----------------------------------------------------


@module
def grouped_router() -> Made:
    """Sigmoid scores with a bias for the choice alone, groups of experts, a shared expert."""

    def call(m: Any, x: Tensor) -> Any:
        scores = (x.float() @ m.router.float().T).sigmoid()
        chosen = scores + m.bias
        groups = chosen.view(-1, 4, 4).topk(2, -1).values.sum(-1).topk(2, -1).indices
        allowed = torch.zeros(len(x), 4, device=x.device).scatter_(1, groups, 1.0).bool()
        chosen = chosen.masked_fill(~allowed.repeat_interleave(4, 1), 0.0)
        experts = chosen.topk(3, -1).indices
        weights = scores.gather(1, experts)
        weights = (weights / weights.sum(-1, keepdim=True) * 2.5).to(x.dtype)
        gate, up = torch.einsum("td,tkdf->tkf", x, m.up[experts]).chunk(2, -1)
        y = torch.einsum("tkf,tkfd->tkd", F.silu(gate) * up, m.down[experts])
        return (y * weights[..., None]).sum(1) + m.shared(x)

    parts = {
        "router": nn.Parameter(torch.randn(16, 32) / 3),
        "bias": torch.randn(16) / 10,
        "up": nn.Parameter(torch.randn(16, 32, 48) / 6),
        "down": nn.Parameter(torch.randn(16, 24, 32) / 5),
        "shared": nn.Sequential(nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 32)),
    }
    kind = torch.bfloat16
    return placed(Called(call, **parts), kind), {"x": numbers(10, 32, dtype=kind)}


@module
def experts_with_room() -> Made:
    """Experts that take at most so many tokens each, by one-hot products."""

    def call(m: Any, x: Tensor) -> Any:
        chance = m.router(x).softmax(-1)
        gate, expert = chance.max(-1)
        mask = F.one_hot(expert, 4)
        place = (mask.cumsum(0) - 1) * mask
        mask = mask * (place < 5)
        spots = F.one_hot(place.sum(-1).clamp_max(4), 5).to(x.dtype)
        sent = torch.einsum("te,tc->tec", mask.to(x.dtype), spots)
        rows = torch.einsum("tec,td->ecd", sent, x)
        y = torch.baddbmm(m.bias, F.relu(torch.bmm(rows, m.up)), m.down)
        return torch.einsum("tec,ecd->td", sent * gate[:, None, None], y)

    parts = {
        "router": nn.Linear(16, 4),
        "up": nn.Parameter(torch.randn(4, 16, 32) / 4),
        "down": nn.Parameter(torch.randn(4, 32, 16) / 5),
        "bias": nn.Parameter(torch.randn(4, 1, 16)),
    }
    return placed(Called(call, **parts)), {"x": numbers(12, 16)}


@module
def gated_delta() -> Made:
    """The gated delta rule, one token: a state that is changed in place."""

    def call(m: Any, x: Tensor, state: Tensor, past: Tensor) -> Any:
        mixed = torch.cat([past, m.qkv(x)[..., None]], -1)
        past.copy_(mixed[..., 1:])
        q, k, v = F.silu((mixed * m.filter).sum(-1)).view(len(x), 3, 4, 16).unbind(1)
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        beta = m.beta(x).sigmoid()[..., None]
        decay = torch.exp(-m.rate.exp() * F.softplus(m.step(x).float()))[..., None, None]
        state.mul_(decay)
        seen = (state * k[..., None].float()).sum(-2)
        state.add_(k[..., None] * ((v - seen) * beta)[..., None, :])
        return m.out((state * q[..., None]).sum(-2).flatten(1).to(x.dtype))

    parts = {
        "qkv": nn.Linear(64, 192),
        "filter": nn.Parameter(torch.randn(192, 4) / 2),
        "beta": nn.Linear(64, 4),
        "step": nn.Linear(64, 4),
        "rate": nn.Parameter(torch.rand(4)),
        "out": nn.Linear(64, 64),
    }
    inputs = {"x": numbers(2, 64), "state": numbers(2, 4, 16, 16), "past": numbers(2, 192, 3)}
    return placed(Called(call, **parts)), inputs


@module
def delta_in_chunks() -> Made:
    """The delta rule over chunks: a triangular system for each."""

    def call(m: Any, x: Tensor) -> Any:
        q, k, v = m.qkv(x).view(1, 2, 8, 3, 2, 16).permute(3, 0, 4, 1, 2, 5).unbind(0)
        k = F.normalize(k, dim=-1)
        beta = m.beta(x).sigmoid().view(1, 2, 8, 2).permute(0, 3, 1, 2)[..., None]
        inner = ((k * beta) @ k.mT).tril(-1)
        eye = torch.eye(8, device=x.device)
        solved = torch.linalg.solve_triangular(eye + inner, v * beta, upper=False)
        keys = torch.linalg.solve_triangular(eye + inner, k * beta, upper=False)
        state, out = x.new_zeros(1, 2, 16, 16), []
        for n in range(2):
            rest = solved[:, :, n] - keys[:, :, n] @ state
            within = (q[:, :, n] @ k[:, :, n].mT).tril() @ rest
            out.append(q[:, :, n] @ state + within)
            state = state + k[:, :, n].mT @ rest
        return torch.stack(out, 2)

    parts = {"qkv": nn.Linear(32, 96), "beta": nn.Linear(32, 2)}
    return placed(Called(call, **parts)), {"x": numbers(1, 16, 32)}


@module
def linear_attention() -> Made:
    def call(m: Any, x: Tensor) -> Any:
        q, k, v = m.qkv(x).chunk(3, -1)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        state = torch.einsum("btd,bte->btde", k, v).cumsum(1)
        norm = torch.einsum("btd,btd->bt", q, k.cumsum(1)).clamp_min(1e-6)
        return torch.einsum("btd,btde->bte", q, state) / norm[..., None]

    return placed(Called(call, qkv=nn.Linear(24, 72))), {"x": numbers(2, 12, 24)}


@module
def hybrid_layers() -> Made:
    """A convolution, a selective state space and an attention, one after the other."""

    def call(m: Any, x: Tensor) -> Any:
        y = m.convolution(F.pad(x.transpose(1, 2), (3, 0))).transpose(1, 2)
        dt, b, c = m.select(F.silu(y)).split([32, 4, 4], -1)
        decay = torch.exp(F.softplus(dt)[..., None] * -m.rate.exp())
        state, out = torch.zeros_like(decay[:, 0]), []
        for t in range(x.shape[1]):
            state = decay[:, t] * state + (y[:, t, :, None] * b[:, t, None])
            out.append((state * c[:, t, None]).sum(-1))
        y = m.norm(torch.stack(out, 1) + x)
        return y + m.attention(y, y, y, need_weights=False)[0]

    parts = {
        "convolution": nn.Conv1d(32, 32, 4, groups=32),
        "select": nn.Linear(32, 40),
        "rate": nn.Parameter(torch.rand(32, 4)),
        "norm": nn.RMSNorm(32),
        "attention": nn.MultiheadAttention(32, 2, batch_first=True),
    }
    return placed(Called(call, **parts)), {"x": numbers(2, 6, 32)}


@module
def latents() -> Made:
    """Learned queries that read a long input, distances, a codebook."""

    def call(m: Any, x: Tensor) -> Any:
        seen, _ = m.attention(m.queries.expand(len(x), -1, -1), x, x, need_weights=False)
        codes = torch.cdist(seen, m.codebook).argmin(-1)
        nearest = F.embedding(codes, m.codebook)
        alike = F.cosine_similarity(seen, nearest, dim=-1)
        return m.both(seen, nearest), codes, alike, F.prelu(seen, m.slope)

    parts = {
        "attention": nn.MultiheadAttention(32, 4, kdim=20, vdim=20, batch_first=True),
        "queries": nn.Parameter(torch.randn(1, 6, 32)),
        "codebook": nn.Parameter(torch.randn(14, 32)),
        "both": nn.Bilinear(32, 32, 5),
        "slope": nn.Parameter(torch.tensor([0.2])),
    }
    return placed(Called(call, **parts)), {"x": numbers(2, 15, 20)}
