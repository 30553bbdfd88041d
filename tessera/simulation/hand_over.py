"""The time that a hand-over takes, by the rules of the simulator.

In: a `HandOver` and a `Hardware`. Out: nanoseconds, on devices and paths that nothing else uses. A
transfer goes by the path between its devices, or through the host if none joins them. A copy on one
device reads and writes its memory.
"""

from __future__ import annotations

from dataclasses import replace

from tessera.ir.plan.hand_over import HandOver
from tessera.ir.plan.launch_program import (
    HOST,
    DeviceProgram,
    LoweredTrace,
    Portion,
    Receive,
    Send,
    Transfer,
)
from tessera.ir.program.program import BufferId
from tessera.simulation.events import EventLoop
from tessera.simulation.hardware import Hardware, Path
from tessera.simulation.intake import Coming, SimulatedReplica
from tessera.simulation.work import request_work


def hand_over_ns(made: HandOver, hardware: Hardware) -> float:
    """Nanoseconds from the first byte that is read to the last one that is written."""
    moves = [own for own in made.transfers if own.source != own.target]
    local_ns: dict[str, float] = {}
    for own in made.transfers:
        if own.source == own.target:
            ns = 2 * own.size * hardware.fill_ns_per_byte.get(own.source, 0.0)
            local_ns[own.source] = local_ns.get(own.source, 0.0) + ns
    paths = dict(hardware.paths)
    for own in moves:
        pair = own.source, own.target
        if pair not in paths:
            out, into = paths[own.source, HOST], paths[HOST, own.target]
            paths[pair] = _through_host(out, into)
    numbers = frozenset(int(own.id) for own in moves)
    lowered = LoweredTrace(
        trace=0,
        transfers=tuple(
            Transfer(
                id=own.id,
                source=own.source,
                target=own.target,
                portions=(Portion(BufferId(0), ((0, own.size),)),),
            )
            for own in moves
        ),
        programs=tuple(_without_local(program, numbers) for program in made.programs),
    )
    work = request_work(lowered, [], replace(hardware, paths=paths, host_call_ns=0.0), 1)
    coming = iter((Coming(0.0, 0, 0),))
    replica = SimulatedReplica(work={0: work}, slots=1, sequences=1, depth=1, coming=coming)
    loop = EventLoop([replica], hardware.capacities, hardware.neighbours)
    loop.run()
    return max(loop.traffic().ended_ns, *local_ns.values(), 0.0)


def _through_host(out: Path, into: Path) -> Path:
    """Bytes that land in memory of the host, and leave from there."""
    return Path(
        bytes_per_second=1 / (1 / out.bytes_per_second + 1 / into.bytes_per_second),
        latency_ns=out.latency_ns + into.latency_ns,
        shares=(*out.shares, *into.shares),
        tax_ns=max(out.tax_ns, into.tax_ns),
    )


def _without_local(program: DeviceProgram, transfers: frozenset[int]) -> DeviceProgram:
    kept = (
        queued
        for queued in program.operations
        if isinstance(queued.operation, Send | Receive) and queued.operation.transfer in transfers
    )
    return replace(program, operations=tuple(kept))
