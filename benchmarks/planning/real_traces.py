"""Traces of real models at real sizes, written from shapes: no capture, no GPU, no contents.

In: a model, a phase, a batch, a context, how many layers. Out: the text of a trace of `op` records,
as PyTorch would call them one by one:

    python -m benchmarks.planning.real_traces llama-8b --phase decode --batch 8 -o decode.ptx

A decode step adds one token to each of `batch` sequences that have `context` tokens. A prefill step
reads `batch` prompts of `context` tokens. KV caches are states with room for `capacity` tokens of
`rows` sequences; with equal `capacity` and `rows`, both phases share them in a mix. An image step
of the MMDiT is one denoising step.

What the table of operators lacks is written with what it has, or left out:
- Rotary embeddings are three calls (roll, mul, addcmul, with the sign in the table of sines).
  SwiGLU is two.
- There is no grouped product. The experts of a MoE layer are a `bmm` over the experts that are hit,
  with as many rows for each. How many are hit is what random routing would give, and the first
  ones stand for them; who goes where is an input.
- Attention sinks have no operator and are left out. Sliding windows: a decode step reads the last
  `window` tokens only; a prefill step has a mask as input and is priced as if it had none.
- There is no 4-bit type: weights of GPT-OSS are in the type of the rest.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.planning.trace_draft import Draft, View, row_major

TYPES = ("bf16", "f16")
PHASES = ("decode", "prefill")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """A model that makes tokens. `experts` 0: one feed-forward block."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head: int
    inner: int
    vocabulary: int
    experts: int = 0
    chosen: int = 0
    window: int = 0
    biases: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageModel:
    """A diffusion transformer over two streams, text and image (MMDiT)."""

    layers: int
    hidden: int
    heads: int
    text: int
    image: int


DECODERS = {
    "llama-8b": Decoder(
        layers=32, hidden=4096, heads=32, kv_heads=8, head=128, inner=14336, vocabulary=128256
    ),
    "llama-70b": Decoder(
        layers=80, hidden=8192, heads=64, kv_heads=8, head=128, inner=28672, vocabulary=128256
    ),
    "gpt-oss-20b": Decoder(
        layers=24,
        hidden=2880,
        heads=64,
        kv_heads=8,
        head=64,
        inner=2880,
        vocabulary=201088,
        experts=32,
        chosen=4,
        window=128,
        biases=True,
    ),
}
IMAGE_MODELS = {"mmdit": ImageModel(layers=38, hidden=2432, heads=38, text=333, image=4096)}
MODELS = (*DECODERS, *IMAGE_MODELS)


# --- models that make tokens ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one request does: `new` tokens for each of `batch` sequences, after `past` others."""

    batch: int
    new: int
    past: int
    rows: int
    capacity: int


def decoder_trace(
    model: Decoder,
    phase: str,
    *,
    batch: int,
    context: int,
    layers: int | None = None,
    dtype: str = "bf16",
    rows: int | None = None,
    capacity: int | None = None,
) -> str:
    """A step of a decoder."""
    new, past = (1, context) if phase == "decode" else (context, 0)
    step = Step(
        batch=batch, new=new, past=past, rows=rows or batch, capacity=capacity or context + 1
    )
    if min(batch, context) < 1 or step.rows < batch or step.capacity < past + new:
        raise ValueError("the cache is too small for the step")
    draft = Draft(dtype)
    tokens = draft.buffer("tokens", "input", batch, new, dtype="s64")
    turns = [draft.buffer(name, "input", new, model.head) for name in ("cosine", "sine")]
    table = draft.buffer("embedding.weight", "weight", model.vocabulary, model.hidden)
    x = draft.call("embedding", [table, tokens], draft.temp(batch, new, model.hidden))
    for layer in range(model.layers if layers is None else layers):
        x = _attention(draft, model, step, x, turns, layer)
        normed = draft.rms_norm(x, f"layers.{layer}.ffn_norm")
        made = (_experts if model.experts else _feed_forward)(draft, model, normed, layer)
        x = draft.same("add.Tensor", x, made)
    last = draft.rms_norm(x.part(1, new - 1, 1), "norm")
    weight = draft.buffer("head.weight", "weight", model.vocabulary, model.hidden)
    draft.call(
        "linear", [last, weight], draft.buffer("logits", "output", batch, 1, model.vocabulary)
    )
    return draft.text()


