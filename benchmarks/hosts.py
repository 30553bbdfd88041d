"""Runs over hosts in network namespaces: random placements to the byte, and injected faults.

    python -m benchmarks.hosts placements --count 200 --seconds 3600 -o out/placements.jsonl
    python -m benchmarks.hosts faults --count 300 --seconds 3600 -o out/faults.jsonl
    python -m benchmarks.hosts report out/placements.jsonl out/faults.jsonl -o FILE

Needs root and `ip`. A line per case is added to the file, and cases that it has are not done again.
Placements: every step of a trace (random ones, and those of `--trace`) on a random device of 2 to
4, over 2 or 3 namespaces, 4 requests; outputs and states are compared with one device. Faults, at
a random moment of a run without end: SIGKILL or SIGSTOP of a random process, or a cable that is
cut. `seconds` is the time from the fault until a request has failed; `named` says whether the error
names host and device, `left` how many processes stayed in the namespaces.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tessera.driver.load import load
from tessera.driver.run.options import PlanRunOptions
from tessera.driver.run.run_plan import prepare_run, run_prepared
from tessera.driver.run.runtime import Runtime
from tessera.driver.run.verify import verify_run
from tests.helpers.host_runs import backends_of, inputs_of
from tests.helpers.namespaces import hosts_in, ip, namespaces, processes_in
from tests.helpers.plan_files import plan_of, write_plan
from tests.helpers.random_traces import random_program

LIMIT_S = 30.0
"""More than any fault may take."""
IN_TIME_S = {"kill": 1.0, "cut": 1.0, "stop": 2.0}
Places = list[tuple[str, str]]


def placement_case(seed: int, folder: Path, places: Places, traces: list[str]) -> dict[str, object]:
    """One random placement, run and compared."""
    rng = random.Random(seed)
    trace = rng.choice(["", *traces])
    program = load(trace) if trace else random_program(seed, steps=rng.randint(4, 10))
    count = rng.choice([2, 3]) if len(places) > 2 else 2
    names = ["left", "right", "third"][:count]
    devices = {f"d{n}": names[n % count] for n in range(rng.randint(count, 4))}
    steps = [rng.choice(list(devices)) for _ in program.work()]
    plan = plan_of([program], [steps], slots=rng.randint(1, 3), hosts=devices)
    path = write_plan(folder, plan)
    data = trace.removesuffix(".ptx") + ".npz"
    options = PlanRunOptions(
        hosts=hosts_in(folder, names, places[:count]),
        requests=4,
        data=data if trace and os.path.exists(data) else None,
    )
    prepared = prepare_run(path, options)
    started = time.monotonic()
    outcome = run_prepared(prepared)
    equal, why = not outcome.fault, "; ".join(found.headline for found in outcome.fault)
    if equal:
        verify_run(outcome, prepared)  # raises where a byte differs
    lowered = plan.replicas[0].lowered
    moved = [t for t in lowered.traces[0].transfers if "host" not in (t.source, t.target)]
    return {
        "trace": trace or "random",
        "hosts": count,
        "devices": len(lowered.devices),
        "landings": len(lowered.landings),
        "transfers": len(moved),
        "equal": equal,
        "why": why,
        "seconds": round(time.monotonic() - started, 3),
        "left": sum(len(processes_in(name)) for name, _ in places),
    }


def fault_case(seed: int, folder: Path, places: Places) -> dict[str, object]:
    """One fault at a random moment."""
    rng = random.Random(seed)
    program = random_program(12, steps=8)
    devices = {"a": "left", "b": "right", "c": "left"}
    steps = ["abc"[n % 3] for n in range(len(program.steps))]
    path = write_plan(folder, plan_of([program], [steps], hosts=devices))
    runtime = Runtime(path, hosts=hosts_in(folder, ["left", "right"], places[:2]))
    links = dict(backends_of(runtime)[0]._links)
    inputs = inputs_of(runtime)
    failures: list[tuple[float, BaseException]] = []

    def feed() -> None:
        try:
            while True:
                runtime.submit(inputs).result(LIMIT_S)
        except BaseException as problem:
            failures.append((time.monotonic(), problem))

    feeding = threading.Thread(target=feed, daemon=True)
    feeding.start()
    time.sleep(rng.uniform(0.1, 1.5))
    kind = rng.choice(["kill", "stop", "cut"])
    victim = links[rng.choice(list(links))]
    begun = time.monotonic()
    if kind == "cut":
        ip("-n", places[1][0], "link", "set", "eth0", "down")
    else:
        how = signal.SIGKILL if kind == "kill" else signal.SIGSTOP
        os.kill(victim.process.pid, how)
    feeding.join(LIMIT_S)
    runtime.close(wait=False)
    if kind == "cut":
        ip("-n", places[1][0], "link", "set", "eth0", "up")
    time.sleep(0.2)
    text = str(failures[0][1]) if failures else ""
    wanted = ["host `"] if kind == "cut" else [f"device `{victim.device}`", "host `"]
    return {
        "kind": kind,
        "seconds": round(failures[0][0] - begun, 3) if failures else None,
        "named": all(words in text for words in wanted),
        "said": text.splitlines()[0] if text else "",
        "left": sum(len(processes_in(name)) for name, _ in places),
    }


def keep_going(options: argparse.Namespace, case: Callable[[int, Path, Places], dict]) -> None:
    """Do cases that the file does not have, until the count or the time is reached."""
    output = Path(options.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    lines = output.read_text().splitlines() if output.exists() else []
    known = {json.loads(line)["seed"] for line in lines}
    deadline = time.monotonic() + options.seconds
    with namespaces(3) as places, tempfile.TemporaryDirectory() as folder:
        for seed in range(options.first, options.first + options.count):
            if seed in known or time.monotonic() > deadline:
                continue
            try:
                row = case(seed, Path(folder), places)
            except Exception as problem:  # a case that fails is a result
                row = {"error": f"{type(problem).__name__}: {problem}"[:400], "equal": False}
            row = {"seed": seed, **row}
            print(json.dumps(row), flush=True)
            with output.open("a") as stream:
                stream.write(json.dumps(row) + "\n")


def report(options: argparse.Namespace) -> None:
    """One file of what was done, with the machine."""
    texts = [Path(name).read_text() for name in options.files]
    rows = [json.loads(line) for text in texts for line in text.splitlines()]
    placed = [row for row in rows if "equal" in row]
    faults = [row for row in rows if "kind" in row]
    kinds = {}
    for kind in sorted({row["kind"] for row in faults}):
        own = [row for row in faults if row["kind"] == kind]
        times = sorted(row["seconds"] for row in own if row["seconds"] is not None)
        kinds[kind] = {
            "cases": len(own),
            "hung": sum(row["seconds"] is None for row in own),
            "in_time": sum(seconds <= IN_TIME_S[kind] for seconds in times),
            "median_s": times[len(times) // 2] if times else None,
            "most_s": times[-1] if times else None,
            "named": sum(row["named"] for row in own),
        }
    value = {
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        "python": platform.python_version(),
        "busy": options.busy,
        "placements": {
            "cases": len(placed),
            "equal": sum(row["equal"] for row in placed),
            "with_landings": sum(row.get("landings", 0) > 0 for row in placed),
            "hosts": dict(Counter(str(row.get("hosts")) for row in placed)),
            "errors": [row for row in placed if not row["equal"]],
        },
        "faults": kinds,
        "processes_left": sum(row.get("left", 0) for row in rows),
    }
    Path(options.output).write_text(json.dumps(value, indent=1) + "\n")
    print(json.dumps(value, indent=1))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["placements", "faults", "report"])
    parser.add_argument("files", nargs="*")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--trace", action="append", default=[])
    parser.add_argument("--busy", default="", help="what else the machine did, for the report")
    parser.add_argument("-o", "--output", required=True)
    options = parser.parse_args()
    if options.what == "report":
        report(options)
    elif options.what == "faults":
        keep_going(options, fault_case)
    else:
        keep_going(options, lambda s, f, p: placement_case(s, f, p, options.trace))


if __name__ == "__main__":
    main()
