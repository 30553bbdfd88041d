"""The text report of a plan: the machine, the places of steps and why, what limits the plan, and
the alternatives.

In: a `PlanReport`. Out: text. Numbers that decide something are shown beside those they are
compared with: a step's time on every kind of GPU, a plan beside its baselines. Longer than 400
lines because the report is one text, whose blocks are here in the order of the text.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tessera.driver.plan import PlanReport
from tessera.frontend.machine.gpus import describe_card
from tessera.frontend.machine.quantities import format_bytes, format_time
from tessera.ir.choices import Ending
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.objectives import COST, FigureUnit, Objective
from tessera.ir.plan.costs import Barred, Duration
from tessera.ir.plan.launch_program import HOST
from tessera.ir.plan.machine import EXCHANGED_BYTES
from tessera.ir.plan.plan import (
    Baseline,
    PlacedStep,
    PlacedTrace,
    Plan,
    Replica,
    hosts_of,
    parts_of_placed,
    staged_bytes,
)
from tessera.ir.plan.print_launch import lowered_lines
from tessera.ir.plan.verify_predictions import predicted_value
from tessera.planning.attempts import runs_alone
from tessera.planning.explain import Elsewhere, StepReason, explain_step
from tessera.planning.insight import KernelClass, kernel_classes
from tessera.planning.promise.doubt import Standing
from tessera.report.advice import advice, names_of
from tessera.report.diagnostics import safe
from tessera.report.kernel_names import short_name, short_names
from tessera.report.role_words import hand_over_lines, role_words
from tessera.report.standings import causes_of, change_words, standings
from tessera.report.table import TRUST, Column, Fit, amount, fitted, right, table
from tessera.wording import Wording

_MOST_CLASSES = 12
_MOST_KINDS = 4
_MOST_REASONS = 6
_MOST_OF_IT = 0.9
_MOST_PLACES = 4
_FAR = 1.0
_NEARLY = 0.9995  # a figure that is less than 0.05% better is as good
_SIZES = (
    Column(fit=Fit.WRAP),
    *right("batch", "requests/s", "tokens/s", "per token"),
    Column("plan", fit=Fit.WRAP),
)


def plan_text(report: PlanReport, output: str, width: int | None = None) -> str:
    """The whole report, for a terminal of that width or for a file."""
    blocks = (
        _verdict(report),
        _replicas(report.plan),
        divided_lines(report.plan),
        _machine(report),
        _classes(report, width),
        _excluded(report),
        _limits(report),
        _comparison(report, width),
        _sizes(report, width),
        _written(report, output),
    )
    return fitted("\n".join(line for block in blocks for line in block) + "\n", width)


def _written(report: PlanReport, output: str) -> Iterator[str]:
    yield TRUST
    yield f"wrote {safe(output)}"
    here = os.path.realpath(os.path.dirname(output) or ".")
    for trace in report.setting.traces:
        contents = trace.program.resident
        if contents is not None and os.path.realpath(trace.folder or ".") != here:
            place = safe(os.path.join(trace.folder, contents))
            yield f"  to run it, copy {place} there, or use `--data`"


def _machine(report: PlanReport) -> Iterator[str]:
    yield f"machine, joined by {report.plan.link}:"
    alike: dict[str, list[str]] = {}
    for card in report.machine.cards:
        name, _, rest = describe_card(card).partition(": ")
        alike.setdefault(rest, []).append(name)
    yield from (f"  {names_of(names)}: {rest}" for rest, names in alike.items())
    if len(report.plan.traces) > 1:
        shares = (f"{trace.name} {trace.share:.2%}" for trace in report.plan.traces)
        yield f"{_counted(report)}: {', '.join(shares)}"
    yield from _exchange(report)
    sources = ", ".join(f"{count} from {source.value}" for source, count in report.sources)
    yield f"durations: {sources}"


def _exchange(report: PlanReport) -> Iterator[str]:
    """How long an exchange between two devices is taken to last, and how that is known."""
    machine, links = report.machine, report.machine.links
    if not links:
        return
    times = [machine.exchange_ns(link, EXCHANGED_BYTES) for link in links]
    span = dict.fromkeys((format_time(min(times)), format_time(max(times))))
    source = "assumed; `tessc selftest` measures it"
    if machine.measured_links:
        some = f" on {machine.measured_links} of {len(links)} links, else assumed"
        source = f"measured by a self-test{some * (machine.measured_links < len(links))}"
    yield f"exchange of 64 KB between devices: {' to '.join(span)}, {source}"


def _verdict(report: PlanReport) -> Iterator[str]:
    plan = report.plan
    yield f"plan: {advice(plan, report.decision.doubt)}"
    yield f"  strategy `{plan.strategy}`, for {plan.objective}"
    yield from _texts(report)
    yield (
        f"  {_rate(plan.period_ns)} {_counted(report)}/s, "
        f"latency {format_time(plan.latency_ns)} alone{_slowest(plan)} and "
        f"{format_time(plan.loaded_latency_ns)} in the median at that rate, "
        f"${plan.usd_per_request * 1e6:.4f} per million {_counted(report)}"
    )
    if plan.high > plan.low > 0:
        yield f"  {_interval(plan, _counted(report))} in nine of ten draws of the error bars"
    if plan.ended == Ending.GIVEN:
        yield "  no search chose it" + (f"; {plan.gap:.2%} above the bound" if plan.bound else "")
    else:
        yield f"  {_nearness(plan)}; the search ended by {Ending(plan.ended).text}"
    yield from _doubt(report)
    yield from _better_rows(report)
    if reason := runs_alone(report.setting):
        yield f"  one request at a time: {reason}"
    yield "  every launch program is proved: order, bytes, memory, no deadlock"


def _slowest(plan: Plan) -> str:
    """Of several replicas, a request alone has the latency of the slowest."""
    return " in the slowest replica" if len(plan.replicas) > 1 else ""


def _better_rows(report: PlanReport) -> Iterator[str]:
    """The row that is better by the figures, if there is one, and the cheapest."""
    plan, objective = report.plan, Objective.named(report.plan.objective)
    doubted = report.decision.doubt
    for goal in dict.fromkeys((objective, COST)):
        best = min(plan.baselines, key=goal.value, default=None)
        if best is None or not 0 < goal.value(best) < _NEARLY * goal.value(plan):
            continue
        if doubted and goal == objective and best.name in (doubted.split, doubted.rival):
            continue
        figures = {
            FigureUnit.RATE: f"{_rate(best.period_ns)} {_counted(report)}/s",
            FigureUnit.TIME: f"latency {format_time(best.latency_ns)}",
            FigureUnit.USD: f"${best.usd_per_request * 1e6:.4f} per million {_counted(report)}",
        }
        change = goal.value(best) / goal.value(plan)
        change = 1.0 / change if goal.unit is FigureUnit.RATE else change
        rate = f", at {figures[FigureUnit.RATE]}" * (goal.unit is not FigureUnit.RATE)
        yield (
            f"  `{best.name}` has {goal.better} by the figures: {figures[goal.unit]} "
            f"({change - 1.0:+.1%}){rate}"
        )


def _counted(report: PlanReport) -> str:
    """What the period of a plan is of: where requests are texts, each takes many steps."""
    return "requests" if report.texts is None else "steps"


def _texts(report: PlanReport) -> Iterator[str]:
    if report.texts is None:
        return
    texts, limit = report.texts, report.setting.options.tpot_ns
    within = "" if limit is None else f", within {format_time(limit)}"
    yield (
        f"  {texts.requests_per_s:.4g} requests/s, {texts.tokens_per_s:.5g} tokens/s, in batches "
        f"of {texts.batch}; {texts.sequences} texts in memory at once"
    )
    yield f"  {format_time(texts.tpot_ns)} per token in the mean{within}"


def _sizes(report: PlanReport, width: int | None) -> Iterator[str]:
    """What other sizes of the steps give, where there is a choice."""
    if len(report.sizes) < 2:
        return
    rows = []
    for size in report.sizes:
        given = size.figures
        figures = ["-"] * 3
        if given is not None:
            figures = [f"{given.requests_per_s:.4g}", f"{given.tokens_per_s:.5g}"]
            figures.append(format_time(given.tpot_ns))
        names = ", ".join(safe(name) for name in size.names)
        taken = " (this plan)" * (given == report.texts)
        rows.append([f"{names}{taken}", str(size.batch), *figures, size.why or size.strategy])
    yield "sizes of the steps:"
    yield from table(_SIZES, rows, width)
    yield ""


def _nearness(plan: Plan) -> str:
    """How far from the optimum the plan may be; a bound of 0 proves nothing."""
    if plan.bound <= 0 and (predicted_value(plan) or 0.0) > 0:
        return "not proven to be near the best"
    if plan.gap >= _FAR:
        return f"not proven to be near the best: the bound is {plan.gap:.0%} away"
    return f"proven within {plan.gap:.2%} of the best"


def _rate(period_ns: float) -> str:
    """Requests per second."""
    return f"{1e9 / period_ns:.1f}" if period_ns > 0 else "-"


def _interval(plan: Plan, counted: str) -> str:
    """The interval of the objective's figure that holds nine of ten draws."""
    objective, ends = Objective.named(plan.objective), _ends(plan, plan.low, plan.high)
    match objective.unit:
        case FigureUnit.TIME:
            return f"{objective} {ends}"
        case FigureUnit.USD:
            return f"{ends} per million {counted}"
        case FigureUnit.RATE:
            return f"{ends} {counted}/s"


