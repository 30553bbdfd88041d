"""The plan that is sent to a device: its text, and the contents that the device holds.

In: an open plan, on the driver; a record and its bytes, on a host. Out: the record; a `Model` that
was proved again on that host. A plan from any source runs no code of its own there: it is text, and
is read, analysed and proved as by `tessc check`. The contents of weights that accesses depend on
are sent with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from tessera.backend.hosts.messages import OwnWeight, PlanPart
from tessera.backend.service import Bytes, Model, served_traces
from tessera.diagnostics import TesseraError
from tessera.driver.hosts.host_contents import digest_of, own_contents
from tessera.driver.traces import proved_kernels, read_planned
from tessera.frontend.plan.tsp import parse_plan
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.hosts import HostEntry
from tessera.ir.plan.plan import Plan, PlannedTrace
from tessera.ir.plan.print_plan import print_plan
from tessera.ir.program.program import BufferId, KnownContents, Program
from tessera.ir.program.seeded import LazyContents, Seeded
from tessera.passes.base import AnalysisManager
from tessera.passes.checker.check_plan import check_plan
from tessera.passes.dependences.dependences import Dependences

_KEPT = 32


class SentPlan:
    """A plan to be sent; its text is made once."""

    def __init__(
        self,
        plan: Plan,
        programs: Sequence[Program],
        graphs: Sequence[KernelGraph],
        weights: LazyContents,
        host_of: Mapping[str, HostEntry],
    ) -> None:
        self._weights = weights
        self._host_of = host_of
        self._digests: dict[tuple[str, int, int], str] = {}
        self._text = np.frombuffer(print_plan(plan).encode(), np.uint8)
        self._replicas = [id(replica.lowered) for replica in plan.replicas]
        self._known: list[tuple[int, int, str]] = []
        self._contents: list[Bytes] = []
        for trace, (program, graph) in enumerate(zip(programs, graphs, strict=True)):
            for known in graph.contents:
                self._known.append((trace, int(known.buffer), known.sha256))
                self._contents.append(weights[program.buffers[known.buffer].name])

    def describe(self, part: Model, device: str) -> tuple[PlanPart, list[Bytes]]:
        """The message for a device with this part of the model, and the message's parts."""
        path = self._host_of[device].contents
        own = [n for n in sorted(part.weights) if path and self._is_from_file(n)]
        described = PlanPart(
            replica=self._replicas.index(id(part.lowered)),
            known=tuple(self._known),
            weights=tuple(name for name in sorted(part.weights) if name not in own),
            path=path,
            own=tuple(self._own(part, name) for name in own),
            firsts=dict(part.firsts),
            states=tuple(tuple(sorted(lane)) for lane in part.states),
            fillings=tuple(tuple(sorted(given)) for given in part.fillings),
        )
        parts = [self._text, *self._contents]
        parts += [part.weights[name] for name in described.weights]
        for contents in (*part.states, *part.fillings):
            parts += [contents[name] for name in sorted(contents)]
        return described, parts

    def _is_from_file(self, name: str) -> bool:
        """Whether a weight comes from a file; no host has a file of a seeded weight."""
        return not isinstance(self._weights.source(name), Seeded)

    def _own(self, part: Model, name: str) -> OwnWeight:
        first = part.firsts.get(name, 0)
        key = name, first, first + part.weights[name].nbytes
        if key not in self._digests:
            self._digests[key] = digest_of(part.weights[name])
        return OwnWeight(name, self._digests[key], *key[1:])


def received_model(part: PlanPart, host: str, parts: list[Bytes]) -> Model:
    """The model sent to a host, once its plan is proved; raises `TesseraError` otherwise."""
    coming = iter(parts)
    plan = parse_plan(next(coming).tobytes().decode())
    known = [
        (trace, KnownContents(BufferId(buffer), next(coming).tobytes(), sha256))
        for trace, buffer, sha256 in part.known
    ]
    analysed = [
        _analysed(trace, tuple(content for index, content in known if index == number))
        for number, trace in enumerate(plan.traces)
    ]
    programs = tuple(program for program, _ in analysed)
    graphs = [graph for _, graph in analysed]
    wrong = check_plan(plan, programs, graphs)
    if wrong:
        raise TesseraError(wrong)
    replica = plan.replicas[part.replica]
    return Model(
        lowered=replica.lowered,
        traces=served_traces(plan, replica, [*map(proved_kernels, programs)], graphs),
        weights=_named(part.weights, coming) | own_contents(host, part.path, part.own, programs),
        states=[_named(names, coming) for names in part.states],
        fillings=[_named(names, coming) for names in part.fillings],
        firsts=part.firsts,
    )


@lru_cache(_KEPT)
def _analysed(trace: PlannedTrace, known: tuple[KnownContents, ...]) -> tuple[Program, KernelGraph]:
    """An analysed trace, remembered for later plans of this process."""
    program, _ = read_planned(trace, "plan")
    program = replace(program, known=known)
    return program, AnalysisManager(program).get(Dependences).graph


def _named(names: Sequence[str], coming: Iterator[Bytes]) -> dict[str, Bytes]:
    return {name: next(coming) for name in names}
