"""Registers that hold one number for as long as a thread runs.

In: the steps of a kernel. Out: `ThreadConstants`: which registers these are, with numbers that are
equal only where the values are; and whether a register still holds at one place what it held at
another.

A *constant* is computed from parameters, the thread's place and numbers alone, by the one
instruction that writes it, under no guard. So it is the same whenever that instruction runs. It
counts only where it was computed: the instruction dominates whoever reads it. Sums of 64 bits are
compared as sums modulo 2**64, whatever else is computed by its opcode and its operands.

A register with one unguarded writer is *kept* from one place to another if the writer dominates the
first and the first dominates the second: a way from the writer to the second place that left out
the first would make a way from the entry that does so, too.
"""

from __future__ import annotations

from tessera.ir.opcodes import Bytes, special_register
from tessera.ir.opcodes.special_registers import Varies
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.constants import integer_value
from tessera.ir.ptx.layout import size_bytes
from tessera.passes.kernel_facts.kernel_code import KernelCode, Step
from tessera.passes.kernel_facts.operand_names import registers_in, written_registers

Place = tuple[int, int]
"""A block, and an instruction in it."""
Sum = tuple[int, tuple[tuple[int, int], ...]]
"""A number, and other values with their factors, modulo 2**64."""
_MASK = (1 << 64) - 1
_MOST_TERMS = 8


class ThreadConstants:
    """Values of one kernel by number; see the module's text."""

    def __init__(self, code: KernelCode) -> None:
        self._code = code
        self._sizes = {p.name: size_bytes(p) for p in code.function.parameters}
        self._writers: dict[str, list[tuple[int, Step]]] = {}
        self._numbers: dict[object, int] = {}
        self._sums: dict[int, Sum] = {}
        self._known: dict[str, int] = {}
        for block, steps in enumerate(code.blocks):
            for step in steps:
                for name in written_registers(step.instruction, step.meaning):
                    self._writers.setdefault(name, []).append((block, step))
        for block in code.flow.order:
            for step in code.blocks[block]:
                self._define(block, step)

    def comes_first(self, first: Place, second: Place) -> bool:
        """Whether every way to the second place leads through the first."""
        if first[0] == second[0]:
            return first[1] < second[1]
        return self._code.flow.dominates(first[0], second[0])

    def is_kept(self, name: str, first: Place, second: Place) -> bool:
        """Whether a register holds at the second place what it held at the first, if all ways to
        the second lead through the first."""
        return self._is_defined(name, first) and self.comes_first(first, second)

    def address(self, operand: ptx.Operand, at: Place) -> int | None:
        """The number of an address in brackets; None where it is no constant."""
        if not isinstance(operand, ptx.Address) or len(operand.parts) != 1:
            return None
        part = operand.parts[0]
        if not isinstance(part, ptx.Offset):
            return self._value(part, at)
        base, moved = self._value(part.base, at), integer_value(part.displacement)
        return None if base is None or moved is None else self._added(base, (moved, ()), 1)

    def _is_defined(self, name: str, at: Place) -> bool:
        """Whether a register has one writer, without a guard, which comes before a place."""
        writers = self._writers.get(name, ())
        if len(writers) != 1 or writers[0][1].instruction.guard is not None:
            return False
        return self.comes_first((writers[0][0], writers[0][1].index), at)

    def _define(self, block: int, step: Step) -> None:
        instruction = step.instruction
        if len(step.targets) != 1 or len(self._writers[step.targets[0]]) != 1:
            return
        if instruction.guard is None:
            number = self._result(step, (block, step.index))
            if number is not None:
                self._known[step.targets[0]] = number

    def _result(self, step: Step, at: Place) -> int | None:
        opcode, operands = step.instruction.opcode, step.instruction.operands
        if step.effects:
            return self._parameter(step)
        if step.function is None and opcode.name != "cvta":
            return None
        values = [self._value(operand, at) for operand in operands[1:]]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return None
        if opcode.name in ("add", "sub") and opcode.modifiers[-1].endswith("64"):
            return self._added(known[0], self._sum(known[1]), 1 if opcode.name == "add" else -1)
        if opcode.name == "mov" or (opcode.name == "cvta" and "global" in opcode.modifiers):
            return known[0]
        return self._number((str(opcode), *known))

    def _parameter(self, step: Step) -> int | None:
        """What a load from a place inside one parameter of the kernel gives."""
        name, offset = parameter_place(step)
        size = self._sizes.get(name)
        extent = step.effects[0].extent
        count = extent.count if isinstance(extent, Bytes) else 0
        if size is None or not count or not 0 <= offset <= size - count:
            return None
        return self._number((str(step.instruction.opcode), name, offset))

    def _value(self, operand: ptx.Operand, at: Place) -> int | None:
        if isinstance(operand, ptx.Integer | ptx.Unary | ptx.Binary | ptx.Cast):
            number = integer_value(operand)
            return None if number is None else self._added(None, (number, ()), 1)
        if not isinstance(operand, ptx.Name):
            return None
        if operand.name in self._code.widths:
            known = self._known.get(operand.name) if operand.component is None else None
            return known if known is not None and self._is_defined(operand.name, at) else None
        special = special_register(operand.name)
        if special is None or special.is_volatile or special.varies is Varies.MACHINE:
            return None
        return self._number((operand.name, operand.component))

    def _number(self, key: object) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _sum(self, value: int) -> Sum:
        return self._sums.get(value, (0, ((value, 1),)))

    def _added(self, value: int | None, more: Sum, factor: int) -> int:
        """The number of a value plus a sum times a factor."""
        constant, terms = (0, ()) if value is None else self._sum(value)
        factors = dict(terms)
        for term, count in more[1]:
            factors[term] = (factors.get(term, 0) + factor * count) & _MASK
        total = (constant + factor * more[0]) & _MASK
        kept = tuple(sorted((term, count) for term, count in factors.items() if count))
        if len(kept) > _MOST_TERMS:
            return self._number(("long sum", value, more, factor))
        if total == 0 and len(kept) == 1 and kept[0][1] == 1:
            return kept[0][0]
        number = self._number(("sum", total, kept))
        self._sums[number] = total, kept
        return number


def parameter_place(step: Step) -> tuple[str, int]:
    """The name and the offset that a plain load of a parameter has; no name where it has none."""
    opcode, effects = step.instruction.opcode, step.effects
    is_load = opcode.name == "ld" and len(effects) == 1 and effects[0].space.startswith("param")
    operand = step.instruction.operands[effects[0].operand] if is_load else None
    if not isinstance(operand, ptx.Address) or len(operand.parts) != 1:
        return "", 0
    part = operand.parts[0]
    offset = integer_value(part.displacement) if isinstance(part, ptx.Offset) else 0
    names = list(registers_in(part))
    return (names[0], offset) if len(names) == 1 and offset is not None else ("", 0)
