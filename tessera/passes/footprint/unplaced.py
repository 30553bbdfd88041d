"""Results that hang on where a variable lies: on bits of its address, or on its neighbours.

In: an instruction on addresses of variables. Out: what its result may be. Allocations begin at
multiples of 256; a variable of a module or of local memory begins at multiples of its own alignment
and no more, and nobody knows which one follows it. The numbers that stand for their addresses are
multiples of 256 and far apart, so what shows that is no result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tessera.ir.arrays import Flags, Offsets, Signed
from tessera.ir.ptx.layout import alignment
from tessera.passes.footprint.zones import LOCAL
from tessera.passes.kernel_facts.kernel_code import Step
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lanes import HARD, MASK, POINTER, Lanes

if TYPE_CHECKING:
    from tessera.passes.footprint.operands import Operands

_ALIGNED = 256
_SUMS = frozenset({"add", "cvta", "mov", "selp"})


def unplaced_result(runner: Operands, step: Step, values: Sequence[Lanes]) -> Lanes | None:
    """What a result may be that shows where a variable lies; None where it shows nothing."""
    name = step.instruction.opcode.name
    if name in _SUMS:
        return None
    aligned = [_alignment(runner, value) for value in values]
    least = min(aligned)
    if least >= _ALIGNED:
        return None
    if name == "sub":
        return _hidden(runner, step) if _leaves(runner, values[0], values[1]) else None
    if name == "mad" and min(aligned[:2]) >= _ALIGNED:
        return None
    if name not in {"and", "rem"}:
        return _hidden(runner, step)
    numbers = [value for value in values if not value.kind and value.span is None]
    low, high = numbers[0].bounds() if numbers else (0, MASK[64])
    bits = runner.bits(step.targets[0])
    if name == "rem":
        is_power = low == high and low & (low - 1) == 0 and values[1] is numbers[0]
        if is_power and low <= least:
            return None
        return lanes.between(0, low - 1, bits, step.index) if is_power else _hidden(runner, step)
    if high < least or low > MASK[64] - least:
        return None
    if high < _ALIGNED:
        return lanes.between(0, high, bits, step.index)
    address = next(value for value in values if value.kind)
    if low > MASK[64] - _ALIGNED:
        return lanes.widened(address, 64, step.index)
    return _hidden(runner, step)


def _hidden(runner: Operands, step: Step) -> Lanes:
    bits = runner.bits(step.targets[0])
    return lanes.of_kind(lanes.unknown(bits, step.index), HARD)


def _alignment(runner: Operands, value: Lanes) -> int:
    """What an address is known to be a multiple of, as far as it is one of a variable."""
    if value.kind != POINTER:
        return _ALIGNED
    zones, places = runner.scene.zones.decode(value.start)
    if (zones == LOCAL).all():
        numbers = np.unique(_variables(runner, places)) - 1
        own = [v for v in runner.code.flat.variables if v.space in {"local", "param"}]
        return min(alignment(own[number]) if number >= 0 else 1 for number in numbers.tolist())
    return min(runner.alignments.get(int(zone), _ALIGNED) for zone in np.unique(zones))


def _leaves(runner: Operands, first: Lanes, second: Lanes) -> bool:
    """Whether an address of local memory is taken from anything but one in the same variable."""
    zones = [runner.scene.zones.decode(value.start)[0] for value in (first, second)]
    alone = (zones[1] == LOCAL) & (zones[0] != LOCAL)
    return bool(alone.any()) or bool(are_neighbours(runner, first, second).any())


def are_neighbours(runner: Operands, first: Lanes, second: Lanes) -> Flags:
    """Where two values are in different variables of local memory."""
    (zone, place), (other_zone, other) = map(runner.scene.zones.decode, (first.start, second.start))
    numbers, others = _variables(runner, place), _variables(runner, other)
    apart: Flags = (zone == LOCAL) & (other_zone == LOCAL) & (numbers != others)
    return apart


def _variables(runner: Operands, places: Offsets) -> Signed:
    """The numbers of the variables of local memory around some places, from 1."""
    starts = [start for start, _ in runner.local_variables]
    return np.asarray(np.searchsorted(starts, places, side="right"))
