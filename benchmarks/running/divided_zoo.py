"""Models of the transformers library that nothing was built with: small, few layers.

`NEW` has a row for each, as `benchmarks.laptop.models` has for those that were used before:
language models, mixtures of experts, recurrent models, encoders, images, sound.
"""

from __future__ import annotations

from benchmarks.laptop.models import HEADS, ROUTED, Unprepared, dense, encoder, moe, vision

_NO_KV = {"num_key_value_heads": None}
_STAGES = {"depths": [1, 1, 1, 1], "hidden_sizes": [32, 64, 96, 128]}
_SOUND = {
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 256,
    "conv_dim": (64, 64, 64),
    "conv_stride": (5, 4, 4),
    "conv_kernel": (10, 8, 8),
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}


def _sound(config: str, **more: object) -> Unprepared:
    sizes = _SOUND | more
    return Unprepared(config=config, sizes=sizes, model="AutoModel", inputs="sound")


NEW: dict[str, Unprepared] = {
    "olmo": dense("OlmoConfig"),
    "ministral": dense("MinistralConfig", **HEADS),
    "bitnet": dense("BitNetConfig"),
    "nanochat": dense("NanoChatConfig"),
    "vaultgemma": dense("VaultGemmaConfig", **HEADS),
    "hunyuan_dense": dense("HunYuanDenseV1Config", **HEADS),
    "doge": dense("DogeConfig"),
    "cwm": dense("CwmConfig", **HEADS),
    "gpt_neo": dense(
        "GPTNeoConfig",
        {
            "vocab_size": 512,
            "hidden_size": 128,
            "num_layers": 2,
            "num_heads": 4,
            "max_position_embeddings": 512,
            "attention_types": [[["global", "local"], 1]],
        },
    ),
    "gpt_neox_japanese": dense("GPTNeoXJapaneseConfig", **_NO_KV, intermediate_size=None),
    "openai_gpt": dense(
        "OpenAIGPTConfig",
        {"vocab_size": 512, "n_positions": 512, "n_embd": 128, "n_layer": 2, "n_head": 4},
    ),
    "granitemoe_shared": moe(
        "GraniteMoeSharedConfig",
        num_local_experts=8,
        num_experts_per_tok=2,
        shared_intermediate_size=128,
    ),
    "jetmoe": moe("JetMoeConfig", num_local_experts=8, num_experts_per_tok=2, kv_channels=64),
    "minimax_m2": moe("MiniMaxM2Config", num_local_experts=8, num_experts_per_tok=2, **HEADS),
    "afmoe": moe("AfmoeConfig", **ROUTED, **HEADS, num_dense_layers=1),
    "rwkv": dense(
        "RwkvConfig",
        {"vocab_size": 512, "hidden_size": 128, "num_hidden_layers": 2, "context_length": 64},
    ),
    "bamba": dense("BambaConfig", mamba_n_heads=8, mamba_d_head=64, mamba_d_state=16),
    "falcon_h1": dense(
        "FalconH1Config", mamba_d_ssm=256, mamba_n_heads=4, mamba_d_head=64, mamba_d_state=16
    ),
    "xlm_roberta": encoder("XLMRobertaConfig", **_NO_KV),
    "roformer": encoder("RoFormerConfig", **_NO_KV, embedding_size=256),
    "squeezebert": encoder("SqueezeBertConfig", **_NO_KV, embedding_size=256),
    "convbert": encoder("ConvBertConfig", **_NO_KV, embedding_size=256),
    "ernie": encoder("ErnieConfig", **_NO_KV),
    "megatron_bert": encoder("MegatronBertConfig", **_NO_KV),
    "rembert": encoder("RemBertConfig", **_NO_KV),
    "nystromformer": encoder("NystromformerConfig", **_NO_KV, segment_means_seq_len=64),
    "t5_encoder": Unprepared(
        config="T5Config",
        sizes={
            "vocab_size": 512,
            "d_model": 128,
            "d_kv": 32,
            "d_ff": 256,
            "num_layers": 2,
            "num_heads": 4,
        },
        model="T5EncoderModel",
        kinds=("encoder",),
    ),
    "segformer": vision(
        "SegformerConfig",
        {
            "depths": [1, 1, 1, 1],
            "hidden_sizes": [32, 64, 96, 128],
            "num_attention_heads": [1, 2, 4, 4],
            "decoder_hidden_size": 64,
        },
    ),
    "poolformer": vision(
        "PoolFormerConfig", {"depths": [1, 1, 1, 1], "hidden_sizes": [32, 64, 96, 128]}
    ),
    "regnet": vision("RegNetConfig", {"embedding_size": 32, **_STAGES, "groups_width": 16}),
    "convnextv2": vision("ConvNextV2Config", {"num_stages": 4, **_STAGES}),
    "mobilenet_v2": vision("MobileNetV2Config", {"image_size": 64, "depth_multiplier": 0.35}),
    "vit_mae": vision("ViTMAEConfig", mask_ratio=0.0),
    "pvt": vision(
        "PvtConfig",
        {
            "image_size": 64,
            "depths": [1, 1, 1, 1],
            "hidden_sizes": [32, 64, 96, 128],
            "num_attention_heads": [1, 2, 3, 4],
        },
    ),
    "hiera": vision(
        "HieraConfig",
        {
            "image_size": [64, 64],
            "embed_dim": 32,
            "depths": [1, 1, 1, 1],
            "num_heads": [1, 2, 4, 8],
            "patch_stride": [4, 4],
            "masked_unit_size": [8, 8],
        },
    ),
    "yolos": vision("YolosConfig", image_size=[64, 64], num_detection_tokens=10),
    "aimv2_vision": vision("Aimv2VisionConfig"),
    "hubert": _sound("HubertConfig"),
    "wavlm": _sound("WavLMConfig"),
    "unispeech": _sound("UniSpeechConfig"),
}

COMPILED_ALONE = (
    "jetmoe",
    "vit_mae",
    "rwkv",
    "convbert",
    "poolformer",
    "mobilenet_v2",
    "pvt",
    "yolos",
)
"""Those that are not run as library calls: they read values on the host, draw random numbers, have
thousands of operators, or operators without code on the CPU."""
