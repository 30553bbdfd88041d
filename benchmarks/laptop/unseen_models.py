"""More models of the transformers library, of architectures that were in no list before.

`UNSEEN` has a row for each, as `unprepared_models` has them; `unseen_modules` has those that are
written by hand.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.laptop.unprepared_models import (
    GPT,
    HEADS,
    LATENT,
    MAMBA,
    NO_KV,
    ROUTED,
    SHARED,
    VISION,
    Unprepared,
    dense,
    encoder,
    moe,
    vision,
)

TINY: dict[str, Any] = {"hidden_size": 128, "intermediate_size": 256}
SSM = {"mamba_n_heads": 8, "mamba_d_head": 32, "mamba_d_state": 16, "mamba_chunk_size": 16}
PAIR = {"vocab_size": 512, "d_model": 128, "d_kv": 32, "d_ff": 256, "num_layers": 2}
PAIR |= {"num_heads": 4, "pad_token_id": 0, "decoder_start_token_id": 0}
SIDES = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4}
SIDES |= {"decoder_attention_heads": 4, "encoder_ffn_dim": 256, "decoder_ffn_dim": 256}
SIDES |= {"d_model": 128}
WORDS = {"vocab_size": 512, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
DELTA = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 32}
DELTA |= {"linear_value_head_dim": 32, "layer_types": ["linear_attention", "full_attention"]}
SOUND = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 32}
SOUND |= {"intermediate_size": 256, "conv_dim": [64] * 7, "num_conv_pos_embeddings": 16}


def pair(config: str, sizes: dict[str, Any], model: str = "AutoModelForSeq2SeqLM") -> Unprepared:
    return Unprepared(config=config, sizes=sizes, model=model, inputs="pair", kinds=("pair",))


def sound(config: str, sizes: dict[str, Any], inputs: str = "sound", **more: Any) -> Unprepared:
    kind = {"model": "AutoModel", "kinds": ("sound",)} | more
    return Unprepared(config=config, sizes=sizes, inputs=inputs, **kind)


def short(row: Unprepared, length: int) -> Unprepared:
    return replace(row, length=length)


_ROWS: dict[str, Unprepared] = {
    # mixtures of experts
    "afmoe": moe("AfmoeConfig", **ROUTED, **HEADS, num_shared_experts=1, num_dense_layers=1),
    "minimax_m2": moe("MiniMaxM2Config", num_local_experts=8, num_experts_per_tok=2, **HEADS),
    "glm4_moe_lite": moe(
        "Glm4MoeLiteConfig",
        **({k: v for k, v in SHARED.items() if k != "first_k_dense_replace"} | LATENT),
        mlp_layer_types=["dense", "sparse"],
    ),
    "longcat_flash": moe(
        "LongcatFlashConfig",
        **(LATENT | {"num_key_value_heads": None}),
        num_layers=1,
        head_dim=32,
        ffn_hidden_size=512,
        expert_ffn_hidden_size=128,
        n_routed_experts=8,
        zero_expert_num=4,
        moe_topk=2,
        intermediate_size=None,
    ),
    "jetmoe": moe(
        "JetMoeConfig",
        kv_channels=64,
        num_local_experts=8,
        num_experts_per_tok=2,
        num_attention_heads=None,
    ),
    "exaone_moe": moe("ExaoneMoeConfig", **ROUTED, sliding_window=32, n_group=2),
    "granitemoeshared": moe(
        "GraniteMoeSharedConfig",
        num_local_experts=8,
        num_experts_per_tok=2,
        shared_intermediate_size=256,
    ),
    "solar_open": moe("SolarOpenConfig", **{**SHARED, **HEADS, "first_k_dense_replace": None}),
    "mimo_v2_flash": moe(
        "MiMoV2FlashConfig",
        n_routed_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=128,
        head_dim=64,
        v_head_dim=32,
        sliding_window=32,
    ),
    "qwen3_next": moe("Qwen3NextConfig", **ROUTED, **DELTA, head_dim=64),
    "qwen3_5_moe": moe(
        "Qwen3_5MoeTextConfig", **ROUTED, **DELTA, head_dim=64, intermediate_size=None
    ),
    "granitemoehybrid": moe(
        "GraniteMoeHybridConfig",
        **(SSM | {"mamba_n_heads": 16, "mamba_expand": 2}),
        num_local_experts=8,
        layer_types=["mamba", "attention"],
        shared_intermediate_size=128,
    ),
    "jamba": short(
        moe(
            "JambaConfig",
            num_experts=4,
            attn_layer_period=2,
            attn_layer_offset=1,
            mamba_d_state=8,
            mamba_dt_rank=8,
            use_mamba_kernels=False,
            **TINY,
        ),
        12,
    ),
    "kimi_linear": moe(
        "KimiLinearConfig",
        **(LATENT | {"q_lora_rank": None}),
        num_local_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=128,
        linear_head_dim=32,
        linear_num_heads=4,
        layer_types=["linear_attention", "full_attention"],
    ),
    # state spaces beside attention, linear attention
    "bamba": dense("BambaConfig", attn_layer_indices=[1], mamba_n_heads=16, mamba_d_state=16),
    "falcon_h1": dense("FalconH1Config", mamba_d_ssm=256, **SSM),
    "zamba2": dense(
        "Zamba2Config",
        layers_block_type=["mamba", "hybrid"],
        n_mamba_heads=8,
        mamba_d_state=16,
        chunk_size=16,
        use_mamba_kernels=False,
        num_key_value_heads=4,
    ),
    "nemotron_h": dense(
        "NemotronHConfig",
        layers_block_type=["mamba", "attention", "moe", "mlp"],
        num_hidden_layers=None,
        ssm_state_size=16,
        mamba_num_heads=8,
        mamba_head_dim=32,
        n_groups=2,
        chunk_size=16,
        moe_intermediate_size=128,
        moe_shared_expert_intermediate_size=128,
        use_mamba_kernels=False,
        **HEADS,
    ),
    "olmo_hybrid": dense("OlmoHybridConfig", **DELTA),
    "qwen3_5": dense("Qwen3_5TextConfig", **DELTA, head_dim=64),
    "rwkv": short(dense("RwkvConfig", MAMBA | {"pad_token_id": None}), 8),
    # dense
    "gemma3n": dense(
        "Gemma3nTextConfig",
        vocab_size_per_layer_input=512,
        hidden_size_per_layer_input=32,
        num_kv_shared_layers=0,
        laurel_rank=16,
        layer_types=["sliding_attention", "full_attention"],
        sliding_window=32,
        activation_sparsity_pattern=[0.9, 0.0],
        **HEADS,
    ),
    "gemma4": dense(
        "Gemma4TextConfig",
        vocab_size_per_layer_input=512,
        hidden_size_per_layer_input=32,
        layer_types=["sliding_attention", "full_attention"],
        sliding_window=32,
        **HEADS,
    ),
    "bitnet": dense("BitNetConfig"),
    "doge": dense("DogeConfig"),
    "modernbert_decoder": dense("ModernBertDecoderConfig", local_attention=32),
    "gpt_neo": dense(
        "GPTNeoConfig",
        {"vocab_size": 512, "hidden_size": 128, "num_layers": 2, "num_heads": 4}
        | {"attention_types": [[["global", "local"], 1]], "window_size": 16},
    ),
    "ctrl": dense("CTRLConfig", GPT, dff=512),
    # encoders and decoders
    "t5": pair("T5Config", PAIR),
    "umt5": pair("UMT5Config", PAIR),
    "bart": pair("BartConfig", SIDES | WORDS | {"decoder_start_token_id": 2}),
    "m2m_100": pair("M2M100Config", SIDES | WORDS | {"decoder_start_token_id": 2}),
    "switch": pair(
        "SwitchTransformersConfig", PAIR | {"num_experts": 4, "num_sparse_encoder_layers": 1}
    ),
    # encoders
    "deberta_v2": encoder(
        "DebertaV2Config", relative_attention=True, pos_att_type=["p2c", "c2p"], **NO_KV
    ),
    "longformer": encoder("LongformerConfig", attention_window=16, **NO_KV),
    "nystromformer": encoder(
        "NystromformerConfig", num_landmarks=8, segment_means_seq_len=8, **NO_KV
    ),
    "roformer": encoder("RoFormerConfig", **NO_KV),
    "xlnet": Unprepared(
        config="XLNetConfig",
        sizes={"vocab_size": 512, "d_model": 128, "n_layer": 2, "n_head": 4, "d_inner": 256},
        model="AutoModel",
        kinds=("encoder",),
    ),
    "convbert": encoder("ConvBertConfig", **NO_KV, embedding_size=64),
    "squeezebert": encoder("SqueezeBertConfig", **NO_KV, embedding_size=256),
    # vision
    "convnextv2": vision(
        "ConvNextV2Config", {"hidden_sizes": [32, 64, 96, 128], "depths": [1, 1, 1, 1]}
    ),
    "swinv2": vision(
        "Swinv2Config",
        {"image_size": 64, "embed_dim": 32, "depths": [2, 1], "num_heads": [2, 4]}
        | {"window_size": 4},
    ),
    "sam_encoder": Unprepared(
        config="SamVisionConfig",
        sizes={"hidden_size": 96, "output_channels": 32, "num_hidden_layers": 2, "image_size": 64}
        | {"num_attention_heads": 3, "patch_size": 8, "window_size": 3, "global_attn_indexes": [1]},
        model="SamVisionModel",
        inputs="image",
        kinds=("vision",),
    ),
    "detr": vision(
        "DetrConfig",
        SIDES
        | {"num_queries": 10}
        | {
            "backbone_config": {
                "model_type": "resnet",
                "embedding_size": 16,
                "hidden_sizes": [16, 32, 48, 64],
                "depths": [1, 1, 1, 1],
                "out_features": ["stage4"],
            }
        },
    ),
    "segformer": replace(
        vision(
            "SegformerConfig",
            {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1], "decoder_hidden_size": 32}
            | {"num_attention_heads": [1, 2, 3, 4]},
        ),
        model="AutoModelForSemanticSegmentation",
    ),
    "hiera": vision(
        "HieraConfig",
        {"embed_dim": 32, "image_size": [64, 64], "depths": [1, 1], "num_heads": [1, 2]}
        | {"num_query_pool": 1, "masked_unit_attention": [True, False]},
    ),
    "pvt_v2": vision(
        "PvtV2Config",
        {"image_size": 64, "hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1]}
        | {"num_attention_heads": [1, 2, 3, 4]},
    ),
    "mobilevit": vision(
        "MobileViTConfig",
        {"image_size": 64, "hidden_sizes": [32, 48, 64], "num_attention_heads": 2}
        | {"neck_hidden_sizes": [8, 16, 16, 24, 32, 40, 48]},
    ),
    "efficientnet": vision(
        "EfficientNetConfig",
        {"image_size": 64, "width_coefficient": 1.0, "depth_coefficient": 1.0, "hidden_dim": 1280}
        | {"in_channels": [32, 16, 24], "out_channels": [16, 24, 32], "kernel_sizes": [3, 3, 5]}
        | {"strides": [1, 2, 2], "num_block_repeats": [1, 1, 2], "expand_ratios": [1, 6, 6]},
    ),
    "focalnet": vision(
        "FocalNetConfig",
        {"image_size": 64, "embed_dim": 32, "hidden_sizes": [32, 64], "depths": [1, 1]}
        | {"focal_levels": [2, 2], "focal_windows": [3, 3]},
    ),
    "levit": vision(
        "LevitConfig",
        {"image_size": 64, "hidden_sizes": [32, 48, 64], "num_attention_heads": [2, 3, 4]}
        | {"depths": [1, 1, 1]},
    ),
    "dpt": replace(
        vision(
            "DPTConfig",
            VISION
            | {"num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3]}
            | {"neck_hidden_sizes": [16, 32, 48, 64], "fusion_hidden_size": 32},
        ),
        model="AutoModelForDepthEstimation",
    ),
    "yolos": replace(
        vision("YolosConfig", VISION | {"image_size": [64, 64], "num_detection_tokens": 5}),
        model="AutoModelForObjectDetection",
    ),
    "videomae": replace(
        vision("VideoMAEConfig", VISION | {"num_frames": 4, "image_size": 32}), inputs="video"
    ),
    # sound
    "hubert": sound("HubertConfig", SOUND),
    "wavlm": sound("WavLMConfig", SOUND),
    "conformer": sound("Wav2Vec2ConformerConfig", SOUND),
    "spectrogram_transformer": sound(
        "ASTConfig",
        {**{k: v for k, v in VISION.items() if k not in ("image_size",)}, "max_length": 64}
        | {"num_mel_bins": 32},
        "frames",
    ),
    "encodec": sound(
        "EncodecConfig",
        {"hidden_size": 32, "num_filters": 8, "codebook_size": 64} | {"upsampling_ratios": [4, 2]},
        "wave",
    ),
    "moonshine": sound(
        "MoonshineConfig",
        {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 128, "pad_token_id": 0}
        | {"encoder_num_hidden_layers": 1, "decoder_num_hidden_layers": 1}
        | {"encoder_num_attention_heads": 4, "decoder_num_attention_heads": 4},
        "sound_and_tokens",
    ),
    # time series
    "patchtst": Unprepared(
        config="PatchTSTConfig",
        sizes={"num_input_channels": 2, "context_length": 32, "patch_length": 4, "patch_stride": 4}
        | {"d_model": 64, "num_hidden_layers": 2, "ffn_dim": 128},
        model="PatchTSTForPrediction",
        inputs="series",
        kinds=("series",),
    ),
}
# Most of the time of a run on the CPU backend grows with the tokens.
UNSEEN = {name: short(row, min(row.length, 24)) for name, row in _ROWS.items()}
