"""A log that counts repeated lines instead of writing them: strangers cannot fill a disk with it.

In: records of `logging`. Out: one record a minute for each place in the code that logs and each
kind of exception, with the number of records left out since the last one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_EVERY_S = 60.0
_LOGGERS = ("uvicorn.error", "asyncio", "tessera.serve")

_Place = tuple[str, str, int, str]


class CountedLog(logging.Filter):
    """Leaves out records that repeat one logged within the last minute."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._seen: dict[_Place, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is logged; the number of records left out is added to it."""
        kind = record.exc_info[0] if record.exc_info else None
        place = (record.name, record.pathname, record.lineno, kind.__name__ if kind else "")
        now_s = time.monotonic()
        with self._lock:
            last_s, left_out = self._seen.get(place, (now_s - _EVERY_S, 0))
            is_due = now_s - last_s >= _EVERY_S
            self._seen[place] = (now_s, 0) if is_due else (last_s, left_out + 1)
        if is_due and left_out:
            record.msg = f"{record.getMessage()} ({left_out} more like this were not logged)"
            record.args = None
        return is_due

    def left_out(self) -> int:
        """The number of records left out and not yet reported in a logged one."""
        with self._lock:
            return sum(count for _, count in self._seen.values())


@contextmanager
def counted_logs() -> Iterator[CountedLog]:
    """Count the logs of a server inside this context."""
    counted = CountedLog()
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(counted)
    try:
        yield counted
    finally:
        for logger in loggers:
            logger.removeFilter(counted)
        if count := counted.left_out():
            loggers[-1].warning("%d more lines like those above were not logged", count)
