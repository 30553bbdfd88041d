"""Plan a trace for two GPUs and serve requests with it, on this machine, without a GPU.

    python examples/02_serve_a_plan.py

`traces/mlp.ptx` is cut kernel by kernel between an A100 and an L40S. Each stands as a process of
the CPU backend here; what they send each other goes through shared memory. Every result is
compared, byte by byte, with a run on one device.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import tessera
from tessera.driver.run.run_trace import RunOptions, run_trace
from tessera.frontend.contents.open_contents import open_contents
from tessera.frontend.contents.write import as_array

TRACE = Path(__file__).parent / "traces" / "mlp.ptx"


def main() -> None:
    options = tessera.PlanOptions(gpus="a100,l40s", strategy="kernel", slots=2)
    plan = tessera.plan(TRACE, options).plan
    program = tessera.load(TRACE)
    inputs = []
    for seed in range(4):
        with open_contents(program, TRACE.parent, seed=seed) as contents:
            found = {b.name: as_array(b, contents.read(b)) for b in program.buffers}
        inputs.append({"x": found["x"]})

    with tessera.Runtime(plan, backend="cpu", timeline=True) as runtime:
        handles = [
            runtime.submit(given, sequence=n % runtime.sequences) for n, given in enumerate(inputs)
        ]
        results = [handle.result() for handle in handles]

    alone = run_trace(TRACE, RunOptions(seed=0)).result.buffers
    assert results[0]["y"].tobytes() == alone["y"].tobytes()
    assert len({result["y"].tobytes() for result in results}) == len(results)
    devices = sorted({event.device for result in results for event in result.events})
    moved = sum(e.bytes for r in results for e in r.events if e.peer in devices)
    assert len(devices) == 2
    print(
        f"{len(results)} requests on {' and '.join(devices)}; {moved // 2} bytes moved between them"
    )
    for number, result in enumerate(results):
        y = np.asarray(result["y"])
        print(f"  request {number}: y[0, :3] = {y[0, :3]}, {result.latency_ns / 1e6:.1f} ms")


if __name__ == "__main__":
    main()
