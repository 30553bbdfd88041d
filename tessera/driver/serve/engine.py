"""`tessera.Engine`: tokens from a plan whose traces are steps of a language model.

    with tessera.Engine("plan.tsp") as engine:
        answer = engine.submit([1, 15, 7], max_tokens=32)
        for token in answer:
            ...

In: prompts, from any thread. Out: a `Generation` for each. The scheduler decides which step each
batch takes next; this module makes its inputs, hands it to a `Runtime`, and reads the tokens.
Batches are the sequences of the runtime: as many steps are under way at a time as there are batches
with something to do, so that devices overlap. One thread does all of this; prompts, ends of steps
and wishes to give up come to it through one queue.

A fault of a kernel ends the answers of its batch. The runtime is started again, and all other
answers go on: their tokens are known, so their states are computed once more.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

from tessera.backend.host_loop.request_handle import RequestHandle
from tessera.backend.service import ServiceFault
from tessera.diagnostics import TesseraError, error
from tessera.driver.run.arguments import check_amounts, check_counts
from tessera.driver.run.runtime import Result, Runtime
from tessera.driver.serve.answers import check_prompt, read_tokens, row_input
from tessera.driver.serve.generation import Generation, Wish, refused
from tessera.driver.serve.sampling import Sampling
from tessera.driver.serve.scheduler import Batch, Job, Scheduler, StepWork
from tessera.driver.serve.step_inputs import step_inputs
from tessera.driver.serve.steps import (
    Declaration,
    declaration_beside,
    find_steps,
    read_declaration,
)
from tessera.ir.plan.plan import Plan

_MOST_RESTARTS = 3
"""So often in a row a runtime is started again before a step has ended well."""
_LONGEST_WAIT_S = 3600.0
"""Deadlines may lie further off than a thread can wait."""


class Engine:
    """A plan that answers prompts."""

    def __init__(
        self,
        plan: Plan | str | os.PathLike[str],
        *,
        steps: Declaration | str | os.PathLike[str] | None = None,
        burst: int = 1,
        max_waiting: int | None = None,
        on_end: Callable[[Generation], object] | None = None,
        **options: Any,
    ) -> None:
        """Open a plan; `options` are those of `Runtime`.

        `steps` declares what the inputs of the traces are, where their names do not say it or no
        `NAME.steps.json` lies beside the plan. At most `burst` prefill steps of a batch come
        between two decode steps. More than `max_waiting` prompts in line are refused (TSR5065).
        """
        check_counts({"burst": burst, "max_waiting": max_waiting}, least=1)
        self._start = partial(Runtime, plan, **options)
        self.runtime = self._start()
        try:
            given = declaration_beside(plan) if steps is None else steps
            declared = None if given is None else read_declaration(given)
            self.model = find_steps(self.runtime.traces, self.runtime.programs, declared)
        except BaseException:
            self.runtime.close(wait=False)
            raise
        self.sizes = self.model.sizes(self.runtime.sequences)
        self.max_waiting = max_waiting
        self.steps_done: dict[str, int] = dict.fromkeys(self.runtime.traces, 0)
        self.tokens_given = 0
        self.restarts = 0
        self._on_end = on_end
        self._scheduler = Scheduler(self.sizes, burst=burst)
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._answers: dict[int, Generation] = {}
        self._given_up: set[int] = set()
        self._arrived: list[Generation] = []
        self._under_way: dict[int, tuple[StepWork, list[tuple[Generation, int, int]]]] = {}
        self._lock = threading.Lock()
        self._count = 0
        self._closing = False
        self._ending: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="tessera-engine", daemon=True)
        self._thread.start()

    # --- for any thread ---------------------------------------------------------------------------

    def submit(
        self,
        prompt: Sequence[int],
        *,
        max_tokens: int = 16,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        stop: Iterable[Sequence[int] | int] = (),
        ignore_end: bool = False,
        deadline_s: float | None = None,
    ) -> Generation:
        """Ask for an answer; raises TSR5064 where none can be given, TSR5065 where too many wait.

        Greedy unless a `temperature` is given. `stop` are tokens, or rows of tokens, that end the
        answer; `deadline_s` is when it is given up, counted from now.
        """
        check_amounts({"deadline_s": deadline_s})
        check_counts({"max_tokens": max_tokens}, least=1, optional=False)
        rows = tuple((row,) if isinstance(row, int) else tuple(row) for row in stop)
        if not all(rows):
            raise refused("a row of tokens in `stop` is empty")
        wish = Wish(
            most=max_tokens,
            sampling=Sampling(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed),
            stop=rows,
            keep_going=ignore_end,
            deadline_s=deadline_s,
        )
        tokens = check_prompt(self.model, self.sizes, prompt, wish)
        with self._lock:
            if self._closing or self._ending is not None:
                raise self._ending or _closed()
            if self.max_waiting is not None and self.waiting >= self.max_waiting:
                raise TesseraError(
                    error(
                        "TSR5065",
                        f"{self.waiting} prompts are waiting, and no more may",
                        hint="try again later",
                    )
                )
            self._count += 1
            answer = Generation(self._count, tokens, wish, self._give_up)
            self._answers[answer.number] = answer
            self._arrived.append(answer)
        self._inbox.put(None)
        return answer

    def generate(self, prompts: Iterable[Sequence[int]], **wishes: Any) -> list[list[int]]:
        """The answers to several prompts; the keywords are those of `submit`."""
        answers = [self.submit(prompt, **wishes) for prompt in prompts]
        return [answer.result() for answer in answers]

    @property
    def waiting(self) -> int:
        """How many prompts have no row yet."""
        return len(self._scheduler.line) + len(self._arrived)

    @property
    def running(self) -> int:
        """How many prompts have a row."""
        return sum(batch.used for batch in self._scheduler.batches)

    @property
    def is_well(self) -> bool:
        """Whether it takes prompts."""
        return self._ending is None and not self._closing

    def close(self, *, wait: bool = True) -> None:
        """Take no more prompts; end after those that were taken, or (`wait=False`) at once."""
        with self._lock:
            self._closing = True
            if not wait:
                self._given_up.update(self._answers)
        self._inbox.put(None)
        self._thread.join()
        self.runtime.close(wait=wait)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(wait=kind is None)

    def _give_up(self, answer: Generation) -> None:
        with self._lock:
            self._given_up.add(answer.number)
        self._inbox.put(None)

    # --- the engine's thread ----------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except BaseException as problem:
            self._end_all(problem)

    def _turn(self) -> bool:
        """One event, and all that follows from it; False at the end."""
        with self._lock:
            arrived, self._arrived = self._arrived, []
        for answer in arrived:
            self._scheduler.add(answer.job)
        self._drop_late()
        self._begin_steps()
        with self._lock:
            if self._closing and not self._answers and not self._under_way:
                return False
        try:
            event = self._inbox.get(timeout=self._patience_s())
        except queue.Empty:
            return True
        if event is not None:
            event()
        return True

    def _patience_s(self) -> float | None:
        """Until the next deadline."""
        ends = [
            answer.came_ns / 1e9 + answer.wish.deadline_s
            for answer in tuple(self._answers.values())
            if answer.wish.deadline_s is not None
        ]
        if not ends:
            return None
        return min(max(min(ends) - time.monotonic_ns() / 1e9, 0.001), _LONGEST_WAIT_S)

    def _drop_late(self) -> None:
        """Answers that are given up, or late; those in a step that is under way at its end."""
        with self._lock:
            given_up = set(self._given_up)
        now = time.monotonic_ns()
        for answer in list(self._answers.values()):
            is_given_up = answer.number in given_up
            if not is_given_up and not answer.is_late(now):
                continue
            if answer.job.batch >= 0 and answer.job.batch in self._under_way:
                continue
            self._finish(answer, "cancelled" if is_given_up else "deadline")

    def _begin_steps(self) -> None:
        self._scheduler.admit()
        for batch in self._scheduler.batches:
            if batch.number in self._under_way:
                continue
            work = self._scheduler.take(batch.number)
            if work is not None:
                self._begin(batch, work)

    def _begin(self, batch: Batch, work: StepWork) -> None:
        step = self.model.of_trace(work.size.trace)
        jobs = [(job, 1) for job in batch.decoding.values()] if work.is_decode else work.chunks
        given, answers = [], []
        for job, count in jobs:
            answer = self._answers[job.number]
            position = batch.position(job)
            if answer.is_fresh and self.model.resets:
                self.runtime.reset_states(batch.number, rows=job.row)
            answer.is_fresh = False
            given.append(row_input(answer, position, count, step.has("uniform")))
            answers.append((answer, position, count))
        used = {job.row: job for job in (*batch.filling, *batch.decoding.values())}

        def position_of(row: int) -> int:
            return batch.position(used[row]) if row in used else 0

        arrays, seats = step_inputs(self.model, step, given, position_of)
        taking = [(a, p + c, s) for (a, p, c), s in zip(answers, seats, strict=True)]
        self._under_way[batch.number] = work, taking
        try:
            handle = self.runtime.submit(arrays, sequence=batch.number, trace=work.size.trace)
        except TesseraError as problem:
            self._ended(self.restarts, batch.number, None, problem)
            return
        handle.add_done_callback(partial(self._hear, self.restarts, batch.number))

    def _hear(self, started: int, batch: int, handle: RequestHandle[Result]) -> None:
        """In the thread of the runtime that collects."""
        try:
            self._ended(started, batch, handle.result(), None)
        except BaseException as problem:
            self._ended(started, batch, None, problem)

    def _ended(
        self, started: int, batch: int, result: Result | None, problem: BaseException | None
    ) -> None:
        self._inbox.put(partial(self._end_step, started, batch, result, problem))

    def _end_step(
        self, started: int, number: int, result: Result | None, problem: BaseException | None
    ) -> None:
        if started != self.restarts:
            return  # of a runtime that has been given up
        if result is None:
            self._recover(number, problem)
            return
        work, taking = self._under_way.pop(number)
        self.restarts_in_row = 0
        step = self.model.of_trace(work.size.trace)
        self.steps_done[step.name] += 1
        self._scheduler.done(work)
        gives = [
            (answer, seat, reached)
            for answer, reached, seat in taking
            if reached >= len(answer.prompt) + len(answer.tokens)
        ]
        if work.is_decode or self.sizes.first_from_prefill:
            tokens = read_tokens(step, work, result, [(a, seat) for a, seat, _ in gives])
            for (answer, _, _), token in zip(gives, tokens, strict=True):
                self.tokens_given += 1
                how = answer.add(token, self.model.end)
                if how:
                    self._finish(answer, how)
                answer.tell()

    def _finish(self, answer: Generation, how: str, problem: BaseException | None = None) -> None:
        self._scheduler.end(answer.job)
        with self._lock:
            self._answers.pop(answer.number, None)
            self._given_up.discard(answer.number)
        answer.end(how, problem)
        answer.tell()
        if self._on_end is not None:
            self._on_end(answer)

    # --- faults -----------------------------------------------------------------------------------

    restarts_in_row = 0

    def _recover(self, number: int, problem: BaseException | None) -> None:
        """End the answers of the batch that faulted; start again, and compute other states."""
        fault = problem if isinstance(problem, ServiceFault) else None
        if fault is None or self.restarts_in_row >= _MOST_RESTARTS:
            raise problem or _closed()
        self.restarts += 1
        self.restarts_in_row += 1
        _, taking = self._under_way[number]
        ended = [answer for answer, _, _ in taking]
        kept = [answer for answer in self._answers.values() if answer not in ended]
        self.runtime.close(wait=False)
        self._under_way.clear()
        burst = self._scheduler.burst
        self._scheduler = Scheduler(self.sizes, burst=burst)
        for answer in ended:
            answer.job.batch = -1
            self._finish(answer, "fault", fault)
        self.runtime = self._start()
        arrived = set(self._arrived)
        for answer in (answer for answer in kept if answer not in arrived):
            answer.job = self._job_again(answer)
            answer.is_fresh = True
            self._scheduler.add(answer.job)

    @staticmethod
    def _job_again(answer: Generation) -> Job:
        """What is left of an answer, with the tokens that have come as part of the prompt."""
        have = len(answer.prompt) + len(answer.tokens)
        return Job(answer.number, have, answer.wish.most - len(answer.tokens))

    def _end_all(self, problem: BaseException) -> None:
        with self._lock:
            self._ending = problem
            answers = list(self._answers.values())
            self._answers.clear()
        for answer in answers:
            answer.end("fault", problem)
            answer.tell()


def _closed() -> TesseraError:
    return TesseraError(error("TSR5050", "the engine has been closed"))
