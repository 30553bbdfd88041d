"""Plans with roles: shares against an enumeration, the bound, states of sequences, refusals."""

from __future__ import annotations

import itertools
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.plan import PlanOptions, PlanReport, plan
from tessera.driver.simulated_timeline import timeline_events
from tessera.frontend.plan.tsp import parse_plan
from tessera.ir.plan.print_plan import print_plan
from tessera.planning.explain import explain_step
from tessera.planning.lower.hand_over import HandOverMaker
from tessera.planning.problem.limits import ENDLESS
from tessera.planning.problem.plan_problem import Planning
from tessera.planning.problem.problem import (
    Pipe,
    Problem,
    Resident,
    Room,
    Task,
    Wire,
    contract,
    part_of,
)
from tessera.planning.problem.role_parts import RoleMix, RolePart, Sequences
from tessera.planning.roles.role_candidate import role_candidate
from tessera.planning.roles.shares import LEAST_SHARE, best_shares
from tessera.planning.search.solve import lower_bound
from tessera.report.plan import plan_text
from tessera.simulation.simulate_plan import SimulateOptions, simulate
from tests.helpers.share import share
from tests.unit.planning.test_planning_mix import MEGA, proved, trace

EXAMPLES = Path(__file__).parents[3] / "examples" / "traces"
DEVICES = (0, 1)
TRACES = (0, 1)


def random_mix(rng: random.Random) -> tuple[Problem, RoleMix, float]:
    """Two traces of one task each on two devices, with memory and a link; bytes of a sequence."""
    rates = rng.choice([(0.5, 0.5), (0.1, 0.9)])
    size = rng.choice([0.0, 50.0, 400.0])
    per_byte = rng.uniform(0.1, 4.0)
    room = [rng.choice([20, 40, 1000]) for _ in DEVICES]
    tasks = tuple(
        Task(name=f"t{t}", ns=tuple(rng.uniform(10, 500) for _ in DEVICES), rate=rates[t], trace=t)
        for t in TRACES
    )
    base = Problem(
        devices=("a", "b"),
        tasks=tasks,
        residents=tuple(
            Resident(name=f"w{t}", bytes=rng.choice([5, 15, 30]), users=(t,)) for t in TRACES
        ),
        rooms=tuple(Room(name=f"r{d}", bytes=room[d], devices=(d,)) for d in DEVICES),
        wires=tuple(Wire(source=a, target=1 - a, ns_per_byte=per_byte) for a in DEVICES),
        pipes=tuple(Pipe(name=f"p{a}", ns_per_byte=per_byte, pairs=((a, 1 - a),)) for a in DEVICES),
        transfer_ns=rng.choice([0.0, 20.0]),
    )
    problem = contract(base, TRACES)
    parts = []
    for served in ((0,), (1,), TRACES):
        own = Planning(part_of(base, served), tuple(range(len(served))), tuple(range(len(served))))
        parts += [
            RolePart(traces=served, planning=own, placement=(d,) * len(served), homes=(("s", d),))
            for d in DEVICES
        ]
    begun, carried = ((1.0, 0.0), (0.0, 1.0)) if size else ((0.0, 0.0), (0.0, 0.0))
    states = (("s", size),) if size else ()
    sequences = Sequences(begun=begun, carried=carried, states=states)
    return problem, RoleMix(parts=tuple(parts), sequences=sequences), size


def least(function: Callable[[float], float], low: float, high: float) -> float:
    """The minimum of a convex function."""
    for _ in range(60):
        third = (high - low) / 3
        if function(low + third) <= function(high - third):
            high -= third
        else:
            low += third
    return function((low + high) / 2)


def _over_second(
    period: Callable[[float, float], float], span: tuple[float, float], first: float
) -> float:
    return least(partial(period, first), *span)


