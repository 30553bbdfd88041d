"""Steps predicted from a profile, and runs of the plans that were made from it, on one machine.

    python -m benchmarks.prediction.profiled_runs measure --work FOLDER -o FILE    # on a GPU
    python -m benchmarks.prediction.profiled_runs run --work FOLDER -o FILE        # on that GPU
    python -m benchmarks.prediction.profiled_runs compare --work FOLDER --from FILE FILE -o FILE

The captured steps of `unseen_steps`, each with two processes. `measure` profiles a trace as
`tessc profile` does, and has `tessc plan` make a plan from it, for latency and for throughput; the
row is what these say. `run` runs the second plan with `tessera.Runtime`'s parts for some seconds,
one request at a time and then back to back: `short` is the first second after a pause, `long` is
what is left after two. A step with caches is at the end of them; more sequences than one are there
so that it stays within a sixteenth of that. Weights are from a seed, but routers are as
`unseen_steps` makes them (normal with a deviation of 0.05, biases of zero), in both processes.

`compare` puts both rows side by side: the latency that was promised beside that of requests one at
a time, the period beside that of requests back to back.
"""

from __future__ import annotations

import fcntl
import json
import lzma
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

from benchmarks.cases import parser_of, run_cases
from benchmarks.common import RESULTS, Row, tessc, write
from benchmarks.prediction.profiled_steps import NEAR, PROFILE, context_of, integers, unpack
from benchmarks.prediction.unseen_steps import STEPS, file_of
from tessera.backend.cuda.targets import open_driver
from tessera.backend.service import Completion
from tessera.driver.load import load
from tessera.driver.profile import profile_trace as profiling
from tessera.driver.profile.trace_timer import ProfileOptions, open_contexts
from tessera.driver.run.options import PlanRunOptions
from tessera.driver.run.run_plan import Prepared, prepare_run
from tessera.driver.run.serving import Serving
from tessera.frontend.contents.write import write_contents
from tessera.ir.plan.launch_program import Queue
from tessera.ir.program.program import Program, Role

if TYPE_CHECKING:
    from tessera.backend.cuda.api import Driver

RESULT = RESULTS / "profiled_runs.json"
AIMS, PROMISED = ("latency", "throughput"), ".promised.json"
COMPUTE = Queue.COMPUTE
SHORT_S, SETTLE_S, LONG_S, PAUSE_S = 1.0, 2.0, 3.0, 0.5
# The first requests of a load find an idle GPU.
UNTIMED = 3
LEAST = 3  # requests that a figure needs
# A cache is at most this part of its length from its end.
ROOM = 16
ROUTER_DEVIATION = 0.05
ROUTERS, BIASES = (".gate.weight", ".router.weight"), (".e_score_correction_bias", ".router.bias")


# --- what both processes share ----------------------------------------------------------------


def contents(program: Program, name: str, room: int) -> dict[str, Any]:
    """Contents that a seed does not give: integers, with `room` left in caches, and routers."""
    made = integers(program, context_of(name) - room + 1)
    random = np.random.default_rng(1)
    for buffer in program.buffers:
        if buffer.role is Role.WEIGHT and buffer.name.endswith(ROUTERS):
            values = random.normal(0, ROUTER_DEVIATION, buffer.shape or ()).astype(np.float32)
            made[buffer.name] = (values.view(np.uint32) >> 16).astype("<u2")
        elif buffer.role is Role.WEIGHT and buffer.name.endswith(BIASES):
            made[buffer.name] = np.zeros(buffer.bytes, np.uint8)
    return made


def write_file(path: Path, program: Program, name: str, room: int) -> Path:
    """A file of these contents. It can be mapped, so what it lacks needs no memory of the host."""
    made = contents(program, name, room)
    buffers = (buffer for buffer in program.declared_buffers() if buffer.name in made)
    rows = [(buffer, np.atleast_1d(made[buffer.name]).view(np.uint8).ravel()) for buffer in buffers]
    write_contents(path, rows)
    return path


def trace_of(work: Path, name: str) -> Path:
    """The trace, unpacked; its name is that of the packed file."""
    packed = file_of(work, name, ".ptx.xz")
    trace = packed.with_suffix("")
    trace.write_bytes(lzma.decompress(packed.read_bytes()))
    return trace


