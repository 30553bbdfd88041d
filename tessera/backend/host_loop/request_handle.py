"""The handle of a request: gives its result, or a `Future` of it.

In: a `Collecting`, which ends requests. Out: a handle per request. A thread in `result` collects
completions itself unless another thread does; a wake-up by another thread would be most of the host
time of a request. A callback, a `Future` or `await` relies on the background thread, which then
collects.

Most handles are used only by the thread that collects. Objects that other threads need, above all a
condition, are made on first use.
"""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import CancelledError, Future
from typing import Any, Generic, Protocol, TypeVar

from tessera.backend.service import Completion, Request

Outcome = TypeVar("Outcome")

# Held briefly, while the state of a handle changes or is read together with other fields.
_changing = threading.RLock()
_log = logging.getLogger("tessera.requests")


class Collecting(Protocol):
    """The object that ends requests: a dispatcher."""

    def collect_until(self, is_so: Callable[[], bool], timeout_s: float | None) -> bool:
        """Collect in this thread until `is_so` returns true, or the time is over.

        False if another thread collects, which then ends the request, or everything has ended.
        """

    def rely(self, more: int) -> None:
        """Count `more` threads or handles that rely on the collector; negative counts down.

        Called while a handle is locked.
        """


class RequestState(enum.Enum):
    """The progress of a request."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


_OVER = (RequestState.DONE, RequestState.FAILED, RequestState.CANCELLED)


class RequestHandle(Generic[Outcome]):
    """One request: its result once it is done, and a way to wait for it."""

    __slots__ = (
        "_callbacks",
        "_collecting",
        "_condition",
        "_finish",
        "_problem",
        "_result",
        "_state",
        "_watched",
        "has_ticket",
        "request",
    )

    def __init__(
        self,
        collecting: Collecting,
        request: Request,
        finish: Callable[[Completion], Outcome] | None = None,
    ) -> None:
        self.request = request
        # Whether the request was admitted, for the submitter.
        self.has_ticket = False
        self._collecting: Collecting | None = collecting
        self._finish = finish
        self._state = RequestState.WAITING
        self._result: Any = None
        self._problem: BaseException | None = None
        self._condition: threading.Condition | None = None
        self._callbacks: list[Callable[[RequestHandle[Outcome]], object]] | None = None
        self._watched = 0

    # --- for users ---------------------------------------------------------------------------

    def result(self, timeout: float | None = None) -> Outcome:
        """The result; waits for it, at most `timeout` seconds."""
        problem = self.exception(timeout)
        if problem is None:
            outcome: Outcome = self._result
            return outcome
        try:
            raise problem
        finally:
            # The traceback holds this frame: without this, the error would hold the handle.
            del problem, self

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error that the request failed with; waits for its end."""
        self._await(timeout)
        match self._state:
            case RequestState.DONE:
                return None
            case RequestState.FAILED:
                return self._problem
            case RequestState.CANCELLED:
                raise CancelledError
            case _:
                raise TimeoutError

    def done(self) -> bool:
        """Whether the request has ended."""
        collecting = self._collecting
        if collecting is not None:
            collecting.collect_until(self._is_over, 0.0)
        return self._is_over()

    def cancelled(self) -> bool:
        """Whether the request was cancelled."""
        return self._state is RequestState.CANCELLED

    def cancel(self) -> bool:
        """Cancel the request; returns False if it has begun."""
        with _changing:
            if self._state is RequestState.CANCELLED:
                return True
            if self._state is not RequestState.WAITING:
                return False
            self._state = RequestState.CANCELLED
        self._notify()
        self.tell()
        return True

    def add_done_callback(self, call: Callable[[RequestHandle[Outcome]], object]) -> None:
        """Call a function with this handle when the request has ended."""
        self.watch()
        with _changing:
            if not self._is_over():
                self._callbacks = [*(self._callbacks or ()), call]
                return
        self._call(call)

    def future(self) -> Future[Outcome]:
        """The request as a `concurrent.futures.Future`, for `wait`, `as_completed` and others."""
        future: Future[Outcome] = Future()
        future.add_done_callback(lambda made: self.cancel() if made.cancelled() else None)
        self.add_done_callback(lambda handle: handle._hand_on(future))
        return future

    def __await__(self) -> Generator[Any, None, Outcome]:
        import asyncio

        return asyncio.wrap_future(self.future()).__await__()

    def watch(self) -> None:
        """Rely on the background thread, because a callback waits for the end."""
        with _changing:
            if self._collecting is not None:
                self._watched += 1
                self._collecting.rely(1)

    def _await(self, timeout: float | None) -> None:
        """Wait until the request has ended, or the time is over."""
        collecting = self._collecting
        if collecting is None or collecting.collect_until(self._is_over, timeout):
            return
        collecting.rely(1)
        try:
            with _changing:
                condition = self._condition = self._condition or threading.Condition()
            with condition:
                condition.wait_for(self._is_over, timeout)
        finally:
            collecting.rely(-1)

    def _is_over(self) -> bool:
        return self._state in _OVER

    def _hand_on(self, future: Future[Outcome]) -> None:
        """End a future in the same way as the request ended."""
        if self.cancelled():
            future.cancel()
        # Only this call notifies threads that wait for a cancelled future.
        if not future.set_running_or_notify_cancel():
            return
        if self._problem is None:
            future.set_result(self._result)
        else:
            future.set_exception(self._problem)

    # --- for the collector -------------------------------------------------------------------

    def begin(self) -> bool:
        """Note that the request begins; returns False if it was cancelled."""
        with _changing:
            if self._state is RequestState.CANCELLED:
                return False
            self._state = RequestState.RUNNING
            return True

    def finish(self, completion: Completion) -> None:
        """End the request with its completion."""
        self._end(
            RequestState.DONE, completion if self._finish is None else self._finish(completion)
        )
        self.tell()

    def fail(self, problem: BaseException) -> bool:
        """Fail the request; returns False if it had ended. `tell` runs the callbacks later."""
        return self._end(RequestState.FAILED, None, problem)

    def tell(self) -> None:
        """Run the callbacks."""
        try:
            with _changing:
                callbacks, self._callbacks = self._callbacks, None
            for call in callbacks or ():
                self._call(call)
        finally:
            self.settle()

    def settle(self) -> None:
        """Note that the request has ended and no longer relies on the collector."""
        with _changing:
            collecting, self._collecting = self._collecting, None
            watched, self._watched = self._watched, 0
        if collecting is not None and watched:
            collecting.rely(-watched)

    def _end(self, state: RequestState, result: Any, problem: BaseException | None = None) -> bool:
        with _changing:
            if self._is_over():
                return False
            self._result, self._problem, self._state = result, problem, state
        self._notify()
        return True

    def _notify(self) -> None:
        """Wake threads that wait without collecting; later threads check the state first."""
        condition = self._condition
        if condition is not None:
            with condition:
                condition.notify_all()

    def _call(self, call: Callable[[RequestHandle[Outcome]], object]) -> None:
        try:
            call(self)
        except Exception:  # a callback is the user's: whatever it raises ends no other request
            _log.exception("a callback of request %d failed", self.request.number)


def fail_all(handles: Iterable[RequestHandle[Any]], problem: BaseException) -> BaseException | None:
    """Fail requests, whatever their callbacks raise; returns the first error of a callback.

    All requests have failed before the first callback runs, since it may ask another handle.
    """
    raised = None
    for handle, failed in [(handle, handle.fail(problem)) for handle in handles]:
        try:
            if failed:
                handle.tell()
            else:
                handle.settle()
        except BaseException as other:
            raised = raised or other
    return raised
