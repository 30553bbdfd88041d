"""Requests that all begin with a system prompt of 1,000 tokens, with and without shared blocks.

    python -m benchmarks.serving.prefixes [-o RESULT.json]

Simulated, with the scheduler of the engine: nothing runs. Steps of 64 and of 512 tokens take 7.3
and 11.2 ms, which is what a decode of 64 rows and a prompt chunk of 512 of an 8B with 32 layers
take on an H200. Prompts have 64 to 511 tokens of their own, answers 128, drawn by a seed. Settings
differ in how requests come, and in how many blocks of 16 tokens there are: 40,000, or so few that
answers are put off.
"""

from __future__ import annotations

import random
from typing import Any

from benchmarks.common import arguments, machine, write
from tessera.driver.serve.batches import Sizes, StepSize, StepWork
from tessera.driver.serve.follow import Following, Wanted
from tessera.driver.serve.measures import ServingReport
from tessera.driver.serve.step_clocks import earliest

ROWS, BLOCK, SYSTEM, PIECE = 64, 16, 1000, 8
STEP_MS = {64: 7.3, 512: 11.2}
SETTINGS = (
    ("256 at once", 256, None, 40_000),
    ("1,024 at once", 1024, None, 40_000),
    ("10 per second", 512, 10.0, 40_000),
    ("1,024 at once, 1,200 blocks", 1024, None, 1_200),
)


class MeasuredClock:
    """Steps take what was measured for their size."""

    def __init__(self) -> None:
        self._events: list[tuple[float, int]] = []

    def begin(self, work: StepWork, now_ns: float) -> None:
        self._events.append((now_ns + STEP_MS[work.size.tokens] * 1e6, work.batch))

    def ended(self, until_ns: float) -> tuple[float, list[int]]:
        return earliest(self._events, until_ns)

    def busy_ns(self) -> dict[str, float]:
        return {}


def requests(count: int, rate: float | None, seed: int = 1) -> list[Wanted]:
    draw = random.Random(seed)
    made, at = [], 0.0
    for number in range(count):
        own = draw.randint(64, 511)
        pieces = (*range(SYSTEM // PIECE), *(-1 - number for _ in range(own // PIECE)))
        made.append(Wanted(at, SYSTEM + own, 128, pieces, PIECE))
        at += 0.0 if rate is None else draw.expovariate(rate) * 1e9
    return made


def figures(wanted: list[Wanted], blocks: int, *, reuse: bool) -> dict[str, Any]:
    steps = tuple(
        StepSize(trace=n, rows=ROWS, tokens=tokens, context=2048, is_mixed=True)
        for n, tokens in enumerate(STEP_MS)
    )
    sizes = Sizes(
        steps=steps,
        batches=1,
        rows=ROWS,
        context=2048,
        first_from_prefill=True,
        blocks=blocks,
        block=BLOCK,
    )
    followed = Following(sizes, MeasuredClock(), reuse=reuse).run(wanted)
    report = ServingReport(
        name="", source="simulated", requests=followed.requests, waiting=(), steps={}
    )
    times, rates = report.figures(), report.rates()
    return {
        "answer_tokens_per_s": round(rates["answer_tokens_per_s"]),
        "ttft_ms": {key: round(times["ttft_ns"][key] / 1e6, 1) for key in ("p50", "p99")},
        "tpot_ms": {key: round(times["tpot_ns"][key] / 1e6, 2) for key in ("p50", "p99")},
        "steps": {tokens: followed.steps.get(n, 0) for n, tokens in enumerate(STEP_MS)},
        "reused_share": round(followed.reused / sum(own.prompt for own in wanted), 3),
        "put_off": followed.preempted,
    }


def main() -> None:
    given = arguments(__doc__, "serving_prefixes.json").parse_args()
    result: dict[str, Any] = {
        "what": "simulated: a system prompt of 1,000 tokens, with and without shared blocks",
        **machine(),
        "settings": {},
    }
    for name, count, rate, blocks in SETTINGS:
        wanted = requests(count, rate)
        result["settings"][name] = {
            how: figures(wanted, blocks, reuse=reuse)
            for how, reuse in (("shared", True), ("not shared", False))
        }
        print(name, result["settings"][name])
    write(result, given.output)


if __name__ == "__main__":
    main()
