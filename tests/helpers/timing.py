"""Processor time of a piece of work, as steady as a busy machine allows."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


def cpu_seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """The best of a few runs, without the collector: it walks over all that other tests left."""
    gc.collect()
    gc.disable()
    try:
        return min(_once(work) for _ in range(repeats))
    finally:
        gc.enable()


def _once(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start
