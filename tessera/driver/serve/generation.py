"""One answer being generated: its tokens as they arrive, its end, and a way to cancel it.

In: an engine, which adds tokens. Out: `Generation`, for any thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tessera.diagnostics import TesseraError
from tessera.driver.serve.jobs import Job
from tessera.driver.serve.measures import AnswerEnd, Served
from tessera.driver.serve.sampling import Constraint, Sampling, TokenChances, TokenChooser

Listener = Callable[["Generation"], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The options of an answer: its most tokens, how they are chosen, where to stop.

    `stop` are rows of tokens that end an answer. They are no part of it, nor is a token that ends
    every answer of the model (`keep_going`: such tokens do not end this one). Prefixes are shared
    with answers of the same `owner` only. `reads_prompt`: the chances of the prompt's tokens are
    wanted too.
    """

    most: int
    sampling: Sampling = field(default_factory=Sampling)
    stop: tuple[tuple[int, ...], ...] = ()
    keep_going: bool = False
    deadline_s: float | None = None
    owner: str = ""
    constraint: Constraint | None = None
    reads_prompt: bool = False


class Generation:
    """The answer to a prompt. Iterating gives tokens as they arrive."""

    def __init__(
        self, number: int, prompt: Sequence[int], wish: Wish, give_up: Callable[[Generation], None]
    ) -> None:
        self.number = number
        self.prompt = tuple(prompt)
        self.wish = wish
        self.tokens: list[int] = []
        self.chances: list[TokenChances] = []
        """Of each token, if they were asked for."""
        self.prompt_chances: list[TokenChances] = []
        """Of each token of the prompt after the first, if they were asked for."""
        self.ended = AnswerEnd.UNDER_WAY
        self.came_ns = time.monotonic_ns()
        self.seated_ns = -1
        self.begun_ns = -1
        self.policy = ""
        self.strikes = 0
        """How often one and the same step of it has faulted, since its last token."""
        self._struck = range(0)
        self.hand_overs = 0
        self.handed_bytes = 0
        self.handed_ns = 0
        self.held_ns = 0
        self.left_ns = -1
        """When it was first to be handed over, while it is not."""
        self.first_ns = -1
        self.ended_ns = -1
        self.chooser = TokenChooser(wish.sampling, self.prompt, wish.constraint)
        self.job = self._job(wish.most)
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

    # --- for the caller ---------------------------------------------------------------------------

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
        """Wait for all tokens; a cancelled answer has those that had arrived."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.ended, timeout):
                raise TimeoutError
        self._raise_problem()
        return list(self.tokens)

    def done(self) -> bool:
        """Whether the answer has ended."""
        return bool(self.ended)

    def cancel(self) -> None:
        """Cancel the answer; its row is free after the step under way."""
        self._give_up(self)

    def listen(self, call: Listener) -> None:
        """Call `call` in the engine's thread whenever tokens have arrived, and at the end."""
        with self._changed:
            self._listeners.append(call)
            is_news = bool(self.ended or self.tokens)
        if is_news:
            call(self)

    def settled(self) -> list[int]:
        """Tokens that certainly belong to the answer: none that may begin a stop sequence."""
        with self._changed:
            return self._settled()

    def served(self, origin_ns: int) -> Served:
        """The answer as a row of a report, with times in nanoseconds after `origin_ns`."""
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
            self.hand_overs,
            self.handed_bytes,
            self.handed_ns,
            self.held_ns,
        )

    def _settled(self) -> list[int]:
        if self.ended or not self._unsettled:
            return list(self.tokens)
        return self.tokens[: max(len(self.tokens) - self._unsettled, 0)]

    @property
    def fault(self) -> TesseraError | None:
        """The fault that ended the answer: which kernel, or which host, device and operation."""
        return self._problem if isinstance(self._problem, TesseraError) else None

    def fault_words(self) -> str:
        """The fault in one line."""
        if self.fault is None:
            return "the server had a fault"
        first = self.fault.diagnostics[0]
        return "; ".join([str(first.headline), *first.notes[:1]])

    def _raise_problem(self) -> None:
        if self._problem is not None:
            raise self._problem

    # --- for the engine ---------------------------------------------------------------------------

    def add(self, token: int, end: Sequence[int], chances: TokenChances | None = None) -> AnswerEnd:
        """Add a token; `end` are tokens that end it. Returns how the answer ends, if it does."""
        with self._changed:
            if self.first_ns < 0:
                self.first_ns = time.monotonic_ns()
            if token in end and not self.wish.keep_going:
                return AnswerEnd.STOP
            self.tokens.append(token)
            if chances is not None:
                self.chances.append(chances)
            for row in self._stops.get(token, ()):
                if tuple(self.tokens[-len(row) :]) == row:
                    del self.tokens[-len(row) :]
                    del self.chances[len(self.tokens) :]
                    return AnswerEnd.STOP
            if self.chooser.is_over:
                return AnswerEnd.STOP
            is_over = len(self.tokens) >= self.wish.most
            return AnswerEnd.LENGTH if is_over else AnswerEnd.UNDER_WAY

    def content(self, start: int, stop: int) -> tuple[int, ...] | None:
        """Tokens of prompt and answer together; None if they are not known yet."""
        asked = len(self.prompt)
        if stop <= asked:
            return self.prompt[start:stop]
        if stop > asked + len(self.tokens):
            return None
        answered = self.tokens[max(start - asked, 0) : stop - asked]
        return (*self.prompt[start:], *answered)

    def uniform(self, token: int) -> float:
        """The number from 0 to 1 by which a step draws a token; the first of the answer is token 0.

        Asking again gives the same number: a step may be handed over twice.
        """
        while len(self._uniforms) <= token:
            self._uniforms.append(float(self.chooser.draws.random(dtype=np.float32)))
        return self._uniforms[token]

    def strike(self, start: int, stop: int) -> None:
        """Note a fault of a step with these of its tokens; others than before are another step."""
        is_same = start < self._struck.stop and self._struck.start < stop
        self.strikes = self.strikes + 1 if is_same else 1
        self._struck = range(start, stop)

    def start_again(self) -> Job:
        """A new job after the states are lost: its prompt includes the tokens that have arrived."""
        self.job = self._job(self.wish.most - len(self.tokens))
        self.is_fresh, self.left_ns = True, -1
        return self.job

    def _job(self, left: int) -> Job:
        """A job for all tokens that are known and `left` more; one token at a time if the chances
        of its prompt are wanted, and then nothing that others computed is of use."""
        known = len(self.prompt) + len(self.tokens)
        is_single = self.wish.reads_prompt and len(self.prompt_chances) < len(self.prompt) - 1
        content = None if is_single else self.content
        return Job(self.number, known, left, content, self.wish.owner, is_single=is_single)

    def leave(self, now_ns: int) -> None:
        """Note that it is to be handed over, from now on or from earlier on."""
        self.left_ns = now_ns if self.left_ns < 0 else self.left_ns

    def arrive(self, now_ns: int, moved_bytes: int, policy: str) -> None:
        """Note that its states have been handed over to another batch."""
        spent_ns = now_ns - self.left_ns
        self.hand_overs += 1
        self.handed_bytes += moved_bytes
        self.handed_ns += spent_ns
        self.held_ns += spent_ns if self.first_ns < 0 else 0
        self.left_ns, self.policy = -1, policy

    def end(self, how: AnswerEnd, problem: BaseException | None = None) -> None:
        """End the answer: no more tokens follow."""
        with self._changed:
            if self.ended:
                return
            self.ended, self._problem = how, problem
            self.ended_ns = time.monotonic_ns()
            self._changed.notify_all()

    def tell(self) -> None:
        """Wake waiting threads and call the listeners."""
        with self._changed:
            self._changed.notify_all()
        for call in tuple(self._listeners):
            call(self)

    @property
    def deadline_ns(self) -> float | None:
        """The time (`time.monotonic_ns()`) at which the answer is given up."""
        limit = self.wish.deadline_s
        return None if limit is None else self.came_ns + limit * 1e9


def refused(message: str, hint: str | None = None) -> TesseraError:
    """The error for a prompt that cannot be answered."""
    return TesseraError.of("TSR5064", message, hint=hint)
