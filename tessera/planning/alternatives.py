"""Figures of other machines and other plans: whole GPUs, GPUs of one kind, trade-offs.

In: a `PlanSetting` and a `Decision`. Out: decisions and baselines, predicted by the same model.

To decide whether slices of a GPU pay, the same traces are planned on the whole GPU (`plan_whole`).
Only measured times can decide this: without a profile of both the whole GPU and the slices, the
requested slices are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace

from tessera.diagnostics import Diagnostic, TesseraError, warning
from tessera.frontend.machine.gpus import GpuEntry, build_machine
from tessera.ir.objectives import PAIR, SINGLE_OBJECTIVES, THROUGHPUT
from tessera.ir.plan.costs import Costs, CostSource
from tessera.ir.plan.machine import Card, Machine
from tessera.ir.plan.plan import Baseline
from tessera.planning.attempts import attempt_with
from tessera.planning.choose_best import choose_best
from tessera.planning.find_plan import Decision, find_plan
from tessera.planning.given.options import Watch
from tessera.planning.given.setting import PlanSetting
from tessera.planning.prices.durations import find_costs
from tessera.planning.promise.assemble import baseline_of
from tessera.planning.promise.doubt import Doubt, doubt, interval
from tessera.planning.promise.promise import Promise, best_promise, promises
from tessera.planning.promise.trial import gpu_kinds

# Minimum predicted gain of slices over the whole GPU. Predictions of this ratio were off by 1 to 5%
# in the runs of `benchmarks/results/gain.json`, more often in favour of slices.
WORTH = 1.03


def plan_whole(setting: PlanSetting, watch: Watch) -> Decision | None:
    """The best plan for the GPU in one piece; None without slices, or without measured times."""
    options = setting.options
    asked = options.strategy, options.placement, *options.pins, *options.forbids
    asked = *asked, *options.cuts, *options.twins
    machine = _in_one_piece(setting.machine)
    if machine is None or any(asked) or not _is_measured(setting):
        return None
    whole = replace(options, machine=machine)
    whole_setting = replace(
        setting,
        machine=machine,
        options=whole,
        costs=tuple(find_costs(setting.traces, machine, whole, setting.profiles)),
    )
    return find_plan(whole_setting, watch) if _is_measured(whole_setting) else None


def is_better(whole: Decision, sliced: Decision) -> bool:
    """Whether to leave the GPU in one piece: the gain of slices is below `WORTH`."""
    objective = sliced.choice.objective
    return whole.chosen.value(objective) < WORTH * sliced.chosen.value(objective)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative(Baseline):
    """A plan for other GPUs in place of the machine, beside the plan for the machine.

    Nine of ten draws of the objective's figure are between `low` and `high`. `against` has the
    ratio to the plan, with its own bar; None for a pair of plans.
    """

    low: float
    high: float
    against: Doubt | None


def row_of(decision: Decision, taken: Decision) -> Alternative:
    """A decision for another slicing of the GPU, as a row beside the plan that is taken."""
    machine = decision.setting.machine
    pieces = "+".join(str(device.sms) for device in machine.devices)
    row = baseline_of(decision.chosen, decision.plan.loaded_latency_ns)
    assert decision.promise is not None
    return _beside(replace(row, name=f"{pieces} SMs: {row.name}"), decision.promise, taken)


def bars_of(decision: Decision) -> dict[str, tuple[float, float]]:
    """The interval of nine of ten draws of each plan that the plan is compared with, by name."""
    objective, kinds = decision.choice.objective, gpu_kinds(decision.setting.machine)
    return {
        other.chosen.name: interval(other, objective, machines=kinds)
        for other in reversed(decision.others)
    }


def _beside(row: Baseline, promise: Promise, taken: Decision) -> Alternative:
    objective = taken.choice.objective
    low, high = interval(promise, objective, machines=gpu_kinds(taken.setting.machine))
    against = None if taken.promise is None else doubt(promise, taken.promise, objective)
    own = {part.name: getattr(row, part.name) for part in fields(row)}
    return Alternative(**own, low=low, high=high, against=against)


def do_not_slice(whole: Decision, sliced: Decision) -> Diagnostic:
    """The note that the plan is for the whole GPU although slices were requested."""
    objective = sliced.choice.objective
    behind = sliced.chosen.value(objective) / whole.chosen.value(objective) - 1
    if behind < 0:
        said = f"{-behind:.1%} ahead of it, which is no more than such predictions are off"
    else:
        said = f"{behind:.1%} behind it"
    card = sliced.setting.machine.cards[0].name
    return warning(
        "TSR3021",
        f"slices of `{card}` do not pay: the plan is for the whole GPU",
        notes=(f"by the profile the best plan for the slices, `{sliced.chosen.name}`, is {said}",),
        hint="`--strategy` takes a plan for the slices all the same",
    )


def _in_one_piece(machine: Machine) -> Machine | None:
    """The one card of a machine without its slices."""
    if len(machine.cards) != 1 or len(machine.devices) < 2:
        return None
    (card,) = machine.cards
    entry = GpuEntry(count=1, gpu=card.gpu, label=card.label, node=card.node)
    whole = build_machine((entry,), machine.link_name)
    (made,) = whole.cards
    made = replace(made, memory_bytes=card.memory_bytes, usd_per_hour=card.usd_per_hour)
    return replace(whole, cards=(made,), transfer_ns=machine.transfer_ns)


def _is_measured(setting: PlanSetting) -> bool:
    sources = {source for costs in setting.costs for source, _ in costs.sources()}
    return sources == {CostSource.PROFILE}


_ALONE_GAP = 0.01  # accurate enough for a comparison
_NEAREST = 3  # candidates of the search to simulate; the others are far behind


def alone(setting: PlanSetting, decision: Decision, watch: Watch) -> tuple[Alternative, ...]:
    """Plans for the same number of GPUs, all of one offered kind; a short search for each kind."""
    rows = []
    for machine, name in _machines(setting.machine):
        if watch.stopped():
            break
        options = replace(
            setting.options,
            pins=(),
            forbids=(),
            machine=machine,
            strategy=None,
            placement=None,
            gap=max(setting.options.gap, _ALONE_GAP),
        )
        costs = _columns(setting, machine) or tuple(
            find_costs(setting.traces, machine, options, setting.profiles)
        )
        other = replace(setting, machine=machine, costs=costs, options=options)
        attempt = attempt_with(other, decision.attempt.slots, decision.attempt.lanes)
        objective = THROUGHPUT if options.aim == PAIR else options.aim
        choice = choose_best(other, attempt, objective, quiet(watch), best_alone=True)
        if choice is not None:
            nearest = replace(choice, candidates=choice.candidates[:_NEAREST])
            promise = best_promise(other, attempt, nearest, objective)
            best = promise.simulated
            row = baseline_of(best.candidate, best.loaded_ns)
            rows.append(_beside(replace(row, name=f"{name}: {row.name}"), promise, decision))
    return tuple(rows)


def _columns(setting: PlanSetting, machine: Machine) -> tuple[Costs, ...] | None:
    """The costs on identical cards, copied from one such card; None if there is no such card."""
    kind = machine.cards[0].gpu
    known = next(
        (
            device
            for device in setting.machine.devices
            if setting.machine.gpu_of(device) == kind and device.sms == kind.sms
        ),
        None,
    )
    if known is None or setting.options.pins or setting.options.forbids:
        return None
    return tuple(
        Costs(
            tuple(
                replace(step, on_device=(step.on_device[known.id],) * len(machine.devices))
                for step in costs.steps
            )
        )
        for costs in setting.costs
    )


def _machines(machine: Machine) -> Iterator[tuple[Machine, str]]:
    """The machine with all cards of one kind, for each kind; none if there is only one."""
    kinds: dict[tuple[str, int, float | None], Card] = {}
    for card in machine.cards:
        kinds.setdefault((card.gpu.key, card.memory_bytes, card.usd_per_hour), card)
    if len(kinds) < 2:
        return
    count = len(machine.cards)
    for card in kinds.values():
        try:
            made = build_machine(
                (GpuEntry(count=count, gpu=card.gpu, label=card.label),),
                machine.link_name,
            )
        except TesseraError:
            continue  # the link is of a kind that these cards do not have
        cards = tuple(
            replace(made_card, memory_bytes=card.memory_bytes, usd_per_hour=card.usd_per_hour)
            for made_card in made.cards
        )
        yield (
            replace(made, cards=cards, transfer_ns=machine.transfer_ns),
            f"{count}x {card.gpu.key}",
        )


def quiet(watch: Watch) -> Watch:
    """A watch for side searches: they can be stopped and show no progress."""
    return replace(watch, on_progress=None)


def frontier(setting: PlanSetting, decision: Decision, watch: Watch) -> tuple[Baseline, ...]:
    """The Pareto-optimal candidates of all objectives, fastest first.

    The memory of the plan itself is that of its launch programs, as everywhere in its report. The
    other candidates are not lowered, so their memory is the estimate of the model.
    """
    own = decision.plan
    plain = replace(setting, options=replace(setting.options, strategy=None, placement=None))
    rows = [
        Baseline(
            name=own.strategy,
            period_ns=own.period_ns,
            latency_ns=own.latency_ns,
            usd_per_request=own.usd_per_request,
            memory_bytes=sum(card.used_bytes for card in own.cards),
            loaded_latency_ns=own.loaded_latency_ns,
        ),
        *own.baselines,
    ]
    for objective in SINGLE_OBJECTIVES:
        if objective != decision.choice.objective:
            choice = choose_best(plain, decision.attempt, objective, quiet(watch))
            tried = [(decision.attempt, choice)] if choice is not None else []
            made = (other.simulated for other in promises(plain, tried, objective))
            rows += [baseline_of(other.candidate, other.loaded_ns) for other in made]
    return tuple(sorted(_best(rows), key=lambda row: row.period_ns))


def _best(rows: Iterable[Baseline]) -> list[Baseline]:
    """The rows that no other row beats; the first of equal rows."""
    kept: list[Baseline] = []
    for row in rows:
        if any(_beats(other, row) or _values(other) == _values(row) for other in kept):
            continue
        kept = [other for other in kept if not _beats(row, other)] + [row]
    return kept


def _values(row: Baseline) -> tuple[float, float, float]:
    return row.period_ns, row.latency_ns, row.usd_per_request


def _beats(row: Baseline, other: Baseline) -> bool:
    pairs = list(zip(_values(row), _values(other), strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)
