"""`fleet`: kinds and numbers of GPUs, and how each is used, for requests for text.

In: traces of decode and prefill steps, or a config file (`hf:PATH/config.json`) to make them from,
and `FleetOptions`. Out: a `FleetReport`. The stages, in order:

1. `load_traces`, `find_costs`: read, analyse and price the traces on each kind of GPU.
2. `find_ways`: every way to use some GPUs as one unit, with the times of its steps.
3. `UnitRates`: the requests per second that a unit serves within the limits.
4. `cheapest_mix` or `fastest_mix`: how many units of which ways; the same with the ways of each
   strategy alone, and of each kind of GPU alone, to show the alternatives; `FleetDraws` has the
   error bars of their rates and of the ratio to the answer.
5. `check_mix`: the chosen units, simulated with requests that arrive as expected.

Raises `TesseraError`, with exit code 3 if nothing serves the demand: it names the nearest choice.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tessera.diagnostics import Diagnostic, TesseraError
from tessera.driver.fleet.bounds import FleetBound, fleet_bound
from tessera.driver.fleet.capacity import Capacity, UnitRates
from tessera.driver.fleet.choose_units import (
    FleetChoice,
    UnitChooser,
    check_mix,
    rival_choices,
)
from tessera.driver.fleet.config_steps import CONFIG, steps_of_config
from tessera.driver.fleet.engines import EngineRole
from tessera.driver.fleet.find_ways import find_ways, why_none
from tessera.driver.fleet.fleet_words import (
    check_prices,
    no_mix,
    notes_of,
    nothing_fits,
    verdict_of,
)
from tessera.driver.fleet.model_steps import ServedModel, served_model
from tessera.driver.fleet.offered import Offered, offered_by_list, offered_by_machine
from tessera.driver.fleet.offered import part_of_machine as one_of_each
from tessera.driver.fleet.options import FleetOptions
from tessera.driver.fleet.pools import pool_links
from tessera.driver.fleet.rate_bars import FleetDraws
from tessera.driver.fleet.ways import WaySearch
from tessera.driver.fleet.workload import Workload
from tessera.driver.serve.follow import Wanted
from tessera.driver.serve.measures import ServingReport
from tessera.driver.serve.options import ArrivingText
from tessera.driver.traces import TraceName, load_traces, loaded_program
from tessera.ir.options import WrongOption
from tessera.ir.progress import OnProgress, StageProgress, counter
from tessera.planning.given.setting import LoadedTrace
from tessera.planning.prices.durations import find_costs, read_profiles, unmeasured
from tessera.planning.promise.doubt import Doubt
from tessera.planning.search.strategies import PHASE

_MARGINS = 6
_RAISE = 1.04


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetReport:
    """The answer, the alternatives, and the simulation of the answer.

    `bars` has the rates of each of them between which nine of ten draws are, `doubts` the bars of
    what alternatives are better by; both by name.
    """

    options: FleetOptions
    offered: Offered
    model: ServedModel
    work: Workload
    chosen: FleetChoice
    rivals: tuple[FleetChoice, ...]
    bars: Mapping[str, tuple[float, float]]
    doubts: Mapping[str, Doubt]
    capacities: tuple[Capacity, ...]
    checked: ServingReport | None
    margin: float
    bound: FleetBound | None
    verdict: tuple[str, ...]
    notes: tuple[str, ...]
    diagnostics: tuple[Diagnostic, ...]

    @property
    def served(self) -> float:
        """Requests per second that the answer is for."""
        return self.chosen.rate if self.options.demand is None else self.options.demand

    @property
    def gap(self) -> float | None:
        """By how much the fluid bound is better than the answer; None if there is no bound."""
        return None if self.bound is None else self._gap(self.bound.fluid)

    @property
    def whole_gap(self) -> float | None:
        """By how much the bound of whole GPUs is better than the answer."""
        return None if self.bound is None else self._gap(self.bound.whole)

    def _gap(self, bound: float) -> float | None:
        usd = self.chosen.usd_per_hour
        if not self.chosen.units:
            return None
        if self.options.demand is None:
            return max(0.0, bound / self.chosen.rate - 1)
        return None if usd is None else max(0.0, usd / bound - 1)


def fleet(
    traces: TraceName | Sequence[TraceName],
    options: FleetOptions,
    on_progress: OnProgress | None = None,
) -> FleetReport:
    """Plan a fleet for traces of a model's decode and prefill steps, or for its config file."""

    def tell(stage: str, note: str = "") -> None:
        if on_progress is not None:
            on_progress(StageProgress(stage, note=note))

    work, arrivals = _workload(options)
    offered = offered_for(options)
    tell("reading and analysing")
    model, findings = priced_model(traces, options, offered, on_progress)
    tell("finding ways to use GPUs")
    search = WaySearch(model, offered, work, options.strategies, options.library)
    ways = find_ways(search, lambda name: tell("finding ways to use GPUs", name))
    if not ways:
        raise nothing_fits(model, offered, work)
    rates = UnitRates(ways, work, counter(on_progress, "finding what units serve", "units"))
    chooser = UnitChooser(offered, pool_links(search), options.demand, rates)
    chosen, checked, margin = _chosen(chooser, rates, options, work, arrivals)
    rivals = tuple(rival_choices(rates.all(), chooser, options.strategies, why_none(search)))
    kept = rates.shown()
    draws = FleetDraws.of(model, offered, work)
    doubts = draws.doubts(chosen, rivals, options.demand)
    return FleetReport(
        options=options,
        offered=offered,
        model=model,
        work=work,
        chosen=chosen,
        rivals=rivals,
        bars={row.name: draws.interval(row) for row in (chosen, *rivals) if row.units},
        doubts=doubts,
        capacities=kept,
        checked=checked,
        margin=margin,
        bound=fleet_bound(model, offered, work, kept, options.demand),
        verdict=tuple(verdict_of(chosen, rivals, chooser, doubts)),
        notes=tuple(notes_of(model, offered, options, work)),
        diagnostics=tuple(findings),
    )


