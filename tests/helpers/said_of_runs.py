"""What the CPU backend says of kernels that nobody would write: accesses, and the first fault.

In: a seed. Out: lines for runs of one kernel of `soup_kernels`, with and without checks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from tessera.backend.ptx_executor.device import Device
from tessera.backend.ptx_executor.memory.watch import Checks
from tessera.diagnostics import TesseraError
from tessera.frontend.ptx.read_ptx import parse_module
from tests.helpers.soup_kernels import soup_kernel

SIZE = 4096


def said_of_run(seed: int) -> Iterator[str]:
    """The lines of a seed."""
    module = parse_module(soup_kernel(seed, loops=False, runs=True), "k.ptx")
    alone = Checks(races=True) if seed % 2 else Checks(uninitialised=True)
    for checks in (Checks(), Checks(races=True, uninitialised=True), alone):
        with Device(checks=checks) as device:
            try:
                kernel = device.load(module)["kernel"]
                words = np.arange(SIZE // 4, dtype=np.uint32) % 61
                x, y = (device.array(words.copy(), name) for name in "xy")
                result = kernel.launch(
                    (2, 1, 1), (48, 1, 1), [x, y, bytes(128), 5, 1.0], max_steps=2000
                )
                yield from map(str, result.accesses)
            except TesseraError as error:
                yield str(error)
            yield hashlib.sha256(x.numpy().tobytes() + y.numpy().tobytes()).hexdigest()
