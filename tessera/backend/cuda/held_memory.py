"""Device memory as it is at a moment, kept to be put back later.

In: ranges of device memory. Out: copies on the same stream; nothing here waits.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera.backend.cuda.api import Driver, DriverError, Handle


class Held:
    """Copies of memory as it is now, to be put back; none where there is no room for them."""

    def __init__(self, driver: Driver, stream: Handle, ranges: Sequence[tuple[int, int]]) -> None:
        self._driver = driver
        self._stream = stream
        self._copies: list[tuple[int, int, int]] = []
        for address, size in ranges:
            if not size:
                continue
            try:
                self._copies.append((address, driver.allocate(size), size))
            except DriverError:
                break
            self._copy(self._copies[-1][1], address, size)

    def restore(self) -> None:
        """Put the memory back, in the order of the stream."""
        for address, copy, size in self._copies:
            self._copy(address, copy, size)

    def close(self) -> None:
        """Give the copies back."""
        for _, copy, _ in self._copies:
            self._driver.free(copy)

    def _copy(self, target: int, source: int, size: int) -> None:
        self._driver.call("cuMemcpyAsync", target, source, size, self._stream)
