"""What changes when somebody writes to a file, for files that are not read again."""

from __future__ import annotations

import os
import time

Stamp = tuple[int, ...]
# Times of files are this coarse at worst: what was just written could change again unseen.
SETTLED_NS = 3_000_000_000


def stamp_of(status: os.stat_result) -> Stamp:
    """Both times of a file to the nanosecond, its size, and which file it is."""
    times = status.st_mtime_ns, status.st_ctime_ns
    return (*times, status.st_size, status.st_ino, status.st_dev)


def is_settled(stamp: Stamp) -> bool:
    """Whether nobody has written to a file of late: it cannot change and keep its stamp."""
    return max(stamp[:2]) + SETTLED_NS < time.time_ns()
