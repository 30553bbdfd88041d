"""Two policies as one replica: if states are placed alike, a sequence may use either policy.

In: a plan with a replica for each of two policies, whose states are on the same devices. Out: one
replica with every trace twice, first as one policy places it, then as the other; weights and states
are held once. The trace number of a step chooses the policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.plan import Plan, Replica, memory_on
from tessera.ir.plan.policies import are_alike, is_placed_as, policies_of
from tessera.ir.program.program import Program
from tessera.planning.lower.lower_plan import lower_replica

_PAIR = 2


def can_join(plan: Plan, programs: Sequence[Program]) -> bool:
    """Whether the plan has two policies that place states alike."""
    if len(policies_of(plan)) != _PAIR or len(plan.replicas) != _PAIR:
        return False
    first, second = plan.replicas
    return (
        first.lanes == second.lanes
        and not is_placed_as(first, second)
        and are_alike(first, second, programs)
    )


def joined_replica(plan: Plan) -> Replica:
    """Both replicas as one, for a simulation: launch programs do not depend on addresses."""
    first, second = plan.replicas
    count = len(plan.traces)
    later = tuple(replace(placed, trace=placed.trace + count) for placed in second.traces)
    lowered = tuple(replace(own, trace=own.trace + count) for own in second.lowered.traces)
    slots = max(first.slots, second.slots)
    devices = dict.fromkeys((*first.lowered.devices, *second.lowered.devices))
    return replace(
        second,
        share=1.0,
        slots=slots,
        policy="",
        traces=(*first.traces, *later),
        lowered=replace(
            second.lowered,
            slots=slots,
            traces=(*first.lowered.traces, *lowered),
            devices=tuple(devices),
        ),
    )


def joined_plan(plan: Plan, programs: Sequence[Program], graphs: Sequence[KernelGraph]) -> Plan:
    """Both replicas as one, for a run: lowered again with every trace twice, yet to be proved."""
    first, second = plan.replicas
    both = joined_replica(plan)
    placements = [
        [step.device for step in placed.steps] for own in (first, second) for placed in own.traces
    ]
    lowered = lower_replica(
        (*programs, *programs),
        (*graphs, *graphs),
        placements,
        slots=both.slots,
        lanes=both.lanes,
        roomy=frozenset(device.name for device in plan.devices),
    )
    replica = replace(both, slots=lowered.slots, lanes=lowered.lanes, lowered=lowered)
    again = tuple(
        replace(trace, name=f"{trace.name}@{second.policy}", share=trace.share / 2)
        for trace in plan.traces
    )
    halves = tuple(replace(trace, share=trace.share / 2) for trace in plan.traces)
    used = dict.fromkeys((card.name for card in plan.cards), 0)
    for device in plan.devices:
        if device.card in used:
            used[device.card] += memory_on([replica], device.name)
    return replace(
        plan,
        traces=(*halves, *again),
        replicas=(replica,),
        cards=tuple(replace(card, used_bytes=used[card.name]) for card in plan.cards),
    )
