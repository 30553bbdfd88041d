"""Steps that generate text, made for `tessera.Engine` and `tessc serve`.

Three families. Each has a `decode` step (one token for every sequence of a batch, each at its own
position) and a `prefill` step (a chunk of the prompt of one sequence), with the same weights and
states under the same names:

- `Llama`: rotary positions, grouped queries, a cache with a row for every sequence.
- `Gpt`: learned positions, LayerNorm, GELU; a cache in blocks, found by a table.
- `Recurrent`: a state-space model that carries a state of fixed size and has no positions.

Names of inputs are the roles of docs/guides/serve.md, so that no declaration is needed beyond the
length of the context.
"""

from __future__ import annotations

import math

import torch
from layers import rotary_tables
from torch import Tensor, nn
from torch.nn.functional import (
    gelu,
    layer_norm,
    scaled_dot_product_attention,
    silu,
    softplus,
)


def weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape) / math.sqrt(shape[-1]))


def product(x: Tensor, w: Tensor) -> Tensor:
    """`x @ w.T`; where rows are short, as a sum, which needs no kernel of its own."""
    return (x[..., None, :] * w).sum(-1) if x.shape[-1] <= 64 else x @ w.T


def last_of(x: Tensor, lengths: Tensor) -> Tensor:
    """The last token of each row that is one."""
    at = (lengths - 1).clamp(min=0)
    return x[torch.arange(x.shape[0], device=x.device), at]


def attention(q: Tensor, k: Tensor, v: Tensor, place: Tensor) -> Tensor:
    """[rows, tokens, heads, size] over the places of a cache up to that of each token."""
    groups = q.shape[2] // k.shape[2]
    seen = torch.arange(k.shape[1], device=q.device) <= place[:, None, :, None]
    if k.shape[1] > 64:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        result = scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=groups > 1)
        return result.transpose(1, 2).flatten(2)
    k, v = (x.repeat_interleave(groups, 2) if groups > 1 else x for x in (k, v))
    scores = (q[:, :, None] * k[:, None]).sum(-1).permute(0, 3, 1, 2)
    scores = scores.float() / math.sqrt(q.shape[3])
    shares = torch.softmax(scores.masked_fill(~seen, float("-inf")), -1).to(v.dtype)
    return (shares.permute(0, 2, 3, 1)[..., None] * v[:, None]).sum(2).flatten(2)


# --- a decoder with a cache in rows ---------------------------------------------------------------


def norm(x: Tensor, scale: Tensor) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * scale


