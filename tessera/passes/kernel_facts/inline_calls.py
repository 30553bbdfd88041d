"""A kernel with its calls inlined.

In: a module and one of its functions. Out: a `FlatFunction` in which a call of a function with a
body is replaced by that body under names of its own (`name@N`), with the caller's variables as its
parameters.
Calls that stay: through a register, of a function that the module only declares, recursive calls,
and calls past the limits on depth and size. Each keeps its instruction; the analyses that read the
result decide what such a call may do.

`rename_instruction` puts other names into an instruction: every register, variable and label that a
map holds is replaced, and the rest stays.

Source: PTX ISA 9.0, sections 7.1 (ABI) and 9.7.12.5 (call).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tessera.ir.opcodes import OperandRole
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.flatten import FlatFunction, LabelIndex, Register, flatten
from tessera.passes.kernel_facts.operand_names import known_meaning

_MOST_INSTRUCTIONS = 200_000
_DEEPEST = 24


@dataclass(slots=True)
class _InlinedBody:
    """The function under construction."""

    instructions: list[ptx.Instruction] = field(default_factory=list)
    labels: list[LabelIndex] = field(default_factory=list)
    registers: list[Register] = field(default_factory=list)
    variables: list[ptx.Variable] = field(default_factory=list)
    targets: list[ptx.TargetList] = field(default_factory=list)
    prototypes: list[ptx.CallPrototype] = field(default_factory=list)
    copies: int = 0


def inline_calls(module: ptx.Module, function: ptx.Function) -> FlatFunction:
    """The function with its calls inlined."""
    flat = flatten(function)
    if not any(i.opcode.name == "call" for i in flat.instructions):
        return flat
    inliner = _Inliner(module.definitions())
    inliner.expand(flat, {}, (function.name,))
    body = inliner.body
    return replace(
        flat,
        instructions=tuple(body.instructions),
        labels=tuple(body.labels),
        registers=tuple(body.registers),
        variables=tuple(body.variables),
        targets=tuple(body.targets),
        prototypes=tuple(body.prototypes),
    )


class _Inliner:
    def __init__(self, functions: Mapping[str, ptx.Function]) -> None:
        self.functions = functions
        self.flat: dict[str, FlatFunction] = {}
        self.body = _InlinedBody()
        self.names: set[str] = set()

    def expand(self, flat: FlatFunction, names: Mapping[str, str], active: tuple[str, ...]) -> None:
        """Append a function whose names are replaced by `names`."""
        body = self.body
        self._declare(flat, names)
        positions: list[int] = []
        leave = names.get("@leave")
        for instruction in flat.instructions:
            positions.append(len(body.instructions))
            renamed = rename_instruction(instruction, names)
            if instruction.opcode.name == "ret" and leave is not None:
                goto = ptx.Opcode("bra")
                renamed = replace(renamed, opcode=goto, operands=(ptx.Name(leave),))
            if instruction.opcode.name != "call" or not self.follow(renamed, active):
                body.instructions.append(renamed)
        positions.append(len(body.instructions))
        for label in flat.labels:
            name = names.get(label.name, label.name)
            body.labels.append(LabelIndex(name, positions[label.index]))

    def _declare(self, flat: FlatFunction, names: Mapping[str, str]) -> None:
        body = self.body
        body.registers += [Register(names.get(r.name, r.name), r.type) for r in flat.registers]
        body.variables += [replace(v, name=names.get(v.name, v.name)) for v in flat.variables]
        self.names.update(v.name for v in body.variables[-len(flat.variables) :])
        for table in flat.targets:
            targets = tuple(names.get(t, t) for t in table.targets)
            body.targets.append(
                replace(table, name=names.get(table.name, table.name), targets=targets)
            )
        body.prototypes += [replace(p, name=names.get(p.name, p.name)) for p in flat.prototypes]

    def follow(self, call: ptx.Instruction, active: tuple[str, ...]) -> bool:
        """Replace a call by its callee; False if that cannot be done."""
        callee, results, arguments = call_parts(call)
        function = self.functions.get(callee or "")
        if function is None or function.name in active or len(active) > _DEEPEST:
            return False
        if len(results) != len(function.returns) or len(arguments) != len(function.parameters):
            return False
        if self._share_variables(arguments, results):
            return False
        flat = self.flat.get(function.name)
        if flat is None:
            flat = self.flat[function.name] = flatten(function)
        if len(self.body.instructions) + len(flat.instructions) > _MOST_INSTRUCTIONS:
            return False
        self.body.copies += 1
        names = _fresh_names(flat, self.body.copies)
        self._bind(call, function, arguments, results, names)
        after = names["@leave"]
        if call.guard is not None:
            skip = ptx.Guard(call.guard.register, not call.guard.negated)
            jump = ptx.Instruction(skip, ptx.Opcode("bra"), (ptx.Name(after),), call.at)
            self.body.instructions.append(jump)
        self._enter(call, function, arguments, names)
        self.expand(flat, names, (*active, function.name))
        self.body.labels.append(LabelIndex(after, len(self.body.instructions)))
        self._return(call, function, results, names)
        return True

    def _bind(
        self,
        call: ptx.Instruction,
        function: ptx.Function,
        arguments: Sequence[ptx.Operand],
        results: Sequence[ptx.Operand],
        names: dict[str, str],
    ) -> None:
        """Map each formal name to the caller's variable, or to a new variable if there is none."""
        formals = (*function.parameters, *function.returns)
        for formal, actual in zip(formals, (*arguments, *results), strict=True):
            if formal.space != "reg" and self._is_variable(actual):
                assert isinstance(actual, ptx.Name)
                names[formal.name] = actual.name
                continue
            names[formal.name] = f"{formal.name}@{self.body.copies}"
            if formal.space == "reg":
                register = Register(names[formal.name], formal.type)
                self.body.registers.append(register)
            else:
                self.body.variables.append(replace(formal, name=names[formal.name]))
                self.names.add(names[formal.name])

    def _share_variables(
        self, arguments: Sequence[ptx.Operand], results: Sequence[ptx.Operand]
    ) -> bool:
        """Whether a result variable has another role too: the callee has a variable for each."""
        given = [operand for operand in (*arguments, *results) if self._is_variable(operand)]
        return any(given.count(operand) > 1 for operand in results)

    def _is_variable(self, actual: ptx.Operand) -> bool:
        return isinstance(actual, ptx.Name) and actual.name in self.names

    def _enter(
        self,
        call: ptx.Instruction,
        function: ptx.Function,
        arguments: Sequence[ptx.Operand],
        names: Mapping[str, str],
    ) -> None:
        for formal, actual in zip(function.parameters, arguments, strict=True):
            if formal.space == "reg":
                self._move(call, formal.type, ptx.Name(names[formal.name]), actual)
            elif not self._is_variable(actual):
                target = ptx.Address((ptx.Name(names[formal.name]),))
                opcode = ptx.Opcode("st", ("param", formal.type))
                self.body.instructions.append(
                    ptx.Instruction(None, opcode, (target, actual), call.at)
                )

    def _return(
        self,
        call: ptx.Instruction,
        function: ptx.Function,
        results: Sequence[ptx.Operand],
        names: Mapping[str, str],
    ) -> None:
        for formal, actual in zip(function.returns, results, strict=True):
            if isinstance(actual, ptx.Sink):
                continue
            if formal.space == "reg":
                self._move(call, formal.type, actual, ptx.Name(names[formal.name]))
            elif not self._is_variable(actual):
                source = ptx.Address((ptx.Name(names[formal.name]),))
                opcode = ptx.Opcode("ld", ("param", formal.type))
                self.body.instructions.append(
                    ptx.Instruction(call.guard, opcode, (actual, source), call.at)
                )

    def _move(
        self, call: ptx.Instruction, type: str, target: ptx.Operand, source: ptx.Operand
    ) -> None:
        opcode = ptx.Opcode("mov", (type,))
        self.body.instructions.append(
            ptx.Instruction(call.guard, opcode, (target, source), call.at)
        )


