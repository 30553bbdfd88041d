"""Models of the transformers library as they come, small and with random weights."""

from __future__ import annotations

import torch
import transformers
from torch import Tensor, nn


def _ready(model: nn.Module, inputs: Tensor) -> tuple[nn.Module, tuple[Tensor, ...]]:
    return model.to("cuda", torch.bfloat16).eval(), (inputs.cuda(),)


def _tokens(length: int, vocabulary: int = 256) -> Tensor:
    torch.manual_seed(0)
    return torch.randint(0, vocabulary, (1, length))


def llama(
    layers: int = 2, length: int = 32, attention: str = "eager"
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=256,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        use_cache=False,
        attn_implementation=attention,
    )
    return _ready(transformers.LlamaForCausalLM(config), _tokens(length))


def qwen(
    layers: int = 2, length: int = 32, attention: str = "eager"
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=256,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        use_cache=False,
        attn_implementation=attention,
    )
    return _ready(transformers.Qwen2ForCausalLM(config), _tokens(length))


def mamba(layers: int = 2, length: int = 16) -> tuple[nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(0)
    config = transformers.MambaConfig(
        vocab_size=256, hidden_size=64, state_size=8, num_hidden_layers=layers, use_cache=False
    )
    return _ready(transformers.MambaForCausalLM(config), _tokens(length))


def vit(layers: int = 2, attention: str = "eager") -> tuple[nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=128,
        image_size=64,
        patch_size=16,
        attn_implementation=attention,
    )
    image = torch.randn(1, 3, 64, 64).to(torch.bfloat16)
    return _ready(transformers.ViTModel(config, add_pooling_layer=False), image)
