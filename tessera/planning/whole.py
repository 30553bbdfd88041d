"""Whether slices of a GPU pay: the same traces on the whole of it, held against the plan.

In: a `PlanSetting` whose GPU is cut into slices, and its `Decision`. Out: the decision for the
whole GPU. Only measured times say anything about that: without a profile of the whole GPU and of
the slices, those that are asked for are taken.
"""

from __future__ import annotations

from dataclasses import replace

from tessera.diagnostics import Diagnostic, warning
from tessera.frontend.machine.gpus import GpuEntry, build_machine
from tessera.ir.plan.costs import CostSource
from tessera.ir.plan.machine import Machine
from tessera.ir.plan.plan import Baseline
from tessera.planning.find_plan import Decision, find_plan
from tessera.planning.given.options import Watch
from tessera.planning.given.setting import PlanSetting
from tessera.planning.prices.durations import find_costs
from tessera.planning.promise.assemble import baseline_of

# What slices have to bring by the predictions. Of the two against each other these were off by 1 to
# 5% in the runs of `benchmarks/results/gain.json`, more often in favour of slices.
WORTH = 1.03


def plan_whole(setting: PlanSetting, watch: Watch) -> Decision | None:
    """The best plan for the GPU in one piece; None where that is not the question."""
    options = setting.options
    asked = options.strategy, options.placement, *options.pins, *options.forbids
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
    """Whether to leave the GPU in one piece: slices do not bring what they have to."""
    objective = sliced.choice.objective
    return whole.chosen.value(objective) < WORTH * sliced.chosen.value(objective)


def row_of(decision: Decision) -> Baseline:
    """A decision for other pieces of the GPU as a line beside the plan."""
    machine = decision.setting.machine
    pieces = "+".join(str(device.sms) for device in machine.devices)
    row = baseline_of(decision.chosen, decision.plan.loaded_latency_ns)
    return replace(row, name=f"{pieces} SMs: {decision.chosen.name}")


def do_not_slice(whole: Decision, sliced: Decision) -> Diagnostic:
    """That the plan is for the whole GPU, though slices were asked for."""
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
