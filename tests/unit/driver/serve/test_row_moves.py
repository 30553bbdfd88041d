"""Hand-overs in the scheduler: random runs against a model of rows, and mutants."""

from __future__ import annotations

import inspect
import random
import types
from dataclasses import replace
from typing import Any

import pytest

from tessera.driver.serve import scheduler as scheduler_module
from tessera.driver.serve.follow import Following, Wanted
from tessera.driver.serve.jobs import Job
from tessera.driver.serve.policies import LATENCY, THROUGHPUT
from tessera.driver.serve.scheduler import Scheduler
from tests.helpers.row_model import ROLES, RowModel, role_sizes
from tests.unit.driver.serve.test_scheduler import FixedClock

SEEDS = range(12)


def random_run(kind: Any, seed: int, roles: str) -> RowModel:
    sizes = role_sizes(roles, blocks=14 if seed % 2 else 0, first=seed % 3 == 0)
    model = RowModel(kind(sizes, burst=1 + seed % 2), seed, deaths=seed % 4 != 1)
    model.run()
    return model


@pytest.mark.parametrize("roles", ROLES)
def test_rows_hold_what_their_jobs_say_whatever_happens(roles: str) -> None:
    runs = [random_run(Scheduler, seed, roles) for seed in SEEDS]
    assert all(run.ended == run.jobs for run in runs)
    moved = sum(run.hand_overs for run in runs)
    assert (moved == 0) == (roles == "alike")


def test_a_batch_hands_over_what_it_reads_more_than_it_answers() -> None:
    scheduler = Scheduler(role_sizes("both-mixed"))
    moved = 0
    for number in range(60):
        scheduler.add(Job(number, 9, 1))
        (batch,) = [own for own in scheduler.batches if own.filling]
        while batch.filling:
            work = scheduler.take(batch.number)
            assert work is not None
            scheduler.done(work)
        scheduler.hand_over()
        for (move,) in scheduler.turns.begin():
            moved += 1
            assert (move.source, move.target) == (0, 1)
            assert scheduler.moved(move, arrived=True)
        for own in scheduler.batches:
            for job in [*own.joining]:
                scheduler.end(job)
    assert moved == 40  # of 60 prompts read there: 0.9 are read and 0.3 answered


def test_a_job_that_waits_for_a_row_gets_it_before_prompts_in_line() -> None:
    """One batch only reads, the other does both: prompts must not take its rows for ever."""
    scheduler = Scheduler(role_sizes("one-mixed"))
    model = RowModel(scheduler, 3, jobs=600, deaths=False)
    model.run(200_000)
    assert model.hand_overs > 100
    assert model.longest_wait < 600


# --- simulation -----------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [False, True])
def test_a_hand_over_takes_its_time_between_prompt_and_answer(first: bool) -> None:
    prices: list[tuple[int, int, int]] = []

    def price(source: int, target: int, tokens: int) -> tuple[int, float]:
        prices.append((source, target, tokens))
        return 100 * tokens, 50.0

    sizes = role_sizes("apart", first=first)
    following = Following(sizes, FixedClock(), move_price=price)
    (served,) = following.run([Wanted(5.0, 9, 3)]).requests
    read = 9 if first else 8
    chunks = 2 if first else 1
    assert prices == [(0, 1, read)]
    assert (served.hand_overs, served.handed_bytes, served.handed_ns) == (1, 100 * read, 50.0)
    assert served.first_ns == 5 + chunks * 100 + (0 if first else 50 + 10)
    assert served.held_ns == (0 if first else 50)  # what the hand-over adds to TTFT
    assert served.ended_ns == 5 + chunks * 100 + 50 + 10 * (2 if first else 3)


@pytest.mark.parametrize("roles", ROLES)
def test_everything_is_followed_to_its_end(roles: str) -> None:
    draw = random.Random(4)
    wanted = [
        Wanted(number * 40.0, draw.randint(1, 30), draw.randint(1, 30)) for number in range(200)
    ]
    sizes = role_sizes(roles, blocks=20)
    following = Following(sizes, FixedClock(), move_price=lambda *_: (8, draw.random() * 50))
    result = following.run(wanted)
    assert all(served.ended == "length" for served in result.requests)
    assert all(s.came_ns <= s.first_ns <= s.ended_ns for s in result.requests)
    assert any(served.hand_overs for served in result.requests) == (roles != "alike")
    assert not following.scheduler.turns.moves
    for batch in following.scheduler.batches:
        assert (batch.used, batch.cache.room) == (0, 20)


