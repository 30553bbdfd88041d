"""What an exchange between two slices of one GPU costs, by the way it is made.

    python -m benchmarks.running.exchange_ways [-o FILE] [--ways NAME,NAME] [--dry-run]

Two slices of 84 and 48 SMs take turns: a kernel on one, an exchange, a kernel on the other. Kernels
write when they began and ended by the GPU's timer, check every word that they were sent, and note
their SMs. By way and size:

- `gap_us`: from the end of a kernel to the beginning of the one that waits for it, over all
  exchanges of all rounds
- `per_exchange_us`: a whole chain over its exchanges, the kernels (`work_us` each) included; `live`
  is the same without a gate, where the host submits while the GPU works
- `host_us`: the thread's time in the driver per exchange, and per chain

Names: `events` are events and host calls, as the backend did it; `stream_words` are stream memory
operations; `graph_words` a graph per slice, captured, that waits for words and writes them, `nodes`
the same made node by node, `numbered` with words that hold the number of the request; `flags` are
kernels that release and acquire a word; `one_graph` is a graph over both slices. `_copy` moves
bytes by a copy, `_push` by a kernel that also writes the word; else slices share them. `_host`:
words lie in pinned memory of the host. `_alone` are kernels of one slice, one after the other.

`queued`: requests of 128 exchanges in both directions, as graphs of which some are launched before
others have begun. `waiting`: what goes on beside a graph that waits, and how it is released.

Every way runs for itself: one that fails, or hangs, is in the result with its reason, and what is
left goes on in a new process. `--dry-run` calls a stand-in for the driver.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence

from benchmarks.common import ROOT, Row, arguments, machine, write
from benchmarks.running.exchange_slices import IDLE_S, SMS, Hang, Slices
from benchmarks.running.exchange_stand_in import StandIn
from benchmarks.running.exchange_trials import EXCHANGES, ROUNDS, SIZES, TRIALS
from tessera.backend.cuda.api import Driver, bindings

QUIET_S, ALL_S = 15.0, 55.0


def child(names: Sequence[str], *, is_dry: bool) -> None:
    """Trials one after the other, a line of JSON each, until one fails."""
    # A kernel that is loaded at its first launch would wait for kernels that wait for it.
    os.environ["CUDA_MODULE_LOADING"] = "EAGER"
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    slices = Slices(Driver(StandIn() if is_dry else bindings()))
    for name in names:
        say({"begins": name})
        begun = time.perf_counter()
        try:
            found = TRIALS[name](slices)
        except Exception as problem:
            say({"trial": name, "failed": explain(slices, problem)})
            os._exit(1)  # what is under way may never end
        say({"trial": name, **found, "seconds": round(time.perf_counter() - begun, 2)})
    os._exit(0)


def explain(slices: Slices, problem: Exception) -> Row:
    """Why a trial failed; of one that hangs, also whether it can be released."""
    found: Row = {"why": f"{type(problem).__name__}: {problem}"}
    if isinstance(problem, Hang):
        try:
            slices.release()
            slices.finish(most_s=IDLE_S / 2)
            found["released"] = True
        except Exception as second:
            found["released"] = f"{type(second).__name__}: {second}"
    found["where"] = traceback.format_exception(problem)[-4:]
    return found


def say(row: Row) -> None:
    print(json.dumps(row), flush=True)


def run(names: list[str], found: Row, keep: Callable[[], None], *, is_dry: bool) -> None:
    """All trials; a process that fails or is silent is replaced for those that are left."""
    until = time.monotonic() + ALL_S
    while names and time.monotonic() < until:
        left = run_child(names, found, until, is_dry=is_dry)
        keep()
        if left == names:
            break
        names = left
    for name in names:
        found.setdefault(name, {"failed": {"why": "no time was left, or no process starts"}})


def run_child(names: list[str], found: Row, until: float, *, is_dry: bool) -> list[str]:
    """Trials in a process; those that it did not come to."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.running.exchange_ways",
        "--child",
        *(["--dry-run"] * is_dry),
    ]
    process = subprocess.Popen(
        [*command, "--ways", ",".join(names)],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    lines: queue.Queue[str | None] = queue.Queue()
    stream = process.stdout
    assert stream is not None

    def read() -> None:
        for line in stream:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    at, said, left = "", [], list(names)
    why = "the process ended"
    while True:
        try:
            line = lines.get(timeout=max(0.1, min(QUIET_S, until - time.monotonic())))
        except queue.Empty:
            why = "the process said nothing any more"
            process.kill()
            break
        if line is None:
            break
        try:
            row = json.loads(line)
        except ValueError:
            said.append(line.rstrip())
            continue
        if "begins" in row:
            at = row["begins"]
            continue
        name = row.pop("trial")
        found[name] = row
        left.remove(name)
        print(name, brief(row), flush=True)
    process.wait()
    if process.returncode and not at:
        found[names[0]] = {"failed": {"why": why, "code": process.returncode, "said": said[-12:]}}
        print(*said, sep="\n", flush=True)
    elif process.returncode and at in left:
        found[at] = {"failed": {"why": why, "code": process.returncode, "said": said[-12:]}}
        print(at, found[at], flush=True)
        left.remove(at)
    return left


def brief(row: Row) -> str:
    """A result on a line."""
    if "failed" in row:
        return f"failed: {row['failed']['why']}"
    sizes = {size: row[size]["gap_us"] for size in map(str, SIZES) if size in row}
    return json.dumps(sizes or row)


def main() -> None:
    parser = arguments(__doc__, "exchange_ways.json")
    parser.add_argument("--ways", default=",".join(TRIALS), help="trials, by name")
    parser.add_argument("--dry-run", action="store_true", help="a stand-in for the driver")
    parser.add_argument("--child", action="store_true", help="run trials in this process")
    options = parser.parse_args()
    names = options.ways.split(",")
    unknown = [name for name in names if name not in TRIALS]
    if unknown:
        parser.error(f"no such trial: {', '.join(unknown)}; there are {', '.join(TRIALS)}")
    if options.child:
        child(names, is_dry=options.dry_run)
    gpu = {} if options.dry_run else facts()
    begun = time.perf_counter()
    trials: Row = {}
    result = {**machine(), "gpu": gpu, "slices": SMS, "exchanges": EXCHANGES, "rounds": ROUNDS}

    def keep() -> None:
        result["trials"], result["seconds"] = trials, round(time.perf_counter() - begun, 1)
        write(result, None if options.dry_run else options.output)

    run(names, trials, keep, is_dry=options.dry_run)
    keep()
    failed = [name for name in names if "failed" in trials[name]]
    print(f"{len(names) - len(failed)} of {len(names)} trials in {result['seconds']} s", *failed)


def facts() -> Row:
    """The GPU; its context stays open, so that those of the trials open faster."""
    driver = Driver(bindings())
    driver.initialise()
    driver.retain(0)
    gpu = driver.gpus()[0]
    return {"device": gpu.name, "sms": gpu.sms, "cuda": driver.version()}


if __name__ == "__main__":
    main()
