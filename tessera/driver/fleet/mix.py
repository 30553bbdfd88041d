"""Which units to take, and how many of each: an integer program, solved to the end.

In: `Offer`s (a way to use some GPUs, its rate and cost), and the number of GPUs of each kind. Out:
a `Mix`: counts. `cheapest_mix` serves a demand for the least money; `fastest_mix` serves the most,
and of equal mixes takes the cheapest. Counts are few and whole, so HiGHS proves the optimum; its
solution is checked against the rows again, because its tolerances are not ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import cast

import numpy as np

from tessera.planning.bound.highs import Highs

_CLOSE = 1e-9
_TRIES = 4
_MOST = 1_000_000


@dataclass(frozen=True, slots=True)
class Offer:
    """One unit: requests per second, dollars per hour, and how many GPUs of each kind it takes."""

    rate: float
    usd_per_hour: float
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Mix:
    """The count of each offer."""

    counts: tuple[int, ...]

    def rate(self, offers: Sequence[Offer]) -> float:
        """Requests per second of all units together."""
        return sum(n * o.rate for n, o in zip(self.counts, offers, strict=True))

    def usd_per_hour(self, offers: Sequence[Offer]) -> float:
        """Dollars per hour of all units together."""
        return sum(n * o.usd_per_hour for n, o in zip(self.counts, offers, strict=True))

    def gpus(self, offers: Sequence[Offer]) -> tuple[int, ...]:
        """GPUs of each kind that are taken."""
        rows = [[n * g for g in o.gpus] for n, o in zip(self.counts, offers, strict=True)]
        return tuple(map(sum, zip(*rows, strict=True)))

    def is_within(self, offers: Sequence[Offer], most: Sequence[float]) -> bool:
        """Whether the GPUs of the mix are within the limits `most`."""
        return all(n <= limit for n, limit in zip(self.gpus(offers), most, strict=True))


def cheapest_mix(offers: Sequence[Offer], most: Sequence[float], demand: float) -> Mix | None:
    """The mix that serves the demand for the least money; None if no mix serves it.

    Of equally cheap mixes, one with the fewest GPUs, and of these one that splits least.
    """
    if demand <= 0:
        return Mix((0,) * len(offers))
    limits = [_most_of(offer, most, demand) for offer in offers]
    if not any(limits):
        return None
    price = max((o.usd_per_hour for o in offers), default=0.0) or 1.0
    size = max((sum(o.gpus) for o in offers), default=1) or 1
    # The weight of a GPU is so small that it decides only between mixes of equal price. Further
    # GPUs of a unit weigh a little more than its first, so that not splitting wins a tie.
    costs = [o.usd_per_hour / price + 1e-7 * (1.1 * sum(o.gpus) - 0.1) / size for o in offers]
    wanted = 1.0
    for _ in range(_TRIES):
        counts = _solve(costs, [o.rate / demand for o in offers], offers, most, limits, wanted)
        if counts is None:
            return None
        mix = Mix(counts)
        if mix.rate(offers) >= demand * (1 - _CLOSE):
            return mix
        wanted += 1e-6
    return None


def fastest_mix(offers: Sequence[Offer], most: Sequence[float]) -> Mix | None:
    """The mix that serves the most with the existing GPUs, and the cheapest of these."""
    limits = [_most_of(offer, most, inf) for offer in offers]
    if not any(limits):
        return None
    top = max(offer.rate for offer, limit in zip(offers, limits, strict=True) if limit)
    counts = _solve([-o.rate / top for o in offers], None, offers, most, limits, 0.0)
    if counts is None:
        return None
    best = Mix(counts)
    cheaper = cheapest_mix(offers, most, best.rate(offers) * (1 - 1e-7))
    return best if cheaper is None else cheaper


def _most_of(offer: Offer, most: Sequence[float], demand: float) -> int:
    """The largest useful count of an offer."""
    if not offer.rate > 0:
        return 0
    fits = min(
        (limit / count for count, limit in zip(offer.gpus, most, strict=True) if count),
        default=inf,
    )
    needed = ceil(demand / offer.rate) if demand < inf else inf
    return int(min(fits + _CLOSE, needed, _MOST))


def _solve(
    costs: Sequence[float],
    served: Sequence[float] | None,
    offers: Sequence[Offer],
    most: Sequence[float],
    limits: Sequence[int],
    wanted: float,
) -> tuple[int, ...] | None:
    """Counts of least cost within the limits that serve `wanted`; None if there are none."""
    import highspy

    kinds = [k for k, limit in enumerate(most) if limit < inf]
    rows = [[float(offer.gpus[k]) for offer in offers] for k in kinds]
    lower = [-highspy.kHighsInf] * len(kinds)
    upper = [float(most[k]) for k in kinds]
    if served is not None:
        rows, lower = [*rows, list(served)], [*lower, wanted]
        upper = [*upper, highspy.kHighsInf]
    solver = cast(Callable[[], Highs], highspy.Highs)()
    for name, value in (
        ("output_flag", False),
        ("threads", 1),
        ("random_seed", 0),
        ("mip_rel_gap", 0.0),
        ("mip_abs_gap", 1e-9),
    ):
        solver.setOptionValue(name, value)
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(offers), len(rows)
    model.col_cost_ = np.array(costs)
    model.col_lower_ = np.zeros(len(offers))
    model.col_upper_ = np.array(limits, dtype=float)
    model.row_lower_, model.row_upper_ = np.array(lower), np.array(upper)
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = np.arange(len(rows) + 1) * len(offers)
    model.a_matrix_.index_ = np.tile(np.arange(len(offers)), len(rows))
    model.a_matrix_.value_ = np.array([value for row in rows for value in row])
    model.integrality_ = [highspy.HighsVarType.kInteger] * len(offers)
    solver.passModel(model)
    solver.run()
    feasible = highspy.SolutionStatus.kSolutionStatusFeasible
    if solver.getInfo().primal_solution_status != feasible:
        return None
    counts = tuple(round(value) for value in solver.getSolution().col_value)
    return counts if Mix(counts).is_within(offers, most) else None
