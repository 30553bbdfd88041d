"""What no use of the GPUs beats: a fluid bound, and one of whole GPUs.

In: a model, the offered GPUs, a workload. Out: a `FleetBound`: the most requests per second, or for
a demand the least dollars per hour.

A linear program deals the steps of a request to kinds of GPUs, each step for itself, in batches of
any of the traces: times are linear between traces, so no batch is better than a mix of two of them.
Steps with equal times are one row. The time on each kind is at most its number of GPUs. It ignores
transfers, memory and limits. The fluid bound takes parts of GPUs; in that of whole GPUs the numbers
of the kinds are whole, and so it is never below the fluid cost and never above that of an answer.
Tensor parallelism cuts steps, so its units are dealt as they are, for each phase.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from tessera.driver.fleet.capacity import Capacity
from tessera.driver.fleet.model_steps import ModelStep, ServedModel
from tessera.driver.fleet.offered import Offered
from tessera.driver.fleet.whole_numbers import BoundedRow, least_cost
from tessera.driver.fleet.workload import Workload
from tessera.planning.search.strategies import TENSOR

_ROUNDING = 1e-6

Array = NDArray[np.float64]

Dealt = tuple[tuple[float, tuple[float, ...]], ...]
"""Rows of steps: how often, and seconds per request on each kind (infinite: it cannot run)."""


@dataclass(frozen=True, slots=True)
class FleetBound:
    """The most requests per second, or the least dollars per hour: of parts of GPUs, of whole."""

    fluid: float
    whole: float


@dataclass(frozen=True, slots=True)
class RequestLoad:
    """The work of a request: for each phase, the batches in which its steps may be taken.

    `cut` are units that take a phase as a whole: seconds of each kind of GPU, all at once.
    """

    phases: tuple[tuple[Dealt, ...], ...]
    cut: tuple[tuple[tuple[float, ...], ...], ...]

    def least(
        self, most: Sequence[float], prices: Sequence[float] | None, demand: float, whole: bool
    ) -> float | None:
        """The least dollars per hour for a demand; without prices, the most requests per second.

        None if the GPUs do not serve it.
        """
        kinds = len(most)
        costs = [*(prices or [0.0] * kinds), 0.0 if prices else -1.0]
        served = kinds  # the column of requests per second, in units of the demand
        loads = [BoundedRow({kind: -1.0}, most=0.0) for kind in range(kinds)]
        rows = [*loads, BoundedRow({served: 1.0}, least=1.0 if prices else 0.0)]

        def column(times: Sequence[float], scale: float) -> int:
            costs.append(0.0)
            for kind, seconds in enumerate(times):
                if seconds:
                    loads[kind].values[len(costs) - 1] = seconds * scale
            return len(costs) - 1

        for batches, cuts in zip(self.phases, self.cut, strict=True):
            phase = BoundedRow({served: -1.0}, least=0.0, most=0.0)
            rows.append(phase)
            for cut in cuts:
                phase.values[column(cut, demand)] = 1.0
            for batch in batches:
                taken = column((), demand)
                phase.values[taken] = 1.0
                for often, times in batch:
                    row = BoundedRow({taken: -1.0}, least=0.0, most=0.0)
                    for kind, seconds in enumerate(times):
                        if seconds < inf:
                            alone = [0.0] * kind + [seconds]
                            row.values[column(alone, demand * often)] = 1.0
                    rows.append(row)
        limits = [*map(float, most), *([inf] * (len(costs) - kinds))]
        solved = least_cost(costs, rows, limits, [whole and n < kinds for n in range(len(costs))])
        if solved is None:
            return None
        return solved.bound if prices else -solved.bound * demand


def fleet_bound(
    model: ServedModel,
    offered: Offered,
    work: Workload,
    capacities: Sequence[Capacity],
    demand: float | None,
) -> FleetBound | None:
    """What no use of the GPUs beats; None if prices or numbers of GPUs are not known."""
    load = request_load(model, work, capacities)
    most = [kind.most for kind in offered.kinds]
    if demand is None:
        if inf in most or not any(most):
            return None
        scale = min((sum(row) for row in _totals(load)), default=0.0)
        rate = load.least(most, None, 1 / scale, whole=False) if scale else None
        return None if rate is None else FleetBound(rate * (1 + _ROUNDING), rate * (1 + _ROUNDING))
    prices = [kind.usd_per_hour for kind in offered.kinds if kind.usd_per_hour is not None]
    if len(prices) < len(most) or not demand or not any(prices):
        return None
    fluid, whole = (load.least(most, prices, demand, whole=w) for w in (False, True))
    if not fluid or not whole:
        return None
    fluid, whole = fluid * (1 - _ROUNDING), whole * (1 - _ROUNDING)
    return FleetBound(fluid, max(fluid, whole))


def request_load(model: ServedModel, work: Workload, capacities: Sequence[Capacity]) -> RequestLoad:
    """The work of a request of the workload."""
    made = max(work.answer - 1, 0.0)
    tensor = {c.way.gpus: c.way for c in capacities if c.way.strategy == TENSOR}.values()
    cuts = [
        tuple(
            tuple(count * taken.ns / 1e9 * tokens / size for count in way.gpus)
            for way in tensor
            for size, taken in (way.prefill if phase == 0 else way.decode).points
        )
        for phase, tokens in enumerate((work.prompt, made))
    ]
    return RequestLoad(
        (
            tuple(_dealt(s, work, work.prompt / (s.rows * s.tokens)) for s in model.prefill),
            tuple(_dealt(s, work, made / s.rows) for s in model.decode),
        ),
        tuple(cuts),
    )


def _dealt(step: ModelStep, work: Workload, often: float) -> Dealt:
    """The steps of a trace, those with equal times together."""
    scale = work.context / step.context if step.is_decode else 1.0
    factors = np.where(np.array(step.attends), scale, 1.0)
    times: Array = np.array([[inf if t is None else t for t in row] for row in step.ns], float)
    rows, counts = np.unique(times * factors[:, None] / 1e9, axis=0, return_counts=True)
    return tuple(
        (float(count) * often, tuple(map(float, row)))
        for row, count in zip(rows, counts, strict=True)
    )


def _totals(load: RequestLoad) -> Iterator[list[float]]:
    """Seconds of each phase in each batch, every step where it is fastest."""
    for phase in load.phases:
        for batch in phase:
            yield [often * min(times) for often, times in batch]
