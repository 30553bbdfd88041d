"""The part of a kernel that decides which memory it touches.

In: a module and one of its kernels. Out: a `KernelCode`: the blocks of the kernel, calls
followed, each with only the instructions that addresses, guards of accesses, sizes and branches
are computed from (an excerpt), and the accesses.

Floating-point and matrix code is not followed: a register that it writes can hold anything. So the
excerpt leaves out most instructions of a kernel.

Invariant: an instruction that may write a register in `needed` is a step, unless no step reads the
value that it writes (`live_steps`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from tessera.diagnostics import Span
from tessera.ir.opcodes import (
    READ_ROLES,
    Flow,
    Meaning,
    MemoryEffect,
    OperandRole,
    type_bits,
)
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.control_flow import ControlFlow, build_control_flow
from tessera.ir.ptx.flatten import FlatFunction
from tessera.ir.same import Same
from tessera.passes.kernel_facts.call_graph import CallReach, call_reach
from tessera.passes.kernel_facts.doomed_blocks import doomed_blocks, meeting_blocks
from tessera.passes.kernel_facts.hidden_addresses import HiddenAddresses, hidden_addresses
from tessera.passes.kernel_facts.inline_calls import inline_calls
from tessera.passes.kernel_facts.kernel_needs import KernelNeed, kernel_needs
from tessera.passes.kernel_facts.live_steps import ExcerptStep, LiveSteps, live_steps
from tessera.passes.kernel_facts.operand_names import known_meaning, registers_in, written_registers
from tessera.passes.kernel_facts.pointer_uses import valued_parameters
from tessera.passes.kernel_facts.shared_use import (
    SharedUse,
    may_write_shared,
    shared_loads,
    shared_roots,
    shared_steps,
    shared_use,
)
from tessera.passes.lane_values.lane_ops import Function, lane_function

TRACKED = frozenset({"global", "const", "generic", "local", "param", "param::entry", "param::func"})
_FOLLOWED_LOADS = frozenset({"ld", "ldu"})
_MOVES = frozenset({"mov", "cvta", "shfl", "elect"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One instruction that matters. `targets` are the registers it writes, in operand order."""

    index: int
    instruction: ptx.Instruction
    meaning: Meaning
    effects: tuple[MemoryEffect, ...]
    targets: tuple[str, ...]
    function: Function | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KernelCode:
    """A kernel cut down to the instructions that its accesses depend on.

    `doomed` and `meets` come from `doomed_blocks`: the blocks that trap, and the blocks where the
    other paths meet. `shared` is the use of shared memory, if a needed value is loaded from it;
    `unfollowed` is then the kernel without these instructions. `live` has the live registers.
    """

    module: ptx.Module
    function: ptx.Function
    flat: FlatFunction
    flow: ControlFlow
    blocks: tuple[tuple[Step, ...], ...]
    live: LiveSteps
    widths: dict[str, int]
    needed: frozenset[str]
    valued_parameters: frozenset[str]
    doomed: frozenset[int]
    meets: tuple[int | None, ...]
    needs: tuple[KernelNeed, ...]
    calls: CallReach
    shared_writes: frozenset[int]
    hidden: HiddenAddresses
    shared: SharedUse | None = None
    unfollowed: KernelCode | None = None

    def span(self, index: int) -> Span | None:
        """The position of an instruction; -1 is the head of the kernel."""
        if index < 0:
            return self.module.span(self.function.at)
        instruction = self.flat.instructions[index]
        return self.module.span(instruction.at, len(str(instruction.opcode)))

    def opcode_text(self, index: int) -> str:
        """The opcode of an instruction, for messages."""
        return str(self.flat.instructions[index].opcode)


def prepare_kernel(module: ptx.Module, function: ptx.Function) -> KernelCode:
    """Inline the calls of a kernel, cut it into blocks, and keep the instructions that matter.

    A plan asks for the code of a kernel many times: of the trace, and of every way to divide it.
    """
    return _prepared(Same(module), Same(function))


