"""The decode step that comes next, handed over before the one under way has ended.

In: a decode step that is under way. Out: the next one, where nothing but its tokens is unknown, and
those the devices fetch themselves (`EarlierOutput`). So a GPU does not wait for the host between
two steps. A row whose answer ends with the step under way by its length takes no part. One that
ends otherwise does in vain: what it writes goes to a place of its own row, or of blocks that were
its own, before whoever gets them next writes there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tessera.backend.service import EarlierOutput
from tessera.driver.serve.answers import row_input
from tessera.driver.serve.generation import Generation
from tessera.driver.serve.scheduler import Batch, Scheduler, StepWork
from tessera.driver.serve.step_inputs import RowInput, step_inputs
from tessera.driver.serve.step_roles import GenerationSteps, StepRoles

Taking = list[tuple[Generation, int, int]]
"""Answers in a step, how many tokens each has with it, and its row of the step."""


@dataclass(slots=True)
class NextStep:
    """A step that has been handed over, or is to be."""

    work: StepWork
    taking: Taking
    inputs: dict[str, object]
    request: int = -1


def gives_tokens(step: StepRoles) -> bool:
    """Whether the tokens that a step gives can go into the next one as they are."""
    if not (step.size.is_decode and step.has("next") and step.has("tokens")):
        return False
    tokens, chosen = step.buffers["tokens"], step.buffers["next"]
    return tokens.bytes == chosen.bytes and tokens.dtype == chosen.dtype


def next_step(
    model: GenerationSteps,
    scheduler: Scheduler,
    batch: Batch,
    work: StepWork,
    taking: Sequence[tuple[Generation, int, int]],
) -> NextStep | None:
    """What follows a decode step; None where that depends on more than its tokens."""
    step = model.of_trace(work.size.trace)
    if not gives_tokens(step) or batch.filling or batch.joining:
        return None
    staying = []
    for answer, reached, seat in taking:
        if reached < len(answer.prompt) + len(answer.tokens):
            return None  # more of a prompt comes next, which the host has
        if len(answer.tokens) + 1 < answer.wish.most:
            staying.append((answer, reached, seat))
    leaving = len(taking) - len(staying)
    if not staying or (leaving and scheduler.line):
        return None
    after = scheduler.after(work, leaving)
    if after.size != work.size:
        return None
    given = [_row(answer, reached, step) for answer, reached, _ in staying]
    used = {job.row: batch.position(job) for job in batch.decoding.values()}
    arrays, seats = step_inputs(model, step, given, lambda row: used.get(row, 0))
    if seats != [seat for _, _, seat in staying]:
        return None  # tokens are found by the row of the step
    inputs: dict[str, object] = dict(arrays)
    inputs[step.buffers["tokens"].name] = EarlierOutput(step.buffers["next"].name)
    return NextStep(after, [(answer, reached + 1, seat) for answer, reached, seat in staying], inputs)


def _row(answer: Generation, position: int, step: StepRoles) -> RowInput:
    """The row of an answer whose next token the host does not know yet."""
    return replace(row_input(answer, position, 1, step.has("uniform")), tokens=(0,))
