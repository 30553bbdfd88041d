"""A process per slice of one GPU: random placements against one device, to the byte.

    python -m benchmarks.hosts.gpu run -o out/hosts_gpu.jsonl --seconds 60 --jobs 6 [--far]
    python -m benchmarks.hosts.gpu report out/hosts_gpu.jsonl -o FILE

Needs a GPU. A line per placement is added to the file, and placements that it has are not done
again. Steps of example traces are on a random one of two slices (84 and 48 SMs), each slice in a
process of its own (`tessc run --hosts`, CUDA IPC); outputs and states are compared with the whole
GPU in one process. Every job has a pair of processes that it keeps for all its placements. With
`--far` the two are on hosts of their own, which are this one: transfers go through pinned memory
and TCP. `--stand-in` does all of it without a GPU, on a stand-in for the driver: a rehearsal.
"""

from __future__ import annotations

import argparse
import atexit
import itertools
import json
import os
import random
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks.common import TRACES, Row, add_row, read_rows, write
from benchmarks.hosts.cases import act, command_line, rows_of
from benchmarks.running.cuda_bench import TWO, facts
from tessera.driver.hosts.kept_hosts import KeptHosts
from tessera.driver.load import load
from tessera.driver.run.runtime import Runtime
from tessera.ir.program.program import DataType, Program, Role
from tessera.ir.program.seeded import seeded_bytes
from tests.helpers.fake_gpu_python import fake_gpu_python
from tests.helpers.plan_files import H200, plan_of, write_plan

NAMES = ("mlp", "llama_decode", "moe", "mamba")
REQUESTS = 4
LIMIT_S = 60.0
SMALL_INDEX = 16
"""Integers of inputs are below this: an index or a position in every example."""
HOSTS = {"near": {"here": "ab"}, "far": {"left": "a", "right": "b"}}


class Setting:
    """A GPU, or a stand-in for its driver."""

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
    return load(TRACES / f"{trace}.ptx")


def inputs_of(program: Program, number: int) -> dict[str, np.ndarray]:
    """Inputs of a request: floats as in a run, integers that are valid indexes in every example."""
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
    path = TRACES / f"{trace}.npz"
    return str(path) if path.exists() else None


@cache
def wanted(trace: str, stand_in: bool) -> dict[str, np.ndarray]:
    """The results of the whole GPU in one process."""
    here = setting(stand_in)
    program = example(trace)
    plan = plan_of([program], [["a"] * len(list(program.work()))], gpu=H200)
    path = write_plan(here.folder, plan, f"{trace}.tsp")
    with Runtime(
        path, backend="cuda", targets={"a": "cuda:0"}, data=data_of(trace), time_limit_s=LIMIT_S
    ) as runtime:
        return results_of(runtime, REQUESTS)


def placement(trace: str, seed: int, kind: str, stand_in: bool) -> Row:
    """One random placement."""
    started = time.monotonic()
    row: Row = {"far": kind == "far", "trace": trace, "seed": seed, "equal": False}
    try:
        expected = wanted(trace, stand_in)
        program = example(trace)
        rng = random.Random(seed)
        steps = [rng.choice("ab") for _ in program.work()]
        # Each slice has a step at least, so that bytes move.
        for device, step in zip("ab", rng.sample(range(len(steps)), 2), strict=True):
            steps[step] = device
        with tempfile.TemporaryDirectory() as name:
            plan = plan_of([program], [steps], slots=rng.randint(1, 3), gpu=H200)
            path = write_plan(Path(name), plan)
            transfers = plan.replicas[0].lowered.traces[0].transfers
            row["transfers"] = sum("host" not in (t.source, t.target) for t in transfers)
            with Runtime(
                path,
                backend="cuda",
                targets=TWO,
                hosts=kept_hosts(stand_in, kind),
                data=data_of(trace),
                time_limit_s=LIMIT_S,
            ) as runtime:
                found = results_of(runtime, REQUESTS)
        row["compared"] = len(found)
        row["equal"] = expected.keys() == found.keys() and all(
            np.array_equal(content, found[name]) for name, content in expected.items()
        )
    except Exception as problem:
        row["why"] = f"{type(problem).__name__}: {problem}"[:2000]
    return row | {"seconds": round(time.monotonic() - started, 2)}


def machine(stand_in: bool) -> dict[str, object]:
    """The GPU, asked by a process of its own."""
    setting(stand_in)
    return facts()


def run(options: argparse.Namespace) -> None:
    """Placements that have no row, several at a time."""
    # The driver keeps what it compiles, for every process of every job.
    os.environ.setdefault("CUDA_CACHE_PATH", f"{tempfile.gettempdir()}/tessera_hosts_gpu")
    os.environ.setdefault("CUDA_CACHE_MAXSIZE", str(1 << 31))
    deadline = time.monotonic() + options.seconds
    rows = read_rows(options.output)
    known = {(r["far"], r["trace"], r["seed"]) for r in rows if r.get("equal")}
    kind = "far" if options.far else "near"
    seeds = range(options.first, options.first + options.count)
    todo = [key for key in itertools.product(NAMES, seeds) if (options.far, *key) not in known]
    # Not forked: a child of a process with a CUDA context cannot use the GPU.
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        if not any("machine" in row for row in rows):
            add_row(options.output, {"machine": pool.submit(machine, options.stand_in).result()})
        work = partial(_unless_late, deadline, kind, options.stand_in)
        for row in pool.map(work, todo):
            if row is not None:
                add_row(options.output, row)
                print(json.dumps(row), flush=True)


def _unless_late(deadline: float, kind: str, stand_in: bool, key: tuple[str, int]) -> Row | None:
    return None if time.monotonic() > deadline else placement(*key, kind, stand_in)


def report(options: argparse.Namespace) -> None:
    """Rows of files as one result; of a placement that was repeated the last row counts."""
    rows = rows_of(options)
    last = {(row["far"], row["trace"], row["seed"]): row for row in rows if "seed" in row}
    result: Row = {"machine": next((row["machine"] for row in rows if "machine" in row), {})}
    for name, far in (("one_host", False), ("two_hosts", True)):
        compared = [row for (is_far, _, _), row in last.items() if is_far == far]
        result[name] = {
            "placements": len(compared),
            "equal": sum(bool(row["equal"]) for row in compared),
            "different": [row for row in compared if not row["equal"]],
            "traces": {t: sum(r["trace"] == t for r in compared) for t in NAMES},
            "transfers": sum(int(row.get("transfers", 0)) for row in compared),
            "median_s": statistics.median(r["seconds"] for r in compared) if compared else None,
        }
    write(result, options.output)
    print(json.dumps(result, indent=1))


def main() -> None:
    parser = command_line(__doc__, ["run"], 50)
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--far", action="store_true", help="as between hosts, by TCP")
    parser.add_argument("--stand-in", action="store_true", help="no GPU: a rehearsal")
    act(parser, run, report)


if __name__ == "__main__":
    main()
