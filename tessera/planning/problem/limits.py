"""Stop conditions of a search: a deadline and a request of the caller, polled between steps.

In: seconds and a callable. Out: a `SearchWatch`. Without either, nothing depends on time, and the
same input gives the same answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tessera.ir.choices import Ending

ShouldStop = Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchWatch:
    """A deadline, in seconds of `time.perf_counter`, and a callable that asks to stop."""

    deadline: float | None = None
    should_stop: ShouldStop | None = None

    def over(self) -> Ending | None:
        """The reason to stop now; None to continue."""
        if self.should_stop is not None and self.should_stop():
            return Ending.INTERRUPTED
        if self.deadline is not None and time.perf_counter() >= self.deadline:
            return Ending.CLOCK
        return None

    def seconds_left(self) -> float | None:
        """Seconds until the deadline, a tenth at least; None without one."""
        if self.deadline is None:
            return None
        return max(0.1, self.deadline - time.perf_counter())


def watch_for(seconds: float | None, should_stop: ShouldStop | None = None) -> SearchWatch:
    """A watch that starts now."""
    deadline = None if seconds is None else time.perf_counter() + seconds
    return SearchWatch(deadline=deadline, should_stop=should_stop)


ENDLESS = SearchWatch()
