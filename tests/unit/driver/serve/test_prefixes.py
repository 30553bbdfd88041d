"""Shared prefixes: blocks hold what their jobs believe, whoever computed it, and all jobs end.

A model of memory has, for every place of every block, the owner and all tokens up to it. A job that
reads a place with anything else is wrong, and so is one that reads what the same step writes.
"""

from __future__ import annotations

import inspect
import json
import random
import sys
import types
from dataclasses import replace
from typing import Any

import pytest

import tessera
from tessera.backend.service import EarlierOutput
from tessera.driver.run.runtime import Runtime
from tessera.driver.serve import batches, block_cache, jobs, residents, scheduler
from tessera.driver.serve.engine import Engine
from tessera.driver.serve.follow import Following, Wanted
from tessera.driver.serve.jobs import Job
from tessera.driver.serve.scheduler import Scheduler
from tessera.driver.serve.step_pace import StepPace
from tests.helpers.share import least
from tests.unit.driver.serve.test_mixed import TRACES, sizes_of
from tests.unit.driver.serve.test_scheduler import FixedClock

BLOCK = 4


class Text:
    """A prompt and its answer, in which every token follows from those before it."""

    def __init__(self, number: int, draw: random.Random, rooms: int) -> None:
        self.owner = draw.choice(("", "", "b"))
        prompt = [draw.randrange(2) for _ in range(draw.randint(1, rooms - 1))]
        if draw.random() < 0.7:
            prompt = [1, 0, 1, 1, 0, 0, 1, 0, 1, 0, 0, 0, *prompt][: rooms - 1]
        self.answer = draw.randint(1, rooms - len(prompt))
        self.tokens = tuple(prompt)
        while len(self.tokens) < len(prompt) + self.answer:
            self.tokens += (sum(self.tokens) % 2,)
        self.known = len(prompt)
        self.job = Job(number, len(prompt), self.answer, self.content, self.owner)

    def content(self, start: int, stop: int) -> tuple[int, ...] | None:
        return self.tokens[start:stop] if stop <= self.known else None


def by_number(text: Text) -> int:
    return text.job.number


def run_all(kind: Any) -> None:
    for seed in SEEDS:
        run(seed, kind)


