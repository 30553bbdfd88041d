"""Checks the memory that policies share.

In: all replicas of a plan, with their policies. Out: findings, and the areas that count.

One policy serves at a time, and a run may switch policies without loading weights again. So all
policies have the same layout of weights on a device, and weights count once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tessera.ir.plan.launch_program import Area, AreaKind
from tessera.ir.plan.plan import Replica
from tessera.ir.program.program import Program
from tessera.passes.checker.findings import Findings
from tessera.passes.checker.memory import place_text


def check_layouts(
    replicas: Sequence[Replica], programs: Sequence[Program], findings: Findings
) -> None:
    """Check that a weight is in the same place in every policy, and that nothing else is there."""
    if len({replica.policy for replica in replicas}) < 2:
        return
    layouts: dict[str, dict[str, tuple[int, int]]] = {}
    bases: dict[tuple[str, str], int] = {}
    for replica in replicas:
        for place in replica.lowered.places:
            if place.kind is not AreaKind.WEIGHTS or not 0 <= place.trace < len(programs):
                continue
            buffers = programs[place.trace].buffers
            if not 0 <= place.buffer < len(buffers):
                continue  # reported by `check_memory`
            weight = buffers[place.buffer]
            layout = layouts.setdefault(place.device, {})
            own = place.taken(weight.bytes)
            known = layout.setdefault(weight.name, own)
            base = bases.setdefault((place.device, weight.name), place.base)
            if (known, base) != (own, place.base):
                findings.add(
                    "TSR4009",
                    f"policies share `{weight.name}` on `{place.device}` and do not have it in one "
                    "place",
                    f"{place_text(known, base)}, and {place_text(own, place.base)}",
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
    """The areas of all replicas; with several policies, the largest weight area per device."""
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
