"""64-bit values that go through a block of code as two halves of 32 bits.

`shfl` moves 32 bits, so a pointer that goes to another thread is split, its halves are moved in the
same way, and joined again. The halves of a pointer with an unknown index would be unknown numbers,
and its object would be lost. So this module records which registers are halves of one value, and
what the value becomes on the way.

A record says: in the threads that are here, this register is the lower (or upper) half of that
value, bit for bit. It is made and used inside one block only, whose threads stay the same, and
holds as long as the register is not written (`Halves.of` compares the objects).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tessera.ir.arrays import Signed, Words
from tessera.ir.ptx import syntax as ptx
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lanes import FAR, MASK, U64, WIDE, Lanes

_KEPT = 64  # the most moved values to remember
_WORDS = frozenset({"b64", "u64", "s64"})
_HALVES = frozenset({"b32", "u32", "s32"})
_JOINS = frozenset({"or", "xor", "add"})
_CUTS = frozenset({"cvt", "and", "shr"})
_MOVES = frozenset({"mov", "shl", "bfi", "selp"})


class Half(NamedTuple):
    """A half of a value: 0 is the lower half, 1 the upper; `up`: moved to the upper 32 bits.

    `origin` is the register that was split: equal sets of values are not equal values.
    """

    whole: Lanes
    origin: str
    place: int
    up: bool = False


class Halves:
    """The registers of the current block that are halves, and the moved whole values."""

    def __init__(self) -> None:
        self.registers: dict[str, tuple[Lanes, Half]] = {}
        # The moved values, so that both halves find the same object.
        self.moved: dict[tuple[object, ...], tuple[tuple[Lanes, ...], Lanes | None]] = {}

    def may_touch(self, opcode: ptx.Opcode) -> bool:
        """Whether an instruction may make halves, or use halves that are known."""
        name = opcode.name
        return name in _CUTS or (bool(self.registers) and (name in _MOVES or name in _JOINS))

    def clear(self) -> None:
        """Forget everything at the start of another block."""
        self.registers.clear()
        self.moved.clear()

    def note(self, name: str, value: Lanes | None, half: Half | None) -> None:
        """Record that a register holds a half."""
        if half is not None and value is not None:
            self.registers[name] = value, half

    def of(
        self, operand: ptx.Operand, registers: Mapping[str | tuple[int, int], Lanes]
    ) -> Half | None:
        """The half that the register of an operand holds, if any."""
        if not isinstance(operand, ptx.Name) or operand.component is not None:
            return None
        value, half = self.registers.get(operand.name, (None, None))
        return half if registers.get(operand.name) is value else None

    def whole(self, first: Half | None, second: Half | None, *, up: bool) -> Lanes | None:
        """The value of two halves; `up` says whether the upper half is in the upper bits."""
        if first is None or second is None:
            return None
        low, high = (first, second) if first.place == 0 else (second, first)
        fits = (low.place, low.up, high.place, high.up) == (0, False, 1, up)
        is_one = low.whole is high.whole and low.origin == high.origin
        return low.whole if fits and is_one else None

    def shuffled(self, half: Half | None, sources: Signed | None, threads: int) -> Half | None:
        """The half that every thread gets from the thread in `sources`; None: from any thread."""
        if half is None or half.up:
            return None
        key = ("shfl", half.origin, id(half.whole), None if sources is None else sources.tobytes())
        if key not in self.moved:
            moved = (
                _anywhere(half.whole) if sources is None else _from(half.whole, sources, threads)
            )
            self._keep(key, (half.whole,), moved)
        whole = self.moved[key][1]
        return None if whole is None else half._replace(whole=whole)

    def selected(self, first: Half | None, second: Half | None, chosen: Lanes) -> Half | None:
        """A half of a selection: of the first value where a predicate holds, else of the second."""
        if first is None or second is None or first[2:] != second[2:] or chosen.choice is not None:
            return None
        parts = (first.whole, second.whole, chosen)
        origin = f"{first.origin} {second.origin}"
        key = ("selp", origin, *map(id, parts))
        if key not in self.moved:
            whole = lanes.merge(chosen.low().astype(np.bool_), first.whole, second.whole)
            if chosen.span is not None:
                either = lanes.join(first.whole, second.whole, 64)
                whole = lanes.merge(chosen.span.astype(np.bool_), either, whole)
            self._keep(key, parts, whole)
        selected = self.moved[key][1]
        return None if selected is None else first._replace(whole=selected, origin=origin)

    def _keep(self, key: tuple[object, ...], parts: tuple[Lanes, ...], moved: Lanes | None) -> None:
        if len(self.moved) >= _KEPT:
            self.moved.clear()
        self.moved[key] = parts, moved  # keeps the parts alive, so that their ids stay unique


def result_half(
    step: ptx.Instruction, values: Sequence[Lanes], halves: Sequence[Half | None], known: Halves
) -> Half | Lanes | None:
    """The result of an instruction on these values: a half, a whole value, or neither (None)."""
    opcode, source = step.opcode, step.operands[1]
    type = opcode.modifiers[-1]
    if not isinstance(source, ptx.Name) or {"cc", "sat"} & set(opcode.modifiers):
        return None
    first = halves[0]
    match opcode.name:
        case "mov" if type in _HALVES | _WORDS:
            return first
        case "cvt" if opcode.modifiers[0] in _HALVES and type in _WORDS:
            return _lower(values[0], first, source.name)
        case "cvt" if opcode.modifiers[0] in _WORDS and type in {"u32", "b32"}:
            return first
        case "and" if type == "b64" and _is(values[1], MASK[32]):
            return _lower(values[0], first, source.name)
        case "shr" if type in {"u64", "b64"} and _is(values[1], 32) and first is None:
            return Half(values[0], source.name, 1) if _is_open(values[0]) else None
        case "shl" if type == "b64" and _is(values[1], 32) and first is not None:
            return first._replace(up=True) if first.place == 1 and not first.up else None
        case "selp" if type in _HALVES:
            return known.selected(first, halves[1], values[2])
        case "bfi" if type == "b64" and _is(values[2], 32) and _is(values[3], 32):
            return known.whole(first, halves[1], up=False) if first and first.place else None
        case name if name in _JOINS and type in _WORDS:
            return known.whole(first, halves[1], up=True)
    return None


def _lower(value: Lanes, half: Half | None, origin: str) -> Half | None:
    """The lower half of a register of 64 bits, which may hold a half as it is."""
    if half is not None:
        return None if half.up else half
    return Half(value, origin, 0) if _is_open(value) else None


def _is_open(value: Lanes) -> bool:
    """Whether the halves of a value carry less information than the value."""
    return bool(value.kind) or value.span is not None


def _is(value: Lanes, number: int) -> bool:
    exact = value.span is None and not value.slopes and not value.options and value.size == 1
    return exact and int(value.start.flat[0]) == number


def _from(value: Lanes, sources: Signed, threads: int) -> Lanes:
    """The value of another thread, in every thread."""

    def moved(numbers: Words) -> Words:
        wide = np.broadcast_to(numbers, (*numbers.shape[:-1], threads))
        taken: Words = wide[..., sources]
        return taken

    span = None if value.span is None else moved(value.span)
    result = Lanes(moved(value.start), span, value.why, value.kind)
    result.slopes = {digit: moved(slope) for digit, slope in value.slopes.items()}
    result.options = tuple(_from(option, sources, threads) for option in value.options)
    return result


def _anywhere(value: Lanes) -> Lanes | None:
    """A value that holds those of all threads of the CTA; None if they are in several objects."""
    if value.options:
        options = [_anywhere(option) for option in value.options]
        known = [option for option in options if option is not None]
        return lanes.one_of(known, value.why) if len(known) == len(options) else None
    if any(slope.shape[-1] != 1 for slope in value.slopes.values()):
        return None
    low = value.start.min(axis=-1, keepdims=True)
    above: Words = value.start - low
    if (above >= U64(FAR)).any():
        return None
    span = lanes.spans(value)
    reach = np.where(span >= U64(WIDE), U64(MASK[64]), above + span)
    result = lanes.settle(low, reach.max(axis=-1, keepdims=True), 64, value.why, keeps_anchor=True)
    result = lanes.of_kind(result, value.kind)
    result.slopes = dict(value.slopes)
    return result
