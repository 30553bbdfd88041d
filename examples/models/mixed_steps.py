"""A model folder with random weights, its mixed steps as traces, and what `generate` answers.

    python examples/models/mixed_steps.py examples/traces

Writes `mixed_model/` as `save_pretrained` does, in three shards; `mixed_steps_3.ptx` and
`mixed_steps_8.ptx`, steps of 3 and 8 tokens that share one cache in blocks; `mixed_drawing_8.ptx`,
a step that gives tokens in place of logits, as on GPUs; and `mixed_generated.json`, with the
log-probability of every token after the first. Needs torch, triton and
transformers, but no GPU.
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

from tessera.driver.folder.capture_steps import capture_steps
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
    model = transformers.LlamaForCausalLM(config).eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1 and "embed" not in name:
            parameter.data *= 25
    return model


def main(folder: Path) -> None:
    model, target = make_model(), folder / "mixed_model"
    model.save_pretrained(target, max_shard_size="6KB")
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
    (folder / "mixed_generated.json").write_text(text + "\n", encoding="utf-8")
    gpus = tuple(dict.fromkeys(card.gpu for card in machine_of("l40s").cards))
    room = (OPTIONS.context or 0, 20)
    for name, options in (
        ("mixed_steps_", OPTIONS),
        ("mixed_drawing_", replace(OPTIONS, step_tokens=(8,), draws=True)),
    ):
        with tempfile.TemporaryDirectory() as made_in:
            for step in capture_steps(
                read_folder(target), options, room, gpus, Path(made_in), lambda _: None
            ):
                own = folder / step.path.name.replace("step_", name)
                own.write_text(step.path.read_text().replace("step_", name))
                shutil.copy(step.path.with_suffix(".npz"), own.with_suffix(".npz"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
