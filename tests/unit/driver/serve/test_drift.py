"""Steps that take other times than planned, plans that take over, tokens that are out of range."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from tessera.cli import serve as serve_command
from tessera.diagnostics import TesseraError
from tessera.driver.serve import drift as drift_module
from tessera.driver.serve import engine as engine_module
from tessera.driver.serve.batches import StepSize, StepWork
from tessera.driver.serve.drift import (
    QUIET_NS,
    STEPS,
    StepMonitor,
    drift_words,
    error_bars,
    retimed,
)
from tessera.driver.serve.engine import Engine
from tessera.driver.serve.steps import find_steps, with_token_range
from tessera.simulation.hardware import process_hardware
from tests.helpers.served import graph_of
from tests.helpers.tiny_model import tiny_plan
from tests.helpers.toy_runtime import CONTEXT, ToyRuntime, answer
from tests.helpers.traces import trace

WORK = StepWork(StepSize(trace=0, rows=2, tokens=1, context=8), 0, 0, [], 2, 1)


def monitor(error: float, ns: float = 1000.0) -> StepMonitor:
    plan = tiny_plan(1)
    (replica,) = plan.replicas
    placed = replica.traces[0]
    steps = tuple(replace(step, predicted_ns=ns, error=error) for step in placed.steps)
    timed = replace(replica, traces=(replace(placed, steps=steps),))
    assert error_bars([timed], 0)[1] == pytest.approx(1 + max(error, 0.1))
    return StepMonitor(plan, [timed], process_hardware(("a",), None))


def follow(watched: StepMonitor, took_ns: float, count: int, at_ns: float = 0.0) -> list[Any]:
    heard = []
    for number in range(count):
        begun = at_ns + number * 10_000.0
        watched.begin(WORK, begun)
        heard.append(watched.end(0, begun + took_ns))
    return [find() for find in heard if find is not None]


def test_a_monitor_speaks_when_steps_leave_the_bars_and_when_they_are_back() -> None:
    watched = monitor(error=0.3)
    assert follow(watched, 1250.0, 3 * STEPS) == []
    (drift,) = follow(watched, 1600.0, 2 * STEPS)
    assert drift.ratio > 1.3
    assert drift.bars == pytest.approx((1 / 1.3, 1.3))
    assert drift.planned_per_s == pytest.approx(1e6)
    assert drift.requests_per_s == pytest.approx(1e6 / drift.ratio)
    assert not drift.is_back
    assert "times as long as planned" in drift_words(drift)
    messages = mock.Mock()
    serve_command._say_drift(messages, drift)
    ((said,),) = messages.show.call_args.args
    assert (said.code, str(said.headline)) == ("TSR5067", drift_words(drift))
    assert follow(watched, 1000.0, 2 * STEPS, 0.5 * QUIET_NS) == []  # too soon after the last
    (back,) = follow(watched, 1000.0, 2 * STEPS, 2 * QUIET_NS)
    assert back.is_back
    assert "again" in drift_words(back)
    (fast,) = follow(watched, 500.0, 2 * STEPS, 4 * QUIET_NS)
    assert fast.ratio < 1 / 1.3


def test_what_a_drift_comes_to_is_simulated_by_another_process() -> None:
    found = monitor(error=0.0)._drift(0, [2.0])
    with mock.patch.object(drift_module, "_periods", side_effect=AssertionError):
        apart = monitor(error=0.0)._drift(0, [2.0])
    assert apart == found
    assert apart.planned_per_s == pytest.approx(2 * apart.requests_per_s)
    with mock.patch.object(drift_module.sys, "executable", "/nothing/there"):
        assert monitor(error=0.0)._drift(0, [2.0]) == found


def test_one_slow_step_is_none_and_a_fault_is_no_step() -> None:
    watched = monitor(error=0.0)
    for number in range(4 * STEPS):
        watched.begin(WORK, number * 1e6)
        if number % 5 == 0:
            watched.forget(0)
            assert watched.end(0, number * 1e6 + 9e5) is None
        else:
            took = 5e5 if number % 7 == 0 else 1000.0
            assert watched.end(0, number * 1e6 + took) is None
    assert watched.ratios() == {"trace0": pytest.approx(1.0)}


def test_retimed_replicas_take_longer() -> None:
    (replica,) = tiny_plan(1).replicas
    (made,) = retimed([replica], [3.0])
    times = [(step.predicted_ns, step.alone_ns) for step in made.traces[0].steps]
    assert times == [(3 * step.predicted_ns, None) for step in replica.traces[0].steps]


# --- taking over ----------------------------------------------------------------------------------


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> list[ToyRuntime]:
    made: list[ToyRuntime] = []

    def make(plan: object, **options: Any) -> ToyRuntime:
        rows = 4 if plan == "rows" else 2
        made.append(ToyRuntime(plan, **(options | {"rows": rows})))
        return made[-1]

    monkeypatch.setattr(engine_module, "Runtime", make)
    return made


def test_another_plan_takes_over_and_nothing_is_lost(toys: list[ToyRuntime]) -> None:
    with Engine("first", steps={"context": CONTEXT}) as engine:
        wanted = [([n % 40, n % 7], 1 + n % 12) for n in range(60)]
        answers = [engine.submit(prompt, max_tokens=count) for prompt, count in wanted[:30]]
        threads = [
            threading.Thread(target=engine.replace_plan, args=(name,))
            for name in ("second", "third")
        ]
        for thread in threads:
            thread.start()
            answers += [
                engine.submit(prompt, max_tokens=count)
                for prompt, count in wanted[len(answers) : len(answers) + 15]
            ]
        for given, (prompt, count) in zip(answers, wanted, strict=True):
            assert given.result(300) == answer(prompt, count)
        for thread in threads:
            thread.join(300)
            assert not thread.is_alive()
        assert [toy.closed for toy in toys].count(True) == 2
        assert len(toys) == 3
        assert engine.generate([[5, 6]], max_tokens=4) == [answer([5, 6], 4)]
        assert sum(bool(toy.steps) for toy in toys) >= 2


def test_a_plan_of_other_steps_cannot_take_over(toys: list[ToyRuntime]) -> None:
    with Engine("first", steps={"context": CONTEXT}) as engine:
        with pytest.raises(TesseraError, match="cannot take over"):
            engine.replace_plan("rows")
        assert toys[1].closed
        assert not toys[0].closed
        assert engine.generate([[5, 6]], max_tokens=4) == [answer([5, 6], 4)]


def test_a_plan_that_comes_too_late_is_closed_again(toys: list[ToyRuntime]) -> None:
    engine = Engine("first", steps={"context": CONTEXT})
    put = engine._inbox.put

    def close_first(event: Any) -> None:
        if isinstance(event, partial):
            engine.close()
        put(event)

    engine._inbox = SimpleNamespace(put=close_first, get=engine._inbox.get)  # type: ignore[assignment]
    with pytest.raises(TesseraError, match="closed"):
        engine.replace_plan("second")
    assert [toy.closed for toy in toys] == [True, True]


# --- ranges ---------------------------------------------------------------------------------------

LOOK_UP = """
.visible .entry look(.param .u64 .ptr .global next, .param .u64 .ptr .global tokens,
                     .param .u64 .ptr .global table)
{
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [next];
    ld.param.u64 %rd2, [tokens];
    ld.param.u64 %rd3, [table];
    ld.global.b64 %rd4, [%rd2];
    shl.b64 %rd5, %rd4, 4;
    add.s64 %rd6, %rd3, %rd5;
    ld.global.b64 %rd7, [%rd6];
    st.global.b64 [%rd1], %rd7;
    ret;
}
"""
BUFFERS = """
buffer tokens bytes=8 role=input dtype=s64 shape=1x1
buffer lengths bytes=8 role=input dtype=s64 shape=1
buffer table bytes=320 role=weight dtype=s64 shape=20x2
buffer other bytes=640 role=weight dtype=s64 shape=40x2
buffer next bytes=8 role=output dtype=s64 shape=1
"""


def test_the_rows_of_a_table_say_how_many_tokens_there_are() -> None:
    step = "launch m.look grid=1,1,1 block=1,1,1 args=[next, tokens, table]"
    program = trace(BUFFERS, LOOK_UP, step)
    model = find_steps(["decode"], [program])
    assert model.vocabulary == 0
    assert with_token_range(model, [program], [graph_of(program)]).vocabulary == 20
