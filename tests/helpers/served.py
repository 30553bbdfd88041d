"""Models from a program and a placement, and requests through a backend and on one device."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tessera.backend.host_loop.dispatch import Dispatcher
from tessera.backend.processes.reference import Expected, Reference
from tessera.backend.service import Backend, Bytes, Completion, Model, ServedTrace
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.program import program as ir
from tessera.ir.program.seeded import seeded_bytes
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.dependences import Dependences
from tessera.planning.lower.lower_plan import lower_replica

_SCRATCH = (ir.Role.OUTPUT, ir.Role.TEMP)


def graph_of(program: ir.Program) -> KernelGraph:
    return AnalysisManager(program).get(Dependences).graph


def served(program: ir.Program, name: str = "trace") -> ServedTrace:
    """Every launch in the first variant of its module."""
    arches = tuple(
        program.modules[step.module].variants[0].arch if isinstance(step, ir.Launch) else ""
        for step in program.work()
    )
    return ServedTrace(name=name, program=program, arches=arches)


def contents(program: ir.Program, role: ir.Role, seed: int) -> dict[str, Bytes]:
    return {b.name: _content(b, seed) for b in program.buffers if b.role is role}


def _content(buffer: ir.Buffer, seed: int) -> Bytes:
    """Seeded floats as in a run; integers are random here, so that they tell requests apart."""
    found = seeded_bytes(buffer, seed)
    if found.any() or not buffer.bytes:
        return found
    key = [seed, *buffer.name.encode()]
    words = np.random.default_rng(key).integers(0, 1 << 16, -(-buffer.bytes // 4), dtype=np.uint32)
    return words.view(np.uint8)[: buffer.bytes]


def model_of(
    programs: Sequence[ir.Program],
    placements: Sequence[Sequence[str]],
    *,
    slots: int = 2,
    lanes: int = 1,
    graphs: Sequence[KernelGraph] | None = None,
    filled: bool = False,
    roomy: Collection[str] = (),
    hosts: Mapping[str, str] | None = None,
) -> Model:
    """A model with seeded contents; traces share weights and states by name.

    `filled` gives contents to outputs and temps too, which begin as poison otherwise. `roomy`
    devices have memory left. `hosts` names the host of each device.
    """
    graphs = graphs or [graph_of(program) for program in programs]
    states = []
    for lane in range(lanes):
        states.append({n: c for p in programs for n, c in contents(p, ir.Role.STATE, lane).items()})
    return Model(
        lowered=lower_replica(
            programs,
            graphs,
            placements,
            slots=slots,
            lanes=lanes,
            roomy=roomy,
            hosts=hosts or {},
        ),
        traces=tuple(served(program, f"trace{i}") for i, program in enumerate(programs)),
        weights={n: c for p in programs for n, c in contents(p, ir.Role.WEIGHT, 0).items()},
        states=states,
        fillings=[
            {n: c for role in _SCRATCH for n, c in contents(p, role, 5).items()} if filled else {}
            for p in programs
        ],
    )


@dataclass(frozen=True, slots=True)
class Ask:
    """A request: which trace, in which lane, with inputs from which seed."""

    seed: int
    trace: int = 0
    lane: int = 0


def inputs_of(model: Model, ask: Ask) -> dict[str, Bytes]:
    return contents(model.traces[ask.trace].program, ir.Role.INPUT, 1000 + ask.seed)


def expected(model: Model, asks: Sequence[Ask]) -> list[Expected]:
    """The requests on one device, in order."""
    reference = Reference(model.traces, model.weights, model.states, model.fillings)
    return [reference.run(inputs_of(model, a), trace=a.trace, lane=a.lane) for a in asks]


def serve(
    backend: Backend,
    model: Model,
    asks: Sequence[Ask],
    at_end: Callable[[], None] = lambda: None,
) -> tuple[list[Completion], list[Mapping[str, Bytes]]]:
    """The requests through the host loop; the states of every lane at the end.

    `at_end` looks at the backend when all requests are done, before it is closed.
    """
    dispatcher = Dispatcher(backend, slots=model.lowered.slots, lanes=model.lowered.lanes)
    try:
        futures = [
            dispatcher.submit(inputs_of(model, ask), trace=ask.trace, lane=ask.lane) for ask in asks
        ]
        done = [future.result(300) for future in futures]
        states = [dispatcher.read_states(lane) for lane in range(model.lowered.lanes)]
        at_end()
        return done, states
    finally:
        dispatcher.close(wait=False)


def assert_equal(
    model: Model,
    asks: Sequence[Ask],
    wanted: Sequence[Expected],
    done: Sequence[Completion],
    states: Sequence[Mapping[str, Bytes]],
) -> None:
    """Every output and state is equal to the byte."""
    for ask, want, got in zip(asks, wanted, done, strict=True):
        assert want.outputs.keys() == got.outputs.keys()
        for name, content in want.outputs.items():
            np.testing.assert_array_equal(got.outputs[name], content, f"{ask}, {name}")
    last = {ask.lane: want.states for ask, want in zip(asks, wanted, strict=True)}
    for lane, want in last.items():
        for name, content in want.items():
            np.testing.assert_array_equal(states[lane][name], content, f"lane {lane}, {name}")
