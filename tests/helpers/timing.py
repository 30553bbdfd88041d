"""Processor time of a piece of work, as steady as a busy machine allows."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


def cpu_seconds(work: Callable[[], object], repeats: int = 3, enough: float = 0.0) -> float:
    """The best of a few runs, without the collector: it walks over all that other tests left.

    A run that takes less than `enough` is the last.
    """
    gc.collect()
    gc.disable()
    best = float("inf")
    try:
        for _ in range(repeats):
            best = min(best, _once(work))
            if best < enough:
                break
    finally:
        gc.enable()
    return best


def _once(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start
