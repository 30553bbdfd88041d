"""Integer instructions on known values, with which `count_work` follows a thread.

In: an opcode and the numbers that its sources hold. Out: the bits of the result, or None if it is
unknown. The semantics of instructions are defined once for all analyses, in `lane_ops`; here they
run on one thread whose values are all exact. Floating-point values are never known.
"""

from __future__ import annotations

from functools import cache, lru_cache

from tessera.ir.opcodes import OperandRole, is_type, meaning, type_bits
from tessera.ir.ptx import syntax as ptx
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lane_ops import Function, lane_function, source_bits
from tessera.passes.lane_values.predicates import PREDICATES

Value = int | None

_SOURCES = frozenset({OperandRole.SOURCE, OperandRole.IMMEDIATE, OperandRole.PREDICATE})
_MOST_REMEMBERED = 1 << 14  # a loop computes the same numbers for each thread that is walked


@lru_cache(maxsize=_MOST_REMEMBERED)
def value_of(opcode: ptx.Opcode, numbers: tuple[int, ...]) -> Value:
    """The result of an instruction with one destination, as bits."""
    function = integer_function(opcode)
    widths = _source_widths(opcode, len(numbers))
    if function is None or widths is None:
        return None
    values = [lanes.scalar(n, bits) for n, bits in zip(numbers, widths, strict=True)]
    result = function(values)
    return None if result.span is not None else int(result.low().flat[0])


@cache
def integer_function(opcode: ptx.Opcode) -> Function | None:
    """The function of an instruction on integers and predicates; None if it is unknown."""
    types = [m for m in opcode.modifiers if is_type(m)]
    if not types or not (types[-1] == "pred" or types[-1][0] in "bsu"):
        return None
    if opcode.name == "cvta":
        # The number of a global address is the same in every space.
        return lane_function(ptx.Opcode("mov", (types[-1],)))
    function = lane_function(opcode)
    joining = next((m for m in opcode.modifiers if m in {"and", "or", "xor"}), None)
    if function is None or opcode.name != "setp" or joining is None:
        return function
    join = PREDICATES[joining]
    return lambda values: join((function(values[:2]), values[2]))


@cache
def _source_widths(opcode: ptx.Opcode, count: int) -> tuple[int, ...] | None:
    """How many bits each source has; None if the opcode has another number of them."""
    means = meaning(opcode, count + 1)
    if means is None or not means.fits or not set(means.roles[1:]) <= _SOURCES:
        return None
    bits = min(64, type_bits(next(m for m in reversed(opcode.modifiers) if is_type(m))))
    return tuple(
        1 if role is OperandRole.PREDICATE else source_bits(opcode, place, bits)
        for place, role in enumerate(means.roles[1:])
    )
