"""How much of the transfers is hidden: two slices of a GPU with links of 25, 12.5 and 3 GB/s.

    python -m benchmarks.running.cuda_pipeline OUTPUT_FOLDER [--until times|plans]

For every bandwidth: measure the steps on each slice, plan with these times and that link (the first
step pinned to one slice, the last to the other), run the plan's placement with the link throttled
and free, and ten random placements too. Times and plans are left in the folder, and used again if
they are there: planning needs no GPU, so it can be done elsewhere. Reported per request, in the
steady state:

- `link_us`: what its transfers take on the busier direction of the link, at the bandwidth
- `free_us`: the time per request with transfers that take (next to) no time
- `us`: the time per request with the throttled link
- `hidden`: 1 - (us - free_us) / (time of all transfers), at most 1
- `overlapped`: the share of transfer time in which the device at its end computes (the planner's
  placement only)
- `to_bound`: us / max(free_us, link_us)
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.running.cuda_bench import (
    TWO,
    at_random,
    facts,
    on_one,
    requests,
    served,
    start,
    write,
)
from benchmarks.running.cuda_models import CudaModel, Sizes, build
from tessera.backend.host_loop.dispatch import Dispatcher
from tessera.backend.service import Model
from tessera.driver.plan import PlanOptions, plan
from tessera.driver.run.outcome import overlap, spans_by_device, total
from tessera.frontend.machine.machine_file import parse_machine
from tessera.ir.plan.launch_program import HOST, LoweredReplica, Queue
from tessera.ir.program.print_trace import print_program
from tessera.ir.text_digest import text_digest

SLOTS, REQUESTS = 8, 64
BANDWIDTHS = {
    25e9: Sizes(tokens=4096, hidden=1024, inner=2048, layers=6),
    12.5e9: Sizes(tokens=4096, hidden=1024, inner=2048, layers=6),
    3e9: Sizes(tokens=2048, hidden=1024, inner=4096, layers=6),
}
SMS = {"a": 84, "b": 48}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--random", type=int, default=10)
    parser.add_argument("--until", choices=("times", "plans"))
    arguments = parser.parse_args()
    folder = arguments.folder
    models = {sizes: build("stack", sizes) for sizes in BANDWIDTHS.values()}
    times = kept(folder, "times", lambda: {str(s): profile(m) for s, m in models.items()})
    if arguments.until == "times":
        return
    plans = kept(
        folder,
        "plans",
        lambda: {str(b): planned(models[s], times[str(s)], b) for b, s in BANDWIDTHS.items()},
    )
    if arguments.until == "plans":
        return
    result: dict[str, object] = {"machine": facts(), "slots": SLOTS, "requests": REQUESTS}
    for bandwidth, sizes in BANDWIDTHS.items():
        model = models[sizes]
        places, about = plans[str(bandwidth)]
        found: dict[str, object] = {
            "sizes": str(sizes),
            "plan": about,
            "placement": "".join(places[0]),
            "planner": measure(model, places, bandwidth)
            | {"overlapped": round(overlapped(model, places, bandwidth), 4)},
        }
        found["random"] = [
            measure(model, at_random(model, "ab", seed), bandwidth)
            for seed in range(arguments.random)
        ]
        result[f"{bandwidth / 1e9:g} GB/s"] = found
        print(bandwidth, json.dumps(found)[:1500], flush=True)
        write(folder, "cuda_pipeline.json", result)


def kept(folder: str, what: str, make: Callable[[], Any]) -> Any:
    """What an earlier run left in the folder, or what is made now."""
    path = Path(folder) / f"cuda_pipeline_{what}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(make()))
    return json.loads(path.read_text())


def profile(model: CudaModel) -> list[dict[str, object]]:
    """Times of all steps on each slice, the other one idle."""
    rows: list[dict[str, object]] = []
    for device, sms in SMS.items():
        backend = start(served(model, on_one(model, device), 1, 1), TWO, timeline=True)
        done, _ = requests(backend, model, [(0, 0)] * 6, 1, 1)
        for step, _ in enumerate(model.programs[0].work()):
            taken = [
                e.end_ns - e.start_ns for one in done[2:] for e in one.events if e.step == step
            ]
            name = model.graphs[0].nodes[step].name
            rows.append(
                {
                    "step": step,
                    "name": name,
                    "gpu": "h200",
                    "sms": sms,
                    "ns": float(statistics.median(taken)),
                    "error": 0.03,
                }
            )
    return rows


def planned(
    model: CudaModel, rows: list[dict[str, object]], bandwidth: float
) -> tuple[list[list[str]], dict[str, object]]:
    """The planner's placement over both slices for a link of this bandwidth."""
    text = print_program(model.programs[0])
    machine = parse_machine(
        f"""
        [[card]]
        gpu = "h200"
        slices = [84, 48]
        [[link_between]]
        devices = ["h200-0.0", "h200-0.1"]
        bandwidth = "{bandwidth / 1e9:g}GB/s"
        latency = "5us"
        """
    )
    with tempfile.TemporaryDirectory() as folder:
        trace, times = Path(folder) / "stack.ptx", Path(folder) / "times.json"
        trace.write_text(text)
        digest = text_digest(text)
        times.write_text(
            json.dumps({"schema": "tessera-profile/1", "program": digest, "rows": rows})
        )
        given = {"machine": machine, "slots": SLOTS, "sequences": SLOTS, "profiles": (str(times),)}
        free = plan(str(trace), PlanOptions(**given), compare=False).plan
        # Without a rule the best plan may be a replica per slice, which moves nothing.
        last = len(model.graphs[0].nodes) - 1
        pins = ("#0=h200-0.0", f"#{last}=h200-0.1")
        chosen = plan(str(trace), PlanOptions(**given, pins=pins), compare=False).plan
    short = {device.name: "ab"[device.sms == 48] for device in chosen.devices}
    steps = chosen.replicas[0].traces[0].steps
    about: dict[str, object] = {
        "strategy": chosen.strategy,
        "predicted_period_us": chosen.period_ns / 1e3,
        "gap": chosen.gap,
        "free_choice": free.strategy,
        "free_choice_replicas": len(free.replicas),
        "free_choice_period_us": free.period_ns / 1e3,
    }
    return [[short[step.device] for step in sorted(steps, key=lambda s: s.step)]], about


