"""The scheduler: how many steps a request takes, who is in a batch, and what is followed of it."""

from __future__ import annotations

import heapq
import random
import tracemalloc
from dataclasses import replace
from math import ceil

import pytest

from tessera.driver.serve.batches import Sizes, StepSize, StepWork
from tessera.driver.serve.follow import Following, Wanted, crowding
from tessera.driver.serve.jobs import Job
from tessera.driver.serve.measures import AnswerEnd, Served, ServingReport, Slo, queue_windows
from tessera.driver.serve.scheduler import Scheduler
from tessera.driver.serve.step_clocks import interpolated

DECODE = StepSize(trace=1, rows=4, tokens=1, context=64)
PREFILL = StepSize(trace=0, rows=1, tokens=8, context=64)
SIZES = Sizes(steps=(PREFILL, DECODE), batches=1, rows=4, context=64)


class FixedClock:
    """Every prefill step takes 100 ns, every decode step 10, or what its batch takes."""

    def __init__(self, decode_ns: dict[int, float] | None = None) -> None:
        self.decode_ns = decode_ns or {}
        self.events: list[tuple[float, int]] = []
        self.most_rows = 0

    def begin(self, work: StepWork, now_ns: float) -> None:
        self.most_rows = max(self.most_rows, work.rows)
        decode_ns = self.decode_ns.get(work.batch, 10)
        heapq.heappush(self.events, (now_ns + (decode_ns if work.answers else 100), work.batch))

    def ended(self, until_ns: float) -> tuple[float, list[int]]:
        if not self.events or self.events[0][0] > until_ns:
            return until_ns, []
        at, batch = heapq.heappop(self.events)
        return at, [batch]

    def busy_ns(self) -> dict[str, float]:
        return {}


def follow(sizes: Sizes, wanted: list[Wanted], burst: int = 1) -> Following:
    following = Following(sizes, FixedClock(), burst=burst)
    following.run(wanted)
    return following


@pytest.mark.parametrize(("prompt", "answer"), [(1, 1), (8, 3), (17, 5), (9, 1), (20, 44)])
@pytest.mark.parametrize("from_prefill", [False, True])
def test_a_request_is_chunks_and_decode_steps(prompt: int, answer: int, from_prefill: bool) -> None:
    sizes = replace(SIZES, first_from_prefill=from_prefill)
    result = follow(sizes, [Wanted(5.0, prompt, answer)]).result
    chunks = ceil((prompt if from_prefill else prompt - 1) / 8)
    decodes = answer - 1 if from_prefill else answer
    assert result.steps.get(0, 0) == chunks
    assert result.steps.get(1, 0) == decodes
    (served,) = result.requests
    assert served.ended == "length"
    assert served.ended_ns == 5.0 + 100 * chunks + 10 * decodes
    assert served.first_ns == 5.0 + 100 * chunks + (0 if from_prefill else 10)


def test_without_prefill_steps_prompts_go_token_by_token() -> None:
    sizes = replace(SIZES, steps=(DECODE,))
    result = follow(sizes, [Wanted(0.0, 6, 3)]).result
    assert result.steps == {1: 8}
    assert result.requests[0].first_ns == 60


def test_rows_join_and_leave_between_steps() -> None:
    wanted = [Wanted(0.0, 1, 30), Wanted(55.0, 1, 2), Wanted(56.0, 1, 2)]
    result = follow(SIZES, wanted).result
    assert [request.ended_ns for request in result.requests] == [300.0, 80.0, 80.0]
    assert result.steps == {1: 30}


def test_prefill_steps_take_turns_with_decode_steps() -> None:
    wanted = [Wanted(0.0, 1, 20), Wanted(1.0, 41, 1)]
    first = follow(SIZES, wanted).result.requests
    later = follow(SIZES, wanted, burst=5).result.requests
    assert first[1].first_ns == 10 + 5 * 100 + 4 * 10 + 10
    assert later[1].first_ns == 10 + 5 * 100 + 10
    assert first[0].ended_ns == later[0].ended_ns == 200 + 500


def test_a_request_that_does_not_fit_is_refused_and_others_are_not() -> None:
    result = follow(SIZES, [Wanted(0.0, 60, 10), Wanted(0.0, 60, 5)]).result
    assert [request.ended for request in result.requests] == ["refused", "length"]


def test_blocks_hold_back_who_comes() -> None:
    sizes = replace(SIZES, blocks=4, block=16)
    clock = FixedClock()
    following = Following(sizes, clock)
    following.run([Wanted(0.0, 20, 20) for _ in range(3)])
    assert clock.most_rows == 1
    assert max(waiting for _, waiting in following.result.waiting) == 2
    assert following.scheduler.batches[0].cache.room == 4


