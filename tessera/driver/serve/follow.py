"""Arrivals followed step by step: requests for text, the scheduler, and a clock for ends of steps.

In: arrivals, the sizes of a model's steps, a `StepClock`. Out: a `Served` per request, and the
number of waiting requests over time. The scheduler is the engine's: only the tokens are missing,
and time is simulated. Following a step costs the same work however many rows it has, because the
steps at which a row has its first and last token are known beforehand.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import inf

from tessera.driver.serve.batches import Batch, Sizes, StepWork
from tessera.driver.serve.jobs import Job, RowMove
from tessera.driver.serve.measures import AnswerEnd, Served
from tessera.driver.serve.policies import AdmissionPolicy
from tessera.driver.serve.scheduler import Scheduler
from tessera.driver.serve.step_clocks import StepClock
from tessera.driver.serve.step_pace import StepPace
from tessera.ir.arrivals import PIECE

OnCount = Callable[[int, int], None]
MovePrice = Callable[[int, int, int], tuple[int, float]]
"""Bytes and nanoseconds of a hand-over from one batch to another, by the number of tokens."""
Pays = Callable[[Job, Batch, Batch], bool]
"""Whether it pays to hand an answer under way over from one batch to another."""
_TELL_EVERY = 5_000
MOST_WAITING = 100_000
"""Most requests in line; requests that arrive at a full line are refused."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """An arriving request: its time, the tokens of its prompt, and those of its answer.

    `pieces` stand for the tokens of the prompt, `piece` in each: two prompts that begin with the
    same pieces begin with the same tokens.
    """

    at_ns: float
    prompt: int
    answer: int
    pieces: tuple[int, ...] = ()
    piece: int = PIECE

    def content(self, start: int, stop: int) -> Hashable | None:
        """What stands for some tokens of the prompt; None if no other prompt has them."""
        if stop > min(self.prompt, len(self.pieces) * self.piece):
            return None
        return start % self.piece, self.pieces[start // self.piece : -(-stop // self.piece)]


def refusals(sizes: Sizes, wanted: Sequence[Wanted]) -> tuple[str, ...]:
    """The report's note on requests that no plan of these sizes can answer."""
    count = sum(not sizes.holds(request.prompt, request.answer) for request in wanted)
    if not count:
        return ()
    room = f"a context of {sizes.context} tokens"
    if sizes.blocks:
        room += f" and {sizes.blocks} blocks of {sizes.block} tokens"
    return (f"{count} of {len(wanted)} requests were refused: they do not fit {room}",)


def crowding(followed: FollowedText) -> tuple[str, ...]:
    """The report's note on requests that arrived at a full line."""
    if not followed.crowded:
        return ()
    return (
        f"{followed.crowded} of {len(followed.requests)} requests were refused: {MOST_WAITING} were"
        " waiting when they came, the most that are simulated; the figures are of the others",
    )


@dataclass(slots=True, kw_only=True)
class FollowedText:
    """The result of a simulation."""

    requests: list[Served]
    waiting: list[tuple[float, int]]
    steps: dict[int, int]
    ended_ns: float = 0.0
    crowded: int = 0
    reused: int = 0
    preempted: int = 0


class Following:
    """One simulation under way."""

    def __init__(
        self,
        sizes: Sizes,
        clock: StepClock,
        *,
        burst: int = 1,
        pace: StepPace | None = None,
        reuse: bool = True,
        policy: AdmissionPolicy | None = None,
        move_price: MovePrice | None = None,
        pays: Pays | None = None,
    ) -> None:
        """With several policies in `sizes`, `policy` chooses which one admits requests.

        `move_price` says what hand-overs take (nothing, if it is not given), `pays` which answers
        are handed over after a switch.
        """
        self.sizes = sizes
        self.clock = clock
        self.policy = policy
        self.scheduler = Scheduler(sizes, burst=burst, pace=pace, reuse=reuse, numbers_blocks=False)
        self.result = FollowedText(requests=[], waiting=[], steps={})
        self._move_price = move_price or (lambda *_: (0, 0.0))
        self._pays = pays
        self._moving: list[tuple[float, int, Sequence[tuple[RowMove, int]]]] = []
        self._left_ns: dict[int, float] = {}
        self._idle = set(range(sizes.batches))
        self._marks: list[list[tuple[int, int, int, Job]]] = [[] for _ in range(sizes.batches)]
        self._now = 0.0

    def run(self, wanted: Iterable[Wanted], on_count: OnCount | None = None) -> FollowedText:
        """Follow requests to the end of the last one."""
        total = len(wanted) if isinstance(wanted, list) else 0
        for number, request in enumerate(wanted):
            self.until(request.at_ns)
            self.come(number, request)
            if on_count is not None and number % _TELL_EVERY == 0:
                on_count(number, total)
        self.until(inf)
        self.result.ended_ns = self._now
        self.result.reused = self.scheduler.reused
        self.result.preempted = self.scheduler.preempted
        return self.result

    def until(self, until_ns: float) -> None:
        """Follow what happens up to a time."""
        while True:
            moved_ns = self._moving[0][0] if self._moving else inf
            at_ns, batches = self.clock.ended(min(until_ns, moved_ns))
            if batches:
                self._now = at_ns
                for batch in batches:
                    self._end_step(batch)
            elif self._moving and moved_ns <= until_ns:
                self._now = moved_ns
                self._end_moves(heapq.heappop(self._moving)[2])
            else:
                break
            self._begin_steps()
        if until_ns < inf:
            self._now = until_ns

    def come(self, number: int, request: Wanted) -> None:
        """A request comes now; requests are numbered from 0 on, in order."""
        served = Served(request.at_ns, request.prompt, request.answer)
        self.result.requests.append(served)
        is_crowded = len(self.scheduler.line) >= MOST_WAITING
        if is_crowded or not self.sizes.holds(request.prompt, request.answer):
            served.ended, served.ended_ns = AnswerEnd.REFUSED, request.at_ns
            self.result.crowded += is_crowded
            return
        if self.policy is not None:
            self.policy.come(self._now, request.prompt, request.answer)
            self._choose()
        content = request.content if request.pieces else None
        self._seat(self.scheduler.add(Job(number, request.prompt, request.answer, content)))
        if self.policy is not None and self.scheduler.line:
            self._choose()
            self._seat(self.scheduler.admit())
        self._begin_steps()

    def _choose(self) -> None:
        if self.policy is not None:
            scheduler = self.scheduler
            scheduler.policy = self.policy.choose(
                self._now, len(scheduler.line), scheduler.unfilled
            )

    def _seat(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            served = self.result.requests[job.number]
            served.seated_ns, served.policy = self._now, job.policy

    def _begin_moves(self) -> None:
        """Let hand-overs begin whose turn it is."""
        scheduler = self.scheduler
        for job in scheduler.parked:
            self._left_ns.setdefault(job.number, self._now)
        if scheduler.parked:
            scheduler.hand_over()
        if self._pays is not None:
            scheduler.shift(self._pays)
        for moves in scheduler.turns.begin():
            prices = [self._move_price(m.source, m.target, m.tokens) for m in moves]
            ends_ns = self._now + sum(ns for _, ns in prices)
            sizes = [(move, size) for move, (size, _) in zip(moves, prices, strict=True)]
            for move in moves:
                self._left_ns.setdefault(move.job.number, self._now)
            heapq.heappush(self._moving, (ends_ns, moves[0].job.number, sizes))

    def _end_moves(self, moves: Sequence[tuple[RowMove, int]]) -> None:
        for move, size in moves:
            self.scheduler.moved(move, arrived=True)
            served = self.result.requests[move.job.number]
            spent_ns = self._now - self._left_ns.pop(move.job.number)
            served.hand_overs += 1
            served.handed_bytes += size
            served.handed_ns += spent_ns
            served.held_ns += spent_ns if served.first_ns < 0 else 0.0
            served.policy = move.policy
        self._seat(self.scheduler.admit())

    def _begin_steps(self) -> None:
        """Let every free batch take its next step before time goes on."""
        if self.scheduler.parked or self.scheduler.turns.moves or self._pays is not None:
            self._begin_moves()
        for batch in sorted(self._idle) if len(self._idle) > 1 else tuple(self._idle):
            own = self.scheduler.batches[batch]
            joining = list(own.joining) if own.joining else ()
            work = self.scheduler.take(batch)
            for job in joining if not own.joining else ():
                if job.batch == batch:  # else it went back in line
                    self._mark(job)
            if work is None:
                continue
            self._idle.discard(batch)
            steps = self.result.steps
            steps[work.trace] = steps.get(work.trace, 0) + 1
            self.clock.begin(work, self._now)
            for job, _ in work.chunks:
                self._first_step(job)
        waiting = self.result.waiting
        if not waiting or waiting[-1][1] != len(self.scheduler.line):
            waiting.append((self._now, len(self.scheduler.line)))

    def _mark(self, job: Job) -> None:
        """Note the decode steps of its batch at which a job has its first and last token."""
        self._first_step(job)
        marks = self._marks[job.batch]
        first = job.joined + job.prompt - job.base
        last = job.joined + job.prompt + job.answer - 1 - job.base
        if first > job.joined:
            heapq.heappush(marks, (first, job.number, job.joined, job))
        if last > first or first == job.joined:
            heapq.heappush(marks, (last, job.number, job.joined, job))

    def _first_step(self, job: Job) -> None:
        served = self.result.requests[job.number]
        if served.begun_ns < 0:
            served.begun_ns = self._now

    def _end_step(self, batch: int) -> None:
        own = self.scheduler.batches[batch]
        work = own.at_work
        assert work is not None
        self.scheduler.done(work)
        self._idle.add(batch)
        if work.answers:
            marks = self._marks[batch]
            while marks and marks[0][0] <= own.steps:
                _, _, joined, job = heapq.heappop(marks)
                if (job.batch, job.joined) == (batch, joined):  # else it was handed over
                    self._reach(job, own.steps)
        if work.chunks and self.sizes.first_from_prefill:
            self._first_tokens(work)
        self._choose()
        if self.scheduler.parked:
            self._begin_moves()
        self._seat(self.scheduler.admit())

    def _first_tokens(self, work: StepWork) -> None:
        for job, _ in work.chunks:
            if job.prefilled < job.to_prefill:
                continue
            served = self.result.requests[job.number]
            served.first_ns = self._now if served.first_ns < 0 else served.first_ns
            if job.answer == 1:
                self._finish(job)

    def _reach(self, job: Job, steps: int) -> None:
        served = self.result.requests[job.number]
        if served.first_ns < 0:
            served.first_ns = self._now
        if steps >= job.joined + job.prompt + job.answer - 1 - job.base:
            self._finish(job)

    def _finish(self, job: Job) -> None:
        served = self.result.requests[job.number]
        served.ended, served.ended_ns = AnswerEnd.LENGTH, self._now
        self.scheduler.end(job)
        if self.policy is not None:
            self.policy.end(served.answer)
