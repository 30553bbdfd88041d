"""What a plan brings, what one may do instead, what it rests on, and what would change it.

In: a `Plan`, what `tessc plan --json` said of it, and changes that were simulated. Out: lines and
rows for the first section of a page. Names of devices and plans stand in backticks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tessera.frontend.machine.quantities import format_time
from tessera.ir.choices import Ending
from tessera.ir.objectives import Objective
from tessera.ir.plan.plan import Baseline, Plan
from tessera.report.kernel_names import short_name
from tessera.report.page.given import Document
from tessera.report.page.json_text import Json, inner, number, rows, texts

Interval = tuple[float, float] | None
SOURCES = {
    "profile": "profiles of this trace",
    "table": "measured tables",
    "ratio": "measured on another GPU",
    "near": "measured at another size",
    "model": "a fitted model",
    "sheet": "data sheets",
}
"""Where times of steps come from, in order of trust."""

_FORMS = {
    "dp": "a copy on each GPU",
    "layers": "layers in turn",
    "phase": "a GPU for each trace",
    "attention": "attention apart",
    "roles": "shares of each trace",
    "tensor": "tensor parallel",
    "parts": "steps in parts",
    "kernel": "split by kernels",
}
_ALONE = "single:"
_SAME = 0.0005  # a gain that is smaller is none
_MATTERS = 0.02  # another plan is named if it is better by as much
_MOST_CHANGES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The intervals that hold nine of ten draws: rate, latencies, cost."""

    rate: Interval = None
    alone_ns: Interval = None
    loaded_ns: Interval = None
    usd: Interval = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A change of the machine, and the figures of the same placement on it."""

    change: str
    rate: float
    latency_ns: float


def rate_of(period_ns: float) -> float:
    """Requests per second; 0 if requests take no time."""
    return 1e9 / period_ns if period_ns > 0 else 0.0


def form_words(name: str) -> str:
    """A strategy in words."""
    if name.startswith(_ALONE):
        return f"{name.removeprefix(_ALONE)} alone"
    return _FORMS.get(name, name)


def named(name: str) -> str:
    """A strategy in words, with its name."""
    words = form_words(name)
    return f"`{words}`" if name.startswith(_ALONE) or words == name else f"{words} (`{name}`)"


# --- what it brings ------------------------------------------------------------------------------


def best_other(plan: Plan) -> Baseline | None:
    """The best of the other plans, by the objective."""
    others = [baseline for baseline in plan.baselines if baseline.name != plan.strategy]
    return min(others, key=Objective.named(plan.objective).value, default=None)


def brings(plan: Plan, report: Document | None) -> str:
    """How the plan compares with the best of the others, and whether its bar tells."""
    best = best_other(plan)
    if best is None:
        return f"There is no other plan to compare it with; it was made for {plan.objective}."
    objective = Objective.named(plan.objective)
    mine, theirs = objective.value(plan), objective.value(best)
    gain = objective.unit.gain(mine, theirs)
    said = f"{abs(gain):.1%} {objective.better if gain >= 0 else objective.worse} than"
    if abs(gain) < _SAME:
        said = "As good as"
    bar = _bar(plan, theirs)
    doubt = {} if report is None else inner(report.value, "doubt")
    if doubt and {doubt.get("split"), doubt.get("rival")} == {plan.strategy, best.name}:
        ends = [number(doubt, "low"), number(doubt, "high")]
        if doubt.get("rival") == plan.strategy:
            ends = [1 / (1 + end) - 1 for end in reversed(ends)]
        bar = f"; {ends[0]:+.1%} to {ends[1]:+.1%} with the error bars"
    return f"{said} {named(best.name)}, the best of the others{bar}."


def _bar(plan: Plan, theirs: float) -> str:
    """Where the figure of another plan is beside the bar of this one."""
    if not plan.high > plan.low > 0:
        return ""
    if plan.low <= theirs <= plan.high:
        return "; the bar of this plan holds that figure"
    return f", even at the {'worse' if theirs > plan.high else 'better'} end of this plan's bar"


# --- what to do instead --------------------------------------------------------------------------


def instead(plan: Plan, report: Document | None) -> list[str]:
    """Other plans that are better in something, and by how much."""
    return list(_instead(plan, report))


def _instead(plan: Plan, report: Document | None) -> Iterator[str]:
    objective, best = Objective.named(plan.objective), best_other(plan)
    others = [own for own in plan.baselines if own.name != plan.strategy]
    if best is not None and plan.ended == Ending.GIVEN:
        gain = objective.unit.gain(objective.value(best), objective.value(plan))
        if gain > _MATTERS:
            yield f"Better: {named(best.name)}, {gain:.1%} {objective.better}."
            others.remove(best)
    paid = [own for own in others if own.usd_per_request > 0]
    cheap = min(paid, key=lambda own: own.usd_per_request, default=None)
    if cheap is not None and cheap.usd_per_request < (1 - _MATTERS) * plan.usd_per_request:
        less = 1 - cheap.usd_per_request / plan.usd_per_request
        rate = plan.period_ns / cheap.period_ns if cheap.period_ns > 0 else 1.0
        price = f"costs {less:.0%} less per request, at {rate:.0%} of the rate"
        yield f"For less money: {named(cheap.name)} {price}."
    quick = min(others, key=lambda own: own.latency_ns, default=None)
    if quick is not None and 0 < quick.latency_ns < (1 - _MATTERS) * plan.latency_ns:
        yield (
            f"For one request alone: {named(quick.name)} takes {format_time(quick.latency_ns)}, "
            f"not {format_time(plan.latency_ns)}."
        )
    for own in rows({} if report is None else report.value, "alternatives"):
        words = list(_differs(plan, own))
        if words:
            gpus, _, form = str(own.get("name")).partition(": ")
            yield f"With other GPUs: `{gpus}`, {form_words(form)}: {', '.join(words)}."


def _differs(plan: Plan, own: Json) -> Iterator[str]:
    """In what a plan for other GPUs is better by more than its bar."""
    if own.get("standing") == "ahead":
        yield f"{number(inner(own, 'against'), 'gain'):+.0%} by its {plan.objective}"
    usd = number(own, "usd_per_request")
    if own.get("standing") != "behind" and 0 < usd < (1 - _MATTERS) * plan.usd_per_request:
        yield f"{1 - usd / plan.usd_per_request:.0%} less per request"


# --- what it rests on ----------------------------------------------------------------------------


def sources(plan: Plan) -> list[list[object]]:
    """The sources of the times of steps, each with its share of the time of a request, and how
    much less than the best it is trusted."""
    spent: dict[str, float] = defaultdict(float)
    for replica in plan.replicas:
        for placed in replica.traces:
            part = replica.serves(placed.trace) * plan.traces[placed.trace].share
            for step in placed.steps:
                spent[step.source] += part * step.predicted_ns
    whole = sum(spent.values()) or 1.0
    rank = {name: number for number, name in enumerate(SOURCES)}
    known = sorted(spent, key=lambda name: rank.get(name, len(rank)))
    return [
        [SOURCES.get(name, name), spent[name] / whole, rank.get(name, len(rank))] for name in known
    ]


# --- what would change it ------------------------------------------------------------------------


def changes(plan: Plan, what_ifs: Sequence[WhatIf], report: Document | None) -> list[list[str]]:
    """Changes, and what each of them does to the figure that the plan was made for."""
    objective = Objective.named(plan.objective)
    made: list[tuple[float, str]] = []
    for row in what_ifs:
        gain = row.rate * plan.period_ns / 1e9 - 1
        if objective.is_of_one_request and row.latency_ns > 0:
            gain = 1 - row.latency_ns / plan.latency_ns
        made.append((gain, row.change))
    made.sort(key=lambda row: -abs(row[0]))
    shown = [[change, _effect(gain)] for gain, change in made[:_MOST_CHANGES]]
    if not shown and report is not None:
        parted = (text.partition(": ") for text in texts(report.value, "helpers"))
        shown = [[change, effect] for change, _, effect in list(parted)[:_MOST_CHANGES]]
    return [*shown, *_to_measure(plan)]


def _effect(gain: float) -> str:
    return "no change" if abs(gain) < _SAME else f"{gain:+.1%}"


def _to_measure(plan: Plan) -> Iterator[list[str]]:
    """The kernel whose error bar is the most of the plan's: errors of its steps go together."""
    bars: dict[tuple[str, str], float] = defaultdict(float)
    for replica in plan.replicas:
        for placed in replica.traces:
            part = replica.serves(placed.trace) * plan.traces[placed.trace].share
            for step in placed.steps:
                bars[step.name, step.device] += part * step.predicted_ns * step.error
    whole = sum(bar * bar for bar in bars.values())
    if whole > 0:
        (name, device), bar = max(bars.items(), key=lambda item: item[1])
        said = f"measuring `{short_name(name, 40)}` on `{device}` (`tessc profile`)"
        yield [said, f"{bar * bar / whole:.0%} of the error"]
