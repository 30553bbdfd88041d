"""Create many records without running the garbage collector.

PTX records form no cycles, so the collector finds nothing among them. It would still walk all of
them repeatedly while they are created, which takes up to half of the time of reading a large
module.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the cyclic garbage collector off inside the block, if it is on."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
