"""Replicas that serve only some traces: their plans in text, checked, simulated and run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.run.options import PlanRunOptions
from tessera.driver.run.run_plan import prepare_run, run_prepared
from tessera.driver.run.runtime import Runtime
from tessera.driver.run.verify import verify_run
from tessera.frontend.plan.tsp import parse_plan
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.plan.plan import Plan, Replica
from tessera.ir.plan.print_plan import print_plan
from tessera.ir.plan.verify_plan import verify_plan
from tessera.passes.checker.check_plan import check_plan
from tessera.simulation.hardware import process_hardware
from tessera.simulation.simulate import alone, arrive
from tessera.simulation.steady import saturate
from tests.helpers.plan_files import plan_with_roles
from tests.helpers.served import graph_of
from tests.helpers.tiny_model import BUFFERS, KERNEL, STEP
from tests.helpers.traces import trace

ONE = trace(BUFFERS, KERNEL, STEP)


def _plan() -> Plan:
    """The first trace on `a` alone, the second on all three, in unequal shares."""
    return plan_with_roles(
        [ONE, ONE],
        [[["a"], ["a"]], [None, ["b"]], [None, ["c"]]],
        [(1.0, 0.25), (0.0, 0.5), (0.0, 0.25)],
        slots=2,
        lanes=2,
    )


def test_shares_of_traces_are_written_and_read() -> None:
    plan = _plan()
    assert not list(verify_plan(plan))
    text = print_plan(plan)
    assert text.startswith("tessera-plan 6\n")
    assert "shares=0.0,0.5" in text
    assert parse_plan(text) == plan
    with pytest.raises(TesseraError, match="version 5 has no shares of traces: this is 6"):
        parse_plan(text.replace("tessera-plan 6", "tessera-plan 5"))
    programs = [parse_trace(own.text) for own in plan.traces]
    assert not check_plan(plan, programs, [graph_of(program) for program in programs])


Change = Callable[[Replica], Replica]


@pytest.mark.parametrize(
    ("number", "change", "words"),
    [
        (1, lambda r: replace(r, shares=(0.0, 0.4)), "`trace1` add up to 0.9 over the replicas"),
        (1, lambda r: replace(r, share=0.3), "follows from `shares` and the shares of the traces"),
        (1, lambda r: replace(r, shares=(0.5,)), "has 1 numbers for 2 traces"),
        (1, lambda r: replace(r, shares=(0.0, float("nan"))), "from 0 to 1"),
        (1, lambda r: replace(r, shares=(0.0, -0.5)), "from 0 to 1"),
        (1, lambda r: replace(r, shares=(0.0, 0.0)), "leave the replica out"),
        (1, lambda r: replace(r, shares=(0.5, 0.5)), "a `placement` for each trace"),
        (0, lambda r: replace(r, shares=(1.0, 0.0)), "here 0, not 0, 1"),
        (0, lambda r: replace(r, traces=r.traces[:1]), "a `placement` for each trace"),
        (
            0,
            lambda r: replace(r, lowered=replace(r.lowered, traces=r.lowered.traces[1:])),
            "a `request` for each trace",
        ),
    ],
)
def test_shares_that_cannot_be(number: int, change: Change, words: str) -> None:
    plan = _plan()
    replicas = [change(r) if index == number else r for index, r in enumerate(plan.replicas)]
    wrong = replace(plan, replicas=tuple(replicas))
    assert any(words in flaw.message for flaw in verify_plan(wrong))
    with pytest.raises(TesseraError) as refused:
        parse_plan(print_plan(wrong))
    spans = [diagnostic.primary for diagnostic in refused.value.diagnostics]
    assert all(span is not None for span in spans)


def test_requests_go_to_replicas_that_serve_their_trace() -> None:
    plan = _plan()
    prepared = prepare_run(plan, PlanRunOptions(backend="cpu", requests=32))
    places = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    counts = np.zeros((3, 2), int)
    for turn in prepared.turns:
        counts[places[turn.sequence][0], turn.trace] += 1
    assert counts.tolist() == [[16, 4], [0, 8], [0, 4]]
    outcome = run_prepared(prepared)
    assert verify_run(outcome, prepared).requests == 32
    with Runtime(plan, backend="cpu") as runtime:
        empty = {"tokens": np.ones((2, 1), np.int64), "lengths": np.ones(2, np.int64)}
        runtime.submit(empty, sequence=2, trace=1).result()
        with pytest.raises(TesseraError, match="sequence 2 does not serve `trace0`"):
            runtime.submit(empty, sequence=2, trace=0)


def test_simulation_of_roles() -> None:
    plan = _plan()
    times = {"a": 3000.0, "b": 1000.0, "c": 2000.0}
    replicas = [
        replace(
            replica,
            traces=tuple(
                replace(
                    placed,
                    steps=tuple(
                        replace(step, predicted_ns=times[step.device]) for step in placed.steps
                    ),
                )
                for placed in replica.traces
            ),
        )
        for replica in plan.replicas
    ]
    hardware = process_hardware(("a", "b", "c"), None)
    shares = (0.5, 0.5)
    # `a` has 62.5% of all requests, at 3000 ns each; that is the slowest part of the plan.
    assert saturate(replicas, shares, hardware).period_ns == pytest.approx(0.625 * 3000, rel=0.02)
    assert alone(replicas, shares, hardware) == pytest.approx(3000, rel=0.01)
    followed = arrive(replicas, shares, hardware, [1e5 * number for number in range(16)])
    served = {(passage.replica, passage.trace) for passage in followed.traffic.passages}
    assert served == {(0, 0), (0, 1), (1, 1), (2, 1)}
