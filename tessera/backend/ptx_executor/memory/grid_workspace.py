"""The driver's memory for barriers over the grid, which a cooperative launch is given.

In: a way to copy arrays to a device, a compiled kernel, and whether its launch is cooperative. Out:
the address that `%envreg1` and `%envreg2` hold, valid inside a `with`; 0, as on a GPU, for other
launches.

Source: `sync_grids` and `grid_workspace` in CUDA's cooperative_groups headers: a word with the
size, then the word that counts arrivals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from tessera.backend.ptx_executor.borrowed import ToDevice
from tessera.backend.ptx_executor.emit.compiled import KernelProgram
from tessera.backend.ptx_executor.memory.access_log import BufferAccess

_BYTES = 128


@contextmanager
def grid_workspace(to_device: ToDevice, program: KernelProgram, cooperative: bool) -> Iterator[int]:
    """Zeroed memory while the launch runs, for a kernel that asks for it."""
    if not (cooperative and program.uses_workspace):
        yield 0
        return
    words = np.zeros(_BYTES // 4, np.uint32)
    words[0] = _BYTES
    array = to_device(words, "grid workspace")
    try:
        yield array.address
    finally:
        array.close()


def without_workspace(accesses: Sequence[BufferAccess], address: int) -> tuple[BufferAccess, ...]:
    """The log of a launch less the driver's own memory."""
    return tuple(access for access in accesses if access.address != address)
