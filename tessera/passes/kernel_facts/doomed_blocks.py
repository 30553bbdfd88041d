"""Blocks that lead to a trap and to nothing else, and where control meets again without them.

In: a function, its control flow, and the functions that its module defines: one that is called as
the driver's is not a driver's function. Out: the blocks that no thread of a launch that ends
normally comes to, and the post-dominator of every block over the ways that are left: an assertion
inside an `if` does not keep its sides from meeting.
"""

from __future__ import annotations

from collections.abc import Container

from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.control_flow import EXIT, ControlFlow, post_dominators
from tessera.ir.ptx.flatten import FlatFunction
from tessera.passes.kernel_facts.inline_calls import call_parts

NEVER_RETURNS = frozenset({"__assertfail", "__assert_fail"})


def doomed_blocks(flat: FlatFunction, flow: ControlFlow, defined: Container[str]) -> frozenset[int]:
    """The blocks from which every way ends in a trap."""
    doomed = {b.index for b in flow.blocks if _traps(flat, b.start, b.end, defined)}
    pending = sorted(doomed)
    while pending:
        for above in flow.blocks[pending.pop()].predecessors:
            if above not in doomed and doomed.issuperset(_ways(flat, flow, above)):
                doomed.add(above)
                pending.append(above)
    return frozenset(doomed)


def meeting_blocks(
    flat: FlatFunction, flow: ControlFlow, doomed: frozenset[int]
) -> tuple[int | None, ...]:
    """Where all ways from each block that do not trap meet; EXIT where that is the end."""
    if not doomed and not any(i.opcode.name == "trap" for i in flat.instructions):
        return flow.post_dominators
    edges = [
        [] if b.index in doomed else [w for w in _ways(flat, flow, b.index) if w not in doomed]
        for b in flow.blocks
    ]
    return post_dominators(edges, {b.index for b in flow.blocks if b.reachable})


def never_returns(call: ptx.Instruction, defined: Container[str]) -> bool:
    """Whether a call ends the launch with an error."""
    callee = call_parts(call)[0]
    return callee in NEVER_RETURNS and callee not in defined


def _traps(flat: FlatFunction, start: int, end: int, defined: Container[str]) -> bool:
    for instruction in flat.instructions[start:end]:
        if instruction.guard is not None:
            continue
        name = instruction.opcode.name
        if name == "trap" or (name == "call" and never_returns(instruction, defined)):
            return True
    return False


def _ways(flat: FlatFunction, flow: ControlFlow, index: int) -> list[int]:
    """Where control goes from a block, EXIT included, a trap left out."""
    block = flow.blocks[index]
    last = flat.instructions[block.end - 1] if block.end > block.start else None
    # A thread that does not trap in the last instruction reaches the end.
    is_last = last is not None and last.guard is not None and block.end == len(flat.instructions)
    traps = last is not None and last.opcode.name == "trap" and not is_last
    return [*block.successors, *([EXIT] if index in flow.leaving and not traps else [])]
