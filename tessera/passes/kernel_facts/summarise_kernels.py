"""What each function of a PTX module declares and does: the facts that `tessc analyze` prints.

In: a `ptx.Module`. Out: a `ModuleSummary`. Counts are of the text: registers as declared (ptxas
allocates far fewer), instructions as written, static shared memory as the sum of what the
function and everything it calls in this module name. Nothing is concluded about addresses.

Source: PTX ISA 9.0, sections 5.1.6 and 5.1.7 (parameter and shared spaces), 7.1 (calls).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tessera.ir.opcodes import InstructionKind, OperandRole, meaning_of
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.layout import alignment, packed_bytes, size_bytes
from tessera.passes.kernel_facts.call_graph import gather


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterSummary:
    """A parameter or a result. `bytes` is None for an array of open size.

    `pointer_space` is None where the text does not say that the parameter is a pointer; a bare
    `.ptr` gives "generic".
    """

    name: str
    type: str
    bytes: int | None
    align: int
    is_array: bool
    pointer_space: str | None
    pointer_align: int | None


@dataclass(frozen=True, slots=True)
class Count:
    """How many of something: registers of a type, instructions of a class, calls of a function."""

    name: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSummary:
    """A kernel or a device function that has a body."""

    name: str
    is_entry: bool
    linkage: str | None
    line: int | None
    directives: tuple[ptx.Directive, ...]
    returns: tuple[ParameterSummary, ...]
    parameters: tuple[ParameterSummary, ...]
    registers: tuple[Count, ...]
    shared_bytes: int
    uses_dynamic_shared: bool
    local_bytes: int
    instructions: int
    mix: tuple[Count, ...]
    calls: tuple[Count, ...]
    indirect_calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableSummary:
    """A module variable. `bytes` is None for an array of open size."""

    name: str
    space: str
    type: str
    bytes: int | None
    align: int
    linkage: str | None
    is_initialized: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSummary:
    """One PTX module; `declarations` are functions that it names but does not define."""

    version: tuple[int, int]
    target: tuple[str, ...]
    address_size: int | None
    kernels: tuple[FunctionSummary, ...]
    functions: tuple[FunctionSummary, ...]
    declarations: tuple[str, ...]
    variables: tuple[VariableSummary, ...]


def summarise_module(module: ptx.Module) -> ModuleSummary:
    """The summary of every function and variable of a module, in file order."""
    shared = {v.name: v for v in module.variables() if v.space == "shared"}
    known = frozenset(f.name for f in module.functions()) | frozenset(
        item.name for item in module.items if isinstance(item, ptx.Alias)
    )
    defined = [f for f in module.functions() if f.body is not None]
    facts = [_scan(function, shared, known) for function in defined]
    lines = _line_numbers(module, [function.at for function in defined])
    layouts = _shared_layouts(facts, shared)
    summaries = [_summarise(fact, layouts[fact.function.name], lines) for fact in facts]
    bodies = {function.name for function in defined}
    return ModuleSummary(
        version=module.version,
        target=module.target,
        address_size=module.address_size,
        kernels=tuple(s for s in summaries if s.is_entry),
        functions=tuple(s for s in summaries if not s.is_entry),
        declarations=_unique(f.name for f in module.functions() if f.name not in bodies),
        variables=tuple(map(_variable, module.variables())),
    )


# --- one body ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _BodyFacts:
    """What one pass over a body finds; calls are not followed yet."""

    function: ptx.Function
    variables: tuple[ptx.Variable, ...]
    mix: tuple[Count, ...]
    instructions: int
    calls: tuple[Count, ...]
    indirect_calls: int
    shared_names: tuple[str, ...]


def _scan(
    function: ptx.Function, shared: Mapping[str, ptx.Variable], known: frozenset[str]
) -> _BodyFacts:
    variables: list[ptx.Variable] = []
    mix: Counter[InstructionKind] = Counter()
    calls: Counter[str] = Counter()
    shared_names: dict[str, None] = {}
    indirect = 0
    for statement in ptx.walk_statements(function.body or ()):
        if isinstance(statement, ptx.Variable):
            variables.append(statement)
        if not isinstance(statement, ptx.Instruction):
            continue
        meaning = meaning_of(statement)
        mix[meaning.kind if meaning else InstructionKind.UNKNOWN] += 1
        if meaning is not None and OperandRole.FUNCTION in meaning.roles:
            callee = statement.operands[meaning.roles.index(OperandRole.FUNCTION)]
            if isinstance(callee, ptx.Name) and callee.name in known:
                calls[callee.name] += 1
            else:
                indirect += 1
        if len(shared_names) < len(shared):
            shared_names |= dict.fromkeys(n for n in _names(statement.operands) if n in shared)
    return _BodyFacts(
        function=function,
        variables=tuple(variables),
        mix=_counts({kind.value: count for kind, count in mix.items()}),
        instructions=mix.total(),
        calls=tuple(Count(name, count) for name, count in calls.items()),
        indirect_calls=indirect,
        shared_names=tuple(shared_names),
    )


def _names(operands: Iterable[ptx.Operand]) -> Iterator[str]:
    """Every name in operands, however deep."""
    pending: list[object] = list(operands)
    while pending:
        match pending.pop():
            case ptx.Name(name):
                yield name
            case ptx.Address(parts) | ptx.Vector(parts) | ptx.Group(parts):
                pending += parts
            case ptx.Offset(base, displacement):
                pending += (base, displacement)
            case ptx.Subscript(name, index):
                yield name
                pending.append(index)
            case ptx.Binary(_, left, right):
                pending += (left, right)
            case ptx.Unary(_, operand) | ptx.Cast(_, operand) | ptx.Generic(operand):
                pending.append(operand)
            case _:
                pass


# --- the summary -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _SharedLayout:
    """The shared memory that a function takes, with all that it calls."""

    bytes: int
    is_open: bool


def _shared_layouts(
    facts: Sequence[_BodyFacts], shared: Mapping[str, ptx.Variable]
) -> dict[str, _SharedLayout]:
    """The layout of each function: the module's variables first, then those of bodies, in order."""
    table = list(shared.values())
    numbers = {name: number for number, name in enumerate(shared)}
    own: dict[str, list[int]] = {}
    for fact in facts:
        mine = own[fact.function.name] = [numbers[name] for name in fact.shared_names]
        for variable in fact.variables:
            if variable.space == "shared":
                mine.append(len(table))
                table.append(variable)
    calls = {fact.function.name: [call.name for call in fact.calls] for fact in facts}
    made: dict[int, _SharedLayout] = {}
    gathered = gather(calls, own)
    for used in gathered.values():
        if id(used) not in made:  # functions that use the same share the set
            variables = [table[number] for number in sorted(used)]
            is_open = any(size_bytes(variable) is None for variable in variables)
            made[id(used)] = _SharedLayout(packed_bytes(variables), is_open)
    return {name: made[id(used)] for name, used in gathered.items()}


