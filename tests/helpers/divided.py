"""Random divisions of a trace: cuts with random shares, twins, devices; run against one device.

A trial divides a trace at random among what is legal, puts every part and twin on a device, makes
launch programs, has the checker prove them, and runs requests on the CPU backend, with operations
in a random order. Outputs and states are those of the whole trace on one device, to the byte.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tessera.backend.host_loop.dispatch import Dispatcher
from tessera.backend.processes.inline import InlineBackend
from tessera.backend.processes.reference import Expected, Reference
from tessera.backend.service import Bytes, Model, ServedTrace
from tessera.driver.analyses import analysis_manager
from tessera.driver.load import load
from tessera.driver.traces import proved_kernels
from tessera.frontend.contents.open_contents import open_contents
from tessera.ir.plan.division import Division
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.checker.check_plan import check_replica
from tessera.passes.checker.division import check_division
from tessera.passes.checker.findings import Findings
from tessera.passes.dependences.dependences import Dependences
from tessera.passes.division.divide import divide
from tessera.planning.lower.lower_plan import lower_replica
from tests.helpers.random_divisions import random_devices, random_division


@dataclass(frozen=True)
class Trial:
    """One plan: how the trace was divided, and what went between devices."""

    division: Division
    devices: int
    parts: int
    sent_bytes: int


@dataclass
class DividedTrace:
    """A trace with contents, and what one device makes of it."""

    manager: AnalysisManager
    contents: Mapping[str, Bytes]
    requests: int = 2
    _wanted: dict[int, list[Expected]] = field(default_factory=dict)

    @property
    def program(self) -> ir.Program:
        return self.manager.program

    def of(self, *roles: ir.Role) -> dict[str, Bytes]:
        return {
            b.name: self.contents[b.name].reshape(-1).view(np.uint8)
            for b in self.program.declared_buffers()
            if b.role in roles
        }

    def wanted(self, variant: int) -> list[Expected]:
        """The requests on one device, by the code of one variant of every module."""
        if variant not in self._wanted:
            traces = (self.served(self.program, variant),)
            weights, states = self.of(ir.Role.WEIGHT), [self.of(ir.Role.STATE)]
            reference = Reference(traces, weights, states, [self.filling()])
            inputs = self.of(ir.Role.INPUT)
            self._wanted[variant] = [reference.run(inputs) for _ in range(self.requests)]
        return self._wanted[variant]

    def filling(self) -> dict[str, Bytes]:
        """Outputs begin with zeros: what no step writes is equal."""
        outputs = (b for b in self.program.declared_buffers() if b.role is ir.Role.OUTPUT)
        return {b.name: np.zeros(b.bytes, np.uint8) for b in outputs}

    def served(self, program: ir.Program, variant: int) -> ServedTrace:
        arches = []
        for work in program.work():
            variants = program.modules[work.module].variants if isinstance(work, ir.Launch) else ()
            arches.append(variants[variant % len(variants)].arch if variants else "")
        return ServedTrace(name="trace", program=program, arches=tuple(arches))

    # --- a trial -----------------------------------------------------------------------------

    def trial(self, seed: int, names: Sequence[str]) -> Trial:
        """A random plan on these devices, proved and run."""
        rng = random.Random(seed)
        division = random_division(self.manager, rng, len(names))
        divided = divide(self.program, division)
        graph = AnalysisManager(divided).get(Dependences).graph
        placement = random_devices(divided, rng, names)
        lowered = lower_replica([divided], [graph], [placement], slots=rng.choice((1, 2)), lanes=1)
        findings = Findings()
        check_division(divided, graph, division, findings)
        wrong = (*findings.result(), *check_replica(lowered, [divided], [graph], [placement]))
        assert not wrong, [str(finding.headline) for finding in wrong[:3]]
        variant = rng.randrange(2)
        model = Model(
            lowered=lowered,
            traces=(self.served(proved_kernels(divided), variant),),
            weights=self.of(ir.Role.WEIGHT),
            states=[self.of(ir.Role.STATE)],
            fillings=[self.filling()],
        )
        self._compare(model, variant, rng)
        sent = sum(move.size for move in lowered.traces[0].transfers)
        return Trial(division, len(set(placement)), len(placement), sent)

    def _compare(self, model: Model, variant: int, rng: random.Random) -> None:
        inputs = self.of(ir.Role.INPUT)
        backend = InlineBackend(model, seed=rng.randrange(1 << 30))
        dispatcher = Dispatcher(backend, slots=model.lowered.slots, lanes=1)
        try:
            futures = [dispatcher.submit(inputs, trace=0, lane=0) for _ in range(self.requests)]
            done = [future.result(3600) for future in futures]
            states = dispatcher.read_states(0)
        finally:
            dispatcher.close(wait=False)
        for want, got in zip(self.wanted(variant), done, strict=True):
            assert want.outputs.keys() == got.outputs.keys()
            for name, content in want.outputs.items():
                assert np.array_equal(got.outputs[name], content), name
        for name, content in self.wanted(variant)[-1].states.items():
            assert np.array_equal(states[name], content), name


def divided_trace(path: Path, requests: int) -> DividedTrace:
    """A trace with the contents beside it."""
    program = load(path)
    manager = analysis_manager(program, str(path.parent))
    with open_contents(program, path.parent, seed=0) as contents:
        given = {b.name: np.array(contents.read(b)) for b in program.declared_buffers()}
    return DividedTrace(manager, given, requests)