class SwitchBack:
    """For throughput at first, for latency after 200 ns."""

    def __init__(self) -> None:
        self.switches: list[tuple[float, str]] = []
        self.pace = 1.0

    def come(self, now_ns: float, prompt: int, answer: int) -> None: ...

    def end(self, answer: int) -> None: ...

    def choose(self, now_ns: float, waiting: int, unfilled: int = 0) -> str:
        return THROUGHPUT if now_ns < 200 else LATENCY


def test_answers_follow_a_switch_where_it_pays() -> None:
    """A batch of each policy: after a switch back, the rest of a long answer is handed over."""
    sizes = replace(
        role_sizes("alike"), serves=(), policies=((THROUGHPUT,), (LATENCY,)), shares=(1.0, 1.0)
    )

    def ended(pays: bool) -> tuple[float, int]:
        clock = FixedClock({0: 40.0, 1: 10.0})
        following = Following(
            sizes,
            clock,
            policy=SwitchBack(),
            move_price=lambda *_: (8, 30.0),
            pays=lambda *_: pays,
        )
        served = following.run([Wanted(0.0, 1, 50), Wanted(300.0, 1, 2)]).requests
        assert all(own.ended == "length" for own in served)
        return served[0].ended_ns, served[0].hand_overs

    assert ended(False) == (50 * 40, 0)
    moved_ns, count = ended(True)
    assert count == 1
    assert moved_ns < 320 + 30 + 50 * 10 + 20


MUTANTS = {
    "rows are freed before the move has ended": (
        "            if not job.move.is_begun:\n                self.moved",
        "            if True:\n                self.moved",
    ),
    "a lost target is freed again": (
        "            move.target_is_lost = True\n",
        "            pass\n",
    ),
    "a lost source is freed again": (
        "                job.move.source_is_lost = True\n",
        "                pass\n",
    ),
    "the row of a failed move is kept": (
        "                heapq.heappush(target.free_rows, move.row)\n",
        "",
    ),
    "the row that a job leaves is kept": (
        "            source.free(job, job.prefilled)\n",
        "",
    ),
    "the row of a dropped job is kept": ("(is_here or job.dropped)", "is_here"),
    "a failed move is believed": ("is_here = arrived and not", "is_here = not"),
    "no room is asked for": (
        "            and batch.cache.room >= self._blocks(batch, job)\n        ]\n",
        "        ]\n",
    ),
    "blocks are not reserved": ("target.cache.take(self._blocks(target, job))", "()"),
    "prompts are read anywhere": (
        "(batch.fills if job.to_prefill else batch.decodes) > 0",
        "True",
    ),
    "answers are given anywhere": (
        "            if batch.owed < 1 - _ROUNDED:",
        "        if True:\n            if True:",
    ),
    "a failed move is forgotten": (
        "            self.parked.appendleft(job)\n",
        "            pass\n",
    ),
    "a job has another row at once": (
        "        target.reserved[move.row] = move\n",
        "        target.reserved[move.row] = move\n        job.row = move.row\n",
    ),
    "lost jobs that wait are forgotten": (", *old.leaving.values())\n", ")\n"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_scheduler_with_a_mistake_is_caught(name: str) -> None:
    before, after = MUTANTS[name]
    source = inspect.getsource(scheduler_module)
    assert before in source
    mutant = types.ModuleType("mutant")
    exec(compile(source.replace(before, after), "mutant", "exec"), mutant.__dict__)
    with pytest.raises((AssertionError, LookupError, ValueError)):
        _run_all(mutant.Scheduler)


def _run_all(kind: Any) -> None:
    for seed in SEEDS:
        for roles in ROLES:
            random_run(kind, seed, roles)
