"""Whether devices of the CPU backend work side by side: kernels that sleep, two of them a request.

    python -m benchmarks.running.cpu_pipelining [--traces 400]

Eight requests with a kernel of 50 ms on each of two devices, four repeats: with two requests in
flight, and one after the other. Also random placements of random traces, all devices in one
process, each compared with one device to the byte: how many, and how long they took. Writes
`benchmarks/results/cpu_pipelining.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from pathlib import Path

from tessera.backend.host_loop.dispatch import Dispatcher
from tessera.backend.processes.workers import CpuBackend
from tessera.backend.service import Model
from tests.helpers.naps import BUFFERS, SLEEP
from tests.helpers.served import Ask, inputs_of, model_of
from tests.helpers.traces import trace
from tests.unit.backend.processes.test_random_placements import PLACEMENTS, check_placements

RESULTS = Path(__file__).parents[1] / "results" / "cpu_pipelining.json"
REQUESTS, REPEATS = 8, 4
STEPS = """
launch m.doze grid=1,1,1 block=1,1,1 args=[h, x]
launch m.doze grid=1,1,1 block=1,1,1 args=[y, h]
"""


def seconds(model: Model) -> list[float]:
    """The time of all requests, per repeat; the first repeat warms up and does not count."""
    slots, lanes = model.lowered.slots, model.lowered.lanes
    dispatcher = Dispatcher(CpuBackend(model), slots=slots, lanes=lanes)
    found = []
    try:
        for _ in range(REPEATS + 1):
            started = time.monotonic()
            futures = [
                dispatcher.submit(inputs_of(model, Ask(n)), trace=0, lane=n % lanes)
                for n in range(REQUESTS)
            ]
            for future in futures:
                future.result(60)
            found.append(time.monotonic() - started)
    finally:
        dispatcher.close(wait=False)
    return found[1:]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--traces", type=int, default=400)
    traces = options.parse_args().traces
    program = trace(BUFFERS, SLEEP, STEPS)
    pipelined = seconds(model_of([program], [["a", "b"]], slots=2, lanes=2))
    sequential = seconds(model_of([program], [["a", "b"]], slots=1, lanes=1))
    started = time.monotonic()
    for seed in range(traces):
        check_placements(seed, variable=seed % 5 == 0)
    spent = time.monotonic() - started
    ratio = statistics.median(pipelined) / statistics.median(sequential)
    data = {
        "machine": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "requests": REQUESTS,
        "kernel_ms": 50,
        "pipelined_s": [round(one, 4) for one in pipelined],
        "sequential_s": [round(one, 4) for one in sequential],
        "ratio": round(ratio, 4),
        "random_placements": {
            "placements": traces * PLACEMENTS,
            "different": 0,
            "seconds": round(spent, 1),
        },
    }
    RESULTS.write_text(json.dumps(data, indent=2) + "\n")
    print(f"8 requests on 2 devices take {ratio:.3f} of the time one after the other")
    print(f"{traces * PLACEMENTS} random placements equal one device, in {spent:.1f} s")


if __name__ == "__main__":
    main()
