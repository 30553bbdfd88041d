"""A kernel's body as steps for `ThreadWalk`: registers by number, data work summed up.

In: a function. Out: `ThreadCode`. Only registers that guards, sizes of copies or matrix descriptors
are computed from have a place; instructions between them are one step with their effects added up.
`axes` says which indices any of this may depend on (see `live_registers`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tessera.ir.opcodes import type_bits
from tessera.ir.ptx import syntax as ptx
from tessera.passes.kernel_facts.operand_names import registers_in
from tessera.planning.prices.integer_functions import Integers, plain_function
from tessera.planning.prices.live_registers import (
    axes,
    computes,
    deciding,
    live_registers,
    packed,
    targets,
)
from tessera.planning.prices.loop_forms import LineRule
from tessera.planning.prices.work_effects import Effect, effect_of

_ENDS = ("ret", "exit", "trap")
_LOADS = frozenset({"ld", "ldu", "atom", "ldmatrix", "tex", "tld4", "suld", "tcgen05"})
_LOOK_AHEAD = 40

NUMBER, PLACE, NEGATED = 0, 1, 2
Source = tuple[int, int]  # a number, the place of a register, or that of a predicate's opposite


@dataclass(frozen=True, slots=True)
class ThreadStep:
    """One step: `count` instructions with one effect, then an assignment, a branch or an end."""

    effect: Effect
    guard: int = -1
    negated: bool = False
    target: int = -1
    voided: tuple[int, ...] = ()
    sources: tuple[Source, ...] | None = None
    function: Integers | None = None
    opcode: ptx.Opcode | None = None
    rule: LineRule | None = None
    parameter: str | None = None
    special: str = ""
    size: Source | None = None
    jump: int = -1
    ends: bool = False
    dies: bool = False
    simple: bool = False


@dataclass(frozen=True, slots=True)
class ThreadCode:
    """Steps, names of places, the indices that the path may depend on, registers of a thread."""

    steps: tuple[ThreadStep, ...]
    places: dict[str, int]
    axes: int
    registers: int


@dataclass(slots=True)
class _Flat:
    """Statements in a row with the labels that each sees. Private and mutable."""

    code: list[ptx.Instruction] = field(default_factory=list)
    scopes: list[dict[str, int]] = field(default_factory=list)
    seen: list[tuple[dict[str, int], ...]] = field(default_factory=list)

    def add(self, body: tuple[ptx.Statement, ...]) -> None:
        """Flatten a body; labels of an inner block hide those around it."""
        self.scopes.append({})
        for statement in body:
            if isinstance(statement, ptx.LabelStatement):
                self.scopes[-1][statement.name] = len(self.code)
            elif isinstance(statement, ptx.Block):
                self.add(statement.statements)
            elif isinstance(statement, ptx.Instruction):
                self.code.append(statement)
                self.seen.append(tuple(self.scopes))
        self.scopes.pop()

    def target(self, at: int) -> int:
        """The target of a branch; the next instruction if its label is unknown."""
        operands = self.code[at].operands
        operand = operands[0] if operands else None
        if isinstance(operand, ptx.Name):
            for scope in reversed(self.seen[at]):
                if operand.name in scope:
                    return scope[operand.name]
        return at + 1


def thread_code(function: ptx.Function) -> ThreadCode:
    """The steps of a function with a body."""
    flat = _Flat()
    flat.add(function.body or ())
    effects = _with_indexed(function, flat.code, [effect_of(s) for s in flat.code])
    names = deciding(flat.code, effects)
    hangs_on = axes(flat.code, effects)
    places = {name: place for place, name in enumerate(sorted(names))}
    for statement in flat.code:
        for part in packed(statement):
            if part.partition("#")[0] in names:
                places.setdefault(part, len(places))
    goes = {n: flat.target(n) for n, s in enumerate(flat.code) if s.opcode.name == "bra"}
    registers = live_registers(function, flat.code, goes)
    return ThreadCode(_compact(flat, effects, places, goes), places, hangs_on, registers)


def _with_indexed(
    function: ptx.Function, code: list[ptx.Instruction], effects: list[Effect]
) -> list[Effect]:
    """The effects, with the bytes requested at addresses that are computed from data.

    Data is the result of any load except of the kernel's parameters, and everything computed from
    it, without regard to order.
    """
    if not any(effect.asked for effect in effects):
        return effects
    parameters = {parameter.name for parameter in function.parameters}
    reads = [{name for operand in s.operands for name in registers_in(operand)} for s in code]
    data = {
        name
        for s, own in zip(code, reads, strict=True)
        if s.opcode.name in _LOADS and not own & parameters
        for name in targets(s)
    }
    while True:
        more = {n for s, own in zip(code, reads, strict=True) if own & data for n in targets(s)}
        if more <= data:
            break
        data |= more
    return [
        replace(effect, indexed=effect.asked) if effect.asked and _addresses(s) & data else effect
        for s, effect in zip(code, effects, strict=True)
    ]


def _addresses(statement: ptx.Instruction) -> set[str]:
    """The registers in the addresses of an instruction."""
    return {
        name
        for operand in statement.operands
        if isinstance(operand, ptx.Address)
        for name in registers_in(operand)
    }


def _compact(
    flat: _Flat, effects: list[Effect], places: dict[str, int], goes: dict[int, int]
) -> tuple[ThreadStep, ...]:
    """Steps, with each run of instructions that decide nothing merged into one."""
    entries = set(goes.values())
    steps: list[ThreadStep] = []
    first_step: dict[int, int] = {}
    run: list[Effect] = []

    def close() -> None:
        steps.extend(ThreadStep(effect) for effect in _summed(run))
        run.clear()

    for at, statement in enumerate(flat.code):
        if at in entries:
            close()
        made, *parts = _steps(statement, effects[at], places, goes.get(at, -1))
        plain = made.guard < 0 and not made.ends and made.jump < 0 and made.size is None
        if plain and made.target < 0 and not made.voided:
            if not run:
                first_step[at] = len(steps)
            run.append(effects[at])
            continue
        close()
        first_step[at] = len(steps)
        dies = (made.jump >= 0 or made.ends) and _dies(flat.code, at + 1)
        steps.extend((replace(made, dies=dies), *parts))
    close()
    first_step[len(flat.code)] = len(steps)
    return tuple(
        replace(
            step,
            jump=first_step[step.jump] if step.jump >= 0 else -1,
            simple=replace(step.effect, instructions=1) == Effect(),
        )
        for step in steps
    )


def _summed(run: list[Effect]) -> list[Effect]:
    """The effects of a run in as few records as there are units."""
    units: dict[str, float] = {}
    for effect in run:
        if effect.operations:
            units[effect.unit] = units.get(effect.unit, 0.0) + effect.operations
    if not run:
        return []
    whole = Effect(
        instructions=len(run),
        asked=sum(e.asked for e in run),
        indexed=sum(e.indexed for e in run),
        shared=sum(e.shared for e in run),
        loads=sum(e.loads for e in run),
        barriers=sum(e.barriers for e in run),
        waits=sum(e.waits for e in run),
        memory=sum(e.memory for e in run),
    )
    return [whole, *(Effect(0, unit, operations) for unit, operations in units.items())]


def _steps(
    statement: ptx.Instruction, effect: Effect, places: dict[str, int], jump: int
) -> list[ThreadStep]:
    """The steps of an instruction: one, or one for each part that a `mov` packs or unpacks."""
    made = _step(statement, effect, places, jump)
    if statement.opcode.name != "mov" or len(statement.operands) != 2:
        return [made]
    target, source = statement.operands
    bits = type_bits(statement.opcode.modifiers[-1])
    found: list[ThreadStep] = []
    if isinstance(target, ptx.Vector) and isinstance(source, ptx.Name):
        wide = bits // len(target.elements)
        for n, element in enumerate(target.elements):
            place = places.get(element.name, -1) if isinstance(element, ptx.Name) else -1
            if place >= 0:
                found.append(_part(replace(made, target=place), source.name, n, wide, places))
    elif isinstance(target, ptx.Name) and isinstance(source, ptx.Vector) and made.voided:
        wide = bits // len(source.elements)
        sources = [_source(element, places) for element in source.elements]
        for name, one in zip(packed(statement), sources, strict=True):
            found.append(_copied(replace(made, target=places[name]), one, wide))
        whole = tuple(one for one in sources if one is not None)
        if len(whole) == len(sources):
            joined = replace(made, target=places[target.name], sources=whole, function=_glue(wide))
            found.append(joined)
    if not found:
        return [made]
    return [made, *(replace(step, voided=(), effect=Effect(0)) for step in found)]


def _copied(step: ThreadStep, source: Source | None, bits: int) -> ThreadStep:
    if source is None:
        return step
    return replace(
        step, sources=(source,), function=_cut(0, bits), rule=LineRule("line", bits, bits)
    )


def _part(step: ThreadStep, name: str, n: int, bits: int, places: dict[str, int]) -> ThreadStep:
    """Read a part of a register: directly if it was packed, or from the whole register."""
    part = places.get(f"{name}#{n}")
    if part is not None:
        return _copied(step, (PLACE, part), bits)
    whole = places.get(name)
    if whole is None:
        return step
    return replace(step, sources=((PLACE, whole),), function=_cut(n * bits, bits))


def _cut(low: int, bits: int) -> Integers:
    return lambda value: value >> low & ((1 << bits) - 1)


def _glue(bits: int) -> Integers:
    mask = (1 << bits) - 1
    return lambda *parts: sum((part & mask) << (n * bits) for n, part in enumerate(parts))


def _step(
    statement: ptx.Instruction, effect: Effect, places: dict[str, int], jump: int
) -> ThreadStep:
    guard = statement.guard
    opcode = statement.opcode
    written = targets(statement)
    parts = [f"{name}#{n}" for name in written for n in range(8)]
    kept = [places[name] for name in (*written, *parts) if name in places]
    step = ThreadStep(
        effect,
        guard=-1 if guard is None else places[guard.register],
        negated=guard is not None and guard.negated,
        voided=tuple(kept),
        size=None if effect.size is None else _source(effect.size, places),
        jump=jump,
        ends=opcode.name in _ENDS,
    )
    if not kept or not computes(statement):
        return step
    target, *given = statement.operands
    if opcode.name in ("elect", "mbarrier"):
        return _predicate(step, opcode, target, places)
    if isinstance(target, ptx.Pair):
        target = target.first
    if not isinstance(target, ptx.Name) or target.component or target.name not in places:
        return step
    place = places[target.name]
    step = replace(step, target=place, voided=tuple(t for t in kept if t != place))
    if opcode.name == "ld":
        name = _parameter(given[0]) if opcode.modifiers[:1] == ("param",) else None
        return replace(step, parameter=name)
    if opcode.name == "shfl":
        return _shuffle(step, opcode, given, places)
    sources = [_source(operand, places) for operand in given]
    if any(source is None for source in sources):
        return step
    known = plain_function(opcode, len(given))
    return replace(
        step,
        sources=tuple(source for source in sources if source is not None),
        opcode=opcode,
        function=None if known is None else known[0],
        rule=None if known is None else known[1],
    )


def _predicate(
    step: ThreadStep, opcode: ptx.Opcode, target: ptx.Operand, places: dict[str, int]
) -> ThreadStep:
    """The predicate of an election (`elect`), or of a wait, which counts as ended."""
    if isinstance(target, ptx.Pair):
        target = target.second
    waits = any(m in ("try_wait", "test_wait") for m in opcode.modifiers)
    if not isinstance(target, ptx.Name) or (opcode.name == "mbarrier" and not waits):
        return step
    return replace(step, special=opcode.name, target=places.get(target.name, -1))


def _shuffle(
    step: ThreadStep, opcode: ptx.Opcode, given: list[ptx.Operand], places: dict[str, int]
) -> ThreadStep:
    """A value that lane 0 broadcasts to its warp: compilers do so with warp-uniform values."""
    source = _source(given[0], places)
    lane = given[1] if len(given) > 1 else None
    if source is None or "idx" not in opcode.modifiers or not isinstance(lane, ptx.Integer):
        return step
    copied = plain_function(ptx.Opcode("mov", ("b32",)), 1)
    if copied is None:
        return step
    return replace(step, sources=(source,), function=copied[0], rule=copied[1])


def _source(operand: ptx.Operand, places: dict[str, int]) -> Source | None:
    match operand:
        case ptx.Integer():
            return NUMBER, operand.value
        case ptx.Unary(operator="-", operand=ptx.Integer(value=value)):
            return NUMBER, -value
        case ptx.Name():
            name = operand.name + (f".{operand.component}" if operand.component else "")
            place = places.get(name)
            if place is None and name.startswith("%"):
                place = places.setdefault(name, len(places))
            return None if place is None else (PLACE, place)
        case ptx.Not():
            place = places.get(operand.operand.name)
            return None if place is None else (NEGATED, place)
    return None


def _parameter(operand: ptx.Operand) -> str | None:
    if isinstance(operand, ptx.Address) and len(operand.parts) == 1:
        part = operand.parts[0]
        if isinstance(part, ptx.Name):
            return part.name
    return None


def _dies(code: list[ptx.Instruction], at: int) -> bool:
    """Whether the code that follows ends in a trap: launches end normally, so no thread runs it."""
    for statement in code[at : at + _LOOK_AHEAD]:
        if statement.opcode.name == "trap":
            return True
        if statement.opcode.name in ("bra", "ret", "exit"):
            return False
    return False
