"""The next step, handed over before the one under way has ended.

In: a step that is under way. Out: the next one, if only tokens that it gives are unknown; the
devices fetch those themselves (`EarlierOutput`). So a GPU does not wait for the host between two
steps. A row whose answer reaches its length with the step under way takes no part. A row whose
answer ends for another reason takes part in vain: it writes to its own row, or to blocks that were
its own, before their next owner writes there.

A decode step takes all tokens of the one before it, row by row. A mixed step takes them by their
row in the one before it (input `earlier`), beside chunks of prompts, so it may be any that the
scheduler chooses: the step under way counts as done, and `engine_loop` makes the next like others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from tessera.backend.host_loop.request_handle import RequestHandle
from tessera.backend.service import EarlierOutput
from tessera.driver.run.runtime import Result, Runtime
from tessera.driver.serve.batches import Batch, StepWork
from tessera.driver.serve.generation import Generation
from tessera.driver.serve.homes import Homes
from tessera.driver.serve.scheduler import Scheduler
from tessera.driver.serve.step_inputs import RowInput, row_input, step_inputs
from tessera.driver.serve.step_roles import GenerationSteps, StepRoles

Taking = list[tuple[Generation, int, int]]
"""The answers in a step: each with its number of tokens after the step, and its row of the step."""


@dataclass(slots=True)
class HandedStep:
    """A step of a batch that is, or will be, handed to a runtime as its request `request`."""

    work: StepWork
    taking: Taking
    inputs: Mapping[str, object]
    request: int = -1
    is_done: bool = False
    """Whether the scheduler counts it as done already."""

    @property
    def seats(self) -> dict[int, int]:
        """The row of the step of each answer, by the answer's number."""
        return {answer.number: seat for answer, _, seat in self.taking}


class LookAhead:
    """Steps that were handed over while the step before them is under way, by batch."""

    def __init__(self, scheduler: Scheduler, homes: Homes) -> None:
        self._scheduler = scheduler
        self._homes = homes
        self.count = 0
        self._handed: dict[int, HandedStep] = {}
        self._able: WeakKeyDictionary[Runtime, frozenset[int]] = WeakKeyDictionary()

    def add(self, runtime: Runtime, chains: frozenset[int]) -> None:
        """Add a runtime, and the traces whose steps can be handed over this way."""
        self._able[runtime] = chains

    def begin(
        self, model: GenerationSteps, number: int, step: HandedStep
    ) -> RequestHandle[Result] | None:
        """Hand over the step that follows a step of a batch, if possible."""
        runtime, sequence = self._homes.place(number)
        if not self.takes(number, step.work.trace):
            return None
        batch = self._scheduler.batches[number]
        after = next_step(model, self._scheduler, batch, step.work, step.taking)
        if after is None:
            return None
        handle = runtime.submit(after.inputs, sequence=sequence, trace=step.work.trace)
        self.count += 1
        after.request = handle.request.number
        self._handed[number] = after
        return handle

    def takes(self, batch: int, *traces: int) -> bool:
        """Whether no step is handed over ahead for a batch, and steps of these traces can be."""
        runtime, _ = self._homes.place(batch)
        return batch not in self._handed and self._able.get(runtime, frozenset()).issuperset(traces)

    def add_handed(self, batch: int, step: HandedStep) -> None:
        """Note a mixed step that was handed over while the one before it is under way."""
        self.count += 1
        self._handed[batch] = step

    def faulted(self, request: int | None, under_way: Mapping[int, HandedStep]) -> list[HandedStep]:
        """The steps `under_way`, and after these, that are this request; all, if none is."""
        steps = [*under_way.values(), *(self._handed[b] for b in under_way if b in self._handed)]
        return [step for step in steps if step.request == request] or steps

    def forget(self, batch: int) -> None:
        """Forget the step that was handed over for a batch."""
        self._handed.pop(batch, None)

    def go_on(self, batch: int) -> HandedStep | None:
        """After a step of a batch has ended, the step now under way, if one was handed over."""
        after = self._handed.pop(batch, None)
        if after is not None:
            after.taking = [own for own in after.taking if not own[0].ended]
            self._scheduler.batches[batch].at_work = after.work
        return after


def token_input(step: StepRoles) -> str | None:
    """The name of the input that takes the tokens of the step before as they are, if one does."""
    if not step.size.answers or not step.has("next") or step.has("logits"):  # the host may choose
        return None
    taken = step.buffers.get("earlier" if step.size.is_mixed else "tokens")
    chosen = step.buffers["next"]
    if taken is None or (taken.bytes, taken.dtype) != (chosen.bytes, chosen.dtype):
        return None
    return taken.name


def chained_steps(model: GenerationSteps, runtime: Runtime) -> frozenset[int]:
    """The traces whose steps can be handed over this way; prepares the runtime for them."""
    return frozenset(
        step.size.trace
        for step in model.steps
        if (name := token_input(step)) is not None
        and runtime.prepare_chain(step.size.trace, (name,))
    )


def next_step(
    model: GenerationSteps,
    scheduler: Scheduler,
    batch: Batch,
    work: StepWork,
    taking: Sequence[tuple[Generation, int, int]],
) -> HandedStep | None:
    """The step that follows a decode step; None if it depends on more than its tokens."""
    step = model.of_trace(work.size.trace)
    if batch.filling or batch.joining:
        return None
    staying = []
    for answer, reached, seat in taking:
        if reached < len(answer.prompt) + len(answer.tokens):
            return None  # the next token is of a prompt, which only the host has
        if len(answer.tokens) + 1 < answer.wish.most:
            staying.append((answer, reached, seat))
    leaving = len(taking) - len(staying)
    if not staying or (leaving and scheduler.line):
        return None
    after = scheduler.after(work, leaving)
    if after.size != work.size:
        return None
    given = [_row(answer, reached, step) for answer, reached, _ in staying]
    arrays, seats = step_inputs(model, step, given, batch.row_position)
    if seats != [seat for _, _, seat in staying]:
        return None  # tokens are found by the row of the step
    inputs: dict[str, object] = dict(arrays)
    inputs[step.buffers["tokens"].name] = EarlierOutput(step.buffers["next"].name)
    return HandedStep(
        after, [(answer, reached + 1, seat) for answer, reached, seat in staying], inputs
    )


def _row(answer: Generation, position: int, step: StepRoles) -> RowInput:
    """The row of an answer whose next token the host does not know yet."""
    own = row_input(answer, position, 1, step.has("uniform"))
    own.tokens = (0,)
    return own
