"""Plans for traces with a placement chosen by the test, as records and as files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.launch_program import LoweredReplica
from tessera.ir.plan.plan import (
    PlacedStep,
    PlacedTrace,
    Plan,
    PlanCard,
    PlanDevice,
    PlannedTrace,
    Replica,
    memory_on,
)
from tessera.ir.plan.print_plan import print_plan
from tessera.ir.program import program as ir
from tessera.ir.program.print_trace import print_program
from tessera.ir.text_digest import text_digest
from tessera.planning.lower.lower_plan import lower_replica
from tests.helpers.served import graph_of

CAPACITY = 1 << 30
A100, H200 = ("a100-80g-sxm", "sm_80", 108), ("h200", "sm_90a", 132)
"""GPUs of plans: name, architecture, SMs."""


def plan_of(
    programs: Sequence[ir.Program],
    placements: Sequence[Sequence[str]],
    *,
    slots: int = 2,
    lanes: int = 2,
    shares: Sequence[float] | None = None,
    arch: str | None = None,
    contents: Sequence[bytes] = (),
    hosts: Mapping[str, str] | None = None,
    gpu: tuple[str, str, int] = A100,
) -> Plan:
    """A plan with one replica; every launch runs in the variant for `arch`, or the first."""
    read = [_read(print_program(program)) for program in programs]
    programs, graphs = [program for program, _ in read], [graph for _, graph in read]
    hosts = hosts or {}
    lowered = lower_replica(programs, graphs, placements, slots=slots, lanes=lanes, hosts=hosts)
    return Plan(
        objective="throughput",
        strategy="test",
        period_ns=1.0,
        latency_ns=1.0,
        usd_per_request=0.0,
        bound=1.0,
        gap=0.0,
        ended="gap",
        link="pcie4",
        machine_digest="0" * 64,
        options="plan{}",
        cards=tuple(
            PlanCard(
                name=name,
                gpu=gpu[0],
                arch=gpu[1],
                capacity_bytes=CAPACITY,
                used_bytes=lowered.memory_bytes(name),
                usd_per_hour=None,
                node=hosts.get(name, ""),
            )
            for name in lowered.devices
        ),
        devices=tuple(
            PlanDevice(name=name, card=name, sms=gpu[2], busy_ns=1.0) for name in lowered.devices
        ),
        traces=tuple(
            _planned(index, program, shares, contents) for index, program in enumerate(programs)
        ),
        replicas=(replica_of(programs, graphs, placements, lowered, arch),),
        baselines=(),
    )


@lru_cache(8)
def _read(text: str) -> tuple[ir.Program, KernelGraph]:
    """A trace and its graph: what a run sees has been through the text."""
    program = parse_trace(text, "trace.ptx")
    return program, graph_of(program)


def replica_of(
    programs: Sequence[ir.Program],
    graphs: Sequence[KernelGraph],
    placements: Sequence[Sequence[str] | None],
    lowered: LoweredReplica,
    arch: str | None = None,
    share: float = 1.0,
) -> Replica:
    return Replica(
        share=share,
        slots=lowered.slots,
        lanes=lowered.lanes,
        lowered=lowered,
        traces=tuple(
            PlacedTrace(trace=index, steps=_steps(program, graph, placed, arch), transfers=())
            for index, (program, graph, placed) in enumerate(
                zip(programs, graphs, placements, strict=True)
            )
            if placed is not None
        ),
    )


def plan_with_roles(
    programs: Sequence[ir.Program],
    placements: Sequence[Sequence[Sequence[str] | None]],
    shares: Sequence[Sequence[float]],
    *,
    slots: int = 1,
    lanes: int = 1,
    hosts: Mapping[str, str] | None = None,
) -> Plan:
    """A plan of traces with equal shares; each replica has its placements and shares of traces."""
    read = [_read(print_program(program)) for program in programs]
    programs, graphs = [program for program, _ in read], [graph for _, graph in read]
    traces = [1 / len(programs)] * len(programs)
    replicas = []
    for placed, own in zip(placements, shares, strict=True):
        lowered = lower_replica(
            programs, graphs, placed, slots=slots, lanes=lanes, hosts=hosts or {}
        )
        share = sum(part * of_trace for part, of_trace in zip(own, traces, strict=True))
        made = replica_of(programs, graphs, placed, lowered, share=share)
        replicas.append(replace(made, shares=tuple(own)))
    names = dict.fromkeys(d for replica in replicas for d in replica.lowered.devices)
    whole = plan_of(
        programs, [[next(iter(names))] * len(g.nodes) for g in graphs], shares=traces, hosts=hosts
    )
    return replace(
        whole,
        cards=tuple(
            replace(
                whole.cards[0],
                name=name,
                used_bytes=memory_on(replicas, name),
                node=(hosts or {}).get(name, ""),
            )
            for name in names
        ),
        devices=tuple(replace(whole.devices[0], name=name, card=name) for name in names),
        replicas=tuple(replicas),
    )


def _planned(
    index: int, program: ir.Program, shares: Sequence[float] | None, contents: Sequence[bytes]
) -> PlannedTrace:
    text = print_program(program)
    digest = hashlib.sha256(contents[index]).hexdigest() if index < len(contents) else ""
    share = 1.0 if shares is None else shares[index]
    return PlannedTrace(
        name=f"trace{index}",
        share=share,
        digest=text_digest(text),
        text=text,
        contents_digest=digest,
    )


def _steps(
    program: ir.Program, graph: KernelGraph, placed: Sequence[str], arch: str | None
) -> tuple[PlacedStep, ...]:
    found = []
    for step, device in zip(program.work(), placed, strict=True):
        chosen = ""
        if isinstance(step, ir.Launch):
            module = program.modules[step.module]
            chosen = (module.variant(arch or "") or module.variants[0]).arch
        name = graph.nodes[step.id].name
        found.append(
            PlacedStep(
                step=int(step.id),
                name=name,
                device=device,
                arch=chosen,
                predicted_ns=0.0,
                error=0.5,
                source="sheet",
            )
        )
    return tuple(found)


def write_plan(folder: Path, plan: Plan, name: str = "plan.tsp") -> str:
    path = folder / name
    path.write_text(print_plan(plan), "utf-8")
    return str(path)