# --- what is given -----------------------------------------------------------------------------


def _workload(options: FleetOptions) -> tuple[Workload, list[Wanted] | None]:
    if options.arrivals is None:
        assert options.tokens is not None
        pair = (options.tokens[0], options.tokens[1])
        return Workload(lengths=(pair,), slo=options.slo, percentile=options.percentile), None
    arriving = ArrivingText(
        arrivals=options.arrivals,
        speed=options.speed,
        requests=options.requests,
        seed=options.seed,
        tokens=options.tokens,
        slo=options.slo,
    )
    wanted = arriving.wanted(arriving.read())
    if not wanted:
        raise TesseraError.of("TSR1914", "there is no request among the arrivals")
    lengths = tuple((w.prompt, w.answer) for w in wanted)
    return Workload(lengths=lengths, slo=options.slo, percentile=options.percentile), wanted


def offered_for(options: FleetOptions) -> Offered:
    """The GPUs that options name."""
    most = dict(options.most)
    plan = options.as_plan()
    if options.machine is not None:
        return offered_by_machine(plan.find_machine(), most)
    prices, memory = plan.overrides()
    return offered_by_list(
        options.gpus or "",
        options.have,
        most,
        options.link,
        prices=prices,
        memory=memory,
        endless=options.demand is not None,
    )


def priced_model(
    traces: TraceName | Sequence[TraceName],
    options: FleetOptions,
    offered: Offered,
    on_progress: OnProgress | None = None,
) -> tuple[ServedModel, list[Diagnostic]]:
    """The steps of the traces, with times on one GPU of each kind."""
    loaded, findings = _loaded_steps(traces, options, on_progress)
    firsts = [offered.devices(kind, 1) for kind in range(len(offered.kinds))]
    if any(not own for own in firsts):
        empty = next(offered.kinds[n].label for n, own in enumerate(firsts) if not own)
        raise TesseraError.of("TSR3025", f"there is no `{empty}`: its limit is 0")
    machine = one_of_each(offered.machine, [own[0] for own in firsts])
    plan = options.as_plan()
    profiles = read_profiles(loaded, plan)
    costs = find_costs(loaded, machine, plan, profiles)
    model = served_model(loaded, costs, machine, options.context)
    return model, [*findings, *unmeasured(costs, options.profiles, machine)]


def _loaded_steps(
    traces: TraceName | Sequence[TraceName],
    options: FleetOptions,
    on_progress: OnProgress | None,
) -> tuple[list[LoadedTrace], tuple[Diagnostic, ...]]:
    """The traces of files, or those that a config file (`hf:PATH`) stands for."""
    given = [traces] if isinstance(traces, str | os.PathLike) else list(traces)
    configs = [name for name in given if str(name).startswith(CONFIG)]
    if configs and len(given) > 1:
        raise WrongOption("a config file makes all traces itself: give nothing beside it")
    if configs:
        programs, findings = steps_of_config(str(configs[0]), on_progress)
        return [loaded_program(program, name) for name, program in programs.items()], findings
    loaded = [load_traces([name], options.data_root)[0] for name in given]
    names = Counter[str]()
    for number, trace in enumerate(loaded):
        label = trace.planned.name
        names[label] += 1
        if names[label] > 1:
            planned = replace(trace.planned, name=f"{label}-{names[label]}")
            loaded[number] = replace(trace, planned=planned)
    return loaded, ()


# --- choosing ------------------------------------------------------------------------------------


def _chosen(
    chooser: UnitChooser,
    rates: UnitRates,
    options: FleetOptions,
    work: Workload,
    arrivals: list[Wanted] | None,
) -> tuple[FleetChoice, ServingReport | None, float]:
    """The answer, checked; if the check fails, the answer for a little more than the demand, or
    without a demand at a little less than its rate.

    Shares of units are no whole GPUs: where a mix with them fails, one without them is tried.
    """
    check_prices(chooser.offered, options)
    if options.demand == 0:
        return FleetChoice(name="nothing", usd_per_hour=0.0), None, 1.0
    margin, shared = 1.0, PHASE in options.strategies
    first: tuple[FleetChoice, ServingReport, float] | None = None
    for _ in range(_MARGINS):
        demand = None if options.demand is None else options.demand * margin
        choice = replace(chooser, demand=demand).simplest(rates.all(), shared)
        if not choice.units:
            break
        if options.demand is None:
            choice = replace(choice, rate=choice.rate / margin)
        rate = choice.rate if options.demand is None else options.demand
        checked = check_mix(choice, work, rate, chooser.links, arrivals, options.seed)
        if work.is_kept(checked):
            return choice, checked, margin
        if any(c.way.role is EngineRole.SHARES for c, _ in choice.units):
            shared = False
            continue
        first = first or (choice, checked, margin)
        margin *= _RAISE
    if first is not None:
        return first
    raise no_mix(rates, chooser, work)