def _ends(plan: Plan, low: float, high: float) -> str:
    """The ends of a bar of the objective's figure."""
    match Objective.named(plan.objective).unit:
        case FigureUnit.TIME:
            return f"{format_time(low)} to {format_time(high)}"
        case FigureUnit.USD:
            return f"${low * 1e6:.4f} to ${high * 1e6:.4f}"
        case FigureUnit.RATE:
            return f"{_rate(high)} to {_rate(low)}"


def _doubt(report: PlanReport) -> Iterator[str]:
    """Whether the gain of splitting exceeds the error bars, and what would settle it."""
    doubted, plan = report.decision.doubt, report.plan
    if doubted is None:
        return
    yield (
        f"  `{doubted.split}` against `{doubted.rival}`, which splits no request: "
        f"{change_words(doubted, Objective.named(plan.objective).unit)}; "
        f"better in {doubted.wins:.0%} of the draws"
    )
    told = "the error bars do not tell which is better"
    if is_better := doubted.is_sure and doubted.gain > 0:
        told = f"`{doubted.split}` is better"
    elif doubted.standing is Standing.BEHIND:
        told = f"`{doubted.rival}` is better"
    taken = f"so `{plan.strategy}` is taken"
    if plan.ended == Ending.GIVEN:
        taken = f"`{plan.strategy}` is taken as asked for"
    elif is_better and plan.strategy != doubted.split:
        taken = "but it has no launch program that is proved"
    yield f"  {told}, {taken}"
    if doubted.causes and doubted.wins < 1.0:
        yield f"  it depends on {causes_of(doubted)}: `tessc profile` would settle it"


