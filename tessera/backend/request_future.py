"""The future of a request: whoever waits for it collects, as long as nobody else does.

In: a `Collecting`, which ends requests. Out: a future like any other. A thread in `result` needs
nobody to wake it up then, which is most of what a request costs the host. Who wants to be told
instead, by a call, by `concurrent.futures.wait` or by `asyncio`, relies on a thread in the
background: then that one collects.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol


class Collecting(Protocol):
    """Who ends the requests that futures stand for."""

    def collect_until(self, is_so: Callable[[], bool], timeout_s: float | None) -> bool:
        """Collect in this thread until something is so, or the time is over.

        False where others collect, or nothing more will be: then the future is ended by them.
        """

    def rely(self, more: int) -> None:
        """So many more rely on the thread in the background; a negative number: fewer.

        Called while a future is locked.
        """


class RequestFuture(Future[Any]):
    """A future that knows who collects, until it is settled."""

    def __init__(self, collecting: Collecting) -> None:
        super().__init__()
        self._collecting: Collecting | None = collecting
        self._relying: list[Collecting] = []
        # `concurrent.futures.wait` and `as_completed` append to this.
        self._waiters = _Waiters(self)

    def result(self, timeout: float | None = None) -> Any:
        """What the request gave; waits for it."""
        return self._when_over(Future.result, timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What the request failed with; waits for its end."""
        found: BaseException | None = self._when_over(Future.exception, timeout)
        return found

    def done(self) -> bool:
        """Whether the request has ended by now."""
        collecting = self._collecting
        if collecting is not None:
            collecting.collect_until(self._is_settled, 0.0)
        return super().done()

    def cancel(self) -> bool:
        """Take the request back, unless it has begun."""
        if not super().cancel():
            return False
        self.settle()
        return True

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        """Call something when the request has ended."""
        self.watch()
        super().add_done_callback(fn)

    def watch(self) -> None:
        """Somebody will be told of the end, but does not collect."""
        collecting = self._collecting
        if collecting is not None:
            collecting.rely(1)
            self._relying.append(collecting)
            if self._collecting is None:
                self._stop_relying()

    def fail(self, problem: BaseException) -> None:
        """The request has no result."""
        if not super().done():
            self.set_exception(problem)
        self.settle()

    def settle(self) -> None:
        """The future has its result, or has been cancelled."""
        self._collecting = None
        self._stop_relying()

    def _stop_relying(self) -> None:
        """For `settle` and a `watch` at the same time: each entry is taken by one of them."""
        while self._relying:
            try:
                collecting = self._relying.pop()
            except IndexError:
                return
            collecting.rely(-1)

    def _is_settled(self) -> bool:
        return self._collecting is None

    def _when_over(self, read: Callable[[Any, float | None], Any], timeout: float | None) -> Any:
        collecting = self._collecting
        if collecting is None:
            return read(self, timeout)
        if collecting.collect_until(self._is_settled, timeout):
            return read(self, 0)
        collecting.rely(1)
        try:
            return read(self, timeout)
        finally:
            collecting.rely(-1)


class _Waiters(list[Any]):
    """Those who are told of the end of a future."""

    __slots__ = ("_future",)

    def __init__(self, future: RequestFuture) -> None:
        self._future = future

    def append(self, waiter: Any) -> None:
        self._future.watch()
        super().append(waiter)
