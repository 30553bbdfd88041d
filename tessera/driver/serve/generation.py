"""One answer on its way: tokens as they come, its end, and a way to give it up.

In: an engine, which adds tokens. Out: `Generation`, for any thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tessera.diagnostics import TesseraError, error
from tessera.driver.serve.measures import Served
from tessera.driver.serve.sampling import Sampling
from tessera.driver.serve.scheduler import Job

Listener = Callable[["Generation"], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is asked for: how many tokens at most, how they are chosen, where to stop.

    `stop` are rows of tokens that end an answer. They are no part of it, nor is a token that ends
    every answer of the model (`keep_going`: such tokens do not end this one).
    """

    most: int
    sampling: Sampling = field(default_factory=Sampling)
    stop: tuple[tuple[int, ...], ...] = ()
    keep_going: bool = False
    deadline_s: float | None = None


class Generation:
    """The answer to a prompt. Iterating gives tokens as they come."""

    def __init__(
        self, number: int, prompt: Sequence[int], wish: Wish, give_up: Callable[[Generation], None]
    ) -> None:
        self.number = number
        self.prompt = tuple(prompt)
        self.wish = wish
        self.tokens: list[int] = []
        self.ended = ""
        self.came_ns = time.monotonic_ns()
        self.seated_ns = -1
        self.begun_ns = -1
        self.policy = ""
        self.first_ns = -1
        self.ended_ns = -1
        self.job = Job(number, len(self.prompt), wish.most)
        self.draws: np.random.Generator = wish.sampling.draws()
        self.is_fresh = True
        self._uniforms: list[float] = []
        self._stops: dict[int, list[tuple[int, ...]]] = {}
        for row in wish.stop:
            self._stops.setdefault(row[-1], []).append(row)
        self._unsettled = max((len(row) for row in wish.stop), default=1) - 1
        self._give_up = give_up
        self._problem: BaseException | None = None
        self._changed = threading.Condition()
        self._listeners: list[Listener] = []

    # --- for whoever asks -------------------------------------------------------------------------

    def __iter__(self) -> Iterator[int]:
        given = 0
        while True:
            with self._changed:
                while not self.ended and len(self._settled()) <= given:
                    self._changed.wait()
                tokens = self._settled()[given:]
                is_over = bool(self.ended)
            yield from tokens
            given += len(tokens)
            if is_over:
                self._raise_problem()
                return

    def result(self, timeout: float | None = None) -> list[int]:
        """All tokens; waits for them. Of an answer that was given up, those that had come."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.ended, timeout):
                raise TimeoutError
        self._raise_problem()
        return list(self.tokens)

    def done(self) -> bool:
        """Whether it has ended."""
        return bool(self.ended)

    def cancel(self) -> None:
        """Give it up; its row is free after the step that is under way."""
        self._give_up(self)

    def listen(self, call: Listener) -> None:
        """Call something, in the engine's thread, whenever tokens have come and at the end."""
        with self._changed:
            self._listeners.append(call)
            is_news = bool(self.ended or self.tokens)
        if is_news:
            call(self)

    def settled(self) -> list[int]:
        """Tokens that are certain to belong to the answer: none that may begin a stop."""
        with self._changed:
            return self._settled()

    def served(self, origin_ns: int) -> Served:
        """As a line of a report, with times after `origin_ns`."""
        return Served(
            self.came_ns - origin_ns,
            len(self.prompt),
            len(self.tokens),
            self.first_ns - origin_ns if self.first_ns >= 0 else -1,
            self.ended_ns - origin_ns if self.ended_ns >= 0 else -1,
            self.ended,
            self.seated_ns - origin_ns if self.seated_ns >= 0 else -1,
            self.begun_ns - origin_ns if self.begun_ns >= 0 else -1,
            self.policy,
        )

    def _settled(self) -> list[int]:
        if self.ended or not self._unsettled:
            return list(self.tokens)
        return self.tokens[: max(len(self.tokens) - self._unsettled, 0)]

    @property
    def fault(self) -> TesseraError | None:
        """What ended it with `fault`: which kernel, or which host, device and operation."""
        return self._problem if isinstance(self._problem, TesseraError) else None

    def fault_words(self) -> str:
        """The same in a line."""
        if self.fault is None:
            return "the server had a fault"
        first = self.fault.diagnostics[0]
        return "; ".join([str(first.headline), *first.notes[:1]])

    def _raise_problem(self) -> None:
        if self._problem is not None:
            raise self._problem

    # --- for the engine ---------------------------------------------------------------------------

    def add(self, token: int, end: Sequence[int]) -> str:
        """A token has come; how the answer ends with it, or nothing."""
        with self._changed:
            if self.first_ns < 0:
                self.first_ns = time.monotonic_ns()
            if token in end and not self.wish.keep_going:
                return "stop"
            self.tokens.append(token)
            for row in self._stops.get(token, ()):
                if tuple(self.tokens[-len(row) :]) == row:
                    del self.tokens[-len(row) :]
                    return "stop"
            return "length" if len(self.tokens) >= self.wish.most else ""

    def uniform(self, token: int) -> float:
        """The number from 0 to 1 by which a step draws a token of the answer, the first being 0.

        Whoever asks, and how often: a step that is handed over again gets the same one.
        """
        while len(self._uniforms) <= token:
            self._uniforms.append(float(self.draws.random(dtype=np.float32)))
        return self._uniforms[token]

    def start_again(self) -> Job:
        """Its states are lost: what is left, with the tokens that have come as part of a prompt."""
        have = len(self.prompt) + len(self.tokens)
        self.job = Job(self.number, have, self.wish.most - len(self.tokens))
        self.is_fresh = True
        return self.job

    def end(self, how: str, problem: BaseException | None = None) -> None:
        """No token comes any more."""
        with self._changed:
            if self.ended:
                return
            self.ended, self._problem = how, problem
            self.ended_ns = time.monotonic_ns()
            self._changed.notify_all()

    def tell(self) -> None:
        """Threads that wait and listeners hear of what has come."""
        with self._changed:
            self._changed.notify_all()
        for call in tuple(self._listeners):
            call(self)

    @property
    def deadline_ns(self) -> float | None:
        """When it is given up, by `time.monotonic_ns()`."""
        limit = self.wish.deadline_s
        return None if limit is None else self.came_ns + limit * 1e9


def refused(message: str, hint: str | None = None) -> TesseraError:
    """A prompt that cannot be answered."""
    return TesseraError(error("TSR5064", message, hint=hint))


def engine_closed() -> TesseraError:
    """What those hear who ask a closed engine."""
    return TesseraError(error("TSR5050", "the engine has been closed"))
