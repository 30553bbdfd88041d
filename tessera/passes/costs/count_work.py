"""What a launch does: instructions, arithmetic by unit, bytes asked of memory; loops included.

In: a kernel's PTX and a launch. Out: a `LaunchWork`. A few threads (of the first, a middle and the
last CTA) are walked through the kernel, one instruction at a time: integers and predicates that
follow from arguments and indices are computed, everything else is unknown. So a loop whose count
hangs on an argument is counted exactly. A branch on something unknown goes on, and after some
rounds leaves; `sure` says that there was none. Work is the mean over the threads times all threads.
Only registers that some guard depends on are computed: the others decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from tessera.ir.opcodes import InstructionKind, meaning_of
from tessera.ir.opcodes.extents import matrix_shape
from tessera.ir.opcodes.types import VECTOR_COUNTS, is_type, type_width
from tessera.ir.plan.costs import LaunchWork
from tessera.ir.program.program import Launch, Scalar
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.layout import packed_bytes
from tessera.passes.costs.integer_values import Value, integer_function, value_of
from tessera.passes.kernel_facts.operand_names import registers_in

_MOST_STEPS = 60_000
_ENOUGH_STEPS = 8_000  # after so many in all, no further threads are walked
_UNKNOWN_ROUNDS = 8
_LOOK_AHEAD = 40
_MATRIX_UNITS = {
    "f16": "fp16",
    "bf16": "bf16",
    "tf32": "tf32",
    "e4m3": "fp8",
    "e5m2": "fp8",
    "s8": "int8",
    "u8": "int8",
    "f64": "fp64",
}
_AXES = ("x", "y", "z")

Registers = dict[str, Value]


def count_work(module: ptx.Module, launch: Launch) -> LaunchWork | None:
    """The work of a launch; None if the module has no body of the kernel."""
    function = next(
        (
            item
            for item in module.items
            if isinstance(item, ptx.Function) and item.name == launch.kernel
        ),
        None,
    )
    if function is None or function.body is None:
        return None
    code: list[ptx.Statement] = [
        s for s in ptx.walk_statements(function.body) if not isinstance(s, ptx.Block)
    ]
    labels = {
        statement.name: n
        for n, statement in enumerate(code)
        if isinstance(statement, ptx.LabelStatement)
    }
    given = _arguments(function, launch)
    effects = [_effect_of(statement) for statement in code]
    decides = _deciding(code)
    samples: list[_ThreadWalk] = []
    for cta in _corners(launch.grid):
        for thread in _corners(launch.block)[:2]:
            if sum(sample.instructions for sample in samples) < _ENOUGH_STEPS:
                walk = _ThreadWalk(code, effects, decides, labels, given, launch, cta, thread)
                samples.append(walk.run())
    threads = prod(launch.grid) * prod(launch.block)

    def in_all(counts: Iterable[float]) -> float:
        return sum(counts) * threads / len(samples)

    units = sorted({unit for sample in samples for unit in sample.units})
    return LaunchWork(
        ctas=prod(launch.grid),
        threads=threads,
        instructions=in_all(s.instructions for s in samples),
        memory_instructions=in_all(s.memory for s in samples),
        asked_bytes=in_all(s.asked for s in samples),
        units=tuple((unit, in_all(s.units.get(unit, 0.0) for s in samples)) for unit in units),
        chain=max(s.instructions for s in samples),
        chain_loads=max(s.loads for s in samples),
        chain_barriers=max(s.barriers for s in samples),
        shared_bytes=launch.shared_bytes + static_shared_bytes(module, function),
        sure=all(s.sure for s in samples),
    )


def static_shared_bytes(module: ptx.Module, function: ptx.Function) -> int:
    """Shared memory that a kernel declares; arrays without a size are the launch's."""
    body = tuple(ptx.walk_statements(function.body or ()))
    inner = [s for s in body if isinstance(s, ptx.Variable)]
    operands = (o for s in body if isinstance(s, ptx.Instruction) for o in s.operands)
    used = {name for operand in operands for name in registers_in(operand)}
    outer = [variable for variable in module.variables() if variable.name in used]
    return packed_bytes(v for v in (*inner, *outer) if v.space == "shared")


def _arguments(function: ptx.Function, launch: Launch) -> Registers:
    """Values of the scalar parameters by name."""
    return {
        parameter.name: argument.bits if isinstance(argument, Scalar) else None
        for parameter, argument in zip(function.parameters, launch.arguments, strict=False)
    }


