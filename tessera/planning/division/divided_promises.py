"""Promises of divided plans: their programs are analysed, priced, lowered and simulated.

In: a `PlanSetting` and the numbers of slots and sequences. Out: a `DividedPlans`: promises, and a
bound on all plans, divided or not (`divided_bound`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from tessera.ir.graph.graph import KernelGraph
from tessera.ir.objectives import Objective
from tessera.ir.plan.costs import Barred, Cost, Costs
from tessera.ir.plan.division import Division, parts_of
from tessera.ir.program.program import Program
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.dependences import Dependences
from tessera.passes.division.divide import divide
from tessera.planning.division.divided_bound import divided_bound
from tessera.planning.division.proposals import (
    GroupWays,
    Shares,
    equal_on_equal_cards,
    find_proposals,
)
from tessera.planning.division.ways import find_ways
from tessera.planning.given.options import Watch
from tessera.planning.given.setting import Attempt, LoadedTrace, PlanSetting, lowering_of
from tessera.planning.given.setting_problem import build_problem, is_short, packed_slot_bytes
from tessera.planning.prices.durations import trace_costs
from tessera.planning.problem.problem import INFINITY
from tessera.planning.promise.promise import Promise, promise
from tessera.planning.search.candidates import candidate_of
from tessera.planning.search.strategies import PARTS, TENSOR, Strategy

_MOST_SIMULATED = 2
_LARGE_STEPS = 1_000


@dataclass(frozen=True, slots=True)
class DividedPlans:
    """Promises of divided plans, and a bound on all plans, in the unit of the objective."""

    promises: tuple[Promise, ...]
    bound: float


class Divider:
    """The divided plans of a setting; what does not depend on slots is found once."""

    def __init__(self, setting: PlanSetting) -> None:
        self.setting = setting
        self._estimates: dict[int, Costs] = {}
        self._ways: GroupWays | None = None

    @property
    def ways(self) -> GroupWays:
        """The ways to do each step of each trace, and those that suit groups of devices."""
        if self._ways is None:
            traces = [
                find_ways(trace.manager, trace.graph, costs, partial(self.priced, number))
                for number, (trace, costs) in enumerate(
                    zip(self.setting.traces, self.setting.costs, strict=True)
                )
            ]
            self._ways = GroupWays(traces, [t.planned.share for t in self.setting.traces])
        return self._ways

    def plans(self, attempt: Attempt, watch: Watch, whole: Sequence[Promise] = ()) -> DividedPlans:
        """The divided plans for the slots of an attempt; of the form that the user asks for.

        Once the watch is over, only such a form is made. Of large traces, only plans that may beat
        those of `whole` steps.
        """
        slots, lanes = attempt.slots, attempt.lanes
        objective, form = self.setting.options.aim, self.setting.options.form
        wanted: list[tuple[Strategy, Shares | None, int]] = [
            (PARTS, None, _MOST_SIMULATED),
            (TENSOR, equal_on_equal_cards(self.setting.machine), 1),
        ]
        made, below = [], INFINITY
        steps = sum(len(costs.steps) for costs in self.setting.costs)
        if form is None and steps > _LARGE_STEPS and _is_timed(objective):
            below = min((own.chosen.value(objective) for own in whole), default=INFINITY)
        for strategy, fixed, most in wanted:
            if form == strategy or (form is None and not watch.stopped()):
                made += self.promised(strategy, slots, lanes, objective, fixed, most, below)
        if not made and form == PARTS:
            made = self.promised(PARTS, slots, lanes, objective, None, 1, is_eager=True)
        problem = build_problem(self.setting, slots, lanes).problem
        return DividedPlans(tuple(made), divided_bound(problem, self.ways.traces, objective))

    def promised(
        self,
        strategy: str,
        slots: int,
        lanes: int,
        objective: Objective,
        fixed: Shares | None,
        most: int,
        below: float = INFINITY,
        *,
        is_eager: bool = False,
    ) -> list[Promise]:
        """Promises with the best shares, or with fixed ones; `most` of them, best first.

        None is made whose estimate is not `below` a value, or that of a promise made before.
        """
        setting, made = self.setting, list[Promise]()
        may_be_fewer = setting.options.slots is None and is_short(setting, slots, lanes)
        for count in dict.fromkeys((slots, 1) if may_be_fewer else (slots,)):
            own_lanes = lanes if count == slots else setting.options.sequences or count
            proposals = find_proposals(
                self.ways,
                setting.machine,
                is_rate=objective.is_rate and count > 1,  # else requests follow one another
                lanes=own_lanes,
                slot_bytes=packed_slot_bytes(setting) * count,
                fixed=fixed,
                is_eager=is_eager,
                below=below,
            )
            for proposal in itertools.islice(proposals, most):
                if proposal.least_ns >= below:
                    continue
                divided = self.divided(proposal.divisions)
                planning = build_problem(divided, count, own_lanes, is_placed=True)
                parts = tuple((placement, 1.0) for placement in proposal.replicas)
                candidate = candidate_of(planning.problem, strategy, parts)
                if candidate.period_ns < INFINITY:
                    attempt = Attempt(slots=count, lanes=own_lanes, planning=planning)
                    made.append(_with_memory(promise(divided, attempt, candidate, objective)))
                    if _is_timed(objective):
                        below = min(below, made[-1].chosen.value(objective))
        return sorted(made, key=lambda promised: promised.chosen.value(objective))

    def divided(self, divisions: Sequence[Division]) -> PlanSetting:
        """The setting with its traces divided."""
        traces = tuple(map(divided_trace, self.setting.traces, divisions))
        costs = tuple(
            self.priced(number, trace.program, trace.graph, trace.planned.division)
            for number, trace in enumerate(traces)
        )
        return replace(self.setting, traces=traces, costs=costs, lowering=lowering_of(traces))

    def priced(
        self, number: int, program: Program, graph: KernelGraph, division: Division
    ) -> Costs:
        """The costs of a divided trace.

        A part is estimated like any launch. Where the whole has another time than its estimate, as
        in a profile, the part's changes by the same factor; a device that may not run the whole
        runs no part.
        """
        setting = self.setting
        trace = replace(setting.traces[number], manager=AnalysisManager(program), graph=graph)
        costs = trace_costs(trace, setting.machine, setting.options, ())
        if number not in self._estimates:
            self._estimates[number] = trace_costs(
                setting.traces[number], setting.machine, setting.options, ()
            )
        known, estimated = setting.costs[number].steps, self._estimates[number].steps
        return Costs(
            tuple(
                replace(
                    step,
                    on_device=tuple(
                        map(
                            _like_whole,
                            step.on_device,
                            known[part.origin].on_device,
                            estimated[part.origin].on_device,
                        )
                    ),
                )
                for step, part in zip(costs.steps, parts_of(len(known), division), strict=True)
            )
        )


def _is_timed(objective: Objective) -> bool:
    """Whether the value of a plan is a time, as estimates are."""
    return objective.is_rate or objective.is_of_one_request


def _with_memory(made: Promise) -> Promise:
    """The promise with the memory of its launch programs: its problem counts none."""
    machine = made.setting.machine
    card_of = {device.name: int(device.card) for device in machine.devices}
    taken = [0] * len(machine.cards)
    for replica in made.simulated.replicas:
        for area in replica.lowered.areas:
            taken[card_of[area.device]] += area.bytes * area.count
    chosen = replace(made.chosen, memory=tuple(taken))
    return replace(made, simulated=replace(made.simulated, candidate=chosen))


def _like_whole(part: Cost, whole: Cost, estimate: Cost) -> Cost:
    """The cost of a part of a step whose whole has another cost than its estimate."""
    if isinstance(part, Barred) or isinstance(whole, Barred):
        return whole if isinstance(whole, Barred) else part
    if isinstance(estimate, Barred) or whole == estimate:
        return part
    factor = whole.ns / max(estimate.ns, 1e-3)
    return replace(whole, ns=part.ns * factor, beside=None, alone_ns=None, quiet_ns=None)


def divided_trace(trace: LoadedTrace, division: Division) -> LoadedTrace:
    """A trace with its division, and the program and graph of it."""
    program = divide(trace.program, division)
    manager = AnalysisManager(program, trace.manager.store)
    planned = replace(trace.planned, division=division)
    return replace(trace, planned=planned, manager=manager, graph=manager.get(Dependences).graph)
