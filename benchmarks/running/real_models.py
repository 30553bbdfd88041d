"""Whole-GPU plans of default captures against PyTorch's own compiled steps.

    python -m benchmarks.running.real_models run --out FOLDER [--jobs 6] [--seconds 600]
                                         [--modes default,max-autotune,reduce-overhead] [--trial]
    python -m benchmarks.running.real_models run --out FOLDER --warm [--jobs 8] [--seconds 600]
    python -m benchmarks.running.real_models report --out FOLDER [-o results.json]

`run` needs a GPU, torch and transformers. A process per case makes the model (`real_steps`),
captures it as `tessc trace` does, runs the plan that has everything on the whole GPU, has
torch.compile make the same step in its modes, captures these as graphs, and times all in turn:
medians of five rounds. First all cases are measured with the first mode alone, then once more with
all modes: there the model is captured for the second time, from what was kept (`second_capture_s`).
PyTorch's own steps share what was compiled and measured for ours. Each case is a file in the
folder; what is there is not measured again. A case that fails is a file with the reason. One that
takes too long is a file with as much as was measured, and is measured again by the next run.
Processes compile side by side, as many as the memory of the GPU has room for, and measure while
they hold the lock `gpu`; the log of a case says when each stage began and each product of a capture
was measured, and how long it has waited for the lock and held it.
`--warm` captures and compiles everything, and measures no step: a run
after it, on the same machine and with the same folder, finds it all compiled, and measures each
case once, with all modes.
`--tune-ms 20` has compilers measure every candidate, ours and PyTorch's, for a fifth of the time
that they take by default, and processes wait less for each other; rows say so (`tune_ms`).
`--trial` runs tiny versions of all cases without a GPU (`real_trial`), so that a fault of these
files shows before a GPU is there; its times mean nothing. It needs torch, triton and transformers.

A row has, in microseconds: `torch` by mode, `ours` (graphs of the plan one after the other,
with inputs from and outputs to the host) and `served` (requests through the dispatcher); `ratio` is
`ours` over the fastest of PyTorch's. `same_bytes`: outputs and states are those of the
captured callable as PyTorch runs it. `error` and `eager_error` are against the model in fp32: by
norm, and the largest by element over the largest element.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

ROUNDS = 5
LEAST_S = 0.1
UNFINISHED = "took too long"
BEGUN = time.monotonic()
LOCK = {"waited": 0.0, "held": 0.0, "times": 0.0}  # seconds, and how often
HOLDERS = threading.RLock()  # measuring one thing may make others be measured: in this process too
DEPTH = [0]
LEAST_LEFT_S = 45  # with less no case is begun
GPU_GB = 125  # of an H200, for all cases that are under way
MODES = ("default", "max-autotune", "reduce-overhead")  # the last one is never recompiled


def file_of(out: Path, name: str, route: str) -> Path:
    short = "".join(c if c.isalnum() else "_" for c in f"{name} {route}")
    return out / f"{short}.json"


# --- all cases -------------------------------------------------------------------------------


def run_all(options: argparse.Namespace) -> None:
    """Cases in order, a few at a time, each in a process of its own."""
    from benchmarks.running.real_steps import CASES

    until = time.monotonic() + options.seconds
    routes = options.routes.split(",")
    first = options.modes.partition(",")[0]
    todo = [
        (name, route, modes)
        for modes in dict.fromkeys((first, options.modes))
        for name in CASES
        for route in routes
        if wanted(name, options.only)
        and is_due(file_of(options.out, name, route), modes, options.modes, options.warm)
    ]
    running: dict[subprocess.Popen[bytes], tuple[str, str, float]] = {}
    while todo or running:
        now = time.monotonic()
        under_way = [name for name, _, _ in running.values()]
        room = GPU_GB - sum(CASES[name].gpu_gb for name in under_way)
        now_modes = [job for job in todo if job[2] == todo[0][2]]
        can = [j for j in now_modes if j[0] not in under_way and CASES[j[0]].gpu_gb <= room]
        if can and len(running) < options.jobs and now < until - LEAST_LEFT_S:
            name, route, modes = can[0]
            todo.remove(can[0])
            if is_due(file_of(options.out, name, route), modes, options.modes, options.warm):
                process = start(options, name, route, modes)
                running[process] = (name, route, min(until, now + CASES[name].limit_s))
            continue
        for process, (name, route, end) in list(running.items()):
            if process.poll() is None and now < end:
                continue
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # its own group: compilers, too
                process.wait()
            del running[process]
            known = file_of(options.out, name, route)
            if not known.exists():
                keep(options.out, name, route, {"failed": f"ended with {process.returncode}"})
            print(short(json.loads(known.read_text())), flush=True)
        if not running and now >= until - LEAST_LEFT_S:
            break
        time.sleep(0.2)
    for name, route, modes in todo:
        print(f"{name} ({route}): not measured with {modes}, no time was left", flush=True)


def is_due(path: Path, modes: str, all_modes: str, warm: bool) -> bool:
    """Whether a case has to be run with these modes; once only where all is compiled before."""
    row = json.loads(path.read_text()) if path.exists() else {}
    if modes != all_modes and (warm or "compiled" in row):
        return False
    return not is_measured(path, modes) and not (warm and "compiled" in row)


def is_measured(path: Path, modes: str) -> bool:
    """Whether a case was measured with these modes, or failed for a reason of its own."""
    row = json.loads(path.read_text()) if path.exists() else {"failed": UNFINISHED}
    if "failed" in row:
        return row["failed"] != UNFINISHED
    return set(modes.split(",")) <= {*row["torch"], *row.get("torch_failed", {})}


def wanted(name: str, only: str) -> bool:
    return any(part in name for part in only.split("|"))


def start(
    options: argparse.Namespace, name: str, route: str, modes: str
) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "benchmarks.running.real_models",
        "one",
        "--out",
        str(options.out),
    ]
    command += ["--name", name, "--routes", route, "--modes", modes]
    command += ["--kernels"] if options.kernels else []
    command += ["--warm"] if options.warm else []
    command += ["--trial"] if options.trial else []
    command += ["--tune-ms", str(options.tune_ms)]
    processes = str(max(2, 2 * (os.cpu_count() or 1) // options.jobs))
    given = os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": processes}
    given.setdefault("TESSERA_COMPILE_PROCESSES", processes)
    if options.tune_ms:
        given["TORCHINDUCTOR_DEFAULT_AUTOTUNE_REP"] = str(options.tune_ms)
        given["TORCHINDUCTOR_DEFAULT_AUTOTUNE_WARMUP"] = str(max(1, options.tune_ms // 4))
    log = file_of(options.out, name, route).with_suffix(".log").open("ab")
    return subprocess.Popen(
        command, env=given, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    )


def keep(out: Path, name: str, route: str, row: dict[str, Any]) -> None:
    text = json.dumps({"case": name, "route": route} | row, indent=1) + "\n"
    path = file_of(out, name, route)
    path.with_suffix(".part").write_text(text)
    path.with_suffix(".part").replace(path)


def short(row: dict[str, Any]) -> str:
    kept = {key: value for key, value in row.items() if key not in ("kernels", "torch_kernels")}
    return json.dumps(kept)


# --- one case --------------------------------------------------------------------------------


@contextmanager
def gpu(out: Path) -> Iterator[None]:
    """The GPU to oneself, among the processes of a run; who has it may ask for it again."""
    begun = time.monotonic()
    with HOLDERS, ExitStack() as stack:
        if not DEPTH[0]:
            stream = stack.enter_context((out / "gpu.lock").open("w"))
            fcntl.flock(stream, fcntl.LOCK_EX)
        got = time.monotonic()
        DEPTH[0] += 1
        try:
            yield
        finally:
            DEPTH[0] -= 1
            if not DEPTH[0]:
                LOCK["waited"] += got - begun
                LOCK["held"] += time.monotonic() - got
                LOCK["times"] += 1


def tell(stage: str) -> None:
    """A line in the log of a case: what begins now, and what the lock has taken so far."""
    spent = ", ".join(f"{name} {number:.1f}" for name, number in LOCK.items())
    print(f"{time.monotonic() - BEGUN:.1f} s: {stage} (lock: {spent})", flush=True)


def alone(out: Path, work: Callable[..., Any]) -> Callable[..., Any]:
    """Something that measures, with the lock; what it measures is called once before, without.

    The first call may compile, and measure parts of its own: nobody has to wait for that.
    """

    def locked(*given: Any, **named: Any) -> Any:
        for candidate in given:
            if callable(candidate):
                candidate()
        with gpu(out):
            return work(*given, **named)

    return locked


def measure_alone(out: Path) -> None:
    """Have whatever compilers measure hold the lock."""
    from torch._inductor.runtime import benchmarking

    from tessera.frontend.capture import tuning

    for kind in (benchmarking.TritonBenchmarker, benchmarking.InductorBenchmarker):
        if "benchmark_gpu" in vars(kind):
            setattr(kind, "benchmark_gpu", alone(out, vars(kind)["benchmark_gpu"]))  # noqa: B010
    timed = alone(out, tuning._time)

    def compiled_first(calls: list[Callable[[], object]]) -> float:
        calls[0]()  # the others run the same kernels
        return float(timed(calls))

    setattr(tuning, "_time", compiled_first)  # noqa: B010


def one_case(options: argparse.Namespace) -> None:
    row: dict[str, Any] = {}
    begun = time.monotonic()
    (route,) = options.routes.split(",")
    path = file_of(options.out, options.name, route)
    before = json.loads(path.read_text()) if path.exists() else {"failed": UNFINISHED}
    try:
        if "failed" in before:
            keep(options.out, options.name, route, before)
        measure_alone(options.out)
        with on_trial(options):
            measure(options, route, row, before)
    except Exception as problem:
        traceback.print_exc()
        more = getattr(problem, "diagnostics", "")
        row["failed"] = f"{type(problem).__name__}: {problem} {more}"[:1500]
    row["seconds"] = round(time.monotonic() - begun, 1)
    if "failed" in row and "failed" not in before:  # what was measured with fewer modes stays
        row = before | {"torch_failed": dict.fromkeys(options.modes.split(","), row["failed"])}
    keep(options.out, options.name, route, row)
    sys.stdout.flush()
    os._exit(0)  # whatever threads and contexts there are


def on_trial(options: argparse.Namespace) -> AbstractContextManager[None]:
    """What stands in for the GPU in a trial."""
    if not options.trial:
        return nullcontext()
    from benchmarks.running import real_trial
    from benchmarks.running.real_steps import CASES

    case = CASES[options.name].tiny()
    return real_trial.on_trial(lambda: case.make(**case.sizes))


def made_step(options: argparse.Namespace) -> Any:
    """The step of a case; tiny and on the host in a trial."""
    from benchmarks.running.real_steps import CASES

    case = CASES[options.name]
    if not options.trial:
        return case.make(**case.sizes)
    from benchmarks.running.real_trial import made_on_host

    tiny = case.tiny()
    return made_on_host(lambda: tiny.make(**tiny.sizes))


def measure(
    options: argparse.Namespace, route: str, row: dict[str, Any], before: dict[str, Any]
) -> None:
    import torch

    from benchmarks.running.real_plan import WholePlan

    torch.set_grad_enabled(False)
    row["machine"] = f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    if options.tune_ms:
        row["tune_ms"] = options.tune_ms
    is_again = "failed" not in before
    exact = None
    tell("making the model")
    step = made_step(options)
    tell("running it as it is, and in fp32")
    if is_again:
        row |= {key: before[key] for key in ("eager_error", "error") if key in before}
    elif not options.warm:
        eager = step.module(*step.inputs).float()
        exact = tried(lambda: exact_result(step))  # the model may be written for its own type
        row["eager_error"] = exact if isinstance(exact, str) else errors(eager, exact)
    torch.cuda.empty_cache()
    tell("capturing it")
    plan = WholePlan(step, route, row, lambda p: tell(f"{p.stage} {p.done or ''} {p.note}"))
    tell("captured, analysed and loaded")
    if "capture_s" in before:
        row["second_capture_s"], row["capture_s"] = row["capture_s"], before["capture_s"]
    if options.warm:
        compiled_all(options, step, row)
        row |= {"failed": UNFINISHED, "compiled": row.pop("compile_s")}
        return
    if problem := tried(lambda: plan.check(row)):
        row["check_failed"] = problem
    if isinstance(exact, torch.Tensor):
        row["error"] = tried(lambda: errors(plan.output().float(), exact))
    if not is_again:
        keep(options.out, options.name, route, {**row, "failed": UNFINISHED})
    graphs = compiled_all(options, step, row)
    tell("measuring")
    with gpu(options.out):
        times = alternate({**graphs, "ours": plan.replay}, plan, 1 if options.trial else ROUNDS)
        row["torch"] = {mode: times[mode] for mode in graphs}
        row["ours"], row["served"] = times["ours"], times["served"]
        if graphs:
            best = min(graphs, key=lambda mode: times[mode])
            row["fastest"] = best
            row["ratio"] = round(row["ours"] / times[best], 3)
            row["served_ratio"] = round(row["served"] / times[best], 3)
        if options.kernels:
            row["kernels"] = tried(lambda: kernels_of(plan.replay))
            row["torch_kernels"] = {
                mode: tried(lambda graph=graph: kernels_of(graph)) for mode, graph in graphs.items()
            }


def tried(work: Callable[[], Any]) -> Any:
    """What it gives, or why it failed: the rest of a case is worth its time on a GPU."""
    try:
        return work()
    except Exception as problem:
        traceback.print_exc()
        return f"{type(problem).__name__}: {problem}"[:300]


def exact_result(step: Any) -> Any:
    """What the model computes in fp32."""
    wide = step.widened()
    return wide.module(*wide.inputs)


def compiled_all(
    options: argparse.Namespace, step: Any, row: dict[str, Any]
) -> dict[str, Callable[[int], None]]:
    """PyTorch's own step by mode; the row says how long each took, and which failed."""
    graphs = {}
    for mode in options.modes.split(","):
        begun = time.monotonic()
        tell(f"compiling by torch.compile, {mode}")
        try:
            graphs[mode] = compiled(step, mode)
        except Exception as problem:
            traceback.print_exc()
            row.setdefault("torch_failed", {})[mode] = f"{type(problem).__name__}: {problem}"[:300]
        row.setdefault("compile_s", {})[mode] = round(time.monotonic() - begun, 1)
    return graphs


