"""Mixed steps: prompts and answers in the same steps, simulated and by the engine.

`examples/traces/mixed_generated.json` has answers of `generate` of the transformers library to
prompts for the model folder beside it, greedy, in f32 (`examples/models/mixed_steps.py`).
"""

from __future__ import annotations

import json
import random

import pytest

import tessera
from tessera.diagnostics import Source, TesseraError
from tessera.driver.load import read_program
from tessera.driver.serve.batches import Sizes, StepSize
from tessera.driver.serve.follow import Following, Wanted
from tessera.driver.serve.jobs import Job
from tessera.driver.serve.measures import Slo
from tessera.driver.serve.residents import engine_hardware, find_pace
from tessera.driver.serve.scheduler import Scheduler
from tessera.driver.serve.simulate_text import programs_of
from tessera.driver.serve.step_pace import StepPace, pace_of
from tessera.driver.serve.steps import find_steps
from tests.helpers.corpus import ROOT
from tests.unit.driver.serve.test_scheduler import FixedClock

TRACES = ROOT / "examples" / "traces"


def sizes_of(steps: tuple[int, ...], rows: int, blocks: int = 64, block: int = 4) -> Sizes:
    sized = tuple(
        StepSize(trace=n, rows=rows, tokens=tokens, context=64, is_mixed=True)
        for n, tokens in enumerate(steps)
    )
    return Sizes(
        steps=sized,
        batches=1,
        rows=rows,
        context=64,
        first_from_prefill=True,
        blocks=blocks,
        block=block,
    )


@pytest.mark.parametrize("seed", range(20))
def test_a_mixed_step_takes_every_answer_and_fills_up_with_prompts(seed: int) -> None:
    draw = random.Random(seed)
    rows = draw.randint(1, 6)
    steps = (rows, rows + draw.randint(1, 12))
    pace = draw.choice(
        [None, StepPace(tuple((own, 1e6 * own) for own in steps), draw.uniform(0, 5e7))]
    )
    scheduler = Scheduler(sizes_of(steps, rows), pace=pace)
    jobs = [Job(n, draw.randint(1, 30), draw.randint(1, 9)) for n in range(draw.randint(1, 15))]
    lengths = {job.number: job.prompt + job.answer - 1 for job in jobs}
    held = dict.fromkeys(lengths, 0)
    for job in jobs:
        scheduler.add(job)
    batch = scheduler.batches[0]
    while (work := scheduler.take(0)) is not None:
        answered = list(batch.decoding.values())
        tokens = len(answered) + sum(count for _, count in work.chunks)
        assert work.size.tokens == min((s for s in steps if s >= tokens), default=0)
        left = sum(job.to_prefill - job.prefilled for job in batch.filling)
        most = pace.tokens(len(answered), left) if pace else steps[-1]
        limit = max(most, len(answered) + 1)
        assert tokens == min(limit, len(answered) + left)
        for job, count in [*((own, 1) for own in answered), *work.chunks]:
            assert batch.position(job) == held[job.number]
            held[job.number] += count
        scheduler.done(work)
        for job in jobs:
            if held[job.number] == lengths[job.number] and not job.dropped:
                scheduler.end(job)
        scheduler.admit()
    assert held == lengths
    assert batch.cache.room == 64


@pytest.mark.parametrize(
    ("rows", "waiting", "tokens"),
    [
        (0, 100, 10),  # 10 steps of 1 ms
        (0, 101, 40),
        (9, 10, 10),
        (9, 31, 40),
        (10, 1, 40),
        (10, 150, 40),
        (10, 151, 160),
        (40, 10_000, 160),  # not in time by any
    ],
)
def test_steps_are_as_small_as_lets_prompts_be_read_in_time(
    rows: int, waiting: int, tokens: int
) -> None:
    times = [(160, 8e6), (10, 1e6), (40, 2e6)]
    pace = pace_of(times, ttft_ns=20e6, tpot_ns=None)
    assert pace.tokens(rows, waiting) == tokens
    assert pace_of(times, ttft_ns=20e6, tpot_ns=2e6).tokens(rows, waiting) == min(tokens, 40)
    assert pace_of(times, ttft_ns=None, tpot_ns=0.5e6).sizes == ((10, 1e6),)


def test_the_simulation_takes_the_steps_of_the_scheduler() -> None:
    following = Following(sizes_of((2, 8), 2), FixedClock())
    following.run([Wanted(0.0, 12, 3), Wanted(0.0, 2, 4)])
    first, second = following.result.requests
    # 8 of the first prompt; its other 4 and the second prompt; then answers, alone at the end.
    assert (first.first_ns, second.first_ns) == (20.0, 20.0)
    assert (first.ended_ns, second.ended_ns) == (40.0, 50.0)
    assert following.result.steps == {1: 2, 0: 3}


@pytest.mark.slow  # `test_chat.py` asks a server with the same model
@pytest.mark.parametrize("sizes", [(8,), (3, 8)])
def test_tokens_of_a_model_folder_equal_those_of_generate(sizes: tuple[int, ...]) -> None:
    cases = json.loads((TRACES / "mixed_generated.json").read_text("utf-8"))
    options = tessera.PlanOptions(gpus="l40s", strategy="single", slots=1, sequences=1)
    plan = tessera.plan([f"{TRACES}/mixed_steps_{n}.ptx" for n in sizes], options).plan
    weights = TRACES / "mixed_model"
    sized = find_steps([f"mixed_steps_{n}" for n in sizes], programs_of(plan)).sizes(1)
    hardware = engine_hardware(plan, "cpu")
    for limit_ns, most in ((1.0, sizes[0]), (1e12, sizes[-1])):
        pace = find_pace(sized, plan.replicas, hardware, Slo(tpot_ns=limit_ns), "cpu")
        assert pace is not None
        assert pace.sizes[-1][0] == most
    assert find_pace(sized, plan.replicas, hardware, Slo(), "cpu") is None
    with tessera.Engine(plan, backend="cpu", weights=weights, steps={"end": [2]}) as engine:
        given = [engine.submit(c["prompt"], max_tokens=len(c["answer"])) for c in cases]
        answers = [answer.result(300) for answer in given]
        assert answers == [[t for t in case["answer"] if t != 2] for case in cases]
        # Fewer steps than one after the other would take: prompts and answers shared them.
        assert sum(engine.steps_done.values()) < sum(len(case["answer"]) for case in cases)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"positions": None}, "input `positions` .* has no role"),
        ({"last": "rows", "rows": "last"}, "`rows` .* must have 8 elements"),
        ({"last": "tokens", "tokens": "last"}, "`positions` .* must have 3 elements"),
    ],
)
def test_a_mixed_step_that_does_not_fit_is_refused(
    changed: dict[str, str | None], said: str
) -> None:
    path = TRACES / "mixed_steps_8.ptx"
    program, _ = read_program(Source(str(path), path.read_text("utf-8")))
    names = {n: n for n in ("tokens", "positions", "rows", "blocks", "last")} | {"logits": "out"}
    roles = {role: name for role, name in (names | changed).items() if name is not None}
    with pytest.raises(TesseraError, match=said):
        find_steps(["step"], [program], {"steps": {"step": roles}})
