"""The next token, of logits: the most likely one, or one that is drawn.

In: logits, and how to choose. Out: a token. Draws depend on the seed of the request alone: not on
its row, nor on who is in the batch with it. Without a seed they are independent of all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

import numpy as np

from tessera.diagnostics import TesseraError, error
from tessera.ir.arrays import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How to choose: a temperature of 0 takes the most likely token.

    `top_k` leaves the most likely so many (0: all), `top_p` the fewest whose shares add up to it.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, is_right, wanted in (
            ("temperature", _is_number(self.temperature) and self.temperature >= 0, "0 or more"),
            ("top_k", isinstance(self.top_k, int) and self.top_k >= 0, "0 or more"),
            ("top_p", _is_number(self.top_p) and 0 < self.top_p <= 1, "above 0 and at most 1"),
            (
                "seed",
                self.seed is None or (isinstance(self.seed, int) and self.seed >= 0),
                "a whole number, 0 or more",
            ),
        ):
            if not is_right:
                message = f"`{name}` must be {wanted}, not {getattr(self, name)!r}"
                raise TesseraError(error("TSR5064", message))

    @property
    def is_greedy(self) -> bool:
        """Whether nothing is drawn."""
        return self.temperature == 0 or self.top_k == 1

    def draws(self) -> np.random.Generator:
        """The random numbers of one request; without a seed, from fresh entropy."""
        return np.random.Generator(np.random.PCG64(self.seed))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def draw_token(logits: Floats, sampling: Sampling, draws: np.random.Generator) -> int:
    """A token by its share, of those that are left."""
    wide = np.asarray(logits, np.float64)
    with np.errstate(over="ignore"):  # far below the most likely, at a temperature near 0
        scaled = (wide - wide.max()) / sampling.temperature
    order = np.argsort(-wide, kind="stable")
    if sampling.top_k:
        order = order[: sampling.top_k]
    shares = np.exp(scaled[order])
    shares /= shares.sum()
    if sampling.top_p < 1:
        left = int(np.searchsorted(np.cumsum(shares), sampling.top_p)) + 1
        order, shares = order[:left], shares[:left] / shares[:left].sum()
    drawn = int(np.searchsorted(np.cumsum(shares), draws.random(), side="right"))
    return int(order[min(drawn, len(order) - 1)])
