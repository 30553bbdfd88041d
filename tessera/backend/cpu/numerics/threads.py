"""Two threads for one computation that is made of independent parts.

NumPy lets other threads run while it computes. Parts are independent and the same whoever
computes them, so the split never shows in a result.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tessera.backend.cpu.numerics import quiet

Work = Callable[[int, int], None]


def share(work: Work, count: int, is_worth_it: bool) -> None:
    """Run `work(first, last)` over the parts 0 to count, on two threads if that is worth it."""
    middle = count // 2
    if not is_worth_it or not middle or not _has_two_cores():
        work(0, count)
        return
    other = _pool().submit(_quietly, work, middle, count)
    try:
        work(0, middle)
    finally:
        # The other thread writes to arrays of the caller, who may not go on before it ends.
        other.exception()
    other.result()


def _quietly(work: Work, first: int, last: int) -> None:
    with quiet():
        work(first, last)


@functools.cache
def _has_two_cores() -> bool:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) > 1
    return (os.cpu_count() or 1) > 1


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="tessera")


# A forked process has the pool but not its thread.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)
