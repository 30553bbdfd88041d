"""Small models of the transformers library, by family: their config files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

_SIZES: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
_HEADS = {"head_dim": 16}
_STATE = {"vocab_size": 512, "hidden_size": 64, "state_size": 8, "num_hidden_layers": 2}
_EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}


@dataclass(frozen=True)
class SmallModel:
    """A config class, its values, and how many of its layers attend by one operator."""

    kind: str
    family: str
    values: dict[str, Any] = field(default_factory=dict)
    attention: int = 2


FAMILIES = {
    "llama": SmallModel("LlamaConfig", "dense", _SIZES),
    "qwen2": SmallModel("Qwen2Config", "dense", _SIZES),
    "gemma3": SmallModel("Gemma3TextConfig", "dense", _SIZES | _HEADS | {"sliding_window": 8}),
    "phi3": SmallModel("Phi3Config", "dense", _SIZES | {"pad_token_id": 0}),
    "gpt2": SmallModel(
        "GPT2Config", "older", {"vocab_size": 512, "n_embd": 64, "n_layer": 2, "n_head": 4}
    ),
    "mixtral": SmallModel(
        "MixtralConfig", "experts", _SIZES | {"num_local_experts": 4, "num_experts_per_tok": 2}
    ),
    "olmoe": SmallModel(
        "OlmoeConfig", "experts", _SIZES | {"num_experts": 8, "num_experts_per_tok": 2}
    ),
    "qwen3_moe": SmallModel("Qwen3MoeConfig", "experts", _SIZES | _HEADS | _EXPERTS),
    "gpt_oss": SmallModel(
        "GptOssConfig",
        "experts",
        _SIZES | _HEADS | {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8},
    ),
    "deepseek_v3": SmallModel(
        "DeepseekV3Config",
        "latent attention",
        {
            "vocab_size": 512,
            "hidden_size": 64,
            "intermediate_size": 128,
            "moe_intermediate_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "n_group": 2,
            "topk_group": 1,
            "q_lora_rank": 32,
            "kv_lora_rank": 16,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 16,
            "v_head_dim": 16,
            "first_k_dense_replace": 1,
        },
    ),
    "mamba": SmallModel("MambaConfig", "state space", _STATE, attention=0),
    "mamba2": SmallModel(
        "Mamba2Config",
        "state space",
        _STATE | {"num_heads": 8, "head_dim": 16, "n_groups": 2, "chunk_size": 8},
        attention=0,
    ),
    "jamba": SmallModel(
        "JambaConfig",
        "hybrid",
        _SIZES
        | {
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "mamba_d_state": 8,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "use_mamba_kernels": False,
        },
        attention=1,
    ),
    "qwen2_5_vl": SmallModel(
        "Qwen2_5_VLConfig",
        "vision-language",
        {
            "text_config": _SIZES
            | {"rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3]}},
            "vision_config": {
                "depth": 2,
                "hidden_size": 32,
                "num_heads": 2,
                "intermediate_size": 64,
                "out_hidden_size": 64,
                "fullatt_block_indexes": [1],
            },
        },
    ),
}


def small_config(name: str) -> dict[str, Any]:
    """The values of a config file, as the library writes them."""
    import transformers

    model = FAMILIES[name]
    values: dict[str, Any] = getattr(transformers, model.kind)(**model.values).to_dict()
    values.pop("dtype", None)
    return values
