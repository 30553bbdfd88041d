"""Traces of the models of the cells, written from shapes, as serving engines launch their steps.

In: a `TextModel`, batches and lengths. Out: texts of traces, as `serving_traces` writes them, with
what it lacks: experts of other widths beside experts that every token goes to, layers without
experts, and latent attention. Its cache has one row of `values + turned` numbers per token. A
decode step multiplies queries with the projection of keys first, and so attends over the cache
itself, as one head of keys for all; a prefill step makes keys and values of all heads.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.gain.cells import IMAGE_MODELS, TEXT_MODELS, Cell, Latent, TextModel
from benchmarks.paper.models import _other
from benchmarks.planning.real_traces import image_trace
from benchmarks.planning.serving_traces import (
    ServingStep,
    _added_norm,
    _attention,
    _experts,
    _feed_forward,
    _fused,
    _linear,
    _merged,
    _norm,
)
from benchmarks.planning.trace_draft import Draft, View, row_major

IMAGE_BATCHES = (1, 2, 4, 8)


def traces_of(cell: Cell) -> dict[str, str]:
    """The traces of a cell by name: steps of images, or decode steps and the reading of a prompt.

    Decode steps see the mean context of a request, so that no time is scaled.
    """
    if not cell.is_text:
        batches = IMAGE_BATCHES[: len(cell.batches)]
        image = IMAGE_MODELS[cell.model]
        return {f"image-b{batch}": image_trace(image, batch=batch) for batch in batches}
    context = cell.prompt + cell.answer // 2
    largest = max(cell.batches)
    sizes = [("decode", batch, 1, batch) for batch in cell.batches]
    sizes.append(("prefill", 1, cell.prompt, largest))
    steps = [
        ServingStep(
            model=cell.model, phase=phase, batch=batch, tokens=tokens, rows=rows, capacity=context
        )
        for phase, batch, tokens, rows in sizes
    ]
    return {f"{s.phase}-b{s.batch}": text_trace(TEXT_MODELS[cell.model], s) for s in steps}


def text_trace(model: TextModel, step: ServingStep) -> str:
    """The text of a step."""
    decoder = model.decoder
    draft = Draft(model.dtype)
    batch, new = step.batch, step.tokens
    turned = decoder.head if model.latent is None else model.latent.turned
    tokens = draft.buffer("tokens", "input", batch, new, dtype="s64")
    places = draft.buffer("positions", "input", batch, new, dtype="s64")
    turns = [draft.buffer(name, "weight", step.capacity, turned) for name in ("cos", "sin")]
    table = draft.buffer("embed", "weight", decoder.vocabulary, decoder.hidden)
    x = draft.call("embedding", [table, tokens], draft.temp(batch, new, decoder.hidden))
    normed = _norm(draft, x, "l0.norm1")
    for layer in range(decoder.layers):
        given = (places, turns[0], turns[1])
        if model.latent is None:
            made = _attention(draft, decoder, step, normed, given, layer)
        else:
            made = _latent(draft, model, model.latent, step, normed, given, layer)
        normed, x = _added_norm(draft, made, x, f"l{layer}.norm2")
        made = _after(draft, model, normed, layer)
        normed, x = _added_norm(draft, made, x, f"l{layer + 1}.norm1")
    last = normed.part(1, new - 1, 1)
    head = draft.buffer("head", "weight", decoder.vocabulary, decoder.hidden)
    logits = draft.buffer("logits", "output", batch, 1, decoder.vocabulary)
    draft.call("linear", [last, head], logits)
    return draft.text()


def _after(draft: Draft, model: TextModel, x: View, layer: int) -> View:
    """The part of a layer that follows its attention."""
    decoder = model.decoder
    if not decoder.experts or layer < model.dense:
        inner = model.dense_inner if decoder.experts else decoder.inner
        return _feed_forward(draft, replace(decoder, inner=inner), x, layer)
    if model.experts_in_4_bits:
        return _experts(draft, decoder, x, layer)
    scores = _linear(draft, x, f"l{layer}.router", decoder.experts, bias=False)
    inner, hidden = decoder.inner, decoder.hidden
    weights = [
        draft.buffer(f"l{layer}.experts_in", "weight", decoder.experts, 2 * inner, hidden),
        draft.buffer(f"l{layer}.experts_out", "weight", decoder.experts, hidden, inner),
    ]
    made = _fused(
        draft,
        "experts",
        [x, scores, *weights],
        draft.temp(*x.shape),
        tokens=x.shape[0] * x.shape[1],
        hidden=hidden,
        inner=inner,
        chosen=decoder.chosen,
        experts=decoder.experts,
    )
    if not model.common:
        return made
    shared = _feed_forward(draft, replace(decoder, inner=model.common * inner), x, layer)
    return draft.same("add.Tensor", made, shared)


def _latent(
    draft: Draft,
    model: TextModel,
    sizes: Latent,
    step: ServingStep,
    x: View,
    given: tuple[View, View, View],
    layer: int,
) -> View:
    places, *turns = given
    decoder, batch, new = model.decoder, step.batch, step.tokens
    heads, wide = decoder.heads, sizes.values + sizes.turned
    queries = heads * (sizes.own + sizes.turned)
    names = [(f"l{layer}.kv_a", wide), (f"l{layer}.q_a", sizes.queries or queries)]
    key, query = _merged(draft, x, names, bias=False)
    if sizes.queries:
        query = _linear(draft, _norm(draft, query, f"l{layer}.q_norm"), f"l{layer}.q_b", queries,
                        bias=False)  # fmt: skip
    query = query.split(2, heads, sizes.own + sizes.turned).turned(0, 2, 1, 3)
    apart = [query.part(3, sizes.own, sizes.turned)]
    apart.append(key.split(2, 1, wide).turned(0, 2, 1, 3).part(3, sizes.values, sizes.turned))
    turned = [draft.temp(*view.shape) for view in apart]
    angles = [replace(turn, shape=(new, sizes.turned)) for turn in turns]
    _fused(draft, "rotary", [*angles, *apart], *turned)
    cache = draft.buffer(f"l{layer}.latent", "state", step.rows, 1, step.capacity, wide)
    cache = cache.part(0, 0, batch)
    both = (cache.part(3, 0, sizes.values), cache.part(3, sizes.values, sizes.turned))
    line = key.split(2, 1, wide).turned(0, 2, 1, 3).part(3, 0, sizes.values)
    _fused(draft, "cache_write", [*both, places, line, turned[1]], *both, dim=2)
    weight = draft.buffer(f"l{layer}.kv_b", "weight", heads, sizes.own + sizes.out, sizes.values)
    if new > 1:
        out = _over_heads(draft, sizes, (query, key, turned), weight, heads)
    else:
        out = _over_cache(draft, sizes, (query, turned[0]), cache, weight)
    flat = (batch, new, heads * sizes.out)
    shaped = replace(out, shape=flat, strides=row_major(flat))
    return _linear(draft, shaped, f"l{layer}.o", decoder.hidden, bias=False)


def _over_cache(
    draft: Draft, sizes: Latent, queries: tuple[View, View], cache: View, weight: View
) -> View:
    """Queries of all heads over one row per token."""
    batch, heads = queries[0].shape[:2]
    own = queries[0].part(3, 0, sizes.own).turned(1, 0, 2, 3)
    own = replace(own, shape=(heads, batch, sizes.own), strides=(own.strides[0], own.strides[1], 1))
    projected = draft.temp(batch, heads, 1, sizes.values + sizes.turned)
    target = replace(
        projected,
        shape=(heads, batch, sizes.values),
        strides=(projected.strides[1], projected.strides[0], 1),
    )
    draft.call("bmm", [own, weight.part(1, 0, sizes.own)], target)
    _other(draft, "join", [queries[1]], projected.part(3, sizes.values, sizes.turned))
    seen = draft.temp(batch, heads, 1, sizes.values)
    draft.call(
        "scaled_dot_product_attention",
        [projected, cache, cache.part(3, 0, sizes.values)],
        seen,
        enable_gqa=True,
    )
    out = draft.temp(batch, heads, sizes.out)
    back = replace(weight.part(1, sizes.own, sizes.out))
    back = replace(
        back,
        shape=(back.shape[0], back.shape[2], back.shape[1]),
        strides=(back.strides[0], back.strides[2], back.strides[1]),
    )
    made = replace(seen, shape=(heads, batch, sizes.values),
                   strides=(seen.strides[1], seen.strides[0], 1))  # fmt: skip
    turned = replace(
        out, shape=(heads, batch, sizes.out), strides=(out.strides[1], out.strides[0], 1)
    )
    draft.call("bmm", [made, back], turned)
    return out


def _over_heads(
    draft: Draft,
    sizes: Latent,
    made: tuple[View, View, list[View]],
    weight: View,
    heads: int,
) -> View:
    """Keys and values of all heads, as other models have them."""
    query, key, turned = made
    batch, new = key.shape[:2]
    each = sizes.own + sizes.out
    flat = replace(weight, shape=(heads * each, sizes.values), strides=(sizes.values, 1))
    both = draft.call(
        "linear", [key.part(2, 0, sizes.values), flat], draft.temp(batch, new, heads * each)
    )
    both = both.split(2, heads, each).turned(0, 2, 1, 3)
    keys = draft.temp(batch, heads, new, sizes.own + sizes.turned)
    _other(draft, "join", [both.part(3, 0, sizes.own), turned[1]], keys)
    queries = draft.temp(batch, heads, new, sizes.own + sizes.turned)
    _other(draft, "join", [query, turned[0]], queries)
    out = draft.temp(batch, new, heads, sizes.out)
    draft.call(
        "scaled_dot_product_attention",
        [queries, keys, both.part(3, sizes.own, sizes.out)],
        out.turned(0, 2, 1, 3),
        is_causal=True,
    )
    return out
