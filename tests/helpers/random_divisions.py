"""Random divisions of traces, and random devices for their parts and twins."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tessera.ir.plan.division import Cut, Division, Twin
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.dependences import Dependences
from tessera.passes.division.legal_cuts import CutAxis, LegalCuts, for_every_arch, why_not
from tessera.passes.division.twins import TwinRules


def random_division(manager: AnalysisManager, rng: random.Random, devices: int) -> Division:
    """About every second step that can be cut is, and half of the others have twins."""
    rules = TwinRules(manager.program, manager.get(Dependences).graph)
    cuts: list[Cut] = []
    twins: list[Twin] = []
    for step in manager.get(LegalCuts).steps:
        drawn = rng.random()
        made: tuple[Cut, ...] = ()
        if step.axes and drawn < 0.6:
            axis = rng.choice(step.axes)
            edges = _edges(axis, rng, rng.randint(2, devices))
            of_every_arch = for_every_arch(
                manager, Cut(step=step.step, axis=axis.axis, edges=edges)
            )
            if isinstance(of_every_arch, tuple) and why_not(manager, *of_every_arch) is None:
                made = of_every_arch
        cuts += made
        if not made and drawn < 0.8 and rules.why_not(step.step) is None:
            twins.append(Twin(step.step, rng.randint(2, devices)))
    return Division(tuple(cuts), tuple(twins))


def _edges(axis: CutAxis, rng: random.Random, parts: int) -> tuple[int, ...]:
    places = range(axis.multiple, axis.extent, axis.multiple)
    return (0, *sorted(rng.sample(places, min(parts - 1, len(places)))), axis.extent)


def random_devices(
    divided: ir.Program, rng: random.Random, devices: Sequence[str]
) -> tuple[str, ...]:
    """A device for each step; twins are on different ones."""
    placed: list[str] = []
    for group in ir.grouped(sum(1 for _ in divided.work()), divided.twins):
        placed += rng.sample(devices, len(group))
    return tuple(placed)