def measure(
    model: CudaModel, places: Sequence[Sequence[str]], bandwidth: float
) -> dict[str, object]:
    """A placement with the throttled and with the free link."""
    replica = served(model, places, SLOTS, SLOTS)
    moved = bytes_by_direction(replica.lowered)
    us = serve(model, replica, bandwidth)
    free_us = serve(model, replica, None)
    link_us = max(moved.values()) / bandwidth * 1e6
    all_us = sum(moved.values()) / bandwidth * 1e6
    return {
        "us": round(us, 1),
        "free_us": round(free_us, 1),
        "link_us": round(link_us, 1),
        "all_transfers_us": round(all_us, 1),
        "bytes": moved,
        "transfers_to_step": round(all_us / free_us, 3),
        "hidden": round(min(1.0, 1 - (us - free_us) / all_us), 4),
        "to_bound": round(us / max(free_us, link_us), 4),
    }


def bytes_by_direction(lowered: LoweredReplica) -> dict[str, int]:
    """Bytes of a request from each device to the other."""
    moved: dict[str, int] = {}
    for transfer in lowered.traces[0].transfers:
        if HOST not in (transfer.source, transfer.target):
            way = f"{transfer.source} to {transfer.target}"
            moved[way] = moved.get(way, 0) + transfer.size
    return moved


def serve(model: CudaModel, replica: Model, throttle: float | None) -> float:
    """Microseconds per request, all slots busy."""
    backend = start(replica, TWO, throttle=throttle)
    dispatcher = Dispatcher(backend, slots=SLOTS, lanes=SLOTS)
    inputs = model.inputs(0, 0)
    pending = [dispatcher.submit(inputs, trace=0, lane=i % SLOTS) for i in range(2 * SLOTS)]
    ends = []
    for number in range(REQUESTS):
        pending.pop(0).result()
        ends.append(time.perf_counter())
        pending.append(dispatcher.submit(inputs, trace=0, lane=number % SLOTS))
    for future in pending:
        future.result()
    dispatcher.close()
    return (ends[-1] - ends[SLOTS]) / (len(ends) - 1 - SLOTS) * 1e6


def overlapped(model: CudaModel, places: Sequence[Sequence[str]], bandwidth: float) -> float:
    """The share of transfer time between devices in which the device at its end computes."""
    replica = served(model, places, SLOTS, SLOTS)
    backend = start(replica, TWO, timeline=True, throttle=bandwidth)
    done, _ = requests(backend, model, [(0, i % SLOTS) for i in range(5 * SLOTS)], SLOTS, SLOTS)
    events = [event for one in done[SLOTS:-SLOTS] for event in one.events]
    computing = spans_by_device(e for e in events if e.queue is Queue.COMPUTE)
    moving = spans_by_device(e for e in events if e.queue is not Queue.COMPUTE and e.peer in SMS)
    covered = sum(total(overlap(spans, computing.get(d, []))) for d, spans in moving.items())
    return covered / max(sum(map(total, moving.values())), 1)


if __name__ == "__main__":
    main()
