"""Random placements over hosts in network namespaces, to the byte.

    python -m benchmarks.hosts.placements run --count 200 --seconds 3600 -o out/placements.jsonl
    UCX_TLS=tcp python -m benchmarks.hosts.placements run --transport nixl -o out/nixl.jsonl
    python -m benchmarks.hosts.placements many --count 4 -o out/many.jsonl
    python -m benchmarks.hosts.placements report out/placements.jsonl out/many.jsonl -o FILE

Needs root and `ip`. A line per case is added to the file, and cases that it has are not done again.
Every step of a trace (random ones, and all examples without library calls) is on a random device of
2 to 4, over 2 or 3 namespaces, whose processes are kept for all cases. Outputs and states are
compared with one device. `started` is how many processes a case had to start. `many`: 16 devices
over 4 namespaces.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections import Counter
from functools import lru_cache, partial
from pathlib import Path

from benchmarks.hosts.cases import Row, act, command_line, do_case, rows_of, seeds, write_report
from tessera.driver.hosts.kept_hosts import KeptHosts
from tessera.driver.load import load
from tessera.driver.run.options import PlanRunOptions
from tessera.driver.run.run_plan import prepare_run, run_prepared
from tessera.driver.run.verify import verify_run
from tessera.ir.plan.hosts import TRANSPORTS
from tessera.ir.program import program as ir
from tests.helpers.namespaces import hosts_in, namespaces, processes_in
from tests.helpers.plan_files import A100, H200, plan_of, write_plan
from tests.helpers.random_traces import random_program

NAMES = ["left", "right", "third", "fourth"]
MANY = ["llama_prefill.ptx", "mamba.ptx", "llama_steps_decode.ptx", "moe.ptx"]
EXAMPLES = sorted(
    str(path)
    for path in Path("examples/traces").glob("*.ptx")
    if "library" not in path.name  # the CPU backend has no library calls on processes
)
ROUND = 20
"""Placements in a round: one for each example, the others for random traces."""


@lru_cache(None)
def example(path: str) -> ir.Program:
    """An example trace."""
    return load(path)


def many_case(seed: int, folder: Path, kept: KeptHosts) -> Row:
    """A placement over 16 devices of 4 hosts."""
    rng = random.Random(seed)
    trace = f"examples/traces/{MANY[seed % len(MANY)]}"
    return run_case(
        rng, trace, example(trace), {f"d{n}": NAMES[n % 4] for n in range(16)}, folder, kept
    )


def placement_case(seed: int, folder: Path, kept: KeptHosts) -> Row:
    """One random placement."""
    rng = random.Random(seed)
    trace = EXAMPLES[seed % ROUND] if seed % ROUND < len(EXAMPLES) else ""
    program = example(trace) if trace else random_program(seed, steps=rng.randint(4, 10))
    count = rng.choice([2, 3])
    devices = {f"d{n}": NAMES[n % count] for n in range(rng.randint(count, 4))}
    return run_case(rng, trace, program, devices, folder, kept)


def run_case(
    rng: random.Random,
    trace: str,
    program: ir.Program,
    devices: dict[str, str],
    folder: Path,
    kept: KeptHosts,
) -> Row:
    """Place the steps, run them on the kept hosts, and compare."""
    steps = [rng.choice(list(devices)) for _ in program.work()]
    if len(devices) == 16:  # each has one at least
        for device, step in zip(devices, rng.sample(range(len(steps)), len(devices)), strict=True):
            steps[step] = device
    is_new = any(variant.arch == "sm_90a" for m in program.modules for variant in m.variants)
    gpu = H200 if is_new else A100
    plan = plan_of([program], [steps], slots=rng.randint(1, 3), hosts=devices, gpu=gpu)
    path = write_plan(folder, plan)
    data = _contents(trace)
    options = PlanRunOptions(hosts=kept, requests=2 if trace else 4, data=data)
    prepared = prepare_run(path, options)
    idle = set(kept.processes())
    started = time.monotonic()
    outcome = run_prepared(prepared)
    took_s = time.monotonic() - started
    equal, why = not outcome.fault, "; ".join(str(fault.headline) for fault in outcome.fault)
    if equal:
        verify_run(outcome, prepared)  # raises where a byte differs
    lowered = plan.replicas[0].lowered
    moved = [t for t in lowered.traces[0].transfers if "host" not in (t.source, t.target)]
    return {
        "trace": Path(trace).name or "random",
        "hosts": len(set(devices.values())),
        "devices": len(lowered.devices),
        "landings": len(lowered.landings),
        "transfers": len(moved),
        "equal": equal,
        "why": why,
        "seconds": round(took_s, 3),
        "started": len(set(kept.processes()) - idle),
    }


def _contents(trace: str) -> str | None:
    """The file of contents that a trace names."""
    name = example(trace).resident if trace else None
    return None if name is None else str(Path(trace).with_name(name))


def run(options: argparse.Namespace) -> None:
    """Do the cases."""
    number, case = (4, many_case) if options.what == "many" else (3, placement_case)
    with namespaces(number) as places, tempfile.TemporaryDirectory() as folder:
        head = f'transport = "{options.transport}"\n'
        with KeptHosts(hosts_in(Path(folder), NAMES[:number], places, head)) as kept:
            for seed in seeds(options):
                do_case(options, {"seed": seed}, partial(case, seed, Path(folder), kept))
        print("left:", sum(len(processes_in(name)) for name, _ in places))


def report(options: argparse.Namespace) -> None:
    """What was done."""
    rows = rows_of(options)
    took = sorted(row["seconds"] for row in rows if "seconds" in row)
    value: Row = {
        "placements": len(rows),
        "of_16_devices": sum(row.get("devices", 0) == 16 for row in rows),
        "equal": sum(row["equal"] for row in rows),
        "with_landings": sum(row.get("landings", 0) > 0 for row in rows),
        "hosts": dict(sorted(Counter(str(row.get("hosts")) for row in rows).items())),
        "traces": dict(sorted(Counter(str(row.get("trace")) for row in rows).items())),
        "processes_started": sum(row.get("started", 0) for row in rows),
        "processes_used": sum(row.get("devices", 0) for row in rows),
        "median_run_s": took[len(took) // 2] if took else None,
        "errors": [row for row in rows if not row["equal"]],
    }
    write_report(options, rows, value)


def main() -> None:
    """Read the command line."""
    parser = command_line(__doc__, ["run", "many"], 200)
    parser.add_argument("--transport", choices=TRANSPORTS, default=TRANSPORTS[0])
    act(parser, run, report)


if __name__ == "__main__":
    main()