def enumerated(problem: Problem, size: float) -> float:
    """The least period over all roles of both devices, by their own sums."""
    best = float("inf")
    roles = [(), (0,), (1,), TRACES]
    tasks = problem.tasks

    def period(first: float, second: float) -> float:
        moved = abs(first - second) * tasks[0].rate if size else 0.0
        busy = [moved * problem.transfer_ns, moved * problem.transfer_ns]
        for t, x in ((0, first), (1, second)):
            busy[0] += x * tasks[t].rate * (tasks[t].ns[0] or 0.0)
            busy[1] += (1 - x) * tasks[t].rate * (tasks[t].ns[1] or 0.0)
        return max(*busy, moved * size * problem.wires[0].ns_per_byte)

    for own in itertools.product(roles, repeat=2):
        held = [sum(problem.residents[t].bytes for t in own[d]) for d in DEVICES]
        fits = all(held[d] <= problem.rooms[d].bytes for d in DEVICES)
        if not fits or any(all(t not in served for served in own) for t in TRACES):
            continue

        spans = []
        for t in TRACES:
            low = 0.0 if t in own[1] else 1.0
            high = 1.0 if t in own[0] else 0.0
            if low == 0.0 and high == 1.0:
                low, high = LEAST_SHARE, 1.0 - LEAST_SHARE
            spans.append((low, high))
        of_first = partial(_over_second, period, spans[1])
        best = min(best, least(of_first, *spans[0]))
    return best


@pytest.mark.parametrize("seed", share(range(40)))
def test_shares_are_those_of_an_enumeration(seed: int) -> None:
    problem, mix, size = random_mix(random.Random(seed))
    wanted = enumerated(problem, size)
    found = best_shares(problem, mix, ENDLESS)
    if found is None:
        assert wanted == float("inf")
        return
    assert found.period_ns == pytest.approx(wanted, rel=3e-3)
    for own in zip(*found.shares, strict=True):
        assert sum(own) == pytest.approx(1.0)
    made = role_candidate(problem, "roles", mix, found)
    assert made.period_ns == pytest.approx(found.period_ns, rel=3e-3)
    assert all(used <= room.bytes for used, room in zip(made.memory, problem.rooms, strict=True))
    assert lower_bound(problem) <= wanted * (1 + 1e-6)


# --- plans ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A trace that begins sequences, since it writes the cache before it reads it, and one that
    goes on; a profile in which each has a GPU that is better for it."""
    folder = tmp_path_factory.mktemp("roles")
    begin = trace(MEGA, "p").replace("args=[cache, cache, t", "args=[cache, t, w")
    (folder / "prefill.ptx").write_text(begin)
    (folder / "decode.ptx").write_text(trace(MEGA, "d"))
    return folder, [str(folder / "prefill.ptx:1"), str(folder / "decode.ptx:1")]


def profiled(steps: tuple[Path, list[str]], times: dict[str, tuple[float, float]]) -> list[str]:
    """Profiles with a time per step of each trace, on an A100 and on an L40S."""
    folder, names = steps
    first = plan(names, PlanOptions(gpus="a100"), compare=False).plan
    paths = []
    for number, (planned, placed) in enumerate(
        zip(first.traces, first.replicas[0].traces, strict=True)
    ):
        rows = [
            {"step": step.step, "name": step.name, "gpu": gpu, "ns": own[number], "error": 0.01}
            for step in placed.steps
            for gpu, own in times.items()
        ]
        profile = {"schema": "tessera-profile/1", "program": planned.digest, "rows": rows}
        paths.append(folder / f"times{number}.json")
        paths[-1].write_text(json.dumps(profile))
    return [str(path) for path in paths]


@pytest.fixture(scope="module")
def made(steps: tuple[Path, list[str]]) -> PlanReport:
    """Each GPU is three times as fast at the other's trace as the other."""
    times = {"a100-80g-sxm": (1e6, 3e6), "l40s": (3e6, 1e6)}
    profiles = tuple(profiled(steps, times))
    return plan(steps[1], PlanOptions(gpus="a100,l40s", profiles=profiles), compare=False)


def test_roles_are_taken_where_they_pay(made: PlanReport) -> None:
    found = made.plan
    assert found.strategy in ("phase", "roles")
    assert [replica.shares for replica in found.replicas] == [(1.0, 0.0), (0.0, 1.0)]
    assert [replica.lowered.devices for replica in found.replicas] == [("a100-0",), ("l40s-0",)]
    rows = {row.name: row.period_ns for row in found.baselines}
    assert found.period_ns * 1.9 < rows["dp"]
    assert found.bound <= found.period_ns <= found.bound * 1.1
    (handed,) = found.replicas[0].hand_overs
    assert (handed.trace, handed.source, handed.target) == (0, "a100-0", "l40s-0")
    assert (handed.bytes, handed.part) == (MEGA, 1.0)
    assert not found.replicas[1].hand_overs


