"""A process per device on one GPU: bytes against one device, and speed against one process.

    python -m benchmarks.hosts_gpu -o out/hosts_gpu.jsonl --seconds 60 --jobs 6
    python -m benchmarks.hosts_gpu report out/hosts_gpu.jsonl -o FILE

Needs a GPU. A line per case is printed and added to the file, and cases that it has are not done
again. `bytes`: steps of example traces on a random one of two slices (84 and 48 SMs), each slice in
a process of its own (`tessc run --hosts`, CUDA IPC); outputs and states are compared with the whole
GPU in one process, to the byte. With `--far` the two are on hosts of their own, which are this one:
transfers go through pinned memory and TCP. `speed`: layers in a row, the first on one slice, the
rest on the other: requests per second in one process and in two, without and with MPS (if its
daemon starts: without it processes take turns on a GPU); and what a request alone takes with 1 and
with many transfers, which bounds what one costs the host.
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
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cuda_bench import TWO, facts
from benchmarks.cuda_models import Sizes, build
from tessera.driver.hosts.kept_hosts import KeptHosts
from tessera.driver.load import load
from tessera.driver.run.runtime import Runtime
from tessera.ir.program.program import Program, Role
from tests.helpers.plan_files import plan_of, write_plan
from tests.helpers.served import contents

TRACES = ("mlp", "llama_decode", "moe", "mamba")
REQUESTS = 4
ARCH = "sm_90"
LIMIT_S = 60.0
LAYERS = Sizes(tokens=512, hidden=1024, inner=8192, layers=8)
FAR_HOSTS = "".join(
    f'[[host]]\nname = "{name}"\ndevices = ["{device}"]\n'
    for name, device in (("left", "a"), ("right", "b"))
)
HOSTS = '[[host]]\nname = "here"\ndevices = ["a", "b"]\n'


def hosts_file(folder: Path) -> str:
    """One host with both devices."""
    path = folder / "hosts.toml"
    path.write_text(HOSTS)
    return str(path)


@cache
def kept_hosts(far: bool) -> KeptHosts:
    """Both processes, for all placements of a job."""
    path = hosts_file(Path(tempfile.mkdtemp(prefix="hosts")))
    if far:
        Path(path).write_text(FAR_HOSTS)
    hosts = KeptHosts(path)
    atexit.register(hosts.close)
    return hosts


def results_of(runtime: Runtime, count: int) -> dict[str, np.ndarray]:
    """Outputs of requests, and the states after them."""
    program = runtime.programs[0]
    found: dict[str, np.ndarray] = {}
    for number in range(count):
        done = runtime.submit(contents(program, Role.INPUT, number)).result(LIMIT_S)
        for name, content in dict(done).items():
            found[f"{number} {name}"] = np.array(content).reshape(-1).view(np.uint8)
    for name, content in runtime.states().items():
        found[f"state {name}"] = np.array(content).reshape(-1).view(np.uint8)
    return found


def data_of(trace: str) -> str | None:
    path = f"examples/traces/{trace}.npz"
    return path if os.path.exists(path) else None


def whole(trace: str, folder: str) -> str:
    """The results of the whole GPU in one process, in a file; why not, where there are none."""
    try:
        program = load(f"examples/traces/{trace}.ptx")
        plan = plan_of([program], [["a"] * len(list(program.work()))])
        path = write_plan(Path(folder), plan, f"{trace}.tsp")
        with Runtime(
            path, backend="cuda", targets={"a": "cuda:0"}, data=data_of(trace), time_limit_s=LIMIT_S
        ) as runtime:
            np.savez(f"{folder}/{trace}.npz", **results_of(runtime, REQUESTS))
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"[:2000]
    return ""


def bytes_case(trace: str, seed: int, wanted: str, far: bool) -> dict[str, object]:
    """One random placement."""
    started = time.monotonic()
    row: dict[str, object] = {"kind": "bytes", "far": far, "trace": trace, "seed": seed}
    try:
        program = load(f"examples/traces/{trace}.ptx")
        rng = random.Random(seed)
        steps = [rng.choice("ab") for _ in program.work()]
        for device, step in zip("ab", rng.sample(range(len(steps)), 2), strict=True):
            steps[step] = device
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            plan = plan_of([program], [steps], slots=rng.randint(1, 3))
            transfers = plan.replicas[0].lowered.traces[0].transfers
            row["transfers"] = sum("host" not in (t.source, t.target) for t in transfers)
            with Runtime(
                write_plan(folder, plan),
                backend="cuda",
                targets=TWO,
                hosts=kept_hosts(far),
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


# --- speed -------------------------------------------------------------------------------------


def layers_plan(folder: Path, moves: int, slots: int) -> tuple[str, int]:
    """Layers on two devices that change `moves` times, and how many transfers that makes."""
    model = build("stack", LAYERS)
    program: Program = model.programs[0]
    count = len(list(program.work()))
    cut = round(count * 84 / 132)
    if moves == 1:
        steps = ["a" if n < cut else "b" for n in range(count)]
    else:
        steps = ["ab"[n * (moves + 1) // count % 2] for n in range(count)]
    plan = plan_of([program], [steps], slots=slots, arch=ARCH)
    transfers = plan.replicas[0].lowered.traces[0].transfers
    between = sum("host" not in (t.source, t.target) for t in transfers)
    return write_plan(folder, plan), between


def speed_case(way: str, moves: int, slots: int, seconds: float) -> dict[str, object]:
    """Requests per second for so long; `way` is `one process` or `two processes`."""
    row: dict[str, object] = {"moves": moves, "slots": slots}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path, row["transfers"] = layers_plan(folder, moves, slots)
        hosts = hosts_file(folder) if way == "two processes" else None
        started = time.monotonic()
        with Runtime(
            path, backend="cuda", targets=TWO, hosts=hosts, time_limit_s=LIMIT_S
        ) as runtime:
            row["started_s"] = round(time.monotonic() - started, 2)
            inputs = contents(runtime.programs[0], Role.INPUT, 1)
            for _ in range(2 * slots):
                runtime.submit(inputs).result(LIMIT_S)
            done, begun = 0, time.monotonic()
            under_way: list[Any] = []
            while time.monotonic() - begun < seconds:
                under_way.append(runtime.submit(inputs))
                if len(under_way) > 2 * slots:
                    under_way.pop(0).result(LIMIT_S)
                    done += 1
            for handle in under_way:
                handle.result(LIMIT_S)
                done += 1
            row["requests_per_s"] = round(done / (time.monotonic() - begun), 3)
    return row


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
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                command, input="quit\n", env=around, text=True, capture_output=True, timeout=20,
                check=False,
            )  # fmt: skip


def in_process(arguments: list[str], environment: dict[str, str], limit_s: float) -> dict[str, Any]:
    """A speed case in a process of its own: who uses MPS is decided when CUDA starts."""
    command = [sys.executable, "-m", "benchmarks.hosts_gpu", "case", *arguments]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"why": f"it took more than {limit_s:.0f} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {"why": (done.stderr or done.stdout).strip()[-1500:]}
    result: dict[str, Any] = json.loads(lines[-1])
    return result


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


def run_bytes(rows: Rows, options: argparse.Namespace, deadline: float) -> None:
    traces = options.traces.split(",")
    folder = tempfile.mkdtemp(prefix="whole")
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        for trace, why in zip(traces, pool.map(whole, traces, [folder] * len(traces)), strict=True):
            if why:
                rows.add({"kind": "whole", "trace": trace, "why": why})
        traces = [trace for trace in traces if os.path.exists(f"{folder}/{trace}.npz")]
        cases = [
            (trace, seed)
            for seed in range(options.count)
            for trace in traces
            if not rows.has(kind="bytes", far=options.far, trace=trace, seed=seed, equal=True)
        ]
        waiting = {}
        for trace, seed in cases:
            if time.monotonic() > deadline:
                break
            waiting[pool.submit(bytes_case, trace, seed, f"{folder}/{trace}.npz", options.far)] = (
                seed
            )
            if len(waiting) >= options.jobs:
                ended = next(as_completed(waiting))
                waiting.pop(ended)
                rows.add(ended.result())
        for ended in as_completed(waiting):
            rows.add(ended.result())


def run_speed(rows: Rows, options: argparse.Namespace, deadline: float) -> None:
    def cases(environment: dict[str, str], shared: bool) -> None:
        for way in ("one process", "two processes"):
            for moves, slots in ((1, 4), (1, 1), (15, 1)):
                key = {"kind": "speed", "way": way, "mps": shared, "moves": moves, "slots": slots}
                if rows.has(**key) or time.monotonic() > deadline:
                    continue
                words = [way, str(moves), str(slots), str(options.each)]
                rows.add(key | in_process(words, environment, 90.0))

    cases({}, False)
    with mps() as started:
        if isinstance(started, str):
            rows.add({"kind": "mps", "why": started})
        else:
            cases(started, True)


def report(paths: list[str], output: str) -> None:
    """Rows of files as one result."""
    rows = [json.loads(line) for path in paths for line in Path(path).read_text().splitlines()]
    compared = [row for row in rows if row["kind"] == "bytes"]
    result = {
        "machine": next((row["machine"] for row in rows if row["kind"] == "machine"), {}),
        "placements": len(compared),
        "equal": sum(bool(row["equal"]) for row in compared),
        "traces": sorted({str(row["trace"]) for row in compared}),
        "transfers": sum(int(row.get("transfers", 0)) for row in compared),
        "failed": [row for row in rows if row["kind"] == "whole"],
        "speed": [row for row in rows if row["kind"] in ("speed", "mps")],
    }
    Path(output).write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")
    print(json.dumps(result, indent=1))


def main() -> None:
    if sys.argv[1:2] == ["case"]:
        way, moves, slots, seconds = sys.argv[2:6]
        print(json.dumps(speed_case(way, int(moves), int(slots), float(seconds))))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("what", nargs="*", help="`report` and files")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--count", type=int, default=50, help="placements of each trace")
    parser.add_argument("--traces", default=",".join(TRACES))
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--each", type=float, default=3.0, help="seconds of a speed case")
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--far", action="store_true", help="bytes as between hosts, by TCP")
    parser.add_argument("--only", choices=["bytes", "speed"])
    options = parser.parse_args()
    if options.what[:1] == ["report"]:
        report(options.what[1:], options.output)
        return
    deadline = time.monotonic() + options.seconds
    rows = Rows(options.output)
    if not rows.has(kind="machine"):
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            rows.add({"kind": "machine", "machine": pool.submit(facts).result()})
    if options.only != "bytes":
        run_speed(rows, options, time.monotonic() + options.seconds / 2)
    if options.only != "speed":
        run_bytes(rows, options, deadline)


if __name__ == "__main__":
    main()
