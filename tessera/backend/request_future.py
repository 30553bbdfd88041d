"""The future of a request: whoever waits for it collects, as long as nobody else does.

In: a `Collecting`, which ends requests. Out: a future like any other. A thread in `result` needs
nobody to wake it up then, which is most of what a request costs the host. Who wants to be told
instead, by a call, by `concurrent.futures.wait` or by `asyncio`, relies on a thread in the
background: then that one collects.

Most futures are only ever asked by who collects. So what the others need, a condition above all,
is made when it is first asked for: `Future` makes it for all, which takes longer than the rest of
a future's life.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, Protocol

from tessera.backend.service import Completion, Request

# The states of `concurrent.futures`, which has no public names for them.
_PENDING, _RUNNING, _FINISHED = "PENDING", "RUNNING", "FINISHED"
_OVER = (_FINISHED, "CANCELLED", "CANCELLED_AND_NOTIFIED")

# Held while a future that has no condition changes, or gets one.
_changing = threading.RLock()


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
    """A future that knows its request, and until it is settled who collects."""

    # What `Future` has, as long as nobody has changed it.
    _state = _PENDING
    _result = None
    _exception = None
    _waiters: Any = ()
    _done_callbacks: Any = ()
    _made: threading.Condition | None = None
    _watched = 0
    # For who submits it: whether there was room for the request.
    has_ticket = False

    def __init__(
        self,
        collecting: Collecting,
        request: Request,
        finish: Callable[[Completion], Any] | None = None,
    ) -> None:
        # `Future.__init__` would make what may never be needed.
        self._collecting: Collecting | None = collecting
        self.request = request
        self._finish = finish

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        """What `Future` and its friends lock before they ask or change anything."""
        with _changing:
            if self._made is None:
                self._waiters = _Waiters(self)
                self._done_callbacks = []
                self._made = threading.Condition()
            return self._made

    # --- for who asks -------------------------------------------------------------------------

    def result(self, timeout: float | None = None) -> Any:
        """What the request gave; waits for it."""
        self._await(timeout)
        if self._state == _FINISHED and self._exception is None:
            return self._result
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What the request failed with; waits for its end."""
        self._await(timeout)
        return super().exception(0)

    def done(self) -> bool:
        """Whether the request has ended by now."""
        collecting = self._collecting
        if collecting is not None:
            collecting.collect_until(self._is_over, 0.0)
        return self._is_over()

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
        with _changing:
            if self._collecting is not None:
                self._watched += 1
                self._collecting.rely(1)

    def _await(self, timeout: float | None) -> None:
        """Wait until it is over, or the time is."""
        collecting = self._collecting
        if collecting is None or collecting.collect_until(self._is_over, timeout):
            return
        collecting.rely(1)
        try:
            condition = self._condition
            with condition:
                condition.wait_for(self._is_over, timeout)
        finally:
            collecting.rely(-1)

    def _is_over(self) -> bool:
        return self._state in _OVER

    # --- for who collects ---------------------------------------------------------------------

    def begin(self) -> bool:
        """The request begins; False where it has been cancelled."""
        with _changing:
            if self._made is None:
                self._state = _RUNNING
                return True
        return self.set_running_or_notify_cancel()

    def finish(self, completion: Completion) -> None:
        """The request is done."""
        result = completion if self._finish is None else self._finish(completion)
        with _changing:
            # Who is about to ask to be told has no condition yet.
            if self._made is None and not self._watched:
                self._result = result
                self._state = _FINISHED
                self._collecting = None
                return
        try:
            self.set_result(result)
        finally:
            self.settle()

    def fail(self, problem: BaseException) -> bool:
        """The request has no result; whether that is news. Who wants to be told is not yet."""
        condition = self._condition
        with condition:
            if self._is_over():
                return False
            self._exception = problem
            self._state = _FINISHED
            for waiter in self._waiters:
                waiter.add_exception(self)
            condition.notify_all()
        return True

    def tell(self) -> None:
        """Call what is to be called at the end."""
        try:
            self._invoke_callbacks()  # type: ignore[attr-defined]
        finally:
            self.settle()

    def settle(self) -> None:
        """The future has its result, or has been cancelled."""
        with _changing:
            collecting, self._collecting = self._collecting, None
            watched, self._watched = self._watched, 0
            if isinstance(self._waiters, _Waiters):
                self._waiters.future = None
        if collecting is not None and watched:
            collecting.rely(-watched)


class _Waiters(list[Any]):
    """Those who are told of the end of a future."""

    __slots__ = ("future",)

    def __init__(self, future: RequestFuture) -> None:
        # Until it is settled: a circle would keep the results until the next collection.
        self.future: RequestFuture | None = future

    def append(self, waiter: Any) -> None:
        if self.future is not None:
            self.future.watch()
        super().append(waiter)


def fail_all(futures: Iterable[RequestFuture], problem: BaseException) -> BaseException | None:
    """No request has a result, whatever is raised by who is told; the first that was.

    All have failed before anybody is told of one, who may then ask another.
    """
    raised = None
    for future, failed in [(one, one.fail(problem)) for one in futures]:
        try:
            if failed:
                future.tell()
            else:
                future.settle()
        except BaseException as other:
            raised = raised or other
    return raised
