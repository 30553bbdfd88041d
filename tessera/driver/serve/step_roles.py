"""Steps that generate text: records, and the rules that they must meet together.

In: nothing. Out: `StepRoles` and `GenerationSteps`, which `steps` makes from a plan's traces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tessera.diagnostics import TesseraError
from tessera.driver.serve.batches import Sizes, StepSize
from tessera.ir.program.program import Buffer, Program, Role

UNBOUNDED = 1 << 30
"""The context of a model whose state has a fixed size."""


def wrong_steps(message: str, hint: str | None = None) -> TesseraError:
    """The error for a plan whose traces cannot be driven as stated."""
    return TesseraError.of("TSR3026", message, hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRoles:
    """A trace as a step: its sizes, and the buffers that have a role."""

    name: str
    size: StepSize
    buffers: Mapping[str, Buffer]

    def has(self, role: str) -> bool:
        """Whether a buffer of the trace has the role."""
        return role in self.buffers


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationSteps:
    """All steps of a plan that generate text.

    `state_rows` is the number of sequences that a copy of the states holds; `blocks` is its number
    of blocks, including block 0, which no sequence gets. `end` are tokens that end an answer.
    `vocabulary` is 0 if no step gives logits. `resets`: a row has to hold its first state when a
    sequence begins, because steps continue from what it holds. `token_axis` is the length of the
    second axis of states, if it counts tokens.
    """

    steps: tuple[StepRoles, ...]
    state_rows: int
    context: int
    vocabulary: int = 0
    blocks: int = 0
    block: int = 0
    end: tuple[int, ...] = ()
    resets: bool = False
    token_axis: int = 0

    def sizes(self, batches: int) -> Sizes:
        """Sizes for the scheduler, with `batches` copies of the states."""
        chunks = [step for step in self.steps if not step.size.is_decode]
        return Sizes(
            steps=tuple(step.size for step in self.steps),
            batches=batches,
            rows=self.state_rows,
            context=self.context,
            first_from_prefill=bool(chunks) and all(_gives_tokens(step) for step in chunks),
            blocks=max(self.blocks - 1, 0),
            block=self.block,
            token_axis=self.token_axis,
        )

    def of_trace(self, trace: int) -> StepRoles:
        """The step that a trace is."""
        return next(step for step in self.steps if step.size.trace == trace)


def _gives_tokens(step: StepRoles) -> bool:
    if step.size.is_mixed:
        return True
    if step.has("next"):
        return step.has("lengths")
    return step.has("logits") and (step.has("lengths") or _is_per_token(step))


def _is_per_token(step: StepRoles) -> bool:
    shape = step.buffers["logits"].shape or ()
    return prod(shape[:-1]) == step.size.rows * step.size.tokens


def state_shapes(programs: Sequence[Program]) -> dict[str, object]:
    """What the states of traces hold: shapes and types by name."""
    return {
        buffer.name: (buffer.shape, buffer.dtype, buffer.bytes)
        for program in programs
        for buffer in program.buffers
        if buffer.role is Role.STATE
    }


def check_steps(made: GenerationSteps) -> None:
    """Refuse steps that cannot be driven together."""
    decode = [step for step in made.steps if step.size.answers]
    stated = [step for step in made.steps if step.has("tokens")]
    if not decode:
        raise wrong_steps(
            "the plan has no decode step: no trace takes one token of each sequence",
            "capture the model with `tokens` of shape [rows, 1] too, and plan both traces",
        )
    if max(step.size.rows for step in decode) < made.state_rows:
        raise wrong_steps(
            f"the states have {made.state_rows} rows, and no decode step takes so many"
        )
    if len({step.size.is_mixed for step in made.steps}) > 1:
        raise wrong_steps("some steps are mixed (they have an input `last`), and others are not")
    if made.steps[0].size.is_mixed:
        if max(step.size.tokens for step in made.steps) < made.state_rows:
            raise wrong_steps(f"no mixed step takes a token of each of {made.state_rows} rows")
        return
    for step in stated:
        if step.size.rows < made.state_rows and not (step.has("rows") or made.blocks):
            raise wrong_steps(
                f"step `{step.name}` takes {step.size.rows} of {made.state_rows} rows, "
                "and has no input `rows` to say which"
            )
        if not step.size.answers and step.size.rows > 1 and not step.has("lengths"):
            raise wrong_steps(
                f"step `{step.name}` takes several prompts, and has no input `lengths`"
            )
        if step.size.answers and not (step.has("logits") or step.has("next")):
            raise wrong_steps(f"step `{step.name}` has no output `logits` or `next`")
    _check_chunks(made)


def _check_chunks(made: GenerationSteps) -> None:
    """Chunks start at multiples of the smallest one: they must not reach beyond the context."""
    chunks = [step.size for step in made.steps if not step.size.answers]
    if not chunks or made.context == UNBOUNDED:
        return
    whole = [size for size in chunks if size.context >= made.context]
    least = min((size.tokens for size in whole), default=0)
    if not least or made.context % least or any(size.tokens % least for size in chunks):
        raise wrong_steps(
            f"chunks of {sorted(size.tokens for size in chunks)} tokens do not divide a context "
            f"of {made.context} tokens",
            "the shortest chunk must divide the context and the other chunks",
        )
