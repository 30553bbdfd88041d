"""`make_plan`: from traces and a list of GPUs to a proved plan, as a linear pipeline.

In: traces with their kernel graphs (`driver.traces` reads them), and `PlanOptions`. Out: a
`PlanReport`: the plan and the findings along the way. The stages, with the result of each:

1. `setting_of`: the machine, and the duration of every step on every device, measured or estimated
   (`prices.durations`): a `PlanSetting`.
2. `find_plan`: for a number of slots and sequences (`attempts`) the problem (`problem`), candidates
   with a bound (`search`, `bound`), their launch programs, simulated (`lower`, `promise`), and the
   first of them that is proved (`passes.checker`): a `Decision`. `find_pair` is the same for two
   policies at once.
3. `plan_whole`: the same for a GPU in one piece, if slices of it were requested. The plan is proved
   now and is passed to `on_proved`. The remaining stages may be interrupted.
4. `find_insight`: the limits of the plan, and what would help: an `Insight`.
5. `alone`, `frontier`: figures of other GPUs and other plans: rows beside the plan.

Raises `TesseraError`, with exit code 3 if no plan is possible: it names the violated constraint and
the smallest change that would help.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tessera.diagnostics import Diagnostic
from tessera.ir.objectives import PAIR
from tessera.ir.plan.costs import CostSource
from tessera.ir.plan.machine import Machine
from tessera.ir.plan.plan import Baseline, Plan
from tessera.output import Kind, mark
from tessera.planning.alternatives import (
    Alternative,
    alone,
    bars_of,
    do_not_slice,
    frontier,
    is_better,
    plan_whole,
    row_of,
)
from tessera.planning.attempts import attempts
from tessera.planning.division.asked import asked_setting
from tessera.planning.find_plan import Decision, find_plan
from tessera.planning.given.options import PlanOptions, Watch
from tessera.planning.given.setting import AskedDivision, LoadedTrace, PlanSetting, lowering_of
from tessera.planning.insight import Insight, find_insight
from tessera.planning.pair import find_pair
from tessera.planning.prices.adjust_costs import with_measured_copies, with_measured_host
from tessera.planning.prices.durations import (
    below_floors,
    find_costs,
    read_profiles,
    refused_hints,
    unmeasured,
)
from tessera.planning.refusals import no_plan
from tessera.planning.search.solve import write_lp
from tessera.planning.text_figures import TextFigures, TriedSize


def make_plan(
    traces: tuple[LoadedTrace, ...],
    options: PlanOptions,
    watch: Watch,
    *,
    compare: bool = True,
    pareto: bool = False,
    on_proved: Callable[[PlanReport], None] | None = None,
    asked: tuple[AskedDivision, ...] = (),
) -> PlanReport:
    """Plan traces for a machine; with `asked`, divided as the user wants.

    `compare` also plans for the same number of GPUs of each single kind; `pareto` collects the
    plans that no other beats in throughput, latency and cost at once. `on_proved` is given the
    report as soon as the plan is proved, without these.
    """
    setting = setting_of(traces, options, watch)
    watch = watch.within(options.seconds)
    given = asked_setting(setting, asked) if asked else setting
    decision, beaten, notes = _decide(given, watch)
    undivided = setting if _is_divided(decision) else decision.setting
    setting = decision.setting
    report = PlanReport(
        plan=decision.plan,
        machine=setting.machine,
        sources=_sources(setting),
        diagnostics=(
            *(finding for trace in setting.traces for finding in trace.diagnostics),
            *unmeasured(setting.costs, options.profiles, setting.machine),
            *refused_hints(setting.costs),
            *below_floors(setting.costs),
            *decision.diagnostics,
            *notes,
        ),
        setting=setting,
        decision=decision,
        insight=Insight(limits=decision.chosen.limits),
        alternatives=beaten,
        bars=bars_of(decision),
    )
    if on_proved is not None:
        on_proved(report)
    compare = compare and decision.choice.ended.is_search
    watch.tell("comparing with other GPUs" if compare else "finding what limits the plan")
    return replace(
        report,
        insight=find_insight(decision),
        alternatives=(*beaten, *(alone(undivided, decision, watch) if compare else ())),
        frontier=frontier(undivided, decision, watch) if pareto else (),
    )


def _is_divided(decision: Decision) -> bool:
    return any(trace.planned.division for trace in decision.setting.traces)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport:
    """A plan, the machine it is for, and how it came about.

    Where requests are texts, `texts` says what the plan gives, and `sizes` what other sizes do.
    `bars` are the ends of the figures of its baselines, by name.
    """

    plan: Plan
    machine: Machine
    sources: tuple[tuple[CostSource, int], ...]
    diagnostics: tuple[Diagnostic, ...]
    setting: PlanSetting
    decision: Decision
    insight: Insight
    alternatives: tuple[Alternative, ...] = ()
    frontier: tuple[Baseline, ...] = ()
    bars: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    texts: TextFigures | None = None
    sizes: tuple[TriedSize, ...] = ()


def setting_of(loaded: tuple[LoadedTrace, ...], options: PlanOptions, watch: Watch) -> PlanSetting:
    """Price: everything known before the search begins."""
    watch.tell("working out durations")
    machine = options.find_machine()
    profiles = read_profiles(loaded, options)
    if options.machine is None:  # a given machine keeps its links
        machine = with_measured_copies(machine, profiles)
    machine = with_measured_host(machine, profiles)
    costs = tuple(find_costs(loaded, machine, options, profiles))
    return PlanSetting(
        traces=loaded,
        machine=machine,
        costs=costs,
        options=options,
        lowering=lowering_of(loaded),
        profiles=profiles,
    )


def _decide(
    setting: PlanSetting, watch: Watch
) -> tuple[Decision, tuple[Alternative, ...], tuple[Diagnostic, ...]]:
    """Place, lower and prove: the plan, the row for another slicing of the GPU, and a note."""
    if setting.options.aim == PAIR:
        return find_pair(setting, watch), (), ()
    sliced = find_plan(setting, watch)
    whole = plan_whole(setting, watch)
    if whole is None:
        return sliced, (), ()
    if is_better(whole, sliced):
        return whole, (row_of(sliced, whole),), (do_not_slice(whole, sliced),)
    return sliced, (row_of(whole, sliced),), ()


def _sources(setting: PlanSetting) -> tuple[tuple[CostSource, int], ...]:
    """Number of durations from each source."""
    counts: dict[CostSource, int] = {}
    for costs in setting.costs:
        for source, count in costs.sources():
            counts[source] = counts.get(source, 0) + count
    return tuple(counts.items())


def integer_program(traces: tuple[LoadedTrace, ...], options: PlanOptions) -> str:
    """The integer program behind a throughput plan, in the LP format."""
    setting = setting_of(traces, options, Watch())
    planning = next(attempts(setting)).planning
    if not all(task.allowed() for task in planning.problem.tasks):
        raise no_plan(planning, setting.costs, setting.machine)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "model.lp"
        write_lp(planning.problem, str(target))
        return f"\\ {mark(Kind.MODEL)}\n{target.read_text('utf-8')}"
