"""Weights of the small steps of `generation.py`, and the tokens that others generate with them.

    python examples/models/generation_reference.py examples/traces

For each family: `NAME_steps.npz` with weights and empty states, and in `generated.json` answers to
prompts of mixed lengths: by `generate` of the transformers library for the two decoders, by a plain
loop over the whole prompt for the recurrent model. Needs torch and transformers, but no GPU.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import generation
import numpy as np
import torch
import transformers
from torch import Tensor, nn

LENGTHS = ((5, 6), (1, 3), (9, 4), (8, 1), (12, 5), (3, 8), (2, 2))
STATES = ("k_cache", "v_cache", "carried")


def as_llama(model: generation.Llama) -> nn.Module:
    layer = model.layers[0]
    context = layer.k_cache.shape[1]
    config = transformers.LlamaConfig(
        vocab_size=len(model.embedding),
        hidden_size=model.embedding.shape[1],
        intermediate_size=len(layer.gate),
        num_hidden_layers=len(model.layers),
        num_attention_heads=layer.heads,
        num_key_value_heads=layer.kv_heads,
        max_position_embeddings=context,
        rms_norm_eps=1e-6,
        bos_token_id=None,
        eos_token_id=None,
    )
    named = {
        "model.embed_tokens.weight": model.embedding,
        "lm_head.weight": model.head,
        "model.norm.weight": model.norm,
    }
    for number, own in enumerate(model.layers):
        at = f"model.layers.{number}"
        named |= {f"{at}.self_attn.{n}_proj.weight": getattr(own, n) for n in "qkvo"}
        named |= {f"{at}.mlp.{n}_proj.weight": getattr(own, n) for n in ("gate", "up", "down")}
        named[f"{at}.input_layernorm.weight"] = own.norm1
        named[f"{at}.post_attention_layernorm.weight"] = own.norm2
    return loaded(transformers.LlamaForCausalLM(config), named)


def as_gpt(model: generation.Gpt) -> nn.Module:
    config = transformers.GPT2Config(
        vocab_size=len(model.embedding),
        n_positions=len(model.places),
        n_embd=model.embedding.shape[1],
        n_layer=len(model.layers),
        n_head=model.layers[0].heads,
        bos_token_id=None,
        eos_token_id=None,
    )
    named = {
        "transformer.wte.weight": model.embedding,
        "lm_head.weight": model.embedding,
        "transformer.wpe.weight": model.places,
        "transformer.ln_f.weight": model.norm,
        "transformer.ln_f.bias": model.norm_bias,
    }
    for number, own in enumerate(model.layers):
        at = f"transformer.h.{number}"
        for theirs, ours in (
            ("attn.c_attn", "qkv"),
            ("attn.c_proj", "o"),
            ("mlp.c_fc", "up"),
            ("mlp.c_proj", "down"),
        ):
            named[f"{at}.{theirs}.weight"] = getattr(own, ours).T
            named[f"{at}.{theirs}.bias"] = getattr(own, f"{ours}_bias")
        for theirs, ours in (("ln_1", "norm1"), ("ln_2", "norm2")):
            named[f"{at}.{theirs}.weight"] = getattr(own, ours)
            named[f"{at}.{theirs}.bias"] = getattr(own, f"{ours}_bias")
    return loaded(transformers.GPT2LMHeadModel(config), named)


def loaded(model: nn.Module, named: dict[str, Tensor]) -> nn.Module:
    model.load_state_dict(named, strict=True)
    return model.eval()


def generated(model: nn.Module, prompt: list[int], answer: int) -> list[int]:
    ids = torch.tensor([prompt])
    settings = transformers.GenerationConfig(do_sample=False, max_new_tokens=answer, pad_token_id=0)
    made = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings)
    return [int(token) for token in made[0, len(prompt) :]]


def looped(model: generation.Recurrent, prompt: list[int], answer: int) -> list[int]:
    """Every token by a call over all tokens before it, from an empty state."""
    tokens = list(prompt)
    for _ in range(answer):
        for layer in model.layers:
            layer.carried.zero_()
        rows = torch.zeros(1, dtype=torch.int64)
        tokens.append(int(model(torch.tensor([tokens]), torch.tensor([len(tokens)]), rows)))
    return tokens[len(prompt) :]


def main(folder: Path) -> None:
    answers = {}
    models = {
        name: getattr(generation, f"{name}_decode")(device="cpu")[0]
        for name in ("llama", "gpt", "recurrent")
    }
    judges = {"llama": as_llama(models["llama"]), "gpt": as_gpt(models["gpt"])}
    draw = np.random.default_rng(7)
    for name, model in models.items():
        arrays = {n: t.detach().numpy().copy() for n, t in model.state_dict().items()}
        np.savez_compressed(folder / f"{name}_steps.npz", **arrays)
        answers[name] = []
        for prompt, answer in LENGTHS:
            tokens = draw.integers(0, 64, prompt).tolist()
            with torch.no_grad():
                given = (
                    generated(judges[name], tokens, answer)
                    if name in judges
                    else looped(model, tokens, answer)
                )
            answers[name].append({"prompt": tokens, "answer": given})
    text = json.dumps(answers, indent=None, separators=(",", ":")).replace("},{", "},\n{")
    (folder / "generated.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
