"""Two policies that place states alike: the planner says what that costs, a batch uses both."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.plan import PlanOptions, plan
from tessera.driver.run.join_policies import can_join
from tessera.driver.run.open_plan import open_plan
from tessera.driver.serve.engine import Engine
from tessera.driver.serve.options import ArrivingText, TextSimulationOptions
from tessera.driver.serve.policies import LATENCY, THROUGHPUT, SwitchRule
from tessera.driver.serve.simulate_text import simulate_text
from tessera.ir.arrivals import Arrival, Arrivals
from tessera.ir.plan.plan import Plan
from tessera.ir.plan.policies import are_alike
from tessera.ir.program.print_trace import print_program
from tests.helpers.plan_files import plan_of
from tests.helpers.tiny_model import BUFFERS, KERNEL
from tests.helpers.traces import trace

PASS = """
.visible .entry pass(.param .u64 .ptr .global out, .param .u64 .ptr .global in)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<6>;
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd1, %r1, 8;
    ld.param.u64 %rd2, [out];
    ld.param.u64 %rd3, [in];
    add.s64 %rd2, %rd2, %rd1;
    add.s64 %rd3, %rd3, %rd1;
    ld.global.b64 %rd4, [%rd3];
    st.global.b64 [%rd2], %rd4;
    ret;
}
"""
STEPS = """
launch m.pass grid=1,1,1 block=2,1,1 args=[t, tokens]
launch m.step grid=1,1,1 block=2,1,1 args=[next, t, lengths, carried]
"""
PROGRAM = trace(f"{BUFFERS}\nbuffer t bytes=16 role=temp dtype=s64", KERNEL + PASS, STEPS)
ALWAYS = SwitchRule(window_ns=1e9, high=1e-9, low=1e-10, dwell_ns=0.0)


def pair(first: tuple[str, str] = ("a", "a"), second: tuple[str, str] = ("b", "a")) -> Plan:
    """One policy has all on `a`, the other the step without a state on `b`."""
    quick, wide = (plan_of([PROGRAM], [list(place)], slots=1, lanes=2) for place in (first, second))
    both = {card.name: card for card in (*quick.cards, *wide.cards)}
    used = {
        name: sum(m.lowered.memory_bytes(name) for m in (quick.replicas[0], wide.replicas[0]))
        for name in both
    }
    devices = {device.name: device for device in (*quick.devices, *wide.devices)}
    return replace(
        wide,
        objective="latency+throughput",
        cards=tuple(replace(card, used_bytes=used[name]) for name, card in both.items()),
        devices=tuple(devices.values()),
        replicas=(
            replace(quick.replicas[0], policy=LATENCY),
            replace(wide.replicas[0], policy=THROUGHPUT),
        ),
    )


def test_alike_is_by_states_and_not_by_steps() -> None:
    made = pair()
    assert are_alike(*made.replicas, [PROGRAM])
    assert can_join(made, [PROGRAM])
    assert not can_join(pair(("a", "a"), ("a", "a")), [PROGRAM])  # that is one policy
    apart = pair(("a", "a"), ("a", "b"))
    assert not are_alike(*apart.replicas, [PROGRAM])
    assert not can_join(apart, [PROGRAM])


def test_a_batch_follows_the_policy_of_now_from_step_to_step() -> None:
    made = pair()
    opened = open_plan(made, policy="adaptive")
    assert opened.ways == {THROUGHPUT: 1}
    assert [t.name for t in opened.plan.traces] == ["trace0", f"trace0@{THROUGHPUT}"]
    prompts = [[n + 1, 3] for n in range(6)]
    with Engine(made, backend="cpu", policy=LATENCY) as engine:
        expected = engine.generate(prompts, max_tokens=5)
    with Engine(made, backend="cpu", switch=ALWAYS) as engine:
        assert engine.sizes.policies == ((LATENCY, THROUGHPUT),) * 2
        assert engine.generate(prompts, max_tokens=5) == expected
        assert engine.switches
        assert sum(engine.steps_done.values()) > 0


def test_a_simulation_joins_them_too() -> None:
    rows = tuple(Arrival(n * 50, 2, 4) for n in range(12))
    arriving = ArrivingText(arrivals=Arrivals(name="a", form="test", requests=rows))
    report = simulate_text(pair(), arriving, TextSimulationOptions(switch=ALWAYS, backend="cpu"))
    assert report.endings() == {"length": 12}
    assert set(report.steps) == {"trace0"}
    assert report.switches


def test_the_planner_says_what_states_that_are_alike_cost(tmp_path: Path) -> None:
    path = tmp_path / "step.ptx"
    path.write_text(print_program(PROGRAM))
    options = PlanOptions(
        gpus="a100,l40s", objective="latency+throughput", sequences=1, states_alike=True
    )
    made = plan(str(path), options, compare=False)
    assert len(made.plan.replicas) == 2
    assert are_alike(*made.plan.replicas, [PROGRAM])
    (said,) = [d for d in made.diagnostics if d.code == "TSR3028"]
    assert "more time between requests" in str(said.headline)
    with pytest.raises((TesseraError, ValueError), match="states_alike"):
        replace(options, objective="latency")
