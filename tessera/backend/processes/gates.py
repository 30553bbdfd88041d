"""Requests that keep apart: the next one of a trace begins when the one before is past its gate.

In: requests that have a slot, in the order in which they got it, and who has passed. Out: who may
begin. A gate is a step that every request of its trace does, so nobody waits for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from tessera.backend.service import Request


class Gates:
    """Who waits for whom. Usable from threads. A trace without a step has no gate."""

    def __init__(self, steps: Mapping[int, int | None]) -> None:
        self._steps = steps
        self._lock = threading.Lock()
        self._last: dict[int, int] = {}
        self._short: set[int] = set()
        self._held: dict[int, Request] = {}

    def come(self, request: Request) -> bool:
        """A request has a slot; whether it may begin now. If not, `passed` names it later."""
        if self._steps.get(request.trace) is None:
            return True
        with self._lock:
            ahead = self._last.get(request.trace)
            self._last[request.trace] = request.number
            self._short.add(request.number)
            if ahead not in self._short:
                return True
            assert ahead is not None
            self._held[ahead] = request
            return False

    def passed(self, number: int) -> Request | None:
        """A request has passed its gate; the one that may begin now."""
        with self._lock:
            self._short.discard(number)
            return self._held.pop(number, None)
