"""How long a GPU waits for the host between two decode steps of an engine with one batch.

    python -m benchmarks.serving.host [--steps 400] [--rows 8,64,256] [--step-ms 2] [--label NAME]

No GPU: the stand-in of the tests starts the engine, and then a graph launch only sets a time at
which the step is done. The model has one kernel and gives tokens; nothing is computed. Figures, in
microseconds:

- `gap`: from the end of a decode step to the launch of the next, with one batch in flight, while
  all rows decode: the median, and the least tenth, which a busy machine disturbs less.
- `processor`: processor time per step, all threads.

Rows of the results have a label, so that two trees can stand side by side. Writes
`benchmarks/results/serving_host.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import time
from pathlib import Path
from typing import Any
from unittest import mock

import tessera
from benchmarks.running.host_time import Word
from tests.helpers.fake_cuda import OK, FakeCuda, Function
from tests.helpers.plan_files import plan_of
from tests.helpers.traces import COPY, trace

RESULTS = Path(__file__).parents[1] / "results" / "serving_host.json"
CONTEXT, PROMPT = 4096, 12


class NoGpu(FakeCuda):
    """Work that is handed over is done by itself, later (`TimedSteps`)."""

    def cuModuleGetFunction(self, module: Any, name: bytes) -> Any:
        return OK, Function(module, name.decode(), 0)

    def _enqueue(self, stream: Any, label: str, run: Any, *rest: Any, **more: Any) -> Any:
        if stream.capture is None and label in ("upload", "memset"):
            run()
        return OK


class TimedSteps:
    """What stands for the GPU: a step takes its time from its launch, after those before it."""

    def __init__(self, engine: Any, step_ns: int) -> None:
        (dispatcher,) = engine.runtime._serving._dispatchers.values()
        self.backend: Any = dispatcher.backend
        replica = self.backend.replica
        self._stages: dict[Any, int] = {}
        self._step_ns = step_ns
        self._draw = random.Random(0)
        self.ends_ns = [0] * len(replica.done)
        self.free_ns = 0
        self.gaps_ns: list[int] = []
        for ready in replica.ready.values():
            for output in ready.buffers.outputs.values():
                output[:] = 0
        self.backend.driver._graph_launch = self.launch
        self.backend._done = [Word(self.ends_ns, stage) for stage in range(len(replica.done))]
        self.backend._words = [(word,) for word in self.backend._done]

    def launch(self, graph: Any, stream: Any) -> tuple[int]:
        """For `cuGraphLaunch`."""
        now_ns = time.perf_counter_ns()
        if self.free_ns:
            self.gaps_ns.append(max(now_ns - self.free_ns, 0))
        took_ns = int(self._step_ns * (1 + 0.002 * self._draw.gauss(0, 1)))
        self.free_ns = max(self.free_ns, now_ns) + took_ns
        if graph not in self._stages:
            ready = self.backend.replica.ready.values()
            self._stages = {own.graph: own.stage for own in ready}
        self.ends_ns[self._stages[graph]] = self.free_ns
        return (0,)


def decode_plan(rows: int) -> Any:
    """A decode step of so many rows that gives tokens."""
    program = trace(
        f"buffer tokens bytes={8 * rows} role=input dtype=s64 shape={rows}x1\n"
        f"buffer positions bytes={8 * rows} role=input dtype=s64 shape={rows}\n"
        f"buffer cache bytes={4 * rows * CONTEXT} role=state dtype=f32 shape={rows}x{CONTEXT}\n"
        f"buffer next bytes={8 * rows} role=output dtype=s64 shape={rows}\n",
        COPY,
        "launch m.copy grid=1,1,1 block=4,1,1 smem=0 args=[cache, positions, u32:4]\n"
        f"launch m.copy grid=1,1,1 block={2 * rows},1,1 smem=0 "
        f"args=[next, tokens, u32:{2 * rows}]\n",
    )
    return plan_of([program], [["gpu", "gpu"]], slots=1, lanes=1)


def measure(rows: int, steps: int, step_ms: float, look_ahead: bool) -> dict[str, float]:
    """One engine, all rows decoding."""
    options: dict[str, Any] = {"backend": "cuda", "targets": {"gpu": "cuda:0"}, "isolated": False}
    with mock.patch("tessera.backend.cuda.targets.bindings", NoGpu):
        engine = tessera.Engine(decode_plan(rows), watch=False, look_ahead=look_ahead, **options)
    gpu = TimedSteps(engine, int(step_ms * 1e6))
    answers = [
        engine.submit([1 + row] * PROMPT, max_tokens=steps, ignore_end=True) for row in range(rows)
    ]
    spent = time.process_time_ns()
    for answer in answers:
        answer.result()
    spent = time.process_time_ns() - spent
    engine.close()
    gaps = sorted(gpu.gaps_ns[2 * PROMPT :])
    return {
        "steps": len(gaps),
        "gap_us": round(statistics.median(gaps) / 1e3, 1),
        "gap_least_us": round(gaps[len(gaps) // 10] / 1e3, 1),
        "gap_p90_us": round(gaps[len(gaps) * 9 // 10] / 1e3, 1),
        "processor_us": round(spent / len(gpu.gaps_ns) / 1e3, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rows", default="8,64,256")
    parser.add_argument("--step-ms", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--label", default="now")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    data = json.loads(given.out.read_text(encoding="utf-8")) if given.out.exists() else {}
    own = {
        "machine": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "step_ms": given.step_ms,
    }
    for rows in map(int, given.rows.split(",")):
        for ahead in (False, True):
            rounds = [measure(rows, given.steps, given.step_ms, ahead) for _ in range(given.rounds)]
            name = f"rows_{rows}" + ("_looking_ahead" if ahead else "")
            own[name] = min(rounds, key=lambda figures: figures["gap_us"])
            print(given.label, name, own[name], flush=True)
    data[given.label] = own
    given.out.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
