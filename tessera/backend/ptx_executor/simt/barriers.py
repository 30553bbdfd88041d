"""Waiting: CTA barriers with counts, cluster barriers, and lanes that wait for their warp.

In: the operands of a barrier instruction, and the lanes that have run it. Out: lanes that go on to
the next block once all lanes that the barrier waits for have arrived. `Barriers` and
`ClusterBarrier` count arrivals, `Meetings` releases lanes, and `schedule` runs blocks.

Barriers count threads in whole warps, as the hardware does: a warp whose live lanes have all
arrived counts 32, even if the size of the block leaves it incomplete. A barrier without a count
waits for every warp of the CTA that has a live lane. It does not wait for threads that have exited.

Longer than 400 lines because waiting and released lanes share one state.

Source: PTX ISA 9.0, section 9.7.13 (bar, barrier.cluster).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from tessera.backend.ptx_executor.memory.faults import Fault
from tessera.backend.ptx_executor.memory.lanes import WARP, LaneSet
from tessera.backend.ptx_executor.memory.memory import Array
from tessera.backend.ptx_executor.simt import report
from tessera.backend.ptx_executor.simt.chunk import Chunk
from tessera.backend.ptx_executor.simt.compiled import CompiledBlock

NAMED = 16
OPERATIONS = ("popc", "and", "or")

# The value of a barrier instruction: the action, the barrier, the thread count, and for `bar.red`
# the votes, their operation and the register of the result.
BarrierUse = tuple[str, Array, Array | None, Array | None, str, int]


class Barriers:
    """The sixteen barriers of every CTA of a chunk."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        count = chunk.ctas * chunk.threads
        self.resume = np.zeros(count, dtype=np.int64)
        self.site = np.zeros(count, dtype=np.int64)
        self.parked: dict[int, Array] = {}
        self.votes: dict[int, Array] = {}
        self.extra: dict[int, Array] = {}
        self.expected: dict[int, Array] = {}
        self.operation = np.zeros(count, dtype=np.int8)
        self.register = np.full(count, -1, dtype=np.int64)

    def idle(self, number: int) -> bool:
        """Whether no lane waits or has arrived at the barrier."""
        return number not in self.parked and not self.extra.get(number, np.zeros(1)).any()

    def waiters(self) -> list[tuple[str, Array, Array]]:
        """Per barrier: its name, the lanes that wait, and where each of them does."""
        return [
            (f"barrier {name}", flags, self.site) for name, flags in sorted(self.parked.items())
        ]

    def arrive(self, number: int, lanes: Array, count: int, alive: Array) -> None:
        """`bar.arrive`: count the lanes, which do not wait."""
        chunk = self.chunk
        extra = self.extra.setdefault(number, np.zeros(chunk.ctas, dtype=np.int64))
        extra += warp_counts(chunk, lanes, alive).sum(axis=1)
        self._expect(number, lanes, count)

    def park(self, number: int, lanes: Array, count: int, resume: int, site: int) -> None:
        """`bar.sync` and `bar.red`: make the lanes wait."""
        parked = self.parked.setdefault(number, np.zeros(len(lanes), dtype=np.bool_))
        parked |= lanes
        self.resume[lanes] = resume
        self.site[lanes] = site
        self.register[lanes] = -1
        self._expect(number, lanes, count)

    def vote(self, number: int, lanes: Array, vote: Array, operation: str, register: int) -> None:
        """`bar.red`: record the votes of waiting lanes, and the register for the result of each."""
        votes = self.votes.setdefault(number, np.zeros(len(lanes), dtype=np.bool_))
        votes[lanes] = vote[lanes]
        self.operation[lanes] = OPERATIONS.index(operation)
        self.register[lanes] = register

    def _expect(self, number: int, lanes: Array, count: int) -> None:
        chunk = self.chunk
        expected = self.expected.setdefault(number, np.zeros(chunk.ctas, dtype=np.int64))
        rows = lanes.reshape(chunk.ctas, chunk.threads).any(axis=1)
        expected[rows] = count

    def release(self, number: int, alive: Array) -> Array | None:
        """Release the lanes whose barrier is complete, and return them as flags."""
        parked = self.parked.get(number)
        if parked is None:
            return None
        chunk = self.chunk
        arrived = warp_counts(chunk, parked, alive).sum(axis=1)
        extra = self.extra.get(number)
        if extra is not None:
            arrived = arrived + extra
        everyone = warp_counts(chunk, alive, alive).sum(axis=1)
        expected = self.expected[number]
        needed = np.where(expected > 0, expected, everyone)
        waiting = parked.reshape(chunk.ctas, chunk.threads).any(axis=1)
        complete = (arrived >= needed) & waiting
        if not complete.any():
            return None
        free: Array = parked & np.repeat(complete, chunk.threads)
        parked &= ~free
        if not parked.any():
            del self.parked[number]
        if extra is not None:
            extra[complete] = 0
        return free

    def results(self, number: int, free: Array) -> Iterator[tuple[Array, int, Array]]:
        """`bar.red` of released lanes: the lanes, their register, the result per CTA."""
        for register in np.unique(self.register[free]):
            asked = free & (self.register == register)
            for operation in np.unique(self.operation[asked]) if register >= 0 else ():
                told = asked & (self.operation == operation)
                yield told, int(register), self.reduce(number, free, OPERATIONS[operation])

    def reduce(self, number: int, lanes: Array, op: str) -> Array:
        """The result of `bar.red` per CTA, shape (C, 1)."""
        chunk = self.chunk
        shape = (chunk.ctas, chunk.threads)
        votes = self.votes[number].reshape(shape)
        inside = lanes.reshape(shape)
        if op == "popc":
            result: Array = (votes & inside).sum(axis=1, keepdims=True).astype(np.uint32)
            return result
        if op == "and":
            return np.logical_and.reduce(votes | ~inside, axis=1, keepdims=True)
        return np.logical_or.reduce(votes & inside, axis=1, keepdims=True)


