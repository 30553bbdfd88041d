"""Runs the excerpt of a kernel over all threads of some CTAs at once.

In: a `KernelCode` and a `Scene`. Out: the accesses, in a `Recorder`, and what could not be
followed (`pins`).

Three sets of threads travel with control: those that *may* be here; the *strong* ones among them,
for which registers hold what they would hold on the way here; and the *sure* ones among those,
which come here whatever the data. A branch whose condition is known per thread splits the sets. No
thread takes a path that ends in a trap: launches end normally. A branch whose condition is not
known:
- inside an `if`: both sides run one after the other on a copy of the registers, and the
  registers are joined where the sides meet again (the post-dominator). Being sure counts for the
  side only; what a thread surely writes on both sides, it surely writes (`both_ways`);
- as a way out of a loop: the threads go both ways and are no longer strong. Assignments then
  join with the old value instead of replacing it, and a block is not run again once nothing
  changed; what still changes after a few rounds becomes unknown. At the post-dominator of the
  branch they are strong, and as sure as before: launches end, so all of them come there.

The lowest block in the order of the control flow always runs first, so loops finish before what
follows them. Inside a circle with several entries that is not known: where data decides a branch in
it, or a loop in it is widened, nothing is concluded. Work is counted in nanoseconds, roughly: one
per element and some thousands per step. Past the budget, `OverBudget`: nothing counts then.

Longer than 400 lines because every way that a branch can be taken changes the same sets of threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from tessera.ir.arrays import Flags
from tessera.ir.opcodes import Flow
from tessera.ir.ptx.control_flow import EXIT, branch_targets, innermost_loops
from tessera.passes.footprint.both_ways import Side
from tessera.passes.footprint.checkpoints import RunCheckpoint, restore, take_checkpoint
from tessera.passes.footprint.excerpt_state import Follower, Key
from tessera.passes.footprint.open_rounds import OpenRounds
from tessera.passes.footprint.pieces import GridPiece
from tessera.passes.footprint.recorder import Recorder
from tessera.passes.footprint.rounds import LoopRounds
from tessera.passes.footprint.scene import Scene
from tessera.passes.footprint.steps import StepRunner
from tessera.passes.kernel_facts.kernel_code import KernelCode, Step
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.digits import NotAlike
from tessera.passes.lane_values.lanes import HARD, U64, Lanes
from tessera.passes.lane_values.masks import ALL, NONE, Mask, same_threads
from tessera.passes.lane_values.predicates import invert
from tessera.passes.lane_values.symbols import PredicateFacts
from tessera.passes.lane_values.warps import elected_sides

MANY_ROUNDS_AT_ONCE = True
_ROUNDS = 3
# After this many rounds, a loop that brings in objects one after the other has reached them all.
_MOST_ROUNDS = 24
_STEP_COST = 15_000
BETWEEN = 32  # steps from one checkpoint to the next
_DEEPEST_FORK = 24
# A fork that only meets at the end runs the rest of the kernel twice.
_DEEPEST_EXIT = 4


class OverBudget(Exception):
    """The budget of work is used up, or no amount of work would suffice."""


def _told(taken: Lanes) -> PredicateFacts:
    """What is known on either side of a branch."""
    return taken.facts or PredicateFacts()


class SliceMachine(StepRunner):
    """One run; see the module docstring."""

    def __init__(
        self,
        code: KernelCode,
        scene: Scene,
        piece: GridPiece | None,
        recorder: Recorder,
        budget: int,
        most_rounds: int | None = None,
        shared: Follower | None = None,
    ) -> None:
        super().__init__(code, scene, piece, recorder, shared)
        self.rank = {block: i for i, block in enumerate(code.flow.order)}
        self.budget = budget
        self.most_rounds = most_rounds
        self.visits: dict[int, int] = {}
        self.depth = 0
        self.loop_of = innermost_loops(code.flow)
        starts = {block.start: block.index for block in code.flow.blocks}
        self.labels = {label.name: starts.get(label.index, EXIT) for label in code.flat.labels}
        # Whether all threads that have not ended are in the run at hand.
        self.alone = True
        self.untidy = False
        self.checkpoint: RunCheckpoint | None = None
        self.may_split = shared is None and bool(piece and piece.digits) and not code.flow.tangled
        self.since = 0
        is_exact = most_rounds is None and shared is None and MANY_ROUNDS_AT_ONCE
        self.rounds = LoopRounds(self, self.rank, self.run_block) if is_exact else None
        self.open_rounds: OpenRounds | None = None
        if self.rounds is not None and piece is not None:
            heads = self.rounds.heads
            self.open_rounds = OpenRounds(self, heads, self.rank, self.run_block)

    def start(self, at: RunCheckpoint | None = None) -> None:
        """Run the kernel to its end, from its entry or from a checkpoint."""
        pending = {0: Mask(ALL, ALL, ALL)}
        if at is not None:
            restore(self, at)
            self.checkpoint, pending = at, {}
            self.run_block(at.block, at.mask, pending, at.place)
        self.run(pending, EXIT)

    def _take_checkpoint(self, block: int, place: int, mask: Mask) -> None:
        """Take one every `BETWEEN` steps, less often if there are many registers to keep."""
        self.since += 1
        if self.may_split and self.since > BETWEEN + len(self.registers):
            self.since = 0
            self.checkpoint = take_checkpoint(self, (block, place), mask, self.checkpoint)

    def run(self, pending: dict[int, Mask], stop: int) -> None:
        """Run until no block is pending, or all threads are at block `stop`."""
        seen: dict[int, tuple[Flags, dict[Key, Lanes], int]] = {}
        while pending:
            block = min(pending, key=self.rank.__getitem__)
            if block == stop:
                return
            mask = self._skip_settled(block, pending.pop(block), seen)
            if mask is None:
                continue
            mask = self._limit_rounds(block, mask, pending)
            if self.rounds is not None:
                self.rounds.visit(block, mask)
            if self.open_rounds is not None:
                self.open_rounds.enter(block, mask)
            self.run_block(block, mask, pending)
            self._check_budget()

    def _check_budget(self) -> None:
        if self.work + self.recorder.work > self.budget:
            raise OverBudget

    # --- blocks --------------------------------------------------------------------------

    def run_block(self, block: int, mask: Mask, pending: dict[int, Mask], first: int = 0) -> None:
        """Run one block, or its end from a step on, and note where its threads go."""
        steps = self.code.blocks[block]
        self.work += _STEP_COST * (1 + len(steps) - first)
        leaves = False
        if not first:
            self.halves.clear()
            self.products.clear()
        # True if all threads are here, and no thread reaches this block again.
        passes = self.alone and not pending and not self.in_rounds and self.loop_of[block] is None
        if passes and self.untidy and not first:
            live = self.code.live.is_live
            for name in [k for k in self.registers if isinstance(k, str) and not live(block, k)]:
                del self.registers[name]
        self.untidy = not passes
        for place in range(first, len(steps)):
            step = steps[place]
            if passes:
                self._take_checkpoint(block, place, mask)
            flow = step.meaning.flow
            if flow is Flow.NEXT or flow is Flow.CALL:
                self.step(step, mask)
                self._check_budget()
            else:
                self._leave(block, step, mask, pending)
                leaves = True
            if passes:
                for name in self.code.live.ends[step.index]:
                    self.registers.pop(name, None)
        if not leaves:
            for target in self.code.flow.blocks[block].successors:
                self._pend(pending, target, mask)

    def _leave(self, block: int, step: Step, mask: Mask, pending: dict[int, Mask]) -> None:
        """The branch at the end of a block."""
        instruction = step.instruction
        if step.meaning.flow is Flow.INDEXED_BRANCH:
            self._indexed_branch(block, step, mask, pending)
            return
        target = EXIT
        if step.meaning.flow is Flow.BRANCH:
            target = self.labels.get(branch_targets(self.code.flat, instruction)[0], EXIT)
        following = self._next_block(block)
        if instruction.guard is None:
            self._pend(pending, target, mask)
            return
        taken = self.predicate(instruction.guard)
        if step.meaning.flow is Flow.TRAP or target in self.code.doomed:
            self._assume_passed(invert(taken), mask)
            self._pend(pending, following, mask.unless(taken))
            return
        if following in self.code.doomed:
            self._assume_passed(taken, mask)
            self._pend(pending, target, mask.unless(invert(taken)))
            return
        if taken.span is not None:
            mask = self._open_branch(block, (target, following), mask, taken, pending)
        self._pend(pending, target, mask.narrow(taken))
        self._pend(pending, following, mask.narrow(invert(taken)))

    def _assume_passed(self, passed: Lanes, mask: Mask) -> None:
        """Go on with what is known where threads did not come to a trap."""
        if passed.facts is not None:
            certain = mask.sure if self.side is None else None
            self.assumed.assume(passed.facts.true, mask.strong, certain)

    def _next_block(self, block: int) -> int:
        return block + 1 if block + 1 < len(self.code.flow.blocks) else EXIT

    def _indexed_branch(self, block: int, step: Step, mask: Mask, pending: dict[int, Mask]) -> None:
        names = branch_targets(self.code.flat, step.instruction)
        targets = [self.labels.get(name, EXIT) for name in names]
        here = self.guarded(step.instruction, mask)
        if step.instruction.guard is not None:
            away = invert(self.predicate(step.instruction.guard))
            self._pend(pending, self._next_block(block), mask.narrow(away))
        if here is None:
            return
        index = self.value(step.instruction.operands[0], 32, step.index)
        if index.span is not None:
            self._check_entries(block)
            self._scatter(block, tuple(targets), here, ALL, pending)
            return
        for place, target in enumerate(targets):
            chosen = Lanes((index.low() == U64(place)).astype(U64))
            self._pend(pending, target, here.narrow(chosen))

    def _pend(self, pending: dict[int, Mask], target: int, mask: Mask | None) -> None:
        if mask is None or target == EXIT or not mask.any():
            return
        old = pending.get(target)
        pending[target] = mask if old is None else old.union(mask)

    # --- branches that the data decides ----------------------------------------------------

    def _open_branch(
        self,
        block: int,
        ways: tuple[int, int],
        mask: Mask,
        taken: Lanes,
        pending: dict[int, Mask],
    ) -> Mask:
        """Deal with the strong threads whose condition is unknown; the others are left."""
        chosen = mask.strong & lanes.spans(taken).astype(np.bool_)
        if not chosen.any():
            return mask
        self._check_entries(block)
        if self.in_rounds:
            raise NotAlike
        if self.open_rounds is not None and same_threads(chosen & mask.may, mask.may):
            if self.open_rounds.capture(block, taken, mask):
                return mask.without(chosen)
            if self._follow_rounds(self.open_rounds, block, ways, mask, taken):
                (after,) = (way for way in ways if way != self._head(block))
                self._pend(pending, after, mask)
                return mask.without(chosen)
        meet = self.code.meets[block]
        deepest = _DEEPEST_EXIT if meet == EXIT else _DEEPEST_FORK
        if self._is_forward(block, ways) and self.depth < deepest:
            self._fork(block, ways, mask, chosen, taken, pending)
            return mask.without(chosen)
        self._scatter(block, ways, mask, chosen, pending)
        return mask.without(chosen)

    def _head(self, block: int) -> int | None:
        loop = self.loop_of[block]
        return None if loop is None else self.code.flow.loops[loop].header

    def _follow_rounds(
        self,
        rounds: OpenRounds,
        block: int,
        ways: tuple[int, int],
        mask: Mask,
        taken: Lanes,
    ) -> bool:
        """Follow a loop whose end, at this branch, depends on data; False if that does not work."""
        head, loop = self._head(block), self.loop_of[block]
        if head is None or loop is None or head not in ways or head not in rounds.heads:
            return False
        back = ways[0] == head
        after = ways[1] if back else ways[0]
        if after == EXIT or after in self.code.flow.loops[loop].blocks:
            return False
        told = _told(taken)
        return rounds.follow(block, head, mask, told.true if back else told.false, back=back)

    def _check_entries(self, block: int) -> None:
        """Raise `OverBudget` if threads that part here meet inside a loop with several entries."""
        if {block, self.code.meets[block]} & self.code.flow.tangled:
            raise OverBudget

    def _is_forward(self, block: int, ways: tuple[int, ...]) -> bool:
        """Whether both ways stay in the innermost loop and meet again before its next round."""
        rank, loop = self.rank[block], self.loop_of[block]
        if any(way != EXIT and self.rank[way] <= rank for way in ways):
            return False
        meet = self.code.meets[block]
        if loop is None:
            return meet is not None
        inside = self.code.flow.loops[loop].blocks
        if meet is None or meet == EXIT or meet not in inside or self.rank[meet] <= rank:
            return False
        return all(way in inside for way in ways)

    def _fork(
        self,
        block: int,
        ways: tuple[int, int],
        mask: Mask,
        chosen: Flags,
        taken: Lanes,
        pending: dict[int, Mask],
    ) -> None:
        meet = self.code.meets[block]
        assert meet is not None
        elected = elected_sides(mask, chosen, taken, is_side=self.side is not None)
        before, outer, guarded = self.registers, self.side, self.guarded_writes
        sides: list[dict[Key, Lanes]] = []
        writes = (Side(), Side())
        alone, self.alone = self.alone, False
        self.depth += 1
        for way, side, here, told in zip(ways, writes, elected, _told(taken), strict=True):
            self.registers, self.side = dict(before), side
            mark = len(self.assumed.trail)
            self.assumed.assume(told, chosen)
            self.guarded_writes = {name: known.copy() for name, known in guarded.items()}
            if way not in (meet, EXIT):
                start = Mask(chosen, chosen, mask.sure & chosen)
                self.run({way: start.with_election(*here)}, meet)
            self.assumed.undo(mark)
            sides.append(self.registers)
        self.depth -= 1
        self.alone = alone
        self.side, self.guarded_writes = outer, guarded
        self.registers = self._join_sides(sides[0], sides[1], chosen)
        self.settle_writes(*writes)
        self._pend(pending, meet, Mask(chosen, chosen, mask.sure & chosen))

    def _join_sides(
        self, first: dict[Key, Lanes], second: dict[Key, Lanes], chosen: Flags
    ) -> dict[Key, Lanes]:
        joined: dict[Key, Lanes] = {}
        for key in first.keys() | second.keys():
            a, b = first.get(key), second.get(key)
            if a is b or b is None or a is None:
                known = a if a is not None else b
                # A word of memory that one side does not know is unknown; a register that one
                # side has not written holds nothing there.
                if known is not None and (a is b or isinstance(key, str)):
                    joined[key] = known
                continue
            self.work += a.size
            joined[key] = lanes.merge(chosen, lanes.join(a, b, self.bits(key)), a)
        return joined

    def _scatter(
        self,
        block: int,
        ways: tuple[int, ...],
        mask: Mask,
        chosen: Flags,
        pending: dict[int, Mask],
    ) -> None:
        """Send threads all ways at once; they are strong again where all ways meet."""
        weak = mask.may & chosen
        for way in dict.fromkeys(ways):
            self._pend(pending, way, Mask(weak, NONE, NONE))
        meet = self.code.meets[block]
        if meet is not None and meet != EXIT and self.rank[meet] <= self.rank[block]:
            meet = self._after_loop(block)
        strong = mask.strong & chosen
        if meet is not None and meet != EXIT:
            self._pend(pending, meet, Mask(strong, strong, mask.sure & chosen))

    # --- rounds ----------------------------------------------------------------------------

    def _skip_settled(
        self, block: int, mask: Mask, seen: dict[int, tuple[Flags, dict[Key, Lanes], int]]
    ) -> Mask | None:
        """Drop threads that are not strong and for which nothing changed since the last time."""
        weak = mask.may & ~mask.strong
        if mask.strong.any():
            # The loop is entered again: rounds of an earlier visit do not count.
            seen.pop(block, None)
        if not weak.any():
            return mask
        last = seen.get(block)
        rounds = 0
        if last is not None:
            covered, before, rounds = last
            # Until the last round it matters only whether anything has changed.
            changed = list(islice(self._changed(before, weak), None if rounds >= _ROUNDS else 1))
            if not changed and not (weak & ~covered).any():
                return mask.without(weak) if mask.strong.any() else None
            if rounds >= _ROUNDS:
                for key in changed:
                    self._forget(key, weak, keeps_objects=rounds < _MOST_ROUNDS)
            weak = weak | covered
        seen[block] = (weak, dict(self.registers), rounds + 1)
        return mask

    def _changed(self, before: dict[Key, Lanes], weak: Flags) -> Iterator[Key]:
        for key, value in self.registers.items():
            old = before.get(key)
            if old is value:
                continue
            if old is None:
                yield key
                continue
            self.work += value.size
            if lanes.differ(old, value, weak):
                yield key
        yield from (key for key in before if key not in self.registers)

    def _forget(self, key: Key, weak: Flags, *, keeps_objects: bool) -> None:
        """What keeps changing can be anything; the anchor stays, unless it keeps changing too."""
        value = self.registers.get(key)
        if value is None:
            return
        why = value.why if value.why >= 0 else self.origin(key)
        wide = lanes.widened(value, self.bits(key), why)
        if not keeps_objects and value.kind:
            wide = lanes.of_kind(lanes.unknown(self.bits(key), why), HARD)
        self.registers[key] = lanes.merge(weak, wide, value)

    def _limit_rounds(self, block: int, mask: Mask, pending: dict[int, Mask]) -> Mask:
        """Past the limit on rounds, a loop that the data does not decide is widened too."""
        if self.most_rounds is None or self.loop_of[block] is None or not mask.strong.any():
            return mask
        self.visits[block] = self.visits.get(block, 0) + 1
        if self.visits[block] <= self.most_rounds:
            return mask
        self._check_entries(block)
        meet = self._after_loop(block)
        if meet is not None and meet != EXIT:
            self._pend(pending, meet, Mask(mask.strong, mask.strong, mask.sure))
        return Mask(mask.may, NONE, NONE)

    def _after_loop(self, block: int) -> int | None:
        """The block outside all loops that every thread in a loop around this block reaches."""
        meet: int | None = block
        while meet is not None and meet != EXIT and self.loop_of[meet] is not None:
            meet = self.code.meets[meet]
        return meet