def errors(got: Any, exact: Any) -> dict[str, float]:
    """How far a result is off, by norm and at most by element over the largest."""
    exact = exact.reshape(-1)
    off = got.reshape(-1).float() - exact
    return {
        "norm": float(f"{float(off.norm() / exact.norm()):.3e}"),
        "element": float(f"{float(off.abs().max() / exact.abs().max()):.3e}"),
    }


def compiled(step: Any, mode: str) -> Callable[[int], None]:
    """PyTorch's own step, so many times one after the other; as a graph unless it makes its own.

    What a capture has compiled and measured lies where PyTorch looks for it.
    """
    import torch

    from tessera.frontend.capture.compiled_folder import compiled_folder

    torch._dynamo.reset()
    own = mode == "reduce-overhead"
    kind = mode if own or mode == "default" else f"{mode}-no-cudagraphs"
    made = torch.compile(step.module, mode=kind, dynamic=False, fullgraph=True)
    stream = torch.cuda.Stream()
    with compiled_folder(), torch.cuda.stream(stream):
        for _ in range(3):
            made(*step.inputs)
    stream.synchronize()

    def call(count: int) -> None:
        for _ in range(count):
            made(*step.inputs)

    if own:
        return call
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = made(*step.inputs)

    def replay(count: int) -> None:
        for _ in range(count):
            graph.replay()

    setattr(replay, "kept", (graph, kept, made))  # noqa: B010
    return replay