def call_parts(
    call: ptx.Instruction,
) -> tuple[str | None, tuple[ptx.Operand, ...], tuple[ptx.Operand, ...]]:
    """The callee (or the register that holds it), the results and the arguments of a call."""
    callee: str | None = None
    results: tuple[ptx.Operand, ...] = ()
    arguments: tuple[ptx.Operand, ...] = ()
    for role, operand in zip(known_meaning(call).roles, call.operands, strict=True):
        match role, operand:
            case OperandRole.FUNCTION, ptx.Name(name=name):
                callee = name
            case OperandRole.RESULTS, ptx.Group(elements=elements):
                results = elements
            case OperandRole.ARGUMENTS, ptx.Group(elements=elements):
                arguments = elements
    return callee, results, arguments


def _fresh_names(flat: FlatFunction, copy: int) -> dict[str, str]:
    declared = [r.name for r in flat.registers]
    declared += [v.name for v in flat.variables if v.space not in {"global", "const"}]
    declared += [label.name for label in flat.labels]
    declared += [t.name for t in flat.targets] + [p.name for p in flat.prototypes]
    names = {name: f"{name}@{copy}" for name in declared}
    names["@leave"] = f"@leave@{copy}"
    return names


Names = Mapping[str, str]


def rename_instruction(instruction: ptx.Instruction, names: Names) -> ptx.Instruction:
    """Replace every name in an instruction, including the name in its guard."""
    if not names:
        return instruction
    guard = instruction.guard
    if guard is not None:
        guard = replace(guard, register=names.get(guard.register, guard.register))
    operands = tuple(rename_operand(o, names) for o in instruction.operands)
    return replace(instruction, guard=guard, operands=operands)


