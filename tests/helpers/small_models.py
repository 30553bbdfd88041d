"""Small random models of the transformers library, and their answers in steps and by `generate`."""

from __future__ import annotations

import random
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
transformers = pytest.importorskip("transformers", reason="needs transformers")

SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "head_dim": 8,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def model_of(kind: str, **more: Any) -> Any:
    values = {name: value for name, value in (SMALL | more).items() if value is not None}
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **values)
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data *= 4
    return model.requires_grad_(False)


def generated(model: Any, prompts: list[list[int]], most: int) -> list[list[int]]:
    """The answers of `generate`, greedy, to one prompt after the other."""
    answers = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        made = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=most,
            eos_token_id=None,
        )
        answers.append(made[0, len(prompt) :].tolist())
    return answers


def in_mixed_steps(
    step: Any, prompts: list[list[int]], most: int, draw: random.Random
) -> list[list[int]]:
    """Answers by mixed steps of 8 tokens for 3 rows, each prompt in chunks of random sizes."""
    texts, held, places = [list(p) for p in prompts], [0] * len(prompts), 8
    table = torch.zeros(4, places, dtype=torch.long)
    numbers = torch.randperm(3 * places) + 1
    table[:3] = numbers.view(3, places)
    while any(len(t) < len(p) + most for t, p in zip(texts, prompts, strict=True)):
        tokens, positions, rows, last = [], [], [], [0, 0, 0]
        for row, text in enumerate(texts):
            if len(text) == len(prompts[row]) + most:
                continue
            room = (
                8
                - len(tokens)
                - sum(
                    len(t) < len(p) + most
                    for t, p in list(zip(texts, prompts, strict=True))[row + 1 :]
                )
            )
            count = min(draw.randint(1, 6), room, len(text) - held[row])
            tokens += text[held[row] : held[row] + count]
            positions += range(held[row], held[row] + count)
            rows += [row] * count
            last[row] = len(tokens) - 1
            held[row] += count
        free = 8 - len(tokens)
        given = (tokens + [0] * free, positions + [0] * free, rows + [3] * free)
        logits = step(*map(torch.tensor, given), table, torch.tensor(last))
        for row, text in enumerate(texts):
            if held[row] == len(text) < len(prompts[row]) + most:
                text.append(int(logits[row].argmax()))
    return [t[len(p) :] for t, p in zip(texts, prompts, strict=True)]


def in_single_steps(step: Any, prompts: list[list[int]], most: int) -> list[list[int]]:
    """Answers by steps of 3 rows; sequences join, pause and leave, and rows are dealt anew."""
    draw, rows = random.Random(1), 3
    texts, held = [list(prompt) for prompt in prompts], [0] * len(prompts)
    waiting, free, block = list(range(len(texts))), [1, 2, 3], {}
    while waiting or block:
        while waiting and free and draw.random() < 0.7:
            block[waiting.pop(0)] = free.pop(draw.randrange(len(free)))
        tokens, positions = torch.zeros(2, rows, dtype=torch.long)
        table = torch.zeros(rows, 1, dtype=torch.long)
        going = [number for number in block if draw.random() < 0.8]
        seats = dict(zip(going, draw.sample(range(rows), len(going)), strict=True))
        for number, seat in seats.items():
            tokens[seat], positions[seat] = texts[number][held[number]], held[number]
            table[seat] = block[number]
            held[number] += 1
        logits = step(tokens, positions, table)
        for number, seat in seats.items():
            if held[number] == len(texts[number]):
                texts[number].append(int(logits[seat].argmax()))
                if len(texts[number]) == len(prompts[number]) + most:
                    free.append(block.pop(number))
    return [t[len(p) :] for t, p in zip(texts, prompts, strict=True)]
