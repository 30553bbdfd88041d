"""How sure a gain is, and what it comes from: two answers of `tessc fleet` with the same errors.

In: a `FleetReport` and two of its choices. Out: the interval that contains nine of ten ratios of
their rates (`paired`), and the parts of a gain that come from batches, roles and placement
(`sources`). A draw has one factor for each kind of step on each kind of GPU, as plans have it
(`ErrorDraws`); it is the same on both sides, so that errors that both share cancel. Units divide
their time between prompts and answers as suits the draw, as far as they have both roles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tessera.driver.fleet.capacity import Capacity
from tessera.driver.fleet.choose_units import FleetChoice
from tessera.driver.fleet.engines import EngineRole
from tessera.driver.fleet.make_fleet import FleetReport
from tessera.driver.fleet.model_steps import ModelStep
from tessera.driver.fleet.placed_steps import Curve, Places, Taken
from tessera.driver.fleet.ways import UnitWay
from tessera.ir.plan.costs import Duration
from tessera.simulation.noise import ErrorDraws

DRAWS = 256
TAIL = 0.05

Floats = npt.NDArray[np.float64]
WayOf = Callable[[UnitWay], UnitWay]


def paired(report: FleetReport, choice: FleetChoice, other: FleetChoice) -> tuple[float, float]:
    """The ends of nine of ten ratios of two rates, over the ratio without errors."""
    drawn = _Drawn(report)
    ratios = []
    for number in range(-1, DRAWS):
        rates = [
            _rate(report, own.units, lambda way, n=number: drawn.way(way, n))
            for own in (choice, other)
        ]
        ratios.append(rates[0] / rates[1])
    low, high = np.quantile(np.array(ratios[1:]) / ratios[0], (TAIL, 1 - TAIL))
    return float(low), float(high)


def sources(report: FleetReport, choice: FleetChoice, gain: float, batch: int) -> dict[str, float]:
    """The factors of a gain over a form with batches of `batch` sequences."""
    rate = _rate(report, choice.units)
    smaller = [(replace(c, rows=min(c.rows, batch)), n) for c, n in choice.units]
    both = [(replace(c, way=replace(c.way, role=EngineRole.BOTH)), n) for c, n in choice.units]
    made = {
        "batch": rate / _rate(report, smaller),
        "roles": rate / max(_rate(report, both), 1e-9) if choice.hands_over else 1.0,
    }
    return made | {"placement": gain / (made["batch"] * made["roles"])}


def _rate(
    report: FleetReport, units: Sequence[tuple[Capacity, int]], way_of: WayOf = lambda way: way
) -> float:
    """Requests per second of units that are never idle."""
    work, whole = report.work, 0.0
    roles: list[tuple[float, float]] = []  # prompts or answers, whichever a unit does
    for capacity, count in units:
        way = way_of(capacity.way)
        rates = [
            count * replace(way, role=role).most_rate(work, capacity.rows)
            for role in (EngineRole.BOTH, EngineRole.PROMPTS, EngineRole.ANSWERS)
        ]
        match way.role:
            case EngineRole.BOTH:
                whole += rates[0]
            case EngineRole.PROMPTS:
                roles.append((rates[1], 0.0))
            case EngineRole.ANSWERS:
                roles.append((0.0, rates[2]))
            case EngineRole.SHARES:
                roles.append((rates[1], rates[2]))
    return whole + _balanced(roles)


def _balanced(roles: list[tuple[float, float]]) -> float:
    """As many prompts as answers: those who are best at prompts read them, and one does both."""
    roles = sorted(roles, key=lambda own: -own[0] / (own[1] or 1e-12))
    best = 0.0
    for number, (reads, makes) in enumerate(roles):
        before = sum(own[0] for own in roles[:number])
        after = sum(own[1] for own in roles[number + 1 :])
        part = min(1.0, max(0.0, (after + makes - before) / ((reads + makes) or 1.0)))
        best = max(best, min(before + part * reads, after + (1 - part) * makes))
    return best


class _Drawn:
    """Ways with the times of a draw; those without errors are draw -1."""

    def __init__(self, report: FleetReport) -> None:
        self.report = report
        names = dict.fromkeys(row.name for s in report.model.steps for row in s.costs.steps)
        kinds = [kind.label for kind in report.offered.kinds]
        shared = {
            (row.name, kind): cost.shared
            for step in report.model.steps
            for row in step.costs.steps
            for kind, cost in zip(kinds, row.on_device, strict=False)
            if isinstance(cost, Duration) and cost.shared is not None
        }
        places = {kind: number for number, kind in enumerate(kinds)}
        self.errors = ErrorDraws(names, places, DRAWS, shared=shared)
        self.kinds = kinds
        self.known: dict[int, dict[str, list[Taken]]] = {}

    def way(self, way: UnitWay, number: int) -> UnitWay:
        """The way in a draw."""
        if number < 0:
            return way
        if id(way) not in self.known:
            self.known[id(way)] = dict(self._steps(way))
        taken, model = self.known[id(way)], self.report.model
        curves = []
        for curve, steps in ((way.decode, model.decode), (way.prefill, model.prefill)):
            points = zip(curve.points, steps, strict=True)
            curves.append(Curve(tuple((at[0], taken[s.name][number]) for at, s in points)))
        return replace(way, decode=curves[0], prefill=curves[1])

    def _steps(self, way: UnitWay) -> Iterator[tuple[str, list[Taken]]]:
        """For each trace, what it takes in every draw."""
        model = self.report.model
        points = [taken for curve in (way.decode, way.prefill) for _, taken in curve.points]
        kind = next(k for k, count in enumerate(way.gpus) if count)
        for step, taken in zip(model.steps, points, strict=True):
            if way.placed is None:  # all GPUs of one kind have a part of every step
                own = self._more(step, (0,) * len(step.ns), (kind,))
                longer = 1 + own[0] / self._nominal(step, kind)
                yield step.name, [taken.scaled(float(x)) for x in longer]
                continue
            more = self._more(step, way.placed.places[step.name], way.placed.unit.kinds)
            yield (
                step.name,
                [
                    Taken(
                        taken.ns + float(own.sum()),
                        tuple(
                            load + (float(own[n]) if n < len(own) else 0.0)
                            for n, load in enumerate(taken.loads)
                        ),
                    )
                    for own in more.T
                ],
            )

    def _scale(self, step: ModelStep) -> float:
        work = self.report.work
        return work.context / step.context if step.is_decode else 1.0

    def _nominal(self, step: ModelStep, kind: int) -> float:
        scale = self._scale(step)
        rows = zip(step.ns, step.attends, strict=True)
        return sum((ns[kind] or 0.0) * (scale if attends else 1.0) for ns, attends in rows)

    def _more(self, step: ModelStep, places: Places, kinds: Sequence[int]) -> Floats:
        """By how much longer each device is busy in every draw."""
        sums: dict[tuple[int, str, float], float] = {}
        scale = self._scale(step)
        for ns, attends, row, at in zip(
            step.ns, step.attends, step.costs.steps, places, strict=True
        ):
            cost = row.on_device[kinds[at]]
            if isinstance(cost, Duration):
                key = at, row.name, cost.error
                own = (ns[kinds[at]] or 0.0) * (scale if attends else 1.0)
                sums[key] = sums.get(key, 0.0) + own
        more = np.zeros((len(kinds), DRAWS))
        for (at, name, error), ns_sum in sums.items():
            more[at] += ns_sum * (self.errors.factors(name, self.kinds[kinds[at]], error) - 1.0)
        return more
