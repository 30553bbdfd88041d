"""Checkpoints: places where a run can continue after its piece of the grid was split.

In: the state of a machine between two instructions, and a piece of the grid with a part of it. Out:
the state in that part. So the instructions before a `Split` are not run again for each part.

A value of the piece is a sum with a digit in it (`slopes`). In a part the digit is a number, a
number plus other digits, or spelled out; the value is the same sum with the digit replaced. If the
digit is spelled out, arrays that already have the axis of the grid get more numbers along it, in
order.

A checkpoint is taken only outside of loops and of branches that depend on data, when all threads
are at the same place. Accesses recorded before it hold for all CTAs of the piece.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tessera.ir.arrays import Flags, Offsets, Words
from tessera.passes.footprint.excerpt_state import Key, SliceState
from tessera.passes.footprint.halves import Half
from tessera.passes.footprint.moved_products import OpenProduct
from tessera.passes.footprint.pieces import GridAxis, GridPiece
from tessera.passes.footprint.recorder import Recorder
from tessera.passes.lane_values.lanes import MASKS, U64, Lanes, sloped
from tessera.passes.lane_values.masks import Mask
from tessera.wording import Wording


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCheckpoint:
    """The state before step `place` of a block; `recorder` has the accesses since the last one."""

    block: int
    place: int
    mask: Mask
    registers: dict[Key, Lanes]
    halves: dict[str, tuple[Lanes, Half]]
    products: dict[str, OpenProduct]
    origins: dict[Key, int]
    pins: dict[int, Wording]
    local_kind: int
    recorder: Recorder

    def in_part(self, piece: GridPiece, part: GridPiece, widths: dict[str, int]) -> RunCheckpoint:
        """The state of a part of the piece; registers have these widths in bits."""
        (axis,) = (i for i in range(3) if piece.axes[i] is not part.axes[i])
        move = _DigitMove(axis, piece.axes[axis], part.axes[axis])

        def bits(key: Key) -> int:
            return widths.get(key, 64) if isinstance(key, str) else 8 * key[1]

        return replace(
            self,
            mask=move.mask(self.mask),
            registers={key: move.value(v, bits(key)) for key, v in self.registers.items()},
            halves={
                name: (
                    move.value(value, bits(name)),
                    half._replace(whole=move.value(half.whole, 64)),
                )
                for name, (value, half) in self.halves.items()
            },
            products={
                name: (move.value(first, 32), move.value(second, 32), signed)
                for name, (first, second, signed) in self.products.items()
            },
            recorder=Recorder(self.recorder.zones),
        )


def take_checkpoint(
    runner: SliceState, place: tuple[int, int], mask: Mask, last: RunCheckpoint | None
) -> RunCheckpoint | None:
    """The state of a run at a step of a block, since the last checkpoint; the last checkpoint again
    if something is open that cannot be put into a part."""
    maps = runner.made_maps
    if runner.elections or runner.guarded_writes or runner.halves.moved or maps.copies:
        return last
    if maps.first != -1 or runner.assumed.count:
        return last
    done, recorder = runner.recorder, Recorder(runner.scene.zones)
    done.finish()
    recorder.work = done.work
    runner.recorder = recorder
    if last is not None:
        last.recorder.absorb(done)
        done = last.recorder
    return RunCheckpoint(
        block=place[0],
        place=place[1],
        mask=mask,
        registers=dict(runner.registers),
        halves=dict(runner.halves.registers),
        products=dict(runner.products.open),
        origins=runner.origins,
        pins=dict(runner.pins),
        local_kind=runner.local_kind,
        recorder=done,
    )


def restore(runner: SliceState, at: RunCheckpoint) -> None:
    """Continue from a checkpoint of this part."""
    runner.registers, runner.pins = dict(at.registers), dict(at.pins)
    runner.halves.registers, runner.products.open = dict(at.halves), dict(at.products)
    runner.origins, runner.local_kind = dict(at.origins), at.local_kind


class _DigitMove:
    """The replacement of one digit of an axis in a part; shared objects stay shared."""

    def __init__(self, axis: int, old: GridAxis, new: GridAxis) -> None:
        (self.digit,) = (d for d in old.digits if d not in new.digits)
        stride = self.digit.stride
        self.first = U64((new.offset - old.offset) // stride)
        self.digits = {d: U64(d.stride // stride) for d in new.digits if d not in old.digits}
        # The number of array axes from this axis on; the last axis is that of threads.
        self.axes = axis + 2
        # For each CTA along the axis, its old number, and the value of the digit above `first`.
        self.sources: Offsets | None = None
        self.steps = np.zeros((1, 1), dtype=U64)
        for distance, count in new.listed[len(old.listed) :]:
            numbers = old.places()[:, None] + distance * np.arange(count, dtype=np.int64)
            order = np.argsort(numbers, axis=None)
            self.sources = order // count
            steps = (order % count * (distance // stride)).astype(U64)
            self.steps = steps.reshape(-1, *[1] * (self.axes - 1))
        self.known: dict[tuple[int, int], tuple[Lanes, Lanes]] = {}

    def value(self, value: Lanes, bits: int) -> Lanes:
        """A value of `bits` bits in the part."""
        known = self.known.get((id(value), bits))
        if known is None:
            # The old value is kept alive, so that no other object gets its id.
            known = self.known[id(value), bits] = value, self._moved(value, bits)
        return known[1]

    def _moved(self, value: Lanes, bits: int) -> Lanes:
        slopes = {digit: self._spread(slope) for digit, slope in value.slopes.items()}
        slope = slopes.pop(self.digit, None)
        start = self._spread(value.start)
        if slope is not None:
            start = (start + slope * (self.first + self.steps)) & MASKS[bits]
            slopes |= {digit: slope * factor for digit, factor in self.digits.items()}
        elif self.sources is None and not value.options:
            return value
        span = None if value.span is None else self._spread(value.span)
        moved = Lanes(start, span, value.why, value.kind)
        moved.options = tuple(self.value(option, bits) for option in value.options)
        return sloped(moved, slopes, bits)

    def _spread(self, numbers: Words) -> Words:
        if self.sources is None or numbers.ndim < self.axes or numbers.shape[-self.axes] == 1:
            return numbers
        return numbers.take(self.sources, axis=-self.axes)

    def mask(self, mask: Mask) -> Mask:
        """The threads of a mask in the part."""
        known: dict[int, Flags] = {}
        for flags in (mask.may, mask.strong, mask.sure):
            if id(flags) not in known:
                known[id(flags)] = self._spread(flags.view(np.uint8).astype(U64)).astype(np.bool_)
        return Mask(*(known[id(flags)] for flags in (mask.may, mask.strong, mask.sure)))
