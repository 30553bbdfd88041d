"""How long a device waits for the host between two mixed steps, looking ahead and not.

    python -m benchmarks.serving.host_gaps [-o RESULT.json] [--rows 64] [--step-ms 7.3]

The engine is the real one, with its threads on this machine; the device is a toy whose steps sleep
for `--step-ms` and then compute tokens by a rule, so that a wrong token would be seen. The gap is
the time from the end of a step to the beginning of the next one that has anything to do.
"""

from __future__ import annotations

import random
import statistics
import time
from itertools import pairwise
from typing import Any
from unittest import mock

from benchmarks.common import arguments, machine, write
from tessera.driver.serve import engine as engine_module
from tests.helpers import toy_runtime


class TimedToy(toy_runtime.ToyRuntime):
    """A toy whose steps take a given time, and are noted."""

    step_s = 0.0

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.times: list[tuple[int, int]] = []

    def _step(self, *given: Any) -> Any:
        begun = time.monotonic_ns()
        time.sleep(self.step_s)
        made = super()._step(*given)
        self.times.append((begun, time.monotonic_ns()))
        return made


def measure(rows: int, step_ms: float, requests: int, *, looks_ahead: bool) -> dict[str, Any]:
    draw = random.Random(3)
    TimedToy.step_s = step_ms / 1e3
    few = toy_runtime.CONTEXT // 4 * rows + 1
    with (
        mock.patch.object(engine_module, "Runtime", TimedToy),
        mock.patch.object(toy_runtime, "BLOCKS", few),
        engine_module.Engine(
            "toy.tsp",
            steps={"context": toy_runtime.CONTEXT, "block": 4},
            rows=rows,
            mixed=(rows, 4 * rows),
            batches=1,
            logits=False,
            chains=True,
            look_ahead=looks_ahead,
        ) as engine,
    ):
        wanted = []
        for _ in range(requests):
            prompt = [draw.randrange(toy_runtime.POISON) for _ in range(draw.randint(1, 8))]
            wanted.append((prompt, draw.randint(1, 9)))
        given = [engine.submit(prompt, max_tokens=count) for prompt, count in wanted]
        answers = [answer.result(600) for answer in given]
        assert answers == [toy_runtime.answer(prompt, count) for prompt, count in wanted]
        runtime: Any = engine.runtime
        times, ahead = runtime.times, engine.steps_ahead
    gaps = sorted(b[0] - a[1] for a, b in pairwise(times))
    whole_s = (times[-1][1] - times[0][0]) / 1e9
    return {
        "steps": len(times),
        "ahead": ahead,
        "gap_us_p50": round(statistics.median(gaps) / 1e3, 1),
        "gap_us_p90": round(gaps[len(gaps) * 9 // 10] / 1e3, 1),
        "tokens_per_s": round(sum(len(own) for own in answers) / whole_s),
    }


def main() -> None:
    parser = arguments(__doc__, "serving_host_gaps.json")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--step-ms", type=float, default=7.3)
    parser.add_argument("--requests", type=int, default=1500)
    given = parser.parse_args()
    result = {
        "what": "the engine over a toy device whose steps sleep: how long the device waits between",
        **machine(),
        "rows": given.rows,
        "step_ms": given.step_ms,
    }
    for how, looks_ahead in (("not ahead", False), ("ahead", True)):
        result[how] = measure(given.rows, given.step_ms, given.requests, looks_ahead=looks_ahead)
        print(how, result[how])
    write(result, given.output)


if __name__ == "__main__":
    main()
