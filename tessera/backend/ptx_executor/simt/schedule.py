"""Runs a chunk: picks lanes and blocks until all lanes have exited or wait for each other.

Lanes at the start of the same block run it together. Among the blocks with lanes, the lowest in the
program's order runs first, so lanes that diverged reconverge where their paths join. An exception
to this order guarantees progress: a loop that polls memory (a strong load, an atomic, `try_wait`,
`nanosleep`) and repeats without any lane leaving it is moved behind all other blocks. When only
polling loops are left they run in turn, and after a while the chunk lets other chunks run.

A step is one instruction of one group of lanes; a chunk may make a limited number of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tessera.backend.ptx_executor.memory.faults import Fault
from tessera.backend.ptx_executor.memory.lanes import LaneSet
from tessera.backend.ptx_executor.memory.memory import Array
from tessera.backend.ptx_executor.simt import report
from tessera.backend.ptx_executor.simt.barriers import BarrierUse, Meetings, split_members
from tessera.backend.ptx_executor.simt.chunk import Chunk
from tessera.backend.ptx_executor.simt.compiled import CompiledBlock
from tessera.backend.ptx_executor.simt.livelock import Rounds, Stillness
from tessera.diagnostics import TesseraError

DONE = "done"
YIELDED = "yielded"

_POLLS_BEFORE_STEPPING_BACK = 16
_ROUNDS_BEFORE_YIELDING = 64


class ChunkRunner:
    """One chunk in progress."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.blocks = chunk.launch.program.blocks
        self.registers = chunk.registers
        self.waiting: dict[int, LaneSet] = {chunk.launch.program.entry: chunk.everyone}
        self.alive: Array | None = None
        self.alive_count = chunk.ctas * chunk.threads
        self.parked: dict[int, Array] = {}
        self.meetings = Meetings(chunk)
        self.steps = 0
        self.streaks: dict[int, tuple[int, int]] = {}
        self.stepped_back: set[int] = set()
        self.joined: set[int] = set()
        self.rounds = 0
        self.stillness = Stillness(chunk.launch.program)
        self.endless = Rounds(chunk.launch.program)
        self.stuck = False
        self.moved = True

    # --- the loop ----------------------------------------------------------------------

    def run(self) -> str:
        """Run until all lanes have exited (`DONE`) or only polling loops are left."""
        limit = self.chunk.launch.max_steps
        self.rounds = 0
        if self.steps:
            self.stillness.begin(self.registers, self.waiting)
            self.endless.resume(self.steps)
        while self.waiting or self._join_warp_barriers():
            number = self._pick()
            if number is None:
                self.stuck = self.stillness.repeated(self.registers, self.waiting)
                self.moved = self.stillness.moved
                return YIELDED
            if self.steps >= self.endless.due and self.endless.look(
                number, self.steps, self.registers, self.waiting
            ):
                self.stuck = True
                self.moved = self.stillness.moved
                return YIELDED
            lanes = self.waiting.pop(number)
            block = self.blocks[number]
            if number in self.joined:
                self.joined.discard(number)
            elif block.members is not None and lanes.kind != "full":
                ready = self._await_members(block, lanes)
                if ready is None:
                    continue
                lanes = ready
            self.steps += block.length
            if self.steps > limit:
                raise report.too_many_steps(self.chunk, block, lanes)
            try:
                self._execute(block, lanes)
            except Fault as fault:
                raise report.explain(self.chunk, fault, lanes) from None
            except NotImplementedError as reason:
                raise report.lacking(self.chunk, block, str(reason)) from None
            self.stillness.ran(block)
            if self.endless.is_armed:
                self.endless.ran(block)
            if block.polls:
                self._note_poll(block, lanes)
                if self.chunk.launch.watch is not None:
                    self.chunk.launch.watch.synchronised()
        if self.alive_count:
            raise self.deadlock()
        return DONE

    def deadlock(self) -> TesseraError:
        """The error that lists lanes that wait, poll in vain, or loop forever."""
        if self.endless.is_found:
            number = min(self.waiting)
            return report.endless(self.chunk, self.blocks[number], self.waiting[number].flags())
        waiters = self.meetings.waiters()
        polling = {number: lanes.flags() for number, lanes in self.waiting.items()}
        waiters += report.standing(self.blocks, "other lanes of their warps", self.parked)
        waiters += report.standing(self.blocks, "memory that no thread will change", polling)
        return report.deadlock(self.chunk, waiters)

    def _pick(self) -> int | None:
        """The lowest block with lanes; blocks that were moved back come last."""
        if len(self.waiting) == 1 and not self.stepped_back:
            return next(iter(self.waiting))
        ready = [n for n in self.waiting if n not in self.stepped_back]
        if ready:
            return min(ready)
        self.stepped_back.clear()
        self.streaks.clear()
        self.rounds += 1
        if self.rounds > _ROUNDS_BEFORE_YIELDING:
            return None
        return min(self.waiting)

    def _note_poll(self, block: CompiledBlock, lanes: LaneSet) -> None:
        """Count how often a polling block ran with the same number of lanes."""
        count, before = self.streaks.get(block.number, (-1, 0))
        streak = before + 1 if count == lanes.count else 0
        self.streaks[block.number] = (lanes.count, streak)
        if streak >= _POLLS_BEFORE_STEPPING_BACK:
            self.stepped_back.add(block.number)

    def _execute(self, block: CompiledBlock, lanes: LaneSet) -> None:
        registers = self.registers
        self.chunk.ticks += block.length
        if lanes.kind == "full":
            outs, value = block.run(lanes, *[registers[n] for n in block.ins])
            for n, out in zip(block.outs, outs, strict=True):
                registers[n] = out
        else:
            take = lanes.take
            outs, value = block.run(lanes, *[take(registers[n]) for n in block.ins])
            others_dead = lanes.count == self.alive_count
            for n, out in zip(block.outs, outs, strict=True):
                registers[n] = lanes.put(registers[n], out, others_dead)
        _ENDS[block.control](self, block, lanes, value)

    # --- where lanes go next -------------------------------------------------------------

    def arrive(self, number: int, lanes: LaneSet) -> None:
        """Put lanes at the start of a block; a negative number means that they have exited."""
        if number < 0:
            self._leave(lanes)
            return
        there = self.waiting.get(number)
        if there is not None:
            lanes = self.lanes_of(there.flags() | lanes.flags())
        self.waiting[number] = lanes

    def lanes_of(self, flags: Array) -> LaneSet:
        """The lanes that are flagged."""
        lanes = LaneSet(self.chunk, flags)
        return self.chunk.everyone if lanes.kind == "full" else lanes

    def arrive_flags(self, number: int, flags: Array) -> None:
        """`arrive` for lanes that are flagged."""
        if number < 0:
            self._leave(self.lanes_of(flags))
            return
        there = self.waiting.get(number)
        if there is not None:
            flags = flags | there.flags()
        self.waiting[number] = self.lanes_of(flags)

    def _go(self, block: CompiledBlock, lanes: LaneSet, value: object) -> None:
        self.arrive(block.targets[0], lanes)

    def _branch(self, block: CompiledBlock, lanes: LaneSet, value: Array) -> None:
        taken, other = block.targets
        if value.size == 1:
            self.arrive(taken if value.item() else other, lanes)
            return
        if lanes.active is None:
            if value.all():
                self.arrive(taken, lanes)
                return
            if not value.any():
                self.arrive(other, lanes)
                return
        chosen = lanes.narrow(value)
        rest = lanes.flags() & ~chosen
        if chosen.any():
            self.arrive_flags(taken, chosen)
        if rest.any():
            self.arrive_flags(other, rest)

    def _spread(self, block: CompiledBlock, lanes: LaneSet, value: Array) -> None:
        """Send each lane to the block that its value gives: a block number, or a table index."""
        targets = block.targets if block.control == "table" else None
        wide = np.broadcast_to(value, lanes.shape)
        shown = wide if lanes.active is None else wide[lanes.active]
        for choice in np.unique(shown):
            target = int(choice) if targets is None else targets[int(choice)]
            if value.size == 1:
                self.arrive(target, lanes)
            else:
                self.arrive_flags(target, lanes.narrow(wide == choice))

    def _leave(self, lanes: LaneSet) -> None:
        """Remove lanes that have exited, and release lanes that waited only for them."""
        self.alive_count -= lanes.count
        if self.alive_count == 0:
            return
        if self.alive is None:
            self.alive = np.ones(self.chunk.ctas * self.chunk.threads, dtype=np.bool_)
        self.alive &= ~lanes.flags()
        self.meetings.release_all(self)
        for number, flags in list(self.parked.items()):
            del self.parked[number]
            self.arrive_flags(number, flags)

    def living(self) -> Array:
        """The lanes that have not exited, as flags."""
        if self.alive is None:
            return np.ones(self.chunk.ctas * self.chunk.threads, dtype=np.bool_)
        return self.alive

    # --- waiting -------------------------------------------------------------------------

    def _await_members(self, block: CompiledBlock, lanes: LaneSet) -> LaneSet | None:
        """The lanes whose warps are complete; the others wait here for the rest of their warp."""
        before = self.parked.pop(block.number, None)
        flags = lanes.flags() if before is None else lanes.flags() | before
        members = self._members(block.number)
        ready = split_members(self.chunk, flags, self.living(), members)
        rest = flags & ~ready
        if rest.any():
            self.parked[block.number] = rest
        if not ready.any():
            return None
        if before is None and int(np.count_nonzero(ready)) == lanes.count:
            return lanes
        return self.lanes_of(ready)

    def _join_warp_barriers(self) -> bool:
        """Join lanes of a warp at different `bar.warp.sync`; return whether any were joined."""
        numbers = [n for n in self.parked if self.blocks[n].only_waits]
        if len(numbers) < 2:
            return False
        together = np.logical_or.reduce([self.parked[n] for n in numbers])
        alive = self.living()
        meeting = {
            n: self.parked[n] & split_members(self.chunk, together, alive, self._members(n))
            for n in numbers
        }
        for number, ready in meeting.items():
            if not ready.any():
                continue
            self.parked[number] &= ~ready
            if not self.parked[number].any():
                del self.parked[number]
            self.waiting[number] = self.lanes_of(ready)
            self.joined.add(number)
        return bool(self.waiting)

    def _members(self, number: int) -> int | str | Array:
        """The lanes required before a block runs: none if 0; masks in a register are per lane."""
        members = self.blocks[number].members
        if not isinstance(members, tuple):
            return 0 if members is None else members
        shape = (self.chunk.ctas, self.chunk.threads)
        return np.broadcast_to(self.registers[members[1]], shape).reshape(-1)

    def _barrier(self, block: CompiledBlock, lanes: LaneSet, value: BarrierUse) -> None:
        self.meetings.use(self, block, lanes, value)

    def _cluster_barrier(self, block: CompiledBlock, lanes: LaneSet, action: str) -> None:
        self.meetings.use_cluster(self, block, lanes, action)


_ENDS: dict[str, Callable[..., None]] = {
    "goto": ChunkRunner._go,
    "exit": ChunkRunner._go,
    "call": ChunkRunner._go,
    "branch": ChunkRunner._branch,
    "table": ChunkRunner._spread,
    "return": ChunkRunner._spread,
    "table_call": ChunkRunner._spread,
    "barrier": ChunkRunner._barrier,
    "cluster_barrier": ChunkRunner._cluster_barrier,
}
