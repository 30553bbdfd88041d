"""The duration of each step on each device: estimates, then measurements, then pins and bans.

In: traces, a machine, `PlanOptions`. Out: `Costs` per trace. A pattern of `--pin` and `--forbid`
may begin with the name of its trace: `decode:#3=a100`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera.diagnostics import Diagnostic, TesseraError, error, warning
from tessera.frontend.machine.gpu_table import find_gpu
from tessera.frontend.machine.profile import bad_profile, parse_profile
from tessera.frontend.text.readfile import read_source
from tessera.ir.plan.costs import Costs, CostSource, Duration, FloorMark, Profile
from tessera.ir.plan.machine import Machine
from tessera.planning.given.options import PlanOptions
from tessera.planning.given.setting import LoadedTrace
from tessera.planning.prices.adjust_costs import bar_endless, merge_profiles, restrict_steps
from tessera.planning.prices.estimate_costs import estimate_costs, variants_on
from tessera.planning.prices.floors import keep_possible
from tessera.planning.prices.merge_tables import (
    find_tables,
    merge_tables,
    missing_tables,
    step_shapes,
)
from tessera.planning.prices.slices import slices_by_wholes, with_wholes


def find_costs(
    traces: Sequence[LoadedTrace],
    machine: Machine,
    options: PlanOptions,
    profiles: Sequence[Profile],
) -> list[Costs]:
    """The costs of every trace, with the profiles of `read_profiles` where they apply."""
    costs = [trace_costs(trace, machine, options, profiles) for trace in traces]
    for rule in options.pins:
        costs = _restrict(costs, traces, machine, rule, forbid=False)
    for rule in options.forbids:
        costs = _restrict(costs, traces, machine, rule, forbid=True)
    return costs


def trace_costs(
    trace: LoadedTrace, machine: Machine, options: PlanOptions, profiles: Sequence[Profile]
) -> Costs:
    """The costs of a trace: a profile overrides tables and ratios, and these override the model."""
    own = [profile for profile in profiles if profile.program_digest == trace.planned.digest]
    wide = with_wholes(machine)
    costs = guessed = estimate_costs(trace.program, trace.graph, wide)
    if options.tables:
        shapes = step_shapes(trace.program, trace.graph, costs)
        tables = find_tables(shapes, machine, own, options.library)
        costs = merge_tables(costs, wide, trace.graph, shapes, tables, own)
    costs = keep_possible(merge_profiles(costs, wide, own), wide)
    return bar_endless(slices_by_wholes(costs, guessed, wide, len(machine.devices)))


def refused_hints(costs: Sequence[Costs]) -> list[Diagnostic]:
    """Notes on work hints of launches that the counted work contradicts."""
    refused = [
        f"#{step.step} {step.name}: {step.refused_hint}"
        for trace_costs in costs
        for step in trace_costs.steps
        if step.refused_hint
    ]
    if not refused:
        return []
    count = f"{len(refused)} hint{'s' * (len(refused) > 1)} on the work of launches"
    return [warning("TSR3014", f"not used: {count}", notes=tuple(refused[:4]))]


def below_floors(costs: Sequence[Costs]) -> list[Diagnostic]:
    """A warning if measured times are shorter than what a GPU can do."""
    marked = [
        f"#{step.step} {step.name}: {cost.ns / 1e3:.3g} us, {cost.origin}"
        for trace_costs in costs
        for step in trace_costs.steps
        for cost in step.on_device
        if isinstance(cost, Duration) and cost.mark is FloorMark.BELOW
    ]
    if not marked:
        return []
    count = f"{len(marked)} measured time{'s' * (len(marked) > 1)}"
    headline = f"used although no GPU of the machine can be so fast: {count}"
    return [warning("TSR3014", headline, notes=tuple(marked[:4]))]


def unmeasured(
    costs: Sequence[Costs], profiles: Sequence[str], machine: Machine
) -> list[Diagnostic]:
    """A warning if durations are estimates because they are not measured."""
    estimated = [
        (step, cost)
        for trace_costs in costs
        for step in trace_costs.steps
        for cost in step.on_device
        if isinstance(cost, Duration)
    ]
    guesses = (CostSource.MODEL, CostSource.SHEET)
    guessed = [(step, cost) for step, cost in estimated if cost.source in guesses]
    if not guessed:
        return []
    sheet = any(cost.source is CostSource.SHEET for _, cost in guessed)
    origin = "data sheets" if sheet else "a calibrated model"
    whole = sum(cost.ns for _, cost in estimated)
    part = sum(cost.ns for _, cost in guessed) / whole if whole else 1.0
    counts = f"{len(guessed)} of {len(estimated)} durations, {part:.0%} of the time,"
    notes = [f"{counts} come from {origin}; each has its error bar"]
    if profiles:
        names = list(dict.fromkeys(f"#{step.step} {step.name}" for step, _ in guessed))
        notes.append(f"not in the profiles: {', '.join(names[:4])}{', ...' * (len(names) > 4)}")
    if more := missing_tables(machine):
        notes.append(more)
    some = "some " * (len(guessed) < len(estimated))
    headline = f"{some}durations come from {origin}, not from measurements"
    return [warning("TSR3014", headline, notes=tuple(notes))]


def read_profiles(traces: Sequence[LoadedTrace], options: PlanOptions) -> tuple[Profile, ...]:
    """The profiles named in the options; each belongs to one of the traces."""
    by_digest = {trace.planned.digest: trace for trace in traces}
    read = []
    for path in options.profiles:
        profile = parse_profile(read_source(path).text, path)
        if profile.program_digest not in by_digest:
            known = ", ".join(f"{trace.planned.digest} ({trace.planned.name})" for trace in traces)
            raise bad_profile(f"`{path}` is a profile of another trace", f"of this one: {known}")
        _check_rows(profile, by_digest[profile.program_digest], path)
        read.append(profile)
    return tuple(read)


def _check_rows(profile: Profile, trace: LoadedTrace, path: str) -> None:
    """Refuse rows of steps that the trace does not have, or of code that no plan would run."""
    work = tuple(trace.program.work())
    for index, row in enumerate(profile.rows):
        where = f"row {index} of `{path}`"
        if row.step >= len(work) or trace.graph.nodes[row.step].name != row.name:
            raise bad_profile(
                f"{where} is of step #{row.step} `{row.name:.60}`, and the trace has none such"
            )
        planned = variants_on(trace.program, work[row.step], find_gpu(row.gpu), row.sms)
        if row.variant and row.variant not in planned:
            raise bad_profile(
                f"{where} is of code for {row.variant:.60}, and plans run that for"
                f" {' or '.join(planned) or 'no GPU'} there"
            )


def _restrict(
    costs: list[Costs],
    traces: Sequence[LoadedTrace],
    machine: Machine,
    rule: str,
    *,
    forbid: bool,
) -> list[Costs]:
    steps, _, devices = rule.rpartition("=")
    changed = list(costs)
    matched = False
    for index, trace in enumerate(traces):
        own = steps.removeprefix(f"{trace.planned.name}:")
        # Reports write `k17` for step 17.
        own = f"#{own[1:]}" if own[:1] == "k" and own[1:].isdecimal() else own
        restricted = restrict_steps(costs[index], machine, own, devices, forbid=forbid)
        if restricted is not None:
            changed[index], matched = restricted, True
    if not matched:
        raise TesseraError(_bad_rule(f"{'--forbid' if forbid else '--pin'} {rule}", machine))
    return changed


def _bad_rule(rule: str, machine: Machine) -> Diagnostic:
    names = ", ".join(device.name for device in machine.devices)
    return error(
        "TSR3017",
        f"`{rule}` names no step or no GPU of the machine",
        hint=f"write `STEP=GPU`, a step as `#3` or by kernel name; the GPUs are: {names}",
    )
