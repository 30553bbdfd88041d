"""The arrays that go into a step, by the roles of its inputs, and the tokens that come out.

In: the rows that take part, and their tokens. Out: an array for every input of the trace. Also
checks whether the steps can take a prompt, makes the row of an answer, and reads its next token.

Rows that do not take part are harmless by construction. If the step has `lengths`, they have length
0. If it has a table of blocks, theirs leads to block 0, which no sequence has. Otherwise they write
at the first free position of their own row, which is written again before it is read; a step with
an input `rows` gets a different row for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from tessera.diagnostics import TesseraError
from tessera.driver.run.arrays import TypedArray
from tessera.driver.run.runtime import Result
from tessera.driver.serve.batches import Sizes, StepWork
from tessera.driver.serve.generation import Generation, Wish, refused
from tessera.driver.serve.sampling import (
    LIMITS,
    NO_CHANCES,
    Sampling,
    TokenChances,
    chances_of,
)
from tessera.driver.serve.step_roles import GenerationSteps, StepRoles
from tessera.frontend.contents.write import numpy_type
from tessera.ir.arguments import check_number
from tessera.ir.arrays import Floats
from tessera.ir.program.program import Buffer


@dataclass(slots=True)
class RowInput:
    """The input of a row of the states: tokens from a position on."""

    row: int
    tokens: Sequence[int]
    position: int
    blocks: Sequence[int] = ()
    sampling: Sampling | None = None
    """How its token is drawn, by the number `uniform`; the most likely one is taken without it."""
    uniform: float = 0.0


def step_inputs(
    model: GenerationSteps,
    step: StepRoles,
    given: Sequence[RowInput],
    position_of: Callable[[int], int],
) -> tuple[dict[str, TypedArray], list[int]]:
    """Arrays by name of the input, and the row of the step that each given row has.

    `position_of` gives the number of tokens that a row of the states holds.
    """
    if step.size.is_mixed:
        return _mixed_inputs(step, given)
    count = step.size.rows
    seats, rows = _seats(model, step, given)
    tokens = np.zeros((count, step.size.tokens), np.int64)
    lengths = np.zeros(count, np.int64)
    positions = np.zeros(count, np.int64)
    if not step.has("lengths") and not step.has("blocks"):
        taken = set(seats)
        for seat in (seat for seat in range(count) if seat not in taken):
            positions[seat] = position_of(rows[seat])
    arrays: dict[str, TypedArray] = {"rows": np.array(rows, np.int64), "tokens": tokens}
    arrays |= {"lengths": lengths, "positions": positions}
    arrays |= _drawing(step, seats, given)
    if step.has("blocks"):
        arrays["blocks"] = np.zeros(step.buffers["blocks"].shape or (), np.int64)
    counts = [len(own.tokens) for own in given]
    lengths[seats] = counts
    positions[seats] = [own.position for own in given]
    if step.size.is_decode:
        tokens[seats, 0] = [own.tokens[0] for own in given]
    else:
        for seat, count, own in zip(seats, counts, given, strict=True):
            tokens[seat, :count] = own.tokens
    if step.has("blocks"):
        for seat, own in zip(seats, given, strict=True):
            arrays["blocks"][seat, : len(own.blocks)] = own.blocks
    named = {
        buffer.name: _typed(role, buffer, arrays[role], step)
        for role, buffer in step.buffers.items()
        if role in arrays
    }
    return named, seats


def _mixed_inputs(
    step: StepRoles, given: Sequence[RowInput]
) -> tuple[dict[str, TypedArray], list[int]]:
    """Tokens of all rows one after the other; the rest belong to the row of nobody."""
    size = step.size
    arrays: dict[str, TypedArray] = {
        role: np.zeros(size.tokens, np.int64) for role in ("tokens", "positions")
    }
    arrays["rows"] = np.full(size.tokens, size.rows, np.int64)
    arrays |= {role: np.zeros(size.rows, np.int64) for role in ("last", "earlier")}
    arrays["blocks"] = np.zeros(step.buffers["blocks"].shape or (), np.int64)
    arrays |= _drawing(step, range(len(given)), given)
    at = 0
    for seat, own in enumerate(given):
        end = at + len(own.tokens)
        arrays["tokens"][at:end] = own.tokens
        arrays["positions"][at:end] = range(own.position, own.position + len(own.tokens))
        arrays["rows"][at:end] = seat
        arrays["last"][seat] = end - 1
        arrays["blocks"][seat, : len(own.blocks)] = own.blocks
        at = end
    named = {
        buffer.name: _typed(role, buffer, arrays[role], step)
        for role, buffer in step.buffers.items()
        if role in arrays
    }
    return named, list(range(len(given)))


def _drawing(
    step: StepRoles, seats: Iterable[int], given: Sequence[RowInput]
) -> dict[str, TypedArray]:
    """How each row of a step draws its token."""
    arrays: dict[str, TypedArray] = {
        role: np.full(step.size.rows, plain) for role, plain in _PLAIN.items() if step.has(role)
    }
    for seat, own in zip(seats, given, strict=True):
        if own.sampling is not None:
            arrays["uniform"][seat] = own.uniform
            for role in ("temperature", *LIMITS):
                if role in arrays:
                    arrays[role][seat] = getattr(own.sampling, role)
    return arrays


_PLAIN = {"temperature": 0.0, "uniform": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
"""What rows have that take the most likely token."""


def _seats(
    model: GenerationSteps, step: StepRoles, given: Sequence[RowInput]
) -> tuple[list[int], list[int]]:
    """The row of the step of each given one, and the row of the states of each of the step's."""
    if not step.has("rows"):
        seats = list(range(len(given))) if model.blocks else [own.row for own in given]
        if step.size.rows < model.state_rows:
            seats = list(range(len(given)))
        return seats, list(range(step.size.rows))
    own_rows = [own.row for own in given]
    taken = set(own_rows)
    others = [row for row in range(model.state_rows) if row not in taken]
    return list(range(len(given))), [*own_rows, *others][: step.size.rows]


