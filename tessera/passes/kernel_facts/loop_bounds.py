"""The number of rounds of the loops of a kernel.

In: the kernels of a program. Out: `LoopBounds`: per kernel its loops, outermost first, each with
what decides the number of rounds: a constant, the launch (parameters, sizes, the thread's place),
or data. If a counter is compared with a bound, the number of rounds is also given as an expression.
A loop that the compiler unrolled and its remainder are two loops.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Self

from tessera.diagnostics import Span
from tessera.ir.graph import expr
from tessera.ir.graph.expr import Expression, Origin
from tessera.ir.program import program as ir
from tessera.ir.ptx.control_flow import Loop
from tessera.passes.base import Analysis, Facts
from tessera.passes.kernel_facts.describe_kernel import Condition, Describer
from tessera.passes.kernel_facts.kernel_code import KernelCode
from tessera.passes.kernel_facts.kernel_codes import KernelCodes, KernelId, find_kernel


class Decided(enum.Enum):
    """What decides the number of rounds of a loop; UNKNOWN if the code is not understood."""

    CONSTANT = "constant"
    LAUNCH = "launch"
    DATA = "data"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopBound:
    """One loop. It runs while `condition` holds; `rounds` is the number of rounds, if known.

    `parent` is the index of the enclosing loop, or None. The number of rounds is for threads that
    enter the loop; division rounds up.
    """

    decided: Decided
    rounds: str | None
    condition: str
    parent: int | None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class LoopBounds:
    """The loops of all kernels.

    Example: `AnalysisManager(program).get(LoopBounds).of("m", "rows")[0].rounds`.
    """

    name: ClassVar[str] = "loop-bounds"
    needs: ClassVar[tuple[type[Analysis], ...]] = (KernelCodes,)

    kernels: dict[KernelId, tuple[LoopBound, ...]]

    @classmethod
    def compute(cls, program: ir.Program, facts: Facts) -> Self:
        """Bounds of every kernel."""
        codes = facts.get(KernelCodes).codes
        return cls({kernel: kernel_loops(code) for kernel, code in codes.items()})

    def of(self, module: str, kernel: str, arch: str | None = None) -> tuple[LoopBound, ...]:
        """The loops of one kernel."""
        return self.kernels[find_kernel(self.kernels, module, kernel, arch)]


def kernel_loops(code: KernelCode) -> tuple[LoopBound, ...]:
    """The loops of one kernel."""
    describer = Describer(code)
    return tuple(_bound(code, describer, number) for number in range(len(code.flow.loops)))


def _bound(code: KernelCode, describer: Describer, number: int) -> LoopBound:
    loop = code.flow.loops[number]
    span = code.span(code.flow.blocks[loop.header].start)
    stays = list(_conditions(code, describer, loop))
    text = " and ".join(map(str, stays)) or "always"
    counter = describer.counters.get(number, "")
    if len(stays) != 1:
        decided = _worst([_decided(code, c, counter) for c in stays])
        return LoopBound(
            decided=decided, rounds=None, condition=text, parent=loop.parent, span=span
        )
    rounds = _rounds(stays[0], counter, _tests_first(code, loop))
    decided = _decided(code, stays[0], counter)
    if rounds is not None and rounds.isdigit():
        decided = Decided.CONSTANT
    return LoopBound(decided=decided, rounds=rounds, condition=text, parent=loop.parent, span=span)


def _conditions(code: KernelCode, describer: Describer, loop: Loop) -> Iterator[Condition]:
    """The condition at each exit under which the loop goes on."""
    for number in loop.blocks:
        block = code.flow.blocks[number]
        steps = code.blocks[number]
        last = steps[-1] if steps else None
        if last is None or last.instruction.guard is None:
            continue
        outside = [s for s in block.successors if s not in loop.blocks]
        leaves = last.instruction.opcode.name in {"ret", "exit"}
        if not outside and not leaves:
            continue
        jumps_out = leaves or block.successors[0] not in loop.blocks
        yield describer.guard(last.instruction.guard, holds=not jumps_out)


def _tests_first(code: KernelCode, loop: Loop) -> bool:
    """Whether the exit is at the header, before the body, and not at the end of a round."""
    ends = {source for source, _ in loop.exits}
    return ends == {loop.header} and len(loop.blocks) > 1


def _rounds(condition: Condition, counter: str, tests_first: bool) -> str | None:
    """The count of `start + step*i sign bound`, as text."""
    left, right, sign = condition.left, condition.right, condition.sign
    if left is None or right is None or not counter:
        return None
    if _slope(right, counter) not in (None, 0):
        mirror = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "!=": "!=", "==": "=="}
        left, right, sign = right, left, mirror[sign]
    step = _slope(left, counter)
    if not step or _slope(right, counter) != 0:
        return None
    start = expr.add(left, expr.multiply(expr.constant(step), expr.symbol(counter)), -1)
    distance = expr.add(right, start, -1)
    match sign, step > 0:
        case ("<", True) | (">", False) | ("!=", _):
            pass
        case ("<=", True):
            distance = expr.add(distance, expr.constant(1))
        case (">=", False):
            distance = expr.add(distance, expr.constant(-1))
        case _:
            return None
    return _quotient(distance, step, 0 if tests_first else 1)


def _quotient(distance: Expression, step: int, extra: int) -> str:
    """distance / step rounded up, plus the round before the first test."""
    total = expr.add(distance, expr.constant(step * extra))
    if total.constant is not None:
        return str(max(-(-total.constant // step), extra))
    exact = expr.divide(total, step)
    if exact is not None:
        return str(exact)
    shown = total if step > 0 else expr.multiply(total, expr.constant(-1))
    return f"({shown})/{abs(step)}"


def _slope(value: Expression, counter: str) -> int | None:
    """The coefficient of a counter; None if the value is not linear in it."""
    slope = 0
    for term in value.terms:
        if len(term.symbols) == 1 and term.symbols[0].text == counter:
            slope = term.coefficient
        elif any(part.text == counter for symbol in term.symbols for part in symbol.walk()):
            return None
    return slope


def _decided(code: KernelCode, condition: Condition, counter: str) -> Decided:
    if condition.left is None or condition.right is None:
        return Decided.UNKNOWN
    sides = (condition.left, condition.right)
    if any(side.has(Origin.LOADED) for side in sides):
        return Decided.DATA
    if not all(side.is_known for side in sides):
        return Decided.UNKNOWN
    names = {symbol.text for side in sides for symbol in side.symbols()}
    return Decided.LAUNCH if names - {counter} else Decided.CONSTANT


def _worst(kinds: list[Decided]) -> Decided:
    order = [Decided.UNKNOWN, Decided.DATA, Decided.LAUNCH, Decided.CONSTANT]
    return next((kind for kind in order if kind in kinds), Decided.UNKNOWN)