def plan_of(work: Path, name: str, aim: str) -> Path:
    return file_of(work, name, f".{aim}.tsp")


@contextmanager
def in_turn(work: Path, name: str, stage: str) -> Iterator[None]:
    """Inside, no other case uses the GPU, and none is still being prepared."""
    file_of(work, name, f".{stage}").touch()
    wanted = json.loads((work / "cases.json").read_text())
    while not all(file_of(work, each, f".{stage}").exists() for each in wanted):
        time.sleep(0.2)
    with (work / "turn").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield


def case(one: Callable[[Path, str], Row], stage: str, work: Path, name: str) -> Row:
    """A case; one that fails holds up no other."""
    try:
        return one(work, name)
    finally:
        file_of(work, name, f".{stage}").touch()


# --- stages -----------------------------------------------------------------------------------


def profiled(work: Path, name: str) -> Row:
    """A profile of a trace, and what plans that are made from it promise."""
    trace = trace_of(work, name)
    program = load(trace)
    data = write_file(file_of(work, name, ".safetensors"), program, name, 1)
    compile_early(program)

    @contextmanager
    def opened(driver: Driver, ordinals: Sequence[int]) -> Iterator[None]:
        with in_turn(work, name, "measure"), open_contexts(driver, ordinals):
            yield

    begun = time.perf_counter()
    with mock.patch.object(profiling, "open_contexts", opened):
        made = profiling.profile(trace, ProfileOptions(devices="h200", data=str(data), repeats=5))
    row: Row = {"profile_s": round(time.perf_counter() - begun, 1), "wholes": made["wholes"]}
    path = file_of(work, name, PROFILE)
    path.write_text(profiling.profile_text(made))
    for aim in AIMS:
        row[aim] = promised(trace, plan_of(work, name, aim), aim, "--profile", str(path))
    write(row, file_of(work, name, PROMISED))
    return row


def compile_early(program: Program) -> None:
    """Have the driver compile all modules, so that it finds them in its cache later."""
    driver = open_driver(None)
    driver.use(driver.retain(0))  # until the process ends
    for module in program.modules:
        for variant in module.variants:
            with suppress(Exception):  # the backend says what is wrong
                driver.unload(driver.load(variant.text.encode("utf-8", "surrogateescape")))


def promised(trace: Path, plan: Path, aim: str, *more: str) -> Row:
    """What the planner says of the whole GPU."""
    words = ("--gpus", "h200", "--objective", aim, "-o", str(plan), "--json", *more)
    report = json.loads(tessc("plan", str(trace), *words))
    (device,) = report["devices"]
    kept = ("latency_ns", "period_ns", "low", "high", "sources", "host_call_ns")
    slots = [replica["slots"] for replica in report["replicas"]]
    return {"device": device["name"], "busy_ns": device["busy_ns"], "slots": slots} | {
        key: report[key] for key in kept
    }


