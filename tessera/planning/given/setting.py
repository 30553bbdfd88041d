"""The subject of planning: traces with their graphs, a machine, durations and options.

In: values. Out: the records that every stage of planning receives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tessera.diagnostics import Diagnostic
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.costs import Costs, Profile
from tessera.ir.plan.division import Division
from tessera.ir.plan.machine import Machine
from tessera.ir.plan.plan import PlannedTrace
from tessera.ir.program.program import Program
from tessera.passes.base import AnalysisManager
from tessera.planning.given.options import PlanOptions
from tessera.planning.lower.lower_plan import Lowering
from tessera.planning.problem.plan_problem import Planning


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTrace:
    """A trace with its analyses and graph; its contents are read from `folder`."""

    planned: PlannedTrace
    folder: str
    manager: AnalysisManager
    graph: KernelGraph
    diagnostics: tuple[Diagnostic, ...]

    @property
    def program(self) -> Program:
        """The program of the trace."""
        return self.manager.program


class KnownPlacements:
    """Placements that a search has found for some traces on some devices, whatever the slots."""

    def __init__(self) -> None:
        self.of: dict[tuple[tuple[int, ...], tuple[str, ...]], tuple[int, ...]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSetting:
    """Everything known before the search begins. `lowering` is that of the traces.

    `known` is filled by searches, and spares later ones the same work.
    """

    traces: tuple[LoadedTrace, ...]
    machine: Machine
    costs: tuple[Costs, ...]
    options: PlanOptions
    lowering: Lowering
    profiles: tuple[Profile, ...] = ()
    known: KnownPlacements = field(default_factory=KnownPlacements, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class AskedDivision:
    """How the user wants a trace to be divided, and the GPUs of some steps of the divided trace.

    `gpus` are pairs of a step and names of GPUs, one of which is to do it.
    """

    division: Division
    gpus: tuple[tuple[int, str], ...] = ()


def lowering_of(traces: Sequence[LoadedTrace]) -> Lowering:
    """The `Lowering` of these traces."""
    return Lowering([trace.program for trace in traces], [trace.graph for trace in traces])


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Numbers of slots and sequences, and the resulting problem.

    `least_ns` bounds the period for any such numbers, if known.
    """

    slots: int
    lanes: int
    planning: Planning
    least_ns: float | None = None
