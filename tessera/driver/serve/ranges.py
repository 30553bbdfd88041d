"""Which tokens there can be, by what the analysis knows of the steps.

In: steps, their programs and graphs. Out: a number that every token is below. A step that gives
tokens in place of logits does not say how many there are. What it looks up with tokens does: in a
step that reads them, the tables (weights of at least two axes) whose rows are chosen by what is
read from memory. Which of them the tokens choose from is not known, so the longest counts: no token
that the model knows is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tessera.driver.serve.step_roles import GenerationSteps
from tessera.ir.graph.access import AddressClass
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.program.program import BufferId, Program, Role

_AXES = 2


def with_token_range(
    model: GenerationSteps, programs: Sequence[Program], graphs: Sequence[KernelGraph]
) -> GenerationSteps:
    """The same steps, with the number of tokens where they do not say it and it can be known."""
    if model.vocabulary:
        return model
    limits = [
        _limit(programs[step.size.trace], graphs[step.size.trace], step.buffers["tokens"].id)
        for step in model.steps
        if step.has("tokens")
    ]
    return replace(model, vocabulary=min((limit for limit in limits if limit), default=0))


def _limit(program: Program, graph: KernelGraph, tokens: BufferId) -> int:
    longest = 0
    for node in graph.nodes:
        if not any(access.buffer == tokens for access in node.accesses):
            continue
        for access in node.accesses:
            buffer = program.buffers[access.buffer]
            is_table = buffer.role is Role.WEIGHT and len(buffer.shape or ()) >= _AXES
            if access.address is AddressClass.INDEXED and is_table:
                longest = max(longest, (buffer.shape or (0,))[0])
    return longest
