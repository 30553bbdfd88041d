"""`Routing`: how the tokens of a step choose their experts, and its text in traces and options.

In: a text such as `uniform`, `skew:0.5` or `rows:12,7,3`. Out: a record. Durations alone use it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

LAWS = "uniform, skew:NUMBER or rows:COUNT,COUNT,..."
_MOST_SKEW, _MOST_EXPERTS = 4.0, 1 << 16
_NUMBER = re.compile(r"[0-9]{1,3}(\.[0-9]{1,6})?")
_COUNTS = re.compile(r"[0-9]{1,12}(,[0-9]{1,12})*")


@dataclass(frozen=True, slots=True)
class Routing:
    """The law of choices. Without `skew` and `rows` all experts are equally likely.

    `skew`: the likelihood of an expert falls as place ** -skew, in some order of preference.
    `rows`: it goes with the rows that each expert had where they were counted. `counts` are the
    rows of one step: what is computed of it has exactly these.
    """

    skew: float = 0.0
    rows: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()

    def __str__(self) -> str:
        if self.rows:
            return "rows:" + ",".join(map(str, self.rows))
        return f"skew:{self.skew:f}".rstrip("0").rstrip(".") if self.skew else "uniform"


def parse_routing(text: str) -> Routing | None:
    """The law that a text states; None if it states none."""
    law, _, value = text.partition(":")
    if text == "uniform":
        return Routing()
    if law == "skew" and _NUMBER.fullmatch(value) and 0.0 < float(value) <= _MOST_SKEW:
        return Routing(skew=float(value))
    if law == "rows" and _COUNTS.fullmatch(value):
        rows = tuple(map(int, value.split(",")))
        return Routing(rows=rows) if any(rows) and len(rows) <= _MOST_EXPERTS else None
    return None
