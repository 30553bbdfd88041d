"""A process per device on one GPU: bytes against one device, and speed against one process.

    python -m benchmarks.hosts.gpu -o out/hosts_gpu.jsonl --seconds 60 --jobs 6
    python -m benchmarks.hosts.gpu report out/hosts_gpu.jsonl -o FILE

Needs a GPU. A line per case is printed and added to the file, and cases that it has are not done
again. `start`: what a context and slices take here. `bytes`: steps of example traces on a random
one of two slices (84 and 48 SMs), each slice in a process of its own (`tessc run --hosts`, CUDA
IPC); outputs and states are compared with the whole GPU in one process, to the byte. Every job has
a pair of processes that it keeps for all its placements. With `--far` the two are on hosts of their
own, which are this one: transfers go through pinned memory and TCP. `speed`: layers in a row, the
first on one slice, the rest on the other: requests per second in one process and in two, these with
MPS (if its daemon starts) and without (then processes take turns on a GPU); with one request at a
time also the processor time of the processes for each, with 1 and with many transfers.

`--stand-in` does all of it without a GPU, on a stand-in for the driver: a rehearsal.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.running.cuda_bench import TWO, facts
from benchmarks.running.cuda_models import Sizes, build
from tessera.backend.cuda.slices import split_gpu
from tessera.backend.cuda.targets import open_driver
from tessera.driver.hosts.kept_hosts import KeptHosts
from tessera.driver.load import load
from tessera.driver.run.runtime import Runtime
from tessera.ir.program.program import DataType, Program, Role
from tessera.ir.program.seeded import seeded_bytes
from tests.helpers.fake_gpu_python import fake_gpu_python
from tests.helpers.host_runs import backends_of
from tests.helpers.plan_files import H200, plan_of, write_plan

TRACES = ("mlp", "llama_decode", "moe", "mamba")
REQUESTS = 4
ARCH = "sm_90"
LIMIT_S = 60.0
LAYERS = Sizes(tokens=512, hidden=1024, inner=8192, layers=8)
SMALL = Sizes(tokens=64, hidden=64, inner=64, layers=8)
SMALL_INDEX = 16
"""Integers of inputs are below this: an index or a position in every example."""
HOSTS = {"near": {"here": "ab"}, "far": {"left": "a", "right": "b"}}
CASES = ((1, 4), (1, 1), (15, 1))
"""How often layers change devices, and slots."""


class Setting:
    """What runs where: a GPU, or a stand-in."""

    def __init__(self, stand_in: bool) -> None:
        self.stand_in = stand_in
        self.folder = Path(tempfile.mkdtemp(prefix="hosts_gpu"))
        if stand_in:
            import tests.helpers.boot_fake_cuda

            assert tests.helpers.boot_fake_cuda

    def kept(self, kind: str) -> KeptHosts:
        """A pair of processes, until this one ends."""
        python = f'python = "{fake_gpu_python(self.folder)}"\n' if self.stand_in else ""
        rows = [
            f'[[host]]\nname = "{host}"\ndevices = {list(devices)}\n{python}'
            for host, devices in HOSTS[kind].items()
        ]
        path = self.folder / f"{kind}.toml"
        path.write_text('silent = "20s"\n' + "".join(rows))
        hosts = KeptHosts(path)
        atexit.register(hosts.close)
        return hosts


setting = cache(Setting)


@cache
def kept_hosts(stand_in: bool, kind: str) -> KeptHosts:
    """Both processes, for all placements of a job."""
    return setting(stand_in).kept(kind)


@cache
def example(trace: str) -> Program:
    """An example trace."""
    return load(f"examples/traces/{trace}.ptx")


def inputs_of(program: Program, number: int) -> dict[str, np.ndarray]:
    """Those of a request: floats as in a run, integers that are an index everywhere."""
    given = {b.name: seeded_bytes(b, number) for b in program.buffers if b.role is Role.INPUT}
    for buffer in program.buffers:
        if buffer.name in given and buffer.dtype is DataType.S64:
            rng = np.random.default_rng([number, *buffer.name.encode()])
            values = rng.integers(0, SMALL_INDEX, buffer.bytes // 8, dtype=np.int64)
            given[buffer.name] = values.view(np.uint8)
    return given


def results_of(runtime: Runtime, count: int) -> dict[str, np.ndarray]:
    """Outputs of requests, and the states after them."""
    program = runtime.programs[0]
    found: dict[str, np.ndarray] = {}
    for number in range(count):
        done = runtime.submit(inputs_of(program, number)).result(LIMIT_S)
        for name, content in dict(done).items():
            found[f"{number} {name}"] = np.array(content).reshape(-1).view(np.uint8)
    for name, content in runtime.states().items():
        found[f"state {name}"] = np.array(content).reshape(-1).view(np.uint8)
    return found


def data_of(trace: str) -> str | None:
    path = f"examples/traces/{trace}.npz"
    return path if os.path.exists(path) else None


def whole(trace: str, folder: str, stand_in: bool) -> dict[str, object]:
    """The results of the whole GPU in one process, in a file; why not, where there are none."""
    started = time.monotonic()
    row: dict[str, object] = {"kind": "whole", "trace": trace}
    try:
        setting(stand_in)
        program = example(trace)
        plan = plan_of([program], [["a"] * len(list(program.work()))], gpu=H200)
        path = write_plan(Path(folder), plan, f"{trace}.tsp")
        with Runtime(
            path, backend="cuda", targets={"a": "cuda:0"}, data=data_of(trace), time_limit_s=LIMIT_S
        ) as runtime:
            np.savez(f"{folder}/{trace}.npz", **results_of(runtime, REQUESTS))
    except Exception as problem:
        row["why"] = f"{type(problem).__name__}: {problem}"[:2000]
    return row | {"seconds": round(time.monotonic() - started, 2)}


def bytes_case(
    trace: str, seed: int, wanted: str, kind: str, stand_in: bool = False
) -> dict[str, object]:
    """One random placement."""
    started = time.monotonic()
    row: dict[str, object] = {"kind": "bytes", "far": kind == "far", "trace": trace, "seed": seed}
    try:
        program = example(trace)
        rng = random.Random(seed)
        steps = [rng.choice("ab") for _ in program.work()]
        for device, step in zip("ab", rng.sample(range(len(steps)), 2), strict=True):
            steps[step] = device
        with tempfile.TemporaryDirectory() as name:
            plan = plan_of([program], [steps], slots=rng.randint(1, 3), gpu=H200)
            path = write_plan(Path(name), plan)
            transfers = plan.replicas[0].lowered.traces[0].transfers
            row["transfers"] = sum("host" not in (t.source, t.target) for t in transfers)
            row["planned_s"] = round(time.monotonic() - started, 2)
            with Runtime(
                path,
                backend="cuda",
                targets=TWO,
                hosts=kept_hosts(stand_in, kind),
                data=data_of(trace),
                time_limit_s=LIMIT_S,
            ) as runtime:
                row["started_s"] = round(time.monotonic() - started, 2)
                found = results_of(runtime, REQUESTS)
        with np.load(wanted) as stored:
            same = [name for name in stored if np.array_equal(stored[name], found[name])]
            row["equal"] = len(same) == len(stored.files) == len(found)
            row["compared"] = len(found)
    except Exception as problem:
        row |= {"equal": False, "why": f"{type(problem).__name__}: {problem}"[:2000]}
    row["seconds"] = round(time.monotonic() - started, 2)
    return row


def start_case(stand_in: bool) -> dict[str, object]:
    """What a process pays before its first run."""
    setting(stand_in)
    row: dict[str, object] = {"kind": "start"}
    driver: Any = None

    def timed(name: str, do: Callable[[], Any]) -> Any:
        started = time.monotonic()
        done = do()
        row[name] = round(time.monotonic() - started, 3)
        return done

    driver = timed("driver_s", open_driver)
    driver.use(timed("context_s", partial(driver.retain, 0)))
    timed("slices_s", partial(split_gpu, driver, 0, [84, 48], [0]))
    return row


# --- speed -------------------------------------------------------------------------------------


def layers_plan(folder: Path, sizes: Sizes, moves: int, slots: int) -> tuple[str, int]:
    """Layers on two devices that change `moves` times, and how many transfers that makes."""
    program: Program = _stack(sizes)
    count = len(list(program.work()))
    cut = round(count * 84 / 132)
    if moves == 1:
        steps = ["a" if n < cut else "b" for n in range(count)]
    else:
        steps = ["ab"[n * (moves + 1) // count % 2] for n in range(count)]
    plan = plan_of([program], [steps], slots=slots, lanes=slots, arch=ARCH, gpu=H200)
    transfers = plan.replicas[0].lowered.traces[0].transfers
    between = sum("host" not in (t.source, t.target) for t in transfers)
    return write_plan(folder, plan), between


@cache
def _stack(sizes: Sizes) -> Program:
    return build("stack", sizes).programs[0]


def processor_s(pids: list[int]) -> float:
    """Processor time that processes have taken."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def speed_case(
    way: str, moves: int, slots: int, seconds: float, stand_in: bool
) -> dict[str, object]:
    """Requests per second for so long; `way` is `one process` or `two processes`."""
    row: dict[str, object] = {"moves": moves, "slots": slots, "sequences": slots}
    here = setting(stand_in)
    path, row["transfers"] = layers_plan(here.folder, SMALL if stand_in else LAYERS, moves, slots)
    hosts = kept_hosts(stand_in, "near") if way == "two processes" else None
    started = time.monotonic()
    with Runtime(path, backend="cuda", targets=TWO, hosts=hosts, time_limit_s=LIMIT_S) as runtime:
        row["started_s"] = round(time.monotonic() - started, 2)
        pids = [os.getpid()]
        if hosts is not None:
            (backend,) = backends_of(runtime)
            pids = [link.process.pid for link in backend._links.values()]
        inputs = inputs_of(runtime.programs[0], 1)
        for handle in [runtime.submit(inputs, sequence=n) for n in range(slots)]:
            handle.result(LIMIT_S)
        done, given, begun, spent_s = 0, 0, time.monotonic(), processor_s(pids)
        under_way: list[Any] = []
        most = 1 if slots == 1 else 2 * slots
        while time.monotonic() - begun < seconds:
            # Those of one sequence wait for each other.
            under_way.append(runtime.submit(inputs, sequence=given % slots))
            given += 1
            if len(under_way) >= most:
                under_way.pop(0).result(LIMIT_S)
                done += 1
        for handle in under_way:
            handle.result(LIMIT_S)
            done += 1
        took_s = time.monotonic() - begun
        row["requests"] = done
        row["requests_per_s"] = round(done / took_s, 3)
        row["processor_us"] = round((processor_s(pids) - spent_s) / done * 1e6, 1)
    return row


