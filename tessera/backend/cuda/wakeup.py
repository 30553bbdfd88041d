"""How a stream wakes a thread of the host: a semaphore of the C library, posted by the driver.

The driver calls a C function when a stream gets there: `sem_post`, which needs neither Python nor
its lock. The waiting thread sleeps in `sem_timedwait` and sees to it that nobody waits for ever.
On systems without these functions a wait is a short sleep.
"""

from __future__ import annotations

import ctypes
import sys
import time
from typing import Any

_SEMAPHORE_BYTES = 64
_POLL_S = 50e-6


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class Wakeup:
    """A semaphore; `function` and `data` are what a stream is to call, 0 where there is none."""

    def __init__(self) -> None:
        self.function = 0
        self._memory = ctypes.create_string_buffer(_SEMAPHORE_BYTES)
        self.data = ctypes.addressof(self._memory)
        self._library: Any = None
        self._until = _Time()
        self._until_address = ctypes.addressof(self._until)
        if sys.platform.startswith("linux"):
            self._library = ctypes.CDLL(None, use_errno=True)
            self._library.sem_init(ctypes.c_void_p(self.data), 0, 0)
            post = ctypes.cast(self._library.sem_post, ctypes.c_void_p).value
            self.function = post or 0
            self._timed_wait = self._library.sem_timedwait
            self._timed_wait.argtypes = (ctypes.c_void_p, ctypes.c_void_p)

    def wait(self, timeout_s: float) -> bool:
        """Sleep until somebody posts, or for so long at most; whether somebody did.

        For one thread at a time.
        """
        if self._library is None:
            time.sleep(min(timeout_s, _POLL_S))
            return False
        end = time.time_ns() + int(timeout_s * 1e9)
        self._until.seconds, self._until.nanoseconds = divmod(end, 1_000_000_000)
        return bool(self._timed_wait(self.data, self._until_address) == 0)

    def abandon(self) -> None:
        """Keep the semaphore for ever: a GPU may still post it."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._memory))
