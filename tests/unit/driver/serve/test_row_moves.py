"""Hand-overs in the scheduler: random runs against a model of rows, and mutants."""

from __future__ import annotations

import inspect
import types
from typing import Any

import pytest

from tessera.driver.serve import scheduler as scheduler_module
from tessera.driver.serve.batches import Job
from tessera.driver.serve.scheduler import Scheduler
from tests.helpers.row_model import ROLES, RowModel, role_sizes

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
        for move in scheduler.hand_over():
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


MUTANTS = {
    "rows are freed before the move has ended": (
        "        if job.move is not None:\n            return\n",
        "",
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
        "            if not is_here:\n                target.free(move.row, move.blocks)\n",
        "",
    ),
    "the row that a job leaves is kept": (
        "            source.free(job.row, job.blocks)\n            job.batch",
        "            job.batch",
    ),
    "the row of a dropped job is kept": ("(is_here or job.dropped)", "is_here"),
    "a failed move is believed": ("is_here = arrived and not", "is_here = not"),
    "no room is asked for": ("            and self._has_room(batch, job)\n        ]", "        ]"),
    "blocks are not reserved": ("target.take_blocks(self._blocks(target, job))", "()"),
    "prompts are read anywhere": (
        "(batch.fills if job.to_prefill else batch.decodes) > 0",
        "True",
    ),
    "answers are given anywhere": (
        "            if batch.owed < 1 - _ROUNDED:",
        "        if True:\n            if True:",
    ),
    "a failed move is forgotten": (
        "        elif not move.source_is_lost:\n            self._stay(job, source)\n",
        "",
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
