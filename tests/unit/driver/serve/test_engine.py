"""The engine over a toy runtime: tokens equal a plain loop, whoever joins and leaves."""

from __future__ import annotations

import gc
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tessera.backend.service import ServiceFault
from tessera.diagnostics import TesseraError
from tessera.driver.serve import engine as engine_module
from tessera.driver.serve.batches import StepSize, StepWork
from tessera.driver.serve.bench_text import bench_text
from tessera.driver.serve.engine import Engine
from tessera.driver.serve.generation import Generation, Wish
from tessera.driver.serve.homes import MOST_RESTARTS, Homes
from tessera.driver.serve.look_ahead import HandedStep, LookAhead
from tessera.driver.serve.options import ArrivingText
from tessera.driver.serve.sampling import Sampling, draw_token
from tessera.driver.serve.scheduler import Scheduler
from tessera.driver.serve.step_inputs import row_input
from tessera.ir.arrivals import Arrival, Arrivals
from tessera.report.serving import serving_text
from tests.helpers.toy_runtime import CONTEXT, POISON, ToyRuntime, answer
from tests.unit.driver.serve.test_scheduler import SIZES

Open = Callable[..., Engine]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    monkeypatch.setattr(engine_module, "Runtime", ToyRuntime)
    engines: list[Engine] = []

    def make(**options: Any) -> Engine:
        declared = {"context": CONTEXT, "end": options.pop("end", [])}
        if options.get("paged") or options.get("mixed"):
            declared["block"] = 4
        engines.append(Engine("toy.tsp", steps=declared, **options))
        return engines[-1]

    yield make
    for one_engine in engines:
        one_engine.close(wait=False)


def requests(seed: int, count: int) -> list[tuple[list[int], int]]:
    source = random.Random(seed)
    made = []
    for _ in range(count):
        prompt = source.randint(1, 12)
        tokens = [source.randrange(POISON) for _ in range(prompt)]
        made.append((tokens, source.randint(1, CONTEXT + 1 - prompt)))
    return made


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"logits": False},
        {"prefill": False},
        {"paged": True},
        {"rows": 1, "batches": 3},
        {"burst": 3, "rows": 4, "batches": 1},
        {"chains": True, "logits": False, "rows": 4, "batches": 1},
        {"chains": True, "logits": False, "rows": 2, "batches": 2},
        {"chains": True, "logits": False, "prefill": False, "batches": 1},
        {"chains": True, "logits": False, "paged": True, "batches": 1},
        {"mixed": (3, 7)},
        {"chains": True, "logits": False, "mixed": (3, 7), "batches": 1},
    ],
    ids=[
        *("rows", "next", "no-prefill", "blocks", "one-row", "burst"),
        *("ahead", "ahead-two-batches", "ahead-no-prefill", "ahead-blocks", "mixed", "ahead-mixed"),
    ],
)
def test_tokens_are_those_of_a_plain_loop(opened: Open, options: dict[str, Any]) -> None:
    engine = opened(**options)
    wanted = requests(5, 40)
    answers = [engine.submit(prompt, max_tokens=count) for prompt, count in wanted]
    for given, (prompt, count) in zip(answers, wanted, strict=True):
        assert given.result(300) == answer(prompt, count)
        assert given.ended == "length"
        assert 0 < given.came_ns <= given.first_ns <= given.ended_ns


AHEAD = {"chains": True, "logits": False, "rows": 3, "batches": 1}


def test_the_next_step_is_handed_over_before_its_tokens_are_known(opened: Open) -> None:
    engine = opened(**AHEAD)
    assert engine.generate([[1, 2]], max_tokens=12) == [answer([1, 2], 12)]
    assert engine.runtime.chained >= 9  # type: ignore[attr-defined]
    plain = opened(**AHEAD, look_ahead=False)
    assert plain.generate([[1, 2]], max_tokens=12) == [answer([1, 2], 12)]
    assert plain.runtime.chained == 0  # type: ignore[attr-defined]


