"""The arrays that go into a step, by the roles of its inputs.

In: which rows take part, with which tokens. Out: an array for every input of the trace.

Rows that do not take part are harmless by construction. Where the step has `lengths`, they have
length 0. Where it has a table of blocks, theirs leads to block 0, which nobody has. Otherwise they
write at the first free position of their own row, which is written again before it is read; a step
with an input `rows` gets a different row for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tessera.driver.run.arrays import TypedArray
from tessera.driver.serve.step_roles import GenerationSteps, StepRoles
from tessera.frontend.contents.write import numpy_type
from tessera.ir.program.program import Buffer


@dataclass(slots=True)
class RowInput:
    """What a row of the states gets: tokens from a position on."""

    row: int
    tokens: Sequence[int]
    position: int
    blocks: Sequence[int] = ()
    temperature: float = 0.0
    uniform: float = 0.0


def step_inputs(
    model: GenerationSteps,
    step: StepRoles,
    given: Sequence[RowInput],
    position_of: Callable[[int], int],
) -> tuple[dict[str, TypedArray], list[int]]:
    """Arrays by the name of the input, and which row of the step each given one is.

    `position_of` says how many tokens a row of the states holds.
    """
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
    for role in ("temperature", "uniform"):
        arrays[role] = np.zeros(count)
    if step.has("blocks"):
        arrays["blocks"] = np.zeros(step.buffers["blocks"].shape or (), np.int64)
    counts = [len(own.tokens) for own in given]
    lengths[seats] = counts
    positions[seats] = [own.position for own in given]
    arrays["temperature"][seats] = [own.temperature for own in given]
    arrays["uniform"][seats] = [own.uniform for own in given]
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
