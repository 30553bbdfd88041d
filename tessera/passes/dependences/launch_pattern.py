"""Launches that differ in nothing but the buffers they get.

In: a launch with the settings of its variants. Out: its buffers in order of appearance, and a key
that is equal for launches of one kernel whose accesses are the same up to these buffers. The key
holds the scenes, the sizes and roles of the buffers, and which zones share one, so that buffers
of equal launches correspond one to one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tessera.ir.graph.access import Access
from tessera.ir.program import program as ir
from tessera.passes.dependences.launch_report import StepAccesses
from tessera.passes.dependences.launch_scene import LaunchSetting

Buffers = tuple[ir.BufferId, ...]


def launch_pattern(
    program: ir.Program, launch: ir.Launch, settings: Sequence[LaunchSetting]
) -> tuple[Buffers, tuple[object, ...]]:
    """The buffers of a launch, and what makes its accesses equal to those of another."""
    order: dict[ir.BufferId, int] = {}
    zones: list[object] = []
    for setting in settings:
        zones.append(setting.key)
        for zone, buffer in setting.buffers.items():
            place = order.setdefault(buffer, len(order))
            zones.append((zone, place, setting.offsets.get(zone, 0)))
        for zone, targets in setting.targets.items():
            places = tuple(order.setdefault(buffer, len(order)) for buffer in targets)
            zones.append((zone, places))
    kinds = tuple((program.buffers[b].bytes, program.buffers[b].role) for b in order)
    asks = (launch.cooperative, launch.cluster)
    return tuple(order), (asks, tuple(zones), kinds)


@dataclass(frozen=True, slots=True)
class PatternContents:
    """Which of its buffers decided what a launch touches, and which could if they were known."""

    looked_up: tuple[int, ...] = ()
    asked: tuple[int, ...] = ()


@dataclass(slots=True)
class Pattern:
    """The accesses of the first launch of a pattern; those of the others by their buffers."""

    first: StepAccesses
    buffers: Buffers
    contents: PatternContents = PatternContents()
    _known: dict[Buffers, tuple[Access, ...]] = field(default_factory=dict)

    def report(self, step: ir.LaunchId, buffers: Buffers) -> StepAccesses:
        """The accesses of another launch of this pattern."""
        if buffers == self.buffers:
            return replace(self.first, id=step)
        accesses = self._known.get(buffers)
        if accesses is None:
            new = dict(zip(self.buffers, buffers, strict=True))
            accesses = tuple(_moved(access, new[access.buffer]) for access in self.first.accesses)
            self._known[buffers] = accesses
        return replace(self.first, id=step, accesses=accesses)


def _moved(access: Access, buffer: ir.BufferId) -> Access:
    return Access(
        buffer=buffer,
        kind=access.kind,
        certainty=access.certainty,
        address=access.address,
        region=access.region,
        text=access.text,
        span=access.span,
    )