def run(seed: int, kind: Any = Scheduler, *, reuse: bool = True) -> tuple[int, int]:
    """Random jobs through a small cache; returns what was reused and how many were put off."""
    draw = random.Random(seed)
    rows, blocks = draw.randint(1, 5), draw.randint(4, 14)
    sizes = sizes_of((rows, rows + draw.randint(1, 24)), rows, blocks, BLOCK)
    made = kind(sizes, reuse=reuse, pace=draw.choice([None, StepPace(((rows + 3, 1.0),))]))
    (batch,) = made.batches
    texts = [Text(n, draw, blocks * BLOCK) for n in range(25)]
    coming, cells, alive = list(texts), {}, {}
    for _ in range(8000):
        while coming and draw.random() < 0.4:
            text = coming.pop(0)
            alive[text.job.number] = text
            made.line.append(text.job)
        if alive and draw.random() < 0.02:
            made.end(alive.pop(draw.choice(list(alive))).job)
        made.admit()
        first = min(
            (own for own in alive.values() if own.job.batch >= 0), key=by_number, default=None
        )
        work = made.take(0)
        assert first is None or first.job.batch >= 0, "the one that came first went back"
        if work is None:
            if not (coming or alive):
                break
            continue
        jobs = [(job, 1) for job in batch.decoding.values()] + work.chunks
        assert len(jobs) == work.rows <= rows
        written = {}
        for job, count in jobs:
            text, start = alive[job.number], batch.position(job)
            assert start < start + count <= text.known
            for at in range(start + count):
                cell = job.blocks[at // BLOCK], at % BLOCK
                holds = text.owner, text.tokens[: at + 1]
                if at < start:
                    assert cells[cell] == holds, "the block holds something else"
                else:
                    assert written.setdefault(cell, holds) == holds
                    assert written[cell] is holds, "two jobs write the same place"
        assert 0 <= batch.cache.room <= blocks
        shared = {
            (job.blocks[at // BLOCK], at % BLOCK)
            for job, n in jobs
            for at in range(batch.position(job))
        }
        assert not shared & written.keys(), "a place is read in the step that writes it"
        cells |= written
        made.done(work)
        for job, _ in jobs:
            text = alive[job.number]
            held = batch.position(job)
            if held == len(text.tokens) - 1:
                made.end(alive.pop(job.number).job)
            elif held == text.known:
                text.known += 1
    else:
        raise AssertionError("jobs do not come to their end")
    assert batch.cache.room == blocks
    assert sorted(batch.free_rows) == list(range(rows))
    return made.reused, made.preempted


SEEDS = range(150)
MODULES = (jobs, block_cache, batches, scheduler)


def test_blocks_hold_what_their_jobs_believe_and_all_jobs_end() -> None:
    totals = [run(seed) for seed in SEEDS[: least(150, 50)]]
    assert sum(reused for reused, _ in totals) > least(5000, 1500)
    assert sum(count for _, count in totals) > least(100, 30)
    assert all(reused == 0 for reused, _ in (run(seed, reuse=False) for seed in range(20)))


MUTANTS = {
    "owners share": ("else job.owner, tokens)", 'else "", tokens)'),
    "the prefix is not compared": ("(shared[-1] if shared else job.owner, tokens)", "('', tokens)"),
    "the whole prompt is shared": ("* self.block >= job.prompt", "* self.block > job.prompt"),
    "blocks are read while they are written": (
        "own is None or own.turn == self.turn",
        "own is None",
    ),
    "blocks in use are evicted": (
        "            del self._unused[own]\n            self.room",
        "            self.room",
    ),
    "blocks stay with those who left": ("                self.room += 1\n", ""),
    "a block that is not whole is shared": (
        "+ 1) * self.block <= tokens",
        "* self.block) < tokens",
    ),
    "a block that was shared is not given back": (
        "            self.give(job.blocks[at : at + 1])\n",
        "",
    ),
    "an evicted block is still found": (
        "del self._unused[oldest], self._kept[oldest.key]",
        "del self._unused[oldest]",
    ),
    "the one that came first goes back": ("self._preempt(max(", "self._preempt(min("),
    "nobody goes back": ("while not batch.cache.room and job.batch >= 0:", "while False:"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_cache_with_a_mistake_is_caught(name: str) -> None:
    before, after = MUTANTS[name]
    sources = [inspect.getsource(module) for module in MODULES]
    assert sum(source.count(before) for source in sources) in (1, 2)
    mutants = [types.ModuleType(module.__name__) for module in MODULES]
    with pytest.MonkeyPatch.context() as patch:
        for mutant, source in zip(mutants, sources, strict=True):
            patch.setitem(sys.modules, mutant.__name__, mutant)
            exec(compile(source.replace(before, after), "mutant", "exec"), mutant.__dict__)
    with pytest.raises((AssertionError, LookupError, ValueError)):
        run_all(mutants[-1].Scheduler)


# --- the simulation and the engine ---------------------------------------------------------------


def test_the_simulation_shows_what_is_reused() -> None:
    """Two pieces that all prompts begin with: only the first prompt has them computed."""
    sizes = replace(sizes_of((2, 512), 2, blocks=1000, block=16), context=4096)
    wanted = [Wanted(n * 1e3, 1030, 3, (7, 8, 100 + n)) for n in range(4)]
    followed = Following(sizes, FixedClock()).run(wanted)
    assert followed.reused == 3 * 1024
    assert followed.steps == {1: 3 + 3, 0: 4 * 2}
    without = Following(sizes, FixedClock(), reuse=False).run(wanted)
    assert (without.reused, without.steps) == (0, {1: 4 * 3, 0: 4 * 2})
    apart = [replace(own, pieces=(n, *own.pieces)) for n, own in enumerate(wanted)]
    assert Following(sizes, FixedClock()).run(apart).reused == 0
    # All at once: those that need what another computes in a step wait for the next one.
    at_once = Following(sizes, FixedClock()).run([replace(own, at_ns=0.0) for own in wanted])
    assert at_once.reused == 3 * 1024


class ChainedRuntime(Runtime):
    """A runtime whose steps may take tokens of the step before; here the host passes them on."""

    def prepare_chain(self, trace: int, inputs: tuple[str, ...]) -> bool:
        self.before: Any = None
        return True

    def submit(self, inputs: Any, **more: Any) -> Any:
        taken = {
            name: self.before.result()[own.name] if isinstance(own, EarlierOutput) else own
            for name, own in inputs.items()
        }
        self.before = super().submit(taken, **more)
        return self.before


def test_tokens_are_those_of_generate_with_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that draw, handed over ahead, in a cache that is too small, with shared prefixes."""
    options = tessera.PlanOptions(gpus="l40s", strategy="single", slots=1, sequences=1)
    plan = tessera.plan([f"{TRACES}/mixed_drawing_8.ptx"], options).plan
    whole = residents.engine_sizes
    few = "tessera.driver.serve.engine.engine_sizes"
    monkeypatch.setattr(few, lambda *given: replace(whole(*given), blocks=8))
    monkeypatch.setattr("tessera.driver.serve.engine.Runtime", ChainedRuntime)
    cases = json.loads((TRACES / "mixed_generated.json").read_text("utf-8"))
    wanted = [[token for token in case["answer"] if token != 2] for case in cases]
    drawn = []
    with Engine(
        plan, backend="cpu", weights=TRACES / "mixed_model", steps={"end": [2]}, isolated=False
    ) as engine:
        assert engine.model.vocabulary == 64
        for some in (len(cases), 2):
            long = {"temperature": 0.7, "max_tokens": 12, "ignore_end": True}
            warm = [engine.submit([5, 6, 7, 8, 9, n], **long, seed=n) for n in (5, 15, 25)]
            given = [engine.submit(c["prompt"], max_tokens=len(c["answer"])) for c in cases[:some]]
            assert [answer.result(300) for answer in given] == wanted[:some]
            drawn.append([answer.result(300) for answer in warm])
        assert drawn[0] == drawn[1]
        assert engine.reused_tokens > 0
        assert engine.preempted > 0
        assert engine.blocks == (0, 8)
        assert engine.steps_ahead > sum(engine.steps_done.values()) / 2
