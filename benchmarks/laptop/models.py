"""Models of the transformers library as they come: small, few layers, random weights.

`MODELS` has a row for each: which class and configuration, what it is called with. Nothing of a
model is changed or downloaded; routers that begin with zeros (Ernie) get random weights, too: where
all experts are as good, which ones are taken is a matter of the kernel. `build` makes one on a
device.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

SMALL: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
HEADS: dict[str, Any] = {"head_dim": 64}
GPT: dict[str, Any] = {"vocab_size": 512, "n_positions": 512, "n_embd": 256, "n_layer": 2}
GPT |= {"n_head": 4, "bos_token_id": 1, "eos_token_id": 2}
VISION: dict[str, Any] = {
    "hidden_size": 192,
    "intermediate_size": 384,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "image_size": 64,
    "patch_size": 16,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unprepared:
    """A model: its configuration's class, what of it differs from the default, and its own class
    (or the automatic one that finds it). `inputs` names what it is called with; `kinds` say what
    it stands for."""

    config: str
    sizes: dict[str, Any]
    model: str = "AutoModelForCausalLM"
    inputs: str = "tokens"
    kinds: tuple[str, ...] = ()
    length: int = 64


def moe(config: str, **sizes: Any) -> Unprepared:
    more = {name: value for name, value in SMALL.items() if name not in sizes}
    kept = {name: value for name, value in (more | sizes).items() if value is not None}
    return Unprepared(config=config, sizes=kept, kinds=("moe",))


def dense(config: str, base: dict[str, Any] | None = None, **sizes: Any) -> Unprepared:
    whole = (SMALL if base is None else base) | sizes
    return Unprepared(
        config=config, sizes={name: value for name, value in whole.items() if value is not None}
    )


def encoder(config: str, **sizes: Any) -> Unprepared:
    whole = {name: value for name, value in (SMALL | sizes).items() if value is not None}
    return Unprepared(config=config, sizes=whole, model="AutoModel", kinds=("encoder",))


def vision(config: str, base: dict[str, Any] | None = None, **sizes: Any) -> Unprepared:
    whole = (VISION if base is None else base) | sizes
    kept = {name: value for name, value in whole.items() if value is not None}
    return Unprepared(
        config=config, sizes=kept, model="AutoModel", inputs="image", kinds=("vision",)
    )


ROUTED = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128}
SHARED = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128}
SHARED |= {"n_shared_experts": 1, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1}
LATENT = {"q_lora_rank": 96, "kv_lora_rank": 64, "qk_rope_head_dim": 32, "qk_nope_head_dim": 64}
LATENT |= {"v_head_dim": 64, "num_key_value_heads": 4}
NO_KV = {"num_key_value_heads": None}
ROUTERS = (".gate.weight", ".router.weight", ".router.layer.weight")
MAMBA = {"vocab_size": 512, "hidden_size": 128, "num_hidden_layers": 2, "pad_token_id": 0}

MODELS: dict[str, Unprepared] = {
    # mixtures of experts
    "mixtral": moe("MixtralConfig", num_local_experts=8, num_experts_per_tok=2),
    "gpt_oss": moe("GptOssConfig", num_local_experts=8, num_experts_per_tok=2, **HEADS),
    "qwen2_moe": moe("Qwen2MoeConfig", shared_expert_intermediate_size=256, **ROUTED),
    "qwen3_moe": moe("Qwen3MoeConfig", **ROUTED, **HEADS),
    "deepseek_v2": moe("DeepseekV2Config", **(SHARED | LATENT)),
    "deepseek_v3": moe("DeepseekV3Config", **(SHARED | LATENT)),
    "olmoe": moe("OlmoeConfig", num_experts=8, num_experts_per_tok=2),
    "phimoe": moe("PhimoeConfig", num_local_experts=8, num_experts_per_tok=2),
    "granitemoe": moe("GraniteMoeConfig", num_local_experts=8, num_experts_per_tok=2),
    "ernie4_5_moe": moe(
        "Ernie4_5_MoeConfig", moe_num_experts=8, moe_k=2, moe_intermediate_size=128
    ),
    "glm4_moe": moe("Glm4MoeConfig", **SHARED, **HEADS),
    "dots1": moe("Dots1Config", **SHARED, **HEADS),
    "flex_olmo": moe("FlexOlmoConfig", num_experts=8, num_experts_per_tok=2),
    "hunyuan_moe": moe("HunYuanMoEV1Config", num_experts=8, moe_topk=2, **HEADS),
    "minimax": moe("MiniMaxConfig", num_local_experts=8, num_experts_per_tok=2, **HEADS),
    "lfm2_moe": moe(
        "Lfm2MoeConfig", **ROUTED, num_dense_layers=1, layer_types=["conv", "full_attention"]
    ),
    "llama4": moe("Llama4TextConfig", num_local_experts=8, intermediate_size_mlp=512, **HEADS),
    # dense language models
    "llama": dense("LlamaConfig"),
    "qwen3": dense("Qwen3Config", **HEADS),
    "gemma": dense("GemmaConfig", **HEADS),
    "gemma2": dense("Gemma2Config", sliding_window=32, **HEADS),
    "gemma3": dense("Gemma3TextConfig", sliding_window=32, **HEADS),
    "phi": dense("PhiConfig"),
    "phi3": dense("Phi3Config"),
    "starcoder2": dense("Starcoder2Config"),
    "stablelm": dense("StableLmConfig"),
    "olmo2": dense("Olmo2Config"),
    "olmo3": dense("Olmo3Config", sliding_window=32),
    "granite": dense("GraniteConfig"),
    "cohere": dense("CohereConfig"),
    "cohere2": dense("Cohere2Config", sliding_window=32),
    "glm": dense("GlmConfig", **HEADS),
    "glm4": dense("Glm4Config", **HEADS),
    "nemotron": dense("NemotronConfig"),
    "smollm3": dense("SmolLM3Config"),
    "exaone4": dense("Exaone4Config", sliding_window=32),
    "ernie4_5": dense("Ernie4_5Config", **HEADS),
    "seed_oss": dense("SeedOssConfig", **HEADS),
    "apertus": dense("ApertusConfig"),
    "arcee": dense("ArceeConfig"),
    "helium": dense("HeliumConfig", **HEADS),
    "diffllama": dense("DiffLlamaConfig"),
    "persimmon": dense("PersimmonConfig", **NO_KV),
    "gpt2": dense("GPT2Config", GPT),
    "gpt_bigcode": dense("GPTBigCodeConfig", GPT),
    "gpt_neox": dense("GPTNeoXConfig", **NO_KV),
    "gptj": dense("GPTJConfig", GPT, rotary_dim=32),
    "codegen": dense("CodeGenConfig", GPT, rotary_dim=32, n_ctx=512),
    "bloom": dense("BloomConfig", vocab_size=512, hidden_size=256, n_layer=2, n_head=4),
    "mpt": dense("MptConfig", {"vocab_size": 512, "d_model": 256, "n_layers": 2, "n_heads": 4}),
    "falcon": dense("FalconConfig", new_decoder_architecture=True, num_kv_heads=2),
    "opt": dense("OPTConfig", ffn_dim=512, word_embed_proj_dim=256),
    "xglm": dense(
        "XGLMConfig",
        {"vocab_size": 512, "d_model": 256, "num_layers": 2, "attention_heads": 4, "ffn_dim": 512},
    ),
    "biogpt": dense("BioGptConfig", **NO_KV),
    # state spaces and convolutions
    "mamba": replace(dense("MambaConfig", MAMBA), length=16),
    "mamba2": dense("Mamba2Config", MAMBA, num_heads=8, head_dim=32, n_groups=1, chunk_size=16),
    "falcon_mamba": replace(dense("FalconMambaConfig", MAMBA), length=16),
    "lfm2": dense("Lfm2Config", layer_types=["conv", "full_attention"]),
    "recurrent_gemma": dense("RecurrentGemmaConfig", lru_width=256, **HEADS),
    # encoders
    "bert": encoder("BertConfig"),
    "roberta": encoder("RobertaConfig"),
    "distilbert": encoder("DistilBertConfig", dim=256, n_layers=2, n_heads=4, hidden_dim=512),
    "electra": encoder("ElectraConfig"),
    "albert": encoder("AlbertConfig", embedding_size=64),
    "modernbert": encoder("ModernBertConfig", local_attention=32),
    "mpnet": encoder("MPNetConfig"),
    "esm": encoder("EsmConfig", position_embedding_type="rotary"),
    # vision
    "vit": vision("ViTConfig"),
    "deit": vision("DeiTConfig"),
    "beit": vision("BeitConfig"),
    "dinov2": vision("Dinov2Config"),
    "dinov3": vision("DINOv3ViTConfig"),
    "ijepa": vision("IJepaConfig"),
    "siglip_vision": vision("SiglipVisionConfig"),
    "clip_vision": vision("CLIPVisionConfig", projection_dim=128),
    "vit_msn": vision("ViTMSNConfig"),
    "convnext": vision(
        "ConvNextConfig", {"hidden_sizes": [32, 64, 96, 128], "depths": [1, 1, 1, 1]}
    ),
    "resnet": vision(
        "ResNetConfig",
        {"embedding_size": 32, "hidden_sizes": [32, 64, 96, 128], "depths": [1, 1, 1, 1]},
    ),
    "swin": vision(
        "SwinConfig",
        {
            "image_size": 64,
            "embed_dim": 32,
            "depths": [1, 1],
            "num_heads": [2, 4],
            "window_size": 4,
        },
    ),
    # sound
    "wav2vec2": Unprepared(
        config="Wav2Vec2Config",
        sizes={**{k: SMALL[k] for k in ("hidden_size", "num_hidden_layers")}, "vocab_size": 64}
        | {"num_attention_heads": 4, "intermediate_size": 512},
        model="AutoModel",
        inputs="sound",
        kinds=("sound",),
    ),
    "whisper_encoder": Unprepared(
        config="WhisperConfig",
        sizes={"d_model": 256, "encoder_layers": 2, "encoder_attention_heads": 4}
        | {"encoder_ffn_dim": 512, "decoder_layers": 2, "decoder_attention_heads": 4}
        | {"decoder_ffn_dim": 512, "vocab_size": 512, "max_source_positions": 64}
        | {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1},
        model="AutoModel",
        inputs="spectrum",
        kinds=("sound",),
    ),
}


def build(name: str, device: str, dtype: Any = None) -> tuple[Any, dict[str, Any]]:
    """A model and what it is called with, by name; `llama@8` is `llama` with eight layers."""
    import torch
    import transformers

    kind_of_model, _, layers = name.partition("@")
    row = MODELS[kind_of_model]
    if layers:
        (key,) = {"num_hidden_layers", "n_layer"} & set(row.sizes)
        row = replace(row, sizes=row.sizes | {key: int(layers)})
    torch.manual_seed(0)
    config = getattr(transformers, row.config)(**row.sizes)
    kind = getattr(transformers, row.model)
    model = kind.from_config(config) if row.model.startswith("Auto") else kind(config)
    for part, weight in model.named_parameters():
        if "moe" in row.kinds and part.endswith(ROUTERS):
            torch.nn.init.normal_(weight, std=0.05)
    model = model.to(device=device, dtype=dtype or torch.bfloat16).eval()
    return model, _inputs(row, config, model, device)


def _inputs(row: Unprepared, config: Any, model: Any, device: str) -> dict[str, Any]:
    import torch

    dtype = next(model.parameters()).dtype
    generator = torch.Generator().manual_seed(1)

    def numbers(*shape: int) -> Any:
        return torch.randn(*shape, generator=generator).to(device=device, dtype=dtype)

    words = getattr(config, "vocab_size", 4)
    tokens = torch.randint(3, words, (1, row.length), generator=generator).to(device)
    match row.inputs:
        case "image":
            return {"pixel_values": numbers(1, 3, 64, 64)}
        case "sound":
            return {"input_values": numbers(1, 4000)}
        case "spectrum":
            return {
                "input_features": numbers(1, config.num_mel_bins, 128),
                "decoder_input_ids": tokens,
                "use_cache": False,
            }
    return {"input_ids": tokens} | ({} if "encoder" in row.kinds else {"use_cache": False})
