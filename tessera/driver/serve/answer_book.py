"""The answers that an engine owes: those that arrived, were cancelled, or missed their deadline.

In: prompts and cancellations, from any thread. Out: for the engine's thread, the answers that
arrived since its last call, and those that have to end. A lock guards the state that threads share;
only the engine's thread uses deadlines.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from tessera.diagnostics import TesseraError
from tessera.driver.serve.generation import Generation, Wish
from tessera.driver.serve.measures import AnswerEnd

_LONGEST_WAIT_S = 3600.0
"""Longest wait in seconds: a deadline may be further away than a thread can wait."""


class AnswerBook:
    """All answers that have not ended."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake` wakes the engine's thread."""
        self._wake = wake
        self._lock = threading.Lock()
        self._answers: dict[int, Generation] = {}
        self._arrived: list[Generation] = []
        self._given_up: set[int] = set()
        self._late: set[int] = set()
        self._deadlines: list[tuple[float, int]] = []
        self._count = 0
        self._is_closing = False
        self._ending: BaseException | None = None

    # --- for any thread ---------------------------------------------------------------------------

    def ask(self, prompt: Sequence[int], wish: Wish, check: Callable[[], None]) -> Generation:
        """Register an answer; `check` may refuse it, and runs while no other thread can ask."""
        with self._lock:
            if not self.is_open:
                raise self.refusal()
            check()
            self._count += 1
            answer = Generation(self._count, prompt, wish, self._give_up)
            self._answers[answer.number] = answer
            self._arrived.append(answer)
        self._wake()
        return answer

    def _give_up(self, answer: Generation) -> None:
        with self._lock:
            if answer.number not in self._answers:
                return  # it has ended
            self._given_up.add(answer.number)
        self._wake()

    @property
    def arrived(self) -> int:
        """Answers that the engine's thread has not seen yet."""
        return len(self._arrived)

    @property
    def is_open(self) -> bool:
        """Whether answers may be asked for."""
        return self._ending is None and not self._is_closing

    def refusal(self) -> BaseException:
        """Why no answer may be asked for: the engine is closed, or a problem ended it."""
        return self._ending or TesseraError.of("TSR5050", "the engine has been closed")

    def close(self, *, give_up: bool) -> None:
        """Take no more answers; with `give_up`, cancel the open ones."""
        with self._lock:
            self._is_closing = True
            if give_up:
                self._given_up.update(self._answers)
        self._wake()

    # --- for the thread of the engine -------------------------------------------------------------

    def __getitem__(self, number: int) -> Generation:
        return self._answers[number]

    def take_arrived(self) -> list[Generation]:
        """The answers that were asked for since the last call."""
        with self._lock:
            arrived, self._arrived = self._arrived, []
        for answer in arrived:
            if answer.deadline_ns is not None:
                heapq.heappush(self._deadlines, (answer.deadline_ns, answer.number))
        return arrived

    def leaving(self) -> Iterator[tuple[Generation, AnswerEnd]]:
        """Answers that are cancelled or past their deadline, and how they end."""
        with self._lock:
            leaving = dict.fromkeys(self._given_up, AnswerEnd.CANCELLED)
        now_ns = time.monotonic_ns()
        while self._deadlines and self._deadlines[0][0] < now_ns:
            self._late.add(heapq.heappop(self._deadlines)[1])
        late = dict.fromkeys(self._late & self._answers.keys(), AnswerEnd.DEADLINE)
        self._late = set(late)
        for number, how in (late | leaving).items():
            if number in self._answers:
                yield self._answers[number], how

    @property
    def has_leaving(self) -> bool:
        """Whether any answer in a step under way is cancelled or past its deadline."""
        return bool(self._given_up or self._late)

    def forget(self, answer: Generation) -> None:
        """Remove an answer that has ended."""
        with self._lock:
            self._answers.pop(answer.number, None)
            self._given_up.discard(answer.number)
        self._late.discard(answer.number)

    def is_over(self) -> bool:
        """Whether no answer is open and none can be asked for."""
        with self._lock:
            return self._is_closing and not self._answers

    def patience_s(self) -> float | None:
        """Seconds until the next deadline; None if there is no deadline."""
        while self._deadlines and self._deadlines[0][1] not in self._answers:
            heapq.heappop(self._deadlines)
        if not self._deadlines:
            return None
        left_s = (self._deadlines[0][0] - time.monotonic_ns()) / 1e9
        return min(max(left_s, 0.001), _LONGEST_WAIT_S)

    def fail(self, problem: BaseException) -> None:
        """End every answer with the problem that ended the engine."""
        with self._lock:
            self._ending = problem
            answers = list(self._answers.values())
            self._answers.clear()
        for answer in answers:
            answer.end(AnswerEnd.FAULT, problem)
            answer.tell()
