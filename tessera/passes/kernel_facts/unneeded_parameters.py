"""Parameters whose value no access depends on: seeds, factors, epsilons.

In: the steps of a kernel. Out: the names of these parameters, and a launch without their values.
Launches that differ only in these parameters have the same accesses, so one footprint serves all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tessera.ir.program import program as ir
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.layout import size_bytes
from tessera.passes.kernel_facts.operand_names import registers_in
from tessera.passes.kernel_facts.own_reads import parameter_load

if TYPE_CHECKING:
    from tessera.passes.kernel_facts.kernel_code import KernelCode


def unneeded_parameters(code: KernelCode) -> frozenset[str]:
    """The parameters that no access depends on."""
    sizes = {p.name: size_bytes(p) for p in code.function.parameters}
    used: set[str] = set()
    for step in (step for block in code.blocks for step in block):
        operands = step.instruction.operands
        named = sizes.keys() & {name for o in operands for name in registers_in(o)}
        if not named:
            continue
        if parameter_load(step, sizes) is None:
            # With the address of a parameter, the kernel could read any parameter.
            return frozenset()
        if any(name in code.needed for name in step.targets):
            used |= named
    return frozenset(sizes.keys() - used)


def without_values(
    launch: ir.Launch, function: ptx.Function, unneeded: frozenset[str]
) -> ir.Launch:
    """The launch with zeros for the scalars among these parameters."""
    if not unneeded:
        return launch
    named = zip(function.parameters, launch.arguments, strict=False)
    arguments = tuple(
        replace(argument, bits=0)
        if isinstance(argument, ir.Scalar) and variable.name in unneeded
        else argument
        for variable, argument in named
    )
    return replace(launch, arguments=arguments)
