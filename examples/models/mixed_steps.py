"""Model folders with random weights, their steps as traces, and what `generate` answers.

    python examples/models/mixed_steps.py examples/traces

Writes `mixed_model/` as `save_pretrained` does, in three shards; `mixed_steps_3.ptx` and
`mixed_steps_8.ptx`, steps of 3 and 8 tokens that share one cache in blocks; `mixed_drawing_8.ptx`,
a step that gives tokens in place of logits, as on GPUs; and `mixed_generated.json`, with the
log-probability of every token after the first. `state_model/`, `state_drawing_3.ptx` and
`state_generated.json` are the same for a model with a state space beside attention, whose steps
take one token of each of 3 rows. Needs torch, triton and transformers, but no GPU.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import transformers

from tessera.driver.folder.capture_steps import CacheRoom, capture_steps
from tessera.driver.folder.model_folder import FolderOptions, read_folder
from tessera.frontend.machine.gpus import machine_of

LENGTHS = ((5, 6), (1, 3), (9, 4), (8, 1), (12, 5), (3, 8), (2, 2), (20, 12))
OPTIONS = FolderOptions(
    rows=3, context=32, block=4, step_tokens=(3, 8), route="library", draws=False
)


def make_model() -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=32,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=2,
        pad_token_id=0,
    )
    return _louder(transformers.LlamaForCausalLM(config), 25)


def make_state_model() -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    config = transformers.BambaConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        attn_layer_indices=[1],
        mamba_n_heads=4,
        mamba_d_head=8,
        mamba_d_state=8,
        mamba_chunk_size=4,
        max_position_embeddings=32,
        bos_token_id=None,
        eos_token_id=2,
        pad_token_id=0,
    )
    return _louder(transformers.BambaForCausalLM(config), 8)


def _louder(model: transformers.PreTrainedModel, factor: float) -> transformers.PreTrainedModel:
    """A model whose answers differ."""
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1 and "embed" not in name:
            parameter.data *= factor
    return model.float().eval()


def _answers(model: transformers.PreTrainedModel, file: Path) -> None:
    """Write what `generate` answers."""
    draw = np.random.default_rng(7)
    answers = []
    for prompt, answer in LENGTHS:
        tokens = draw.integers(3, 64, prompt).tolist()
        ids = torch.tensor([tokens])
        made = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=answer
        )
        with torch.no_grad():
            logs = model(made[:, :-1]).logits.double().log_softmax(-1)
        own = logs[0].gather(-1, made[0, 1:, None])[:, 0]
        answers.append(
            {
                "prompt": tokens,
                "answer": made[0, prompt:].tolist(),
                "logprobs": [round(log, 6) for log in own.tolist()],
            }
        )
    text = json.dumps(answers, separators=(",", ":")).replace("},{", "},\n{")
    file.write_text(text + "\n", encoding="utf-8")


def main(folder: Path) -> None:
    for model, name, shard in (
        (make_model(), "mixed", "6KB"),
        (make_state_model(), "state", "1MB"),
    ):
        model.save_pretrained(folder / f"{name}_model", max_shard_size=shard)
        _answers(model, folder / f"{name}_generated.json")
    gpus = tuple(dict.fromkeys(card.gpu for card in machine_of("l40s").cards))
    room = CacheRoom(OPTIONS.context or 0, OPTIONS.block, 20)
    states = CacheRoom(OPTIONS.context or 0, OPTIONS.context or 0, 3, keeps_states=True)
    drawing = replace(OPTIONS, step_tokens=(8,), draws=True)
    for name, options, own_room in (
        ("mixed_steps_", OPTIONS, room),
        ("mixed_drawing_", drawing, room),
        ("state_drawing_", drawing, states),
    ):
        target = folder / f"{name.split('_')[0]}_model"
        with tempfile.TemporaryDirectory() as made_in:
            for step in capture_steps(
                read_folder(target), options, own_room, gpus, Path(made_in), lambda _: None
            ):
                own = folder / step.path.name.replace("step_", name)
                own.write_text(step.path.read_text().replace("step_", name))
                shutil.copy(step.path.with_suffix(".npz"), own.with_suffix(".npz"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
