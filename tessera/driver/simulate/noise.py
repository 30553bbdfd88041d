"""How far predicted times are off, drawn from their error bars."""

from __future__ import annotations

import math
import random

_NINE_IN_TEN = 1.6449
"""Standard deviations on either side that nine of ten draws are within."""


class Noise:
    """How far predictions are off: steps of one name on one device are off by the same factor.

    By their error bars, of which nine in ten hold; or by a `spread` that all have.
    """

    def __init__(self, seed: int, spread: float | None = None) -> None:
        self._seed = seed
        self._spread = spread
        self._known: dict[tuple[str, str], float] = {}

    def of(self, name: str, device: str, error: float) -> float:
        """The factor of a step; the same in every plan."""
        key = name, device
        if key not in self._known:
            self._known[key] = random.Random(f"{self._seed} {name} {device}").gauss(0.0, 1.0)
        bar = error if self._spread is None else self._spread
        spread = math.log1p(bar) / _NINE_IN_TEN
        # The prediction is the mean: what many steps take together stays about the same.
        return math.exp(self._known[key] * spread - spread * spread / 2)
