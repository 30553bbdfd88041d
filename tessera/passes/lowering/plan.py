"""From placements to launch programs: what moves, where it lies, and what waits for what.

In: the programs and graphs of a replica's traces and the device of each step. Out: a
`LoweredReplica`. The same input gives the same records. `passes.checker.check_plan` judges the
result without this code.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from tessera.ir.arrays import Ranges as Array
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.launch_program import Bytes, Home, LoweredReplica, LoweredTrace, Transfer
from tessera.ir.program import program as ir
from tessera.passes.byte_sets import intervals
from tessera.passes.dependences.pointer_words import moved_words
from tessera.passes.lowering.moves import StepBytes, find_actions
from tessera.passes.lowering.places import TraceUse, find_places
from tessera.passes.lowering.queues import find_queues
from tessera.passes.lowering.waits import prune_waits

_PERSISTENT = (ir.Role.STATE, ir.Role.VARIABLE)


def lower_replica(
    programs: Sequence[ir.Program],
    graphs: Sequence[KernelGraph],
    placements: Sequence[Sequence[str]],
    *,
    slots: int,
    lanes: int,
    roomy: Collection[str] = (),
) -> LoweredReplica:
    """The launch programs for a device per step of every trace.

    Traces share the weights and states of equal name. Where a launch may write a module variable,
    or addresses in a state, requests run one after the other: the result has one slot, whatever
    `slots` says. On `roomy` devices buffers share bytes only where no queue waits because of it;
    on others wherever they can.
    """
    devices = tuple(dict.fromkeys(device for steps in placements for device in steps))
    steps = [StepBytes(graph) for graph in graphs]
    written = [_written(bytes_of_steps) for bytes_of_steps in steps]
    homes = tuple(_homes(programs, placements, written))
    pairs = zip(programs, graphs, strict=True)
    if any(map(_writes_variable, programs, written)) or any(any(moved_words(*p)) for p in pairs):
        slots = 1
    uses = []
    for trace, (program, bytes_of_steps) in enumerate(zip(programs, steps, strict=True)):
        own = _of_trace(trace, homes)
        actions = find_actions(program, bytes_of_steps, placements[trace], devices, own)
        uses.append(TraceUse(program, bytes_of_steps, actions))
    areas, places = find_places(uses, homes, slots=slots, lanes=lanes, roomy=roomy)
    sizes = {(area.device, area.kind): area.bytes for area in areas}
    traces = []
    for trace, use in enumerate(uses):
        mine = [place for place in places if place.trace == trace]
        transfers = tuple(a.what for a in use.actions if isinstance(a.what, Transfer))
        made = tuple(find_queues(use, mine, devices, sizes))
        programs_of = tuple(prune_waits(made, transfers))
        traces.append(LoweredTrace(trace=trace, transfers=transfers, programs=programs_of))
    return LoweredReplica(
        devices=devices,
        slots=slots,
        lanes=lanes,
        areas=areas,
        places=places,
        homes=homes,
        traces=tuple(traces),
    )


def _written(steps: StepBytes) -> list[dict[int, Array]]:
    """Per step the bytes that it may write, of every buffer."""
    return [
        {b: touched.writes for b, touched in steps.of(node.id).items() if len(touched.writes)}
        for node in steps.graph.nodes
    ]


def _writes_variable(program: ir.Program, written: list[dict[int, Array]]) -> bool:
    return any(
        program.buffers[buffer].role is ir.Role.VARIABLE for step in written for buffer in step
    )


def _homes(
    programs: Sequence[ir.Program],
    placements: Sequence[Sequence[str]],
    written: Sequence[list[dict[int, Array]]],
) -> Iterator[Home]:
    """Written bytes of what persists live where the first trace that writes them writes last.

    A state of one name is one in all traces; a variable belongs to its trace.
    """
    taken: dict[object, Array] = {}
    homes: dict[object, list[tuple[str, Array]]] = {}
    for trace, program in enumerate(programs):
        fresh: dict[object, Array] = {}
        for step in reversed(range(len(written[trace]))):
            for buffer, writes in written[trace][step].items():
                key = _key(program, trace, buffer)
                if key is None:
                    continue
                seen = [part for part in (taken.get(key), fresh.get(key)) if part is not None]
                rest = intervals.subtract(writes, intervals.union(seen))
                if len(rest):
                    homes.setdefault(key, []).append((placements[trace][step], rest))
                    fresh[key] = intervals.union([*seen, rest])
        taken |= fresh
    for trace, program in enumerate(programs):
        for kept in program.buffers:
            parts = homes.get(_key(program, trace, kept.id), ())
            by_device: dict[str, list[Array]] = {}
            for device, rest in parts:
                by_device.setdefault(device, []).append(rest)
            for device, pieces in by_device.items():
                whole = intervals.pairs(intervals.union(pieces))
                yield Home(trace=trace, buffer=kept.id, device=device, bytes=whole)


def _key(program: ir.Program, trace: int, buffer: int) -> object:
    kept = program.buffers[buffer]
    if kept.role not in _PERSISTENT:
        return None
    return kept.name if kept.role is ir.Role.STATE else (trace, kept.name)


def _of_trace(trace: int, homes: Sequence[Home]) -> dict[int, list[tuple[str, Bytes]]]:
    own: dict[int, list[tuple[str, Bytes]]] = {}
    for home in homes:
        if home.trace == trace:
            own.setdefault(int(home.buffer), []).append((home.device, home.bytes))
    return own
