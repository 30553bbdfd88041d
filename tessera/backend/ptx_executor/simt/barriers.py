"""Waiting: CTA barriers with counts, cluster barriers, and lanes that wait for their warp.

Barriers count threads in whole warps, as the hardware does: a warp whose live lanes have all
arrived counts 32, also where the block's size leaves it incomplete. A barrier without a count
waits for every warp of the CTA that has a live lane; threads that have exited are not waited
for.

Source: PTX ISA 9.0, section 9.7.13 (bar, barrier.cluster).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from tessera.backend.ptx_executor.memory.faults import Fault
from tessera.backend.ptx_executor.memory.lanes import WARP, LaneSet
from tessera.backend.ptx_executor.memory.memory import Array
from tessera.backend.ptx_executor.simt.chunk import Chunk

NAMED = 16
OPERATIONS = ("popc", "and", "or")


class CtaRows(Protocol):
    """The threads of some CTAs side by side, as a chunk has them."""

    ctas: int
    threads: int


class Barriers:
    """The sixteen barriers of every CTA of a chunk."""

    def __init__(self, chunk: CtaRows) -> None:
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
        """Whether no one waits or has arrived at a barrier."""
        return number not in self.parked and not self.extra.get(number, np.zeros(1)).any()

    def waiters(self) -> list[tuple[str, Array, Array]]:
        """Per barrier: its name, the lanes that wait, and where each of them does."""
        return [
            (f"barrier {name}", flags, self.site) for name, flags in sorted(self.parked.items())
        ]

    def arrive(self, number: int, lanes: Array, count: int, alive: Array) -> None:
        """`bar.arrive`: the lanes are counted and go on."""
        chunk = self.chunk
        extra = self.extra.setdefault(number, np.zeros(chunk.ctas, dtype=np.int64))
        extra += warp_counts(chunk, lanes, alive).sum(axis=1)
        self._expect(number, lanes, count)

    def park(self, number: int, lanes: Array, count: int, resume: int, site: int) -> None:
        """`bar.sync` and `bar.red`: the lanes wait."""
        parked = self.parked.setdefault(number, np.zeros(len(lanes), dtype=np.bool_))
        parked |= lanes
        self.resume[lanes] = resume
        self.site[lanes] = site
        self.register[lanes] = -1
        self._expect(number, lanes, count)

    def vote(self, number: int, lanes: Array, vote: Array, operation: str, register: int) -> None:
        """`bar.red`: what the lanes that wait say, and where each wants to be told the result."""
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
        """The lanes whose barrier is complete, as flags; they no longer wait."""
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
        """`bar.red` of lanes that may go on: who is told, in which register, what per CTA."""
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


def warp_counts(chunk: CtaRows, lanes: Array, alive: Array) -> Array:
    """Arrived threads per CTA and warp; a warp that is complete counts as 32."""
    inside = _by_warp(chunk, lanes).sum(axis=2)
    living = _by_warp(chunk, alive).sum(axis=2)
    return np.where((inside > 0) & (inside >= living), WARP, inside)


def _by_warp(chunk: CtaRows, flags: Array) -> Array:
    """Flags as (CTAs, warps, 32), padded with false."""
    warps = -(-chunk.threads // WARP)
    grid = flags.reshape(chunk.ctas, chunk.threads)
    if chunk.threads % WARP:
        wide = np.zeros((chunk.ctas, warps * WARP), dtype=np.bool_)
        wide[:, : chunk.threads] = grid
        grid = wide
    return grid.reshape(chunk.ctas, warps, WARP)


class ClusterBarrier:
    """`barrier.cluster`: a lane may pass a wait once all live lanes have arrived as often."""

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
        """Let the lanes wait for the phase of their last arrival."""
        self.waiting |= lanes
        self.resume[lanes] = resume
        self.site[lanes] = site

    def release(self, alive: Array) -> Array | None:
        """Lanes that may go on."""
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


def split_members(chunk: CtaRows, lanes: Array, alive: Array, members: int | str | Array) -> Array:
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


def covers_whole_ctas(chunk: CtaRows, lanes: LaneSet, alive: Array | None) -> bool:
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