def _typed(role: str, buffer: Buffer, array: TypedArray, step: StepRoles) -> TypedArray:
    shape = buffer.shape or ()
    if role == "positions" and array.size != int(np.prod(shape)):
        array = array[:, None] + np.arange(step.size.tokens)
    kind = numpy_type(buffer)
    if kind is None:  # `bf16`: the upper half of an f32, rounded to even
        bits = array.astype(np.float32).view(np.uint32)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        return rounded.astype(np.uint16).reshape(shape).view(np.uint8)
    return array.astype(kind).reshape(shape)


# --- prompts and tokens of one answer ------------------------------------------------------------


def check_prompt(
    model: GenerationSteps, sizes: Sizes, prompt: Sequence[int], wish: Wish
) -> list[int]:
    """The prompt as plain numbers; raises TSR5064 if the steps cannot take it."""
    try:
        given = list(prompt)
    except TypeError:
        raise refused("a prompt must be a row of tokens") from None
    if not given:
        raise refused("a prompt needs at least one token")
    # The length is checked first: checking the tokens of a prompt that is far too long is slow.
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
    for token, _ in wish.sampling.bias:
        if not 0 <= token < vocabulary:
            raise refused(f"`logit_bias` names token {token}, and the vocabulary has {vocabulary}")
    if wish.reads_prompt and not sizes.is_mixed:
        raise refused("the chances of a prompt's tokens are known to mixed steps alone")
    for step in model.steps:
        _check_sampling(step, wish)
    return tokens


def _check_sampling(step: StepRoles, wish: Wish) -> None:
    """Refuse what a step that draws tokens itself cannot do."""
    if step.has("logits") or not step.has("next"):
        return
    if not wish.sampling.is_greedy and not (step.has("temperature") and step.has("uniform")):
        raise refused(f"step `{step.name}` gives the most likely token only")
    needs = wish.sampling.needs_logits(step.buffers)
    needs = needs or ("response_format" if wish.constraint else "")
    if needs:
        named = _SAID.get(needs, needs)
        raise refused(
            f"step `{step.name}` chooses tokens itself and gives no logits: no `{named}`",
            "serve the model folder with `--logits`",
        )