def alternate(ways: dict[str, Callable[[int], None]], plan: Any, rounds: int) -> dict[str, float]:
    """Microseconds of each, in turn: medians of the rounds."""
    import torch

    def timed(work: Callable[[int], None], count: int) -> float:
        torch.cuda.synchronize()
        begun = time.perf_counter()
        work(count)
        torch.cuda.synchronize()
        return 1e6 * (time.perf_counter() - begun) / count

    ways = {**ways, "served": plan.serve}
    counts = {}
    for name, work in ways.items():
        timed(work, 3)
        counts[name] = max(5, min(400, round(LEAST_S * 1e6 / timed(work, 5))))
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, work in ways.items():
            times[name].append(timed(work, counts[name]))
    return {name: round(statistics.median(several), 2) for name, several in times.items()}


def kernels_of(work: Callable[[int], None]) -> list[tuple[str, int, float]]:
    """Names, counts and microseconds of what three repeats run, per repeat; the longest first."""
    import torch

    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        work(3)
        torch.cuda.synchronize()
    sums: dict[str, list[float]] = {}
    for event in profiler.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            sums.setdefault(event.name[:110], []).append(event.time_range.elapsed_us())
    rows = [(name, len(us) // 3, round(sum(us) / 3, 2)) for name, us in sums.items()]
    return sorted(rows, key=lambda row: -row[2])


# --- report ----------------------------------------------------------------------------------


def report(options: argparse.Namespace) -> None:
    from benchmarks.running.real_steps import CASES

    rows = [
        json.loads(path.read_text())
        for path in sorted(options.out.glob("*.json"))
        if "case" in json.loads(path.read_text())
    ]
    order = list(CASES)
    rows.sort(key=lambda row: (order.index(row["case"]), row["route"]))
    for row in rows:
        print(short(row))
    missing = [name for name in order if name not in {r["case"] for r in rows if "ratio" in r}]
    print("not measured:", ", ".join(missing) or "none")
    if options.output:
        for row in rows:
            row.pop("kernels", None)
            row.pop("torch_kernels", None)
        document = {"schema": "tessera-real-models/1", "rows": rows, "not_measured": missing}
        options.output.write_text(json.dumps(document, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stage", choices=("run", "one", "report"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--name", default="")
    parser.add_argument("--only", default="", help="cases with this (or|this) in their name")
    parser.add_argument("--routes", default="auto", help="of `tessc trace`")
    parser.add_argument("--modes", default=",".join(MODES), help="of torch.compile")
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--warm", action="store_true", help="compile everything, measure nothing")
    parser.add_argument("--kernels", action="store_true", help="the time of each kernel, too")
    parser.add_argument("--tune-ms", type=int, default=0, help="for how long compilers measure one")
    parser.add_argument("--trial", action="store_true", help="tiny models, without a GPU")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    {"run": run_all, "one": one_case, "report": report}[options.stage](options)


if __name__ == "__main__":
    main()
