"""A kernel's accesses in terms of its parameters, for people.

In: a `KernelCode`. Out: one line per access: instruction, object, offset and the conditions it
depends on; and, if the offset is one word per thread under a bound, the sum over all threads:
`writes out[0 : 4*n), every byte, if nctaid.x*ntid.x >= n`.

A register with a single writer is shown as the expression of that instruction. A register with a
start and one step in a loop is `start + step*i`, where i counts the rounds. Every other register is
shown by name, with a question mark: `%r7?`. See `ir.graph.expr` for what an expression leaves out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tessera.ir.graph import expr
from tessera.ir.graph.expr import Expression, Origin
from tessera.ir.opcodes import Bytes, Flow
from tessera.ir.opcodes.comparisons import COMPARISON_SIGNS, INVERSE_COMPARISONS
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.constants import integer_value
from tessera.ir.ptx.types import is_type
from tessera.passes.kernel_facts.kernel_code import KernelCode, Step
from tessera.passes.kernel_facts.operand_names import written_registers

_INFIX = {"div": "/", "rem": "%", "and": "&", "or": "|", "xor": "^", "shr": ">>"}
_LONGEST = 160
_DEEPEST = 60
Place = tuple[int, int]
"""A block, and an instruction in it."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition `left sign right`, or `text` if it does not have that form."""

    left: Expression
    sign: str
    right: Expression
    text: str = ""

    def __str__(self) -> str:
        return self.text or f"{self.left} {self.sign} {self.right}"


