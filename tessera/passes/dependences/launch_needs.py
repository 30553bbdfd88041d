"""What one launch asks of the machine: the kernel's needs, and those of the launch itself.

In: a launch and its kernel's code. Out: `Need`s with the lines that show them. A launch in
clusters, or a cooperative one, has the need whatever the kernel does with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tessera.diagnostics import Span
from tessera.ir.graph.access import Need, NeedKind
from tessera.ir.program import program as ir
from tessera.passes.kernel_facts.operand_names import registers_in
from tessera.wording import Wording

if TYPE_CHECKING:
    from tessera.passes.kernel_facts.kernel_code import KernelCode


def launch_needs(code: KernelCode, launch: ir.Launch) -> tuple[Need, ...]:
    """The needs, one of a kind that the launch itself has first."""
    needs: list[Need] = []
    if launch.cooperative:
        needs.append(
            Need(NeedKind.GRID, Wording("the launch is cooperative"), _grid_line(code, launch))
        )
    if launch.cluster is not None and launch.cluster != (1, 1, 1):
        sizes = "x".join(map(str, launch.cluster))
        needs.append(
            Need(NeedKind.CLUSTER, Wording(f"the launch has clusters of {sizes}"), launch.span)
        )
    for need in code.needs:
        needs.append(Need(need.kind, need.reason, instruction_span(code, need.index)))
    return tuple(needs)


def instruction_span(code: KernelCode, index: int) -> Span | None:
    """Where an instruction stands; the head of the kernel for -1."""
    if index < 0:
        return code.module.span(code.function.at)
    instruction = code.flat.instructions[index]
    return code.module.span(instruction.at, len(str(instruction.opcode)))


def _grid_line(code: KernelCode, launch: ir.Launch) -> Span | None:
    """Where the kernel gets the barrier over the grid; else the launch."""
    for index, instruction in enumerate(code.flat.instructions):
        for operand in instruction.operands:
            if any(name.startswith("%envreg") for name in registers_in(operand)):
                return instruction_span(code, index)
    return launch.span
