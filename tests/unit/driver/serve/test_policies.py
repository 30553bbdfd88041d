"""Two policies of a plan: when requests are given which, that none is lost, and what it costs."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tessera
from tessera.diagnostics import TesseraError
from tessera.driver.serve import engine as engine_module
from tessera.driver.serve.batches import Sizes, StepSize
from tessera.driver.serve.engine import Engine
from tessera.driver.serve.follow import Following, Pays, Wanted, refusals
from tessera.driver.serve.jobs import Job
from tessera.driver.serve.move_prices import rule_of_moves
from tessera.driver.serve.options import ArrivingText, TextSimulationOptions
from tessera.driver.serve.policies import (
    LATENCY,
    THROUGHPUT,
    ForeseenSwitch,
    PolicySwitch,
    StepPrices,
    SwitchRule,
)
from tessera.driver.serve.scheduler import Scheduler
from tessera.driver.serve.simulate_text import simulate_text
from tessera.ir.arrivals import Arrival, Arrivals
from tessera.ir.plan.plan import Plan
from tessera.ir.plan.policies import served_by
from tessera.simulation.hardware import process_hardware
from tests.helpers.tiny_model import tiny_plan
from tests.helpers.toy_runtime import CONTEXT, ToyRuntime, answer
from tests.unit.driver.serve.test_scheduler import SIZES, FixedClock

TRACES = Path(__file__).parents[4] / "examples" / "traces"
RULE = SwitchRule(window_ns=1000.0, high=0.6, low=0.3, dwell_ns=500.0)
PRICES = StepPrices(sizes=SIZES, prefill_ns=100.0, decode_ns=10.0)


def switch(rule: SwitchRule = RULE) -> PolicySwitch:
    return PolicySwitch(PRICES, rule)


def test_demand_is_the_work_that_came_within_the_window() -> None:
    rule = switch()
    assert PRICES.of(17, 5) == 2 * 100 + 6 * 10 - 10
    rule.come(0.0, 17, 5)
    assert rule.demand(0.0, 0) == pytest.approx(0.25)
    rule.come(400.0, 17, 5)
    assert rule.demand(900.0, 0) == pytest.approx(0.5)
    assert rule.demand(1000.0, 0) == pytest.approx(0.25)
    assert rule.demand(1399.0, 3) == pytest.approx(0.75)  # two of three have waited for longer
    assert rule.demand(5000.0, 0) == 0.0
    rule.pace = 2.0
    rule.come(6000.0, 17, 5)
    assert rule.demand(6000.0, 0) == pytest.approx(0.5)


def test_answers_count_with_the_mean_of_those_that_ended() -> None:
    rule = switch()
    rule.end(5)
    rule.come(0.0, 17, 1000)
    assert rule.demand(0.0, 0) == pytest.approx(0.25)
    rule.come(0.0, 17, 2)
    assert rule.demand(0.0, 0) == pytest.approx(0.25 + 0.22)


def test_two_marks_and_a_dwell_time() -> None:
    rule = switch()
    assert rule.choose(0.0, 0) == LATENCY
    for _ in range(3):
        rule.come(10.0, 17, 5)
    assert rule.choose(10.0, 0) == THROUGHPUT
    assert rule.choose(400.0, 0) == THROUGHPUT
    assert rule.choose(1009.0, 0) == THROUGHPUT  # between the marks nothing changes
    assert rule.choose(1010.0, 0) == LATENCY
    for _ in range(3):
        rule.come(1020.0, 17, 5)
    assert rule.choose(1020.0, 0) == LATENCY  # it has just come back
    assert rule.choose(1020.0, 1) == THROUGHPUT  # but nobody has to wait for that
    assert rule.switches == [(10.0, THROUGHPUT), (1010.0, LATENCY), (1020.0, THROUGHPUT)]
    assert rule.choose(9000.0, 0, 3) == THROUGHPUT  # 37 ns of prompts are left, of 100
    assert rule.choose(9000.0, 0, 2) == LATENCY
    assert rule.choose(9001.0, 0, 4) == LATENCY
    assert rule.choose(9002.0, 0, 6) == THROUGHPUT  # these are in front of whoever comes now


def test_an_oracle_sees_what_comes() -> None:
    rule = ForeseenSwitch(PRICES, RULE, [(2000.0, 17, 5)] * 3)
    assert rule.choose(0.0, 0) == LATENCY
    assert rule.choose(1001.0, 0) == THROUGHPUT
    assert rule.choose(2001.0, 0) == LATENCY


def test_a_hand_over_pays_if_the_rest_of_an_answer_is_faster_by_more_than_it_takes() -> None:
    replicas = []
    for replica, time_ns in zip(tiny_plan().replicas, (1000.0, 3000.0), strict=True):
        steps = tuple(replace(step, predicted_ns=time_ns) for step in replica.traces[0].steps)
        replicas.append(replace(replica, traces=(replace(replica.traces[0], steps=steps),)))
    sizes = Sizes(
        steps=(StepSize(trace=0, rows=2, tokens=1, context=400),),
        batches=2,
        rows=2,
        context=400,
        policies=((LATENCY,), (THROUGHPUT,)),
    )
    rule, price_ns = switch(), [0.0]
    prices: Any = SimpleNamespace(of=lambda *_: (0, price_ns[0]))
    hardware = process_hardware(("a", "b"), None)
    pays = rule_of_moves(sizes, replicas, hardware, prices, rule)
    scheduler = Scheduler(sizes)
    scheduler.policy = THROUGHPUT
    job = Job(0, 1, 101)
    scheduler.add(job)
    target, source = scheduler.batches
    assert pays(job, source, target)
    price_ns[0] = 100 * 2000.0 * 0.99  # 100 tokens are 2000 ns faster each
    assert pays(job, source, target)
    price_ns[0] = 101 * 2000.0 * 1.01
    assert not pays(job, source, target)
    price_ns[0] = 0.0
    assert not pays(job, target, source), "it would be slower there"
    rule.load = 0.8  # others take most of the faster one's time
    assert not pays(job, source, target)
    rule.load = 0.0
    rule.end(1)  # answers are short
    price_ns[0] = 10 * 2000.0
    assert not pays(job, source, target)


@pytest.mark.parametrize(
    "wrong", [{"window_ns": 0.0}, {"high": -1.0}, {"low": 2.0}, {"dwell_ns": -1.0}]
)
def test_rules_that_are_none(wrong: dict[str, float]) -> None:
    with pytest.raises((TesseraError, ValueError)):
        SwitchRule(**wrong)


def test_nothing_is_lost_over_many_switches() -> None:
    """Rows are given by the policy of the moment, and nobody changes it afterwards."""
    source = random.Random(3)
    sizes = replace(SIZES, batches=3, policies=((LATENCY,), (THROUGHPUT,), (LATENCY, THROUGHPUT)))
    at, wanted = 0.0, []
    for number in range(1500):
        at += source.expovariate(1 / (30 if (number // 40) % 2 else 900))
        wanted.append(Wanted(at, source.randint(1, 30), source.randint(1, 30)))
    policy = PolicySwitch(replace(PRICES, sizes=sizes), replace(RULE, dwell_ns=10.0))
    result = Following(sizes, FixedClock(), policy=policy).run(wanted)
    assert {request.ended for request in result.requests} == {"length"}
    assert len(policy.switches) > 50
    assert {request.policy for request in result.requests} == {LATENCY, THROUGHPUT}
    times = [0.0, *(when for when, _ in policy.switches)]
    names = [LATENCY, *(name for _, name in policy.switches)]
    for request in result.requests:
        place = max(n for n, when in enumerate(times) if when <= request.seated_ns)
        assert request.policy in (names[place], names[max(place - 1, 0)])
        assert request.came_ns <= request.seated_ns <= request.begun_ns < request.ended_ns


@pytest.fixture(scope="module")
def pair() -> Plan:
    options = tessera.PlanOptions(
        gpus="a100,l40s", objective="latency+throughput", sequences=1, slots=1
    )
    return tessera.plan(f"{TRACES}/recurrent_steps_decode.ptx", options, compare=False).plan


def text(count: int, gap_ns: int) -> ArrivingText:
    rows = tuple(Arrival(n * gap_ns, 1 + n % 9, 1 + n % 7) for n in range(count))
    return ArrivingText(arrivals=Arrivals(name="a", form="test", requests=rows))


def test_a_pair_is_simulated_with_both_policies_ready(pair: Plan) -> None:
    options = TextSimulationOptions(
        steps="names", switch=SwitchRule(window_ns=1e6, high=0.5, low=0.3, dwell_ns=0.0)
    )
    report = simulate_text(pair, text(120, 10_000), options)
    assert report.endings() == {"length": 120}
    assert report.policies()[THROUGHPUT] > 0
    assert report.switches
    calm = simulate_text(pair, text(20, 10**9), options)
    assert calm.policies() == {LATENCY: 20}
    alone = simulate_text(pair, text(20, 10**9), replace(options, policy=LATENCY, switch=None))
    assert [r.ended_ns for r in calm.requests] == [r.ended_ns for r in alone.requests]


def test_what_is_left_of_prompts_is_counted() -> None:
    scheduler = Scheduler(SIZES)
    jobs = [Job(number, 9 + number, 3) for number in range(4)]
    for job in jobs:
        scheduler.add(job)
    assert scheduler.unfilled == sum(8 + number for number in range(4))
    work = scheduler.take(0)
    assert work is not None
    scheduler.done(work)
    assert scheduler.unfilled == sum(8 + number for number in range(1, 4))
    scheduler.end(jobs[2])
    assert scheduler.unfilled == 9 + 11
    scheduler.clear(0)
    assert scheduler.unfilled == 0


@pytest.mark.parametrize("pays", [None, lambda *_: True], ids=["stay", "move"])
def test_an_engine_gives_policies_and_its_tokens_stay_the_same(
    monkeypatch: pytest.MonkeyPatch, pays: Pays | None
) -> None:
    monkeypatch.setattr(engine_module, "Runtime", ToyRuntime)
    monkeypatch.setattr(
        engine_module, "find_switch", lambda sizes, _, rule: PolicySwitch(PRICES, rule)
    )
    monkeypatch.setattr(engine_module, "find_pays", lambda *_: pays)
    rule = SwitchRule(window_ns=1.0, high=1e9, low=1e9, dwell_ns=0.0)  # by who waits alone
    named = ((LATENCY,), (THROUGHPUT,))
    with Engine("toy", steps={"context": CONTEXT}, switch=rule, named=named, rows=2) as engine:
        wanted = [([n % 40, n % 7], 1 + n % 9 if n < 26 else 15) for n in range(30)]
        answers = [engine.submit(prompt, max_tokens=count) for prompt, count in wanted]
        for given, (prompt, count) in zip(answers, wanted, strict=True):
            assert given.result(300) == answer(prompt, count)
            assert given.came_ns <= given.seated_ns <= given.begun_ns <= given.first_ns
        assert {given.policy for given in answers} == {LATENCY, THROUGHPUT}
        assert engine.switches
        assert (engine.counts.hand_overs > 0) == (pays is not None)


@pytest.mark.slow
def test_both_policies_of_a_plan_run_and_give_the_same_tokens(pair: Plan) -> None:
    prompts = [[1 + n % 40, 3, n % 7] for n in range(10)]
    always = SwitchRule(window_ns=1.0, high=1e-9, low=1e-9, dwell_ns=0.0)
    with Engine(pair, backend="cpu", policy=LATENCY) as engine:
        expected = engine.generate(prompts, max_tokens=4)
        assert engine.switches == []
    with Engine(pair, backend="cpu", switch=always) as engine:
        answers = [engine.submit(prompt, max_tokens=4) for prompt in prompts]
        assert [answer.result(600) for answer in answers] == expected
        used = {answer.policy for answer in answers}
        assert THROUGHPUT in used
        assert engine.switches
        replicas, policies = served_by(pair, "adaptive") or ((), ())
        assert engine.sizes.batches == sum(replica.lanes for replica in replicas)
        assert {name for own in policies for name in own} == {LATENCY, THROUGHPUT}


def test_rates_are_near_to_what_every_operation_gives(pair: Plan) -> None:
    arriving = text(80, 30_000)
    exact, rated = (
        simulate_text(pair, arriving, TextSimulationOptions(steps="names", clock=clock))
        for clock in ("exact", "rates")
    )
    assert rated.span_ns == pytest.approx(exact.span_ns, rel=0.05)
    for name in ("ttft_ns", "end_to_end_ns"):
        ends = [report.figures()[name]["p50"] for report in (exact, rated)]
        assert ends[1] == pytest.approx(ends[0], rel=0.1)


def test_a_rule_without_two_policies_is_refused() -> None:
    options = TextSimulationOptions(steps="names", backend="cpu", switch=SwitchRule())
    with pytest.raises(TesseraError, match="no two policies"):
        simulate_text(tiny_plan(1), text(2, 10**6), options)
    with pytest.raises(TesseraError, match="no two policies"):
        Engine(tiny_plan(1), backend="cpu", switch=SwitchRule())


def test_a_report_says_why_requests_were_refused() -> None:
    sizes = Sizes(
        steps=(StepSize(trace=0, rows=2, tokens=1, context=8),), batches=1, rows=2, context=8
    )
    (said,) = refusals(sizes, [Wanted(0.0, 8, 1), Wanted(0.0, 8, 2), Wanted(0.0, 900, 1)])
    assert said == "2 of 3 requests were refused: they do not fit a context of 8 tokens"
    assert refusals(sizes, [Wanted(0.0, 8, 1)]) == ()