def speed_cases(way: str, seconds: float, wanted: str, stand_in: bool) -> None:
    """In a process of its own: a line for each case."""
    for index in map(int, wanted):
        moves, slots = CASES[index]
        try:
            row = speed_case(way, moves, slots, seconds, stand_in)
        except Exception as problem:
            row = {
                "moves": moves,
                "slots": slots,
                "why": f"{type(problem).__name__}: {problem}"[:800],
            }
        print(json.dumps(row), flush=True)


@contextmanager
def mps() -> Iterator[dict[str, str] | str]:
    """The daemon of MPS, as variables for processes; why not where it does not start."""
    folder = tempfile.mkdtemp(prefix="mps")
    names = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
    around = {**os.environ, **names}
    command = ["nvidia-cuda-mps-control"]
    try:
        started = subprocess.run(
            [*command, "-d"], env=around, capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        yield f"the daemon does not start: {problem}"
        return
    if started.returncode:
        yield f"the daemon does not start: {(started.stderr or started.stdout).strip()[:300]}"
        return
    try:
        yield names
    finally:
        for log in Path(folder).glob("*.log"):
            print(f"{log.name}: {log.read_text(errors='replace')[-600:]}", flush=True)
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                command, input="quit\n", env=around, text=True, capture_output=True, timeout=20,
                check=False,
            )  # fmt: skip