def test_looking_ahead_past_a_stop_gives_nothing_and_harms_nobody(opened: Open) -> None:
    """Rows that end by a token are in the step that was handed over, and given away after it."""
    source = random.Random(3)
    for more in ({}, {"paged": True}, {"mixed": (3, 7)}):
        engine = opened(**AHEAD, **more)
        wanted, answers = [], []
        for _ in range(60):
            prompt = [source.randrange(POISON) for _ in range(source.randint(1, 5))]
            whole = answer(prompt, 11)
            end = source.choice(whole)
            wanted.append(whole[: whole.index(end)])
            answers.append(engine.submit(prompt, max_tokens=11, stop=[end]))
        for given, expected in zip(answers, wanted, strict=True):
            assert given.result(300) == expected
            assert given.ended == "stop"
        assert engine.runtime.chained > 0  # type: ignore[attr-defined]


def test_an_answer_is_given_up_while_the_engine_looks_ahead(opened: Open) -> None:
    engine = opened(**AHEAD)
    for _ in range(10):
        answers = [engine.submit([n], max_tokens=CONTEXT) for n in range(3)]
        answers[1].cancel()
        answers[1].result(300)
        assert answers[1].ended in ("cancelled", "length")
        assert answers[0].result(300) == answer([0], CONTEXT)
        assert answers[2].result(300) == answer([2], CONTEXT)
    late = engine.submit([4], max_tokens=CONTEXT, deadline_s=1e-9)
    late.result(300)
    assert late.ended == "deadline"


def test_a_fault_of_a_step_handed_over_ahead_is_that_of_its_batch() -> None:
    ahead = LookAhead(Scheduler(SIZES), Homes())
    size = StepSize(trace=0, rows=1, tokens=1, context=8)
    work = StepWork(size, 0, 1, [], 1, 1)
    ahead._handed[1] = HandedStep(work, [], {}, request=7)
    under_way = {number: HandedStep(work, [], {}, request=5 + number) for number in (0, 1)}
    assert ahead.faulted(7, under_way) == [ahead._handed[1]]
    assert ahead.faulted(6, under_way) == [under_way[1]]
    assert ahead.faulted(5, under_way) == [under_way[0]]
    assert len(ahead.faulted(None, under_way)) == 3


def test_many_rows_share_a_decode_step_and_batches_go_side_by_side(opened: Open) -> None:
    engine = opened(rows=3, batches=2)
    wanted = [([n, n + 1], 14) for n in range(12)]
    answers = [engine.submit(prompt, max_tokens=count) for prompt, count in wanted]
    assert [given.result(300) for given in answers] == [answer(p, c) for p, c in wanted]
    runtime: Any = engine.runtime
    assert runtime.widest == 3
    assert engine.steps_done["prefill"] == 12
    # One by one they would take 13 steps each.
    assert engine.steps_done["decode"] < 12 * 13 / 2
    assert {sequence for _, sequence in runtime.steps} == {0, 1}


def test_tokens_come_one_by_one_and_a_stop_is_no_part_of_the_answer(opened: Open) -> None:
    engine = opened()
    plain = answer([4, 5], 10)
    assert list(engine.submit([4, 5], max_tokens=10)) == plain
    stop = plain[4:6]
    given = engine.submit([4, 5], max_tokens=10, stop=[stop])
    assert list(given) == plain[:4]
    assert given.ended == "stop"
    ending = opened(end=[plain[3]])
    assert ending.generate([[4, 5]], max_tokens=10) == [plain[: plain.index(plain[3])]]
    kept = ending.generate([[4, 5]], max_tokens=10, ignore_end=True)
    assert kept == [plain]


def test_sampled_tokens_depend_on_the_seed_alone(opened: Open) -> None:
    engine = opened()
    wishes: dict[str, Any] = {"max_tokens": 8, "temperature": 3.0, "top_p": 0.99, "seed": 3}
    alone = engine.submit([1, 2, 3], **wishes).result(300)
    others = [engine.submit(prompt, max_tokens=5) for prompt, _ in requests(2, 8)]
    again = engine.submit([1, 2, 3], **wishes).result(300)
    other = engine.submit([1, 2, 3], **(wishes | {"seed": 4})).result(300)
    assert alone == again != other
    assert all(given.result(300) for given in others)


def test_a_token_is_drawn_by_its_own_number_however_often_its_step_is_made() -> None:
    """A step that looks ahead may be made and not be handed over, or be lost with its replica."""
    wish = Wish(most=4, sampling=Sampling(temperature=1.0, seed=3))
    given = Generation(1, [5, 6], wish, lambda _: None)
    given.job.row = 0
    first, ahead, again = (row_input(given, at, 1, True).uniform for at in (1, 2, 2))
    source = wish.sampling.draws()
    assert first == source.random(dtype=np.float32)
    assert ahead == again == source.random(dtype=np.float32)
    assert row_input(given, 0, 1, True).uniform == first  # a chunk that gives no token


def test_cancelled_and_late_answers_leave_their_rows(opened: Open) -> None:
    engine = opened(rows=1, batches=1)
    first = engine.submit([1], max_tokens=16)
    waiting = engine.submit([2], max_tokens=16)
    waiting.cancel()
    late = engine.submit([3], max_tokens=16, deadline_s=1e-6)
    assert late.result(300) == []
    assert late.ended == "deadline"
    assert waiting.result(300) == []
    assert waiting.ended == "cancelled"
    assert first.result(300) == answer([1], 16)
    assert engine.submit([9], max_tokens=3).result(300) == answer([9], 3)
    assert engine.running == 0 == engine.waiting


def test_a_deadline_may_lie_further_off_than_a_thread_can_wait(opened: Open) -> None:
    engine = opened()
    assert engine.submit([1], max_tokens=4, deadline_s=1e300).result(300) == answer([1], 4)
    assert engine.is_well


def test_a_temperature_near_zero_takes_the_most_likely_token() -> None:
    logits = np.array([0.5, 3.0, 2.9, -80.0], np.float32)
    for temperature in (5e-324, 1e-310, 1e-30):
        wish = Sampling(temperature=temperature, seed=3)
        assert draw_token(logits, wish, wish.draws()) == 1


def test_a_bench_answers_what_fits_and_draws_nothing_for_the_rest(opened: Open) -> None:
    lengths = [(3, 5), (10**15, 2), (4, 10**15), (2, 7), (CONTEXT, 1)]
    arrivals = Arrivals(
        name="a",
        form="test",
        requests=tuple(Arrival(n * 1000, *pair) for n, pair in enumerate(lengths)),
    )
    report = bench_text(opened(), "toy.tsp", ArrivingText(arrivals=arrivals))
    ended = [(served.ended, served.answer) for served in report.requests]
    assert ended == [
        ("length", 5),
        ("refused", 2),
        ("refused", 10**15),
        ("length", 7),
        ("length", 1),
    ]
    assert sum(report.steps.values()) >= 7
    refused = replace(report, requests=[r for r in report.requests if r.ended == "refused"])
    assert "no request was answered" in serving_text(refused)
    assert "TTFT" in serving_text(report)
    fits = replace(arrivals, requests=tuple(arrivals.requests[n] for n in (0, 3, 4)))
    digests = [
        bench_text(opened(rows=rows), "toy.tsp", ArrivingText(arrivals=fits, seed=seed))
        for rows, seed in ((1, 0), (2, 0), (2, 1))
    ]
    first, *others = [one.answers_digest for one in digests]
    assert [first == other for other in others] == [True, False]
    assert first[:16] in serving_text(digests[0])


@pytest.mark.parametrize("more", [{}, {"mixed": (2, 7)}, {**AHEAD, "mixed": (3, 7)}])
def test_a_fault_ends_the_answer_that_is_why_and_no_other(
    opened: Open, more: dict[str, Any]
) -> None:
    engine = opened(**{"rows": 2, "batches": 2, **more})
    good = [engine.submit([n, n], max_tokens=15) for n in range(4)]
    bad = engine.submit([1, POISON], max_tokens=3)
    with pytest.raises(TesseraError, match="trap"):
        bad.result(300)
    assert bad.ended == "fault"
    assert [given.result(300) for given in good] == [answer([n, n], 15) for n in range(4)]
    assert engine.counts.restarts == 2
    assert engine.submit([7], max_tokens=4).result(300) == answer([7], 4)


