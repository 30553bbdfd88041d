"""A tiny Llama with a tokenizer and a chat template, as `save_pretrained` writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|user|>{{ m.content | trim }}{{ eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}<|model|>{% endif %}"
)


def write_chat_folder(folder: Path) -> tuple[Any, Any]:
    """Write it; the model and its tokenizer."""
    import tokenizers
    import torch
    import transformers

    torch.manual_seed(0)
    plain = tokenizers.Tokenizer(tokenizers.models.BPE())
    plain.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|begin|>", "<|user|>", "<|model|>", "<|end|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    plain.train_from_iterator(["the cat and the dog sat on the mat, hello there"] * 5, trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain, bos_token="<|begin|>", eos_token="<|end|>"
    )
    tokenizer.chat_template = TEMPLATE
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1 and "embed" not in name:
            parameter.data *= 15
    model.generation_config.max_new_tokens = 8
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer
