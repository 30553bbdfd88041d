"""A scheduler driven at random, beside a model of what every row holds: a broken rule fails.

Steps, hand-overs, cancellations and lost batches happen in any order. A row holds the tokens of one
job: a step or a hand-over that meets other contents is wrong. After every event, rows and blocks
are counted, and each job has one owner.
"""

from __future__ import annotations

import random
from typing import Any

from tessera.driver.serve.batches import Sizes, StepSize
from tessera.driver.serve.jobs import Job, RowMove

PREFILL = StepSize(trace=0, rows=2, tokens=8, context=64)
DECODE = StepSize(trace=1, rows=4, tokens=1, context=64)
ROLES: dict[str, tuple[tuple[float, ...], ...]] = {
    "apart": ((1.0, 0.0), (0.0, 1.0)),
    "two-and-one": ((0.5, 0.0), (0.5, 0.0), (0.0, 1.0)),
    "one-mixed": ((0.7, 0.0), (0.3, 1.0)),
    "both-mixed": ((0.9, 0.3), (0.1, 0.7)),
    "alike": ((0.5, 0.5), (0.5, 0.5)),
}


def role_sizes(name: str, *, blocks: int = 0, first: bool = False) -> Sizes:
    serves = ROLES[name]
    return Sizes(
        steps=(PREFILL, DECODE),
        batches=len(serves),
        rows=4,
        context=64,
        first_from_prefill=first,
        blocks=blocks,
        block=8 if blocks else 0,
        serves=serves,
    )


