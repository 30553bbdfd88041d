"""What else there is: as many GPUs of one kind alone, and the plans that none beats in everything.

In: a `PlanSetting` and a `Decision`. Out: baselines, predicted by the same model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tessera.diagnostics import TesseraError
from tessera.frontend.machine.gpus import GpuEntry, build_machine
from tessera.ir.objectives import PAIR, SINGLE_OBJECTIVES, THROUGHPUT
from tessera.ir.plan.costs import Costs
from tessera.ir.plan.machine import Card, Machine
from tessera.ir.plan.plan import Baseline
from tessera.planning.attempts import build_problem
from tessera.planning.find_plan import Decision, choose_best
from tessera.planning.given.options import Watch
from tessera.planning.given.setting import Attempt, PlanSetting
from tessera.planning.prices.durations import find_costs
from tessera.planning.promise.assemble import baseline_of
from tessera.planning.promise.promise import best_promise, promises

_ALONE_GAP = 0.01  # a comparison needs no more
_NEAREST = 3  # of the search; the others are far behind


def alone(setting: PlanSetting, decision: Decision, watch: Watch) -> tuple[Baseline, ...]:
    """As many GPUs as are offered, all of one of the kinds offered; each after a short search."""
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
        slots, lanes = decision.attempt.slots, decision.attempt.lanes
        attempt = Attempt(slots=slots, lanes=lanes, planning=build_problem(other, slots, lanes))
        objective = THROUGHPUT if options.aim == PAIR else options.aim
        choice = choose_best(other, attempt, objective, quiet(watch), best_alone=True)
        if choice is not None:
            nearest = replace(choice, candidates=choice.candidates[:_NEAREST])
            best = best_promise(other, attempt, nearest, objective).simulated
            row = baseline_of(best.candidate, best.loaded_ns)
            rows.append(replace(row, name=f"{name}: {row.name}"))
    return tuple(rows)


def _columns(setting: PlanSetting, machine: Machine) -> tuple[Costs, ...] | None:
    """The costs on cards that are all alike, from those of one such card; None if there is none."""
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
    """For searches on the side: they can be stopped, and show nothing."""
    return replace(watch, on_progress=None)


def frontier(setting: PlanSetting, decision: Decision, watch: Watch) -> tuple[Baseline, ...]:
    """The candidates of all objectives that no other beats, the fastest first.

    The plan itself has the memory that its launch programs take, as everywhere in its report;
    those of the others are not made, and theirs is what the model counts with.
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
    """Those that none beats; of equal ones the first."""
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
