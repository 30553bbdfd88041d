"""Requirements of a kernel on the machine: CTAs that run together, values that the machine chooses.

In: the instructions of a kernel, calls followed. Out: `KernelNeed`s, each with the instruction
that causes it. There are four causes:
- special registers whose value depends on the place and time at which a thread runs (`%smid`,
  clocks);
- loops that wait: an exit of the loop depends on memory that is read with `volatile`, `acquire`
  or `relaxed`, or tried with `atom.cas` or `atom.exch`. A compare-and-swap whose expected value
  changes in the loop is not waiting (it fails only if another thread succeeded), nor is a counter
  that advances in each round;
- instructions and directives of clusters;
- printing.

Nothing here changes which bytes a launch touches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tessera.ir.graph.access import NeedKind
from tessera.ir.opcodes import Meaning, OperandRole, ThreadScope
from tessera.ir.opcodes.special_registers import Varies, special_register
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.constants import integer_value
from tessera.ir.ptx.control_flow import ControlFlow, Loop
from tessera.ir.ptx.flatten import FlatFunction
from tessera.passes.kernel_facts.inline_calls import call_parts
from tessera.passes.kernel_facts.operand_names import registers_in
from tessera.wording import Wording

_STRONG = frozenset({"volatile", "acquire", "relaxed"})
_OUTSIDE = frozenset({"global", "generic"})
_PRINTERS = frozenset({"vprintf"})
_WRITTEN = frozenset(
    {OperandRole.DESTINATION, OperandRole.DESTINATION_SOURCE, OperandRole.PREDICATE_DESTINATION}
)


@dataclass(frozen=True, slots=True)
class KernelNeed:
    """One need; `index` is an instruction, or -1 for the head of the kernel."""

    kind: NeedKind
    index: int
    reason: Wording


def kernel_needs(
    flat: FlatFunction, flow: ControlFlow, meanings: Sequence[Meaning]
) -> tuple[KernelNeed, ...]:
    """The needs of a kernel, in the order of its instructions; each reason once."""
    needs = sorted(
        [
            *_head_needs(flat),
            *_instruction_needs(flat, flow, meanings),
            *_waiting(flat, flow, meanings),
        ],
        key=lambda need: need.index,
    )
    return tuple({(need.kind, need.reason): need for need in reversed(needs)}.values())[::-1]


def _head_needs(flat: FlatFunction) -> Iterator[KernelNeed]:
    for directive in flat.function.directives:
        if directive.name.lstrip(".") in {"reqnctapercluster", "explicitcluster"}:
            yield KernelNeed(
                NeedKind.CLUSTER, -1, Wording(f"the kernel asks for it by `{directive.name}`")
            )


def _instruction_needs(
    flat: FlatFunction, flow: ControlFlow, meanings: Sequence[Meaning]
) -> Iterator[KernelNeed]:
    for block in flow.blocks:
        if not block.reachable:
            continue
        for index in range(block.start, block.end):
            instruction, meaning = flat.instructions[index], meanings[index]
            yield from _machine_registers(instruction, index)
            if meaning.scope is ThreadScope.CLUSTER or instruction.opcode.name == "mapa":
                reason = Wording(f"the kernel uses `{instruction.opcode}`")
                yield KernelNeed(NeedKind.CLUSTER, index, reason)
            if instruction.opcode.name == "call" and call_parts(instruction)[0] in _PRINTERS:
                yield KernelNeed(NeedKind.OUTPUT, index, Wording("it calls `vprintf`"))


def _machine_registers(instruction: ptx.Instruction, index: int) -> Iterator[KernelNeed]:
    for operand in instruction.operands:
        for name in registers_in(operand):
            if not name.startswith("%"):
                continue
            special = special_register(name)
            if special is not None and special.varies is Varies.MACHINE:
                yield KernelNeed(NeedKind.MACHINE, index, Wording(f"the kernel reads `{name}`"))


# --- waiting ---------------------------------------------------------------------------------


def _waiting(
    flat: FlatFunction, flow: ControlFlow, meanings: Sequence[Meaning]
) -> Iterator[KernelNeed]:
    for loop in flow.loops:
        index = _polled(flat, flow, meanings, loop)
        if index is not None:
            text = flat.instructions[index].opcode
            yield KernelNeed(
                NeedKind.WAIT, index, Wording(f"a loop ends when `{text}` sees another value")
            )


def _polled(
    flat: FlatFunction, flow: ControlFlow, meanings: Sequence[Meaning], loop: Loop
) -> int | None:
    """The memory access that an exit of the loop waits for, or None."""
    inside = [i for b in loop.blocks for i in range(flow.blocks[b].start, flow.blocks[b].end)]
    writers: dict[str, list[int]] = {}
    for index in inside:
        for role, operand in zip(
            meanings[index].roles, flat.instructions[index].operands, strict=False
        ):
            if role in _WRITTEN:
                for name in registers_in(operand):
                    writers.setdefault(name, []).append(index)
    varying = {
        name
        for name, places in writers.items()
        if not all(_is_constant(flat.instructions[place]) for place in places)
    }
    pending = list(dict.fromkeys(_exit_guards(flat, flow, loop)))
    seen = set(pending)
    while pending:
        for index in writers.get(pending.pop(0), ()):
            instruction = flat.instructions[index]
            if _waits_for(instruction, meanings[index], varying):
                return index
            for name in _sources(instruction, meanings[index]):
                if name not in seen:
                    seen.add(name)
                    pending.append(name)
    return None


def _exit_guards(flat: FlatFunction, flow: ControlFlow, loop: Loop) -> Iterator[str]:
    for number in loop.blocks:
        block = flow.blocks[number]
        last = flat.instructions[block.end - 1]
        leaves = last.opcode.name in {"ret", "exit"}
        if not leaves and set(block.successors) <= set(loop.blocks):
            continue
        if last.guard is not None:
            yield last.guard.register
        if last.opcode.name == "brx":
            yield from registers_in(last.operands[0])


def _sources(instruction: ptx.Instruction, meaning: Meaning) -> Iterator[str]:
    if instruction.guard is not None:
        yield instruction.guard.register
    for role, operand in zip(meaning.roles, instruction.operands, strict=False):
        if role not in _WRITTEN or role is OperandRole.DESTINATION_SOURCE:
            yield from registers_in(operand)


def _is_constant(instruction: ptx.Instruction) -> bool:
    return instruction.opcode.name == "mov" and isinstance(instruction.operands[-1], ptx.Integer)


def _waits_for(instruction: ptx.Instruction, meaning: Meaning, varying: set[str]) -> bool:
    """Whether an instruction polls memory: the same access in every round."""
    if not any(e.space in _OUTSIDE and e.access.reads for e in meaning.effects):
        return False
    modifiers = set(instruction.opcode.modifiers)
    if instruction.opcode.name == "ld":
        return bool(_STRONG & modifiers)
    if instruction.opcode.name != "atom" or len(instruction.operands) < 3:
        return False
    tried = instruction.operands[2]
    if modifiers & {"cas", "exch"}:
        return not any(name in varying for name in registers_in(tried))
    # An atomic that changes nothing is a load.
    return isinstance(tried, ptx.Integer) and integer_value(tried) == 0
