"""The planning problem of a kernel graph on a machine.

In: a `KernelGraph`, a `Machine`, `Costs`, and the number of slots. Out: a `Planning`: the problem,
and which task each step became part of.

A tensor is what one step writes and others read of one region; regions that overlap are charged
apart. Buffers fill memory wherever a step that touches them runs: weights and module variables
once, everything private to a request once per slot; state too, since lanes and slots are of equal
number here, so that two requests of one lane are never under way together. Steps stay together
where a value persists from one request to the next between them, and where one is pinned: it stays
with all that it shares a dependence with. Where that closes a circle, the whole circle stays
together. Sound, not tight.
"""

from __future__ import annotations

from dataclasses import dataclass

import networkx

from tessera.ir.costs import Costs, Duration
from tessera.ir.graph import Edge, KernelGraph
from tessera.ir.machine import Machine
from tessera.ir.program import Role
from tessera.passes.partition_problem import (
    Pipe,
    Problem,
    Resident,
    Room,
    SharedLoad,
    Task,
    Tensor,
    Wire,
    contract,
)

# What a context, its graphs and library workspaces take on each device, before any buffer.
RESERVED_BYTES = 1 << 30
_SHARED = (Role.WEIGHT, Role.VARIABLE)


@dataclass(frozen=True, slots=True)
class Planning:
    """A problem, and per step of the graph the task that holds it."""

    problem: Problem
    task_of: tuple[int, ...]

    def expand(self, placement: tuple[int, ...]) -> tuple[int, ...]:
        """The device of each step for a placement of tasks."""
        return tuple(placement[task] for task in self.task_of)


def problem_of(
    graph: KernelGraph, machine: Machine, costs: Costs, *, slots: int = 2, phase: str = ""
) -> Planning:
    """What the planner has to solve for one trace on one machine."""
    single = Problem(
        devices=tuple(device.name for device in machine.devices),
        tasks=_tasks(graph, costs, phase),
        tensors=_tensors(graph),
        residents=_residents(graph, slots),
        rooms=_rooms(machine),
        wires=_wires(machine),
        pipes=tuple(
            Pipe(name=one.name, ns_per_byte=1e9 / one.bytes_per_second, pairs=one.pairs)
            for one in machine.channels
        ),
        shared=_shared(machine, costs),
        transfer_ns=machine.transfer_ns,
        slots=slots,
    )
    groups = groups_of(graph)
    return Planning(contract(single, groups), groups)


def groups_of(graph: KernelGraph) -> tuple[int, ...]:
    """Per step its group, numbered so that what a group needs comes before it."""
    together = networkx.utils.UnionFind(range(len(graph.nodes)))
    pinned = {int(node.id) for node in graph.nodes if node.pins}
    for edge in graph.edges:
        if (edge.carried and edge.moves_bytes) or pinned & {edge.source, edge.target}:
            together.union(int(edge.source), int(edge.target))
    order = networkx.DiGraph()
    order.add_nodes_from(together[step] for step in range(len(graph.nodes)))
    for edge in graph.edges:
        if not edge.carried and together[edge.source] != together[edge.target]:
            order.add_edge(together[edge.source], together[edge.target])
    merged = networkx.condensation(order)
    whole = merged.graph["mapping"]
    first: dict[int, int] = {}
    for step in range(len(graph.nodes)):
        first.setdefault(whole[together[step]], step)
    ranked = networkx.lexicographical_topological_sort(merged, key=first.__getitem__)
    number = {group: index for index, group in enumerate(ranked)}
    return tuple(number[whole[together[step]]] for step in range(len(graph.nodes)))


def _tasks(graph: KernelGraph, costs: Costs, phase: str) -> tuple[Task, ...]:
    return tuple(
        Task(
            name=f"#{node.id} {node.name}",
            ns=tuple(cost.ns if isinstance(cost, Duration) else None for cost in step.on_device),
            phase=phase,
            kind="attention" if _is_attention(node.name) else "",
        )
        for node, step in zip(graph.nodes, costs.steps, strict=True)
    )


def _is_attention(name: str) -> bool:
    """By name, and only for the baseline that splits attention off."""
    return any(word in name.lower() for word in ("attention", "attn", "flash", "fmha", "sdpa"))


def _tensors(graph: KernelGraph) -> tuple[Tensor, ...]:
    found: dict[tuple[int, int, object], list[Edge]] = {}
    for edge in graph.edges:
        if edge.moves_bytes and not edge.carried and edge.source != edge.target:
            found.setdefault((edge.source, edge.buffer, edge.region), []).append(edge)
    return tuple(
        Tensor(
            name=f"{graph.buffers[buffer].name}@#{source}",
            bytes=max(edge.bytes for edge in edges),
            producer=source,
            consumers=tuple(sorted({int(edge.target) for edge in edges})),
        )
        for (source, buffer, _), edges in found.items()
    )


def _residents(graph: KernelGraph, slots: int) -> tuple[Resident, ...]:
    users: dict[int, set[int]] = {}
    for node in graph.nodes:
        for access in node.accesses:
            users.setdefault(int(access.buffer), set()).add(int(node.id))
    return tuple(
        Resident(
            name=buffer.name,
            bytes=buffer.bytes * (1 if buffer.role in _SHARED else slots),
            users=tuple(sorted(users[int(buffer.id)])),
        )
        for buffer in graph.buffers
        if users.get(int(buffer.id))
    )


def _rooms(machine: Machine) -> tuple[Room, ...]:
    return tuple(
        Room(
            name=card.name,
            bytes=max(0, card.memory_bytes - RESERVED_BYTES * len(machine.slices_of(card.id))),
            devices=tuple(int(device.id) for device in machine.slices_of(card.id)),
            usd_per_hour=card.usd_per_hour or 0.0,
        )
        for card in machine.cards
    )


def _wires(machine: Machine) -> tuple[Wire, ...]:
    return tuple(
        Wire(
            source=link.source,
            target=link.target,
            ns_per_byte=1e9 / link.bytes_per_second,
            latency_ns=link.latency_ns,
        )
        for link in machine.links
    )


def _shared(machine: Machine, costs: Costs) -> tuple[SharedLoad, ...]:
    """One row per card with slices: all of them draw on one memory."""
    found = []
    for card in machine.cards:
        slices = machine.slices_of(card.id)
        if len(slices) > 1:
            per_byte = 1e9 / card.gpu.memory_bandwidth
            ns = tuple(step.memory_bytes * per_byte for step in costs.steps)
            devices = tuple(int(device.id) for device in slices)
            found.append(SharedLoad(name=f"{card.name}.bandwidth", devices=devices, ns=ns))
    return tuple(found)
