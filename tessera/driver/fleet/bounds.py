"""What no use of the GPUs beats: a fluid bound, and one of whole GPUs.

In: a model, the offered GPUs, a workload. Out: the most requests per second, or for a demand the
least dollars per hour.

The fluid bound: for any weights of the kinds of GPUs, a request takes no less than the sum over its
steps of the least weighted time, whatever the batches: times are linear between traces, so no batch
is better than the better of two traces. With prices as weights, the sum is the least cost of a
request. To bound the most requests, the weights are moved towards busy kinds. The bound ignores
transfers, memory, limits and the rounding to whole GPUs. Tensor parallelism cuts steps, so its
units are counted as they are, for each phase, never waiting for a request.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

from tessera.driver.fleet.capacity import Capacity
from tessera.driver.fleet.model_steps import ModelStep, ServedModel
from tessera.driver.fleet.offered import Offered
from tessera.driver.fleet.workload import Workload
from tessera.planning.search.strategies import TENSOR

_ROUNDS = 400

Array = NDArray[np.float64]


def fleet_bound(
    model: ServedModel,
    offered: Offered,
    work: Workload,
    capacities: Sequence[Capacity],
    demand: float | None,
) -> float | None:
    """The most requests per second, or for a demand the least dollars per hour; None if unknown."""
    request = _RequestLoad(model, work, capacities)
    if demand is not None:
        prices = [kind.usd_per_hour for kind in offered.kinds]
        if any(price is None for price in prices):
            return None
        each, _ = request.weigh(np.array(prices, dtype=float))
        least = each / 1e9 * demand  # seconds of GPUs per second, at their prices per hour
        return least if 0 < least < inf else None
    counts = np.array([kind.most for kind in offered.kinds], dtype=float)
    if not np.isfinite(counts).all():
        return None
    weights = np.where(counts > 0, 1.0, 0.0)
    weights /= weights.sum()
    best = 0.0
    for number in range(_ROUNDS):
        value, loads = request.weigh(weights / np.maximum(counts, 1.0))
        best = max(best, value)
        loads = loads / np.maximum(counts, 1.0)
        largest = float(loads.max())
        if largest <= 0:
            break
        weights = weights * np.exp(loads / largest / (1 + number / 4))
        weights /= weights.sum()
    return 1e9 / best if 0 < best < inf else None


class _RequestLoad:
    """The load of a request: times of the steps of each trace, per request, by kind of GPU."""

    def __init__(self, model: ServedModel, work: Workload, capacities: Sequence[Capacity]) -> None:
        made = max(work.answer - 1, 0.0)
        self._phases = [
            [_times(s, work) * work.prompt / (s.rows * s.tokens) for s in model.prefill],
            [_times(s, work) * made / s.rows for s in model.decode],
        ]
        self._cut: list[list[Array]] = [[], []]
        for way in (c.way for c in capacities if c.way.strategy == TENSOR):
            gpus = np.array(way.gpus, dtype=float)
            for phase, (curve, tokens) in enumerate(
                ((way.prefill, work.prompt), (way.decode, made))
            ):
                self._cut[phase] += [gpus * taken.ns * tokens / n for n, taken in curve.points]

    def weigh(self, weights: Array) -> tuple[float, Array]:
        """The least weighted time of a request, and the time it then takes of each kind of GPU."""
        least, loads = 0.0, np.zeros(len(weights))
        for phase, cuts in zip(self._phases, self._cut, strict=True):
            tried = [_weighed(times, weights) for times in phase]
            tried += [(float((cut * weights).sum()), cut) for cut in cuts]
            value, own = min(tried, key=lambda pair: pair[0])
            least, loads = least + value, loads + own
        return least, loads


def _times(step: ModelStep, work: Workload) -> Array:
    scale = work.context / step.context if step.is_decode else 1.0
    factors = np.where(np.array(step.attends), scale, 1.0)
    times = np.array([[inf if ns is None else ns for ns in row] for row in step.ns], dtype=float)
    return times * factors[:, None]


def _weighed(times: Array, weights: Array) -> tuple[float, Array]:
    with np.errstate(invalid="ignore"):
        weighed = np.where(np.isinf(times), inf, times * weights)
    chosen = weighed.argmin(axis=1)
    loads = np.zeros(len(weights))
    np.add.at(loads, chosen, times[np.arange(len(times)), chosen])
    return float(weighed.min(axis=1).sum()), loads
