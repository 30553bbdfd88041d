"""Latency and throughput of requests for text, in a simulation or in a run.

In: a `Served` per request, the number of waiting requests over time, the busy time of devices.
Out: a `ServingReport`.

- TTFT: from the arrival of a request to its first token.
- TPOT: from the first token to the last, per token after the first.
- End to end: from the arrival to the last token.
- Goodput: requests per second whose TTFT and TPOT are both within the limits (the SLO).
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tessera.simulation.report import percentiles

WINDOWS = 60


class AnswerEnd(StrEnum):
    """How an answer ended."""

    UNDER_WAY = ""
    LENGTH = "length"
    STOP = "stop"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    FAULT = "fault"

    @property
    def is_whole(self) -> bool:
        """Whether the answer came to its end."""
        return self in (AnswerEnd.LENGTH, AnswerEnd.STOP)


@dataclass(slots=True)
class Served:
    """A request for text: its arrival, its tokens, and the times of the first and the last one.

    Times are nanoseconds from the first request on; -1: not reached. `seated_ns`
    is when it got a row, by `policy` where there are several, `begun_ns` when its first step began.
    `handed_ns` is the time of its `hand_overs`, from when it could go until it had arrived;
    `held_ns` is the part of that before its first token.
    """

    came_ns: float
    prompt: int
    answer: int
    first_ns: float = -1.0
    ended_ns: float = -1.0
    ended: AnswerEnd = AnswerEnd.UNDER_WAY
    seated_ns: float = -1.0
    begun_ns: float = -1.0
    policy: str = ""
    hand_overs: int = 0
    handed_bytes: int = 0
    handed_ns: float = 0.0
    held_ns: float = 0.0

    @property
    def is_whole(self) -> bool:
        """Whether the answer came to its end."""
        return self.ended.is_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Limits on the time to the first token and per token after it; None means no limit."""

    ttft_ns: float | None = None
    tpot_ns: float | None = None

    def is_met(self, served: Served) -> bool:
        """Whether a request was answered within the limits."""
        if not served.is_whole:
            return False
        if self.ttft_ns is not None and served.first_ns - served.came_ns > self.ttft_ns:
            return False
        return self.tpot_ns is None or tpot_ns(served) <= self.tpot_ns


def tpot_ns(served: Served) -> float:
    """Nanoseconds per token after the first; 0 if there is only one."""
    more = served.answer - 1
    return (served.ended_ns - served.first_ns) / more if more > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueWindow:
    """A part of the time: the mean and the largest number of requests that waited for a row."""

    from_ns: float
    to_ns: float
    mean: float
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingReport:
    """Requests for text, served.

    `steps` counts the steps of every trace. `busy` is the share of the time that each device
    computed. `notes` say what the figures rest on. `switches` are the moments at which the policy
    changed, and to which. `reused` are tokens of prompts that were not computed, because the cache
    held them; `preempted` counts answers that were put off because it was full. `answers_digest` is
    the SHA-256 of the tokens of all answers, in the order of the requests; empty where nothing was
    generated.
    """

    name: str
    source: str
    requests: Sequence[Served]
    waiting: Sequence[tuple[float, int]]
    steps: Mapping[str, int]
    busy: Mapping[str, float] = field(default_factory=dict)
    slo: Slo = Slo()
    notes: tuple[str, ...] = ()
    switches: Sequence[tuple[float, str]] = ()
    reused: int = 0
    preempted: int = 0
    answers_digest: str = ""

    @property
    def whole(self) -> list[Served]:
        """The requests that were answered to their end."""
        return [served for served in self.requests if served.is_whole]

    @property
    def span_ns(self) -> float:
        """Nanoseconds from the first request to the last token."""
        first = min((served.came_ns for served in self.requests), default=0.0)
        return max((served.ended_ns for served in self.requests), default=first) - first

    def figures(self) -> dict[str, dict[str, float]]:
        """Percentiles of TTFT, TPOT and end to end, in nanoseconds."""
        whole = self.whole
        return {
            "ttft_ns": percentiles(sorted(s.first_ns - s.came_ns for s in whole)),
            "tpot_ns": percentiles(sorted(tpot_ns(s) for s in whole if s.answer > 1)),
            "end_to_end_ns": percentiles(sorted(s.ended_ns - s.came_ns for s in whole)),
        }

    def rates(self) -> dict[str, float]:
        """Requests, tokens and good requests per second."""
        whole = self.whole
        seconds = self.span_ns / 1e9
        good = sum(1 for served in whole if self.slo.is_met(served))
        per_second = 1 / seconds if seconds > 0 else 0.0
        return {
            "requests_per_s": len(whole) * per_second,
            "prompt_tokens_per_s": sum(served.prompt for served in whole) * per_second,
            "answer_tokens_per_s": sum(served.answer for served in whole) * per_second,
            "goodput_per_s": good * per_second,
            "good_share": good / len(self.requests) if self.requests else 0.0,
        }

    def endings(self) -> dict[str, int]:
        """The number of requests by how they ended."""
        return dict(Counter(served.ended for served in self.requests))

    def policies(self) -> dict[str, int]:
        """The number of requests by policy, if there are several."""
        return dict(Counter(served.policy for served in self.requests if served.policy))

    def hand_overs(self) -> dict[str, float]:
        """Hand-overs of sequences: their number, bytes and times; empty if there were none.

        `handed_ns` is the mean time from when a sequence could go until it had arrived, `held_ns`
        the mean part of that in the TTFT of requests that were handed over.
        """
        moved = [served for served in self.requests if served.hand_overs]
        count = sum(served.hand_overs for served in moved)
        if not moved:
            return {}
        return {
            "count": count,
            "requests": len(moved),
            "bytes": sum(served.handed_bytes for served in moved),
            "handed_ns": sum(served.handed_ns for served in moved) / count,
            "handed_most_ns": max(served.handed_ns for served in moved),
            "held_ns": sum(served.held_ns for served in moved) / len(moved),
        }

    def queue(self) -> tuple[QueueWindow, ...]:
        """The number of waiting requests over time."""
        return queue_windows(self.waiting, self.span_ns)


def queue_windows(
    moments: Iterable[tuple[float, int]], span_ns: float, count: int = WINDOWS
) -> tuple[QueueWindow, ...]:
    """Divide moments, each with the number waiting from then on, into equal parts of the time."""
    if span_ns <= 0:
        return ()
    width = span_ns / count
    sums, most = [0.0] * count, [0] * count
    times = [width * (number + 1) for number in range(count)]
    before, waiting = 0.0, 0
    for at_ns, now in [*moments, (span_ns, 0)]:
        at = min(max(at_ns, before), span_ns)
        window = bisect.bisect_right(times, before)
        while before < at and window < count:
            until = min(at, times[window])
            sums[window] += waiting * (until - before)
            most[window] = max(most[window], waiting)
            before = until
            window += 1
        before, waiting = at, now
    return tuple(
        QueueWindow(
            from_ns=width * number,
            to_ns=width * (number + 1),
            mean=sums[number] / width,
            most=most[number],
        )
        for number in range(count)
    )