def _attention(
    draft: Draft, model: Decoder, step: Step, x: View, turns: Sequence[View], layer: int
) -> View:
    name, heads, groups = f"layers.{layer}", model.heads, model.kv_heads
    normed = draft.rms_norm(x, f"{name}.attention_norm")
    query, key, value = (
        draft.linear(normed, f"{name}.{kind}", count * model.head, bias=model.biases)
        .split(2, count, model.head)
        .turned(0, 2, 1, 3)
        for kind, count in (("query", heads), ("key", groups), ("value", groups))
    )
    query, key = (_rotated(draft, part, turns) for part in (query, key))
    caches = []
    for kind, fresh in (("key", key), ("value", value)):
        cache = draft.buffer(
            f"{name}.{kind}_cache", "state", step.rows, groups, step.capacity, model.head
        ).part(0, 0, step.batch)
        target = cache.part(2, step.past, step.new)
        draft.call("copy_", [target, fresh], target)
        caches.append(cache)
    total, first = step.past + step.new, 0
    is_windowed = bool(model.window) and layer % 2 == 0 and total > model.window
    if is_windowed and step.new == 1:
        first = total - model.window
    seen = [cache.part(2, first, total - first) for cache in caches]
    reads, attributes = [query, *seen], {"enable_gqa": groups < heads}
    if is_windowed and step.new > 1:
        mask = "window_mask"
        known = any(line.startswith(f"//! buffer {mask} ") for line in draft.buffers)
        shape = (step.new, total)
        reads.append(
            View(mask, "bool", shape, row_major(shape))
            if known
            else draft.buffer(mask, "input", *shape, dtype="bool")
        )
    elif step.new > 1:
        attributes["is_causal"] = True
    out = draft.temp(step.batch, step.new, heads, model.head)
    draft.call("scaled_dot_product_attention", reads, out.turned(0, 2, 1, 3), **attributes)
    flat = replace(out, shape=(step.batch, step.new, heads * model.head))
    flat = replace(flat, strides=row_major(flat.shape))
    made = draft.linear(flat, f"{name}.out", model.hidden, bias=model.biases)
    return draft.same("add.Tensor", x, made)


