"""Many rounds of a loop at once.

In: a machine at the head of a loop, and what its registers held some rounds before. Out: the
machine at the head again, many rounds later, with the accesses of all of them recorded.

The registers are taken to be `value + step * t` in round `t`, with the step that was seen (over one
round, or over a few: pipelined loops count stages). The body is run once with `t` as a digit
(`lane_values.digits`) that ends where a decision would change (`RoundLimit`), in each CTA where it
does. If the threads are then the same, and every register that may still be read (`live_steps`) is
`value + step * (t + 1)`, the rounds are proved by induction. Otherwise nothing of it counts, and
rounds are run one by one. A loop in which data decides a branch or a write is not taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tessera.ir.arrays import Flags, Ranges, Signed, Words
from tessera.passes.byte_sets.intervals import TooManyIntervals
from tessera.passes.footprint.excerpt_state import Key, SliceState
from tessera.passes.footprint.recorder import Recorder
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.digits import NotAlike, RoundDigit, RoundLimit, Split
from tessera.passes.lane_values.lanes import (
    MASKS,
    U64,
    Lanes,
    of_kind,
    same,
    sloped,
    spans,
    unknown,
)
from tessera.passes.lane_values.masks import Mask
from tessera.passes.lane_values.narrowing import unnamed
from tessera.wording import Wording

_PERIODS = (1, 2, 3, 4)
_MOST_TRIES = 8
_FIRST_COUNT = 1 << 28
_LEAST_COUNT = 4
_UNFIT = frozenset({"elect", "tensormap", "call", "mapa"})

Registers = dict[Key, Lanes]


class SilentRecorder(Recorder):
    """Records nothing, for a run that only counts the rounds that are alike."""

    def add(
        self, index: int, effect: int, address: Lanes, width: int, may: Flags, sure: Flags
    ) -> None:
        """Nothing."""

    def add_bytes(
        self, index: int, effect: int, zone: int, may: Ranges, sure: Ranges, *, exact: bool
    ) -> None:
        """Nothing."""


@dataclass(slots=True)
class _Visits:
    """The registers at the latest visits of a loop head, the newest visit last."""

    states: list[Registers] = field(default_factory=list)
    count: int = 0


class LoopRounds:
    """The loops of a machine, and how often their heads were visited.

    `rank` is the order of blocks, `run_block` runs one and notes where its threads go.
    """

    def __init__(
        self,
        machine: SliceState,
        rank: dict[int, int],
        run_block: Callable[[int, Mask, dict[int, Mask]], None],
    ) -> None:
        self.machine = machine
        self.rank = rank
        self.run_block = run_block
        self.heads: dict[int, frozenset[int]] = {}
        for loop in machine.code.flow.loops:
            steps = [step for block in loop.blocks for step in machine.code.blocks[block]]
            names = {step.instruction.opcode.name for step in steps}
            if not names & _UNFIT:
                self.heads[loop.header] = frozenset(loop.blocks)
        self.visits: dict[int, _Visits] = {}
        # Registers that are written in the rounds that were seen: their symbols are of one round.
        self.changed: set[Key] = set()

    def visit(self, block: int, mask: Mask) -> None:
        """Before a block is run: at the head of a loop, go through as many rounds as are alike."""
        for head in [h for h in self.visits if block not in self.heads[h]]:
            del self.visits[head]
        if block not in self.heads or not is_plain(mask) or self.machine.side is not None:
            return
        seen = self.visits.setdefault(block, _Visits())
        seen.states = [*seen.states[-max(_PERIODS) :], self.machine.registers]
        self.machine.registers = dict(self.machine.registers)
        seen.count += 1
        period, odd = divmod(seen.count - 1, 2)
        # One round at the third visit, two at the fifth, and so on.
        if odd or period not in _PERIODS or len(seen.states) <= period:
            return
        steps = self._steps(block, seen.states[-1 - period], mask)
        if steps is not None and self._follow(block, mask, period, steps):
            del self.visits[block]

    def _is_live(self, head: int, key: Key) -> bool:
        """Whether a value may be read; words of local memory always may."""
        return not isinstance(key, str) or self.machine.code.live.is_live(head, key)

    def _steps(self, head: int, before: Registers, mask: Mask) -> dict[Key, Lanes] | None:
        """By how much each register grew; None if one did something else."""
        now = self.machine.registers
        if before.keys() != now.keys():
            return None
        self.changed = {key for key, value in now.items() if before[key] is not value}
        steps: dict[Key, Lanes] = {}
        for key, value in now.items():
            old = before[key]
            if old is value or not self._is_live(head, key):
                continue
            if value.options or old.options or value.choice or old.choice:
                return None
            if value.kind != old.kind or not same(value.slopes, old.slopes):
                return None
            if not _equal(spans(value), spans(old), mask.may):
                return None
            grown = (value.start - old.start) & MASKS[self.machine.bits(key)]
            grown = np.where(mask.may, grown, U64(0))
            if grown.any():
                steps[key] = Lanes(grown)
        return steps

    def _follow(self, head: int, mask: Mask, period: int, steps: dict[Key, Lanes]) -> bool:
        """Go through all rounds that are alike; False if they are not, or few.

        First without recording, to see how many they are in each CTA.
        """
        machine = self.machine
        kept = KeptState(machine)
        here = mask.may.any(axis=-1, keepdims=True)
        counts = np.where(here, np.int64(_FIRST_COUNT), 1)
        counted = False
        for _ in range(_MOST_TRIES):
            digit = RoundDigit(counts - 1)
            zones = machine.scene.zones
            recorder = Recorder(zones) if counted else SilentRecorder(zones)
            recorder.work = kept.recorder.work
            machine.recorder = recorder
            try:
                self._run_once(head, mask, period, steps, digit)
                recorder.finish()
            except RoundLimit as limit:
                if limit.digit is not digit:
                    raise
                counts = np.where(here, _fewer(counts, limit.counts), 1)
                if int(counts.max()) < _LEAST_COUNT:
                    break
            except (NotAlike, TooManyIntervals):
                break
            except Split as wanted:
                if digit not in wanted.digits:
                    raise
                break
            else:
                if counted:
                    machine.recorder = kept.recorder
                    kept.recorder.absorb(recorder)
                    kept.recorder.work = recorder.work
                    return True
                counted = True
            kept.restore(machine, recorder.work)
        kept.restore(machine, machine.recorder.work)
        return False

    def _run_once(
        self, head: int, mask: Mask, period: int, steps: dict[Key, Lanes], digit: RoundDigit
    ) -> None:
        """Run the body with a digit for the round, and leave the registers after the last one."""
        machine = self.machine
        first: Registers = {
            key: self._unnamed(key, value)
            if self._is_live(head, key)
            else self._lost(key, value, mask)
            for key, value in machine.registers.items()
        }
        for key, step in steps.items():
            value = first[key]
            slopes = {**value.slopes, digit: step.start}
            first[key] = sloped(value, slopes, machine.bits(key))
        machine.registers = dict(first)
        outer, self.visits = self.visits, {}
        machine.in_rounds = True
        try:
            for _ in range(period):
                self._run_round(head, mask)
        finally:
            machine.in_rounds = False
            self.visits = outer
        after = machine.registers
        if after.keys() != first.keys():
            raise NotAlike
        for key, value in first.items():
            if self._is_live(head, key):
                after[key] = self._last(key, value, after[key], steps.get(key), digit)
            else:
                after[key] = value

    def _unnamed(self, key: Key, value: Lanes) -> Lanes:
        return unnamed(value) if key in self.changed else value

    def _lost(self, key: Key, value: Lanes, mask: Mask) -> Lanes:
        """A register that the threads here no longer read: if one does, it can hold anything."""
        lost = of_kind(unknown(self.machine.bits(key), value.why), value.kind)
        return lost if mask.may.all() else lanes.merge(mask.may, lost, value)

    def _run_round(self, head: int, mask: Mask) -> None:
        inside = self.heads[head]
        pending: dict[int, Mask] = {head: mask}
        block = head
        while True:
            self.run_block(block, pending.pop(block), pending)
            others = [other for other in pending if other != head]
            if not others:
                break
            block = min(others, key=self.rank.__getitem__)
            if block not in inside or not is_plain(pending[block]):
                raise NotAlike
        back = pending.get(head)
        if back is None or not is_plain(back):
            raise NotAlike
        if not _equal(mask.may, back.may) or not _equal(mask.sure, back.sure):
            raise NotAlike

    def _last(
        self, key: Key, first: Lanes, after: Lanes, step: Lanes | None, digit: RoundDigit
    ) -> Lanes:
        """What a register holds after the last round; `after` is what it holds after round `t`."""
        if first is after and step is None:
            return after
        if after.options or after.choice or first.options or first.choice:
            raise NotAlike
        if first.form is not None or first.facts is not None or first.signs is not None:
            raise NotAlike
        bits = self.machine.bits(key)
        wanted = first.start if step is None else (first.start + step.start) & MASKS[bits]
        alike = (
            after.kind == first.kind
            and same(after.slopes, first.slopes)
            and bool((after.start == wanted).all())
            and bool((spans(after) == spans(first)).all())
        )
        if not alike:
            raise NotAlike
        if step is None:
            return after
        rest = {other: slope for other, slope in after.slopes.items() if other is not digit}
        end = (after.start + step.start * digit.last.astype(U64)) & MASKS[bits]
        last = lanes.copied(Lanes(end, after.span, after.why, after.kind))
        return sloped(last, rest, bits)


@dataclass(slots=True, init=False)
class KeptState:
    """The saved state of a machine, to be restored later."""

    registers: Registers
    recorder: Recorder
    pins: dict[int, Wording]
    local_kind: int
    mark: int

    def __init__(self, machine: SliceState) -> None:
        self.registers = machine.registers
        self.recorder = machine.recorder
        self.pins = dict(machine.pins)
        self.local_kind = machine.local_kind
        self.mark = len(machine.assumed.trail)
        machine.registers = dict(self.registers)

    def restore(self, machine: SliceState, work: int) -> None:
        """Restore the state; only the work that was done counts."""
        machine.registers = dict(self.registers)
        machine.recorder = self.recorder
        machine.recorder.work = work
        machine.pins = dict(self.pins)
        machine.local_kind = self.local_kind
        machine.assumed.undo(self.mark)


def is_plain(mask: Mask) -> bool:
    """Whether all threads here are strong, and no election is open."""
    if mask.election != -1:
        return False
    return mask.may is mask.strong or _equal(mask.may, mask.strong)


def _equal(left: Flags | Words, right: Flags | Words, where: Flags | bool = True) -> bool:
    return not bool(((left != right) & where).any())


def _fewer(counts: Signed, limit: Signed) -> Signed:
    """Counts that keep a limit, the same for all threads of a CTA; -1 limits nothing."""
    limited = np.where(limit < 0, _FIRST_COUNT, limit).min(axis=-1, keepdims=True)
    fewer: Signed = np.minimum(counts, limited)
    return fewer