def test_a_plan_with_roles_is_proved_written_and_simulated(
    made: PlanReport,
) -> None:
    found = made.plan
    assert parse_plan(print_plan(found)) == found
    assert proved(found)
    again = simulate(found, SimulateOptions())
    assert again.full.period_ns == pytest.approx(found.period_ns)
    # A hand-over that takes long holds the replica that reads prompts back.
    first, second = found.replicas
    (handed,) = first.hand_overs
    slow = replace(first, hand_overs=(replace(handed, bytes=100e9),))
    held = simulate(replace(found, replicas=(slow, second)), SimulateOptions())
    assert held.full.period_ns > 100 * found.period_ns


def test_a_step_of_a_plan_with_roles_is_explained(made: PlanReport) -> None:
    (reason,) = explain_step(made.setting, made.decision, "decode:k1")
    there = {way.device: way for way in reason.elsewhere}
    assert there["l40s-0"].here
    assert reason.replica == 1
    period = there["a100-0"].period_ns
    assert period is not None
    assert period > made.plan.period_ns


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("hand_over trace=0", "hand_over trace=1", "does not serve trace 1"),
        ('l40s-0" bytes=1048576', 'a100-0" bytes=1048576', "no other replica has a device"),
        ("shares=1.0,0.0", "shares=0.5,0.0", "add up to 0.5 over the replicas"),
    ],
)
def test_wrong_roles_are_refused(made: PlanReport, old: str, new: str, said: str) -> None:
    text = print_plan(made.plan)
    assert old in text
    with pytest.raises(TesseraError, match=said):
        parse_plan(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("decode", "decode", "no trace begins sequences"),
        ("prefill", "prefill", "no trace goes on with sequences"),
    ],
)
def test_why_there_is_no_phase(
    steps: tuple[Path, list[str]], tmp_path: Path, first: str, second: str, said: str
) -> None:
    names = []
    for name in (first, second):
        names.append(str(tmp_path / f"{len(names)}.ptx"))
        shutil.copy(steps[0] / f"{name}.ptx", names[-1])
    with pytest.raises(TesseraError, match=said):
        plan(names, PlanOptions(gpus="a100,l40s", strategy="phase"), compare=False)


def test_roles_are_for_rates(steps: tuple[Path, list[str]]) -> None:
    options = PlanOptions(gpus="2xl40s", strategy="roles", objective="latency")
    with pytest.raises(TesseraError, match="for throughput or cost"):
        plan(steps[1], options, compare=False)


def test_a_hand_over_moves_what_the_plan_expects() -> None:
    """By its launch program: the tokens of a cache in rows that the prompt has."""
    steps = ("prefill.ptx:1", "decode.ptx:16")
    names = [f"{EXAMPLES}/llama_steps_{step}" for step in steps]
    report = plan(names, PlanOptions(gpus="a100,l40s", strategy="phase"), compare=False)
    replicas, traces = report.plan.replicas, report.setting.traces
    maker = HandOverMaker(
        [replica.lowered for replica in replicas],
        [trace.program for trace in traces],
        [trace.graph for trace in traces],
    )
    expected = {(own.source, own.target): own.bytes for own in replicas[0].hand_overs}
    assert expected
    assert maker.bytes_between(0, 1, tokens=4, token_axis=32) == expected


def test_memory_may_leave_no_phase(steps: tuple[Path, list[str]]) -> None:
    options = PlanOptions(gpus="2xl40s", strategy="phase", link="none")
    with pytest.raises(TesseraError, match="and a link for states of sequences"):
        plan(steps[1], options, compare=False)


def test_pages_and_timelines_show_roles(made: PlanReport, tmp_path: Path) -> None:
    said = plan_text(made, "roles.tsp")
    assert "100.0% of prefill" in said
    assert "1.00 sequences per request of prefill go on at l40s-0: 1.0 MB each" in said
    path = tmp_path / "roles.tsp"
    path.write_text(print_plan(made.plan))
    events = timeline_events(simulate(str(path), SimulateOptions(timeline=True)))
    handed = [event for event in events if event.name == "hand-over"]
    assert {(event.device, event.peer) for event in handed} == {
        ("a100-0", "l40s-0"),
        ("l40s-0", "a100-0"),
    }
    assert {event.bytes for event in handed} == {MEGA}