def _replicas(plan: Plan) -> Iterator[str]:
    """Replicas and memory; replicas that differ only in their devices share a line."""
    alike: dict[tuple[str, tuple[str, ...]], list[Replica]] = {}
    for replica in plan.replicas:
        loads = tuple(_device_load(replica, device) for device in replica.lowered.devices)
        alike.setdefault((_replica_line(plan, replica), loads), []).append(replica)
    for (line, loads), group in alike.items():
        span = "replica" if len(group) == 1 else f"{len(group)} replicas, each"
        yield f"  {span}{line}"
        for place, load in enumerate(loads):
            yield f"    {names_of([replica.lowered.devices[place] for replica in group])}: {load}"
        for replica in group:
            yield from (f"    {line}" for line in hand_over_lines(plan, replica))
    rooms: dict[tuple[int, int], list[str]] = {}
    for card in plan.cards:
        rooms.setdefault((card.used_bytes, card.capacity_bytes), []).append(card.name)
    for (used, room), names in rooms.items():
        yield f"  memory of {names_of(names)}: {format_bytes(used)} of {format_bytes(room)}"
    for host, size in staged_bytes(plan.replicas, hosts_of(plan)).items():
        yield f"  memory of host {safe(host)} for transfers: {format_bytes(size)}"


def divided_lines(plan: Plan) -> Iterator[str]:
    """The steps in parts or with twins, and where they run; steps that are alike share a line."""
    alike: dict[tuple[str, str], int] = {}
    for replica in plan.replicas:
        for placed in replica.traces:
            parts = parts_of_placed(placed, plan.traces[placed.trace].division)
            groups: dict[int, list[PlacedStep]] = {}
            for step in placed.steps:
                if parts[step.step].count > 1:
                    groups.setdefault(parts[step.step].origin, []).append(step)
            for group in groups.values():
                places = ", ".join(f"{s.device}{parts[s.step].words(s.arch)}" for s in group)
                key = group[0].name, places
                alike[key] = alike.get(key, 0) + 1
    if alike:
        yield f"steps in parts or with twins: {sum(alike.values())}"
    for (name, places), count in list(alike.items())[:_MOST_CLASSES]:
        yield f"  {safe(short_name(name))}{f', {count} steps' if count > 1 else ''}: {places}"
    if len(alike) > _MOST_CLASSES:
        yield f"  and {amount(len(alike) - _MOST_CLASSES, 'kind')} more, in the plan file"


