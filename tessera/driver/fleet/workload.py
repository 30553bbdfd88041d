"""The requests of a fleet: prompts, answers, arrival times, and limits on latency.

In: lengths of prompts and answers, or arrivals; limits. Out: a `Workload`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from tessera.driver.serve.follow import Wanted
from tessera.driver.serve.measures import ServingReport, Slo

P99 = "p99"
PERCENTILES = ("p50", "p90", P99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests: their lengths, and the limits that a share of them has to meet.

    `lengths` are pairs (prompt, answer) in order of arrival, for drawn requests; one pair suffices.
    """

    lengths: tuple[tuple[int, int], ...]
    slo: Slo = field(default_factory=Slo)
    percentile: str = P99

    @property
    def prompt(self) -> float:
        """Mean tokens of a prompt."""
        return sum(prompt for prompt, _ in self.lengths) / len(self.lengths)

    @property
    def answer(self) -> float:
        """Mean tokens of an answer."""
        return sum(answer for _, answer in self.lengths) / len(self.lengths)

    @property
    def longest(self) -> int:
        """Tokens of the longest request."""
        return max(prompt + answer for prompt, answer in self.lengths)

    @property
    def context(self) -> float:
        """Mean tokens of a sequence that a decode step sees."""
        return self.prompt + self.answer / 2

    def draw(self, rate: float, count: int, seed: int = 0) -> list[Wanted]:
        """`count` requests at a mean rate per second, with exponential gaps."""
        generator = random.Random(seed)
        at_ns, made = 0.0, []
        for number in range(count):
            prompt, answer = self.lengths[number % len(self.lengths)]
            made.append(Wanted(at_ns, prompt, answer))
            at_ns += generator.expovariate(rate) * 1e9
        return made

    def is_kept(self, report: ServingReport) -> bool:
        """Whether the percentile is within the limits, and no request was refused."""
        if len(report.whole) < len(report.requests) or not report.requests:
            return False
        return all(
            limit is None or value is None or value <= limit
            for _, value, limit in self.against(report)
        )

    def against(self, report: ServingReport) -> Sequence[tuple[str, float | None, float | None]]:
        """TTFT and TPOT at the percentile, beside their limits."""
        figures = report.figures()
        return tuple(
            (name, figures[key].get(self.percentile), limit)
            for name, key, limit in (
                ("TTFT", "ttft_ns", self.slo.ttft_ns),
                ("TPOT", "tpot_ns", self.slo.tpot_ns),
            )
        )
