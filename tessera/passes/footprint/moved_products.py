"""Quotients as compilers write them: the high half of a product (`mul.hi`), moved right (`shr`).

In: the steps of a kernel, and the values of a product's factors. Out: the quotient in one step. The
high half alone changes every few CTAs, so the CTAs would have to be split, only to be merged again
by the shift. So if one factor grows with digits and every reader of the high half shifts it, the
high half is left unknown, and the shift computes the whole quotient (`sloped_moved_product`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from tessera.ir.ptx import syntax as ptx
from tessera.passes.kernel_facts.kernel_code import KernelCode, Step
from tessera.passes.kernel_facts.operand_names import registers_in
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lanes import Lanes, single
from tessera.passes.lane_values.sloped_ops import sloped_moved_product

_BITS = 32
_PRODUCTS: dict[tuple[str, ...], bool] = {("hi", "u32"): False, ("hi", "s32"): True}
_MOVES: dict[tuple[str, ...], bool] = {("u32",): False, ("b32",): False, ("s32",): True}


OpenProduct = tuple[Lanes, Lanes, bool]
"""Two factors of 32 bits, and whether they have a sign."""


class MovedProducts:
    """The products of a block whose high halves were left open, by register, which has no other
    writer."""

    def __init__(self, code: KernelCode) -> None:
        self._code = code
        self.open: dict[str, OpenProduct] = {}

    def clear(self) -> None:
        """Another block begins: registers may hold something else."""
        self.open.clear()

    def may_touch(self, step: Step, values: Sequence[Lanes]) -> bool:
        """Whether a step is such a product or shift; fast for all other steps."""
        opcode = step.instruction.opcode
        if opcode.name == "shr":
            return bool(self.open) and self._is_known(step)
        return (
            opcode.name == "mul"
            and opcode.modifiers in _PRODUCTS
            and any(value.slopes for value in values)
            and self._is_known(step)
        )

    def _is_known(self, step: Step) -> bool:
        return step.index in _moved_steps(self._code)

    def result(self, step: Step, values: Sequence[Lanes]) -> Lanes | None:
        """The result of such a product or shift; None if the step is an ordinary one."""
        opcode, operands = step.instruction.opcode, step.instruction.operands
        if opcode.name == "mul":
            first, second = values
            factors = (second, first) if second.slopes else (first, second)
            if any(map(_is_odd, values)) or single(factors[1]) is None:
                return None
            self.open[step.targets[0]] = (*factors, _PRODUCTS[opcode.modifiers])
            return lanes.unknown(_BITS, step.index)
        (name,) = registers_in(operands[1])
        if name not in self.open:
            return None
        first, second, by_sign = self.open[name]
        amount = single(values[1])
        assert amount is not None
        signed = (by_sign, _MOVES[opcode.modifiers])
        return sloped_moved_product(first, second, amount, _BITS, signed=signed)


def _is_odd(value: Lanes) -> bool:
    """Whether a value is anything but exact numbers."""
    return bool(value.kind) or value.span is not None


@lru_cache(maxsize=8)
def _moved_steps(code: KernelCode) -> frozenset[int]:
    return frozenset(_steps(code))


def _steps(code: KernelCode) -> Iterator[int]:
    """The products whose high half is only moved, by steps of their own block, and these steps."""
    readers: dict[str, list[tuple[int, Step]]] = {}
    writers: dict[str, int] = {}
    for block, steps in enumerate(code.blocks):
        for step in steps:
            for name in step.targets:
                writers[name] = writers.get(name, 0) + 1
            for operand in step.instruction.operands:
                for name in registers_in(operand):
                    readers.setdefault(name, []).append((block, step))
    for block, steps in enumerate(code.blocks):
        for step in steps:
            if not _is_product(step) or writers[step.targets[0]] != 1:
                continue
            known = readers.get(step.targets[0], ())
            own = [(at, other) for at, other in known if other is not step]
            if own and all(at == block and _moves(other, step) for at, other in own):
                yield step.index
                yield from (other.index for _, other in own)


def _is_product(step: Step) -> bool:
    opcode, guard = step.instruction.opcode, step.instruction.guard
    return opcode.name == "mul" and opcode.modifiers in _PRODUCTS and guard is None


def _moves(step: Step, product: Step) -> bool:
    """Whether a step moves the high half by a number, after it was made."""
    instruction = step.instruction
    if instruction.opcode.name != "shr" or instruction.opcode.modifiers not in _MOVES:
        return False
    _, source, amount = instruction.operands
    is_plain = instruction.guard is None and isinstance(amount, ptx.Integer)
    own = isinstance(source, ptx.Name) and source.name == product.targets[0]
    return is_plain and own and step.index > product.index
