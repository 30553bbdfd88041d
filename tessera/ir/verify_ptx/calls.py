"""What must hold of a call: its target is a function, and its arguments fit the parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tessera.diagnostics import Diagnostic, Label, error
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.locate import name_span, operand_span
from tessera.ir.verify_ptx.declarations import argument_fault
from tessera.ir.verify_ptx.operands import operand_word


def call_faults(
    module: ptx.Module,
    call: ptx.Instruction,
    functions: Mapping[str, ptx.Function],
    kinds: Mapping[str, str],
) -> Iterator[Diagnostic]:
    """Hold a direct call against the function that it names."""
    groups = [index for index, o in enumerate(call.operands) if isinstance(o, ptx.Group)]
    first = 1 if groups[:1] == [0] else 0
    target = call.operands[first] if first < len(call.operands) else None
    if not isinstance(target, ptx.Name):
        return
    if kinds.get(target.name, "?")[0] in "=:#":
        span = operand_span(module, call, first)
        yield error("TSR1024", f"`{target.name}` is no function", span)
        return
    function = functions.get(target.name)
    if function is None or any(None in v.dimensions for v in function.parameters):
        return
    results = _length(call.operands[0]) if first else 0
    rest = call.operands[first + 1 :]
    arguments = _length(rest[0]) if rest else 0
    wanted, got = (len(function.returns), len(function.parameters)), (results, arguments)
    if function.is_entry or wanted != got:
        yield _wrong_call(module, call, function, first, wanted, got)
        return
    yield from _argument_faults(module, call, function.returns, 0 if first else None, kinds)
    last = first + 1 if rest else None
    yield from _argument_faults(module, call, function.parameters, last, kinds)


def _argument_faults(
    module: ptx.Module,
    call: ptx.Instruction,
    formals: tuple[ptx.Variable, ...],
    index: int | None,
    kinds: Mapping[str, str],
) -> Iterator[Diagnostic]:
    group = None if index is None else call.operands[index]
    if not isinstance(group, ptx.Group) or index is None:
        return
    for formal, argument in zip(formals, group.elements, strict=False):
        fault = argument_fault(formal, operand_word(argument, kinds), is_result=index == 0)
        if fault is not None:
            headline = f"the argument for `{formal.name}` does not fit: {fault}"
            yield error("TSR1028", headline, operand_span(module, call, index))
            return


def _wrong_call(
    module: ptx.Module,
    call: ptx.Instruction,
    function: ptx.Function,
    index: int,
    wanted: tuple[int, int],
    got: tuple[int, int],
) -> Diagnostic:
    name = function.name
    headline = f"a kernel cannot be called: `{name}`"
    if not function.is_entry:
        headline = (
            f"`{name}` has {wanted[1]} parameters and {wanted[0]} results, "
            f"and is called with {got[1]} and {got[0]}"
        )
    declared = name_span(module, function.at, name)
    secondary = () if declared is None else (Label(declared, "declared here"),)
    return error("TSR1024", headline, operand_span(module, call, index), secondary=secondary)


def _length(operand: ptx.Operand) -> int:
    return len(operand.elements) if isinstance(operand, ptx.Group) else 0
