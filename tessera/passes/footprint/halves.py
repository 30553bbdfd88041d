"""Values of 64 bits that go through a block of code as two halves of 32 bits.

`shfl` moves 32 bits, so a pointer that goes to another thread is taken apart, its halves are moved
alike, and put together again. Of a pointer with an unknown index in it, halves say nothing: its
object is lost. So it is noted here which registers are halves of one value, and what that value
becomes on the way.

A note says: in the threads that are here, this register is the lower (or upper) half of that value,
bit for bit. It is made and used inside of one block only, whose threads stay the same, and holds as
long as the register has not been written (`Halves.of` compares the objects).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tessera.ir.arrays import Flags, Signed, Words
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.types import is_type
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lanes import FAR, MASK, U64, WIDE, Lanes

_KEPT = 64  # moved values at a time
_WORDS = frozenset({"b64", "u64", "s64"})
_HALVES = frozenset({"b32", "u32", "s32"})
_JOINS = frozenset({"or", "xor", "add"})
_CUTS = frozenset({"cvt", "and", "shr"})
_MOVES = frozenset({"mov", "shl", "bfi", "selp"})


class Half(NamedTuple):
    """A half of a value, 0 the lower and 1 the upper one; `up`: moved to the upper 32 bits.

    `origin` is the register that was taken apart: equal sets of values are not equal values.
    """

    whole: Lanes
    origin: str
    place: int
    up: bool = False


class Halves:
    """Which registers of the block at hand are halves, and what became of whole values."""

    def __init__(self) -> None:
        self.registers: dict[str, tuple[Lanes, Half]] = {}
        # What a value becomes in other threads, so that both halves find the same one.
        self.moved: dict[tuple[object, ...], tuple[tuple[Lanes, ...], Lanes | None]] = {}

    def may_touch(self, opcode: ptx.Opcode) -> bool:
        """Whether an instruction may make halves, or use halves that are known."""
        name = opcode.name
        return name in _CUTS or (bool(self.registers) and (name in _MOVES or name in _JOINS))

    def clear(self) -> None:
        """Another block begins."""
        self.registers.clear()
        self.moved.clear()

    def note(self, name: str, value: Lanes | None, half: Half | None) -> None:
        """Note that a register holds a half."""
        if half is not None and value is not None:
            self.registers[name] = value, half

    def of(
        self, operand: ptx.Operand, registers: Mapping[str | tuple[int, int], Lanes]
    ) -> Half | None:
        """What the register that an operand names is a half of."""
        if not isinstance(operand, ptx.Name) or operand.component is not None:
            return None
        value, half = self.registers.get(operand.name, (None, None))
        return half if half is not None and registers.get(operand.name) is value else None

    def whole(self, first: Half | None, second: Half | None, *, up: bool) -> Lanes | None:
        """The value that two halves make; the upper one stands in its place (`up`) or not."""
        if first is None or second is None:
            return None
        low, high = (first, second) if first.place == 0 else (second, first)
        fits = (low.place, low.up, high.place, high.up) == (0, False, 1, up)
        is_one = low.whole is high.whole and low.origin == high.origin
        return low.whole if fits and is_one else None

    def shuffled(self, half: Half | None, sources: Signed | None, threads: int) -> Half | None:
        """A half that every thread has from the thread in `sources`; None: from any thread."""
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
        """A half of one of two values: of the first where a predicate holds."""
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
        self.moved[key] = parts, moved  # the parts are kept, so that no other has their ids


def result_half(
    step: ptx.Instruction, values: Sequence[Lanes], halves: Sequence[Half | None], known: Halves
) -> Half | Lanes | None:
    """What the result of an instruction on these values is: a half, a whole value, or neither."""
    opcode, source = step.opcode, step.operands[1]
    types = [modifier for modifier in opcode.modifiers if is_type(modifier)]
    if not isinstance(source, ptx.Name) or {"cc", "sat"} & set(opcode.modifiers):
        return None
    first = halves[0]
    match opcode.name:
        case "mov" if types[-1] in _HALVES | _WORDS:
            return first
        case "cvt" if len(types) == 2 and types[0] in _HALVES and types[1] in _WORDS:
            return _lower(values[0], first, source.name)
        case "cvt" if len(types) == 2 and types[0] in _WORDS and types[1] in {"u32", "b32"}:
            return first
        case "and" if types[-1] == "b64" and _is(values[1], MASK[32]):
            return _lower(values[0], first, source.name)
        case "shr" if types[-1] in {"u64", "b64"} and _is(values[1], 32) and first is None:
            return Half(values[0], source.name, 1) if _is_open(values[0]) else None
        case "shl" if types[-1] == "b64" and _is(values[1], 32) and first is not None:
            return first._replace(up=True) if first.place == 1 and not first.up else None
        case "selp" if types[-1] in _HALVES:
            return known.selected(first, halves[1], values[2])
        case "bfi" if types[-1] == "b64" and _is(values[2], 32) and _is(values[3], 32):
            return known.whole(first, halves[1], up=False) if first and first.place else None
        case name if name in _JOINS and types[-1] in _WORDS:
            return known.whole(first, halves[1], up=True)
    return None


def _lower(value: Lanes, half: Half | None, origin: str) -> Half | None:
    """The lower half of a register of 64 bits, which may hold a half as it is."""
    if half is not None:
        return None if half.up else half
    return Half(value, origin, 0) if _is_open(value) else None


def _is_open(value: Lanes) -> bool:
    """Whether halves of a value say less than the value."""
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
    wide: Flags = span >= U64(WIDE)
    reach = np.where(wide, U64(MASK[64]), above + np.where(wide, U64(0), span))
    result = lanes.settle(low, reach.max(axis=-1, keepdims=True), 64, value.why, keeps_anchor=True)
    result = lanes.of_kind(result, value.kind)
    result.slopes = dict(value.slopes)
    return result
