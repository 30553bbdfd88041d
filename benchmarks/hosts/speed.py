"""Two slices of a GPU in one process and in two: requests per second and time of the processor.

    python -m benchmarks.hosts.speed -o FILE [--each 3] [--stand-in]

Needs a GPU. Layers are on slices of 84 and 48 SMs and change between them `moves` times. Two
processes run with MPS, if its daemon starts, and without it: then they take turns on the GPU.
`processor_us` is the time of the processor that all processes of devices take for a request.
`--stand-in` does it without a GPU, on a stand-in for the driver: a rehearsal.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from typing import Any

from benchmarks.common import Row, arguments, write
from benchmarks.hosts.gpu import LIMIT_S, inputs_of, kept_hosts, setting
from benchmarks.running.cuda_bench import TWO, facts
from benchmarks.running.cuda_models import Sizes, build
from tessera.driver.run.runtime import Runtime
from tessera.ir.plan.launch_program import HOST
from tests.helpers.host_runs import backends_of
from tests.helpers.plan_files import H200, plan_of, write_plan

LAYERS = Sizes(tokens=512, hidden=1024, inner=8192, layers=8)
SMALL = Sizes(tokens=64, hidden=64, inner=64, layers=8)
CASES = ((1, 4), (1, 1), (15, 1))
"""How often layers change slices, and slots."""
WAYS = (("two", True), ("one", False), ("two", False))
"""Processes, and whether MPS runs."""
MPS = "nvidia-cuda-mps-control"


def placed(moves: int, count: int) -> list[str]:
    """The slice of each step."""
    if moves == 1:
        return ["a" if step < round(count * 84 / 132) else "b" for step in range(count)]
    return ["ab"[step * (moves + 1) // count % 2] for step in range(count)]


def processor_s(processes: list[int]) -> float:
    """Processor time that processes have taken."""
    ticks = 0
    for pid in processes:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def measured(ways: str, moves: int, slots: int, seconds: float, stand_in: bool) -> Row:
    """Requests per second, as many under way as keep all slots busy."""
    folder = setting(stand_in).folder
    program = build("stack", SMALL if stand_in else LAYERS).programs[0]
    steps = placed(moves, len(list(program.work())))
    plan = plan_of([program], [steps], slots=slots, lanes=slots, gpu=H200)
    moved = plan.replicas[0].lowered.traces[0].transfers
    row: Row = {"transfers": sum(HOST not in (move.source, move.target) for move in moved)}
    hosts = kept_hosts(stand_in, "near") if ways == "two" else None
    path = write_plan(folder, plan)
    with Runtime(path, backend="cuda", targets=TWO, hosts=hosts, time_limit_s=LIMIT_S) as runtime:
        processes = [os.getpid()]
        if hosts is not None:
            (backend,) = backends_of(runtime)
            processes = [link.process.pid for link in backend._links.values()]
        inputs = inputs_of(runtime.programs[0], 1)
        under_way: deque[Any] = deque()
        done, given, begun, spent_s = -2 * slots, 0, 0.0, 0.0  # the first fill the slots
        while not begun or time.monotonic() - begun < seconds:
            under_way.append(runtime.submit(inputs, sequence=given % slots))
            given += 1
            if len(under_way) >= (1 if slots == 1 else 2 * slots):
                under_way.popleft().result(LIMIT_S)
                done += 1
                if done == 0:
                    begun, spent_s = time.monotonic(), processor_s(processes)
        took_s = time.monotonic() - begun
        row["processor_us"] = round((processor_s(processes) - spent_s) / done * 1e6, 1)
        row["requests_per_s"] = round(done / took_s, 2)
    return row | {"requests": done}


def in_process(case: Row, environment: dict[str, str]) -> Row:
    """A case in a process of its own: whether it uses MPS is decided when CUDA starts."""
    command = [sys.executable, "-m", "benchmarks.hosts.speed", "--case", json.dumps(case)]
    try:
        done = subprocess.run(
            command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"error": "it took longer than 60 s"}
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {
        "error": done.stderr[-400:]
    }  # fmt: skip


def start_mps() -> dict[str, str] | str:
    """The variables by which processes use MPS, or why its daemon does not start."""
    folder = tempfile.mkdtemp(prefix="mps")
    names = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
    try:
        subprocess.run([MPS, "-d"], env={**os.environ, **names}, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError) as problem:
        return str(problem)
    return names


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--each", type=float, default=3.0, help="seconds of a case")
    parser.add_argument("--stand-in", action="store_true", help="no GPU: a rehearsal")
    parser.add_argument("--case", type=json.loads, help="one case, in this process")
    given = parser.parse_args()
    if given.case:
        print(json.dumps(measured(**given.case)))
        return
    rows: list[Row] = []
    for ways, shared in WAYS:
        daemon = start_mps() if shared else {}
        for moves, slots in CASES:
            case: Row = {"ways": ways, "moves": moves, "slots": slots}
            row = case | {"mps": shared}
            if isinstance(daemon, str):
                row |= {"error": daemon}
            else:
                more = {"seconds": given.each, "stand_in": given.stand_in}
                row |= in_process(case | more, daemon)
            rows.append(row)
            print(json.dumps(row), flush=True)
        if shared and isinstance(daemon, dict):
            subprocess.run(
                [MPS], input="quit\n", env={**os.environ, **daemon}, text=True, timeout=20,
                check=False,
            )  # fmt: skip
    setting(given.stand_in)
    write({"machine": facts(), "speed": rows}, given.output)


if __name__ == "__main__":
    main()
