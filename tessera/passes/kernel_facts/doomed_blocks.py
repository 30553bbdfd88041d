"""Blocks that lead only to a trap, and the post-dominators of blocks without them.

In: a function, its control flow, and the functions that its module defines: a defined function with
the name of a driver function is not that driver function. Out: the blocks that no thread reaches in
a launch that ends normally, and the post-dominator of every block over the other paths. So an
assertion inside an `if` does not keep its sides from meeting.
"""

from __future__ import annotations

from collections.abc import Container

from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.control_flow import EXIT, ControlFlow, post_dominators
from tessera.ir.ptx.flatten import FlatFunction
from tessera.passes.kernel_facts.inline_calls import call_parts

NEVER_RETURNS = frozenset({"__assertfail", "__assert_fail"})


def doomed_blocks(flat: FlatFunction, flow: ControlFlow, defined: Container[str]) -> frozenset[int]:
    """The blocks from which every path ends in a trap."""
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
    """The block where all paths from each block that do not trap meet; EXIT if that is the end."""
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
    """The successors of a block, including EXIT, without traps."""
    block = flow.blocks[index]
    last = flat.instructions[block.end - 1] if block.end > block.start else None
    # A thread that does not trap in the last instruction reaches the end.
    is_last = last is not None and last.guard is not None and block.end == len(flat.instructions)
    traps = last is not None and last.opcode.name == "trap" and not is_last
    return [*block.successors, *([EXIT] if index in flow.leaving and not traps else [])]
