"""A better input gives a plan that is worse by at most the gap that it prints.

Links, memory, devices, slots, sequences, and times: the plan of the poorer input is one for the
better input, too, so a bound that no plan beats is below it. Searches end by counts, not by clocks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tessera.diagnostics import ExitCode, TesseraError
from tessera.driver.plan import PlanOptions, plan
from tessera.frontend.machine.gpus import machine_of
from tessera.ir.objectives import SINGLE_OBJECTIVES, Objective
from tessera.ir.plan.machine import Machine
from tessera.ir.plan.plan import Plan
from tessera.planning.problem.plan_problem import RESERVED_BYTES
from tessera.planning.problem.problem import Problem, restrict
from tessera.planning.search.plans import choose
from tessera.planning.search.solve import SolveOptions
from tests.helpers.planning import constrained, layered, random_problem
from tests.helpers.share import least, share

BUDGET = SolveOptions(max_nodes=20)
ROUNDING = 1 + 1e-6
FACTORS = (1.05, 1.5, 2.0, 4.0)
KINDS = ("a100", "l40s", "h100", "rtx-pro-6000")

# --- problems of the planner ------------------------------------------------------------------


def _slower_links(rng: random.Random, p: Problem) -> Problem:
    factor = rng.choice(FACTORS)
    return replace(
        p,
        wires=tuple(replace(w, ns_per_byte=w.ns_per_byte * factor) for w in p.wires),
        pipes=tuple(replace(q, ns_per_byte=q.ns_per_byte * factor) for q in p.pipes),
    )


def _later_links(rng: random.Random, p: Problem) -> Problem:
    return replace(p, wires=tuple(replace(w, latency_ns=w.latency_ns * 2 + 3) for w in p.wires))


def _dearer_transfers(rng: random.Random, p: Problem) -> Problem:
    return replace(p, transfer_ns=p.transfer_ns * rng.choice(FACTORS) + 1)


def _less_memory(rng: random.Random, p: Problem) -> Problem:
    short = rng.randrange(len(p.rooms))
    rooms = (
        replace(room, bytes=int(room.bytes / rng.choice(FACTORS))) if n == short else room
        for n, room in enumerate(p.rooms)
    )
    return replace(p, rooms=tuple(rooms))


def _without_a_device(rng: random.Random, p: Problem) -> Problem:
    gone = rng.randrange(len(p.devices))
    return restrict(p, tuple(device for device in range(len(p.devices)) if device != gone))


def _slower_device(rng: random.Random, p: Problem) -> Problem:
    slow, factor = rng.randrange(len(p.devices)), rng.choice(FACTORS)
    tasks = (
        replace(
            task,
            ns=tuple(ns and ns * (factor if d == slow else 1) for d, ns in enumerate(task.ns)),
        )
        for task in p.tasks
    )
    return replace(p, tasks=tuple(tasks))


def _fewer_slots(rng: random.Random, p: Problem) -> Problem:
    return replace(p, slots=max(1, (p.slots or 4) - 1))


def _fewer_sequences(rng: random.Random, p: Problem) -> Problem:
    return replace(p, lanes=max(1, (p.lanes or 4) - 1))


POORER: Mapping[str, Callable[[random.Random, Problem], Problem]] = {
    "links": _slower_links,
    "latency": _later_links,
    "transfers": _dearer_transfers,
    "memory": _less_memory,
    "device": _without_a_device,
    "speed": _slower_device,
    "slots": _fewer_slots,
    "sequences": _fewer_sequences,
}


def _problem(rng: random.Random, seed: int, most: int) -> Problem:
    shape = rng.randrange(3)
    if shape == 0:
        return constrained(seed, rng.randrange(4, most), rng.choice((2, 2, 3)))
    if shape == 1:
        made = layered(seed, rng.randrange(3, 8), rng.choice((3, 4)))
        return replace(made, slots=rng.choice((None, 1, 2, 4)))
    return random_problem(seed, rng.randrange(6, most), rng.choice((2, 3, 5)))


def _check_problem(seed: int, objective: Objective) -> str:
    rng = random.Random(seed)
    rich = _problem(rng, seed, 40 if objective == "latency" else 12)
    kind = rng.choice(list(POORER))
    poorer = choose(POORER[kind](rng, rich), objective, BUDGET)
    if poorer is None:
        return "none"
    richer = choose(rich, objective, BUDGET)
    assert richer is not None, (seed, kind)
    assert richer.bound <= poorer.best.value(objective) * ROUNDING, (seed, kind)
    allowed = poorer.best.value(objective) * (1 + richer.gap)
    assert richer.best.value(objective) <= allowed * ROUNDING, (seed, kind)
    return kind


@pytest.mark.parametrize("objective", SINGLE_OBJECTIVES)
def test_problems(objective: Objective) -> None:
    assert len({_check_problem(seed, objective) for seed in share(range(20))}) > least(4, 1)


@pytest.mark.slow
@pytest.mark.parametrize("objective", SINGLE_OBJECTIVES)
def test_many_problems(objective: Objective) -> None:
    came = [_check_problem(seed, objective) for seed in range(1000, 2200)]
    assert min(came.count(kind) for kind in POORER) > 60


# --- what `tessc plan` prints -----------------------------------------------------------------


def _trace(rng: random.Random, path: Path) -> int:
    """Products over a random graph, some side by side, some with a state; its bytes in all."""
    rows, wide = rng.choice((1, 16, 256, 2048)), rng.choice((1024, 2048, 4096))
    x, size = f"f16[{rows},{wide}]", 2 * rows * wide
    buffers, steps, made = {"x": (size, "input"), "out": (size, "output")}, [], ["x"]
    side = rng.choice((1, 1, 2))
    for n in range(rng.randint(3, 9) * side):
        buffers[f"t{n}"], first = (size, "temp"), rng.choice(made[-2 * side :])
        if rng.random() < 0.6:
            buffers[f"w{n}"] = 2 * wide * wide, "weight"
            reads = f"{first}:{x},w{n}:f16[{wide},{wide}]"
            steps.append(f"op aten::mm reads=[{reads}] writes=[t{n}:{x}]")
        else:
            reads = f"{first}:{x},{rng.choice(made)}:{x}"
            steps.append(f"op aten::add.Tensor reads=[{reads}] writes=[t{n}:{x}]")
        if rng.random() < 0.15:
            buffers[f"s{n}"] = size, "state"
            steps.append(f"op aten::add.Tensor reads=[s{n}:{x},t{n}:{x}] writes=[s{n}:{x}]")
        made.append(f"t{n}")
    steps.append(f"op aten::add.Tensor reads=[{made[-1]}:{x},{made[-2]}:{x}] writes=[out:{x}]")
    lines = [f"buffer {name} bytes={b} role={role}" for name, (b, role) in buffers.items()]
    path.write_text("".join(f"//! {line}\n" for line in ("tessera.trace 1", *lines, *steps)))
    return sum(b for b, _ in buffers.values())


def _with_links(machine: Machine, speed: float, latency: float) -> Machine:
    return replace(
        machine,
        links=tuple(
            replace(
                link,
                bytes_per_second=link.bytes_per_second * speed,
                latency_ns=link.latency_ns * latency,
            )
            for link in machine.links
        ),
        channels=tuple(
            replace(c, bytes_per_second=c.bytes_per_second * speed) for c in machine.channels
        ),
    )


def _with_memory(machine: Machine, card: int, size: float) -> Machine:
    cards = (
        replace(c, memory_bytes=RESERVED_BYTES + int(size)) if n == card else c
        for n, c in enumerate(machine.cards)
    )
    return replace(machine, cards=tuple(cards))


def _pair_of_inputs(
    rng: random.Random, size: int
) -> tuple[str, tuple[Machine, int | None], tuple[Machine, int | None]]:
    """What is better, and machine and slots: the better, and the poorer."""
    kinds = [rng.choice(KINDS) for _ in range(rng.choice((2, 2, 3)))]
    link, memory = rng.choice(("2GB/s", "12.5GB/s", "25GB/s", "100GB/s")), rng.random() < 0.6
    rooms = [size * rng.choice((0.6, 0.9, 1.2, 2.0, 4.0, 16.0)) for _ in kinds]

    def made(count: int) -> Machine:
        machine = machine_of(",".join(kinds[:count]), link, prices={}, memory={})
        for card in range(count) if memory else ():
            machine = _with_memory(machine, card, rooms[card])
        return machine

    rich, factor = made(len(kinds)), rng.choice((1.1, 1.5, 2.0, 4.0, 10.0))
    slots = rng.choice((None, None, 2, 4, 8))
    kind = rng.choice(("links", "latency", "transfers", "memory", "device", "slots"))
    poor, fewer = rich, slots
    if kind == "links":
        poor = _with_links(rich, 1 / factor, 1)
    elif kind == "latency":
        poor = _with_links(rich, 1, factor)
    elif kind == "transfers":
        poor = replace(rich, transfer_ns=rich.transfer_ns * factor)
    elif kind == "memory":
        poor = _with_memory(rich, 0, (rich.cards[0].memory_bytes - RESERVED_BYTES) / factor)
    elif kind == "device":
        poor = made(len(kinds) - 1)
    else:
        slots = slots or 4
        fewer = rng.randint(1, slots - 1)
    return kind, (rich, slots), (poor, fewer)


def _planned(trace: Path, machine: Machine, slots: int | None, objective: str) -> Plan | None:
    options = PlanOptions(machine=machine, slots=slots, objective=objective, tables=False)
    try:
        return plan(str(trace), options, compare=False).plan
    except TesseraError as refused:
        if refused.exit_code != ExitCode.NO_PLAN:
            raise
        return None


def _values(made: Plan) -> list[float]:
    values = {
        "throughput": [made.period_ns],
        "latency": [made.latency_ns],
        "cost": [made.usd_per_request],
        "latency+throughput": [made.latency_ns, made.period_ns],
    }
    return values[made.objective]


def _check_plan(seed: int, objective: str, trace: Path) -> str:
    rng = random.Random(seed)
    kind, better, poorer = _pair_of_inputs(rng, _trace(rng, trace))
    poor = _planned(trace, *poorer, objective)
    if poor is None:
        return "refused"
    rich = _planned(trace, *better, objective)
    if rich is None:
        assert kind == "slots", seed  # slots that are asked for need their memory
        return "refused"
    for value, other in zip(_values(rich), _values(poor), strict=True):
        assert value <= other * (1 + rich.gap) * ROUNDING, (seed, kind)
    return kind


OBJECTIVES = ["throughput", "latency", "cost", "latency+throughput"]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_plans(objective: str, tmp_path: Path) -> None:
    came = [_check_plan(seed, objective, tmp_path / "t.ptx") for seed in share(range(8))]
    assert len({*came}) > least(2, 0)


@pytest.mark.slow
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_many_plans(objective: str, tmp_path: Path) -> None:
    came = [_check_plan(seed, objective, tmp_path / "t.ptx") for seed in range(1000, 2100)]
    assert min(came.count(kind) for kind in ("links", "latency", "memory", "device", "slots")) > 60


@pytest.mark.parametrize("objective", share(SINGLE_OBJECTIVES))
def test_the_bound_of_slots_that_are_asked_for_holds_for_fewer(
    objective: str, tmp_path: Path
) -> None:
    """Two requests fit no GPU alone, so that two slots force a split over a slow link."""
    x, size, trace = "f16[2048,4096]", 2 * 2048 * 4096, tmp_path / "t.ptx"
    lines = ["tessera.trace 1", *(f"buffer s{n} bytes={size} role=state" for n in range(8))]
    lines += [f"buffer t{n} bytes={size} role=temp" for n in range(9)]
    lines += ["buffer x bytes=8192 role=input", "buffer out bytes=8192 role=output"]
    row = "f16[1,4096]"
    lines += [f"op aten::add.Tensor reads=[x:{row},x:{row}] writes=[t0:{row}]"]
    for n in range(8):
        lines += [f"op aten::add.Tensor reads=[t{n}:{x},s{n}:{x}] writes=[t{n + 1}:{x}]"]
        lines += [f"op aten::add.Tensor reads=[t{n}:{x},s{n}:{x}] writes=[s{n}:{x}]"]
    lines += [f"op aten::add.Tensor reads=[t8:{row},t8:{row}] writes=[out:{row}]"]
    trace.write_text("".join(f"//! {line}\n" for line in lines))
    machine = machine_of("a100,a100", "2GB/s", prices={}, memory={})
    for card in range(2):
        machine = _with_memory(machine, card, 14 * size)
    one = _planned(trace, machine, 1, objective)
    two = _planned(trace, machine, 2, objective)
    assert one is not None
    assert two is not None
    for value, other in zip(_values(two), _values(one), strict=True):
        assert value <= other * (1 + two.gap) * ROUNDING