def in_process(
    arguments: list[str], environment: dict[str, str], limit_s: float
) -> Iterator[dict[str, Any]]:
    """Speed cases in a process of their own: who uses MPS is decided when CUDA starts."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [
                *("timeout", "-k", "2", f"{limit_s:.0f}"),
                *(sys.executable, "-m", "benchmarks.hosts.gpu", "case", *arguments),
            ],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert process.stdout is not None
        for line in process.stdout:
            with suppress(ValueError):
                yield json.loads(line)
        if process.wait():
            errors.seek(0)
            why = "it took too long" if process.returncode in (124, 137) else errors.read()[-1500:]
            yield {"why": why, "limit_s": limit_s}


# --- the whole -----------------------------------------------------------------------------------


class Rows:
    """The file of results."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.rows = []
        if self.path.exists():
            self.rows = [json.loads(line) for line in self.path.read_text().splitlines()]

    def has(self, **key: object) -> bool:
        return any(all(row.get(n) == v for n, v in key.items()) for row in self.rows)

    def add(self, row: dict[str, object]) -> None:
        self.rows.append(row)
        with self.path.open("a") as stream:
            stream.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


def run_bytes(
    rows: Rows, options: argparse.Namespace, pool: ProcessPoolExecutor, deadline: float
) -> None:
    folder = tempfile.mkdtemp(prefix="whole")
    kind = "far" if options.far else "near"
    waiting: set[Future[dict[str, object]]] = set()
    cases = [
        (trace, seed)
        for trace in options.traces.split(",")
        for seed in range(options.count)
        if not rows.has(kind="bytes", far=options.far, trace=trace, seed=seed, equal=True)
    ]
    for trace in dict.fromkeys(trace for trace, _ in cases):
        waiting.add(pool.submit(whole, trace, folder, options.stand_in))
    for ended in as_completed(waiting):  # before all else: code that is compiled then is kept
        rows.add(ended.result())
    waiting.clear()
    for trace, seed in cases:
        wanted = f"{folder}/{trace}.npz"
        if time.monotonic() > deadline or not os.path.exists(wanted):
            continue
        waiting.add(pool.submit(bytes_case, trace, seed, wanted, kind, options.stand_in))
        if len(waiting) >= options.jobs:
            ended = next(as_completed(waiting))
            waiting.remove(ended)
            rows.add(ended.result())
    for ended in as_completed(waiting):
        rows.add(ended.result())


