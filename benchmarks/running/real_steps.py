"""Steps of real models at real width, with random weights: what `real_models` measures.

The layers are those of the transformers library, untouched. A step of a decoder begins at a given
place of its static cache, so that it can be repeated: every repeat computes and writes the same.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from benchmarks.common import MODELS
from tessera.frontend.capture.model_file import find_model, load_model


@dataclass(frozen=True, slots=True)
class RealStep:
    """A module in bf16 with its inputs on the GPU; `widened` is the same in fp32."""

    module: nn.Module
    inputs: tuple[Tensor, ...]

    def widened(self) -> RealStep:
        """A copy that computes in fp32 with the same numbers."""
        module = copy.deepcopy(self.module).float()
        for part in module.modules():
            if isinstance(part, CachedStep):
                part.widen()
        inputs = tuple(x.float() if x.is_floating_point() else x for x in self.inputs)
        return RealStep(module, inputs)


class CachedStep(nn.Module):
    """Some tokens of every sequence through a decoder, from place `start` of its static cache."""

    def __init__(self, model: nn.Module, cache: Any) -> None:
        super().__init__()
        self.model = model
        self.cache = cache

    def forward(self, tokens: Tensor, start: Tensor) -> Tensor:
        for layer in self.cache.layers:
            layer.cumulative_length.copy_(start)
        made = self.model(input_ids=tokens, past_key_values=self.cache, use_cache=True)
        last: Tensor = made.last_hidden_state[:, -1].clone()
        return last

    def widen(self) -> None:
        for layer in self.cache.layers:
            layer.keys, layer.values = layer.keys.float(), layer.values.float()
            layer.dtype = torch.float32


def cached(
    model: nn.Module, config: Any, batch: int, context: int, tokens: int, where: str = "cuda"
) -> RealStep:
    """The last tokens of a context that is full otherwise."""
    cache = transformers.StaticCache(config=config, max_cache_len=context)
    heads = config.num_key_value_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    cache.early_initialization(batch, heads, size, torch.bfloat16, torch.device(where))
    for layer in cache.layers:
        layer.keys.normal_()
        layer.values.normal_()
    given = torch.randint(0, config.vocab_size, (batch, tokens), device=where)
    start = torch.tensor(context - tokens, device=where)
    return RealStep(CachedStep(model, cache).eval(), (given, start))


@contextmanager
def in_bf16(where: str = "cuda") -> Iterator[None]:
    """Inside, new tensors are in bf16 on a device, and random numbers are those of a seed."""
    torch.manual_seed(0)
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(where):
            yield
    finally:
        torch.set_default_dtype(usual)


def _made(kind: Callable[[Any], nn.Module], config: Any) -> nn.Module:
    with in_bf16():
        return kind(config).eval().requires_grad_(False)


_WIDTH = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}


def llama(*, layers: int, batch: int, context: int, tokens: int = 1) -> RealStep:
    """Llama-3-8B without its head."""
    config = transformers.LlamaConfig(
        **_WIDTH,
        vocab_size=128256,
        num_hidden_layers=layers,
        max_position_embeddings=max(8192, context),
        rope_theta=500000.0,
        attn_implementation="sdpa",
    )
    return cached(_made(transformers.LlamaModel, config), config, batch, context, tokens)


def experts(*, layers: int, batch: int, context: int, tokens: int = 1) -> RealStep:
    """Mixtral-8x7B without its head."""
    config = transformers.MixtralConfig(
        **_WIDTH,
        vocab_size=32000,
        num_hidden_layers=layers,
        num_local_experts=8,
        num_experts_per_tok=2,
        sliding_window=None,
        attn_implementation="sdpa",
    )
    return cached(_made(transformers.MixtralModel, config), config, batch, context, tokens)


class LastToken(nn.Module):
    """What a model says of the last token, as who goes on from there wants it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        last: Tensor = self.model(tokens)[:, -1].clone()
        return last


def with_sdpa(model: nn.Module) -> None:
    """Have a model that computes attention by hand (`attend`) call the operator instead."""

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    for part in model.modules():
        names = getattr(type(part).forward, "__globals__", {})
        if "attend" in names:
            names["attend"] = attend


def example(file: str, *, last: bool = False, sdpa: bool = False, **sizes: int) -> RealStep:
    """A model of `examples/models`."""
    torch.manual_seed(0)
    function, inputs = load_model(find_model(str(MODELS / file)), dict(sizes))
    assert isinstance(function, nn.Module)
    if sdpa:
        with_sdpa(function)
    given = tuple(x for x in inputs.plain if isinstance(x, Tensor))
    module = LastToken(function) if last else function
    return RealStep(module.eval().requires_grad_(False), given)


@dataclass(frozen=True, slots=True)
class RealCase:
    """A step: what makes it, and with which sizes."""

    make: Callable[..., RealStep]
    sizes: dict[str, Any]


def _decode(layers: int, batch: int, context: int) -> RealCase:
    return RealCase(llama, {"layers": layers, "batch": batch, "context": context})


def _prefill(tokens: int) -> RealCase:
    sizes = {"layers": 8, "batch": 1, "context": tokens, "tokens": tokens}
    return RealCase(llama, sizes)


_DIT = {"hidden": 1536, "layers": 4, "heads": 24, "text": 256, "image": 4096}
_SSM = {"vocabulary": 32000, "hidden": 2048, "layers": 4, "heads": 64, "state": 128}
CASES: dict[str, RealCase] = {
    "diffusion with sdpa, 4096 + 256 tokens": RealCase(
        example, {"file": "mmdit.py:step", "sdpa": True, **_DIT}
    ),
    "diffusion, 4096 + 256 tokens": RealCase(example, {"file": "mmdit.py:step", **_DIT}),
    "state space, 1024 tokens": RealCase(
        example, {"file": "mamba.py:step", "last": True, **_SSM, "length": 1024, "chunk": 128}
    ),
    "experts decode 2 layers, batch 8, context 1k": RealCase(
        experts, {"layers": 2, "batch": 8, "context": 1024}
    ),
    "decode 8 layers, batch 64, context 8k": _decode(8, 64, 8192),
    "decode 8 layers, batch 1, context 8k": _decode(8, 1, 8192),
    "prefill 8 layers, 512 tokens": _prefill(512),
    "decode 8 layers, batch 8, context 1k": _decode(8, 8, 1024),
    "decode 8 layers, batch 64, context 1k": _decode(8, 64, 1024),
    "prefill 8 layers, 4096 tokens": _prefill(4096),
    "decode 32 layers, batch 8, context 1k": _decode(32, 8, 1024),
    "decode 8 layers, batch 1, context 1k": _decode(8, 1, 1024),
    "decode 8 layers, batch 8, context 8k": _decode(8, 8, 8192),
}
