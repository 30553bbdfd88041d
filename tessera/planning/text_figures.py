"""What a plan gives where requests are texts: requests and tokens per second, time per token.

In: a plan, and for each of its traces how many sequences it takes at once and how often a sequence
takes it. Out: `TextFigures`. A plan's period is that of one step of the mix; a text takes many, and
shares each with the other sequences of its batch. At the full rate every sequence is always in
some batch, so the time per token follows from how many there are and how many tokens they get.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessera.ir.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class TextStep:
    """A trace as a step of texts: its sequences, tokens of each, and times that a text takes it."""

    rows: int
    tokens: int
    times: float

    @property
    def per_text(self) -> float:
        """Runs of the trace for one text."""
        return self.times / self.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFigures:
    """Texts and tokens of answers per second; `batch` sequences take a decode step at once.

    `sequences` are in memory together, on all replicas; `tpot_ns` is the mean time per token.
    """

    batch: int
    sequences: int
    requests_per_s: float
    tokens_per_s: float
    tpot_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedSize:
    """Traces of one choice of sizes, and what they give; without figures, `why` there is none."""

    names: tuple[str, ...]
    batch: int
    figures: TextFigures | None = None
    strategy: str = ""
    why: str = ""


def text_figures(plan: Plan, steps: Sequence[TextStep]) -> TextFigures:
    """The figures of a plan at its full rate; `steps` are those of its traces, in order."""
    runs = sum(step.per_text for step in steps)
    requests = 1e9 / (plan.period_ns * runs)
    made = [n for n, step in enumerate(steps) if step.tokens == 1]
    sequences, slowest = 0, 0.0
    for replica in plan.replicas:
        shares = (plan.traces[n].share * replica.serves(n) for n in made)
        rate = sum(shares) / plan.period_ns
        if rate > 0:
            sequences += replica.lanes * max(steps[n].rows for n in made if replica.serves(n))
            slowest = max(slowest, replica.lanes / rate)
    return TextFigures(
        batch=max((steps[n].rows for n in made), default=0),
        sequences=sequences,
        requests_per_s=requests,
        tokens_per_s=requests * sum(steps[n].times for n in made),
        tpot_ns=slowest,
    )
