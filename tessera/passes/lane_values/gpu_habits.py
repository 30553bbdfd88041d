"""Where a GPU may compute integers otherwise than the ISA says, because of ptxas or by itself.

In: an opcode. Out: a function that says whether this may happen for given sources, so that the
result is unknown; None for opcodes of which nothing is known. An H200 showed each
(`benchmarks/results/constants_gpu.json`); `docs/developer/soundness.md` says which ptxas does what.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from tessera.ir.opcodes import is_type, type_bits
from tessera.ir.ptx import syntax as ptx
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lanes import U64, Lanes
from tessera.passes.lane_values.sloped_ops import sign_extend, zero_extend

Habit = Callable[[Sequence[Lanes], int], bool]


def habit_of(opcode: ptx.Opcode) -> Habit | None:
    """Whether a GPU may differ, from the sources and the width of the result."""
    name, modifiers = opcode.name, opcode.modifiers
    if name == "cvt":
        types = tuple(m for m in modifiers if is_type(m))
        return _may_take_a_sign if types == ("s64", "u32") else None
    if name == "mad":
        if "wide" in modifiers:
            return None
        return _mixes_constants if "hi" in modifiers else _joins_factors
    return _HABITS.get(name)


def result_bits(opcode: ptx.Opcode) -> int:
    """The width of the result of an opcode that has a habit."""
    return type_bits(next(m for m in opcode.modifiers if is_type(m)))


def _may_take_a_sign(values: Sequence[Lanes], bits: int) -> bool:
    """A left shift behind `cvt.s64.u32` takes bit 31 for a sign."""
    value = lanes.truncate(values[0], 32)
    return not lanes.equal(zero_extend(value, 32), sign_extend(value, 32))


def _mixes_constants(values: Sequence[Lanes], bits: int) -> bool:
    """`mad.hi` with constants: a kernel with several takes one for another."""
    return bool(lanes.single(values[2]))


def _joins_factors(values: Sequence[Lanes], bits: int) -> bool:
    """Of x << k, times a constant, plus x << k, x times a constant in 32 bits is made."""
    if bits != 64:
        return False
    addend = values[2]
    low = addend.low()
    shifted = bool(low.any()) and not (low & U64(0xFF)).any()
    return shifted and any(lanes.equal(value, addend) for value in values[:2])


def _has_least(values: Sequence[Lanes], bits: int) -> bool:
    """The least number counts as positive once it is negated."""
    least = U64(1 << (bits - 1))
    value = values[-1]
    return value.span is not None or bool(value.slopes) or bool((value.low() == least).any())


def _has_least_of_16(values: Sequence[Lanes], bits: int) -> bool:
    return bits == 16 and _has_least(values, bits)


def _negates_least(values: Sequence[Lanes], bits: int) -> bool:
    return lanes.single(values[0]) == 0 and _has_least_of_16(values, bits)


def _shifts_by_less(values: Sequence[Lanes], bits: int) -> bool:
    """Constants count modulo 65536 for 16 bits."""
    return bits == 16 and (lanes.single(values[1]) or 0) >= 1 << 16


def _shifts_left_by_less(values: Sequence[Lanes], bits: int) -> bool:
    """Constants count modulo 64, too, for 64 bits of a product or of a choice of constants."""
    return _shifts_by_less(values, bits) or (bits == 64 and (lanes.single(values[1]) or 0) >= 64)


def _has_far_field(values: Sequence[Lanes], bits: int) -> bool:
    """Places of fields do not count modulo 256 for 64 bits."""
    return bits == 64 and any((lanes.single(value) or 0) > 0xFF for value in values[-2:])


def _inserts_past_the_top(values: Sequence[Lanes], bits: int) -> bool:
    """A length past the top counts modulo 32 if start and length are constants."""
    start, length = ((lanes.single(value) or 0) & 0xFF for value in values[-2:])
    return length > bits or (length == bits and start > 0) or _has_far_field(values, bits)


def _repeats_signs(values: Sequence[Lanes], bits: int) -> bool:
    """Bit 3 of a choice of `prmt` repeats a sign: bytes of the result are read wrongly."""
    return bool((lanes.single(values[2]) or 0) & 0x8888)


def _repeats_a_source(values: Sequence[Lanes], bits: int) -> bool:
    """`lop3` of a repeated source is joined wrongly with what follows it."""
    return any(lanes.equal(a, b) for a, b in itertools.combinations(values[:3], 2))


_HABITS: dict[str, Habit] = {
    "abs": _has_least,
    "neg": _has_least_of_16,
    "sub": _negates_least,
    "shl": _shifts_left_by_less,
    "shr": _shifts_by_less,
    "bfe": _has_far_field,
    "bfi": _inserts_past_the_top,
    "prmt": _repeats_signs,
    "lop3": _repeats_a_source,
}
