"""Which policy of a plan requests are admitted with: one object for the engine and the simulation.

In: when requests come and how long they are, how many wait, and what the steps of the policy for
latency take. Out: the name of a policy, for all requests that get a row from now on.

The rule is ours. Demand is the work that arrived in a sliding window, as a share of the work that
the policy for latency can do in that time; work that has waited for longer counts too. If it is
more, demand is the unread part of the prompts that have a row, as a share of the work that fits a
tenth of the window: a request that arrives now stands behind them. Above a high mark, or as soon as
a request waits for a row, requests go to the policy for throughput; below a low mark they go back.
A dwell time separates two switches, unless a request waits or too much is left to read. A request
keeps the policy that it was given, so nothing is drained. The length of an answer is unknown when
it is asked for: the mean length of ended answers is used, and never more than the requested most.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from math import ceil
from typing import Protocol

from tessera.driver.serve.batches import Sizes
from tessera.ir.arguments import check_amounts
from tessera.ir.objectives import POLICIES
from tessera.ir.options import WrongOption

LATENCY, THROUGHPUT = map(str, POLICIES)
_MEMORY = 1 / 64
"""Weight of one ended answer in the running mean."""
_SOON = 0.1
"""Share of the window within which the prompts that have rows should be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchRule:
    """When to switch: the window of demand, its two marks, and the dwell time."""

    window_ns: float = 3e9
    high: float = 0.6
    low: float = 0.4
    dwell_ns: float = 2e9

    def __post_init__(self) -> None:
        amounts = {"window": self.window_ns, "high": self.high, "low": self.low}
        check_amounts(amounts, optional=False)
        if not 0 <= self.dwell_ns < float("inf"):
            raise WrongOption("the dwell time of {switch} is 0 or more")
        if self.low > self.high:
            raise WrongOption("the low mark of {switch} is above the high one")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPrices:
    """Times of steps of the policy for latency while it is never idle.

    `prefill_ns` is the time of a prefill step, `decode_ns` that of a decode step per row.
    """

    sizes: Sizes
    prefill_ns: float
    decode_ns: float

    @property
    def _chunk(self) -> int:
        return max((step.all_tokens for step in self.sizes.prefill), default=1)

    def filling(self, tokens: int) -> float:
        """Nanoseconds to read this many tokens of prompts."""
        return tokens / self._chunk * self.prefill_ns

    def of(self, prompt: int, answer: float) -> float:
        """Nanoseconds for a request."""
        filled = self.sizes.prefilled(prompt)
        return (
            ceil(filled / self._chunk) * self.prefill_ns
            + (self.sizes.decode_steps(prompt, 0) + answer) * self.decode_ns
        )


class AdmissionPolicy(Protocol):
    """Chooses the policy with which requests are admitted."""

    switches: list[tuple[float, str]]
    pace: float

    def come(self, now_ns: float, prompt: int, answer: int) -> None:
        """Note the arrival of a request for an answer of at most `answer` tokens."""

    def end(self, answer: int) -> None:
        """Note the end of an answer of `answer` tokens."""

    def choose(self, now_ns: float, waiting: int, unfilled: int = 0) -> str:
        """The policy for requests that get a row now, while `waiting` wait for one.

        `unfilled` are tokens of prompts that have a row and are not done.
        """


class PolicySwitch:
    """The rule of this module."""

    def __init__(self, prices: StepPrices, rule: SwitchRule | None = None) -> None:
        self.prices = prices
        self.rule = rule or SwitchRule()
        self.policy = LATENCY
        self.switches: list[tuple[float, str]] = []
        self.pace = 1.0
        """Ratio of measured times of steps to their prices."""
        self.load = 0.0
        """The demand when a policy was last chosen."""
        self._came: deque[tuple[float, float]] = deque()
        self._work = 0.0
        self._usual = 0.0
        self._answer = 0.0

    def come(self, now_ns: float, prompt: int, answer: int) -> None:
        """Count the work of a request from now on."""
        work = self.prices.of(prompt, self.expected(answer))
        self._came.append((now_ns, work))
        self._work += work
        self._usual += (work - self._usual) * (_MEMORY if self._usual else 1.0)

    def expected(self, answer: int) -> float:
        """The length of an answer of at most so many tokens, by the mean of those that ended."""
        return min(answer, self._answer) if self._answer else answer

    def end(self, answer: int) -> None:
        """Update the mean length of answers."""
        self._answer += (answer - self._answer) * (_MEMORY if self._answer else 1.0)

    def demand(self, now_ns: float, waiting: int) -> float:
        """The work that arrived within the window or has waited for longer, as a share."""
        came = self._came
        while came and came[0][0] <= now_ns - self.rule.window_ns:
            self._work -= came.popleft()[1]
        if not came:
            self._work = 0.0
        older = max(waiting - len(came), 0) * self._usual
        return (self._work + older) * self.pace / self.rule.window_ns

    def choose(self, now_ns: float, waiting: int, unfilled: int = 0) -> str:
        """Switch if the rule says so."""
        is_quick = self.policy == LATENCY
        left = self.prices.filling(unfilled) * self.pace / (self.rule.window_ns * _SOON)
        self.load = demand = max(self.demand(now_ns, waiting), left)
        if self.switches and now_ns - self.switches[-1][0] < self.rule.dwell_ns:
            wanted = THROUGHPUT if waiting or left > self.rule.high else self.policy
        elif is_quick:
            wanted = THROUGHPUT if waiting or demand > self.rule.high else LATENCY
        else:
            wanted = LATENCY if not waiting and demand < self.rule.low else THROUGHPUT
        if wanted != self.policy:
            self.policy = wanted
            self.switches.append((now_ns, wanted))
        return wanted


class ForeseenSwitch(PolicySwitch):
    """The same rule, by the requests that will arrive in the window and their actual lengths."""

    def __init__(
        self,
        prices: StepPrices,
        rule: SwitchRule | None,
        coming: Iterable[tuple[float, int, int]],
    ) -> None:
        super().__init__(prices, rule)
        rows = list(coming)
        self._times = [at_ns for at_ns, _, _ in rows]
        works = (prices.of(prompt, answer) for _, prompt, answer in rows)
        self._sums = [0.0, *accumulate(works)]

    def demand(self, now_ns: float, waiting: int) -> float:
        """The work that will arrive within the window or waits, as a share."""
        first = bisect.bisect_left(self._times, now_ns)
        last = bisect.bisect_left(self._times, now_ns + self.rule.window_ns)
        coming = self._sums[last] - self._sums[first] + waiting * self._usual
        return coming * self.pace / self.rule.window_ns
