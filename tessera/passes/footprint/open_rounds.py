"""The rounds of a loop that ends where data says so.

In: a machine at the branch at the end of a loop's first round, of which data decides whether it
leads back to the head. Out: the machine at the exit, with the accesses of all rounds recorded; or
nothing, if the rounds are not alike.

The round after the first has number 0. In round `u` a register holds `value + step * u`, with the
step of the first round, where `u` is a symbol (`lane_values.symbols`); a number that does anything
else can be anything. The body is run once to see that this is so, and what the branch tells where
it leads back: a bound on a sum with `u` in it holds at the head of the next round with `u + 1`, and
the branch of the first round says what holds at the head of round 0. If such a bound limits `u`,
the body is run again with all these bounds, and counts. No access in it is certain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tessera.ir.arrays import Flags
from tessera.passes.footprint.excerpt_state import Key, SliceState
from tessera.passes.footprint.rounds import KeptState, SilentRecorder, is_plain
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lanes import MASK, MASKS, NUMBER, U64, Lanes, form_of, same
from tessera.passes.lane_values.masks import ALL, NONE, Mask
from tessera.passes.lane_values.narrowing import narrowed
from tessera.passes.lane_values.symbols import (
    Bounds,
    DataSymbol,
    PredicateFacts,
    SumBound,
    SymbolForm,
    Terms,
    number,
    signed,
    total,
)

_MOST_ROUNDS = (1 << 12, 1 << 18)
_SMALL = 1 << 61

Registers = dict[Key, Lanes]
Pending = dict[int, Mask]


@dataclass(slots=True, eq=False)
class LoopEnd:
    """What was found at the branch at the end of a body: the branch, and the registers."""

    block: int
    taken: Lanes | None = None
    mask: Mask | None = None
    registers: Registers | None = None


class _NotFollowed(Exception):
    """The rounds are not alike, or nothing limits them."""


class OpenRounds:
    """The loops of a machine that can be followed: blocks by their head.

    `rank` is the order of blocks, `run_block` runs one and notes where its threads go. `ends` are
    the loops whose bodies are being run; the machine fills in the last one when it comes to its
    branch.
    """

    def __init__(
        self,
        machine: SliceState,
        heads: dict[int, frozenset[int]],
        rank: dict[int, int],
        run_block: Callable[[int, Mask, Pending], None],
    ) -> None:
        self.machine = machine
        self.heads = heads
        self.rank = rank
        self.run_block = run_block
        self.entered: dict[int, tuple[Mask, Registers]] = {}
        self.ends: list[LoopEnd] = []
        self.failed: set[int] = set()

    def enter(self, block: int, mask: Mask) -> None:
        """Note the registers at the head of a loop."""
        if block in self.heads:
            self.entered[block] = mask, dict(self.machine.registers)

    def capture(self, block: int, taken: Lanes, mask: Mask) -> bool:
        """At a branch that data decides: whether it is the end of the body that is being run."""
        if not self.ends or self.ends[-1].block != block:
            return False
        end = self.ends[-1]
        end.taken, end.mask, end.registers = taken, mask, self.machine.registers
        return True

    def follow(self, block: int, head: int, mask: Mask, told: Bounds, *, back: bool) -> bool:
        """Follow all rounds after the first; `told` is what is known if the branch leads back, and
        `back` whether it does so where its predicate holds."""
        machine = self.machine
        entered = self.entered.get(head)
        if entered is None or block in self.failed or not is_plain(mask):
            return False
        if machine.elections or machine.shared is not None or not _equal(entered[0].may, mask.may):
            return False
        mark, outer = len(machine.assumed.trail), len(self.ends)
        kept = KeptState(machine)
        try:
            loop = _FollowedLoop(
                self, block, head, mask, told, back, entered[1], dict(machine.registers)
            )
            registers = loop.run()
        except _NotFollowed:
            self.failed.add(block)
            machine.assumed.undo(mark)
            kept.restore(machine, machine.recorder.work)
            return False
        finally:
            del self.ends[outer:]
        machine.assumed.undo(mark)
        machine.registers = registers
        return True


class _FollowedLoop:
    """One loop, whose first round has just ended."""

    def __init__(
        self,
        rounds: OpenRounds,
        block: int,
        head: int,
        mask: Mask,
        told: Bounds,
        back: bool,
        before: Registers,
        now: Registers,
    ) -> None:
        self.rounds = rounds
        self.machine = rounds.machine
        self.block, self.head, self.mask = block, head, Mask(mask.may, mask.may, NONE)
        self.told, self.back = told, back
        self.now = now
        self.steps = self._steps(before)

    def run(self) -> Registers:
        """The registers at the exit; `_NotFollowed` if the loop cannot be followed."""
        assumed = self.machine.assumed
        recorder = self.machine.recorder
        for most in _MOST_ROUNDS:
            mark = len(assumed.trail)
            silent = SilentRecorder(self.machine.scene.zones)
            silent.work = recorder.work
            self.machine.recorder = silent
            pins = dict(self.machine.pins)
            symbol = assumed.fresh(number(0), number(most))
            bounds: Bounds = ()
            try:
                bounds = self._bounds(self._body(symbol)[0], symbol)
            except _NotFollowed:
                if most == _MOST_ROUNDS[-1]:
                    raise
            finally:
                recorder.work = silent.work
                self.machine.recorder, self.machine.pins = recorder, pins
                assumed.undo(mark)
            limit = min((_limit(bound, symbol) for bound in bounds), default=most + 1)
            if limit <= most:
                return self._all_rounds(bounds, symbol, max(limit, 0))
        raise _NotFollowed

    def _all_rounds(self, bounds: Bounds, old: DataSymbol, limit: int) -> Registers:
        assumed = self.machine.assumed
        symbol = assumed.fresh(number(0), number(limit))
        for bound in bounds:
            terms = tuple((symbol if s is old else s, factor) for s, factor in bound.terms)
            assumed.assume([SumBound(terms, bound.low, bound.high)], ALL)
        _, after = self._body(symbol)
        joined: Registers = {}
        for key, value in self.now.items():
            other = after.get(key)
            if other is value:
                joined[key] = value
            elif other is not None:
                both = lanes.join(value, other, self.machine.bits(key))
                joined[key] = lanes.merge(self.mask.may, both, value)
            elif isinstance(key, str):
                joined[key] = value
        return joined

    # --- registers -------------------------------------------------------------------------

    def _is_live(self, key: Key) -> bool:
        return not isinstance(key, str) or self.machine.code.live.is_live(self.head, key)

    def _steps(self, before: Registers) -> dict[Key, int | None]:
        """By how much live registers grew in the first round; None: it can be anything."""
        steps: dict[Key, int | None] = {}
        for key, value in self.now.items():
            if not self._is_live(key) or before.get(key) is value:
                continue
            old = before.get(key)
            if old is None or not isinstance(key, str) or value.options or value.choice:
                raise _NotFollowed
            step = self._step(old, value, self.machine.bits(key))
            if step is None and (value.kind != NUMBER or old.kind != NUMBER):
                raise _NotFollowed
            steps[key] = step
        return steps

    def _step(self, old: Lanes, new: Lanes, bits: int) -> int | None:
        first, second = form_of(old), form_of(new)
        if first is None or second is None or old.options or old.choice:
            return None
        if old.kind != new.kind or not same(old.slopes, new.slopes) or first.terms != second.terms:
            return None
        here = self.mask.may
        if not _covers(first.where, here) or not _covers(second.where, here):
            return None
        grown = (second.at - first.at) & MASKS[bits]
        shape = np.broadcast_shapes(grown.shape, here.shape)
        numbers = np.broadcast_to(grown, shape)[np.broadcast_to(here, shape)]
        return signed(int(numbers[0]), bits) if (numbers == numbers[0]).all() else None

    def _head(self, symbol: DataSymbol) -> Registers:
        """The registers at the head of round `symbol`."""
        head: Registers = {}
        for key, value in self.now.items():
            bits = self.machine.bits(key)
            step = self.steps.get(key, 0)
            if not self._is_live(key) or step is None:
                lost = lanes.of_kind(lanes.unknown(bits, value.why), value.kind)
                head[key] = lanes.merge(self.mask.may, lost, value)
            elif step:
                head[key] = self._grown(value, symbol, step, bits)
            else:
                head[key] = value
        return head

    def _grown(self, value: Lanes, symbol: DataSymbol, step: int, bits: int) -> Lanes:
        form = form_of(value)
        assert form is not None
        grown = lanes.copied(value)
        grown.form = SymbolForm(form.at, (*form.terms, (symbol, step)), form.where & self.mask.may)
        grown.span = np.full((1, 1), MASK[bits], dtype=U64)
        if value.span is None:
            grown.span = np.where(self.mask.may, grown.span, U64(0))
        grown.why = value.why if value.why >= 0 else self.block
        grown.facts = grown.signs = None
        narrow = narrowed(grown, bits)
        if narrow is grown:
            raise _NotFollowed
        return narrow

    # --- the body --------------------------------------------------------------------------

    def _body(self, symbol: DataSymbol) -> tuple[PredicateFacts, Registers]:
        """Run the body; what its branch tells, and the registers there."""
        machine, rounds = self.machine, self.rounds
        head = self._head(symbol)
        machine.registers = dict(head)
        end = LoopEnd(self.block)
        rounds.ends.append(end)
        pending: Pending = {self.head: self.mask}
        inside = rounds.heads[self.head]
        started = False
        while pending:
            block = min(pending, key=rounds.rank.__getitem__)
            mask = pending.pop(block)
            if block not in inside or not is_plain(mask) or (started and block == self.head):
                raise _NotFollowed
            started = True
            rounds.enter(block, mask)
            rounds.run_block(block, mask, pending)
        rounds.ends.remove(end)
        if end.taken is None or end.mask is None or end.registers is None:
            raise _NotFollowed
        if not is_plain(end.mask) or not _equal(end.mask.may, self.mask.may):
            raise _NotFollowed
        for key, value in head.items():
            if self._is_live(key) and not self._is_next(key, value, end.registers.get(key)):
                raise _NotFollowed
        return end.taken.facts or PredicateFacts(), end.registers

    def _is_next(self, key: Key, head: Lanes, after: Lanes | None) -> bool:
        """Whether a register holds at the end of a round what it holds at the head of the next."""
        if after is head:
            return not self.steps.get(key, 0)
        step = self.steps.get(key, 0)
        if after is None or after.options or after.choice:
            return False
        if step is None:
            return after.kind == NUMBER
        return self._step(head, after, self.machine.bits(key)) == step

    def _bounds(self, facts: PredicateFacts, symbol: DataSymbol) -> Bounds:
        """What holds at the head of every round: what the branch of the round before tells, or for
        round 0 that of the first round."""
        assumed = self.machine.assumed
        bounds: list[SumBound] = []
        for bound in facts.true if self.back else facts.false:
            step = dict(bound.terms).get(symbol, 0)
            # The symbol of the round is the newest that is not of this round alone.
            if not step or bound.terms[-1][0] is not symbol or _is_large(bound):
                continue
            mark = len(assumed.trail)
            assumed.assume(self.told, ALL)
            first = total(_without(bound.terms, symbol))
            assumed.undo(mark)
            if first is not None:
                low = np.minimum(first[0], bound.low + step)
                high = np.maximum(first[1], bound.high + step)
                bounds.append(SumBound(bound.terms, low, high))
        return tuple(bounds)


def _without(terms: Terms, symbol: DataSymbol) -> Terms:
    return tuple(term for term in terms if term[0] is not symbol)


def _is_large(bound: SumBound) -> bool:
    return max(abs(int(bound.low.min())), abs(int(bound.high.max()))) > _SMALL


def _limit(bound: SumBound, symbol: DataSymbol) -> int:
    """The greatest value that a bound leaves to a symbol that is not negative."""
    step = dict(bound.terms)[symbol]
    rest = total(_without(bound.terms, symbol))
    if rest is None:
        return _SMALL
    if step > 0:
        return int(((bound.high - rest[0]) // step).max())
    return int(((rest[1] - bound.low) // -step).max())


def _covers(where: Flags, threads: Flags) -> bool:
    return not bool((threads & ~where).any())


def _equal(left: Flags, right: Flags) -> bool:
    return left is right or not bool((left != right).any())
