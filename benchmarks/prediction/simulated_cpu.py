"""What the simulator says against what the CPU backend does: kernels that sleep, throttled links.

    python -m benchmarks.prediction.simulated_cpu [--plans 50] [--scale 1] [--jobs 1]

Random steps on 2 to 6 devices, in four families: plain, with memory that is reused so that compute
waits for sends, with gates, and mixes of two traces. Every plan is simulated with the rules of
processes (`process_hardware`) and run three times by the CPU backend; medians count. Throughput is
over the same number of requests in the steady state, latency the median of those. Goes on from what
`benchmarks/results/simulated_cpu.json` has: what was measured stays, what is simulated is simulated
anew; delete it to begin anew. On a busy machine a longer
`--scale` makes less of what other processes take.
"""

from __future__ import annotations

import itertools
import json
import random
import statistics
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.common import arguments, kept, machine, write
from tessera.backend.host_loop.dispatch import Dispatcher
from tessera.backend.processes.workers import CpuBackend
from tessera.backend.service import BackendOptions, Completion, Model
from tessera.ir.plan.launch_program import LoweredReplica
from tessera.ir.plan.plan import PlacedStep, PlacedTrace, Replica
from tessera.ir.program.program import Program
from tessera.simulation.hardware import process_hardware
from tessera.simulation.intake import sequence_turns
from tessera.simulation.simulate import alone, percentile
from tessera.simulation.steady import round_of, saturate
from tests.helpers.served import Ask, inputs_of, model_of
from tests.helpers.traces import trace

FAMILIES = ("plain", "plain", "reuse", "gates", "mixes")
REPEATS = 3
WORDS = 64
NAP_MS = (20, 50)
SEND_MS = (10, 40)
MATTERS = 0.05
THROUGHPUT_OFF, LATENCY_OFF = 0.05, 0.10

# out[i] = x[i] + y[i], after a sleep of any length; `nanosleep` of a GPU has a limit.
NAP = """
.visible .entry nap(.param .u64 .ptr .global out, .param .u64 .ptr .global x,
                    .param .u64 .ptr .global y, .param .u32 nanoseconds)
{
    .reg .b32 %r<6>;
    .reg .b64 %rd<5>;
    ld.param.u32 %r0, [nanoseconds];
    nanosleep.u32 %r0;
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %rd4, %r2, 4;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [x];
    ld.param.u64 %rd3, [y];
    add.s64 %rd1, %rd1, %rd4;
    add.s64 %rd2, %rd2, %rd4;
    add.s64 %rd3, %rd3, %rd4;
    ld.global.u32 %r3, [%rd2];
    ld.global.u32 %r4, [%rd3];
    add.u32 %r5, %r3, %r4;
    st.global.u32 [%rd1], %r5;
    ret;
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A plan: programs, where their steps are, how long they take, and how requests come."""

    family: str
    programs: tuple[Program, ...]
    placements: tuple[tuple[str, ...], ...]
    milliseconds: tuple[tuple[int, ...], ...]
    shares: tuple[float, ...]
    slots: int
    bytes_per_s: float
    roomy: bool
    gates: tuple[int | None, ...]


def random_program(rng: random.Random, scale: int) -> tuple[Program, tuple[int, ...]]:
    """Steps that need one or two of those before, and the sleep of each."""
    count = rng.randint(4, 8)
    names = [*(f"t{number}" for number in range(count - 1)), "y"]
    sleeps = tuple(scale * rng.randint(*NAP_MS) for _ in names)
    size = 4 * WORDS
    buffers = [f"buffer x bytes={size} role=input dtype=u32 shape={WORDS}"]
    steps = []
    for number, (name, sleep) in enumerate(zip(names, sleeps, strict=True)):
        role = "output" if name == "y" else "temp"
        buffers.append(f"buffer {name} bytes={size} role={role} dtype=u32 shape={WORDS}")
        made = ["x", *names[:number]]
        first = made[-1] if rng.random() < 0.6 else rng.choice(made)
        steps.append(
            f"launch m.nap grid=1,1,1 block={WORDS},1,1 "
            f"args=[{name}, {first}, {rng.choice(made[-3:])}, u32:{sleep * 1_000_000}]"
        )
    return trace("\n".join(buffers), NAP, "\n".join(steps)), sleeps


