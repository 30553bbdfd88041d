"""Instructions on addresses, in an excerpt: what their results may be, wherever objects lie.

In: an instruction that computes, with operands of which one is made of addresses (`lane_kinds`) or
is one of several values. Out: its results.

- One of several values: the instruction is run for each of them.
- A comparison of two addresses counts where both are in one object, where one is null, and of
  distances in one object. Which of two objects lies first in memory is not known.
- A sum of addresses of which one address is left is that address, and a sum that is small is a
  distance in one object: all addresses in it cancel out. That is seen from the numbers; so the
  launch is doubtful, and run again with other addresses (`footprint.agreed_footprint`).
- A result that depends on where a variable lies (on bits of its address, or on its neighbours) is
  unknown. Allocations begin at multiples of 256; a variable of a module or of local memory begins
  at multiples of its own alignment and no more, and it is not known which variable follows it. The
  numbers that stand for their addresses are multiples of 256 and far apart, so what shows that is
  no result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod

import numpy as np

from tessera.ir.arrays import Flags, Offsets, Signed, Words
from tessera.ir.ptx.layout import alignment
from tessera.passes.footprint.excerpt_state import SliceState
from tessera.passes.footprint.zones import LOCAL
from tessera.passes.kernel_facts.kernel_code import Step
from tessera.passes.kernel_facts.operand_names import registers_in
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lane_kinds import TESTS, result_kind
from tessera.passes.lane_values.lanes import (
    HARD,
    MASK,
    MIXED,
    MOST_OPTIONS,
    NUMBER,
    POINTER,
    U64,
    Lanes,
)

Results = tuple[Lanes, ...]
Evaluate = Callable[[Step, Sequence[Lanes]], Results]

SUMS, BITS = 1, 2
"""Doubts: addresses came out of sums, or out of something else."""
_SMALL = 1 << 40
_FEW = 3
_FACTORS = frozenset({"and", "mad", "mul", "shl"})


def pointer_results(
    runner: SliceState, step: Step, values: Sequence[Lanes], evaluate: Evaluate
) -> Results:
    """The results of an instruction on addresses; `evaluate` runs it on numbers."""
    if step.instruction.opcode.name in _FACTORS:
        values = [_spelled_out(value) for value in values]
    if not any(value.options for value in values):
        return _results(runner, step, values, evaluate)
    choices = [value.options or (value,) for value in values]
    if prod(map(len, choices)) > MOST_OPTIONS**2:
        why = lanes.reason(*values)
        return tuple(
            lanes.of_kind(lanes.unknown(runner.bits(name), why), HARD) for name in step.targets
        )
    rows = [_results(runner, step, given, evaluate) for given in product(*choices)]
    return tuple(_one_of(column, step) for column in zip(*rows, strict=True))


def _spelled_out(value: Lanes) -> Lanes:
    """A flag or a mask of which little is open, as one of its values."""
    if value.kind or value.span is None or int(value.span.max()) > _FEW:
        return value
    numbers = [
        Lanes(value.low() + np.minimum(value.span, U64(more)))
        for more in range(int(value.span.max()) + 1)
    ]
    copy = lanes.copied(value)
    copy.options = tuple(numbers)
    return copy


def _one_of(values: Sequence[Lanes], step: Step) -> Lanes:
    why = lanes.reason(*values)
    if any(value.kind and not value.options for value in values):
        wide = all(value.kind in (NUMBER, POINTER, MIXED) for value in values)
        if wide:
            return lanes.one_of(values, why if why >= 0 else step.index)
    result = values[0]
    is_test = step.instruction.opcode.name == "setp"
    bits = 1 if is_test else 64
    for value in values[1:]:
        result = lanes.join(result, value, bits)
    result.why = result.why if result.why >= 0 else step.index
    return result


def _results(
    runner: SliceState, step: Step, values: Sequence[Lanes], evaluate: Evaluate
) -> Results:
    if not any(value.kind for value in values):
        return evaluate(step, values)
    if step.instruction.opcode.name in TESTS:
        return _tested(runner, step, values, evaluate)
    unplaced = unplaced_result(runner, step, values)
    if unplaced is not None:
        return (unplaced,)
    bits = runner.bits(step.targets[0])
    kind = result_kind(step.instruction.opcode, values, bits)
    if kind == HARD and any(map(_is_lost, values)):
        return (_hidden(runner, step),)
    (result,) = evaluate(step, values)
    return (settled(runner, lanes.of_kind(result, kind), bits),)


def _is_lost(value: Lanes) -> bool:
    """Whether nothing is known of what was computed from addresses: in 32 bits, too, it may be a
    distance, and is so in every draw of addresses."""
    if value.kind != HARD or value.span is None:
        return False
    return bool(((value.low() == 0) & (value.span > 0)).any())


def settled(runner: SliceState, value: Lanes, bits: int) -> Lanes:
    """A value of the least kind that its numbers show it to be."""
    if value.kind <= POINTER or value.options or bits != 64:
        return value
    if value.span is not None and (value.span >= U64(lanes.WIDE)).any():
        return value
    zones = runner.scene.zones
    if zones.between(*value.bounds()) is not None or zones.decode(value.low())[0].all():
        doubt = SUMS if value.kind == MIXED else BITS
        runner.recorder.doubt = max(runner.recorder.doubt, doubt)
        return lanes.of_kind(value, POINTER)
    is_distance = value.kind == MIXED and bool(_is_small(value.low()).all())
    return lanes.of_kind(value, NUMBER) if is_distance else value


def _is_small(numbers: Words) -> Flags:
    return numbers + U64(_SMALL) < U64(2 * _SMALL)


def _tested(runner: SliceState, step: Step, values: Sequence[Lanes], evaluate: Evaluate) -> Results:
    """The results of a comparison, a minimum or a maximum."""
    first, second = values[0], values[1]
    results = evaluate(step, values)
    open_ = ~_comparable(runner, first, second) | are_neighbours(runner, first, second)
    if open_.any():
        runner.recorder.doubt = max(runner.recorder.doubt, SUMS)
    if step.instruction.opcode.name in {"min", "max"}:
        bits = runner.bits(step.targets[0])
        if open_.any():
            return (lanes.join(first, second, bits),)
        return (lanes.of_kind(results[0], max(first.kind, second.kind)),)
    if not open_.any():
        return results
    anything = [lanes.unknown(runner.bits(name), step.index) for name in step.targets]
    while len(anything) < len(results):
        anything.append(lanes.unknown(1, step.index))
    return tuple(
        lanes.merge(open_, other, result) for other, result in zip(anything, results, strict=True)
    )


def _comparable(runner: SliceState, first: Lanes, second: Lanes) -> Flags:
    """The threads in which the order of two values depends on no address."""
    if max(first.kind, second.kind) > MIXED:
        return np.zeros((1, 1), dtype=np.bool_)
    zones = [runner.scene.zones.decode(value.low())[0] for value in (first, second)]
    small = [_is_small(value.low()) for value in (first, second)]
    null = [(value.low() == 0) & (lanes.spans(value) == 0) for value in (first, second)]
    comparable: Flags = (
        ((zones[0] == zones[1]) & (zones[0] != 0))
        | (small[0] & small[1])
        | (null[0] & (zones[1] != 0))
        | (null[1] & (zones[0] != 0))
    )
    return comparable


def hidden_kind(runner: SliceState, step: Step) -> int:
    """The kind of the unknown results of an instruction that computes: what was computed from
    addresses may be a distance between objects."""
    for operand in step.instruction.operands:
        for name in registers_in(operand):
            value = runner.registers.get(name)
            if value is not None and value.kind:
                return HARD
    return NUMBER


_ALIGNED = 256
_SUMS = frozenset({"add", "cvta", "mov", "selp"})


def unplaced_result(runner: SliceState, step: Step, values: Sequence[Lanes]) -> Lanes | None:
    """What a result may be that shows where a variable lies; None if it shows nothing."""
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


def _hidden(runner: SliceState, step: Step) -> Lanes:
    bits = runner.bits(step.targets[0])
    return lanes.of_kind(lanes.unknown(bits, step.index), HARD)


def _alignment(runner: SliceState, value: Lanes) -> int:
    """What an address is known to be a multiple of, as far as it is one of a variable."""
    if value.kind != POINTER:
        return _ALIGNED
    zones, places = runner.scene.zones.decode(value.start)
    if (zones == LOCAL).all():
        numbers = np.unique(_variables(runner, places)) - 1
        own = [v for v in runner.code.flat.variables if v.space in {"local", "param"}]
        return min(alignment(own[number]) if number >= 0 else 1 for number in numbers.tolist())
    return min(runner.alignments.get(int(zone), _ALIGNED) for zone in np.unique(zones))


def _leaves(runner: SliceState, first: Lanes, second: Lanes) -> bool:
    """Whether an address of local memory is taken from anything but one in the same variable."""
    zones = [runner.scene.zones.decode(value.start)[0] for value in (first, second)]
    alone = (zones[1] == LOCAL) & (zones[0] != LOCAL)
    return bool(alone.any()) or bool(are_neighbours(runner, first, second).any())


def are_neighbours(runner: SliceState, first: Lanes, second: Lanes) -> Flags:
    """The threads whose two values are in different variables of local memory."""
    (zone, place), (other_zone, other) = map(runner.scene.zones.decode, (first.start, second.start))
    numbers, others = _variables(runner, place), _variables(runner, other)
    apart: Flags = (zone == LOCAL) & (other_zone == LOCAL) & (numbers != others)
    return apart


def _variables(runner: SliceState, places: Offsets) -> Signed:
    """The numbers of the variables of local memory around some places, from 1."""
    starts = [start for start, _ in runner.local_variables]
    return np.asarray(np.searchsorted(starts, places, side="right"))