_SAID = {
    "chances": "logprobs",
    "bias": "logit_bias",
    "presence": "presence_penalty",
    "frequency": "frequency_penalty",
    "repetition": "repetition_penalty",
}
"""What clients call the fields of `Sampling`."""


def row_input(
    answer: Generation, position: int, count: int, draws: bool, seat: int | None = None
) -> RowInput:
    """The input for the row of an answer: `count` tokens from a position on.

    If the last of them is not known yet, it is what the step before gives in its row `seat`.
    """
    asked = len(answer.prompt)
    if position >= asked:
        tokens: Sequence[int] = answer.tokens[position - asked : position - asked + count]
    elif position + count <= asked:
        tokens = answer.prompt[position : position + count]
    else:
        tokens = (*answer.prompt[position:], *answer.tokens[: position + count - asked])
    if len(tokens) < count and seat is not None:
        tokens = (*tokens, -1 - seat)
    is_drawn = draws and not answer.wish.sampling.is_greedy
    return RowInput(
        row=answer.job.row,
        tokens=tokens,
        position=position,
        blocks=answer.job.blocks,
        sampling=answer.wish.sampling if is_drawn else None,
        uniform=answer.uniform(max(position + count - asked, 0)) if is_drawn else 0.0,
    )


@dataclass(frozen=True, slots=True)
class ReadToken:
    """The next token of an answer, or why there is none, and its chances if they are wanted."""

    token: int
    chances: TokenChances | None = None
    problem: TesseraError | None = None


def read_tokens(
    step: StepRoles, work: StepWork, result: Result, gives: Sequence[tuple[Generation, int]]
) -> list[ReadToken]:
    """The next token of each answer, from the logits of its row or as the step gives it."""
    if not gives:
        return []
    chosen = logits = None
    if step.has("next"):
        chosen = np.asarray(result[step.buffers["next"].name]).reshape(-1)
    if step.has("logits") and not all(_takes_next(step, answer) for answer, _ in gives):
        logits = result.floats(step.buffers["logits"].name)
        logits = logits.reshape(step.size.rows, -1, logits.shape[-1])
    counts = {job.number: count for job, count in work.chunks}
    tokens = []
    for answer, seat in gives:
        if logits is None or (chosen is not None and _takes_next(step, answer)):
            tokens.append(ReadToken(int(cast("TypedArray", chosen)[seat])))
            continue
        at = counts.get(answer.number, 1) - 1 if logits.shape[1] > 1 else 0
        tokens.append(_choose(answer, logits[seat, at]))
    return tokens


def _takes_next(step: StepRoles, answer: Generation) -> bool:
    """Whether an answer takes the token that a step has chosen."""
    sampling = answer.wish.sampling
    needs_logits = sampling.needs_logits(step.buffers) or answer.wish.constraint is not None
    return step.has("next") and not needs_logits and (sampling.is_greedy or step.has("uniform"))


def _choose(answer: Generation, logits: Floats) -> ReadToken:
    try:
        token = answer.chooser.choose(logits, answer.tokens)
    except TesseraError as problem:
        return ReadToken(-1, problem=problem)
    count = answer.wish.sampling.chances
    return ReadToken(token, None if count == NO_CHANCES else chances_of(logits, token, count))


def read_prompt_chances(
    step: StepRoles, result: Result, taking: Sequence[tuple[Generation, int, int]]
) -> None:
    """Note the chances of the prompt tokens that come after the tokens of this step."""
    for answer, reached, seat in taking:
        known = answer.prompt_chances
        if answer.wish.reads_prompt and len(known) + 1 == reached < len(answer.prompt):
            logits = result.floats(step.buffers["logits"].name)
            logits = logits.reshape(step.size.rows, -1)
            count = max(answer.wish.sampling.chances, 0)
            known.append(chances_of(logits[seat], answer.prompt[reached], count))
