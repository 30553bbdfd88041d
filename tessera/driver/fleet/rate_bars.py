"""Error bars of what mixes of units serve, and of the ratio of two mixes.

In: a `ServedModel`, the offered GPUs, a workload, `FleetChoice`s. Out: the interval of nine of ten
draws of a mix's rate, and a `Doubt` for each mix beside the answer. All mixes share the draws of
the times of steps, as plans do (`planning.promise.doubt`): a step that is slower than predicted is
slower in every unit that runs it on that kind of GPU, so what two mixes have in common cancels. A
unit serves as much more or less as the load of its busiest GPU changes; its batch stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tessera.driver.fleet.capacity import Capacity
from tessera.driver.fleet.choose_units import FleetChoice
from tessera.driver.fleet.engines import EngineRole
from tessera.driver.fleet.model_steps import ModelStep, ServedModel
from tessera.driver.fleet.offered import Offered
from tessera.driver.fleet.placed_steps import Taken
from tessera.driver.fleet.workload import Workload
from tessera.ir.plan.costs import Duration, SharedError
from tessera.planning.promise.doubt import Cause, Doubt, ends_of, strongest
from tessera.simulation.noise import ErrorDraws, Floats

_DRAWS = 1024


@dataclass(frozen=True, slots=True)
class FleetDraws:
    """Draws of the times of all steps on all kinds of GPUs. Kinds of one GPU are off alike."""

    model: ServedModel
    offered: Offered
    work: Workload
    errors: ErrorDraws
    _known: dict[tuple[int, int], Floats] = field(default_factory=dict)

    @classmethod
    def of(cls, model: ServedModel, offered: Offered, work: Workload) -> FleetDraws:
        """The draws of a model on the offered GPUs."""
        gpus = [kind.gpu.key for kind in offered.kinds]
        shared: dict[tuple[str, str], SharedError] = {}
        for step in model.steps:
            for row in step.costs.steps:
                for kind, cost in zip(offered.kinds, row.on_device, strict=True):
                    if isinstance(cost, Duration) and cost.shared is not None:
                        shared.setdefault((row.name, kind.label), cost.shared)
        names = [row.name for step in model.steps for row in step.costs.steps]
        places = {kind.label: gpus.index(kind.gpu.key) for kind in offered.kinds}
        return cls(model, offered, work, ErrorDraws(names, places, _DRAWS, shared=shared))

    def interval(self, choice: FleetChoice) -> tuple[float, float]:
        """The rates between which nine of ten draws are."""
        low, high = ends_of(self._rates(choice))
        return choice.rate * low, choice.rate * high

    def doubts(
        self, chosen: FleetChoice, rivals: Sequence[FleetChoice], demand: float | None
    ) -> dict[str, Doubt]:
        """Each other mix against the answer: by what it serves, or with a demand by its price."""
        if not chosen.units:
            return {}
        own = self._rates(chosen)
        made: dict[str, Doubt] = {}
        for rival in rivals:
            ratio = _ratio(rival, chosen, demand)
            if ratio is None or rival.units == chosen.units:
                continue
            gains = ratio * self._rates(rival) / own - 1.0
            low, high = ends_of(gains)
            made[rival.name] = Doubt(
                split=rival.name,
                rival=chosen.name,
                gain=ratio - 1.0,
                low=low,
                high=high,
                wins=float(np.mean(gains > 0)),
                causes=strongest(self._used((chosen, rival)), np.log1p(gains)),
            )
        return made

    def _rates(self, choice: FleetChoice) -> Floats:
        """What a mix serves in every draw, in parts of its rate without errors."""
        now = [sum(n * c.served[role] for c, n in choice.units) for role in range(3)]
        drawn = [np.zeros(_DRAWS) for _ in now]
        for capacity, count in choice.units:
            factor = self._unit(capacity)
            for role, rate in enumerate(capacity.served):
                drawn[role] = drawn[role] + count * rate * factor
        whole = now[0] + min(now[1:])
        made = drawn[0] + np.minimum(drawn[1], drawn[2])
        return made / whole if whole > 0 else np.ones(_DRAWS)

    def _unit(self, capacity: Capacity) -> Floats:
        """What a unit serves in every draw, in parts of its rate without errors."""
        way, work = capacity.way, self.work
        rows = max(1, capacity.rows)
        decode = way.decode.at(rows).scaled(max(work.answer - 1, 0.0) / rows)
        phases = [
            (taken, step)
            for taken, step, other in (
                (way.prompt_taken(work), self.model.prefill[-1], EngineRole.ANSWERS),
                (decode, self._nearest(rows), EngineRole.PROMPTS),
            )
            if way.role is not other
        ]
        kinds = way.placed.unit.kinds if way.placed else ()
        kinds = kinds or tuple(kind for kind, n in enumerate(way.gpus) for _ in range(n))
        before, after = (self._busiest(phases, kinds, way.lanes, drawn) for drawn in (False, True))
        return np.asarray(before / after)

    def _busiest(
        self,
        phases: Sequence[tuple[Taken, ModelStep]],
        kinds: Sequence[int],
        lanes: int,
        drawn: bool,
    ) -> Floats:
        """The time of a request on the busiest GPU, or of all its steps over the lanes."""
        loads: list[Floats] = [np.zeros(_DRAWS) for _ in kinds]
        alone = np.zeros(_DRAWS)
        for taken, step in phases:
            factors = [self._factor(step, kind) if drawn else np.ones(_DRAWS) for kind in kinds]
            own = taken.loads[: len(kinds)]
            if len(own) < len(kinds):  # GPUs that do one thing together
                own = (taken.ns / len(kinds),) * len(kinds)
            for place, (load, factor) in enumerate(zip(own, factors, strict=True)):
                loads[place] = loads[place] + load * factor
            parts = [load / (sum(own) or 1.0) for load in own]
            alone = alone + taken.ns * sum(p * f for p, f in zip(parts, factors, strict=True))
        return np.asarray(np.maximum(np.max(loads, axis=0), alone / lanes))

    def _nearest(self, rows: int) -> ModelStep:
        return min(self.model.decode, key=lambda step: abs(step.rows - rows))

    def _factor(self, step: ModelStep, kind: int) -> Floats:
        """The time of a trace on a kind of GPU in every draw, over that without errors."""
        key = id(step), kind
        if key in self._known:
            return self._known[key]
        total, drawn = 0.0, np.zeros(_DRAWS)
        label = self.offered.kinds[kind].label
        longer = self.work.context / step.context if step.is_decode else 1.0
        for row, attends in zip(step.costs.steps, step.attends, strict=True):
            cost = row.on_device[kind]
            if isinstance(cost, Duration):
                ns = cost.ns * (longer if attends else 1.0)
                total += ns
                drawn = drawn + ns * self.errors.factors(row.name, label, cost.error)
        self._known[key] = drawn / total if total > 0 else np.ones(_DRAWS)
        return self._known[key]

    def _used(self, choices: Sequence[FleetChoice]) -> dict[Cause, Floats]:
        """The errors of the steps of some mixes, by their name and kind of GPU."""
        used: dict[Cause, Floats] = {}
        kinds = {k for c in choices for u, _ in c.units for k, n in enumerate(u.way.gpus) if n}
        for step in (self.model.decode[-1], self.model.prefill[-1]):
            for row in step.costs.steps:
                for kind in sorted(kinds):
                    cost = row.on_device[kind]
                    if isinstance(cost, Duration) and cost.error > 0:
                        key = row.name, self.offered.kinds[kind].label
                        used[key] = self.errors.normals(*key)
        return used


def _ratio(rival: FleetChoice, chosen: FleetChoice, demand: float | None) -> float | None:
    """By how much a mix is better than the answer, as a factor; None if there is no figure."""
    if not rival.units:
        return None
    if demand is None:
        return rival.rate / chosen.rate
    if not rival.usd_per_hour or not chosen.usd_per_hour:
        return None
    return chosen.usd_per_hour / rival.usd_per_hour