def _replica_line(plan: Plan, replica: Replica) -> str:
    moves = [
        move
        for trace in replica.lowered.traces
        for move in trace.transfers
        if HOST not in (move.source, move.target)
    ]
    policy = f" for {replica.policy}" if replica.policy else ""
    return (
        f"{policy}: {role_words(plan, replica)}, {amount(replica.slots, 'slot')}, "
        f"{amount(replica.lanes, 'sequence')}, {amount(len(moves), 'transfer')}, "
        f"{format_bytes(sum(m.size for m in moves))} moved"
    )


def _device_load(replica: Replica, device: str) -> str:
    here = [step for placed in replica.traces for step in placed.steps if step.device == device]
    spent = sum(step.predicted_ns for step in here)
    return f"{amount(len(here), 'step')}, {format_time(spent)}"


# --- what went where ---------------------------------------------------------------------------


def _classes(report: PlanReport, width: int | None) -> Iterator[str]:
    classes = kernel_classes(report.setting, report.plan)
    kinds = classes[0].kinds[:_MOST_KINDS] if classes else ()
    if len(classes[0].kinds if classes else ()) < 2:
        return
    columns = (
        Column("what went where", Fit.CUT),
        Column("steps", right=True),
        *(Column(kind, right=True) for kind in kinds),
        Column("fastest"),
        Column("on", Fit.WRAP),
    )
    machine = report.machine
    labels = {device.name: machine.cards[device.card].label for device in machine.devices}
    names = short_names(own.name for own in classes)
    rows = (
        (names[own.name], *_class_row(own, len(kinds), labels)) for own in classes[:_MOST_CLASSES]
    )
    yield ""
    yield from table(columns, rows, width)
    if len(classes) > _MOST_CLASSES:
        more = amount(len(classes) - _MOST_CLASSES, "more kind of steps", "more kinds of steps")
        yield f"  and {more}; `--json` has all, with their whole names"


def _class_row(kernel_class: KernelClass, kinds: int, labels: Mapping[str, str]) -> tuple[str, ...]:
    times = [
        "-" if ns is None else f"{format_time(ns)} within {bar:.0%}"
        for ns, bar in zip(kernel_class.ns[:kinds], kernel_class.bars, strict=False)
    ]
    placed = dict(kernel_class.placed)
    if len(placed) > _MOST_PLACES:
        placed = Counter()
        for device, count in kernel_class.placed:
            placed[labels[device]] += count
    where = ", ".join(f"{device} {count}" for device, count in placed.items())
    return (str(kernel_class.steps), *times, faster_words(kernel_class), where)


def faster_words(kernel_class: KernelClass) -> str:
    """The kind of GPU on which steps are fastest, and how many times as fast as on the slowest."""
    ratio, ends, kinds = kernel_class.ratio, kernel_class.ratio_bar, kernel_class.end_kinds
    if ratio is None or ends is None or kinds is None:
        return ""
    slow, fast = kinds
    of = f" as {slow}" if len(kernel_class.kinds) > 2 else ""
    said = f"{fast} {ratio:.2f} times as fast{of}" if f"{ratio:.2f}" != "1.00" else "alike"
    return f"{said} ({ends[0]:.2f}-{ends[1]:.2f})"


def _excluded(report: PlanReport) -> Iterator[str]:
    """The devices on which steps cannot run, and why; one line per reason."""
    refused: dict[tuple[str, Wording], dict[str, None]] = {}
    for costs in report.setting.costs:
        for step in costs.steps:
            for device, cost in zip(report.machine.devices, step.on_device, strict=True):
                if isinstance(cost, Barred) and not cost.asked:
                    refused.setdefault((device.name, cost.reason), {})[step.name] = None
    if not refused:
        return
    yield ""
    yield "kept off a GPU:"
    for (where, reason), names in list(refused.items())[:_MOST_REASONS]:
        listed = list(names)
        more = f" and {len(listed) - 3} more" if len(listed) > 3 else ""
        yield f"  {', '.join(map(short_name, listed[:3]))}{more} not on {where}: {reason}"
    if len(refused) > _MOST_REASONS:
        more = amount(len(refused) - _MOST_REASONS, "more reason")
        yield f"  and {more}; `--explain STEP` has them"