def test_no_block_belongs_to_two_jobs_and_all_come_back() -> None:
    source = random.Random(5)
    sizes = replace(SIZES, rows=6, blocks=9, block=4, steps=(PREFILL, replace(DECODE, rows=6)))
    scheduler = Scheduler(sizes)
    (batch,) = scheduler.batches
    held: list[Job] = []
    for number in range(400):
        held += scheduler.add(Job(number, source.randint(1, 12), source.randint(1, 6)))
        taken = [block for job in held for block in job.blocks]
        assert len(taken) == len(set(taken)) == 9 - batch.cache.room
        assert set(taken) <= set(range(1, 10))
        while held and (scheduler.line or source.random() < 0.5):
            scheduler.end(held.pop(source.randrange(len(held))))
            held += scheduler.admit()
    for job in held:
        scheduler.end(job)
    assert batch.cache.room == 9
    assert sorted(batch.cache.take(9)) == list(range(1, 10))


def test_a_simulation_takes_memory_for_its_requests_and_not_for_its_cache() -> None:
    endless = 1 << 40
    steps = tuple(replace(step, context=endless) for step in SIZES.steps)
    sizes = replace(SIZES, context=endless, blocks=endless, block=1, steps=steps)
    tracemalloc.start()
    Following(sizes, FixedClock()).run([Wanted(0.0, 30, 3) for _ in range(4)])
    scheduler = Scheduler(sizes, numbers_blocks=False)
    scheduler.add(Job(0, 1_000_000_000, 1))
    assert scheduler.batches[0].cache.room == endless - 1_000_000_000
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_requests_that_come_to_a_full_line_are_refused_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tessera.driver.serve.follow.MOST_WAITING", 3)
    result = follow(SIZES, [Wanted(0.0, 20, 5) for _ in range(9)]).result
    ends = [request.ended for request in result.requests]
    assert result.crowded == ends.count("refused") > 0
    assert "refused: 3 were waiting when they came" in crowding(result)[0]
    assert crowding(follow(SIZES, [Wanted(0.0, 20, 5)]).result) == ()


def test_nothing_is_lost_and_rows_are_never_shared() -> None:
    source = random.Random(3)
    sizes = replace(SIZES, batches=3, rows=2, steps=(PREFILL, replace(DECODE, rows=2)))
    wanted = [
        Wanted(number * 20.0, source.randint(1, 30), source.randint(1, 30)) for number in range(300)
    ]
    following = follow(sizes, wanted)
    requests = following.result.requests
    assert all(request.ended == "length" for request in requests)
    assert all(r.came_ns <= r.first_ns <= r.ended_ns for r in requests)
    for batch in following.scheduler.batches:
        assert batch.used == 0
        assert sorted(batch.free_rows) == [0, 1]


def test_the_smallest_step_that_fits_is_taken() -> None:
    steps = tuple(
        StepSize(trace=rows * 10 + context, rows=rows, tokens=1, context=context)
        for rows in (1, 4)
        for context in (16, 64)
    )
    sizes = replace(SIZES, steps=steps)
    assert sizes.decode_step(1, 10) == steps[0]
    assert sizes.decode_step(1, 17) == steps[1]
    assert sizes.decode_step(2, 10) == steps[2]
    assert sizes.decode_step(3, 64) == steps[3]


def test_a_job_that_is_given_up_leaves_its_row_wherever_it_is() -> None:
    scheduler = Scheduler(replace(SIZES, rows=2))
    jobs = [Job(number, 9, 5) for number in range(4)]
    for job in jobs:
        scheduler.add(job)
    for job in (jobs[3], jobs[0], jobs[1]):
        scheduler.end(job)
    scheduler.admit()
    assert [job.row for job in scheduler.batches[0].filling] == [jobs[2].row]
    assert not scheduler.line


def test_times_between_sizes_are_on_the_line_between_them() -> None:
    points = [(1.0, 10.0), (8.0, 24.0), (64.0, 80.0)]
    assert interpolated(points, 1) == 10
    assert interpolated(points, 4.5) == 17
    assert interpolated(points, 36) == 52
    assert interpolated(points, 0.5) == 10
    assert interpolated(points, 100) == 80


def test_a_report_has_the_figures_that_people_ask_for() -> None:
    requests = [
        Served(0.0, 10, 5, 1e9, 3e9, AnswerEnd.LENGTH),
        Served(1e9, 20, 1, 4e9, 4e9, AnswerEnd.STOP),
        Served(2e9, 30, 4, -1, 2e9, AnswerEnd.REFUSED),
    ]
    report = ServingReport(
        name="plan.tsp",
        source="simulated",
        requests=requests,
        waiting=[(0.0, 0), (1e9, 1), (2e9, 0)],
        steps={},
        slo=Slo(ttft_ns=2e9, tpot_ns=0.6e9),
    )
    figures, rates = report.figures(), report.rates()
    assert figures["ttft_ns"]["p50"] == 1e9
    assert figures["tpot_ns"]["max"] == 0.5e9
    assert figures["end_to_end_ns"]["p99"] == 3e9
    assert rates["requests_per_s"] == 0.5
    assert rates["answer_tokens_per_s"] == 1.5
    assert rates["good_share"] == pytest.approx(1 / 3)
    assert report.endings() == {"length": 1, "stop": 1, "refused": 1}


def test_queue_lengths_are_means_over_time() -> None:
    windows = queue_windows([(0.0, 0), (10.0, 4), (30.0, 0)], 40.0, count=2)
    assert [(window.mean, window.most) for window in windows] == [(2.0, 4), (2.0, 4)]
