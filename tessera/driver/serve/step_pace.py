"""How many tokens a mixed step takes, by the times of steps and the prompts that wait.

In: the tokens and the time of each size of step. Out: the tokens of the next step, for the
scheduler. A larger step reads prompts at less cost for each token, and every answer under way waits
for it. So steps are as small as they can be while the prompts that have rows are read in time.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

READ_NS = 100e6
"""Nanoseconds within which prompts are read, if no limit on the first token says otherwise."""
_READ_SHARE = 0.5
"""The part of a limit on the first token in which its prompt is read: prompts also wait for rows
and for the step under way."""


@dataclass(frozen=True, slots=True)
class StepPace:
    """The tokens and the nanoseconds of the sizes that may be taken, smallest first."""

    sizes: tuple[tuple[int, float], ...]
    read_ns: float = READ_NS

    def tokens(self, rows: int, waiting: int) -> int:
        """The most tokens of the next step, with `rows` answers, if `waiting` are to be read.

        Those of the smallest size that reads them in time; else of the largest.
        """
        for tokens, step_ns in self.sizes:
            if tokens > rows and ceil(waiting / (tokens - rows)) * step_ns <= self.read_ns:
                return tokens
        return self.sizes[-1][0]


def pace_of(
    times: list[tuple[int, float]], *, ttft_ns: float | None, tpot_ns: float | None
) -> StepPace:
    """The pace of sizes with their times: those within `tpot_ns`, or the smallest of them."""
    ordered = sorted(times)
    within = tuple(own for own in ordered if tpot_ns is None or own[1] <= tpot_ns)
    read_ns = READ_NS if ttft_ns is None else _READ_SHARE * ttft_ns
    return StepPace(within or (ordered[0],), read_ns)
