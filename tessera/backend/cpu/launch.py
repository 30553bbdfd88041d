"""One launch: its sizes, its arguments, and the chunks that run it.

CTAs run in chunks of about `LANES` lanes, in CTA order (whole clusters together). A chunk
normally runs to its end before the next one starts; one that only polls memory lets the others
run, so kernels whose CTAs wait for each other make progress. When all that are left poll and
none changes anything, the launch has locked up (see `livelock`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tessera.backend.cpu.emit.compiled import KernelProgram
from tessera.backend.cpu.memory.access_log import AccessLog, BufferAccess
from tessera.backend.cpu.memory.heap import keep_freed_memory
from tessera.backend.cpu.memory.memory import UNSIGNED, AddressSpace, Array
from tessera.backend.cpu.memory.watch import Watch
from tessera.backend.cpu.numerics import quiet
from tessera.backend.cpu.simt.chunk import STACK_LIMIT, Chunk
from tessera.backend.cpu.simt.schedule import DONE, ChunkRunner

LANES = 1 << 16
CHUNK_BYTES = 256 << 20
DEFAULT_STEPS = 1 << 25


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchResult:
    """What a launch did: bytes touched per buffer, text printed, steps of its longest chunk.

    `slept_ns` is the longest that `nanosleep` kept a chunk, on the virtual clock.
    """

    accesses: tuple[BufferAccess, ...]
    output: str
    steps: int
    slept_ns: int = 0


@dataclass(slots=True, kw_only=True)
class Launch:
    """A launch in progress. Chunks and instructions read it; see `device` for the checks."""

    program: KernelProgram
    space: AddressSpace
    log: AccessLog
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] = (1, 1, 1)
    explicit_cluster: bool = False
    dynamic_shared: int = 0
    workspace: int = 0
    parameter_bytes: Array
    symbols: list[Array]
    number: int = 0
    start_ns: int = 0
    max_steps: int = DEFAULT_STEPS
    watch: Watch | None = None
    has_read_only: bool = False
    output: list[str]
    parameters: dict[tuple[int, int], Array]
    tensor_maps: dict[int, object]

    @property
    def reserved_start(self) -> int:
        """Where the shared memory that the kernel asked for ends."""
        asked = self.program.shared_static + self.dynamic_shared
        return asked if not self.program.reserved_shared else -(-asked // 16) * 16

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA: static, dynamic, and the system's part if it is used."""
        return self.reserved_start + self.program.reserved_shared

    @property
    def parameter_size(self) -> int:
        """Bytes of the kernel's parameters."""
        return self.program.parameter_size

    @property
    def cluster_size(self) -> int:
        """CTAs in a cluster."""
        return self.cluster[0] * self.cluster[1] * self.cluster[2]

    def parameter(self, offset: int, width: int) -> Array:
        """A parameter word as a value that all lanes share."""
        found = self.parameters.get((offset, width))
        if found is None:
            raw = self.parameter_bytes[offset : offset + width]
            found = raw.copy().view(UNSIGNED[width]).reshape(1, 1)
            self.parameters[offset, width] = found
        return found

    def run(self) -> LaunchResult:
        """Run every CTA."""
        keep_freed_memory()
        with quiet():
            steps, slept_ns = self._run_chunks()
        return LaunchResult(
            accesses=self.log.finish(), output="".join(self.output), steps=steps, slept_ns=slept_ns
        )

    def _run_chunks(self) -> tuple[int, int]:
        order = self._cta_order()
        threads = self.block[0] * self.block[1] * self.block[2]
        step = min(LANES // threads, CHUNK_BYTES // max(self._bytes_per_cta(threads), 1))
        step = max(1, step // self.cluster_size) * self.cluster_size
        total = self.grid[0] * self.grid[1] * self.grid[2]
        pending: deque[ChunkRunner] = deque()
        longest = slept = stuck = 0
        start = 0
        while start < total or pending:
            if start < total:
                ids = order(start, min(start + step, total))
                runner = ChunkRunner(Chunk(self, ids))
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
                # What it did before it got stuck may set others free: they count anew.
                stuck = (1 if runner.moved else stuck + 1) if runner.stuck else 0
                if stuck >= len(pending) and start >= total:
                    raise runner.deadlock()
        return longest, slept

    def _bytes_per_cta(self, threads: int) -> int:
        """Shared memory and local memory, with room for the stack where functions recur."""
        stack = STACK_LIMIT if self.program.recursive else 0
        return self.shared_bytes + threads * (self.program.local_bytes + stack)

    def _cta_order(self) -> Callable[[int, int], Array]:
        """A function that gives the linear numbers of the CTAs from one place to another."""
        if self.cluster_size == 1:
            return lambda first, last: np.arange(first, last, dtype=np.uint32)
        ids = _by_cluster(self.grid, self.cluster)
        return lambda first, last: ids[first:last]


def _by_cluster(grid: tuple[int, int, int], cluster: tuple[int, int, int]) -> Array:
    """Linear CTA numbers, cluster after cluster, by rank inside."""
    width, height, depth = grid
    numbers = np.arange(width * height * depth, dtype=np.uint32).reshape(depth, height, width)
    cx, cy, cz = cluster
    tiles = numbers.reshape(depth // cz, cz, height // cy, cy, width // cx, cx)
    return np.ascontiguousarray(tiles.transpose(0, 2, 4, 1, 3, 5)).reshape(-1)