class LlamaLayer(nn.Module):
    def __init__(
        self, hidden: int, heads: int, kv_heads: int, inner: int, rows: int, context: int
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, hidden // heads
        self.q = weight(hidden, hidden)
        self.k = weight(kv_heads * self.size, hidden)
        self.v = weight(kv_heads * self.size, hidden)
        self.o = weight(hidden, hidden)
        self.gate, self.up = weight(inner, hidden), weight(inner, hidden)
        self.down = weight(hidden, inner)
        self.norm1, self.norm2 = (nn.Parameter(torch.ones(hidden)) for _ in range(2))
        for name in ("k_cache", "v_cache"):
            self.register_buffer(name, torch.zeros(rows, context, kv_heads, self.size))

    def forward(self, x: Tensor, place: Tensor, rows: Tensor | None, turn: Tensor) -> Tensor:
        h = norm(x, self.norm1)
        q, k, v = (
            product(h, own).unflatten(-1, (-1, self.size)) for own in (self.q, self.k, self.v)
        )
        q, k = rotate(q, turn), rotate(k, turn)
        at = torch.arange(x.shape[0], device=x.device) if rows is None else rows
        self.k_cache[at[:, None], place] = k
        self.v_cache[at[:, None], place] = v
        keys, values = (
            held if rows is None else held[rows] for held in (self.k_cache, self.v_cache)
        )
        x = x + product(attention(q, keys, values, place), self.o)
        h = norm(x, self.norm2)
        return x + product(silu(product(h, self.gate)) * product(h, self.up), self.down)


def rotate(x: Tensor, turn: Tensor) -> Tensor:
    """Turn pairs of [rows, tokens, heads, size]; `turn` has cosines and sines of [rows, tokens]."""
    cos, sin = turn[:, :, None].chunk(2, -1)
    first, second = x.float().chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(x.dtype)


class Llama(nn.Module):
    def __init__(
        self,
        vocabulary: int,
        hidden: int,
        layers: int,
        heads: int,
        kv_heads: int,
        inner: int,
        rows: int,
        context: int,
        greedy: bool = False,
    ) -> None:
        super().__init__()
        self.greedy = greedy
        self.embedding, self.head = weight(vocabulary, hidden), weight(vocabulary, hidden)
        self.layers = nn.ModuleList(
            LlamaLayer(hidden, heads, kv_heads, inner, rows, context) for _ in range(layers)
        )
        self.norm = nn.Parameter(torch.ones(hidden))
        self.register_buffer("turns", torch.cat(rotary_tables(context, hidden // heads), -1))

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        rows: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> Tensor:
        place = positions[:, None] + torch.arange(tokens.shape[1], device=tokens.device)
        x, turn = self.embedding[tokens], self.turns[place]
        for layer in self.layers:
            x = layer(x, place, rows, turn)
        x = x[:, 0] if lengths is None else last_of(x, lengths)
        logits = product(norm(x, self.norm), self.head)
        return logits.argmax(-1) if self.greedy else logits


# --- a decoder with a cache in blocks -------------------------------------------------------------


class GptLayer(nn.Module):
    def __init__(self, hidden: int, heads: int, blocks: int, block: int) -> None:
        super().__init__()
        self.heads, self.block = heads, block
        self.qkv, self.qkv_bias = weight(3 * hidden, hidden), nn.Parameter(torch.zeros(3 * hidden))
        self.o, self.o_bias = weight(hidden, hidden), nn.Parameter(torch.zeros(hidden))
        self.up, self.up_bias = weight(4 * hidden, hidden), nn.Parameter(torch.zeros(4 * hidden))
        self.down, self.down_bias = weight(hidden, 4 * hidden), nn.Parameter(torch.zeros(hidden))
        for name in ("norm1", "norm2"):
            setattr(self, name, nn.Parameter(torch.ones(hidden)))
            setattr(self, f"{name}_bias", nn.Parameter(torch.zeros(hidden)))
        for name in ("k_cache", "v_cache"):
            held = torch.zeros(blocks, block, heads, hidden // heads)
            self.register_buffer(name, held)

    def forward(self, x: Tensor, place: Tensor, table: Tensor) -> Tensor:
        width = x.shape[-1:]
        h = layer_norm(x, width, self.norm1, self.norm1_bias)
        parts = product(h, self.qkv) + self.qkv_bias
        q, k, v = parts.unflatten(-1, (3, self.heads, -1)).unbind(2)
        at = table.gather(1, place // self.block)
        self.k_cache[at, place % self.block] = k
        self.v_cache[at, place % self.block] = v
        keys, values = self.k_cache[table].flatten(1, 2), self.v_cache[table].flatten(1, 2)
        x = x + product(attention(q, keys, values, place), self.o) + self.o_bias
        h = layer_norm(x, width, self.norm2, self.norm2_bias)
        inner = gelu(product(h, self.up) + self.up_bias, approximate="tanh")
        return x + product(inner, self.down) + self.down_bias


class Gpt(nn.Module):
    """Tokens are drawn in the step: `uniform` are numbers from 0 to 1, one for each row."""

    def __init__(
        self,
        vocabulary: int,
        hidden: int,
        layers: int,
        heads: int,
        blocks: int,
        block: int,
        context: int,
    ) -> None:
        super().__init__()
        self.embedding, self.places = weight(vocabulary, hidden), weight(context, hidden)
        self.layers = nn.ModuleList(GptLayer(hidden, heads, blocks, block) for _ in range(layers))
        self.norm = nn.Parameter(torch.ones(hidden))
        self.norm_bias = nn.Parameter(torch.zeros(hidden))

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        blocks: Tensor,
        temperature: Tensor | None = None,
        uniform: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> Tensor:
        place = positions[:, None] + torch.arange(tokens.shape[1], device=tokens.device)
        x = self.embedding[tokens] + self.places[place]
        for layer in self.layers:
            x = layer(x, place, blocks)
        x = x[:, 0] if lengths is None else last_of(x, lengths)
        logits = product(layer_norm(x, x.shape[-1:], self.norm, self.norm_bias), self.embedding)
        if temperature is None or uniform is None:
            return logits
        shares = torch.softmax(logits.float() / temperature.clamp(min=1e-6)[:, None], -1)
        drawn = (shares.cumsum(-1) <= uniform[:, None]).sum(-1).clamp(max=logits.shape[-1] - 1)
        return torch.where(temperature > 0, drawn, logits.argmax(-1))


# --- a state of fixed size ------------------------------------------------------------------------


class RecurrentLayer(nn.Module):
    def __init__(self, hidden: int, heads: int, state: int, rows: int) -> None:
        super().__init__()
        self.heads, self.state = heads, state
        self.value, self.gate = weight(hidden, hidden), weight(hidden, hidden)
        self.keys, self.queries = weight(state, hidden), weight(state, hidden)
        self.steps, self.out = weight(heads, hidden), weight(hidden, hidden)
        self.decay = nn.Parameter(torch.linspace(-1.0, 1.0, heads))
        self.norm = nn.Parameter(torch.ones(hidden))
        self.register_buffer("carried", torch.zeros(rows, heads, hidden // heads, state))

    def forward(self, x: Tensor, rows: Tensor | None, lengths: Tensor) -> Tensor:
        h = norm(x, self.norm)
        value = product(h, self.value).unflatten(-1, (self.heads, -1))
        step = softplus(product(h, self.steps))
        keep = torch.exp(-torch.exp(self.decay) * step)
        keys, queries = product(h, self.keys), product(h, self.queries)
        held = self.carried if rows is None else self.carried[rows]
        seen = []
        for token in range(x.shape[1]):
            made = (step[:, token, :, None] * value[:, token])[..., None] * keys[
                :, token, None, None
            ]
            new = held * keep[:, token, :, None, None] + made
            held = torch.where((token < lengths)[:, None, None, None], new, held)
            seen.append((held * queries[:, token, None, None]).sum(-1).flatten(1))
        if rows is None:
            self.carried.copy_(held)
        else:
            self.carried[rows] = held
        return x + product(torch.stack(seen, 1) * silu(product(h, self.gate)), self.out)


class Recurrent(nn.Module):
    """The step gives the most likely token itself. Rows of length 0 keep their state."""

    def __init__(
        self, vocabulary: int, hidden: int, layers: int, heads: int, state: int, rows: int
    ) -> None:
        super().__init__()
        self.embedding = weight(vocabulary, hidden)
        self.layers = nn.ModuleList(
            RecurrentLayer(hidden, heads, state, rows) for _ in range(layers)
        )
        self.norm = nn.Parameter(torch.ones(hidden))

    def forward(self, tokens: Tensor, lengths: Tensor, rows: Tensor | None = None) -> Tensor:
        x = self.embedding[tokens]
        for layer in self.layers:
            x = layer(x, rows, lengths)
        return product(norm(last_of(x, lengths), self.norm), self.embedding).argmax(-1)


# --- what `tessc trace` captures ------------------------------------------------------------------

Step = tuple[nn.Module, dict[str, Tensor]]


def _step(model: nn.Module, dtype: str, device: str, **inputs: Tensor) -> Step:
    model = model.to(getattr(torch, dtype)).to(device).eval().requires_grad_(False)
    return model, {name: tensor.to(device) for name, tensor in inputs.items()}


def _llama(made_on: str, **sizes: int) -> Llama:
    torch.manual_seed(0)
    with torch.device(made_on):
        return Llama(**sizes)


def llama_decode(
    vocabulary: int = 64,
    hidden: int = 16,
    layers: int = 1,
    heads: int = 2,
    kv_heads: int = 1,
    inner: int = 32,
    rows: int = 3,
    context: int = 32,
    greedy: bool = False,
    dtype: str = "float32",
    device: str = "cuda",
    made_on: str = "cpu",
) -> Step:
    """8B: vocabulary=128256 hidden=4096 layers=32 heads=32 kv_heads=8 inner=14336 rows=64
    context=2048 dtype=bfloat16 made_on=cuda (random weights are made there, which is quicker). With
    `greedy` the step gives tokens in place of logits."""
    model = _llama(
        made_on,
        vocabulary=vocabulary,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        inner=inner,
        rows=rows,
        context=context,
        greedy=greedy,
    )
    tokens, places = torch.zeros(rows, 1, dtype=torch.int64), torch.zeros(rows, dtype=torch.int64)
    return _step(model, dtype, device, tokens=tokens, positions=places)


def llama_prefill(
    vocabulary: int = 64,
    hidden: int = 16,
    layers: int = 1,
    heads: int = 2,
    kv_heads: int = 1,
    inner: int = 32,
    rows: int = 3,
    context: int = 32,
    chunk: int = 4,
    greedy: bool = False,
    dtype: str = "float32",
    device: str = "cuda",
    made_on: str = "cpu",
) -> Step:
    model = _llama(
        made_on,
        vocabulary=vocabulary,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        inner=inner,
        rows=rows,
        context=context,
        greedy=greedy,
    )
    nothing = torch.zeros(1, dtype=torch.int64)
    inputs = {
        "tokens": torch.zeros(1, chunk, dtype=torch.int64),
        "positions": nothing,
        "rows": nothing.clone(),
        "lengths": nothing.clone() + 1,
    }
    return _step(model, dtype, device, **inputs)


def gpt_decode(
    vocabulary: int = 64,
    hidden: int = 16,
    layers: int = 1,
    heads: int = 2,
    rows: int = 3,
    blocks: int = 19,
    block: int = 4,
    context: int = 32,
    dtype: str = "float32",
    device: str = "cuda",
) -> Step:
    torch.manual_seed(0)
    model = Gpt(vocabulary, hidden, layers, heads, blocks, block, context)
    zeros = torch.zeros(rows, dtype=torch.int64)
    inputs = {
        "tokens": zeros[:, None].clone(),
        "positions": zeros.clone(),
        "blocks": torch.zeros(rows, context // block, dtype=torch.int64),
        "temperature": torch.zeros(rows),
        "uniform": torch.zeros(rows),
    }
    return _step(model, dtype, device, **inputs)


def gpt_prefill(
    vocabulary: int = 64,
    hidden: int = 16,
    layers: int = 1,
    heads: int = 2,
    blocks: int = 19,
    block: int = 4,
    context: int = 32,
    chunk: int = 4,
    dtype: str = "float32",
    device: str = "cuda",
) -> Step:
    torch.manual_seed(0)
    model = Gpt(vocabulary, hidden, layers, heads, blocks, block, context)
    inputs = {
        "tokens": torch.zeros(1, chunk, dtype=torch.int64),
        "positions": torch.zeros(1, dtype=torch.int64),
        "blocks": torch.zeros(1, context // block, dtype=torch.int64),
        "temperature": torch.zeros(1),
        "uniform": torch.zeros(1),
        "lengths": torch.ones(1, dtype=torch.int64),
    }
    return _step(model, dtype, device, **inputs)


def recurrent_decode(
    vocabulary: int = 64,
    hidden: int = 16,
    layers: int = 1,
    heads: int = 2,
    state: int = 4,
    rows: int = 3,
    dtype: str = "float32",
    device: str = "cuda",
) -> Step:
    torch.manual_seed(0)
    model = Recurrent(vocabulary, hidden, layers, heads, state, rows)
    lengths = torch.ones(rows, dtype=torch.int64)
    return _step(
        model, dtype, device, tokens=torch.zeros(rows, 1, dtype=torch.int64), lengths=lengths
    )


def recurrent_prefill(
    vocabulary: int = 64,
    hidden: int = 16,
    layers: int = 1,
    heads: int = 2,
    state: int = 4,
    rows: int = 3,
    chunk: int = 4,
    dtype: str = "float32",
    device: str = "cuda",
) -> Step:
    torch.manual_seed(0)
    model = Recurrent(vocabulary, hidden, layers, heads, state, rows)
    inputs = {
        "tokens": torch.zeros(1, chunk, dtype=torch.int64),
        "lengths": torch.ones(1, dtype=torch.int64),
        "rows": torch.zeros(1, dtype=torch.int64),
    }
    return _step(model, dtype, device, **inputs)
