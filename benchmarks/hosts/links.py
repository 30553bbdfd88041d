"""Hosts in namespaces, with links of three speeds: what transfers and the host cost.

    python -m benchmarks.hosts.links [--requests 16] [--repeats 3] [-o FILE]

Needs root, `ip` and `tc`. A chain of kernels that sleep for a known time, and buffers that are
copied beside them. The planner places it over two hosts for a link of each speed, with the first
step on one and the last on the other: without that it would have a replica per host, which moves
nothing. `tc tbf` shapes the links to that speed. Of repeats the least time counts: whatever else
the machine does only adds to it. Per request, in the steady state:

- `link_ms`: what its transfers take at the speed of the link
- `free_ms`, `ms`: the time between two requests with a free link, and with the shaped one
- `hidden`: 1 - (ms - free_ms) / link_ms, at most 1
- `simulated_ms`: what the simulator says for the shaped link, by the rules of processes
- `off`: ms / simulated_ms - 1

`step_us` is what the host takes of a step on two hosts: the time on each device in which no
operation runs although one is ready, by step; with what it takes from the end of a `put` to the
start of its `wait` (`way_us`). Both are medians over requests that run alone.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import arguments, machine, write
from benchmarks.prediction.simulated_cpu import NAP
from tessera.backend.service import TimelineEvent
from tessera.driver.hosts.kept_hosts import KeptHosts
from tessera.driver.plan import PlanOptions, plan
from tessera.driver.run.runtime import Runtime
from tessera.frontend.machine.machine_file import parse_machine
from tessera.ir.plan.launch_program import HOST
from tessera.ir.plan.plan import Plan
from tessera.ir.plan.print_plan import print_plan
from tessera.ir.program.print_trace import print_program
from tessera.ir.text_digest import text_digest
from tessera.simulation.hardware import process_hardware, throttled
from tessera.simulation.steady import saturate
from tests.helpers.host_runs import inputs_of
from tests.helpers.namespaces import hosts_in, namespaces
from tests.helpers.traces import trace

SPEEDS = (10e6, 20e6, 40e6)
LAYERS, WORDS, BIG = 8, 64, 1 << 20
NAP_MS = 100
SLOTS = 4
LIMIT_S = 120.0


def sleeping_chain() -> str:
    """A trace: in each layer a kernel that sleeps, and a copy of a large buffer."""
    size = 4 * WORDS
    buffers = [
        f"buffer x bytes={size} role=input dtype=u32 shape={WORDS}",
        f"buffer big bytes={BIG} role=input dtype=u32 shape={BIG // 4}",
        f"buffer y bytes={size} role=output dtype=u32 shape={WORDS}",
        f"buffer z bytes={BIG} role=output dtype=u32 shape={BIG // 4}",
    ]
    steps, before, large = [], "x", "big"
    for layer in range(LAYERS):
        is_last = layer == LAYERS - 1
        name, copy = ("y", "z") if is_last else (f"t{layer}", f"b{layer}")
        if not is_last:
            buffers.append(f"buffer {name} bytes={size} role=temp dtype=u32 shape={WORDS}")
            buffers.append(f"buffer {copy} bytes={BIG} role=temp dtype=u32 shape={BIG // 4}")
        steps.append(f"memcpy {copy} {large} bytes={BIG}")
        steps.append(
            f"launch m.nap grid=1,1,1 block={WORDS},1,1 "
            f"args=[{name}, {before}, {before}, u32:{NAP_MS * 1_000_000}]"
        )
        before, large = name, copy
    return print_program(trace("\n".join(buffers), NAP, "\n".join(steps)))


def planned(folder: Path, bytes_per_s: float) -> Plan:
    """The planner's placement over two hosts with this link."""
    machine = parse_machine(
        f"""
        link = "{bytes_per_s / 1e6:g}MB/s"
        [[node]]
        name = "left"
        [[node.card]]
        gpu = "a100"
        [[node]]
        name = "right"
        [[node.card]]
        gpu = "l40s"
        """
    )
    text = sleeping_chain()
    path, times = folder / "chain.ptx", folder / "times.json"
    path.write_text(text)
    rows = [
        {
            "step": step,
            "name": "m.nap" if step % 2 else "memcpy",
            "gpu": gpu,
            "ns": NAP_MS * 1e6 if step % 2 else 5e5,
            "error": 0.01,
        }
        for gpu in ("a100", "l40s")
        for step in range(2 * LAYERS)
    ]
    value = {"schema": "tessera-profile/1", "program": text_digest(text), "rows": rows}
    times.write_text(json.dumps(value))
    options = PlanOptions(
        machine=machine,
        slots=SLOTS,
        sequences=SLOTS,
        profiles=(str(times),),
        pins=("#1=a100-0", f"#{2 * LAYERS - 1}=l40s-0"),
    )
    return plan(str(path), options, compare=False).plan


