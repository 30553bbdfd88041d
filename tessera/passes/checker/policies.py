"""What the policies of a plan share: the weights of a device.

In: the replicas of a plan. Out: findings, and the areas that take memory.

One policy serves at a time, and a run may go from one to another without loading weights again. So
on a device all policies have them in one layout, and they take memory once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tessera.ir.plan.launch_program import Area, AreaKind
from tessera.ir.plan.plan import Replica
from tessera.ir.program.program import Program
from tessera.passes.checker.findings import Findings


def check_layouts(
    replicas: Sequence[Replica], programs: Sequence[Program], findings: Findings
) -> None:
    """A weight is in one place in every policy, and nothing else is there in any."""
    if len({replica.policy for replica in replicas}) < 2:
        return
    layouts: dict[str, dict[str, tuple[int, int]]] = {}
    for replica in replicas:
        for place in replica.lowered.places:
            if place.kind is not AreaKind.WEIGHTS or not 0 <= place.trace < len(programs):
                continue
            buffers = programs[place.trace].buffers
            if not 0 <= place.buffer < len(buffers):
                continue  # `checker.memory` says so
            weight = buffers[place.buffer]
            layout = layouts.setdefault(place.device, {})
            known = layout.setdefault(weight.name, (place.offset, place.offset + weight.bytes))
            if known[0] != place.offset:
                findings.add(
                    "TSR4009",
                    f"policies share `{weight.name}` on `{place.device}` and have it at {known[0]} "
                    f"and at {place.offset}",
                    at=place,
                )
    for device, layout in layouts.items():
        rows = sorted((start, end, name) for name, (start, end) in layout.items())
        for (_, end, name), (start, _, other) in pairwise(rows):
            if start < end:
                findings.add(
                    "TSR4009",
                    f"policies share the weights area of `{device}`, and `{name}` and `{other}` "
                    f"share bytes {start}:{end} of it",
                )


def shared_areas(replicas: Sequence[Replica]) -> list[Area]:
    """The areas of all replicas; of several policies, only the largest weights of each device."""
    weights: dict[tuple[str, str], list[Area]] = {}
    kept = []
    for replica in replicas:
        for area in replica.lowered.areas:
            if area.kind is AreaKind.WEIGHTS:
                weights.setdefault((area.device, replica.policy), []).append(area)
            else:
                kept.append(area)
    largest: dict[str, list[Area]] = {}
    for (device, _), areas in weights.items():
        if _taken(areas) >= _taken(largest.get(device, [])):
            largest[device] = areas
    return [*kept, *(area for areas in largest.values() for area in areas)]


def _taken(areas: Sequence[Area]) -> int:
    return sum(area.bytes * area.count for area in areas)
