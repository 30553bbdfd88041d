"""Requests that arrive at random: `poisson:20/s`, `poisson:20/s:5000`.

In: the text, the number of requests, a seed. Out: `Arrivals` whose gaps are drawn independently
from an exponential distribution. The same text and seed give the same times.
"""

from __future__ import annotations

import random
import re

from tessera.diagnostics import TesseraError
from tessera.ir.arrivals import Arrival, Arrivals

DEFAULT_COUNT = 1000
MOST_DRAWN = 2_000_000
_BEGINNING = "poisson:"
_PROCESS = re.compile(
    r"poisson:(\d{1,12}(?:\.\d{0,12})?|\.\d{1,12})/(us|ms|s|min|h)(?::(\d{1,9}))?", re.ASCII
)
_UNITS_NS = {"us": 1e3, "ms": 1e6, "s": 1e9, "min": 6e10, "h": 3.6e12}


def is_process(text: str) -> bool:
    """Whether a text names a process, not a path."""
    return text.startswith(_BEGINNING)


def draw_arrivals(text: str, *, most: int | None = None, seed: int = 0) -> Arrivals:
    """The requests of a process: the number in the text, at most `most`; raises TSR1914."""
    gap_ns, count = _parsed(text, most)
    source = random.Random(seed)
    at_ns = 0.0
    requests = []
    for _ in range(count):
        requests.append(Arrival(round(at_ns)))
        at_ns += source.expovariate(1.0) * gap_ns
    return Arrivals(name=text, form="poisson", requests=tuple(requests))


def _parsed(text: str, most: int | None) -> tuple[float, int]:
    """The mean gap and the number of requests."""
    found = _PROCESS.fullmatch(text)
    if found is None or float(found[1]) <= 0:
        raise _wrong(text, "is no rate of requests")
    count = int(found[3]) if found[3] else most or DEFAULT_COUNT
    count = count if most is None else min(count, most)
    if not 1 <= count <= MOST_DRAWN:
        raise _wrong(text, f"draws {count} requests, and can draw 1 to {MOST_DRAWN}")
    return _UNITS_NS[found[2]] / float(found[1]), count


def _wrong(text: str, what: str) -> TesseraError:
    return TesseraError.of(
        "TSR1914",
        f"`{text}` {what}",
        hint="write `poisson:20/s`, or `poisson:20/s:5000` for 5000 requests; a file whose "
        "name begins like this is read as `./poisson:...`",
    )
