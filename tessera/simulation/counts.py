"""Launch programs with other numbers of slots and sequences.

In: replicas of a plan. Out: the same with other counts, and what their areas take. Programs do not
depend on the counts; areas do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tessera.ir.plan.launch_program import AreaKind, LoweredReplica, with_area_counts
from tessera.ir.plan.plan import Plan, Replica, memory_on


def with_counts(replica: Replica, slots: int, lanes: int) -> Replica:
    """The same launch programs with other numbers of slots and sequences."""
    lowered: LoweredReplica = replica.lowered
    areas = with_area_counts(lowered.areas, slots, lanes)
    return replace(
        replica,
        slots=slots,
        lanes=lanes,
        lowered=replace(lowered, slots=slots, lanes=lanes, areas=areas),
    )


def runs_alone(replica: Replica) -> bool:
    """Whether requests write module variables, of which there is one each: they have one slot."""
    variables = {
        (place.trace, place.buffer, place.device)
        for place in replica.lowered.places
        if place.kind is AreaKind.MODULE
    }
    return any((h.trace, h.buffer, h.device) in variables for h in replica.lowered.homes)


def overfull(plan: Plan, replicas: Sequence[Replica]) -> Iterator[tuple[str, int, int]]:
    """Cards with what the areas take and what there is, where that is less."""
    for card in plan.cards:
        devices = [device.name for device in plan.devices if device.card == card.name]
        used = sum(memory_on(replicas, device) for device in devices)
        if used > card.capacity_bytes:
            yield card.name, used, card.capacity_bytes