def _rotated(draft: Draft, x: View, turns: Sequence[View]) -> View:
    """Rotary embedding: x cos + (x2, x1) sin, where half of the sines are negative."""
    swapped = draft.same("roll", x, shifts=[x.shape[-1] // 2], dims=[3])
    straight = draft.same("mul.Tensor", x, turns[0])
    return draft.same("addcmul", straight, swapped, turns[1])


def _feed_forward(draft: Draft, model: Decoder, x: View, layer: int) -> View:
    gate, up = (draft.linear(x, f"layers.{layer}.{kind}", model.inner) for kind in ("gate", "up"))
    product = draft.same("mul.Tensor", draft.same("silu", gate), up)
    return draft.linear(product, f"layers.{layer}.down", model.hidden)


def hit_experts(model: Decoder, tokens: int) -> int:
    """How many experts some tokens choose between them, if they choose at random."""
    missed = (1 - model.chosen / model.experts) ** tokens
    return max(model.chosen, round(model.experts * (1 - missed)))


def _experts(draft: Draft, model: Decoder, x: View, layer: int) -> View:
    """A router, then a product per expert that is hit, each with as many tokens."""
    name, tokens = f"layers.{layer}.moe", x.shape[0] * x.shape[1]
    hit = hit_experts(model, tokens)
    rows = -(-tokens * model.chosen // hit)
    flat = replace(x, shape=(tokens, model.hidden), strides=(model.hidden, 1))
    scores = draft.linear(flat, f"{name}.router", model.experts, bias=True)
    best = draft.temp(tokens, model.chosen)
    chosen = draft.temp(tokens, model.chosen, dtype="s64")
    draft.call("topk", [scores], best, chosen, k=model.chosen)
    draft.same("softmax.int", best, dim=-1)
    routed = draft.buffer(f"{name}.routed", "input", hit * rows, dtype="s64")
    shares = draft.buffer(f"{name}.shares", "input", hit, rows, 1)
    gathered = draft.call(
        "index_select", [flat, routed], draft.temp(hit * rows, model.hidden), dim=0
    )
    own = gathered.split(0, hit, rows)
    gate, up = (
        _expert_product(draft, model, own, f"{name}.{kind}", model.inner) for kind in ("gate", "up")
    )
    gate = draft.same("clamp_max", gate, max=7.0)
    up = draft.same("clamp", up, min=-7.0, max=7.0)
    scaled = draft.same("mul.Tensor", gate, other=1.702)
    opened = draft.same("sigmoid", scaled)
    gated = draft.same("mul.Tensor", gate, opened)
    product = draft.same("addcmul", gated, gated, up)
    down = _expert_product(draft, model, product, f"{name}.down", model.hidden)
    weighted = draft.same("mul.Tensor", down, shares)
    result = draft.call("zeros", [], draft.temp(tokens, model.hidden), size=[tokens, model.hidden])
    listed = replace(weighted, shape=(hit * rows, model.hidden), strides=(model.hidden, 1))
    draft.call("index_add_", [result, routed, listed], result, dim=0)
    return replace(result, shape=x.shape, strides=row_major(x.shape))


def _expert_product(draft: Draft, model: Decoder, x: View, name: str, out: int) -> View:
    hit = x.shape[0]
    weight = draft.buffer(f"{name}.weight", "weight", model.experts, x.shape[2], out)
    bias = draft.buffer(f"{name}.bias", "weight", model.experts, 1, out)
    reads = [bias.part(0, 0, hit), x, weight.part(0, 0, hit)]
    return draft.call("baddbmm", reads, draft.temp(hit, x.shape[1], out))


# --- images ---------------------------------------------------------------------------------------


def image_trace(
    model: ImageModel, *, batch: int, layers: int | None = None, dtype: str = "bf16"
) -> str:
    """One denoising step: the blocks, between the patches and their noise."""
    draft = Draft(dtype)
    lengths = {"text": model.text, "image": model.image}
    x = {
        stream: draft.buffer(stream, "input", batch, length, model.hidden)
        for stream, length in lengths.items()
    }
    moment = draft.same("silu", draft.buffer("moment", "input", batch, model.hidden))
    for layer in range(model.layers if layers is None else layers):
        _image_block(draft, model, x, moment, f"blocks.{layer}")
    normed = draft.same("layer_norm", x["image"], normalized_shape=[model.hidden], eps=1e-6)
    weight = draft.buffer("head.weight", "weight", 64, model.hidden)
    draft.call("linear", [normed, weight], draft.buffer("noise", "output", batch, model.image, 64))
    return draft.text()


def _image_block(
    draft: Draft, model: ImageModel, x: dict[str, View], moment: View, name: str
) -> None:
    """Attention over both streams together; everything else apart. `x` is changed."""
    head, tall = model.hidden // model.heads, model.text + model.image
    batch = moment.shape[0]
    changes, parts = {}, {}
    for stream in x:
        own = f"{name}.{stream}"
        made = draft.linear(moment, f"{own}.modulation", 6 * model.hidden, bias=True)
        changes[stream] = [
            replace(
                made.part(1, at * model.hidden, model.hidden),
                shape=(batch, 1, model.hidden),
                strides=(6 * model.hidden, model.hidden, 1),
            )
            for at in range(6)
        ]
        normed = _modulated(draft, x[stream], changes[stream][0], changes[stream][1])
        views = [
            draft.linear(normed, f"{own}.{kind}", model.hidden, bias=True).split(
                2, model.heads, head
            )
            for kind in ("query", "key", "value")
        ]
        query, key = (
            draft.rms_norm(view, f"{own}.{kind}_norm")
            for kind, view in (("query", views[0]), ("key", views[1]))
        )
        parts[stream] = (query, key, views[2])
    both = [
        draft.call(
            "cat", [parts[s][at] for s in x], draft.temp(batch, tall, model.heads, head), dim=1
        ).turned(0, 2, 1, 3)
        for at in range(3)
    ]
    out = draft.temp(batch, tall, model.heads, head)
    draft.call("scaled_dot_product_attention", both, out.turned(0, 2, 1, 3))
    shape = (batch, tall, model.hidden)
    flat, first = replace(out, shape=shape, strides=row_major(shape)), 0
    for stream in x:
        own, change, length = f"{name}.{stream}", changes[stream], x[stream].shape[1]
        made = draft.linear(flat.part(1, first, length), f"{own}.out", model.hidden, bias=True)
        first += length
        x[stream] = draft.same("addcmul", x[stream], made, change[2])
        normed = _modulated(draft, x[stream], change[3], change[4])
        wide = draft.linear(normed, f"{own}.up", 4 * model.hidden, bias=True)
        active = draft.same("gelu", wide, approximate="tanh")
        down = draft.linear(active, f"{own}.down", model.hidden, bias=True)
        x[stream] = draft.same("addcmul", x[stream], down, change[5])


def _modulated(draft: Draft, x: View, shift: View, scale: View) -> View:
    normed = draft.same("layer_norm", x, normalized_shape=[x.shape[-1]], eps=1e-6)
    scaled = draft.same("addcmul", normed, normed, scale)
    return draft.same("add.Tensor", scaled, shift)


# --- command line ---------------------------------------------------------------------------------


def real_trace(
    model: str,
    phase: str = "decode",
    *,
    batch: int = 8,
    context: int = 1024,
    layers: int | None = None,
    dtype: str = "bf16",
    rows: int | None = None,
    capacity: int | None = None,
) -> str:
    """The trace of a model by its name."""
    if model in IMAGE_MODELS:
        return image_trace(IMAGE_MODELS[model], batch=batch, layers=layers, dtype=dtype)
    return decoder_trace(
        DECODERS[model],
        phase,
        batch=batch,
        context=context,
        layers=layers,
        dtype=dtype,
        rows=rows,
        capacity=capacity,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--phase", choices=PHASES, default="decode")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--dtype", choices=TYPES, default="bf16")
    parser.add_argument("--rows", type=int, help="sequences that the caches hold")
    parser.add_argument("--capacity", type=int, help="tokens per sequence that the caches hold")
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = vars(parser.parse_args())
    target = given.pop("output")
    target.write_text(real_trace(given.pop("model"), given.pop("phase"), **given))


if __name__ == "__main__":
    main()
