"""The seam: modeling code of the transformers library over a cache in blocks, with PyTorch.

Random small models of many kinds answer prompts in mixed steps, in chunks of random sizes, and give
the tokens of `generate`. No file of the package names any of them.
"""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

import pytest

from tessera.diagnostics import TesseraError
from tessera.settings import with_environment
from tests.helpers.small_models import SMALL, generated, in_mixed_steps, model_of

torch = pytest.importorskip("torch", reason="needs PyTorch")
transformers = pytest.importorskip("transformers", reason="needs transformers")

LATENT = {
    "head_dim": None,
    "num_key_value_heads": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "moe_intermediate_size": 16,
    "q_lora_rank": 8,
    "kv_lora_rank": 8,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 12,
    "first_k_dense_replace": 1,
}
SERVED: dict[str, dict[str, Any]] = {
    "llama": {},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "mistral": {"sliding_window": 6},
    "gemma2": {"sliding_window": 6, "query_pre_attn_scalar": 8, "attn_logit_softcapping": 2.0},
    "gpt_oss": {
        "num_local_experts": 4,
        "sliding_window": 6,
        "num_experts_per_tok": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    "mixtral": {"num_local_experts": 4},
    "deepseek_v3": LATENT,
    "llama4_text": {
        "num_local_experts": 2,
        "attention_chunk_size": 8,
        "intermediate_size_mlp": 48,
    },
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "recurrent_gemma": ({"num_hidden_layers": 3, "lru_width": 32}, "RecurrentGemma"),
    "minimax": (
        {"layer_types": ["linear_attention", "full_attention"], "num_local_experts": 2},
        "MiniMax",
    ),
    "rwkv": ({}, "Rwkv"),
    "bloom": ({}, "Bloom"),
    "t5": ({}, "encoder"),
}


@pytest.mark.parametrize("kind", SERVED)
def test_tokens_equal_those_of_generate(kind: str) -> None:
    from tessera.frontend.capture.mixed.seam import NAME, register
    from tessera.frontend.capture.mixed.step import MixedSize, mixed_step

    register()
    model = model_of(kind, **SERVED[kind])
    draw = random.Random(3)
    prompts = [[draw.randrange(3, 64) for _ in range(length)] for length in (3, 13, 1)]
    wanted = generated(model, prompts, 9)
    assert len({token for answer in wanted for token in answer}) > 3
    model.set_attn_implementation(NAME)
    step, _ = mixed_step(model, MixedSize(tokens=8, rows=3, context=32, block=4, blocks=25))
    assert in_mixed_steps(step, prompts, 9, draw) == wanted


@pytest.mark.parametrize("kind", REFUSED)
def test_what_keeps_other_states_is_refused_by_name(kind: str, tmp_path: Any) -> None:
    from tessera.frontend.capture.meta import hf
    from tessera.frontend.capture.meta.record import among_fakes
    from tessera.frontend.capture.mixed.step import MixedSize, make_mixed

    more, module = REFUSED[kind]
    config = transformers.AutoConfig.for_model(kind, **(SMALL | more))
    config.save_pretrained(tmp_path)
    size = MixedSize(tokens=8, rows=3, context=32, block=4, blocks=25)
    with among_fakes(), pytest.raises(TesseraError, match=rf"TSR6019.*{module}"):
        make_mixed(hf.read_config(tmp_path / "config.json"), size)


KERNEL = """
import random, torch
from tessera.frontend.capture.mixed.seam import StepTables, attention, launched

for seed in range(12):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    heads, group, size, wide = (draw.choice(c) for c in ([1, 3], [1, 2, 4], [8, 40], [8, 48]))
    tokens, block, places = draw.randint(1, 40), draw.choice([4, 16]), draw.choice([3, 9])
    context, window = places * block, draw.choice([5, 1000])
    query = torch.randn(tokens, heads * group, size)
    caches = [torch.randn(2 * places + 1, block, heads, n) for n in (size, wide)]
    table = torch.zeros(3, places, dtype=torch.long)
    table[:2] = (torch.randperm(2 * places) + 1).view(2, places)
    rows, at = torch.randint(0, 3, (tokens,)).sort()[0], torch.randint(0, context, (tokens,))
    keys = torch.arange(context)[None]
    mask = (keys <= at[:, None]) & (keys > at[:, None] - window)
    tables = StepTables(positions=at, rows=rows, blocks=table, at=at, offset=at, context=context)
    cap = draw.choice([None, 2.0])
    sinks = draw.choice([None, torch.randn(heads * group)])
    needed = None if window == 1000 else mask
    given = launched(query, caches, tables, needed, 0.3, cap, sinks)
    held = [cache[table[rows]].flatten(1, 2) for cache in caches]
    wanted = attention(query, *held, mask, 0.3, cap, sinks)
    assert torch.allclose(given, wanted, atol=1e-5), (seed, given, wanted)
"""


def test_the_kernel_computes_what_the_operators_do() -> None:
    pytest.importorskip("triton", reason="needs Triton")
    environment = with_environment({"TRITON_INTERPRET": "1"})
    subprocess.run([sys.executable, "-c", KERNEL], check=True, env=environment)


def test_a_token_may_be_one_that_the_step_before_gives() -> None:
    from tessera.frontend.capture.mixed.seam import NAME, register
    from tessera.frontend.capture.mixed.step import MixedSize, mixed_step

    register()
    model = model_of("llama", **SERVED["llama"])
    model.set_attn_implementation(NAME)
    size = MixedSize(tokens=4, rows=3, context=32, block=4, blocks=25, draws=True)
    step, inputs = mixed_step(model, size)
    _, positions, rows, blocks, last, *drawing, _ = inputs.plain
    rows, last, earlier = (
        torch.tensor([0, 1, 1, 2]),
        torch.tensor([0, 2, 3]),
        torch.tensor([9, 4, 7]),
    )
    blocks = torch.arange(4)[:, None] + 0 * blocks + 1
    positions = torch.tensor([0, 0, 1, 0])
    plain, given = torch.tensor([7, 33, 9, 21]), torch.tensor([-3, 33, -1, 21])
    tokens = [step(own, positions, rows, blocks, last, *drawing, earlier) for own in (plain, given)]
    assert torch.equal(*tokens)
    assert len(set(tokens[0].tolist())) > 1
