"""Load for the rest of a GPU while a slice is measured, from `neighbours.ptx`.

In: the duration of the load. Out: launches. Every kernel ends by itself after a time on the GPU's
clock, whatever happens to the host. The module and its memory are set up once per `Neighbours`;
nothing is allocated between a launch and its end.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tessera.backend.cuda.api import Driver, Handle
from tessera.backend.cuda.queued_work import pack_parameters
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import Scalar

_PTX = Path(__file__).with_name("neighbours.ptx")
# Two buffers of this size do not fit into any L2.
_MEMORY_BYTES = 256 << 20
_THREADS = 512
_BLOCKS_PER_SM = 2
_CLOCK_NS = 200_000


class Load(enum.Enum):
    """The kind of work that a neighbour does."""

    COMPUTE = "compute"
    MEMORY = "memory"


class Neighbours:
    """The kernels in the current context; with `moves`, also the buffers of the memory load."""

    def __init__(self, driver: Driver, *, moves: bool) -> None:
        self._driver = driver
        self._module = driver.load(_PTX.read_bytes())
        self._bytes = _MEMORY_BYTES if moves else 0
        self._buffers = [driver.allocate(max(self._bytes, 256)) for _ in range(2)]

    def close(self) -> None:
        """Free the memory and the module; no kernel may be running."""
        for address in self._buffers:
            self._driver.free(address)
        self._driver.unload(self._module)

    def start(self, load: Load, ns: int, sms: int, stream: Handle) -> None:
        """Keep `sms` SMs busy for `ns` nanoseconds."""
        words = [ns, self._buffers[0]]
        words += [self._buffers[1], self._bytes // 16] if load is Load.MEMORY else []
        self._launch(f"neighbour_{load.value}", words, _BLOCKS_PER_SM * sms, _THREADS, stream)

    def pause(self, ns: int, stream: Handle) -> None:
        """Hold up a stream for `ns` nanoseconds on one SM; 0 is the shortest possible launch."""
        self._launch("neighbour_compute", [ns, self._buffers[0]], 1, 32, stream)

    def start_clock(self, stream: Handle) -> None:
        """Count cycles for a short time; `clock_mhz` reads the count when the stream is done."""
        self._launch("measure_clock", [_CLOCK_NS, self._buffers[0]], 1, 1, stream)

    def clock_mhz(self) -> int:
        """The clock of an SM in MHz; 0 if no cycles were counted."""
        cycles, ns = self._driver.download(self._buffers[0], 16).view(np.uint64).tolist()
        return round(cycles * 1000 / ns) if ns else 0

    def _launch(
        self, name: str, words: Sequence[int], blocks: int, threads: int, stream: Handle
    ) -> None:
        packed = pack_parameters([Scalar(DataType.U64, word) for word in words], lambda _: 0)
        function = self._driver.function(self._module, name)
        sizes = (blocks, 1, 1, threads, 1, 1)
        self._driver.call("cuLaunchKernel", function, *sizes, 0, stream, packed.address, 0)
