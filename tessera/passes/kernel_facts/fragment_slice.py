"""The part of a kernel that fragments of `wmma` hang on.

In: a kernel with its calls followed. Out: the instructions that may touch an element of a fragment,
and those that what is done to elements is computed from. Most of a kernel is neither: it computes
addresses. Nothing here looks at the order of instructions, so it errs towards too many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tessera.ir.opcodes import Meaning
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.control_flow import EXIT, ControlFlow
from tessera.ir.ptx.flatten import FlatFunction
from tessera.passes.kernel_facts.operand_names import registers_in, written_registers

_OTHERS = frozenset({"global", "shared", "shared::cta", "shared::cluster", "const"})


def fragment_slice(
    flat: FlatFunction, flow: ControlFlow, meanings: Sequence[Meaning]
) -> frozenset[int]:
    """The instructions that matter, by their numbers."""
    written = [written_registers(*pair) for pair in zip(flat.instructions, meanings, strict=True)]
    read = [frozenset(_read(instruction)) for instruction in flat.instructions]
    own = [
        name in ("ld", "st", "call") and not any(e.space in _OTHERS for e in meaning.effects)
        for name, meaning in zip((i.opcode.name for i in flat.instructions), meanings, strict=True)
    ]
    touching = _touching(flat, written, read, own)
    needed = [name for index in touching for name in read[index]]
    needed += _conditions(flat, flow, touching)
    writers: dict[str, list[int]] = {}
    for index, names in enumerate(written):
        for name in names:
            writers.setdefault(name, []).append(index)
    kept, seen = set(touching), set(needed)
    while needed:
        for index in writers.get(needed.pop(), ()):
            kept.add(index)
            more = read[index] - seen
            seen |= more
            needed += more
    return frozenset(kept)


def between(flow: ControlFlow, number: int) -> Iterator[int]:
    """The blocks that a branch at the end of a block may lead to before its paths meet."""
    end = flow.post_dominators[number]
    seen = {number, EXIT if end is None else end}
    pending = list(flow.blocks[number].successors)
    while pending:
        block = pending.pop()
        if block not in seen:
            seen.add(block)
            yield block
            pending.extend(flow.blocks[block].successors)


def _read(instruction: ptx.Instruction) -> Iterator[str]:
    if instruction.guard is not None:
        yield instruction.guard.register
    is_wmma = instruction.opcode.name == "wmma"  # where its matrices lie does not matter
    for operand in instruction.operands:
        if not (is_wmma and isinstance(operand, ptx.Address)):
            yield from registers_in(operand)


def _touching(
    flat: FlatFunction,
    written: Sequence[tuple[str, ...]],
    read: Sequence[frozenset[str]],
    own: Sequence[bool],
) -> set[int]:
    """Instructions that elements may get to; memory of a thread's own is one place for all."""
    users: dict[str, list[int]] = {}
    for index, names in enumerate(read):
        for name in names:
            users.setdefault(name, []).append(index)
    pending = [
        i for i, instruction in enumerate(flat.instructions) if instruction.opcode.name == "wmma"
    ]
    touching = set(pending)
    carries: set[str] = set()
    in_memory = False
    while pending:
        index = pending.pop()
        more = [name for name in written[index] if name not in carries]
        carries.update(more)
        reached = [user for name in more for user in users.get(name, ())]
        if own[index] and not in_memory:
            in_memory = True
            reached += [i for i, is_own in enumerate(own) if is_own]
        for user in reached:
            if user not in touching:
                touching.add(user)
                pending.append(user)
    return touching


def _conditions(flat: FlatFunction, flow: ControlFlow, touching: set[int]) -> Iterator[str]:
    """Guards of branches that decide whether elements are touched."""
    blocks = {
        block.index
        for block in flow.blocks
        if any(index in touching for index in range(block.start, block.end))
    }
    for block in flow.blocks:
        if block.end <= block.start:
            continue
        guard = flat.instructions[block.end - 1].guard
        if guard is not None and any(other in blocks for other in between(flow, block.index)):
            yield guard.register
