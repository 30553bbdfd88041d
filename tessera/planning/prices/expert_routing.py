"""Rows that tokens bring to experts, by the law with which tokens choose them.

In: tokens, experts per token, experts, a `Routing`. Out: the expected number of distinct experts,
and of tiles of their rows.

Every token chooses `chosen` of `experts` experts, one after the other and independently of other
tokens. Uniform: all experts are equally likely. Skewed: the likelihood falls with the place of the
expert in an order of preference, as place ** -skew. Measured: it goes with the rows that experts
had. The rows of an expert are binomial. Where those of this very step were counted, they are taken
as they are.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, erfc, exp, sqrt

from tessera.ir.program.routing import Routing

_FAR = 5.0  # standard deviations from the mean, beyond which a tile surely exists or does not
_HALVINGS = 40


UNIFORM = Routing()
UNEVEN = Routing(skew=0.5)
UNKNOWN = (UNIFORM, UNEVEN)  # what requests choose is between these


def possible_routings(stated: Routing | None, experts: int) -> tuple[Routing, ...]:
    """The law that a trace states; if it states none, or one of another number of experts, two."""
    if stated is None or (stated.rows and len(stated.rows) != experts):
        return UNKNOWN
    return (stated,)


@lru_cache(maxsize=1 << 10)
def likelihoods(chosen: int, experts: int, routing: Routing) -> tuple[tuple[float, int], ...]:
    """The likelihood that a token chooses an expert, with the number of experts that have it.

    Choices without replacement: 1 - exp(-x * weight), where x makes the sum right (Rosen, 1972).
    """
    if chosen >= experts or not (routing.skew or routing.rows):
        return ((min(1.0, chosen / experts), experts),)
    weights = [place**-routing.skew for place in range(1, experts + 1)]
    if routing.rows:  # an expert that had none may yet be chosen, as if one in two had been
        whole = sum(routing.rows) + experts / 2
        weights = [(rows + 0.5) / whole for rows in routing.rows]
    low, high = 0.0, 1.0
    while sum(1.0 - exp(-high * weight) for weight in weights) < chosen:
        low, high = high, 2.0 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        enough = sum(1.0 - exp(-middle * weight) for weight in weights) >= chosen
        low, high = (low, middle) if enough else (middle, high)
    return tuple((1.0 - exp(-high * weight), 1) for weight in weights)


def expected_experts(tokens: int, chosen: int, experts: int, routing: Routing) -> float:
    """The expected number of experts that have a row."""
    return expected_tiles(tokens, chosen, experts, routing, max(1, tokens))


@lru_cache(maxsize=1 << 12)
def expected_tiles(tokens: int, chosen: int, experts: int, routing: Routing, height: int) -> float:
    """The expected number of tiles of `height` rows of one expert; its last tile may be partial."""
    if routing.counts:
        return float(sum(ceil(rows / height) for rows in routing.counts))
    parts = likelihoods(chosen, experts, routing)
    tiles = sum(count * _tiles(tokens, part, height) for part, count in parts)
    return max(tiles, float(min(chosen, experts)))


def _tiles(tokens: int, part: float, height: int) -> float:
    """The mean of ceil(rows / height) for binomial rows: the sum of P(rows > n * height)."""
    mean = tokens * part
    spread = sqrt(2.0 * mean * max(0.0, 1.0 - part)) or 1e-9
    first = max(1, int((mean - _FAR * spread) / height))
    last = min(int((mean + _FAR * spread) / height), (tokens - 1) // height)
    above = (0.5 * erfc((n * height + 0.5 - mean) / spread) for n in range(first, last + 1))
    return 1.0 - (1.0 - min(1.0, part)) ** tokens + (first - 1) + sum(above)