def check_barrier(number: int, count: int, site: int) -> None:
    """Refuse barriers that do not exist and counts that PTX does not allow."""
    if number >= NAMED:
        raise Fault("TSR5023", f"barrier number {number} (0 to {NAMED - 1} exist)", site)
    if count % WARP:
        reason = f"barrier with a count of {count} threads, which is no multiple of {WARP}"
        raise Fault("TSR5023", reason, site)


def warp_counts(chunk: Chunk, lanes: Array, alive: Array) -> Array:
    """Arrived threads per CTA and warp; a warp that is complete counts as 32."""
    inside = _by_warp(chunk, lanes).sum(axis=2)
    living = _by_warp(chunk, alive).sum(axis=2)
    return np.where((inside > 0) & (inside >= living), WARP, inside)


def _by_warp(chunk: Chunk, flags: Array) -> Array:
    """Flags as (CTAs, warps, 32), padded with false."""
    warps = -(-chunk.threads // WARP)
    grid = flags.reshape(chunk.ctas, chunk.threads)
    if chunk.threads % WARP:
        wide = np.zeros((chunk.ctas, warps * WARP), dtype=np.bool_)
        wide[:, : chunk.threads] = grid
        grid = wide
    return grid.reshape(chunk.ctas, warps, WARP)


class ClusterBarrier:
    """`barrier.cluster`: a lane passes a wait once all live lanes have as many arrivals."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        count = chunk.ctas * chunk.threads
        self.arrivals = np.zeros(count, dtype=np.int64)
        self.waiting = np.zeros(count, dtype=np.bool_)
        self.resume = np.full(count, -1, dtype=np.int64)
        self.site = np.full(count, -1, dtype=np.int64)

    def arrive(self, lanes: Array) -> None:
        """Count an arrival of each lane."""
        self.arrivals[lanes] += 1

    def wait(self, lanes: Array, resume: int, site: int) -> None:
        """Make the lanes wait for the phase of their last arrival."""
        self.waiting |= lanes
        self.resume[lanes] = resume
        self.site[lanes] = site

    def release(self, alive: Array) -> Array | None:
        """Release the lanes whose phase is complete, and return them as flags."""
        if not self.waiting.any():
            return None
        size = self.chunk.launch.cluster_size * self.chunk.threads
        far = np.where(alive, self.arrivals, np.iinfo(np.int64).max).reshape(-1, size)
        phase = np.repeat(far.min(axis=1), size)
        free = self.waiting & (self.arrivals <= phase)
        if not free.any():
            return None
        self.waiting &= ~free
        return free


def split_members(chunk: Chunk, lanes: Array, alive: Array, members: int | str | Array) -> Array:
    """The lanes among `lanes` whose warp (or group of four warps) is complete, as flags.

    `members` is a mask for all, an array of masks per lane of the chunk, or "group".
    """
    present = _by_warp(chunk, lanes)
    living = _by_warp(chunk, alive)
    bits = np.uint32(1) << np.arange(WARP, dtype=np.uint32)
    missing = (living & ~present).astype(np.uint32) * bits
    absent = missing.sum(axis=2, dtype=np.uint32)
    if isinstance(members, str):
        ready = absent == 0
        warps = ready.shape[1]
        for start in range(0, warps, 4):
            ready[:, start : start + 4] = ready[:, start : start + 4].all(axis=1, keepdims=True)
    elif isinstance(members, int):
        ready = (absent & np.uint32(members)) == 0
    else:
        per_lane = np.repeat(absent, WARP, axis=1)[:, : chunk.threads].reshape(-1)
        result: Array = lanes & ((per_lane & members) == 0)
        return result
    spread = np.repeat(ready, WARP, axis=1)[:, : chunk.threads].reshape(-1)
    result = lanes & spread
    return result


def covers_whole_ctas(chunk: Chunk, lanes: LaneSet, alive: Array | None) -> bool:
    """Whether the lanes are all the live lanes of every CTA that they touch."""
    if lanes.kind == "full":
        return True
    if lanes.kind == "product" and lanes.cols is None:
        return True
    if alive is None:
        return False
    shape = (chunk.ctas, chunk.threads)
    inside = lanes.flags().reshape(shape).sum(axis=1)
    living = alive.reshape(shape).sum(axis=1)
    return bool(((inside == 0) | (inside == living)).all())


# --- lanes that go on together -------------------------------------------------------------


class Runner(Protocol):
    """The runner of a chunk: it moves lanes to blocks, and knows which lanes are alive."""

    registers: list[Array]
    alive: Array | None

    def arrive(self, number: int, lanes: LaneSet) -> None:
        """Put lanes at the start of a block."""

    def arrive_flags(self, number: int, flags: Array) -> None:
        """`arrive` for lanes that are flagged."""

    def lanes_of(self, flags: Array) -> LaneSet:
        """The lanes that are flagged."""
        ...

    def living(self) -> Array:
        """The lanes that have not exited, as flags."""
        ...


class Meetings:
    """The barriers of one chunk, and the lanes that wait at them."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self._barriers: Barriers | None = None
        self._cluster: ClusterBarrier | None = None

    @property
    def barriers(self) -> Barriers:
        """The barriers of the CTAs, made when first used."""
        self._barriers = self._barriers or Barriers(self.chunk)
        return self._barriers

    @property
    def cluster(self) -> ClusterBarrier:
        """The barriers of the clusters, made when first used."""
        self._cluster = self._cluster or ClusterBarrier(self.chunk)
        return self._cluster

    def waiters(self) -> report.Waiters:
        """Per barrier: its name, the lanes that wait, and where each of them does."""
        waiters: report.Waiters = [] if self._barriers is None else self._barriers.waiters()
        if self._cluster is not None and self._cluster.waiting.any():
            waiters.append(("the cluster barrier", self._cluster.waiting, self._cluster.site))
        return waiters

    def release_all(self, runner: Runner) -> None:
        """Release lanes that waited only for lanes that have exited."""
        if self._barriers is not None:
            for number in list(self._barriers.parked):
                self._release(runner, number)
        if self._cluster is not None:
            self._release_cluster(runner)

    def use(self, runner: Runner, block: CompiledBlock, lanes: LaneSet, value: BarrierUse) -> None:
        """Handle lanes that have run `bar` or `barrier`: they continue, or wait for others."""
        action, number, count, predicate, operation, register = value
        chunk, site = self.chunk, block.site + block.length - 1
        if action != "arrive" and number.size == 1 and (count is None or count.size == 1):
            size = -(-chunk.threads // WARP) * WARP
            expected = None if count is None else int(count.item())
            simple = expected is None or (expected == size and runner.alive is None)
            check_barrier(int(number.item()), expected or 0, site)
            alone = self.barriers.idle(int(number.item()))
            if simple and alone and covers_whole_ctas(chunk, lanes, runner.alive):
                self._pass_barrier(runner, block, lanes, predicate, operation, register)
                return
        numbers = np.broadcast_to(number, lanes.shape)
        counts = np.broadcast_to(np.zeros((1, 1)) if count is None else count, lanes.shape)
        pairs = np.stack([numbers.astype(np.int64), counts.astype(np.int64)])
        shown = pairs if lanes.active is None else pairs[:, lanes.active]
        for name, wanted in np.unique(shown.reshape(2, -1).T, axis=0):
            check_barrier(int(name), int(wanted), site)
            flags = lanes.narrow((pairs[0] == name) & (pairs[1] == wanted))
            self._meet(runner, block, flags, int(name), int(wanted), value, lanes)

    def _meet(
        self,
        runner: Runner,
        block: CompiledBlock,
        flags: Array,
        name: int,
        count: int,
        value: BarrierUse,
        lanes: LaneSet,
    ) -> None:
        action, _, _, predicate, operation, register = value
        alive = runner.living()
        if action == "arrive":
            self.barriers.arrive(name, flags, count, alive)
            runner.arrive_flags(block.targets[0], flags)
        else:
            site = block.site + block.length - 1
            self.barriers.park(name, flags, count, block.targets[0], site)
            if predicate is not None:
                vote = lanes.narrow(predicate)
                self.barriers.vote(name, flags, vote, operation, register)
        self._release(runner, name)

    def _release(self, runner: Runner, name: int) -> None:
        free = self.barriers.release(name, runner.living())
        if free is None:
            return
        for told, register, result in self.barriers.results(name, free):
            self._set_register(runner, runner.lanes_of(told), register, result)
        self._resume(runner, free, self.barriers.resume)

    def _set_register(self, runner: Runner, lanes: LaneSet, register: int, by_cta: Array) -> None:
        if register < 0:
            return
        old = runner.registers[register]
        runner.registers[register] = lanes.put(old, lanes.take(by_cta.astype(old.dtype)), False)

    def _resume(self, runner: Runner, free: Array, resume: Array) -> None:
        self._count_barrier(free)
        for target in np.unique(resume[free]):
            runner.arrive_flags(int(target), free & (resume == target))

    def _count_barrier(self, lanes: Array) -> None:
        """Count a barrier, which orders the accesses of these CTAs before and after it."""
        if self.chunk.launch.watch is not None:
            rows = lanes.reshape(self.chunk.ctas, self.chunk.threads).any(axis=1)
            self.chunk.epochs[rows] += 1

    def _pass_barrier(
        self,
        runner: Runner,
        block: CompiledBlock,
        lanes: LaneSet,
        predicate: Array | None,
        operation: str,
        register: int,
    ) -> None:
        """Handle a barrier at which all lanes of the CTAs have arrived: no lane waits."""
        self._count_barrier(lanes.flags())
        if predicate is not None and register >= 0:
            flags = lanes.flags()
            self.barriers.votes[0] = lanes.narrow(predicate)
            result = self.barriers.reduce(0, flags, operation)
            self._set_register(runner, lanes, register, result)
        runner.arrive(block.targets[0], lanes)

    def use_cluster(
        self, runner: Runner, block: CompiledBlock, lanes: LaneSet, action: str
    ) -> None:
        """Handle lanes that have run `barrier.cluster`."""
        if action == "arrive":
            self.cluster.arrive(lanes.flags())
            runner.arrive(block.targets[0], lanes)
        else:
            site = block.site + block.length - 1
            self.cluster.wait(lanes.flags(), block.targets[0], site)
        self._release_cluster(runner)

    def _release_cluster(self, runner: Runner) -> None:
        free = self.cluster.release(runner.living())
        if free is None:
            return
        self._resume(runner, free, self.cluster.resume)
        if self.chunk.launch.watch is not None:
            self.chunk.launch.watch.synchronised()