def rename_operand(operand: ptx.Operand, names: Names) -> ptx.Operand:
    """Replace every name in an operand."""
    match operand:
        case ptx.Name():
            return _name(operand, names)
        case ptx.Not() | ptx.Negated():
            return replace(operand, operand=_name(operand.operand, names))
        case ptx.Pair():
            first = rename_operand(operand.first, names)
            second = rename_operand(operand.second, names)
            assert isinstance(first, ptx.Name | ptx.Sink | ptx.Vector)
            assert isinstance(second, ptx.Name | ptx.Sink)
            return ptx.Pair(first, second)
        case ptx.Vector():
            return ptx.Vector(tuple(rename_operand(e, names) for e in operand.elements))
        case ptx.Group():
            return ptx.Group(tuple(rename_operand(e, names) for e in operand.elements))
        case ptx.Address():
            parts = tuple(rename_operand(p, names) for p in operand.parts)
            return ptx.Address(parts, operand.suffix)
        case ptx.Offset():
            displacement = _constant(operand.displacement, names)
            return ptx.Offset(_name(operand.base, names), displacement)
        case ptx.Subscript():
            index = operand.index
            if isinstance(index, ptx.Offset):
                renamed = rename_operand(index, names)
                assert isinstance(renamed, ptx.Offset)
                return ptx.Subscript(names.get(operand.name, operand.name), renamed)
            return ptx.Subscript(names.get(operand.name, operand.name), _constant(index, names))
        case ptx.Sink():
            return operand
        case _:
            return _constant(operand, names)


def _name(name: ptx.Name, names: Names) -> ptx.Name:
    new_name = names.get(name.name)
    return name if new_name is None else ptx.Name(new_name, name.component)


def _constant(constant: ptx.Constant, names: Names) -> ptx.Constant:
    match constant:
        case ptx.Name():
            return _name(constant, names)
        case ptx.Unary() | ptx.Cast():
            return replace(constant, operand=_constant(constant.operand, names))
        case ptx.Binary():
            left, right = _constant(constant.left, names), _constant(constant.right, names)
            return ptx.Binary(constant.operator, left, right)
        case _:
            return constant
