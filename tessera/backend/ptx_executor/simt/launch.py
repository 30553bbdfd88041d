"""One launch: its sizes, its arguments, and the chunks that run it.

CTAs run in chunks of about `LANES` lanes, in CTA order (whole clusters together). A chunk
normally runs to its end before the next chunk starts. A chunk that only polls memory lets the
others run, so kernels whose CTAs wait for each other make progress. When all remaining chunks poll
and none changes anything, the launch is in a livelock (see `livelock`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tessera.backend.ptx_executor.memory.access_log import BufferAccess
from tessera.backend.ptx_executor.memory.host_memory import keep_freed_memory
from tessera.backend.ptx_executor.memory.memory import Array
from tessera.backend.ptx_executor.numerics import quiet
from tessera.backend.ptx_executor.simt.chunk import STACK_LIMIT, Chunk, LaunchState
from tessera.backend.ptx_executor.simt.schedule import DONE, ChunkRunner

LANES = 1 << 16
CHUNK_BYTES = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchResult:
    """The result of a launch: bytes touched per buffer, text printed, steps of its longest chunk.

    `slept_ns` is the longest time that a chunk spent in `nanosleep`, on the virtual clock.
    """

    accesses: tuple[BufferAccess, ...]
    output: str
    steps: int
    slept_ns: int = 0


def run_launch(launch: LaunchState) -> LaunchResult:
    """Run every CTA."""
    keep_freed_memory()
    with quiet():
        steps, slept_ns = _run_chunks(launch)
    return LaunchResult(
        accesses=launch.log.finish(), output="".join(launch.output), steps=steps, slept_ns=slept_ns
    )


def _run_chunks(launch: LaunchState) -> tuple[int, int]:
    order = _cta_order(launch)
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    step = min(LANES // threads, CHUNK_BYTES // max(_bytes_per_cta(launch, threads), 1))
    step = max(1, step // launch.cluster_size) * launch.cluster_size
    total = launch.grid[0] * launch.grid[1] * launch.grid[2]
    pending: deque[ChunkRunner] = deque()
    longest = slept = stuck = 0
    start = 0
    while start < total or pending:
        if start < total:
            ids = order(start, min(start + step, total))
            runner = ChunkRunner(Chunk(launch, ids))
            start += step
        else:
            runner = pending.popleft()
        if runner.run() == DONE:
            longest = max(longest, runner.steps)
            slept = max(slept, runner.chunk.slept_ns)
            runner.chunk.release()
            stuck = 0
        else:
            pending.append(runner)
            # Its work before it got stuck may let others continue, so their count restarts at zero.
            stuck = (1 if runner.moved else stuck + 1) if runner.stuck else 0
            if stuck >= len(pending) and start >= total:
                raise runner.deadlock()
    return longest, slept


def _bytes_per_cta(launch: LaunchState, threads: int) -> int:
    """Shared and local memory of a CTA, with space for the stack if functions are recursive."""
    stack = STACK_LIMIT if launch.program.recursive else 0
    return launch.shared_bytes + threads * (launch.program.local_bytes + stack)


def _cta_order(launch: LaunchState) -> Callable[[int, int], Array]:
    """A function that returns the linear numbers of the CTAs in a range of the order."""
    if launch.cluster_size == 1:
        return lambda first, last: np.arange(first, last, dtype=np.uint32)
    ids = _by_cluster(launch.grid, launch.cluster)
    return lambda first, last: ids[first:last]


def _by_cluster(grid: tuple[int, int, int], cluster: tuple[int, int, int]) -> Array:
    """Linear CTA numbers, cluster by cluster, and by rank within a cluster."""
    width, height, depth = grid
    numbers = np.arange(width * height * depth, dtype=np.uint32).reshape(depth, height, width)
    cx, cy, cz = cluster
    tiles = numbers.reshape(depth // cz, cz, height // cy, cy, width // cx, cx)
    return np.ascontiguousarray(tiles.transpose(0, 2, 4, 1, 3, 5)).reshape(-1)