# --- what limits it ----------------------------------------------------------------------------


def _limits(report: PlanReport) -> Iterator[str]:
    limits = report.insight.limits
    if not limits:
        return
    yield ""
    yield f"bottleneck: {limits[0].text}, {format_time(limits[0].ns)} per {_counted(report)[:-1]}"
    others = [limit for limit in limits[1:4] if limit.ns > 0]
    if others:
        yield "  then " + ", ".join(f"{limit.text} {format_time(limit.ns)}" for limit in others)
    for helper in report.insight.helpers:
        yield f"  {helper}"
    yield from _losses(report)


def _losses(report: PlanReport) -> Iterator[str]:
    """What costs the rest, if a split reaches less than nine tenths of what times alone allow."""
    losses = report.insight.losses
    if losses is None or losses.reached >= _MOST_OF_IT or len(report.machine.devices) == 1:
        return
    yield ""
    of = "" if losses.name == report.plan.strategy else ", the best split,"
    reached = f"reaches {losses.reached:.0%} of what times alone allow"
    yield f"`{losses.name}`{of} {reached}; per {_counted(report)[:-1]}:"
    for number, (name, ns) in enumerate(losses.parts):
        yield f"  {'+' if number else ' '} {format_time(ns)}  {name}"


# --- beside what else there is -----------------------------------------------------------------


def _comparison(report: PlanReport, width: int | None) -> Iterator[str]:
    plan = report.plan
    memory = sum(card.used_bytes for card in plan.cards)
    mine = Baseline(
        name=f"{plan.strategy} (this plan)",
        period_ns=plan.period_ns,
        latency_ns=plan.latency_ns,
        loaded_latency_ns=plan.loaded_latency_ns,
        usd_per_request=plan.usd_per_request,
        memory_bytes=memory,
    )
    yield ""
    bars = {**report.bars, mine.name: (plan.low, plan.high)}
    yield from comparison_table(report, [mine, *plan.baselines], width, bars, [mine])
    if report.alternatives:
        yield "in place of this machine:"
        bars = {row.name: (row.low, row.high) for row in report.alternatives}
        yield from comparison_table(report, report.alternatives, width, bars)
        against = [(row.name, row.against) for row in report.alternatives]
        yield from standings(against, "this plan", Objective.named(plan.objective).unit)
    if report.frontier:
        yield "no plan found is better in one and no worse in the others:"
        yield from comparison_table(report, report.frontier, width, {})


def comparison_table(
    report: PlanReport,
    rows: Sequence[Baseline],
    width: int | None,
    bars: Mapping[str, tuple[float, float]],
    lowered: Sequence[Baseline] = (),
) -> list[str]:
    """Ways to serve requests, side by side, with the ends of the bars of the objective's figure.

    Only ways that are lowered to launch programs have an exact size.
    """
    counted = _counted(report)
    numbers = right(f"{counted}/s", "alone", "loaded p50", "usd per million", "memory")
    ends = {name: _ends(report.plan, *bar) for name, bar in bars.items() if bar[1] > bar[0] > 0}
    shown = [Column("nine in ten", right=True)] if ends else []
    cells = [
        (
            row.name,
            _rate(row.period_ns),
            format_time(row.latency_ns),
            format_time(row.loaded_latency_ns),
            f"{row.usd_per_request * 1e6:.4f}",
            f"{'about ' * (row not in lowered)}{format_bytes(row.memory_bytes)}",
            *([ends.get(row.name, "")] if ends else []),
        )
        for row in rows
    ]
    return table((Column(fit=Fit.WRAP), *numbers, *shown), cells, width)


# --- numbers -----------------------------------------------------------------------------------


def explained(cost: Duration | Barred) -> str:
    """A duration with its source and error bar, or why there is none."""
    if isinstance(cost, Barred):
        return f"cannot run: {cost.reason}"
    origin = f" ({cost.origin})" if cost.origin else ""
    return f"{format_time(cost.ns)}, within {cost.error:.0%}, from {cost.source.value}{origin}"


# --- one step ----------------------------------------------------------------------------------


