"""Meetings: lanes of a chunk that wait for each other at barriers, and go on together.

In: what a barrier instruction gives, for the lanes that have run it. Out: lanes that stand before
the next block, where all that the barrier waits for are there. `barriers` counts who is there;
`schedule` runs blocks.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from tessera.backend.ptx_executor.memory.lanes import WARP, LaneSet
from tessera.backend.ptx_executor.memory.memory import Array
from tessera.backend.ptx_executor.simt import report
from tessera.backend.ptx_executor.simt.barriers import (
    Barriers,
    ClusterBarrier,
    check_barrier,
    covers_whole_ctas,
)
from tessera.backend.ptx_executor.simt.chunk import Chunk
from tessera.backend.ptx_executor.simt.compiled import CompiledBlock

# What a barrier instruction gives: what is done, the barrier, how many threads, and for `bar.red`
# the votes, their operation and the register of the result.
BarrierUse = tuple[str, Array, Array | None, Array | None, str, int]


class Runner(Protocol):
    """What runs the chunk: where lanes go, and which of them are there."""

    registers: list[Array]
    alive: Array | None

    def arrive(self, number: int, lanes: LaneSet) -> None:
        """Lanes stand before a block."""

    def arrive_flags(self, number: int, flags: Array) -> None:
        """`arrive` for lanes that are flagged."""

    def lanes_of(self, flags: Array) -> LaneSet:
        """The lanes that are flagged."""
        ...

    def living(self) -> Array:
        """The lanes that have not exited, as flags."""
        ...


class Meetings:
    """The barriers of one chunk, and who waits at them."""

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
        """Lanes have exited: others may have waited for nothing else."""
        if self._barriers is not None:
            for number in list(self._barriers.parked):
                self._release(runner, number)
        if self._cluster is not None:
            self._release_cluster(runner)

    def use(self, runner: Runner, block: CompiledBlock, lanes: LaneSet, value: BarrierUse) -> None:
        """Lanes have run `bar` or `barrier`: they go on, or wait for others."""
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
        """A barrier orders what the CTAs of these lanes did before and after."""
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
        """Everyone of the CTAs is here: no waiting."""
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
        """Lanes have run `barrier.cluster`."""
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
