"""Writes hints about what captured launches compute into the trace.

In: a program. Out: the program with `work=` on launches that can compute only one thing, by the
shapes of the buffers that they read and write and by their counted work. Names are not used.
"""

from __future__ import annotations

from dataclasses import replace

from tessera.driver.analyses import remembering
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.dependences import Dependences
from tessera.planning.prices.count_work import launch_work
from tessera.planning.prices.merge_tables import used_buffers
from tessera.planning.prices.step_bytes import distinct_bytes
from tessera.planning.prices.work_shapes import found_hint, may_have_hint


def with_hints(program: ir.Program, analyses: AnalysisManager | None = None) -> ir.Program:
    """The program with hints on launches whose computation is known; other launches stay.

    `analyses` are those of a program with the same steps, whatever the roles of its buffers:
    launches are not followed again.
    """
    graph = (analyses or remembering(program)).get(Dependences).graph
    nodes = {node.id: node for node in graph.nodes}

    def hinted(step: ir.Step) -> ir.Step:
        if not isinstance(step, ir.Launch) or step.work is not None:
            return step
        read, written = used_buffers(program, nodes[step.id])
        if not may_have_hint(read, written):
            return step
        touched = float(distinct_bytes(graph, nodes[step.id]))
        counted = launch_work(program.modules[step.module].variants[0], step, touched)
        return replace(step, work=found_hint(counted, touched, read, written))

    return replace(program, steps=tuple(map(hinted, program.steps)))
