"""Which architectures of the transformers library can be served from a folder: tokens or refusals.

    python -m benchmarks.serving.architectures [-o RESULT.json] [KIND ...]

Small random models in fp32 answer prompts of mixed lengths, greedy, by the step that `tessc serve`
captures (run with PyTorch): in mixed steps with prompts in chunks, or, for models that keep states,
one token of each row, with sequences that join and leave. Their tokens are compared with those of
`generate`. `LATER` was listed after the code was finished: the first in a random order of those
decoders of the library that had not been tried. A refusal is the message of TSR6019.
"""

from __future__ import annotations

import random
import warnings
from typing import Any

from benchmarks.common import arguments, machine, write
from tessera.diagnostics import TesseraError
from tessera.frontend.capture.mixed.seam import NAME, register
from tessera.frontend.capture.mixed.step import MixedSize, mixed_step
from tests.helpers.small_models import generated, in_mixed_steps, in_single_steps, model_of

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
LOCAL = {"num_local_experts": 4, "num_experts_per_tok": 2}
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
OLD = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
NO_HEAD = {"head_dim": None}
ROTARY = {"rope_type": "default", "rope_theta": 10000.0}
KINDS: dict[str, dict[str, dict[str, Any]]] = {
    "dense": {
        "llama": {},
        "qwen2": NO_HEAD,
        "qwen3": {},
        "phi3": NO_HEAD,
        "olmo2": NO_HEAD,
        "glm4": {},
        "granite": {},
        "smollm3": {},
        "stablelm": NO_HEAD,
        "nemotron": {},
        "gpt2": OLD,
        "gpt_neox": NO_HEAD,
        "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    },
    "experts": {
        "mixtral": {"num_local_experts": 4},
        "qwen3_moe": {**EXPERTS, "decoder_sparse_step": 1},
        "olmoe": EXPERTS,
        "granitemoe": LOCAL,
        "phimoe": {"num_local_experts": 4},
        "glm4_moe": {**LATENT, "head_dim": 8, "num_key_value_heads": 2},
    },
    "windows and chunks": {
        "mistral": {"sliding_window": 6},
        "starcoder2": {"sliding_window": 6},
        "gemma3_text": {"sliding_window": 6, "query_pre_attn_scalar": 8},
        "cohere2": {"sliding_window": 6},
        "olmo3": {"sliding_window": 6, **NO_HEAD},
        "exaone4": {"sliding_window": 6, "sliding_window_pattern": 2},
        "llama4_text": {
            "num_local_experts": 2,
            "attention_chunk_size": 8,
            "intermediate_size_mlp": 48,
        },
    },
    "soft caps": {
        "gemma2": {"sliding_window": 6, "query_pre_attn_scalar": 8, "attn_logit_softcapping": 2.0}
    },
    "sinks": {
        "gpt_oss": {
            **LOCAL,
            "sliding_window": 6,
            "rope_parameters": ROTARY,
        }
    },
    "latent attention": {
        "deepseek_v2": {**LATENT, "topk_method": "greedy"},
        "deepseek_v3": LATENT,
    },
    "states": {
        "mamba": {"state_size": 8, **NO_HEAD},
        "mamba2": {"num_heads": 8, "state_size": 8, "n_groups": 2, "chunk_size": 4},
        "falcon_mamba": {"state_size": 8},
    },
    "states beside attention": {
        "jamba": {
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "num_experts": 2,
            "mamba_d_state": 8,
        },
        "bamba": {**SPACE, "attn_layer_indices": [1]},
        "granitemoehybrid": {
            **SPACE,
            **LOCAL,
            "layer_types": TWO,
            "shared_intermediate_size": 32,
        },
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
        "zamba2": {
            "num_hidden_layers": 3,
            "layers_block_type": ["linear_attention", "hybrid", "hybrid"],
            "mamba_d_state": 8,
            "n_mamba_heads": 4,
            "mamba_ngroups": 1,
            "num_key_value_heads": 4,
            "chunk_size": 4,
        },
        "qwen3_next": {**DELTA, **EXPERTS, "shared_expert_intermediate_size": 16},
        "qwen3_5_text": DELTA,
        "olmo_hybrid": {**DELTA, "linear_num_key_heads": 4},
        "kimi_linear": {
            **LATENT,
            "n_group": 1,
            "v_head_dim": 8,
            "num_local_experts": 4,
            "n_shared_experts": 1,
            "layer_types": TWO[::-1],
            "mlp_layer_types": ["dense", "sparse"],
            "linear_head_dim": 8,
            "linear_num_heads": 4,
        },
        "lfm2": {"layer_types": ["conv", "full_attention"]},
        "lfm3": {"layer_types": ["conv", "full_attention"]},
        "zaya": {},
    },
    "other": {
        "minimax": {"layer_types": TWO, "num_local_experts": 2},
        "recurrent_gemma": {"num_hidden_layers": 3, "lru_width": 32},
        "rwkv": {},
        "bloom": {},
        "mpt": {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 64},
        "codegen": {**OLD, "rotary_dim": 4},
    },
}
LATER: dict[str, dict[str, Any]] = {
    "gpt_neox_japanese": {},
    "minicpm3": {**LATENT, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8},
    "aria_text": {},
    "cohere_compass_text": {
        "sliding_window": 6,
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": dict.fromkeys(("sliding_attention", "full_attention"), ROTARY),
    },
    "phi": {},
    "youtu": LATENT,
    "internlm3": {},
}
LENGTHS = (3, 13, 1, 7, 2)
MOST = 9


def tried(kind: str, values: dict[str, Any]) -> dict[str, Any]:
    """One architecture: the form of its step and whether tokens are equal, or why it is refused."""
    model = model_of(kind, **values)
    draw = random.Random(3)
    prompts = [[draw.randrange(3, 64) for _ in range(length)] for length in LENGTHS]
    wanted = generated(model, prompts, MOST)
    model.set_attn_implementation(NAME)
    size = MixedSize(tokens=8, rows=3, context=32, block=4, blocks=25)
    try:
        step, _ = mixed_step(model, size)
    except TesseraError as problem:
        return {"kind": kind, "served": False, "why": str(problem.diagnostics[0].headline)}
    form = "mixed"
    if step.keeps_states:
        form = "one token of each row"
        one = MixedSize(tokens=3, rows=3, context=32, block=32, blocks=4)
        answers = in_single_steps(mixed_step(model, one)[0], prompts, MOST)
    else:
        prompts, wanted = prompts[:3], wanted[:3]
        answers = in_mixed_steps(step, prompts, MOST, draw)
    return {
        "kind": kind,
        "served": True,
        "step": form,
        "equal": answers == wanted,
        "tokens": sum(map(len, wanted)),
        "distinct": len({token for answer in wanted for token in answer}),
    }


def main() -> None:
    parser = arguments(__doc__, "serving_architectures.json")
    parser.add_argument("kinds", nargs="*")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    register()
    from importlib.metadata import version

    groups = {**KINDS, "chosen later": LATER}
    rows = []
    for group, kinds in groups.items():
        for kind, values in kinds.items():
            if not given.kinds or kind in given.kinds:
                rows.append({"group": group, **tried(kind, values)})
                print(rows[-1], flush=True)
    served = [row for row in rows if row["served"]]
    result = {
        "what": "small random models by the captured step, against `generate`, greedy, in fp32",
        **machine(),
        "transformers": version("transformers"),
        "tried": len(rows),
        "served": len(served),
        "equal": sum(row["equal"] for row in served),
        "rows": rows,
    }
    if not given.kinds:
        write(result, given.output)


if __name__ == "__main__":
    main()
