"""The summary that `tessc analyze` prints: the contents of a trace, and the declared functions.

In: a `Program`; a plain PTX file is a program with one module and no steps. Out: a
`ProgramSummary`: its buffers by role, its steps by kind, its launches by kernel, and a
`ModuleSummary` for each variant of each module. Counts are of the text: registers as declared
(ptxas allocates far fewer), instructions as written, static shared memory as the sum of the
variables that the function and its callees in this module name. Addresses are not analysed.

Source: PTX ISA 9.0, sections 5.1.6 and 5.1.7 (parameter and shared spaces), 7.1 (calls).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

from tessera.ir.opcodes import InstructionKind, OperandRole, meaning_of
from tessera.ir.program.program import Launch, LibraryCall, Memcpy, Memset, Program, Role, Triple
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.layout import alignment, packed_bytes, size_bytes
from tessera.passes.kernel_facts.body_contents import body_contents
from tessera.passes.kernel_facts.call_graph import gather
from tessera.passes.kernel_facts.operand_names import registers_in

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RoleTotal:
    """The buffers of one role."""

    role: Role
    buffers: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTotal:
    """The launches of one kernel; the shape is None if they differ in it."""

    module: str
    kernel: str
    launches: int
    grid: Triple | None
    block: Triple | None
    shared_bytes: int | None


@dataclass(frozen=True, slots=True)
class VariantSummary:
    """A module's code for one architecture."""

    module: str
    arch: str
    summary: ModuleSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSummary:
    """One trace or PTX file."""

    roles: tuple[RoleTotal, ...]
    resident: str | None
    streams: int
    memsets: int
    memcpys: int
    library_calls: int
    launches: tuple[LaunchTotal, ...]
    variants: tuple[VariantSummary, ...]


def summarise_program(program: Program) -> ProgramSummary:
    """The summary of a trace or of a PTX file."""
    work = tuple(program.work())
    return ProgramSummary(
        roles=_roles(program),
        resident=program.resident,
        streams=len({step.stream for step in work}),
        memsets=sum(isinstance(step, Memset) for step in work),
        memcpys=sum(isinstance(step, Memcpy) for step in work),
        library_calls=sum(isinstance(step, LibraryCall) for step in work),
        launches=_launches(program),
        variants=tuple(
            VariantSummary(module.name, variant.arch, summarise_module(variant.ptx))
            for module in program.modules
            for variant in module.variants
        ),
    )


def _roles(program: Program) -> tuple[RoleTotal, ...]:
    """Totals of the declared buffers, in the order of `Role`; roles without buffers left out."""
    counts: Counter[Role] = Counter()
    sizes: Counter[Role] = Counter()
    for buffer in program.declared_buffers():
        counts[buffer.role] += 1
        sizes[buffer.role] += buffer.bytes
    return tuple(RoleTotal(role, counts[role], sizes[role]) for role in Role if counts[role])


def _launches(program: Program) -> tuple[LaunchTotal, ...]:
    """Launches by kernel, in the order of the first launch."""
    by_kernel: dict[tuple[str, str], list[Launch]] = {}
    for launch in program.launches():
        module = program.modules[launch.module].name
        by_kernel.setdefault((module, launch.kernel), []).append(launch)
    return tuple(
        LaunchTotal(
            module=module,
            kernel=kernel,
            launches=len(launches),
            grid=_if_same({launch.grid for launch in launches}),
            block=_if_same({launch.block for launch in launches}),
            shared_bytes=_if_same({launch.shared_bytes for launch in launches}),
        )
        for (module, kernel), launches in by_kernel.items()
    )


def _if_same(values: set[_T]) -> _T | None:
    return next(iter(values)) if len(values) == 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterSummary:
    """A parameter or a result. `bytes` is None for an array of open size.

    `pointer_space` is None if the text does not say that the parameter is a pointer; a bare
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
    """A count by name: registers of a type, instructions of a class, calls of a function."""

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
    defined = [f for f in module.functions() if f.has_body]
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
        declarations=tuple(
            dict.fromkeys(f.name for f in module.functions() if f.name not in bodies)
        ),
        variables=tuple(map(_variable, module.variables())),
    )


# --- one body ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _BodyFacts:
    """The facts that one pass over a body finds; calls are not followed yet."""

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
    variables, instructions = body_contents(function)
    mix: Counter[InstructionKind] = Counter()
    calls: Counter[str] = Counter()
    shared_names: dict[str, None] = {}
    indirect = 0
    for instruction, count in instructions:
        meaning = meaning_of(instruction)
        mix[meaning.kind if meaning else InstructionKind.UNKNOWN] += count
        if meaning is not None and OperandRole.FUNCTION in meaning.roles:
            callee = instruction.operands[meaning.roles.index(OperandRole.FUNCTION)]
            if isinstance(callee, ptx.Name) and callee.name in known:
                calls[callee.name] += count
            else:
                indirect += count
        if len(shared_names) < len(shared):
            names = chain.from_iterable(map(registers_in, instruction.operands))
            shared_names |= dict.fromkeys(n for n in names if n in shared)
    return _BodyFacts(
        function=function,
        variables=tuple(variables),
        mix=_counts({kind.value: count for kind, count in mix.items()}),
        instructions=mix.total(),
        calls=tuple(Count(name, count) for name, count in calls.items()),
        indirect_calls=indirect,
        shared_names=tuple(shared_names),
    )


# --- the summary -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _SharedLayout:
    """The shared memory that a function and all its callees take."""

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
        if id(used) not in made:  # functions that use the same variables share the set
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
    """The line of each offset, in one walk over the text; empty without a text."""
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


def _type_text(variable: ptx.Variable) -> str:
    return variable.type if variable.vector is None else f"v{variable.vector}.{variable.type}"


def _parameter(variable: ptx.Variable) -> ParameterSummary:
    space = variable.pointer_space
    return ParameterSummary(
        name=variable.name,
        type=_type_text(variable),
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
        type=_type_text(variable),
        bytes=size_bytes(variable),
        align=alignment(variable),
        linkage=variable.linkage,
        is_initialized=variable.initializer is not None,
    )


def _registers(variables: Iterable[ptx.Variable]) -> tuple[Count, ...]:
    """Declared registers by type, in order of first declaration; a vector counts as several."""
    counts: Counter[str] = Counter()
    for variable in variables:
        if variable.space == "reg":
            number = 1 if variable.count is None else variable.count
            counts[variable.type] += number * (variable.vector or 1)
    return tuple(Count(type, count) for type, count in counts.items())


def _counts(counts: Mapping[str, int]) -> tuple[Count, ...]:
    """The counts, highest first; equal counts by name."""
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return tuple(Count(name, count) for name, count in ordered)