@lru_cache(maxsize=64)
def _prepared(of_module: Same[ptx.Module], of_function: Same[ptx.Function]) -> KernelCode:
    module, function = of_module.value, of_function.value
    flat = inline_calls(module, function)
    flow = build_control_flow(flat)
    # Values of 128 bits are not followed.
    widths = {r.name: min(type_bits(r.type), 64) for r in flat.registers}
    meanings = [known_meaning(instruction) for instruction in flat.instructions]
    needed = _needed_registers(flat, meanings)
    blocks, live = _blocks(flat, flow, meanings, needed)
    doomed = doomed_blocks(flat, flow, module.definitions())
    code = KernelCode(
        module=module,
        function=function,
        flat=flat,
        flow=flow,
        blocks=blocks,
        live=live,
        widths=widths,
        needed=frozenset(needed),
        valued_parameters=valued_parameters(flat, meanings),
        doomed=doomed,
        meets=meeting_blocks(flat, flow, doomed),
        needs=kernel_needs(flat, flow, meanings),
        calls=call_reach(module, flat),
        shared_writes=frozenset(
            i for i, meaning in enumerate(meanings) if may_write_shared(meaning)
        ),
        hidden=hidden_addresses(module, flat, meanings),
    )
    return _with_shared(code, meanings) if shared_loads(flat, meanings, needed) else code


def _with_shared(code: KernelCode, meanings: list[Meaning]) -> KernelCode:
    """The kernel with its instructions on shared memory, from which it loads a needed value."""
    flat = code.flat
    steps = shared_steps(flat, meanings)
    needed = _needed_registers(flat, meanings, steps)
    blocks, live = _blocks(flat, code.flow, meanings, needed, steps)
    return replace(
        code,
        blocks=blocks,
        live=live,
        needed=frozenset(needed),
        shared=shared_use(code.module, flat, meanings, needed, steps),
        unfollowed=code,
    )


def _blocks(
    flat: FlatFunction,
    flow: ControlFlow,
    meanings: list[Meaning],
    needed: set[str],
    kept: frozenset[int] = frozenset(),
) -> tuple[tuple[tuple[Step, ...], ...], LiveSteps]:
    """The instructions that matter, block by block; those in `kept` always matter."""
    excerpts = [
        [
            step
            for index in range(block.start, block.end)
            if (step := _excerpt_step(flat, index, meanings[index], needed, kept)) is not None
        ]
        for block in flow.blocks
    ]
    live = live_steps(flow, excerpts)
    blocks = tuple(
        tuple(
            _step(flat.instructions[step.at], meanings[step.at], step)
            for step in block
            if step.at in live.ends
        )
        for block in excerpts
    )
    return blocks, live


def _needed_registers(
    flat: FlatFunction, meanings: list[Meaning], steps: frozenset[int] = frozenset()
) -> set[str]:
    """The registers from which accesses, branches and `steps` on shared memory are computed."""
    writers: dict[str, list[int]] = {}
    needed: set[str] = set()
    for index, (instruction, meaning) in enumerate(zip(flat.instructions, meanings, strict=True)):
        for name in written_registers(instruction, meaning):
            writers.setdefault(name, []).append(index)
        needed.update(_roots(instruction, meaning))
        if index in steps:
            needed.update(shared_roots(instruction, meaning))
    pending = list(needed)
    while pending:
        for index in writers.get(pending.pop(), ()):
            for name in _sources(flat.instructions[index], meanings[index]):
                if name not in needed:
                    needed.add(name)
                    pending.append(name)
    return needed


