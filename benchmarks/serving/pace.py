"""Requests at 20, 50 and 80% of what an H200 takes: steps as large as they can be, and by pace.

    python -m benchmarks.serving.pace [-o RESULT.json]

Simulated, with the scheduler of the engine: nothing runs. Steps take what the graphs of an 8B model
took on an H200 (`serving_folder_h200.json`), those of other sizes what lies between; 256 rows,
prompts of 64 to 511 tokens, answers of 128, drawn by a seed; also 256 and 1,024 requests at once.
The rate of 100% is 73 requests per second, as measured with 256 at once.
"""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

from benchmarks.common import arguments, machine, write
from tessera.driver.serve.batches import Sizes, StepSize, StepWork
from tessera.driver.serve.follow import Following, Wanted
from tessera.driver.serve.measures import ServingReport
from tessera.driver.serve.step_clocks import earliest
from tessera.driver.serve.step_pace import pace_of

ROWS, CONTEXT, BLOCK, RATE = 256, 640, 16, 73.0
MEASURED = ((64, 6.18), (128, 7.391), (256, 10.07), (2048, 51.376))
SIZES = (64, 128, 256, 512, 2048)
SETTINGS = (
    ("20%", 175, 0.2 * RATE),
    ("50%", 438, 0.5 * RATE),
    ("80%", 700, 0.8 * RATE),
    ("256 at once", 256, None),
    ("1,024 at once", 1024, None),
)


def step_ms(tokens: int) -> float:
    """Milliseconds of a step, between those that were measured."""
    for (low, quick), (high, slow) in pairwise(MEASURED):
        if tokens <= high:
            return quick + (slow - quick) * (tokens - low) / (high - low)
    return MEASURED[-1][1]


class MeasuredClock:
    """Steps take what their size says."""

    def __init__(self) -> None:
        self._events: list[tuple[float, int]] = []

    def begin(self, work: StepWork, now_ns: float) -> None:
        self._events.append((now_ns + step_ms(work.size.tokens) * 1e6, work.batch))

    def ended(self, until_ns: float) -> tuple[float, list[int]]:
        return earliest(self._events, until_ns)

    def busy_ns(self) -> dict[str, float]:
        return {}


def requests(count: int, rate: float | None) -> list[Wanted]:
    draw = random.Random(count)
    made, at = [], 0.0
    for _ in range(count):
        at += 0.0 if rate is None else draw.expovariate(rate) * 1e9
        made.append(Wanted(at, draw.randint(64, 511), 128))
    return made


def figures(wanted: list[Wanted], *, by_pace: bool) -> dict[str, Any]:
    steps = tuple(
        StepSize(trace=n, rows=ROWS, tokens=tokens, context=CONTEXT, is_mixed=True)
        for n, tokens in enumerate(SIZES)
    )
    sizes = Sizes(
        steps=steps,
        batches=1,
        rows=ROWS,
        context=CONTEXT,
        first_from_prefill=True,
        blocks=ROWS * CONTEXT // BLOCK,
        block=BLOCK,
    )
    times = [(tokens, step_ms(tokens) * 1e6) for tokens in SIZES]
    pace = pace_of(times, ttft_ns=None, tpot_ns=None) if by_pace else None
    followed = Following(sizes, MeasuredClock(), pace=pace).run(wanted)
    report = ServingReport(
        name="", source="simulated", requests=followed.requests, waiting=(), steps={}
    )
    spent, rates = report.figures(), report.rates()
    taken = {tokens: followed.steps.get(n, 0) for n, tokens in enumerate(SIZES)}
    most = max(taken, key=lambda tokens: taken[tokens])
    mean = sum(n * step_ms(tokens) for tokens, n in taken.items()) / sum(taken.values())
    p99 = spent["tpot_ns"]["p99"] / 1e6
    return {
        "answer_tokens_per_s": round(rates["answer_tokens_per_s"]),
        "ttft_ms": {key: round(spent["ttft_ns"][key] / 1e6, 1) for key in ("p50", "p99")},
        "tpot_ms": {key: round(spent["tpot_ns"][key] / 1e6, 2) for key in ("p50", "p99")},
        "steps": taken,
        "size that most steps had": most,
        "tpot_p99_to_its_graph": round(p99 / step_ms(most), 2),
        "tpot_p99_to_the_mean_graph": round(p99 / mean, 2),
    }


def main() -> None:
    given = arguments(__doc__, "serving_pace.json").parse_args()
    result: dict[str, Any] = {
        "what": "simulated: an 8B model on an H200 under load, large steps and steps by pace",
        **machine(),
        "settings": {},
    }
    for name, count, rate in SETTINGS:
        wanted = requests(count, rate)
        result["settings"][name] = {
            how: figures(wanted, by_pace=by_pace)
            for how, by_pace in (("as large as can be", False), ("by pace", True))
        }
        print(name, result["settings"][name])
    write(result, given.output)


if __name__ == "__main__":
    main()
