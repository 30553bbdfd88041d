"""The models of `examples/models` as plain PyTorch on the host: sizes, and what they compute."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("layers", "llama", "mamba", "mmdit", "moe", "vision_language")
TRACES = {
    "llama_prefill": "llama.prefill",
    "llama_decode": "llama.decode",
    "llama_decode_library": "llama.decode",
    "mamba": "mamba.step",
    "mmdit": "mmdit.step",
    "moe": "moe.step",
    "vision_language": "vision_language.step",
}


@pytest.fixture
def zoo(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The models by name; what they put on a GPU stays on the host."""
    monkeypatch.syspath_prepend(EXAMPLES / "models")
    monkeypatch.setattr(torch.nn.Module, "cuda", lambda self: self)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda self: self)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    with torch.no_grad():
        yield {name: importlib.import_module(name) for name in NAMES}
    for name in NAMES:
        del sys.modules[name]


def made(zoo: Any, name: str, **sizes: int) -> tuple[Any, tuple[Any, ...]]:
    file, _, function = name.partition(".")
    model, inputs = getattr(zoo[file], function)(**sizes)
    return model, inputs


@pytest.mark.parametrize(
    ("name", "sizes", "shape"),
    [
        ("llama.prefill", {"layers": 1, "length": 1, "batch": 3}, (3, 1, 512)),
        ("llama.prefill", {"hidden": 100, "heads": 5, "kv_heads": 1, "length": 64}, (1, 1, 512)),
        ("llama.decode", {"context": 1, "length": 0, "batch": 2}, (2, 1, 512)),
        ("mamba.step", {"length": 1}, (1, 1, 256)),
        ("mamba.step", {"length": 17, "chunk": 5, "heads": 1, "state": 1}, (1, 17, 256)),
        ("mmdit.step", {"text": 1, "image": 3, "channels": 5, "batch": 2}, (2, 3, 5)),
        ("moe.step", {"chosen": 3, "experts": 3, "length": 1, "batch": 2}, (2, 1, 256)),
        ("moe.step", {"window": 100, "layers": 1, "hidden": 66, "heads": 3}, (1, 32, 256)),
        ("vision_language.step", {"patches": 4, "length": 1, "batch": 2}, (2, 1, 256)),
    ],
)
def test_a_model_of_any_size_gives_the_same_each_time(
    zoo: Any, name: str, sizes: dict[str, int], shape: tuple[int, ...]
) -> None:
    results = []
    for _ in range(2):
        model, inputs = made(zoo, name, **sizes)
        results.append(model(*inputs))
    assert results[0].shape == shape
    assert torch.isfinite(results[0].float()).all()
    assert torch.equal(*results)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("llama.prefill", {"heads": 3}),
        ("llama.prefill", {"hidden": 12, "heads": 4}),
        ("llama.prefill", {"kv_heads": 3}),
        ("llama.prefill", {"length": 65}),
        ("llama.decode", {"length": 64}),
        ("mamba.step", {"heads": 3}),
        ("mmdit.step", {"heads": 3}),
        ("moe.step", {"chosen": 9}),
        ("moe.step", {"heads": 0}),
        ("vision_language.step", {"patches": 62}),
        ("vision_language.step", {"vision": 66}),
    ],
)
def test_sizes_that_do_not_fit_are_refused_before_anything_runs(
    zoo: Any, name: str, sizes: dict[str, int]
) -> None:
    with pytest.raises(ValueError, match=r"cannot|do not fit|no place"):
        made(zoo, name, **sizes)