def _roots(instruction: ptx.Instruction, meaning: Meaning) -> Iterator[str]:
    """The names that accesses and branches use directly."""
    tracked = tracked_effects(meaning)
    if instruction.opcode.name == "tensormap":
        for operand in instruction.operands:
            yield from registers_in(operand)
    elif not tracked and meaning.flow is Flow.NEXT:
        return
    if instruction.guard is not None:
        yield instruction.guard.register
    if meaning.flow is Flow.INDEXED_BRANCH:
        yield from registers_in(instruction.operands[0])
    for effect in tracked:
        yield from registers_in(instruction.operands[effect.operand])
    if tracked:
        sizes = {OperandRole.SIZE, OperandRole.SOURCE_SIZE}
        for role, operand in zip(meaning.roles, instruction.operands, strict=False):
            if role in sizes or (role is OperandRole.SOURCE and instruction.opcode.name == "wmma"):
                yield from registers_in(operand)
    if any(e.space == "local" or e.space.startswith("param") for e in tracked) or any(
        e.space == "generic" and e.access.writes for e in tracked
    ):
        for role, operand in zip(meaning.roles, instruction.operands, strict=False):
            if role is OperandRole.SOURCE and instruction.opcode.name == "st":
                yield from registers_in(operand)


def tracked_effects(meaning: Meaning) -> tuple[MemoryEffect, ...]:
    """The effects on memory that outlives a CTA, or from which values may be loaded again."""
    return tuple(
        e for e in meaning.effects if e.space in TRACKED or e.space in {"tex", "surf", "fabric"}
    )


def _is_followed(instruction: ptx.Instruction) -> bool:
    return (
        instruction.opcode.name in _MOVES
        or instruction.opcode.name in _FOLLOWED_LOADS
        or lane_function(instruction.opcode) is not None
    )


def _sources(instruction: ptx.Instruction, meaning: Meaning) -> Iterator[str]:
    """The names that the written registers depend on, as far as values are followed."""
    if instruction.guard is not None:
        yield instruction.guard.register
    if not _is_followed(instruction):
        return
    written = {OperandRole.DESTINATION, OperandRole.PREDICATE_DESTINATION}
    for role, operand in zip(meaning.roles, instruction.operands, strict=False):
        if role not in written:
            yield from registers_in(operand)


def _excerpt_step(
    flat: FlatFunction, index: int, meaning: Meaning, needed: set[str], kept: frozenset[int]
) -> ExcerptStep | None:
    """The effect of an instruction on needed registers; None if it does not matter at all."""
    instruction = flat.instructions[index]
    targets = written_registers(instruction, meaning)
    is_root = (
        meaning.flow is not Flow.NEXT
        or OperandRole.TENSOR_MAP in meaning.roles
        or instruction.opcode.name == "tensormap"
        or index in kept
        or bool(tracked_effects(meaning))
    )
    if not is_root and needed.isdisjoint(targets):
        return None
    reads = _reads(instruction, meaning, index in kept)
    replaces = instruction.guard is None
    return ExcerptStep(index, is_root, replaces, targets, tuple(needed.intersection(reads)))


def _reads(instruction: ptx.Instruction, meaning: Meaning, is_kept: bool) -> Iterator[str]:
    """The names that a step may read: more than `_sources`, since the kind of a result that is not
    followed depends on its operands (`hidden_kind`). Values that go to global or shared memory and
    are not loaded again do not count."""
    if instruction.guard is not None:
        yield instruction.guard.register
    places: Iterable[int] = range(len(instruction.operands))
    if instruction.opcode.name == "st" and not is_kept:
        spaces = {effect.space for effect in meaning.effects}
        if all(space == "global" or space.startswith("shared") for space in spaces):
            places = [effect.operand for effect in meaning.effects]
    for place in places:
        if meaning.roles[place] in READ_ROLES:
            yield from registers_in(instruction.operands[place])


def _step(instruction: ptx.Instruction, meaning: Meaning, step: ExcerptStep) -> Step:
    return Step(
        index=step.at,
        instruction=instruction,
        meaning=meaning,
        effects=tracked_effects(meaning),
        targets=step.writes,
        # The result of a form that is not in the table is unknown, whatever its name.
        function=lane_function(instruction.opcode) if meaning.fits else None,
    )
