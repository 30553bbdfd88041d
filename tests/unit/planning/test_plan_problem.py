"""From a trace to a planning problem: durations, tensors, memory, and what stays together."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tessera.driver.load import load
from tessera.frontend.machine.gpus import machine_of
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.architecture import runs_on
from tessera.ir.graph.access import Pin
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.graph.region import (
    Affine,
    Descriptor,
    Dimension,
    Interval,
    Region,
)
from tessera.ir.objectives import SINGLE_OBJECTIVES, Objective
from tessera.ir.plan.costs import Barred, CostSource, Duration
from tessera.ir.plan.launch_program import Run
from tessera.ir.program.program import Program, Role
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.dependences import Dependences
from tessera.planning.prices.estimate_costs import estimate_costs
from tessera.planning.problem.held_bytes import pieces_of
from tessera.planning.problem.period_limits import LimitKind
from tessera.planning.problem.plan_problem import (
    TracePart,
    groups_of,
    problem_of,
    problem_of_mix,
    tensors_of,
)
from tessera.planning.search.candidates import candidate_of, slots_needed
from tessera.planning.search.plans import choose
from tessera.planning.search.schedule import request_times
from tessera.planning.search.sensitivity import sensitivities
from tessera.wording import Wording
from tests.helpers.exchanges import exchange_model
from tests.helpers.regions import region_intervals
from tests.helpers.share import least

MLP = Path(__file__).parents[3] / "examples" / "traces" / "mlp.ptx"


@pytest.fixture(scope="module")
def program() -> Program:
    return load(MLP)


@pytest.fixture(scope="module")
def graph(program: Program) -> KernelGraph:
    return AnalysisManager(program).get(Dependences).graph


@pytest.mark.parametrize(
    ("arch", "gpu", "runs"),
    [
        ("sm_80", "sm_80", True),
        ("sm_80", "sm_90a", True),
        ("sm_90", "sm_80", False),
        ("sm_90a", "sm_90a", True),
        ("sm_90a", "sm_100a", False),
        ("sm_100f", "sm_103a", True),
        ("sm_100f", "sm_120a", False),
        ("sm_120", "sm_120a", True),
    ],
)
def test_where_code_runs(arch: str, gpu: str, runs: bool) -> None:
    assert runs_on(arch, gpu) == runs


def test_durations(program: Program, graph: KernelGraph) -> None:
    costs = estimate_costs(program, graph, machine_of("a100,t4,h200:66sm,h200:66sm"))
    assert len(costs.steps) == len(graph.nodes)
    for step in costs.steps:
        a100, t4, first, second = step.on_device
        assert isinstance(a100, Duration)
        assert a100.ns > 1000
        assert a100.source is CostSource.SHEET
        assert isinstance(first, Duration)
        assert first.source is CostSource.MODEL
        assert first.error < a100.error
        assert isinstance(t4, Barred) or "memset" in step.name or "memcpy" in step.name
        assert first == second
    assert any("no code for sm_75" in str(step.on_device[1]) for step in costs.steps)
    assert [source for source, _ in costs.sources()] == [CostSource.MODEL, CostSource.SHEET]


def test_the_problem_of_a_trace(program: Program, graph: KernelGraph) -> None:
    machine = machine_of("a100,l40s")
    planning = problem_of(graph, machine, estimate_costs(program, graph, machine), slots=3)
    problem = planning.problem
    assert len(planning.task_of) == len(graph.nodes)
    assert set(planning.task_of) == set(range(len(problem.tasks)))
    for tensor in problem.tensors:
        assert tensor.bytes > 0
        assert all(reader > tensor.producer for reader in tensor.consumers)
    touched = {access.buffer for node in graph.nodes for access in node.accesses}
    expected = sum(
        buffer.bytes * (1 if buffer.role in (Role.WEIGHT, Role.VARIABLE) else 3)
        for buffer in graph.buffers
        if buffer.id in touched
    )
    assert sum(resident.bytes for resident in problem.residents) == expected
    assert problem.rooms[0].bytes == 80 * 10**9 - (1 << 30)


@pytest.mark.parametrize("objective", SINGLE_OBJECTIVES)
def test_a_small_trace_is_planned(
    program: Program, graph: KernelGraph, objective: Objective
) -> None:
    machine = machine_of("a100,l40s")
    planning = problem_of(graph, machine, estimate_costs(program, graph, machine))
    choice = choose(planning.problem, objective)
    assert choice is not None
    assert choice.bound <= choice.best.value(objective)
    for replica in choice.best.replicas:
        assert len(planning.expand(replica.placement)) == len(graph.nodes)
    alone = [one for one in choice.candidates if one.name.startswith("single")]
    assert alone
    assert all(choice.best.value(objective) <= one.value(objective) for one in alone)


def test_a_pinned_step_stays_with_its_neighbours(graph: KernelGraph) -> None:
    free = groups_of(graph)
    middle = len(graph.nodes) // 2
    nodes = tuple(
        replace(node, pins=(Pin(Wording("touches anything")),)) if node.id == middle else node
        for node in graph.nodes
    )
    pinned = groups_of(replace(graph, nodes=nodes))
    for edge in graph.edges:
        if middle in (edge.source, edge.target):
            assert pinned[edge.source] == pinned[edge.target]
    assert len(set(pinned)) < len(set(free))


STATE = """//! tessera.trace 1
//! buffer s bytes=256 role=state
//! buffer x bytes=256 role=output
//! buffer y bytes=256 role=output
//! memcpy x+0 s+0 bytes=256
//! memcpy y+0 x+0 bytes=256
//! memcpy s+0 y+0 bytes=256
"""


def test_what_persists_stays_on_one_device() -> None:
    program = parse_trace(STATE)
    graph = AnalysisManager(program).get(Dependences).graph
    # Step 0 needs what step 2 left: they stay together; step 1 may go elsewhere and back.
    assert any(edge.carried and edge.moves_bytes for edge in graph.edges)
    assert groups_of(graph) == (0, 1, 0)


def graph_of(text: str) -> tuple[Program, KernelGraph]:
    program = parse_trace(text)
    return program, AnalysisManager(program).get(Dependences).graph


def part(name: str, text: str, requests: float) -> TracePart:
    program, graph = graph_of(text)
    costs = estimate_costs(program, graph, machine_of("a100,l40s"))
    return TracePart(name=name, graph=graph, costs=costs, requests=requests)


def test_lanes_hold_state_and_slots_the_rest() -> None:
    program, graph = graph_of(STATE)
    machine = machine_of("a100,l40s")
    costs = estimate_costs(program, graph, machine)
    problem = problem_of(graph, machine, costs, slots=3, lanes=5).problem
    assert {one.name: one.bytes for one in problem.residents} == {"s": 5 * 256, "x": 2 * 3 * 256}
    assert (problem.slots, problem.lanes) == (3, 5)
    assert problem_of(graph, machine, costs, slots=3).problem.lanes == 3


def test_a_loop_carried_cycle_limits_the_period() -> None:
    program, graph = graph_of(STATE)
    machine = machine_of("a100,l40s")
    costs = estimate_costs(program, graph, machine)
    for lanes in (1, 4):
        planning = problem_of(graph, machine, costs, slots=8, lanes=lanes)
        problem = planning.problem
        # Steps 0 and 2 on one GPU, step 1 on the other: the state waits for the way there and back.
        split = candidate_of(problem, "split", (((0, 1), 1.0),))
        times = request_times(problem, (0, 1))
        ((name, alone, length),) = times.cycles
        assert (name, alone) == ("s", False)
        assert length == pytest.approx(times.latency_ns)
        limits = {limit.text: limit.ns for limit in split.limits}
        assert limits["cycle s"] == pytest.approx(length / lanes)
        assert split.period_ns == pytest.approx(max(limits.values()))
        if lanes == 1:
            assert split.limits[0].text == "cycle s"
        assert slots_needed(split) >= 1


PREFILL = """//! tessera.trace 1
//! buffer w bytes=4096 role=weight
//! buffer kv bytes=1024 role=state
//! buffer x bytes=1024 role=output
//! memcpy x+0 w+0 bytes=1024
//! memcpy kv+0 x+0 bytes=1024
"""

DECODE = """//! tessera.trace 1
//! buffer w bytes=4096 role=weight
//! buffer kv bytes=1024 role=state
//! buffer y bytes=1024 role=output
//! memcpy y+0 kv+0 bytes=1024
//! memcpy y+0 w+1024 bytes=1024
"""


def test_a_mix_shares_weights_and_state() -> None:
    machine = machine_of("a100,l40s")
    parts = (part("prefill", PREFILL, 1.0), part("decode", DECODE, 16.0))
    planning = problem_of_mix(parts, machine, slots=2, lanes=3)
    problem = planning.problem
    sizes = sorted(one.bytes for one in problem.residents)
    # Of the weight, each trace reads its own kilobyte.
    assert sum(sizes) == 2 * 1024 + 3 * 1024 + 2 * 1024 + 2 * 1024
    assert planning.offsets == (0, 2)
    # What prefill leaves in the cache decode reads: they stay together.
    assert planning.task_of[1] == planning.task_of[2]
    alone = (0,) * len(problem.tasks)
    assert planning.expand_part(alone, 1) == (0, 0)
    found = candidate_of(problem, "alone", ((alone, 1.0),))
    first, second = (
        [c.on_device[0].ns for c in p.costs.steps if isinstance(c.on_device[0], Duration)]
        for p in parts
    )
    expected = sum(first) + 16 * sum(second)
    assert found.replicas[0].measure.loads[0] == pytest.approx(expected)
    assert found.latency_ns == pytest.approx(expected)


def test_what_more_would_buy() -> None:
    from benchmarks.planning.model_graphs import model_graph

    problem = model_graph("dense", 60, link="10Gb/s")
    choice = choose(problem)
    assert choice is not None
    found = {(one.kind, one.name): one for one in sensitivities(problem, choice)}
    assert found["links", "all"].gain > 0
    assert found["device", "a100-0"].gain > 0
    assert all(one.gain <= 1.0 + 1e-6 for one in found.values())
    assert not any(kind == "memory" for kind, _ in found)
    tight = model_graph("dense", 24, memory_scale=0.6)
    choice = choose(tight)
    assert choice is not None
    assert any(one.kind == "memory" for one in sensitivities(tight, choice))
    few = choose(replace(problem, slots=1))
    assert few is not None
    if few.best.limits[0].kind is LimitKind.SLOTS:
        assert sensitivities(replace(problem, slots=1), few)[0].kind in ("slots", "device")


def test_bytes_that_two_steps_read_are_one_tensor() -> None:
    """Two steps read three quarters each; all four quarters are sent to a device, and once."""
    x, part = "f16[64,64]", "f16[48,64]"
    lines = ["tessera.trace 1", "buffer x bytes=8192 role=input", "buffer w bytes=8192 role=weight"]
    lines += [f"buffer {name} bytes=8192 role=temp" for name in "tab"]
    lines += [f"op aten::mm reads=[x:{x},w:{x}] writes=[t:{x}]"]
    lines += [f"op aten::relu reads=[t:{part}] writes=[a:{part}]"]
    lines += [f"op aten::relu reads=[t+2048:{part}] writes=[b:{part}]"]
    made = parse_trace("".join(f"//! {line}\n" for line in lines))
    tensors = list(tensors_of(AnalysisManager(made).get(Dependences).graph, 0, 1.0))
    assert {tensor.consumers: tensor.bytes for tensor in tensors} == {
        (1, 2): 4096,
        (1,): 2048,
        (2,): 2048,
    }
    # Each step waits for bytes of its own: lowering makes two transfers, 0:6144 and 6144:8192.
    assert {t.consumers: t.count for t in tensors} == {(1,): 1, (2,): 1, (1, 2): 0}


def test_no_plan_makes_fewer_transfers_than_the_problem_counts() -> None:
    """Steps that read several tensors, on devices at random; and `q`, `k`, `v` count as one."""
    equal = 0
    for seed in range(least(30, 5)):
        model = exchange_model(seed, "abc"[: 2 + seed % 2])
        (served,), (lowered,) = model.traces, model.lowered.traces
        graph = AnalysisManager(served.program).get(Dependences).graph
        where = {
            int(queued.operation.step): program.device
            for program in lowered.programs
            for queued in program.operations
            if isinstance(queued.operation, Run)
        }
        counted: Counter[tuple[str, str]] = Counter()
        for tensor in tensors_of(graph, 0, 1.0):
            source = where[tensor.producer]
            for target in {where[reader] for reader in tensor.consumers} - {source}:
                counted[source, target] += tensor.count  # type: ignore[assignment]
        made = Counter((t.source, t.target) for t in lowered.transfers)
        for way, count in counted.items():
            assert count <= made[way] + 1e-9, (seed, way)
            equal += abs(count - made[way]) < 1e-9
    assert equal > least(20, 0)


def test_pieces_of_a_buffer_are_held_by_the_steps_around_them() -> None:
    """Against counting byte by byte."""
    rng = random.Random(38)
    for _ in range(200):
        size = rng.choice((1, 16, 100))
        touched: list[tuple[int, Region]] = []
        for step in range(rng.randrange(6)):
            start = rng.randrange(size)
            count = rng.randint(1, 1 + (size - start - 1) // 3)
            rows = Affine((Descriptor(start, 1, (Dimension(3, count),)),))
            touched.append((step // 2, rng.choice((rows, Interval(start, size)))))
        bytes_of: dict[int, set[int]] = {}
        for step, region in touched:
            for start, end in region_intervals(region, size):
                bytes_of.setdefault(step, set()).update(range(start, end))
        users: dict[tuple[int, ...], int] = {}
        for byte in range(size):
            who = tuple(step for step, own in bytes_of.items() if min(own) <= byte <= max(own))
            if who:
                users[who] = users.get(who, 0) + 1
        assert pieces_of(size, touched) == users
