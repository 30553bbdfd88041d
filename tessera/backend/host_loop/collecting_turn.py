"""The turn of a thread to collect completions.

In: threads of a dispatcher. Out: which of them collects.
"""

from __future__ import annotations

import threading


class CollectingTurn:
    """The right to collect, which one thread has at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._thread = 0

    @property
    def is_here(self) -> bool:
        """Whether this thread has the turn."""
        return self._thread == threading.get_ident()

    def begin(self) -> None:
        """Note that this thread, which has acquired the lock, has the turn; `end` must follow."""
        self._thread = threading.get_ident()

    def end(self) -> None:
        """Release the turn."""
        self._thread = 0
        self.lock.release()