def run_speed(rows: Rows, options: argparse.Namespace, deadline: float) -> None:
    def cases(environment: dict[str, str], shared: bool, *ways: str) -> None:
        for way in ways:
            key: dict[str, object] = {"kind": "speed", "way": way, "mps": shared}
            left = deadline - time.monotonic()
            wanted = "".join(
                str(n)
                for n, (moves, slots) in enumerate(CASES)
                if str(n) in options.cases
                if not rows.has(**key, moves=moves, slots=slots, sequences=slots, why=None)
            )
            if left > 1 and wanted:
                words = [way, str(options.each), wanted, str(int(options.stand_in))]
                for row in in_process(
                    words, environment, min(left, 200.0 if options.stand_in else 45.0)
                ):
                    rows.add(key | row)

    with mps() as started:
        if isinstance(started, str):
            rows.add({"kind": "mps", "why": started})
        else:
            cases(started, True, "two processes")
    cases({}, False, "one process", "two processes")


def report(paths: list[str], output: str) -> None:
    """Rows of files as one result; of a case that was repeated the last row counts."""
    rows = [json.loads(line) for path in paths for line in Path(path).read_text().splitlines()]
    last = {(row["far"], row["trace"], row["seed"]): row for row in rows if row["kind"] == "bytes"}
    result: dict[str, Any] = {
        "machine": next((row["machine"] for row in rows if row["kind"] == "machine"), {}),
        "start": [row for row in rows if row["kind"] == "start"],
        "failed": [row for row in rows if row["kind"] == "whole" and "why" in row],
        "speed": [
            row
            for row in rows
            if row["kind"] == "mps"
            or (row["kind"] == "speed" and row.get("sequences", 1) == row.get("slots", 1))
        ],
    }
    for name, far in (("one_host", False), ("two_hosts", True)):
        compared = [row for (is_far, _, _), row in last.items() if is_far == far]
        took = sorted(row["seconds"] for row in compared)
        result[name] = {
            "placements": len(compared),
            "equal": sum(bool(row["equal"]) for row in compared),
            "different": [row for row in compared if not row["equal"]],
            "traces": {t: sum(r["trace"] == t for r in compared) for t in TRACES},
            "transfers": sum(int(row.get("transfers", 0)) for row in compared),
            "median_s": took[len(took) // 2] if took else None,
        }
    Path(output).write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")
    print(json.dumps(result, indent=1))


def _facts(stand_in: bool) -> dict[str, object]:
    setting(stand_in)
    return facts()


def main() -> None:
    if sys.argv[1:2] == ["case"]:
        way, seconds, wanted, stand_in = sys.argv[2:6]
        speed_cases(way, float(seconds), wanted, bool(int(stand_in)))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("what", nargs="*", help="`report` and files")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--count", type=int, default=50, help="placements of each trace")
    parser.add_argument("--traces", default=",".join(TRACES))
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--each", type=float, default=3.0, help="seconds of a speed case")
    parser.add_argument("--cases", default="012", help="speed cases, by number")
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--far", action="store_true", help="bytes as between hosts, by TCP")
    parser.add_argument("--only", choices=["bytes", "speed"])
    parser.add_argument("--stand-in", action="store_true", help="no GPU: a rehearsal")
    options = parser.parse_args()
    if options.what[:1] == ["report"]:
        report(options.what[1:], options.output)
        return
    # The driver keeps what it compiles, for every process of every job.
    os.environ.setdefault("CUDA_CACHE_PATH", f"{tempfile.gettempdir()}/tessera_hosts_gpu")
    os.environ.setdefault("CUDA_CACHE_MAXSIZE", str(1 << 31))
    deadline = time.monotonic() + options.seconds
    rows = Rows(options.output)
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        if not rows.has(kind="machine"):
            machine = pool.submit(_facts, options.stand_in).result()
            rows.add({"kind": "machine", "machine": machine})
        with ProcessPoolExecutor(1, get_context("spawn")) as alone:
            rows.add(alone.submit(start_case, options.stand_in).result())
        if options.only != "bytes":
            run_speed(rows, options, time.monotonic() + options.seconds / 2)
        if options.only != "speed":
            run_bytes(rows, options, pool, deadline)


if __name__ == "__main__":
    main()
