"""Create many records without running the garbage collector.

PTX records form no cycles, so the collector finds nothing among them. It would still walk all of
them repeatedly while they are created, which takes up to half of the time of reading a large
module.
"""

from __future__ import annotations

import gc


class collector_paused:
    """Keep the cyclic garbage collector off inside the block, if it is on."""

    __slots__ = ("was_enabled",)

    def __enter__(self) -> None:
        self.was_enabled = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self.was_enabled:
            gc.enable()