def _summarise(
    facts: _BodyFacts, layout: _SharedLayout, lines: Mapping[int, int]
) -> FunctionSummary:
    function = facts.function
    return FunctionSummary(
        name=function.name,
        is_entry=function.is_entry,
        linkage=function.linkage,
        line=lines.get(function.at),
        directives=function.directives,
        returns=tuple(map(_parameter, function.returns)),
        parameters=tuple(map(_parameter, function.parameters)),
        registers=_registers(facts.variables),
        shared_bytes=layout.bytes,
        uses_dynamic_shared=layout.is_open,
        local_bytes=packed_bytes(v for v in facts.variables if v.space == "local"),
        instructions=facts.instructions,
        mix=facts.mix,
        calls=facts.calls,
        indirect_calls=facts.indirect_calls,
    )


def _line_numbers(module: ptx.Module, offsets: Iterable[int]) -> dict[int, int]:
    """The line of each offset, in one walk over the text; nothing without a text."""
    source = module.source
    if source is None:
        return {}
    lines: dict[int, int] = {}
    line, position = source.first_line, 0
    for offset in sorted(offset for offset in offsets if offset >= 0):
        line += source.text.count("\n", position, offset)
        position = offset
        lines[offset] = line
    return lines


def _parameter(variable: ptx.Variable) -> ParameterSummary:
    space = variable.pointer_space
    return ParameterSummary(
        name=variable.name,
        type=variable.type if variable.vector is None else f"v{variable.vector}.{variable.type}",
        bytes=size_bytes(variable),
        align=alignment(variable),
        is_array=bool(variable.dimensions),
        pointer_space="generic" if space == "" else space,
        pointer_align=variable.pointer_align,
    )


def _variable(variable: ptx.Variable) -> VariableSummary:
    return VariableSummary(
        name=variable.name,
        space=variable.space,
        type=variable.type if variable.vector is None else f"v{variable.vector}.{variable.type}",
        bytes=size_bytes(variable),
        align=alignment(variable),
        linkage=variable.linkage,
        is_initialized=variable.initializer is not None,
    )


def _registers(variables: Iterable[ptx.Variable]) -> tuple[Count, ...]:
    """Declared registers by type, in order of first declaration; a vector is several."""
    counts: Counter[str] = Counter()
    for variable in variables:
        if variable.space == "reg":
            number = 1 if variable.count is None else variable.count
            counts[variable.type] += number * (variable.vector or 1)
    return tuple(Count(type, count) for type, count in counts.items())


def _counts(counts: Mapping[str, int]) -> tuple[Count, ...]:
    """Most frequent first; equal ones by name."""
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return tuple(Count(name, count) for name, count in ordered)


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