@pytest.mark.parametrize(
    ("prompt", "wishes", "words"),
    [
        ([], {}, "at least one token"),
        ([50], {}, "token 50 is not in the vocabulary of 50"),
        ([-1], {}, "token -1"),
        ([1] * 10, {"max_tokens": 8}, "does not fit a context of 16"),
        ([1], {"temperature": -1.0}, "temperature"),
        ([1], {"top_p": 0.0}, "top_p"),
        ([1], {"stop": [[]]}, "`stop` is empty"),
    ],
)
def test_what_cannot_be_answered_is_refused(
    opened: Open, prompt: list[int], wishes: dict[str, Any], words: str
) -> None:
    with pytest.raises(TesseraError, match=words) as refusal:
        opened().submit(prompt, **wishes)
    assert refusal.value.diagnostics[0].code == "TSR5064"


def test_drawing_needs_logits_or_a_step_that_draws(opened: Open) -> None:
    with pytest.raises(TesseraError, match="most likely token only"):
        opened(logits=False).submit([1], temperature=1.0)


def test_too_many_that_wait_are_refused(opened: Open) -> None:
    engine = opened(rows=1, batches=1, max_waiting=2)
    held = threading.Event()
    first = engine.submit([1], max_tokens=16)
    first.listen(lambda _: held.wait(300))
    time.sleep(0.05)
    try:
        for _ in range(2):
            engine.submit([2], max_tokens=1)
        with pytest.raises(TesseraError) as refusal:
            engine.submit([2], max_tokens=1)
        assert refusal.value.diagnostics[0].code == "TSR5065"
    finally:
        held.set()
    assert first.result(300) == answer([1], 16)


def test_a_burst_into_free_rows_does_not_wait(opened: Open) -> None:
    engine = opened(rows=4, batches=2, max_waiting=2)
    held = threading.Event()
    engine._inbox.put(lambda: held.wait(300) and None)
    try:
        answers = [engine.submit([n], max_tokens=3) for n in range(10)]  # 8 rows, and 2 that wait
        with pytest.raises(TesseraError, match="2 prompts are waiting"):
            engine.submit([2], max_tokens=1)
    finally:
        held.set()
    assert [own.result(300) for own in answers] == [answer([n], 3) for n in range(10)]


def test_faults_in_a_row_do_not_end_the_service(opened: Open) -> None:
    engine = opened()
    for _ in range(MOST_RESTARTS):
        with pytest.raises(ServiceFault):
            engine.submit([POISON], max_tokens=2).result(300)
    assert engine.counts.restarts == 2 * MOST_RESTARTS
    assert engine.submit([1, 2], max_tokens=3).result(300) == answer([1, 2], 3)


def test_giving_up_what_has_ended_leaves_nothing_behind(opened: Open) -> None:
    engine = opened()
    given = engine.submit([1, 2], max_tokens=3)
    given.result(300)
    given.cancel()
    late = engine.submit([1, 2], max_tokens=3, deadline_s=3600.0)
    assert late.result(300) == answer([1, 2], 3)
    assert not engine._book._given_up
    engine.generate([[1]])
    assert not engine._book._deadlines


def test_what_is_loaded_is_kept_out_of_collections_until_the_last_engine_is_closed(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tessera.driver.serve.engine._OPEN", set())
    gc.unfreeze()
    held = gc.get_freeze_count()
    first, second = opened(), opened()
    assert gc.get_freeze_count() > held
    first.close()
    first.close()
    assert gc.get_freeze_count() > held
    second.close()
    assert gc.get_freeze_count() <= held


def test_closing_finishes_what_was_taken(opened: Open) -> None:
    engine = opened()
    answers = [engine.submit(prompt, max_tokens=count) for prompt, count in requests(9, 6)]
    engine.close()
    assert all(given.ended == "length" for given in answers)
    with pytest.raises(TesseraError, match="closed"):
        engine.submit([1])
