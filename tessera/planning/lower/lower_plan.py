"""From placements to launch programs: transfers, memory layout, and order between queues.

In: the programs and graphs of a replica's traces and the device of each step. Out: a
`LoweredReplica`. The same input gives the same records. `passes.checker.check_plan` checks the
result independently of this code.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TypeVar

from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.launch_program import (
    HOST,
    Area,
    Home,
    LoweredReplica,
    LoweredTrace,
    Place,
    Transfer,
    with_area_counts,
)
from tessera.ir.program import program as ir
from tessera.planning.lower.grains import Grains, TraceBytes, trace_bytes
from tessera.planning.lower.moves import find_actions
from tessera.planning.lower.places import TraceUse, find_places
from tessera.planning.lower.puts import put_between_hosts
from tessera.planning.lower.queues import find_queues
from tessera.planning.lower.waits import prune_waits

_PERSISTENT = (ir.Role.STATE, ir.Role.VARIABLE)
_OfTrace = TypeVar("_OfTrace", Place, Home, LoweredTrace)
_Placements = tuple[tuple[str, ...], ...]


def lower_replica(
    programs: Sequence[ir.Program],
    graphs: Sequence[KernelGraph],
    placements: Sequence[Sequence[str] | None],
    *,
    slots: int,
    lanes: int,
    roomy: Collection[str] = (),
    hosts: Mapping[str, str] = MappingProxyType({}),
) -> LoweredReplica:
    """The launch programs for a device per step of every trace: see `Lowering.lower`."""
    lowering = Lowering(programs, graphs)
    return lowering.lower(placements, slots=slots, lanes=lanes, roomy=roomy, hosts=hosts)


class Lowering:
    """Lowering of some traces with several placements; shared work is done once."""

    def __init__(self, programs: Sequence[ir.Program], graphs: Sequence[KernelGraph]) -> None:
        self._programs = tuple(programs)
        self._graphs = tuple(graphs)
        self._traces: tuple[TraceBytes, ...] = ()
        self._runs_alone = False
        self._host_bytes: tuple[tuple[int, int], ...] | None = None
        self._moves: dict[_Placements, tuple[tuple[Home, ...], list[TraceUse]]] = {}
        self._layouts: dict[object, tuple[tuple[Area, ...], tuple[Place, ...]]] = {}
        self._roles: dict[tuple[int, ...], Lowering] = {}

    def lower(
        self,
        placements: Sequence[Sequence[str] | None],
        *,
        slots: int,
        lanes: int,
        roomy: Collection[str] = (),
        hosts: Mapping[str, str] = MappingProxyType({}),
    ) -> LoweredReplica:
        """The launch programs for a device per step of every trace.

        Traces share the weights and states of equal name. If a launch may write a module variable,
        or addresses in a state, requests run one after the other: the result has one slot, whatever
        `slots` is. On `roomy` devices buffers share bytes only where no queue waits because of it;
        on others wherever they can. `hosts` names the host of each device: between two of them
        bytes are put into landings. A trace without a placement is not served: nothing is there for
        it, and the states are those of the others.
        """
        known = tuple(number for number, steps in enumerate(placements) if steps is not None)
        steps_of = [steps for steps in placements if steps is not None]
        if len(known) < len(self._programs):
            role = self.role(known).lower(
                steps_of, slots=slots, lanes=lanes, roomy=roomy, hosts=hosts
            )
            return replace(
                role,
                places=_renumbered(role.places, known),
                homes=_renumbered(role.homes, known),
                traces=_renumbered(role.traces, known),
            )
        homes, uses = self._moves_of(tuple(map(tuple, steps_of)))
        devices = tuple(dict.fromkeys(device for steps in steps_of for device in steps))
        slots = 1 if self._runs_alone else slots
        areas, places = self._layout(steps_of, roomy)
        areas = with_area_counts(areas, slots, lanes)
        traces = []
        for trace, use in enumerate(uses):
            mine = [place for place in places if place.trace == trace]
            transfers = tuple(a.what for a in use.actions if isinstance(a.what, Transfer))
            made = tuple(find_queues(use, mine, devices))
            programs_of = tuple(prune_waits(made, transfers))
            traces.append(LoweredTrace(trace=trace, transfers=transfers, programs=programs_of))
        with_puts, landings = put_between_hosts(traces, hosts)
        return LoweredReplica(
            devices=devices,
            slots=slots,
            lanes=lanes,
            areas=areas,
            places=places,
            homes=homes,
            traces=with_puts,
            landings=landings,
        )

    def areas(
        self, placements: Sequence[Sequence[str] | None], roomy: Collection[str] = ()
    ) -> tuple[Area, ...]:
        """The areas that `lower` would give, for one slot and one sequence."""
        known = tuple(number for number, steps in enumerate(placements) if steps is not None)
        steps_of = [steps for steps in placements if steps is not None]
        if len(known) < len(self._programs):
            return self.role(known).areas(steps_of, roomy)
        return self._layout(steps_of, roomy)[0]

    def role(self, traces: tuple[int, ...]) -> Lowering:
        """The lowering of some of the traces."""
        if traces not in self._roles:
            self._roles[traces] = Lowering(
                [self._programs[trace] for trace in traces],
                [self._graphs[trace] for trace in traces],
            )
        return self._roles[traces]

    @property
    def runs_alone(self) -> bool:
        """Whether requests run one after the other."""
        self._read()
        return self._runs_alone

    def _layout(
        self, placements: Sequence[Sequence[str]], roomy: Collection[str]
    ) -> tuple[tuple[Area, ...], tuple[Place, ...]]:
        """The places of all buffers; more slots and sequences repeat the areas."""
        placed = tuple(map(tuple, placements))
        used = frozenset(device for steps in placed for device in steps)
        key = placed, used.intersection(roomy)
        if key not in self._layouts:
            homes, uses = self._moves_of(placed)
            self._layouts[key] = find_places(uses, homes, roomy=key[1])
        return self._layouts[key]

    def host_bytes(self) -> tuple[tuple[int, int], ...]:
        """Bytes from and to the host per trace; no placement moves fewer."""
        if self._host_bytes is None:
            self._host_bytes = self._find_host_bytes()
        return self._host_bytes

    def _find_host_bytes(self) -> tuple[tuple[int, int], ...]:
        lone = (known for known in self._moves if len(set().union(*known)) == 1)
        anywhere = tuple(("",) * len(graph.nodes) for graph in self._graphs)
        _, uses = self._moves_of(next(lone, anywhere))
        moves = [[a.what for a in use.actions if isinstance(a.what, Transfer)] for use in uses]
        return tuple(
            (
                sum(move.size for move in own if move.source == HOST),
                sum(move.size for move in own if move.target == HOST),
            )
            for own in moves
        )

    def _read(self) -> None:
        if not self._traces:
            self._traces = trace_bytes(self._programs, self._graphs)
            self._runs_alone = any(trace.runs_alone() for trace in self._traces)

    def _moves_of(self, placements: _Placements) -> tuple[tuple[Home, ...], list[TraceUse]]:
        """Homes and actions, which do not depend on the memory layout."""
        self._read()
        if placements not in self._moves:
            devices = tuple(dict.fromkeys(device for steps in placements for device in steps))
            kept = _homes(self._traces, placements)
            homes = tuple(
                Home(
                    trace=number,
                    buffer=ir.BufferId(buffer),
                    device=device,
                    bytes=self._traces[number].grains[buffer].pairs(grains),
                )
                for number, own in enumerate(kept)
                for buffer, rows in own.items()
                for device, grains in rows
            )
            uses = [
                TraceUse(trace, find_actions(trace, steps, devices, own))
                for trace, steps, own in zip(self._traces, placements, kept, strict=True)
            ]
            self._moves[placements] = homes, uses
        return self._moves[placements]


def _renumbered(records: tuple[_OfTrace, ...], traces: Sequence[int]) -> tuple[_OfTrace, ...]:
    """Records of some traces, with the numbers that these have among all."""
    return tuple(replace(record, trace=traces[record.trace]) for record in records)


def _homes(
    traces: Sequence[TraceBytes], placements: Sequence[Sequence[str]]
) -> list[dict[int, list[tuple[str, Grains]]]]:
    """The homes of written persistent bytes: the device of their last writer, or the devices of all
    twins that write them last, since each has them. Of several traces, the first one with the most
    devices counts.

    States of the same name are one state in all traces; a variable belongs to its trace.
    """
    chosen: dict[object, dict[int, tuple[str, ...]]] = {}
    for number, trace in enumerate(traces):
        fresh: dict[object, dict[int, tuple[str, ...]]] = {}
        for group in reversed(trace.groups):
            devices = tuple(dict.fromkeys(placements[number][step] for step in group))
            for buffer, use in trace.steps[group[0]].items():
                key = _key(trace.program, number, buffer)
                if key is not None:
                    seen = fresh.setdefault(key, {})
                    seen |= {grain: devices for grain in use.written if grain not in seen}
        for key, seen in fresh.items():
            known = chosen.setdefault(key, {})
            known |= {g: where for g, where in seen.items() if len(where) > len(known.get(g, ()))}
    kept: dict[object, dict[str, set[int]]] = {}
    for key, known in chosen.items():
        for grain, devices in known.items():
            for device in devices:
                kept.setdefault(key, {}).setdefault(device, set()).add(grain)
    homes = []
    for number, trace in enumerate(traces):
        own: dict[int, list[tuple[str, Grains]]] = {}
        for persistent in trace.program.buffers:
            by_device = kept.get(_key(trace.program, number, int(persistent.id)), {})
            rows = [(device, tuple(sorted(grains))) for device, grains in by_device.items()]
            if rows:
                own[int(persistent.id)] = rows
        homes.append(own)
    return homes


def _key(program: ir.Program, trace: int, buffer: int) -> object:
    kept = program.buffers[buffer]
    if kept.role not in _PERSISTENT:
        return None
    return kept.name if kept.role is ir.Role.STATE else (trace, kept.name)
