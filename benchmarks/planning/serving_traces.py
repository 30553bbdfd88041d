"""Traces of models at real sizes and at the granularity of serving engines, written from shapes.

In: nothing but the sizes in `real_traces`. Out: the folder `examples/large`: operators with shapes
and roles, no contents, no kernels; `python -m benchmarks.planning.serving_traces` writes it again,
and a test compares. One trace:

    python -m benchmarks.planning.serving_traces llama-8b --phase decode --batch 64 -o decode.ptx

Steps are what an engine launches: a norm with its residual, one product for queries, keys and
values, rotary embeddings of both, a write to the caches, attention, experts as one step. A decode
step adds a token to each of `batch` sequences whose caches are full; a prefill step reads `batch`
prompts. Caches hold `capacity` tokens of `rows` sequences. Sliding windows: a decode step reads
the last tokens alone; a prefill step is priced as if there were none. Attention sinks are left out.
Experts of GPT-OSS are in 4 bits, as published: bytes with two weights each, and a scale for 32.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.common import arguments
from benchmarks.planning.real_traces import DECODERS, PHASES, Decoder, ImageModel, image_trace
from benchmarks.planning.trace_draft import Draft, View, row_major

FOLDER = Path(__file__).parents[2] / "examples" / "large"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingStep:
    """One trace: `tokens` of each of `batch` sequences; caches for `rows` of `capacity` tokens."""

    model: str
    phase: str
    batch: int
    tokens: int
    rows: int
    capacity: int

    @property
    def name(self) -> str:
        """The file, without its ending."""
        size = f"b{self.batch}" if self.phase == "decode" else f"{self.tokens}"
        return f"{self.model}-{self.phase}-{size}"


def _steps(
    model: str, batches: tuple[int, ...], prompt: int, capacity: int, rows: int
) -> list[ServingStep]:
    """Decode steps, and a prefill step that shares its caches with the one of `rows` sequences."""
    made = [
        ServingStep(model=model, phase="decode", batch=b, tokens=1, rows=b, capacity=capacity)
        for b in batches
    ]
    chunk = ServingStep(
        model=model, phase="prefill", batch=1, tokens=prompt, rows=rows, capacity=capacity
    )
    return [*made, chunk]


# As wide and deep as SD3.5 medium, for an image of 1024 by 1024.
IMAGES = ImageModel(layers=24, hidden=1536, heads=24, text=333, image=4096)
EXAMPLES = (
    *_steps("llama-8b", (1, 64, 256), 1024, 2048, 64),
    *_steps("llama-70b", (8, 64), 1024, 2048, 64),
    *_steps("gpt-oss-20b", (1, 128), 1024, 2048, 128),
)


def serving_trace(step: ServingStep, layers: int | None = None, dtype: str = "bf16") -> str:
    """The text of a step; `dtype` is that of weights, caches and everything between."""
    model = DECODERS[step.model]
    draft = Draft(dtype)
    batch, new = step.batch, step.tokens
    tokens = draft.buffer("tokens", "input", batch, new, dtype="s64")
    places = draft.buffer("positions", "input", batch, new, dtype="s64")
    turns = [draft.buffer(name, "weight", step.capacity, model.head) for name in ("cos", "sin")]
    table = draft.buffer("embed", "weight", model.vocabulary, model.hidden)
    x = draft.call("embedding", [table, tokens], draft.temp(batch, new, model.hidden))
    normed = _norm(draft, x, "l0.norm1")
    for layer in range(model.layers if layers is None else layers):
        made = _attention(draft, model, step, normed, (places, *turns), layer)
        normed, x = _added_norm(draft, made, x, f"l{layer}.norm2")
        feed = _experts if model.experts else _feed_forward
        made = feed(draft, model, normed, layer)
        normed, x = _added_norm(draft, made, x, f"l{layer + 1}.norm1")
    last = normed.part(1, new - 1, 1)
    head = draft.buffer("head", "weight", model.vocabulary, model.hidden)
    draft.call("linear", [last, head], draft.buffer("logits", "output", batch, 1, model.vocabulary))
    return draft.text()


def _fused(draft: Draft, name: str, reads: list[View], *writes: View, **attrs: object) -> View:
    made = draft.call(name, reads, *writes, **attrs)
    draft.calls[-1] = draft.calls[-1].replace("op aten::", "op tessera::", 1)
    return made


def _norm(draft: Draft, x: View, name: str) -> View:
    weight = draft.buffer(name, "weight", x.shape[-1])
    return _fused(draft, "rms_norm", [x, weight], draft.temp(*x.shape))


def _added_norm(draft: Draft, x: View, residual: View, name: str) -> tuple[View, View]:
    weight = draft.buffer(name, "weight", x.shape[-1])
    out, total = draft.temp(*x.shape), draft.temp(*x.shape)
    _fused(draft, "add_rms_norm", [x, residual, weight], out, total)
    return out, total


def _merged(draft: Draft, x: View, names: list[tuple[str, int]], bias: bool) -> list[View]:
    weights = [draft.buffer(name, "weight", out, x.shape[-1]) for name, out in names]
    biases = [draft.buffer(f"{name}.b", "weight", out) for name, out in names] if bias else []
    outs = [draft.temp(*x.shape[:-1], out) for _, out in names]
    _fused(draft, "merged_linear", [x, *weights, *biases], *outs, biased=bias)
    return outs


def _attention(
    draft: Draft,
    model: Decoder,
    step: ServingStep,
    x: View,
    given: tuple[View, View, View],
    layer: int,
) -> View:
    places, *turns = given
    heads, groups, batch, new = model.heads, model.kv_heads, step.batch, step.tokens
    sizes = [(f"l{layer}.{kind}", count * model.head) for kind, count in _parts(heads, groups)]
    made = _merged(draft, x, sizes, model.biases)
    query, key, value = (
        view.split(2, count, model.head).turned(0, 2, 1, 3)
        for view, count in zip(made, (heads, groups, groups), strict=True)
    )
    turned = [draft.temp(*view.shape) for view in (query, key)]
    # The rows of the tables that positions pick out: as many as there are tokens.
    angles = [replace(turn, shape=(new, model.head)) for turn in turns]
    _fused(draft, "rotary", [*angles, query, key], *turned)
    query, key = turned
    shape = (step.rows, groups, step.capacity, model.head)
    caches = [
        draft.buffer(f"l{layer}.{kind}", "state", *shape).part(0, 0, batch)
        for kind in ("keys", "values")
    ]
    _fused(draft, "cache_write", [*caches, places, key, value], *caches, dim=2)
    first = 0
    if model.window and layer % 2 == 0 and step.capacity > model.window:
        first = step.capacity - model.window
    attributes: dict[str, object] = {"enable_gqa": groups < heads}
    if new > 1:
        reads = [query, key, value]
        attributes["is_causal"] = True
    else:
        reads = [query, *(cache.part(2, first, step.capacity - first) for cache in caches)]
    out = draft.temp(batch, new, heads, model.head)
    draft.call("scaled_dot_product_attention", reads, out.turned(0, 2, 1, 3), **attributes)
    wide = (batch, new, heads * model.head)
    flat = replace(out, shape=wide, strides=row_major(wide))
    return _linear(draft, flat, f"l{layer}.o", model.hidden, model.biases)


def _parts(heads: int, groups: int) -> tuple[tuple[str, int], ...]:
    return ("q", heads), ("k", groups), ("v", groups)


def _linear(draft: Draft, x: View, name: str, out: int, bias: bool) -> View:
    reads = [x, draft.buffer(name, "weight", out, x.shape[-1])]
    reads += [draft.buffer(f"{name}.b", "weight", out)] if bias else []
    return draft.call("linear", reads, draft.temp(*x.shape[:-1], out))


def _feed_forward(draft: Draft, model: Decoder, x: View, layer: int) -> View:
    names = [(f"l{layer}.{kind}", model.inner) for kind in ("gate", "up")]
    gate, up = _merged(draft, x, names, bias=False)
    product = _fused(draft, "gated", [gate, up], draft.temp(*gate.shape), activation="silu")
    return _linear(draft, product, f"l{layer}.down", model.hidden, bias=False)


def _experts(draft: Draft, model: Decoder, x: View, layer: int) -> View:
    count = x.shape[0] * x.shape[1]
    scores = _linear(draft, x, f"l{layer}.router", model.experts, bias=True)
    weights = [
        draft.buffer(f"l{layer}.{name}", "weight", model.experts, *shape, dtype=dtype)
        for name, shape, dtype in (
            ("gate_up", (2 * model.inner, model.hidden // 2), "u8"),
            ("gate_up.s", (2 * model.inner, model.hidden // 32), "u8"),
            ("gate_up.b", (2 * model.inner,), "bf16"),
            ("down", (model.hidden, model.inner // 2), "u8"),
            ("down.s", (model.hidden, model.inner // 32), "u8"),
            ("down.b", (model.hidden,), "bf16"),
        )
    ]
    return _fused(
        draft,
        "experts",
        [x, scores, *weights],
        draft.temp(*x.shape),
        tokens=count,
        hidden=model.hidden,
        inner=model.inner,
        chosen=model.chosen,
        experts=model.experts,
    )


def texts() -> dict[str, str]:
    """All files of the folder, by name."""
    made = {f"{step.name}.ptx": serving_trace(step) for step in EXAMPLES}
    return {**made, "mmdit.ptx": image_trace(IMAGES, batch=1)}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("model", nargs="?", choices=tuple(DECODERS), help="one trace alone")
    parser.add_argument("--phase", choices=PHASES, default="decode")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=1024, help="of each prompt")
    parser.add_argument("--rows", type=int, help="sequences of the caches")
    parser.add_argument("--capacity", type=int, default=2048, help="tokens of each")
    given = parser.parse_args()
    if given.model is None:
        FOLDER.mkdir(exist_ok=True)
        for name, text in texts().items():
            (FOLDER / name).write_text(text)
        return
    step = ServingStep(
        model=given.model,
        phase=given.phase,
        batch=given.batch,
        tokens=1 if given.phase == "decode" else given.tokens,
        rows=given.rows or given.batch,
        capacity=given.capacity,
    )
    Path(given.output or f"{step.name}.ptx").write_text(serving_trace(step))


if __name__ == "__main__":
    main()
