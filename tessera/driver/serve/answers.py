"""Prompts into steps and tokens out of them, for one answer at a time.

In: a prompt or an answer, and what the steps of the model are. Out: what a row of a step gets, and
the token that comes next.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tessera.driver.run.runtime import Result
from tessera.driver.serve.generation import Generation, Wish, refused
from tessera.driver.serve.sampling import Sampling, draw_token
from tessera.driver.serve.scheduler import Sizes, StepWork
from tessera.driver.serve.step_inputs import RowInput
from tessera.driver.serve.step_roles import GenerationSteps, StepRoles
from tessera.ir.arguments import check_number
from tessera.ir.arrays import Floats


def check_prompt(
    model: GenerationSteps, sizes: Sizes, prompt: Sequence[int], wish: Wish
) -> list[int]:
    """A prompt that the steps can take, as plain numbers; raises TSR5064."""
    try:
        given = list(prompt)
    except TypeError:
        raise refused("a prompt must be a row of tokens") from None
    if not given:
        raise refused("a prompt needs at least one token")
    # First: looking at the tokens of a prompt that is far too long would take a while.
    if not sizes.holds(len(given), wish.most):
        raise refused(
            f"a prompt of {len(given)} tokens with an answer of {wish.most} does not fit a "
            f"context of {sizes.context} tokens",
            "shorten the prompt, or ask for fewer tokens",
        )
    tokens = [t if type(t) is int else check_number("prompt", t) for t in given]
    vocabulary = model.vocabulary or (1 << 31)
    for token in tokens:
        if not 0 <= token < vocabulary:
            raise refused(f"token {token} is not in the vocabulary of {vocabulary} tokens")
    for step in model.steps:
        _check_sampling(step, wish.sampling)
    return tokens


def _check_sampling(step: StepRoles, sampling: Sampling) -> None:
    if sampling.is_greedy or step.has("logits") or not step.has("next"):
        return
    if not (step.has("temperature") and step.has("uniform")):
        raise refused(f"step `{step.name}` gives the most likely token only")
    if sampling.top_k or sampling.top_p < 1:
        raise refused(f"step `{step.name}` draws from all tokens: no `top_k`, no `top_p`")


def row_input(answer: Generation, position: int, count: int, draws: bool) -> RowInput:
    """What the row of an answer gets: so many tokens from a position on."""
    asked = len(answer.prompt)
    if position >= asked:
        tokens: Sequence[int] = answer.tokens[position - asked : position - asked + count]
    elif position + count <= asked:
        tokens = answer.prompt[position : position + count]
    else:
        tokens = (*answer.prompt[position:], *answer.tokens[: position + count - asked])
    sampling = answer.wish.sampling
    is_drawn = draws and not sampling.is_greedy
    return RowInput(
        row=answer.job.row,
        tokens=tokens,
        position=position,
        blocks=answer.job.blocks,
        temperature=0.0 if sampling.is_greedy else sampling.temperature,
        uniform=answer.uniform(max(position + count - asked, 0)) if is_drawn else 0.0,
    )


def read_tokens(
    step: StepRoles, work: StepWork, result: Result, gives: Sequence[tuple[Generation, int]]
) -> list[int]:
    """The next token of each answer, of the logits at its row or as the step says."""
    if not gives:
        return []
    if step.has("next"):
        chosen = np.asarray(result[step.buffers["next"].name]).reshape(-1)
        return [int(chosen[seat]) for _, seat in gives]
    logits = result.floats(step.buffers["logits"].name)
    logits = logits.reshape(step.size.rows, -1, logits.shape[-1])
    counts = {job.number: count for job, count in work.chunks}
    tokens = []
    for answer, seat in gives:
        at = counts.get(answer.number, 1) - 1 if logits.shape[1] > 1 else 0
        tokens.append(_choose(answer, logits[seat, at]))
    return tokens


def _choose(answer: Generation, logits: Floats) -> int:
    if answer.wish.sampling.is_greedy:
        return int(np.argmax(logits))
    return draw_token(logits, answer.wish.sampling, answer.draws)
