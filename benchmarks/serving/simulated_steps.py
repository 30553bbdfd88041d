"""How the scheduler fills mixed steps whose times were measured: its pace, and shared prefixes.

    python -m benchmarks.serving.simulated_steps {pace,prefixes} [-o RESULT.json]

Simulated, with the scheduler of the engine: nothing runs. Prompts have 64 to 511 tokens of their
own, answers 128, drawn by a seed.

- `pace`: requests at 20, 50 and 80% of what an H200 takes, and all at once, with steps as large as
  they can be and by pace. Steps take what the graphs of an 8B model took on an H200
  (`serving_folder_h200.json`), those of other sizes what lies between; 256 rows. The rate of 100%
  is 73 requests per second, as measured with 256 at once.
- `prefixes`: requests that all begin with a system prompt of 1,000 tokens, with and without shared
  blocks. Steps of 64 and of 512 tokens take 7.3 and 11.2 ms, which is what a decode of 64 rows and
  a prompt chunk of 512 of an 8B with 32 layers take on an H200. Settings differ in how requests
  come, and in how many blocks of 16 tokens there are: 40,000, or so few that answers are put off.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from benchmarks.common import RESULTS, Row, arguments, machine, write
from tessera.driver.serve.batches import Sizes, StepSize, StepWork
from tessera.driver.serve.follow import FollowedText, Following, Wanted
from tessera.driver.serve.measures import ServingReport
from tessera.driver.serve.step_clocks import earliest
from tessera.driver.serve.step_pace import pace_of

BLOCK, ANSWER = 16, 128
SYSTEM, PIECE = 1000, 8
RATE = 73.0
PACE_MS = ((64, 6.18), (128, 7.391), (256, 10.07), (2048, 51.376))
PACE_SIZES = (64, 128, 256, 512, 2048)
PACE_SETTINGS = (
    ("20%", 175, 0.2 * RATE),
    ("50%", 438, 0.5 * RATE),
    ("80%", 700, 0.8 * RATE),
    ("256 at once", 256, None),
    ("1,024 at once", 1024, None),
)
PREFIX_MS = ((64, 7.3), (512, 11.2))
PREFIX_SETTINGS = (
    ("256 at once", 256, None, 40_000),
    ("1,024 at once", 1024, None, 40_000),
    ("10 per second", 512, 10.0, 40_000),
    ("1,024 at once, 1,200 blocks", 1024, None, 1_200),
)


class MeasuredClock:
    """Steps take what was measured for their size, or what lies between two sizes."""

    def __init__(self, measured: Sequence[tuple[int, float]]) -> None:
        self._measured = measured
        self._events: list[tuple[float, int]] = []

    def step_ms(self, tokens: int) -> float:
        """Milliseconds of a step."""
        for (low, quick), (high, slow) in pairwise(self._measured):
            if tokens < high:
                return quick + (slow - quick) * (tokens - low) / (high - low)
        return self._measured[-1][1]

    def begin(self, work: StepWork, now_ns: float) -> None:
        self._events.append((now_ns + self.step_ms(work.size.tokens) * 1e6, work.batch))

    def ended(self, until_ns: float) -> tuple[float, list[int]]:
        return earliest(self._events, until_ns)

    def busy_ns(self) -> dict[str, float]:
        return {}


def sizes_of(tokens: Sequence[int], *, rows: int, context: int, blocks: int) -> Sizes:
    """One batch in mixed steps of these sizes."""
    return Sizes(
        steps=tuple(
            StepSize(trace=n, rows=rows, tokens=size, context=context, is_mixed=True)
            for n, size in enumerate(tokens)
        ),
        batches=1,
        rows=rows,
        context=context,
        first_from_prefill=True,
        blocks=blocks,
        block=BLOCK,
    )


def report_of(followed: FollowedText) -> ServingReport:
    return ServingReport(
        name="", source="simulated", requests=followed.requests, waiting=(), steps={}
    )


def figures(followed: FollowedText, tokens: Sequence[int]) -> Row:
    """Rates, times and how many steps there were of each size."""
    report = report_of(followed)
    spent = report.figures()
    return {
        "answer_tokens_per_s": round(report.rates()["answer_tokens_per_s"]),
        "ttft_ms": {key: round(spent["ttft_ns"][key] / 1e6, 1) for key in ("p50", "p99")},
        "tpot_ms": {key: round(spent["tpot_ns"][key] / 1e6, 2) for key in ("p50", "p99")},
        "steps": {size: followed.steps.get(n, 0) for n, size in enumerate(tokens)},
    }


def paced(count: int, rate: float | None, *, by_pace: bool) -> Row:
    """Requests at a rate, and how far their times per token are from those of a graph alone."""
    draw = random.Random(count)
    wanted, at = [], 0.0
    for _ in range(count):
        at += 0.0 if rate is None else draw.expovariate(rate) * 1e9
        wanted.append(Wanted(at, draw.randint(64, 511), ANSWER))
    clock = MeasuredClock(PACE_MS)
    times = [(tokens, clock.step_ms(tokens) * 1e6) for tokens in PACE_SIZES]
    pace = pace_of(times, ttft_ns=None, tpot_ns=None) if by_pace else None
    sizes = sizes_of(PACE_SIZES, rows=256, context=640, blocks=256 * 640 // BLOCK)
    followed = Following(sizes, clock, pace=pace).run(wanted)
    row = figures(followed, PACE_SIZES)
    taken = row["steps"]
    most = max(taken, key=lambda tokens: taken[tokens])
    mean = sum(n * clock.step_ms(tokens) for tokens, n in taken.items()) / sum(taken.values())
    p99 = report_of(followed).figures()["tpot_ns"]["p99"] / 1e6
    return row | {
        "size that most steps had": most,
        "tpot_p99_to_its_graph": round(p99 / clock.step_ms(most), 2),
        "tpot_p99_to_the_mean_graph": round(p99 / mean, 2),
    }


def prefixed(count: int, rate: float | None, blocks: int, *, reuse: bool) -> Row:
    """Requests with a common prefix."""
    draw = random.Random(1)
    wanted, at = [], 0.0
    for number in range(count):
        own = draw.randint(64, 511)
        pieces = (*range(SYSTEM // PIECE), *(-1 - number for _ in range(own // PIECE)))
        wanted.append(Wanted(at, SYSTEM + own, ANSWER, pieces, PIECE))
        at += 0.0 if rate is None else draw.expovariate(rate) * 1e9
    tokens = [size for size, _ in PREFIX_MS]
    sizes = sizes_of(tokens, rows=64, context=2048, blocks=blocks)
    followed = Following(sizes, MeasuredClock(PREFIX_MS), reuse=reuse).run(wanted)
    return figures(followed, tokens) | {
        "reused_share": round(followed.reused / sum(own.prompt for own in wanted), 3),
        "put_off": followed.preempted,
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("question", choices=("pace", "prefixes"))
    given = parser.parse_args()
    settings: dict[str, Any] = {}
    if given.question == "pace":
        what = "simulated: an 8B model on an H200 under load, large steps and steps by pace"
        for name, count, rate in PACE_SETTINGS:
            settings[name] = {
                "as large as can be": paced(count, rate, by_pace=False),
                "by pace": paced(count, rate, by_pace=True),
            }
    else:
        what = "simulated: a system prompt of 1,000 tokens, with and without shared blocks"
        for name, count, rate, blocks in PREFIX_SETTINGS:
            settings[name] = {
                "shared": prefixed(count, rate, blocks, reuse=True),
                "not shared": prefixed(count, rate, blocks, reuse=False),
            }
    for name, row in settings.items():
        print(name, row)
    output = given.output or RESULTS / f"serving_{given.question}.json"
    write({"what": what, **machine(), "settings": settings}, output)


if __name__ == "__main__":
    main()