class Describer:
    """Expressions of one kernel, computed on demand."""

    def __init__(self, code: KernelCode) -> None:
        self.code = code
        self.definitions: dict[str, list[tuple[int, Step]]] = {}
        self.active: list[str] = []
        self.counters: dict[int, str] = {}
        for number, block in enumerate(code.blocks):
            for step in block:
                for name in written_registers(step.instruction, step.meaning):
                    self.definitions.setdefault(name, []).append((number, step))

    def lines(self) -> Iterator[str]:
        """One line per access, then the totals of simple accesses."""
        bounds: list[str] = []
        for number, block in enumerate(self.code.blocks):
            if not self.code.flow.blocks[number].reachable:
                continue
            for step in block:
                for effect in step.effects:
                    if effect.space not in {"global", "generic", "const"}:
                        continue
                    where = (number, step.index)
                    address = self._address(step.instruction.operands[effect.operand], where)
                    when = list(self._conditions(number, step))
                    yield self._line(step, address, when)
                    total = self._total(step, effect.extent, effect.access.writes, address, when)
                    bounds += [total] if total else []
        yield from dict.fromkeys(bounds)

    def _line(self, step: Step, address: Expression, when: list[Condition]) -> str:
        text = f"{step.instruction.opcode} [{address}]"
        if when:
            text += " if " + " and ".join(map(str, when))
        return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."

    # --- values ----------------------------------------------------------------------------

    def _register(self, name: str, use: Place) -> Expression:
        """The value of a register at a place; unknown if it depends on itself or is too deep."""
        written = self.definitions.get(name, [])
        if name in self.active or len(self.active) > _DEEPEST:
            return expr.register(name, Origin.UNFINISHED if name in self.active else Origin.OPEN)
        self.active.append(name)
        try:
            if len(written) == 1 and written[0][1].instruction.guard is None:
                block, step = written[0]
                known = self._compute(step, (block, step.index))
            else:
                known = self._counter(name, written, use)
            return known or expr.register(name, Origin.OPEN)
        finally:
            self.active.pop()

    def _counter(self, name: str, written: list[tuple[int, Step]], use: Place) -> Expression | None:
        """`start + step*i` for a register with one start and one step in a loop around `use`."""
        for number, loop in enumerate(self.code.flow.loops):
            inside = [(block, step) for block, step in written if block in loop.blocks]
            outside = [(block, step) for block, step in written if block not in loop.blocks]
            if len(inside) != 1 or len(outside) != 1 or use[0] not in loop.blocks:
                continue
            (first, start), (place, step) = outside[0], inside[0]
            if start.instruction.guard is not None or step.instruction.guard is not None:
                return None
            stepped = self._compute(step, (place, step.index))
            begin = self._compute(start, (first, start.index))
            if stepped is None or begin is None:
                return None
            change = expr.add(stepped, expr.register(name, Origin.UNFINISHED), -1)
            if not change.is_known or begin.has(Origin.UNFINISHED):
                return None
            counter = self.counters.setdefault(number, f"i{len(self.counters)}")
            rounds = expr.symbol(counter)
            if self._comes_before((place, step.index), use):
                rounds = expr.add(rounds, expr.constant(1))
            return expr.add(begin, expr.multiply(change, rounds))
        return None

    def _comes_before(self, first: Place, second: Place) -> bool:
        if first[0] == second[0]:
            return first[1] < second[1]
        return self.code.flow.dominates(first[0], second[0])

    def _compute(self, step: Step, use: Place) -> Expression | None:
        instruction = step.instruction
        name, modifiers = instruction.opcode.name, instruction.opcode.modifiers
        operands = instruction.operands
        if name == "ld":
            space = any(e.space.startswith("param") for e in step.effects)
            return (
                self._parameter(operands[1], use)
                if space
                else expr.register(step.targets[0], Origin.LOADED)
            )
        if any(isinstance(o, ptx.Vector) for o in operands):
            return None
        kind = next((m for m in reversed(modifiers) if is_type(m)), "")
        if kind.startswith(("f", "bf")):
            return None
        values = [self._operand(operand, use) for operand in operands[1:]]
        match name:
            case "mov" | "cvt" | "cvta":
                return values[0]
            case "add":
                return expr.add(values[0], values[1])
            case "sub":
                return expr.add(values[0], values[1], -1)
            case "mul" | "mad" if "hi" not in modifiers:
                product = expr.multiply(values[0], values[1])
                return expr.add(product, values[2]) if name == "mad" else product
            case "shl" if values[1].constant is not None and 0 <= values[1].constant < 64:
                return expr.multiply(values[0], expr.constant(1 << values[1].constant))
            case _ if name in _INFIX:
                return expr.symbol(f"({values[0]} {_INFIX[name]} {values[1]})", *values)
            case "min" | "max":
                return expr.symbol(f"{name}({', '.join(map(str, values))})", *values)
        return None

    def _operand(self, operand: ptx.Operand, use: Place) -> Expression:
        if isinstance(operand, ptx.Name):
            if operand.name in self.code.widths:
                return self._register(operand.name, use)
            suffix = f".{operand.component}" if operand.component else ""
            return expr.symbol(operand.name.lstrip("%") + suffix)
        if isinstance(operand, ptx.Offset):
            moved = self._operand(operand.displacement, use)
            return expr.add(self._operand(operand.base, use), moved)
        if isinstance(operand, ptx.Integer | ptx.Unary | ptx.Binary | ptx.Cast):
            value = integer_value(operand)
            return expr.ANYTHING if value is None else expr.constant(value)
        return expr.ANYTHING

    def _parameter(self, operand: ptx.Operand, use: Place) -> Expression:
        place = self._address(operand, use)
        text = str(place).replace(" ", "").removeprefix(f"{self.code.function.name}_")
        return expr.symbol(text) if place == expr.symbol(str(place)) else expr.symbol(text, place)

    def _address(self, operand: ptx.Operand, use: Place) -> Expression:
        if not isinstance(operand, ptx.Address):
            return expr.ANYTHING
        base = self._operand(operand.parts[0], use)
        if len(operand.parts) == 1:
            return base
        # A tensor map and coordinates.
        place = operand.parts[1]
        elements = place.elements if isinstance(place, ptx.Vector) else (place,)
        values = [self._operand(element, use) for element in elements]
        name = str(base).removeprefix(f"{self.code.function.name}_")
        return expr.symbol(f"{name}{{{', '.join(map(str, values))}}}", base, *values)

    # --- conditions ------------------------------------------------------------------------

    def _conditions(self, number: int, step: Step) -> Iterator[Condition]:
        """The branches that lead here, outermost first, and the instruction's own guard."""
        chain: list[int] = []
        at: int | None = number
        while at is not None:
            chain.append(at)
            at = self.code.flow.dominators[at]
        for block, above in zip(chain[-2::-1], chain[:0:-1], strict=True):
            yield from self._branch(above, block)
        if step.instruction.guard is not None:
            yield self.guard(step.instruction.guard, holds=True)

    def _branch(self, above: int, block: int) -> Iterator[Condition]:
        blocks = self.code.flow.blocks
        if not self.code.blocks[above] or blocks[block].predecessors != (above,):
            return
        last = self.code.blocks[above][-1]
        guard = last.instruction.guard
        if guard is None or last.meaning.flow not in {Flow.BRANCH, Flow.RETURN, Flow.EXIT}:
            return
        falls_through = block == above + 1
        taken = blocks[above].successors[0] if last.meaning.flow is Flow.BRANCH else -1
        if falls_through and taken == block:
            return
        yield self.guard(guard, holds=not falls_through)

    def guard(self, guard: ptx.Guard, *, holds: bool) -> Condition:
        """The condition that a guard stands for, when it holds or when it does not."""
        written = self.definitions.get(guard.register, [])
        unknown = Condition(expr.ANYTHING, "", expr.ANYTHING, "?")
        if len(written) != 1:
            return unknown
        block, step = written[0]
        instruction = step.instruction
        modifiers = instruction.opcode.modifiers
        sign = next((m for m in modifiers if m in COMPARISON_SIGNS), None)
        plain = instruction.opcode.name == "setp" and not {"and", "or", "xor"} & set(modifiers)
        if not plain or sign is None or modifiers[-1].startswith(("f", "bf")):
            return unknown
        # The second of two results of `setp` is the negation of the first.
        positive = (holds != guard.negated) == (step.targets[0] == guard.register)
        use = (block, step.index)
        left, right = (self._operand(o, use) for o in instruction.operands[1:3])
        return Condition(
            left, COMPARISON_SIGNS[sign if positive else INVERSE_COMPARISONS[sign]], right
        )

    # --- what it adds up to -----------------------------------------------------------------

    def _total(
        self,
        step: Step,
        extent: object,
        writes: bool,
        address: Expression,
        when: list[Condition],
    ) -> str | None:
        """One word per thread of a one-dimensional grid, under one bound."""
        if len(when) != 1 or when[0].sign != "<" or not isinstance(extent, Bytes):
            return None
        index, bound = when[0].left, when[0].right
        flat = expr.add(
            expr.multiply(expr.symbol("ctaid.x"), expr.symbol("ntid.x")), expr.symbol("tid.x")
        )
        if index != flat:
            return None
        scaled = expr.multiply(index, expr.constant(extent.count))
        base = expr.add(address, scaled, -1)
        prefix = f"{self.code.function.name}_"
        names = [p.name.removeprefix(prefix) for p in self.code.function.parameters]
        if base not in map(expr.symbol, names) or not bound.is_known:
            return None
        end = expr.multiply(bound, expr.constant(extent.count))
        verb = "writes" if writes else "reads"
        return f"{verb} {base}[0 : {end}), every byte, if nctaid.x*ntid.x >= {bound}"


def describe_kernel(code: KernelCode) -> tuple[str, ...]:
    """The lines for one kernel."""
    return tuple(Describer(code).lines())
