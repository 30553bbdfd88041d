"""Kernels whose results depend on the layout of `wmma` fragments.

In: a module and a kernel. Out: the first instruction that depends on the layout, or None. PTX does
not specify which element of a matrix a lane's register holds after `wmma.load` and `wmma.mma`; the
layout differs between GPUs, and the CPU backend has its own. Fragments may go to `wmma.mma` and
`wmma.store`, and all elements of a fragment may be changed in the same way. Every other use depends
on the layout: storing the registers, passing them to other lanes or to `mma.sync`, adding up
elements, changing only some of them, making fragments of other values. The operands and results of
`mma.sync` have a specified layout.

The values of registers (`fragment_steps`) are followed along the control flow until nothing
changes. Only two kinds of instructions are followed (`fragment_slice`): those that elements may
reach, and those that compute operands for them; most of a kernel is neither. If lanes diverge at a
branch, changes up to the point where its paths meet count as changes under a condition, unless
`wmma` is used there: then all lanes take the branch in the same direction. The result is a hint for
people and not a proof: values are not followed through shared memory, nor through local memory at
computed addresses (unoptimised code).

Source: PTX ISA 9.0, section 9.7.14.4 (wmma).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tessera.diagnostics import Diagnostic, warning
from tessera.ir.opcodes import Meaning
from tessera.ir.program import program as ir
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.control_flow import EXIT, ControlFlow, build_control_flow
from tessera.ir.ptx.flatten import FlatFunction
from tessera.passes.kernel_facts.fragment_steps import (
    JOINED,
    FragmentSteps,
    FragmentValue,
    Holds,
    State,
    Use,
    combine,
    join,
)
from tessera.passes.kernel_facts.inline_calls import inline_calls
from tessera.passes.kernel_facts.operand_names import registers_in, written_registers

_MOST_ROUNDS = 50


@dataclass(frozen=True, slots=True)
class LayoutUse:
    """The instruction that depends on the layout, and the kind of use in words."""

    instruction: ptx.Instruction
    how: str


def find_layout_use(module: ptx.Module, function: ptx.Function) -> LayoutUse | None:
    """The first use of the layout of fragments, in the order of the text."""
    flat = inline_calls(module, function)
    if not any(instruction.opcode.name == "wmma" for instruction in flat.instructions):
        return None
    uses = _FragmentWalk(flat).uses()
    if not uses:
        return None
    index = min(uses)
    return LayoutUse(flat.instructions[index], uses[index])


def layout_warnings(program: ir.Program) -> Iterator[Diagnostic]:
    """A warning for each kernel that depends on the layout: launched ones, or all in plain PTX."""
    launched = {(step.module, step.kernel) for step in program.launches()}
    for module in program.modules:
        told: set[str] = set()
        for variant in module.variants:
            if variant.text and "wmma" not in variant.text:
                continue
            for kernel in variant.ptx.kernels():
                wanted = not launched or (module.id, kernel.name) in launched
                if kernel.name in told or kernel.body is None or not wanted:
                    continue
                use = find_layout_use(variant.ptx, kernel)
                if use is not None:
                    told.add(kernel.name)
                    yield _finding(f"{module.name}.{kernel.name}", variant.ptx, use)


def _finding(name: str, module: ptx.Module, use: LayoutUse) -> Diagnostic:
    opcode = use.instruction.opcode
    return warning(
        "TSR2016",
        f"`{name}` depends on how `wmma` lays fragments out: {use.how}",
        module.span(use.instruction.at, len(str(opcode))),
        "which element of the matrix this is differs from GPU to GPU",
        notes=("the CPU backend has a layout of its own, so results differ from those of a GPU",),
        hint="write fragments with `wmma.store`, or use `mma.sync`, whose layout is specified",
    )


class _FragmentWalk:
    """The values of registers at the start of each block, until they are stable."""

    def __init__(self, flat: FlatFunction) -> None:
        self.flat = flat
        self.flow = build_control_flow(flat)
        self.steps = FragmentSteps(flat)
        matters = fragment_slice(flat, self.flow, self.steps.meanings)
        self.indices = [
            [index for index in range(block.start, block.end) if index in matters]
            for block in self.flow.blocks
        ]
        self.before: dict[int, State] = {0: {}}
        self.conditions: dict[int, FragmentValue] = {}

    def uses(self) -> dict[int, str]:
        """The instructions that depend on the layout, each with the kind of use in words."""
        for _ in range(_MOST_ROUNDS):
            if not self._round():
                break
        layout_uses: list[Use] = []
        for number in self.flow.order:
            self._block(number, layout_uses)
        return dict(layout_uses)

    def _round(self) -> bool:
        """Walk all blocks once; return whether anything changed."""
        changed = False
        for number in self.flow.order:
            after = self._block(number, [])
            for target in self.flow.blocks[number].successors:
                changed |= self._meet(target, after)
            changed |= self._part(number, after)
        return changed

    def _block(self, number: int, layout_uses: list[Use]) -> State:
        state = dict(self.before.get(number, {}))
        condition = self.conditions.get(number, FragmentValue())
        for index in self.indices[number]:
            self.steps.step(index, state, condition, layout_uses)
        return state

    def _meet(self, target: int, after: State) -> bool:
        known = self.before.get(target)
        if known is None:
            self.before[target] = dict(after)
            return True
        changed = False
        for name in {**known, **after}:
            if known.get(name) is after.get(name):
                continue
            met = join(self.steps.held(known, name), self.steps.held(after, name))
            if met != known.get(name):
                known[name] = met
                changed = True
        return changed

    def _part(self, number: int, after: State) -> bool:
        """Record the condition of a branch for the blocks that depend on it."""
        last = self.flat.instructions[self.flow.blocks[number].end - 1]
        if last.guard is None or len(self.flow.blocks[number].successors) < 2:
            return False
        condition = self.steps.held(after, last.guard.register)
        if condition.holds is Holds.UNIFORM:
            return False
        inside = list(between(self.flow, number))
        if any(self._has_wmma(block) for block in inside):
            return False
        changed = False
        for block in inside:
            old = self.conditions.get(block, FragmentValue())
            new = combine((old, condition), JOINED)
            changed |= new != old
            self.conditions[block] = new
        return changed

    def _has_wmma(self, number: int) -> bool:
        block = self.flow.blocks[number]
        return any(
            instruction.opcode.name == "wmma"
            for instruction in self.flat.instructions[block.start : block.end]
        )


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
    is_wmma = instruction.opcode.name == "wmma"  # the addresses of its matrices do not matter
    for operand in instruction.operands:
        if not (is_wmma and isinstance(operand, ptx.Address)):
            yield from registers_in(operand)


def _touching(
    flat: FlatFunction,
    written: Sequence[tuple[str, ...]],
    read: Sequence[frozenset[str]],
    own: Sequence[bool],
) -> set[int]:
    """Instructions that elements may reach; a thread's own memory counts as a single place."""
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