def test_decode_goes_on_where_prefill_has_ended(zoo: Any) -> None:
    whole, (tokens, places) = made(zoo, "llama.prefill", length=20, batch=2)
    whole.float()
    at_once = whole(tokens, places)
    steps, _ = made(zoo, "llama.decode", batch=2)
    steps.float()
    steps(tokens[:, :7], places[:7])
    for place in range(7, 20):
        last = steps(tokens[:, place : place + 1], places[place : place + 1])
    torch.testing.assert_close(last, at_once, rtol=1e-4, atol=1e-4)
    for one, other in zip(whole.buffers(), steps.buffers(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_the_scan_in_chunks_is_the_recurrence(zoo: Any) -> None:
    model, _ = made(zoo, "mamba.step", chunk=8)
    batch, length, heads, size, state = 2, 19, 4, 3, 5
    shapes = ((heads, size), (heads,), (state,), (state,))
    value, rate, b, c = (torch.randn(batch, length, *shape) for shape in shapes)
    rate = -rate.abs()
    held = torch.zeros(batch, heads, state, size)
    wanted = []
    for t in range(length):
        held = held * rate[:, t].exp()[..., None, None]
        held = held + b[:, t, None, :, None] * value[:, t, :, None]
        wanted.append((c[:, t, None, None] @ held)[:, :, 0])
    found = model.mixers[0]._scan(value, rate, b, c)
    torch.testing.assert_close(found, torch.stack(wanted, 1), rtol=1e-4, atol=1e-4)


def test_tokens_go_to_the_experts_that_top_k_names(zoo: Any) -> None:
    model, _ = made(zoo, "moe.step")
    experts = model.blocks[0].experts.float()
    x = torch.randn(2, 5, 64)
    flat = x.reshape(-1, 64)
    values, chosen = experts.router(flat).topk(2, -1)
    wanted = torch.zeros_like(flat)
    for token, (row, weights) in enumerate(zip(chosen, values.softmax(-1), strict=True)):
        for expert, weight in zip(row, weights, strict=True):
            gate, up = (flat[token] @ experts.up[expert]).chunk(2)
            inner = torch.nn.functional.silu(gate) * up
            wanted[token] += weight * (inner @ experts.down[expert])
    torch.testing.assert_close(experts(x).reshape(-1, 64), wanted)


def test_windows_and_shared_heads_are_plain_attention(zoo: Any) -> None:
    layers = zoo["layers"]
    q, k, v = torch.randn(1, 6, 10, 4), torch.randn(1, 2, 10, 4), torch.randn(1, 2, 10, 4)
    for window in (None, 1, 3, 100):
        seen = torch.tensor([[i - (window or 99) < j <= i for j in range(10)] for i in range(10)])
        wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, seen, enable_gqa=True)
        torch.testing.assert_close(layers.attend(q, k, v, layers.causal(10, window)), wanted)
    blocks = made(zoo, "moe.step", layers=3)[0].blocks
    assert [bool(block.seen.equal(layers.causal(32, 8))) for block in blocks] == [True, False, True]


@pytest.mark.parametrize("name", TRACES)
def test_a_model_with_recorded_contents_gives_the_recorded_output(zoo: Any, name: str) -> None:
    """The captures of `examples/traces` are of these models."""
    model, inputs = made(zoo, TRACES[name])
    owned = dict(model.named_parameters()) | dict(model.named_buffers())
    given = dict(enumerate(inputs))
    with np.load(EXAMPLES / "traces" / f"{name}.npz") as contents:
        for key in contents.files:
            content = torch.from_numpy(contents[key].reshape(-1).view(np.uint8).copy())
            tensor = owned[key] if key in owned else given.pop(int(key.removeprefix("in")))
            flat = tensor.view(torch.uint8).reshape(-1)
            if key not in owned:
                assert torch.equal(flat, content), key
            flat.copy_(content)
    assert not given
    out = model(*inputs).float()
    with np.load(EXAMPLES / "traces" / f"{name}.ref.npz") as reference:
        content = torch.from_numpy(reference["out"].reshape(-1).view(np.uint8).copy())
    recorded = content.view(torch.bfloat16).reshape(out.shape).float()
    assert float((recorded - out).abs().max()) <= 0.02 * float(recorded.abs().max())
