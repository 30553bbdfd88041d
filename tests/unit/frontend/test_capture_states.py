"""Models that keep states of sequences beside keys and values, or in their place, with PyTorch.

Random small models answer prompts of mixed lengths that join and leave, one token of each row in a
step, and give the tokens of `generate`. No file of the package names any of them.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.helpers.small_models import generated, in_single_steps, model_of

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("transformers", reason="needs transformers")

TWO = ["linear_attention", "full_attention"]
SPACE = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_chunk_size": 4}
DELTA = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "layer_types": TWO,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
SERVED: dict[str, dict[str, Any]] = {
    "mamba": {"state_size": 8, "head_dim": None},
    "mamba2": {"num_heads": 8, "head_dim": 8, "state_size": 8, "n_groups": 2, "chunk_size": 4},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 2, "mamba_d_state": 8},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "bamba": {**SPACE, "attn_layer_indices": [1]},
    "falcon_h1": {**SPACE, "mamba_n_heads": 4, "mamba_d_ssm": 32},
    "nemotron_h": {
        "hybrid_override_pattern": "M*-",
        "num_hidden_layers": 3,
        "mamba_num_heads": 8,
        "mamba_head_dim": 8,
        "ssm_state_size": 8,
        "n_groups": 2,
        "chunk_size": 4,
    },
    "qwen3_next": {**DELTA, **EXPERTS, "shared_expert_intermediate_size": 16},
}


@pytest.mark.parametrize("kind", SERVED)
def test_tokens_equal_those_of_generate(kind: str) -> None:
    from tessera.frontend.capture.mixed.seam import NAME, register
    from tessera.frontend.capture.mixed.step import MixedSize, SingleStep, mixed_step

    register()
    model = model_of(kind, **SERVED[kind])
    draw = random.Random(3)
    prompts = [[draw.randrange(3, 64) for _ in range(length)] for length in (3, 13, 1, 7, 2)]
    wanted = generated(model, prompts, 9)
    assert len({token for answer in wanted for token in answer}) > 6
    model.set_attn_implementation(NAME)
    step, inputs = mixed_step(model, MixedSize(tokens=3, rows=3, context=32, block=32, blocks=4))
    assert isinstance(step, SingleStep)
    assert [own.shape for own in inputs.plain] == [(3,), (3,), (3, 1)]
    for buffer in step.state_cache.buffers():
        buffer.normal_()  # what sequences before have left there
    assert in_single_steps(step, prompts, 9) == wanted