def ran(work: Path, name: str) -> Row:
    """A run of the plan for throughput."""
    plan = plan_of(work, name, "throughput")
    said = json.loads(file_of(work, name, PROMISED).read_text())["throughput"]
    program = load(trace_of(work, name))
    wanted = round(1.5e9 * 2 * LONG_S / said["busy_ns"])
    has_states = any(buffer.role is Role.STATE for buffer in program.buffers)
    room = max(context_of(name) // ROOM, 1) if has_states else wanted
    lanes = max(-(-wanted // room), *said["slots"])
    ending = ".run.safetensors"
    data = write_file(file_of(work, name, ending), program, name, room if has_states else 1)
    options = PlanRunOptions(
        targets=f"{said['device']}=cuda:0",
        data=str(data),
        sequences=lanes,
        timeline=False,
        requests=1,
    )
    prepared = prepare_run(str(plan), options)
    with in_turn(work, name, "run"):
        begun = time.perf_counter()
        serving = Serving(prepared.opened, prepared.materials, prepared.choice, options)
        try:
            row: Row = {"sequences": lanes, "load_s": round(time.perf_counter() - begun, 1)}
            numbers = iter(range(lanes * room))
            for key, one_by_one in (("one_by_one", True), ("back_to_back", False)):
                time.sleep(PAUSE_S)
                done = requests(serving, prepared, numbers, one_by_one=one_by_one)
                row[key] = {"requests": len(done)} | dict(figures(done))
        finally:
            serving.close(wait=False)
    return row


def requests(
    serving: Serving, prepared: Prepared, numbers: Iterator[int], *, one_by_one: bool
) -> list[Completion]:
    """Requests for `LONG_S` seconds, in all sequences in turn, without their outputs."""
    inputs = prepared.materials.inputs(0, 0, 0)
    until = time.perf_counter() + LONG_S
    handles = []
    for number in numbers:
        handle = serving.submit(
            inputs,
            sequence=number % len(serving.sequences),
            trace=0,
            number=number,
            finish=lambda completion: replace(completion, outputs={}),
        )
        handles.append(handle)
        if one_by_one:
            handle.result()
        if time.perf_counter() > until and len(handles) >= UNTIMED + LEAST:
            break
    return [handle.result() for handle in handles]


def figures(done: Sequence[Completion]) -> Iterable[tuple[str, Row]]:
    """What requests took, in the first second and after two."""
    begun = done[0].started_ns
    windows = {"short": (0.0, SHORT_S), "long": (SETTLE_S, float("inf"))}
    for key, (first, last) in windows.items():
        within = [one for one in done[UNTIMED:] if first <= (one.ended_ns - begun) / 1e9 <= last]
        if len(within) < LEAST:
            continue
        ended = [one.ended_ns for one in within]
        computed = [
            sum(event.end_ns - event.start_ns for event in one.events if event.queue is COMPUTE)
            for one in within
        ]
        yield (
            key,
            {
                "latency_ns": statistics.median(one.ended_ns - one.started_ns for one in within),
                "period_ns": round((ended[-1] - ended[0]) / (len(ended) - 1), 1),
                "computed_ns": statistics.median(computed),
                "requests": len(within),
            },
        )


def compare(files: Sequence[Path], target: Path) -> None:
    """Promises beside runs."""
    promises, runs = (json.loads(path.read_text())["rows"] for path in files)
    rows = {
        name: beside(promises[name], runs[name])
        for name in STEPS
        if all("failed" not in rows.get(name, {"failed": ""}) for rows in (promises, runs))
    }
    document: Row = {"schema": "tessera-profiled-runs/1", "steps": len(rows)}
    for key in ("latency_short", "latency_long", "period_short", "period_long"):
        ratios = [row["ratios"][key] for row in rows.values()]
        document[f"{key}_within_5_percent"] = sum(abs(ratio - 1) <= NEAR for ratio in ratios)
    write({**document, "rows": rows}, target)
    print(json.dumps(document, indent=1))


def beside(promise: Row, run: Row) -> Row:
    """A promise and a run, with what was promised over what was measured."""
    said = {
        "latency": promise["latency"]["latency_ns"],
        "period": promise["throughput"]["period_ns"],
    }
    of = {"latency": run["one_by_one"], "period": run["back_to_back"]}
    ratios = {
        f"{key}_{window}": round(said[key] / of[key][window][f"{key}_ns"], 4)
        for key in said
        for window in ("short", "long")
    }
    return {"promised": promise, "ran": run, "ratios": ratios}


def names_of(options: Any) -> tuple[str, ...]:
    """The cases; those that wait for each other are named in a file."""
    options.work.mkdir(parents=True, exist_ok=True)
    if options.one:
        return tuple(STEPS)
    names = tuple(unpack(options.work))
    wanted = [name for name in options.only.split(",") if name] or list(names)
    (options.work / "cases.json").write_text(json.dumps(wanted))
    return names


def main() -> None:
    parser = parser_of(__doc__, seconds=300.0, jobs=len(STEPS))
    parser.add_argument("stage", choices=("measure", "run", "compare"))
    parser.add_argument("--from", type=Path, nargs=2, dest="files", metavar="FILE")
    options = parser.parse_args()
    if options.stage == "compare":
        compare(options.files, options.output or RESULT)
        return
    one = {"measure": profiled, "run": ran}[options.stage]
    run_cases(
        "benchmarks.prediction.profiled_runs",
        names_of(options),
        options,
        partial(case, one, options.stage, options.work),
        more=(options.stage,),
    )


if __name__ == "__main__":
    main()