def period_ms(path: str, hosts: KeptHosts, requests: int) -> float:
    """The time between two requests, all slots busy."""
    with Runtime(path, hosts=hosts) as runtime:
        inputs = inputs_of(runtime)
        handles = [
            runtime.submit(inputs, sequence=n % runtime.sequences) for n in range(runtime.capacity)
        ]
        ends = []
        for number in range(requests):
            handles.pop(0).result(LIMIT_S)
            ends.append(time.monotonic())
            handles.append(runtime.submit(inputs, sequence=number % runtime.sequences))
        for handle in handles:
            handle.result(LIMIT_S)
    warm = ends[2 * SLOTS - 1 :]
    return (warm[-1] - warm[0]) / (len(warm) - 1) * 1e3


def moved_bytes(given: Plan) -> int:
    """What a request moves between devices."""
    transfers = given.replicas[0].lowered.traces[0].transfers
    return sum(t.size for t in transfers if HOST not in (t.source, t.target))


def shape(places: Sequence[tuple[str, str]], bytes_per_s: float | None) -> None:
    """Limit the rate of every namespace, or remove the limit."""
    for place, _ in places:
        device = ["ip", "netns", "exec", place, "tc", "qdisc"]
        subprocess.run([*device, "del", "dev", "eth0", "root"], capture_output=True, check=False)
        if bytes_per_s is not None:
            rate = f"{int(bytes_per_s * 8)}bit"
            words = ["root", "tbf", "rate", rate, "burst", "128kb", "latency", "2s"]
            subprocess.run([*device, "add", "dev", "eth0", *words], check=True)


def host_cost(path: str, hosts: KeptHosts, requests: int) -> dict[str, object]:
    """Host time of a step and of a transfer between hosts, in microseconds."""
    per_step, ways = [], []
    with Runtime(path, hosts=hosts, timeline=True) as runtime:
        inputs = inputs_of(runtime)
        for number in range(requests):
            result = runtime.submit(inputs, sequence=0).result(LIMIT_S)
            if number < 2:
                continue
            events = sorted(result.events, key=lambda event: event.start_ns)
            per_step += idle_before(events)
            ways += put_to_wait(events)
    return {
        "steps": len(per_step),
        "step_us": round(statistics.median(per_step) / 1e3, 1),
        "step_p90_us": round(statistics.quantiles(per_step, n=10)[8] / 1e3, 1),
        "ways": len(ways),
        "way_us": round(statistics.median(ways) / 1e3, 1) if ways else None,
    }


def idle_before(events: Sequence[TimelineEvent]) -> list[int]:
    """Before each step: the time since its device last did something."""
    last: dict[str, int] = {}
    gaps = []
    for event in events:
        if event.step is not None and event.device in last:
            gaps.append(max(0, event.start_ns - last[event.device]))
        last[event.device] = max(last.get(event.device, 0), event.end_ns)
    return gaps


def put_to_wait(events: Sequence[TimelineEvent]) -> list[int]:
    """From the end of each put to the start of its wait."""
    ends = {e.name.split()[1]: e.end_ns for e in events if e.name.startswith("put ")}
    waits = [e for e in events if e.name.startswith("wait for ")]
    return [e.start_ns - ends[e.name.split()[2]] for e in waits if e.name.split()[2] in ends]


def main() -> None:
    """Measure all speeds."""
    parser = arguments(__doc__, "host_links.json")
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    rows = []
    with namespaces(2) as places, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with KeptHosts(hosts_in(folder, ["left", "right"], places)) as hosts:
            for speed in SPEEDS:
                made = planned(folder, speed)
                path = folder / f"{speed:g}.tsp"
                path.write_text(print_plan(made))
                devices = made.replicas[0].lowered.devices
                hardware = throttled(process_hardware(devices, None), speed)
                simulated = saturate([made.replicas[0]], [1.0], hardware).period_ns / 1e6
                shape(places, None)
                cost = host_cost(str(path), hosts, options.requests)
                periods: dict[float | None, list[float]] = {None: [], speed: []}
                for rate in (None, speed) * options.repeats:
                    shape(places, rate)
                    periods[rate].append(period_ms(str(path), hosts, options.requests))
                free, shaped = min(periods[None]), min(periods[speed])
                link = moved_bytes(made) / speed * 1e3
                steps = made.replicas[0].traces[0].steps
                row = {
                    "bytes_per_s": speed,
                    "placement": "".join("lr"[s.device == devices[1]] for s in steps),
                    "moved_bytes": moved_bytes(made),
                    "link_ms": round(link, 2),
                    "free_ms": round(free, 2),
                    "ms": round(shaped, 2),
                    "repeats_ms": [round(period, 1) for period in periods[speed]],
                    "hidden": round(min(1.0, 1 - (shaped - free) / link), 4),
                    "simulated_ms": round(simulated, 2),
                    "off": round(shaped / simulated - 1, 4),
                    "host": cost,
                    "load": machine()["load"],
                }
                rows.append(row)
                print(json.dumps(row), flush=True)
    write({**machine(), "rows": rows}, options.output)


if __name__ == "__main__":
    main()