def _corners(size: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    """The first, the last and a middle index."""
    last = tuple(n - 1 for n in size)
    middle = tuple(n // 2 for n in size)
    corners = [(0, 0, 0), (last[0], last[1], last[2]), (middle[0], middle[1], middle[2])]
    return list(dict.fromkeys(corners))


def _deciding(code: list[ptx.Statement]) -> frozenset[str]:
    """The registers that guards are computed from."""
    sources: dict[str, set[str]] = {}
    pending: list[str] = []
    for statement in code:
        if not isinstance(statement, ptx.Instruction):
            continue
        if statement.guard is not None:
            pending.append(statement.guard.register)
        if statement.operands and integer_function(statement.opcode) is not None:
            target, *given = statement.operands
            names = {name for operand in given for name in registers_in(operand)}
            for name in registers_in(target):
                sources.setdefault(name, set()).update(names)
    deciding: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in deciding:
            deciding.add(name)
            pending.extend(sources.get(name, ()))
    return frozenset(deciding)


@dataclass(frozen=True, slots=True)
class _Effect:
    """What one execution of an instruction counts for."""

    unit: str = ""
    operations: float = 0.0
    asked: int = 0
    loads: int = 0
    barriers: int = 0
    memory: int = 0


_NO_EFFECT = _Effect()


def _effect_of(statement: ptx.Statement) -> _Effect:
    if not isinstance(statement, ptx.Instruction):
        return _NO_EFFECT
    meaning = meaning_of(statement)
    kind = None if meaning is None else meaning.kind
    modifiers = statement.opcode.modifiers
    if kind is InstructionKind.TENSOR:
        return _Effect(*_matrix(statement.opcode))
    if kind in (InstructionKind.FLOAT, InstructionKind.SPECIAL_FUNCTION):
        unit, operations = _plain(statement.opcode)
        return _Effect("special" if kind is InstructionKind.SPECIAL_FUNCTION else unit, operations)
    if kind in (InstructionKind.GLOBAL, InstructionKind.GENERIC, InstructionKind.ATOMIC):
        loads = int(statement.opcode.name != "st")
        return _Effect(asked=_width(modifiers), loads=loads, memory=1)
    if kind is InstructionKind.ASYNC_COPY and "bulk" not in modifiers:
        size = statement.operands[2] if len(statement.operands) > 2 else None
        return _Effect(asked=size.value if isinstance(size, ptx.Integer) else 0, memory=1)
    if kind in (InstructionKind.SHARED, InstructionKind.LOCAL):
        return _Effect(memory=1)
    if kind is InstructionKind.BARRIER or "wait_group" in modifiers:
        return _Effect(barriers=1)
    return _NO_EFFECT


class _ThreadWalk:
    """One thread on its way through the kernel. Private and mutable."""

    def __init__(
        self,
        code: list[ptx.Statement],
        effects: list[_Effect],
        decides: frozenset[str],
        labels: dict[str, int],
        given: Registers,
        launch: Launch,
        cta: tuple[int, int, int],
        thread: tuple[int, int, int],
    ) -> None:
        self.code, self.effects, self.decides = code, effects, decides
        self.labels, self.given = labels, given
        self.registers: Registers = {"%warpid": None}
        for name, values in (
            ("%tid", thread),
            ("%ctaid", cta),
            ("%ntid", launch.block),
            ("%nctaid", launch.grid),
        ):
            for axis, value in zip(_AXES, values, strict=True):
                self.registers[f"{name}.{axis}"] = value
        self.registers["%laneid"] = thread[0] % 32
        self.units: dict[str, float] = {}
        self.instructions = self.memory = self.asked = self.loads = self.barriers = 0.0
        self.sure = True
        self.rounds: dict[int, int] = {}

    def run(self) -> _ThreadWalk:
        """Walk to the end of the kernel, or as far as allowed."""
        at = steps = 0
        while at < len(self.code):
            statement = self.code[at]
            at += 1
            if not isinstance(statement, ptx.Instruction):
                continue
            steps += 1
            if steps > _MOST_STEPS:
                self.sure = False
                break
            guard = self._guard(statement.guard)
            name = statement.opcode.name
            if name in ("bra", "ret", "exit") and guard is None:
                guard = 1 if self._dies(at) else self._unknown(at)
            if guard == 0:
                continue
            self._count(self.effects[at - 1])
            if name in ("ret", "exit", "trap"):
                break
            if name == "bra":
                at = self._target(statement, at)
            else:
                self._assign(statement, known=guard == 1)
        return self

    def _count(self, effect: _Effect) -> None:
        self.instructions += 1
        self.asked += effect.asked
        self.memory += effect.memory
        self.loads += effect.loads
        self.barriers += effect.barriers
        if effect.operations:
            self.units[effect.unit] = self.units.get(effect.unit, 0.0) + effect.operations

    def _guard(self, guard: ptx.Guard | None) -> Value:
        if guard is None:
            return 1
        value = self.registers.get(guard.register)
        return None if value is None else (value & 1) ^ guard.negated

    def _dies(self, at: int) -> bool:
        """Whether what follows ends in a trap: launches end normally, so nobody goes there."""
        for statement in self.code[at : at + _LOOK_AHEAD]:
            if isinstance(statement, ptx.Instruction):
                if statement.opcode.name == "trap":
                    return True
                if statement.opcode.name in ("bra", "ret", "exit"):
                    return False
        return False

    def _unknown(self, at: int) -> int:
        """Not taken, until that has been so a few times."""
        self.sure = False
        self.rounds[at] = self.rounds.get(at, 0) + 1
        return int(self.rounds[at] > _UNKNOWN_ROUNDS)

    def _target(self, statement: ptx.Instruction, at: int) -> int:
        operand = statement.operands[0] if statement.operands else None
        if isinstance(operand, ptx.Name):
            return self.labels.get(operand.name, at)
        return at

    def _assign(self, statement: ptx.Instruction, known: bool) -> None:
        if not statement.operands:
            return
        target, *sources = statement.operands
        if isinstance(target, ptx.Pair | ptx.Vector):
            for name in registers_in(target):
                self.registers[name] = None
        if isinstance(target, ptx.Pair):
            target = target.first
        is_one = isinstance(target, ptx.Name) and target.component is None
        if isinstance(target, ptx.Name) and is_one and target.name in self.decides:
            value = self._value_of(statement.opcode, sources)
            before = self.registers.get(target.name)
            self.registers[target.name] = value if known or value == before else None

    def _value_of(self, opcode: ptx.Opcode, sources: list[ptx.Operand]) -> Value:
        if opcode.name == "ld" and opcode.modifiers[:1] == ("param",):
            return self._parameter(sources[0])
        numbers = []
        for source in sources:
            number = self._read(source)
            if number is None:
                return None
            numbers.append(number)
        return value_of(opcode, tuple(numbers))

    def _parameter(self, operand: ptx.Operand) -> Value:
        if isinstance(operand, ptx.Address) and len(operand.parts) == 1:
            part = operand.parts[0]
            if isinstance(part, ptx.Name):
                return self.given.get(part.name)
        return None

    def _read(self, operand: ptx.Operand) -> Value:
        match operand:
            case ptx.Integer():
                return operand.value
            case ptx.Name():
                axis = f".{operand.component}" if operand.component else ""
                return self.registers.get(operand.name + axis)
            case ptx.Not():
                value = self.registers.get(operand.operand.name)
                return None if value is None else 1 - (value & 1)
            case ptx.Unary(operator="-", operand=ptx.Integer(value=value)):
                return -value
            case _:
                return None


# --- arithmetic ----------------------------------------------------------------------------------


def _matrix(opcode: ptx.Opcode) -> tuple[str, float]:
    """The unit of a matrix instruction, and its operations per thread that issues it."""
    types = [
        modifier
        for modifier in opcode.modifiers
        if modifier in _MATRIX_UNITS or modifier in ("f32", "s32")
    ]
    unit = _MATRIX_UNITS.get(types[1] if len(types) > 1 else "", "fp16")
    for modifier in opcode.modifiers:
        if shape := matrix_shape(modifier):
            rows, columns, depth = shape
            threads = 128 if opcode.name == "wgmma" else 32
            return unit, 2.0 * rows * columns * depth / threads
    return unit, 0.0


def _plain(opcode: ptx.Opcode) -> tuple[str, float]:
    operations = 2.0 if opcode.name in ("fma", "mad") else 1.0
    kind = opcode.modifiers[-1] if opcode.modifiers else ""
    if kind.endswith("x2"):
        operations *= 2
    return ("fp64" if kind == "f64" else "fp32"), operations


def _width(modifiers: tuple[str, ...]) -> int:
    """Bytes that an instruction moves for one thread."""
    count = next((VECTOR_COUNTS[m] for m in modifiers if m in VECTOR_COUNTS), 1)
    return count * type_width(next((m for m in reversed(modifiers) if is_type(m)), "b32"))
