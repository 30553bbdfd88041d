"""Resolves device addresses to places in buffers.

In: the buffers of a capture. Out: `Addresses`, which finds the buffer that an address is in and
remembers which buffers were found. Pointers here number buffers in the order of their addresses.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from tessera.diagnostics import TesseraError
from tessera.driver.trace.tables import Words
from tessera.frontend.capture.raw import RawBuffer
from tessera.ir.program import program as ir


class Addresses:
    """The buffers by address, and the buffers that the program names."""

    def __init__(self, buffers: Iterable[RawBuffer]) -> None:
        self.known = sorted(buffers, key=lambda buffer: buffer.address)
        self.starts = [buffer.address for buffer in self.known]
        self.numbers = {buffer.name: number for number, buffer in enumerate(self.known)}
        self.used: set[str] = set()

    def points(self, words: Words) -> npt.NDArray[np.bool_]:
        """Which values are addresses in the call's memory."""
        starts = np.array(self.starts, np.uint64)
        ends = np.array([b.address + b.bytes for b in self.known], np.uint64)
        places = np.searchsorted(starts, words, side="right")
        inside: npt.NDArray[np.bool_] = (places > 0) & (words < ends[places - 1])
        return inside

    def pointer(self, address: int) -> ir.Pointer:
        """The place of an address; memory without an owner is an error."""
        place = self.find(address)
        if place is None:
            raise TesseraError.of(
                "TSR6005",
                f"the address {address:#x} belongs to no known tensor",
                hint="keep the tensor alive until the trace is made, or pass it as an input",
            )
        return place

    def find(self, address: int) -> ir.Pointer | None:
        """The place of an address, if it is in a buffer."""
        place = bisect_right(self.starts, address) - 1
        if place < 0 or address >= self.starts[place] + self.known[place].bytes:
            return None
        self.used.add(self.known[place].name)
        return ir.Pointer(ir.BufferId(place), address - self.starts[place])

    def find_end(self, address: int) -> ir.Pointer | None:
        """The end of a buffer, if an address is exactly there and no buffer begins at it."""
        last_byte = self.find(address - 1) if address else None
        return None if last_byte is None else ir.Pointer(last_byte.buffer, last_byte.offset + 1)