class RowModel:
    """Jobs of random lengths go through a scheduler until all have ended."""

    def __init__(self, scheduler: Any, seed: int, *, jobs: int = 40, deaths: bool = True) -> None:
        self.scheduler = scheduler
        self.draw = random.Random(seed)
        self.jobs = jobs
        self.deaths = deaths
        self.alive: dict[int, Job] = {}
        self.cells: dict[tuple[int, int], tuple[int, int]] = {}
        self.under_way: dict[int, tuple[Any, list[Job]]] = {}
        self.moves: list[tuple[RowMove, tuple[int, int]]] = []
        self.born = 0
        self.hand_overs = 0
        self.ended = 0
        self.longest_wait = 0
        self._parked: dict[int, int] = {}

    def run(self, limit: int = 20_000) -> None:
        for _ in range(limit):
            self._event()
            self.check()
            if self.born == self.jobs and not self.alive and not self.moves:
                break
        else:
            raise AssertionError("jobs do not come to their end")
        for batch in self.scheduler.batches:
            assert not batch.used
            assert sorted(batch.free_rows) == list(range(self.scheduler.sizes.rows))
            assert batch.cache.room == self.scheduler.sizes.blocks

    # --- events -----------------------------------------------------------------------------------

    def _event(self) -> None:
        roll = self.draw.random()
        if roll < 0.25 and self.born < self.jobs:
            job = Job(self.born, self.draw.randint(1, 24), self.draw.randint(1, 20))
            self.born += 1
            self.alive[job.number] = job
            self.scheduler.line.append(job)
        elif roll < 0.30 and self.alive:
            self._cancel()
        elif roll < 0.33 and self.deaths:
            self._die()
        elif roll < 0.50 and self.moves:
            move, held = self.moves.pop(self.draw.randrange(len(self.moves)))
            self._end_move(move, held, arrived=self.draw.random() < 0.8)
        elif roll < 0.75 and self.under_way:
            self._end_step(self.draw.choice(list(self.under_way)))
        for batch in self.scheduler.batches:
            if not batch.is_open and self.draw.random() < 0.2:
                batch.is_open = not batch.retires
        self.scheduler.hand_over()
        for moves in self.scheduler.turns.begin():
            for move in moves:
                self._begin_move(move)
        for job in self.scheduler.admit():
            self.cells[job.batch, job.row] = job.number, 0
        for batch in self.scheduler.batches:
            if batch.number not in self.under_way and self.draw.random() < 0.7:
                self._begin_step(batch)

    def _begin_move(self, move: RowMove) -> None:
        self.hand_overs += 1
        job = move.job
        assert not {move.source, move.target} & self.under_way.keys(), "a step is under way"
        held = self.cells[move.source, job.row]
        assert held == (job.number, move.tokens), "the row holds something else"
        assert move.source == job.batch != move.target
        self.moves.append((move, held))

    def _end_move(self, move: RowMove, held: tuple[int, int], *, arrived: bool) -> None:
        if arrived and not move.target_is_lost:
            self.cells[move.target, move.row] = held
        was_alive = not (move.job.dropped or move.source_is_lost or move.target_is_lost)
        if move.source_is_lost or move.target_is_lost:
            arrived = False
        assert self.scheduler.moved(move, arrived=arrived) == (arrived and was_alive)

    def _begin_step(self, batch: Any) -> None:
        work = self.scheduler.take(batch.number)
        if work is None:
            return
        own = self.scheduler.sizes.serves
        assert not own or own[batch.number][work.size.trace] > 0, "it does not serve this step"
        jobs = list(batch.decoding.values()) if work.answers else [j for j, _ in work.chunks]
        for job in jobs:
            held = self.cells[batch.number, job.row]
            assert held == (job.number, batch.position(job)), "the row holds something else"
        moving = {n for move, _ in self.moves for n in (move.source, move.target)}
        assert batch.number not in moving, "a hand-over is under way"
        self.under_way[batch.number] = work, jobs

    def _end_step(self, number: int) -> None:
        work, jobs = self.under_way.pop(number)
        batch = self.scheduler.batches[number]
        counts = {job.number: count for job, count in work.chunks}
        for job in jobs:
            had = batch.position(job)
            self.cells[number, job.row] = job.number, had + counts.get(job.number, 1)
        self.scheduler.done(work)
        for job in jobs:
            if batch.position(job) >= job.prompt + job.answer - 1:
                self._finish(job)

    def _finish(self, job: Job) -> None:
        self.scheduler.end(job)
        del self.alive[job.number]
        self.ended += 1

    def _cancel(self) -> None:
        job = self.draw.choice(list(self.alive.values()))
        if job.batch not in self.under_way:
            self._finish(job)

    def _die(self) -> None:
        """A batch loses its states: its jobs start again, and no other job is touched."""
        number = self.draw.randrange(len(self.scheduler.batches))
        self.under_way.pop(number, None)
        others = {n: (j.batch, j.row) for n, j in self.alive.items() if j.batch != number}
        lost = self.scheduler.clear(number)
        for cell in [cell for cell in self.cells if cell[0] == number]:
            self.cells[cell] = -1, -1
        for job in sorted(lost, key=lambda own: own.number, reverse=True):
            assert self.alive[job.number] is job
            again = Job(job.number, job.prompt, job.answer)
            self.alive[job.number] = again
            self.scheduler.line.appendleft(again)
        assert {n: (self.alive[n].batch, self.alive[n].row) for n in others} == others

    # --- rules ------------------------------------------------------------------------------------

    def check(self) -> None:
        scheduler = self.scheduler
        owners: dict[int, int] = {}
        for batch in scheduler.batches:
            held = [*batch.filling, *batch.joining, *batch.decoding.values()]
            held += batch.leaving.values()
            rows = [job.row for job in held] + list(batch.reserved)
            assert len(rows) == len(set(rows)) == batch.used, "a row has two jobs"
            assert sorted([*rows, *batch.free_rows]) == list(range(scheduler.sizes.rows))
            blocks = [block for job in held for block in job.blocks]
            blocks += [block for move in batch.reserved.values() for block in move.blocks]
            assert len(blocks) == len(set(blocks)) == scheduler.sizes.blocks - batch.cache.room
            for job in held:
                assert job.batch == batch.number
                if not job.dropped:
                    assert job.number not in owners, "a job has two owners"
                    owners[job.number] = batch.number
            for job in [*batch.joining, *batch.decoding.values()]:
                assert batch.decodes, "it waits where nothing is decoded"
                needed = scheduler.sizes.blocks_for(job.prompt, job.answer)
                assert len(job.blocks) == needed, "it has too few blocks"
        for job in scheduler.line:
            assert job.number not in owners
            owners[job.number] = -1
        assert set(owners) == set(self.alive), "a job has no owner"
        waiting = {job.number for job in scheduler.parked}
        self._parked = {n: self._parked.get(n, 0) + 1 for n in waiting}
        self.longest_wait = max(self.longest_wait, *self._parked.values(), 0)