def case_of(number: int, scale: int) -> Case:
    """The plan of a number: the same every time. Reuse and gates make a difference in it."""
    for seed in itertools.count(1000 * number):
        case = random_case(number, seed, scale)
        plain = replace(case, roomy=True, gates=(None,) * len(case.gates))
        if case == plain:
            return case
        pairs = zip(simulated_ns(case), simulated_ns(plain), strict=True)
        if any(abs(one / other - 1) > MATTERS for one, other in pairs):
            return case
    raise AssertionError("seeds do not end")


def simulated_ns(case: Case) -> tuple[float, float, float]:
    """The period, the latency of a request among others, and of one alone."""
    lowered = model_of_case(case).lowered
    hardware = process_hardware(lowered.devices, case.bytes_per_s)
    replicas = [replica_of(case, lowered)]
    simulation = saturate(replicas, case.shares, hardware)
    return simulation.period_ns, simulation.latency_ns, alone(replicas, case.shares, hardware)


def random_case(number: int, seed: int, scale: int) -> Case:
    """One plan of the family that is due."""
    rng = random.Random(seed)
    family = FAMILIES[number % len(FAMILIES)]
    devices = [f"d{index}" for index in range(2 + number % 5)]
    made = [random_program(rng, scale) for _ in range(2 if family == "mixes" else 1)]
    placements = []
    for program, _ in made:
        count = len(list(program.work()))
        steps = [rng.choice(devices) for _ in range(count)]
        if family == "gates" or rng.random() < 0.5:  # one piece after the other
            steps.sort()
        placements.append(tuple(steps))
    return Case(
        family=family,
        programs=tuple(program for program, _ in made),
        placements=tuple(placements),
        milliseconds=tuple(sleeps for _, sleeps in made),
        shares=(1.0,) if len(made) == 1 else (float(rng.randint(1, 3)), 1.0),
        slots=rng.randint(3, 6) if family == "gates" else rng.randint(1, 5),
        bytes_per_s=4 * WORDS / (scale * rng.randint(*SEND_MS) / 1e3),
        roomy=family != "reuse",
        gates=tuple(
            rng.randrange(max(1, len(sleeps) // 2)) if family == "gates" else None
            for _, sleeps in made
        ),
    )


def model_of_case(case: Case) -> Model:
    """What the backend gets."""
    devices = {device for placement in case.placements for device in placement}
    model = model_of(
        case.programs,
        case.placements,
        slots=case.slots,
        lanes=case.slots,
        roomy=devices if case.roomy else (),
    )
    traces = tuple(
        replace(own, gate=gate) for own, gate in zip(model.lowered.traces, case.gates, strict=True)
    )
    return replace(model, lowered=replace(model.lowered, traces=traces))


def replica_of(case: Case, lowered: LoweredReplica) -> Replica:
    """What the simulator gets."""
    return Replica(
        share=1.0,
        slots=lowered.slots,
        lanes=lowered.lanes,
        traces=tuple(
            PlacedTrace(trace=index, steps=tuple(_steps(placement, sleeps)), transfers=())
            for index, (placement, sleeps) in enumerate(
                zip(case.placements, case.milliseconds, strict=True)
            )
        ),
        lowered=lowered,
    )


def _steps(placement: Sequence[str], sleeps: Sequence[int]) -> Iterator[PlacedStep]:
    for step, (device, sleep) in enumerate(zip(placement, sleeps, strict=True)):
        yield PlacedStep(
            step=step,
            name=f"nap {step}",
            device=device,
            arch="sm_80",
            predicted_ns=sleep * 1e6,
            error=0.0,
            source="given",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One repeat, in seconds: between requests, of a request among others, of one alone."""

    period: float
    latency: float
    alone: float


def measure(case: Case, model: Model, replica: Replica) -> list[Measured]:
    """All repeats, one after the other."""
    a_round = round_of(replica, case.shares, 1)
    options = BackendOptions(throttle_bytes_per_s=case.bytes_per_s)
    slots = model.lowered.slots
    dispatcher = Dispatcher(CpuBackend(model, options), slots=slots, lanes=model.lowered.lanes)
    found = []
    try:
        for _ in range(REPEATS):
            unloaded = sum(
                share * _one(dispatcher, model, index) for index, share in enumerate(case.shares)
            ) / sum(case.shares)
            turns = sequence_turns(case.shares, model.lowered.lanes)
            handles = []
            # A round to fill the pipeline, two that count, and some more until those are over.
            for seed in range(3 * a_round + 2 * slots):
                index, lane = next(turns)
                ask = Ask(seed, trace=index, lane=lane)
                handles.append(dispatcher.submit(inputs_of(model, ask), trace=index, lane=lane))
            done: list[Completion] = [handle.result(120) for handle in handles]
            done.sort(key=lambda one: one.ended_ns)
            first, counted = done[a_round - 1], done[a_round : 3 * a_round]
            period = (counted[-1].ended_ns - first.ended_ns) / len(counted)
            latency = percentile(sorted(one.ended_ns - one.started_ns for one in counted), 0.5)
            found.append(Measured(period=period / 1e9, latency=latency / 1e9, alone=unloaded))
    finally:
        dispatcher.close(wait=False)
    return found


def _one(dispatcher: Dispatcher, model: Model, index: int) -> float:
    """The seconds of a request that finds everything free."""
    ask = Ask(0, trace=index)
    done = dispatcher.submit(inputs_of(model, ask), trace=index, lane=0).result(120)
    return float(done.ended_ns - done.started_ns) / 1e9


def compare(number: int, scale: int) -> dict[str, Any]:
    """One plan, simulated and run."""
    case = case_of(number, scale)
    model = model_of_case(case)
    runs = measure(case, model, replica_of(case, model.lowered))
    return judged(
        {
            "plan": number,
            "scale": scale,
            "family": case.family,
            "devices": len(model.lowered.devices),
            "slots": model.lowered.slots,
            "steps": [len(sleeps) for sleeps in case.milliseconds],
            "period_ms": [round(run.period * 1e3, 2) for run in runs],
            "latency_ms": [round(run.latency * 1e3, 2) for run in runs],
            "alone_ms": [round(run.alone * 1e3, 2) for run in runs],
            "load": machine()["load"],
        }
    )


def judged(row: dict[str, Any]) -> dict[str, Any]:
    """What was measured beside what is simulated now."""
    simulated = [ns / 1e6 for ns in simulated_ns(case_of(row["plan"], row["scale"]))]
    names = ("period", "latency", "alone")
    made = {
        f"simulated_{name}_ms": round(one, 2) for name, one in zip(names, simulated, strict=True)
    }
    period, latency, unloaded = (statistics.median(row[f"{name}_ms"]) for name in names)
    return {
        **row,
        **made,
        "throughput_off": round(simulated[0] / period - 1, 4),
        "latency_off": round(latency / simulated[1] - 1, 4),
        "alone_off": round(unloaded / simulated[2] - 1, 4),
    }


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How many are within the bounds, and where this ran."""
    throughput = [abs(row["throughput_off"]) for row in rows]
    latency = [abs(row["latency_off"]) for row in rows]
    good = sum(
        one <= THROUGHPUT_OFF and other <= LATENCY_OFF
        for one, other in zip(throughput, latency, strict=True)
    )
    return {
        **machine(),
        "bounds": {"throughput": THROUGHPUT_OFF, "latency": LATENCY_OFF},
        "plans": len(rows),
        "within": good,
        "median_off": {
            "throughput": round(statistics.median(throughput), 4),
            "latency": round(statistics.median(latency), 4),
        },
        "worst_off": {"throughput": max(throughput), "latency": max(latency)},
        "rows": list(rows),
    }


def main() -> None:
    options = arguments(__doc__, "simulated_cpu.json")
    options.add_argument("--plans", type=int, default=50)
    options.add_argument("--only", type=int, help="one plan, which is printed and not kept")
    options.add_argument("--scale", type=int, default=1, help="factor of all times")
    options.add_argument("--jobs", type=int, default=1, help="plans at a time")
    given = options.parse_args()
    if given.only is not None:
        print(json.dumps(compare(given.only, given.scale), indent=2))
        return
    rows = [judged(row) for row in kept(given.output).get("rows", [])]
    known = {row["plan"] for row in rows}
    left = [number for number in range(given.plans) if number not in known]
    with ThreadPoolExecutor(given.jobs) as pool:
        _keep(rows, pool.map(lambda number: compare(number, given.scale), left), given.output)
    found = summary(rows)
    write(found, given.output)
    print(f"{found['within']} of {found['plans']} plans are within the bounds")


def _keep(rows: list[dict[str, Any]], found: Iterable[dict[str, Any]], output: Path) -> None:
    for row in found:
        rows.append(row)
        write(summary(rows), output)
        print(
            f"{row['plan']:3} {row['family']:6} throughput {row['throughput_off']:+.1%} "
            f"latency {row['latency_off']:+.1%} load {row['load']}",
            flush=True,
        )


if __name__ == "__main__":
    main()
