"""Parts of models for the paper's figures that `serving_traces` lacks, written from shapes.

In: batches and lengths. Out: texts of traces: the text model of Qwen2.5-VL-7B beside its vision
tower, and Mamba2-2.7B. Convolutions and scans of the latter are `tessera::other`, priced by the
bytes that they touch: no table has them, and a prefill scan takes longer than its bytes say.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.planning.real_traces import Decoder
from benchmarks.planning.serving_traces import _added_norm, _fused, _linear, _merged, _norm
from benchmarks.planning.trace_draft import Draft, View, row_major

QWEN_TEXT = Decoder(
    layers=28, hidden=3584, heads=28, kv_heads=4, head=128, inner=18944, vocabulary=152064
)
_VISION = {"layers": 32, "hidden": 1280, "heads": 16, "inner": 3420, "out": 3584}
_PATCHES, _WINDOW = 3136, 64  # an image of 784 by 784: 784 tokens of the prompt
_WHOLE = (7, 15, 23, 31)  # layers whose attention is over the whole image


def vision_trace(images: int) -> str:
    """The vision tower of Qwen2.5-VL: patches of images to tokens."""
    draft = Draft("bf16")
    hidden, heads = _VISION["hidden"], _VISION["heads"]
    head = hidden // heads
    patches = draft.buffer("patches", "input", images, _PATCHES, 1176)
    x = _linear(draft, patches, "v.patch", hidden, bias=False)
    normed = _norm(draft, x, "v0.norm1")
    for layer in range(_VISION["layers"]):
        names = [(f"v{layer}.{kind}", hidden) for kind in ("q", "k", "v")]
        made = _merged(draft, normed, names, bias=True)
        length = _PATCHES if layer in _WHOLE else _WINDOW
        count = images * _PATCHES // length
        shape = (count, length, heads, head)
        views = [replace(v, shape=shape, strides=row_major(shape)) for v in made]
        out = draft.temp(*shape)
        draft.call(
            "scaled_dot_product_attention",
            [v.turned(0, 2, 1, 3) for v in views],
            out.turned(0, 2, 1, 3),
        )
        wide = (images, _PATCHES, hidden)
        flat = replace(out, shape=wide, strides=row_major(wide))
        normed, x = _added_norm(
            draft, _linear(draft, flat, f"v{layer}.o", hidden, True), x, f"v{layer}.norm2"
        )
        gate, up = _merged(
            draft, normed, [(f"v{layer}.{k}", _VISION["inner"]) for k in ("gate", "up")], bias=True
        )
        product = _fused(draft, "gated", [gate, up], draft.temp(*gate.shape), activation="silu")
        down = _linear(draft, product, f"v{layer}.down", hidden, True)
        normed, x = _added_norm(draft, down, x, f"v{layer + 1}.norm1")
    grouped = (images, _PATCHES // 4, 4 * hidden)
    merged = replace(normed, shape=grouped, strides=row_major(grouped))
    made = _linear(draft, merged, "v.merge1", 4 * hidden, True)
    active = draft.call("gelu", [made], draft.temp(*made.shape), approximate="none")
    weight = draft.buffer("v.merge2", "weight", _VISION["out"], 4 * hidden)
    tokens = draft.buffer("image_tokens", "output", images, _PATCHES // 4, _VISION["out"])
    draft.call("linear", [active, weight], tokens)
    return draft.text()


_MAMBA = {"hidden": 2560, "inner": 5120, "heads": 80, "state": 128, "conv": 4}


def mamba_trace(batch: int, new: int, layers: int = 64, rows: int | None = None) -> str:
    """A step of Mamba2-2.7B: `tokens` of each of `batch` sequences, of `rows` in the cache."""
    draft = Draft("bf16")
    size = _MAMBA
    wide = size["inner"] + 2 * size["state"]
    tokens = draft.buffer("tokens", "input", batch, new, dtype="s64")
    table = draft.buffer("embed", "weight", 50288, size["hidden"])
    x = draft.call("embedding", [table, tokens], draft.temp(batch, new, size["hidden"]))
    normed = _norm(draft, x, "l0.norm")
    for layer in range(layers):
        names = [
            (f"l{layer}.z", size["inner"]),
            (f"l{layer}.xbc", wide),
            (f"l{layer}.dt", size["heads"]),
        ]
        gate, mixed, steps = _merged(draft, normed, names, bias=False)
        kept = draft.buffer(f"l{layer}.conv", "state", rows or batch, wide, size["conv"])
        kept = kept.part(0, 0, batch)
        turned = draft.temp(batch, new, wide)
        _other(draft, "causal_conv1d", [mixed, kept], turned, kept)
        state = draft.buffer(
            f"l{layer}.ssm",
            "state",
            rows or batch,
            size["heads"],
            size["inner"] // size["heads"],
            size["state"],
        ).part(0, 0, batch)
        scanned = draft.temp(batch, new, size["inner"])
        _other(draft, "selective_scan", [turned, steps, state], scanned, state)
        product = _fused(
            draft, "gated", [gate, scanned], draft.temp(*scanned.shape), activation="silu"
        )
        made = _linear(draft, _norm(draft, product, f"l{layer}.gn"), f"l{layer}.out",
                       size["hidden"], False)  # fmt: skip
        normed, x = _added_norm(draft, made, x, f"l{layer + 1}.norm")
    last = normed.part(1, new - 1, 1)
    head = draft.buffer("head", "weight", 50288, size["hidden"])
    draft.call("linear", [last, head], draft.buffer("logits", "output", batch, 1, 50288))
    return draft.text()


def _other(draft: Draft, name: str, reads: list[View], *writes: View) -> View:
    made = draft.call("other", reads, *writes, name=name)
    draft.calls[-1] = draft.calls[-1].replace("op aten::", "op tessera::", 1)
    return made