def explain_text(report: PlanReport, step: str, width: int | None = None) -> str:
    """Why a step is on its device, in every replica."""
    reasons = explain_step(report.setting, report.decision, step)
    lines = (line for step_reason in reasons for line in _reason(report, step_reason))
    return fitted("\n" + "\n".join(lines) + "\n", width)


def _reason(report: PlanReport, step_reason: StepReason) -> Iterator[str]:
    several = len(report.plan.replicas) > 1
    of = f" of {step_reason.trace}" if len(report.plan.traces) > 1 else ""
    here = next(other for other in step_reason.elsewhere if other.here)
    where = here.device
    yield f"k{step_reason.step} {step_reason.name}{_part(report, step_reason)}{of}: on {where}" + (
        f" in replica {step_reason.replica}" if several else ""
    )
    if (work := step_reason.work) is not None:
        units = ", ".join(f"{count:.3g} {unit}" for unit, count in work.units if count)
        blocks = f"{work.ctas} blocks of {work.threads // max(work.ctas, 1)} threads"
        size = format_bytes(step_reason.memory_bytes)
        yield f"  work: {blocks}; {units or 'no arithmetic'}; {size}"
    for reason in step_reason.pins:
        yield f"  pinned: {reason}"
    if step_reason.together:
        listed = ", ".join(f"k{other}" for other in step_reason.together[:8])
        more = f" and {len(step_reason.together) - 8} more" if len(step_reason.together) > 8 else ""
        yield f"  stays with {listed}{more}"
    for other in step_reason.elsewhere:
        yield f"  {other.device}: {explained(other.cost)}" + _moved(here, other)
    devices = {s.step: s.device for s in _steps_of(report, step_reason)}
    for verb, edges in (("needs", step_reason.needs), ("feeds", step_reason.feeds)):
        for edge in edges[:8]:
            other_step = edge.source if verb == "needs" else edge.target
            again = " of the request before" if edge.carried and verb == "needs" else ""
            again = " of the next request" if edge.carried and verb == "feeds" else again
            away = "" if devices[other_step] == where else f", on {devices[other_step]}"
            name = _graph(report, step_reason).buffers[edge.buffer].name
            yield f"  {verb} {format_bytes(edge.bytes)} of {name}: k{other_step}{again}{away}"
        if len(edges) > 8:
            yield f"  {verb} {len(edges) - 8} more"


def _part(report: PlanReport, step_reason: StepReason) -> str:
    """Which part or twin of a step of the trace it is."""
    placed = _placed_of(report, step_reason)
    part = parts_of_placed(placed, report.plan.traces[placed.trace].division)[step_reason.step]
    origin = f" of step {part.origin} of the trace" if part.count > 1 else ""
    return f"{part.words(placed.steps[step_reason.step].arch)}{origin}"


def _moved(here: Elsewhere, other: Elsewhere) -> str:
    """Change of period and latency by the loads of devices; nothing is simulated."""
    if other.here:
        return f", {other.arch}, chosen" if other.arch else ", chosen"
    if other.period_ns is None or other.latency_ns is None:
        return "" if isinstance(other.cost, Barred) else "; it does not fit there"
    return (
        f"; there: period {_change(other.period_ns, here.period_ns)}, "
        f"latency {_change(other.latency_ns, here.latency_ns)}"
    )


def _change(new: float, old: float | None) -> str:
    return f"{new / old - 1:+.2%}" if old else "-"


def _steps_of(report: PlanReport, step_reason: StepReason) -> Sequence[PlacedStep]:
    return _placed_of(report, step_reason).steps


def _placed_of(report: PlanReport, step_reason: StepReason) -> PlacedTrace:
    names = [trace.name for trace in report.plan.traces]
    number = names.index(step_reason.trace)
    traces = report.plan.replicas[step_reason.replica].traces
    return next(placed for placed in traces if placed.trace == number)


def _graph(report: PlanReport, step_reason: StepReason) -> KernelGraph:
    return next(t.graph for t in report.setting.traces if t.planned.name == step_reason.trace)


# --- launch programs ---------------------------------------------------------------------------


def launch_text(plan: Plan) -> str:
    """The launch programs of all replicas, as in the plan file."""
    lines: list[str] = []
    for number, replica in enumerate(plan.replicas):
        lines.append(
            f"// replica {number}: {role_words(plan, replica)}, {replica.slots} slots, "
            f"{replica.lanes} sequences"
        )
        lines += lowered_lines(replica.lowered)
    return "\n".join(lines) + "\n"
