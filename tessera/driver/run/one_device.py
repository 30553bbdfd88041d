"""A trace of a plan as one device would run it: the reference for parts and twins.

In: an open plan and a trace that a replica serves. Out: the same trace with whole steps in the
place of parts, and one step in the place of twins. Parts stay where bytes need not be those of the
whole step: where devices run code for different architectures, and on GPUs library calls, whose
library may choose another kernel for a smaller call. There, the plan's own kernels are the
reference.
"""

from __future__ import annotations

from dataclasses import replace

from tessera.backend.service import Model, ServedTrace
from tessera.driver.run.open_plan import OpenPlan
from tessera.driver.traces import proved_kernels
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.division import Division, parts_of
from tessera.ir.program.program import LibraryCall, Program
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.dependences import Dependences
from tessera.passes.division.divide import divide


def model_of_one(opened: OpenPlan, model: Model, *, on_gpu: bool) -> Model:
    """The model with the traces of one device; its launch programs are still those of all."""
    return replace(
        model,
        traces=tuple(
            _of_one(served, opened.programs[number], opened.plan.traces[number].division, on_gpu)
            for number, served in enumerate(model.traces)
        ),
    )


def graphs_of_one(opened: OpenPlan, model: Model) -> tuple[KernelGraph, ...]:
    """The graphs of the traces of one device."""
    return tuple(
        AnalysisManager(served.program).get(Dependences).graph if trace.division else graph
        for served, trace, graph in zip(
            model.traces, opened.plan.traces, opened.graphs, strict=True
        )
    )


def _of_one(served: ServedTrace, divided: Program, division: Division, on_gpu: bool) -> ServedTrace:
    whole = divided.whole
    if whole is None or not served.arches:
        return served
    work = tuple(whole.work())
    arches: dict[int, list[str]] = {}
    for part in parts_of(len(work), division):
        arches.setdefault(part.origin, []).append(served.arches[part.step])
    kept = Division(
        tuple(
            cut
            for cut in division.cuts
            if len(set(arches[cut.step])) > 1
            or (on_gpu and isinstance(work[cut.step], LibraryCall))
        )
    )
    parts = parts_of(len(work), kept)
    return ServedTrace(
        name=served.name,
        program=proved_kernels(divide(whole, kept)),
        arches=tuple(arches[part.origin][part.index] for part in parts),
    )
