"""The planning problem of kernel graphs on a machine.

In: one or more `KernelGraph`s with `Costs`, a `Machine`, and the numbers of slots and lanes. Out: a
`Planning`: the problem, and which task each step became part of.

A tensor is the part of a buffer that one step writes and the same other steps read. Overlapping
regions are cut into disjoint pieces, since bytes are sent once to a device, and tensors that one
step reads share the count of one transfer, since lowering may send them together. So no plan sends
less, or more rarely, than the problem counts, and its bound is below every plan. Buffers fill
memory wherever a step that touches them runs: weights and module variables once, state once per
lane, everything private to a request once per slot. Of weights and states, a device has the bytes
that its steps touch. Traces of a mix share weights, variables and state of equal key. Steps stay
together if a value persists between them from one request to the next, and if one is pinned: it
stays with all steps with which it shares a dependence. A value that a request leaves to the next
request of its lane limits the period: a `Cycle` from the step that needs it to the step that makes
it. This is sound, not tight. Bytes that twins make are where each of them runs, and the next
request finds them there: they make no tensor, no cycle through another step, and nothing stays
together because of them.

Longer than 400 lines because tasks, tensors, memory and cycles are made from the same graphs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tessera.ir.arrays import Ranges
from tessera.ir.connected import connected
from tessera.ir.graph.access import AccessKind
from tessera.ir.graph.graph import Edge, KernelGraph
from tessera.ir.graph.region import Region
from tessera.ir.plan.costs import Costs, Duration
from tessera.ir.plan.machine import Machine
from tessera.ir.program.program import Role
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import region_bytes
from tessera.planning.problem.held_bytes import pieces_of
from tessera.planning.problem.problem import (
    Cycle,
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


def tensors_of(graph: KernelGraph, first: int, rate: float) -> Iterator[Tensor]:
    """The tensors of a graph, whose first step is task `first`."""
    written: dict[tuple[int, int], dict[Region, list[Edge]]] = {}
    twins = _twins(graph)
    for edge in graph.edges:
        is_sent = edge.moves_bytes and not edge.carried and edge.source != edge.target
        if is_sent and edge.source not in twins:
            by_region = written.setdefault((edge.source, edge.buffer), {})
            by_region.setdefault(edge.region, []).append(edge)
    rows: list[tuple[str, int, int, tuple[int, ...], bool]] = []
    taken: dict[int, set[int]] = {}
    for (source, number), by_region in written.items():
        buffer = graph.buffers[number]
        for readers, size in _pieces(by_region, buffer.bytes):
            # All bytes that one step writes and another reads go in one transfer.
            known = taken.setdefault(source, set())
            rows.append((buffer.name, size, source, readers, known.isdisjoint(readers)))
            known.update(readers)
    reads = Counter(reader for *_, readers, counts in rows if counts for reader in readers)
    for name, size, source, readers, counts in rows:
        yield Tensor(
            name=f"{name}@#{source}",
            bytes=size,
            producer=first + source,
            consumers=tuple(first + reader for reader in readers),
            # What one step reads of several may be one transfer too.
            count=1 / max(reads[reader] for reader in readers) if counts else 0.0,
            rate=rate,
        )


def _twins(graph: KernelGraph) -> frozenset[int]:
    return frozenset(step for group in graph.twins for step in group)


def _pieces(
    by_region: Mapping[Region, Sequence[Edge]], size: int
) -> list[tuple[tuple[int, ...], int]]:
    """Sets of readers, and the bytes that exactly these read.

    If sets intersect, those with the fewest readers come first: a reader of bytes that no other
    step reads has its own transfer, which also carries the bytes that it shares with others.
    """
    regions = [({int(edge.target) for edge in edges}, edges) for edges in by_region.values()]
    pieces = [(readers, max(edge.bytes for edge in edges)) for readers, edges in regions]
    if len(pieces) > 1:
        ranges = [region_bytes(region, size) for region in by_region]
        if sum(map(intervals.size, ranges)) > intervals.size(intervals.union(ranges)):
            apart: list[tuple[set[int], Ranges]] = []
            for (readers, _), own in zip(pieces, ranges, strict=True):
                apart = _apart(apart, readers, own)
            pieces = [(readers, intervals.size(own)) for readers, own in apart]
    joined: dict[tuple[int, ...], int] = {}
    for readers, count in pieces:
        key = tuple(sorted(readers))
        joined[key] = joined.get(key, 0) + count
    met = len({reader for key in joined for reader in key}) < sum(map(len, joined))
    by_readers = sorted(joined.items(), key=lambda entry: (len(entry[0]), -entry[1]))
    return by_readers if met else list(joined.items())


def _apart(
    pieces: list[tuple[set[int], Ranges]], readers: set[int], own: Ranges
) -> list[tuple[set[int], Ranges]]:
    """The disjoint pieces after adding one more region."""
    made = []
    for others, there in pieces:
        both = intervals.intersect(there, own)
        for who, what in ((others | readers, both), (others, intervals.subtract(there, both))):
            if intervals.size(what):
                made.append((who, what))
        own = intervals.subtract(own, both)
    return [*made, (readers, own)] if intervals.size(own) else made


# Bytes of a context, its graphs and library workspaces on each device, before any buffer.
RESERVED_BYTES = 1 << 30
_SHARED = (Role.WEIGHT, Role.VARIABLE)
PERSISTENT = (*_SHARED, Role.STATE)
_IN_PARTS = (Role.WEIGHT, Role.STATE)
# Module variables below this many bytes are left out of the search.
_MUCH = 1 << 20
_CARRIED = (Role.STATE.value, Role.VARIABLE.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePart:
    """One trace of a mix: `requests` of it per unit.

    Weights, variables and state of equal key are one buffer; the key is name, role and size, and
    the entry of `keys` for a buffer's name, such as a digest of its contents. Steps that touch one
    state stay together, but for those `apart`: parts of steps, whose states go where they are.
    """

    name: str
    graph: KernelGraph
    costs: Costs
    requests: float = 1.0
    keys: tuple[tuple[str, str], ...] = ()
    apart: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Planning:
    """A problem, and the task of each step; `offsets`: the first step of each trace."""

    problem: Problem
    task_of: tuple[int, ...]
    offsets: tuple[int, ...] = (0,)

    def expand(self, placement: tuple[int, ...]) -> tuple[int, ...]:
        """The device of each step for a placement of tasks."""
        return tuple(placement[task] for task in self.task_of)

    def expand_part(self, placement: tuple[int, ...], part: int) -> tuple[int, ...]:
        """The device of each step of one trace."""
        ends = (*self.offsets[1:], len(self.task_of))
        return self.expand(placement)[self.offsets[part] : ends[part]]


def problem_of(
    graph: KernelGraph,
    machine: Machine,
    costs: Costs,
    *,
    slots: int = 2,
    lanes: int | None = None,
) -> Planning:
    """The problem of one trace on one machine; as many lanes as slots."""
    part = TracePart(name="", graph=graph, costs=costs)
    return problem_of_mix((part,), machine, slots=slots, lanes=lanes)


def problem_of_mix(
    parts: Sequence[TracePart],
    machine: Machine,
    *,
    slots: int,
    lanes: int | None = None,
    slot_bytes: int | None = None,
    host_bytes: float = 0.0,
    is_placed: bool = False,
    are_apart: bool = False,
) -> Planning:
    """The problem of traces that are served together.

    The private bytes of a request count buffer by buffer; with `slot_bytes`, they count as that
    many bytes on every device with work. `host_bytes` go to or come from the host, for all requests
    of the mix. `is_placed`: the steps have their devices already, so each is a task of its own, and
    memory is counted from launch programs alone. `are_apart`: traces that share a state may have it
    in different places, as in plans with roles.
    """
    lanes = slots if lanes is None else lanes
    offsets = [0]
    for part in parts:
        offsets.append(offsets[-1] + len(part.graph.nodes))
    costs = Costs(tuple(step for part in parts for step in part.costs.steps))
    single = Problem(
        devices=tuple(device.name for device in machine.devices),
        tasks=tuple(task for n, part in enumerate(parts) for task in _tasks(part, n)),
        tensors=tuple(
            tensor
            for part, first in zip(parts, offsets, strict=False)
            for tensor in tensors_of(part.graph, first, part.requests)
        ),
        residents=() if is_placed else _residents(parts, offsets, slots, lanes, slot_bytes),
        rooms=_rooms(machine, host_bytes),
        wires=_wires(machine),
        pipes=tuple(
            Pipe(name=channel.name, ns_per_byte=1e9 / channel.bytes_per_second, pairs=channel.pairs)
            for channel in machine.channels
        ),
        shared=_shared(machine, costs, [task.requests for task in parts for _ in task.graph.nodes]),
        transfer_ns=machine.transfer_ns,
        slots=slots,
        lanes=lanes,
        cycles=_cycles(parts, offsets),
    )
    if is_placed:
        return Planning(single, tuple(range(offsets[-1])), tuple(offsets[:-1]))
    groups = groups_of_mix(parts, are_apart=are_apart)
    return Planning(contract(single, groups), groups, tuple(offsets[:-1]))


def groups_of(graph: KernelGraph) -> tuple[int, ...]:
    """The group of each step, numbered by first appearance."""
    return groups_of_mix((TracePart(name="", graph=graph, costs=Costs(())),))


def groups_of_mix(parts: Sequence[TracePart], *, are_apart: bool = False) -> tuple[int, ...]:
    """The group of each step of all traces, numbered by first appearance.

    Across traces, all steps that touch a state stay together if any of them writes it, unless
    traces `are_apart`.
    """
    total = sum(len(part.graph.nodes) for part in parts)
    together: list[tuple[int, int]] = []
    first = 0
    users: dict[tuple[str, ...], list[int]] = {}
    written: set[tuple[str, ...]] = set()
    for number, part in enumerate(parts):
        pinned = {int(node.id) for node in part.graph.nodes if node.pins}
        apart = _twins(part.graph) | part.apart
        for edge in part.graph.edges:
            is_kept = edge.carried and edge.moves_bytes and edge.source not in apart
            is_kept = is_kept and edge.target not in part.apart
            if is_kept or pinned & {edge.source, edge.target}:
                together.append((first + int(edge.source), first + int(edge.target)))
        for node in part.graph.nodes:
            for access in node.accesses:
                key = _key(part, number, int(access.buffer))
                if node.id not in apart:
                    users.setdefault(key, []).append(first + int(node.id))
                if access.kind is not AccessKind.READ:
                    written.add(key)
        first += len(part.graph.nodes)
    if len(parts) > 1 and not are_apart:
        for key in sorted(written & users.keys()):
            if key[0] in _CARRIED and len({_part_of(parts, s) for s in users[key]}) > 1:
                together += pairwise(users[key])
    groups = [0] * total
    for number, steps in enumerate(connected(range(total), together)):
        for step in steps:
            groups[step] = number
    return tuple(groups)


def _part_of(parts: Sequence[TracePart], step: int) -> int:
    for number, part in enumerate(parts):
        if step < len(part.graph.nodes):
            return number
        step -= len(part.graph.nodes)
    raise IndexError(step)


def _key(part: TracePart, number: int, buffer: int) -> tuple[str, ...]:
    """The key by which buffers of several traces are one; a private key has the trace number."""
    held = part.graph.buffers[buffer]
    if held.role not in PERSISTENT:
        return held.role.value, held.name, str(number)
    return held.role.value, held.name, str(held.bytes), dict(part.keys).get(held.name, "")


def _cycles(parts: Sequence[TracePart], offsets: Sequence[int]) -> tuple[Cycle, ...]:
    """Cycles from the step that the next request starts with to the step that it waits for."""
    cycles: dict[Cycle, None] = {}
    for part, first in zip(parts, offsets, strict=False):
        twins = _twins(part.graph)
        for edge in part.graph.edges:
            if edge.carried and (edge.source == edge.target or edge.source not in twins):
                buffer = part.graph.buffers[edge.buffer]
                cycles[
                    Cycle(
                        name=buffer.name,
                        first=first + int(edge.target),
                        last=first + int(edge.source),
                        alone=buffer.role is Role.VARIABLE,
                    )
                ] = None
    return tuple(cycle for cycle in cycles if cycle.first <= cycle.last)


def _tasks(part: TracePart, number: int) -> tuple[Task, ...]:
    return tuple(
        Task(
            name=f"#{node.id} {node.name}",
            ns=tuple(cost.ns if isinstance(cost, Duration) else None for cost in step.on_device),
            phase=part.name,
            kind="attention" if _is_attention(node.name) else "",
            rate=part.requests,
            trace=number,
        )
        for node, step in zip(part.graph.nodes, part.costs.steps, strict=True)
    )


def _is_attention(name: str) -> bool:
    """Whether a name is that of an attention; only for the baseline that splits attention off."""
    return any(word in name.lower() for word in ("attention", "attn", "flash", "fmha", "sdpa"))


def _residents(
    parts: Sequence[TracePart],
    offsets: Sequence[int],
    slots: int,
    lanes: int,
    slot_bytes: int | None,
) -> tuple[Resident, ...]:
    users: dict[tuple[str, ...], set[int]] = {}
    touched: dict[tuple[str, ...], list[tuple[int, Region]]] = {}
    made: dict[tuple[str, ...], Resident] = {}
    whole: dict[tuple[str, ...], tuple[int, int]] = {}
    if slot_bytes is not None:
        made[()] = Resident(name="private buffers", bytes=slot_bytes * slots, users=())
        users[()] = set(range(offsets[-1]))
    for number, (part, first) in enumerate(zip(parts, offsets, strict=False)):
        for node in part.graph.nodes:
            for access in node.accesses:
                key = _resident_key(part, number, int(access.buffer))
                users.setdefault(key, set()).add(first + int(node.id))
                if part.graph.buffers[access.buffer].role in _IN_PARTS:
                    touched.setdefault(key, []).append((first + int(node.id), access.region))
        for buffer in part.graph.buffers:
            copies = 1 if buffer.role in _SHARED else lanes if buffer.role is Role.STATE else slots
            if slot_bytes is not None and buffer.role not in PERSISTENT:
                continue
            key = _resident_key(part, number, int(buffer.id))
            made[key] = Resident(name=buffer.name, bytes=buffer.bytes * copies, users=())
            whole[key] = buffer.bytes, copies
        for key, rest, launches in _modules(part, number, users):
            made.setdefault(key, Resident(name=key[-1], bytes=rest, users=()))
            users.setdefault(key, set()).update(first + node for node in launches)
    residents = []
    for key, resident in made.items():
        if key in touched:
            size, copies = whole[key]
            for who, held in pieces_of(size, touched[key]).items():
                residents.append(replace(resident, bytes=held * copies, users=who))
        elif users.get(key):
            residents.append(replace(resident, users=tuple(sorted(users[key]))))
    return tuple(residents)


def _resident_key(part: TracePart, number: int, buffer: int) -> tuple[str, ...]:
    """The key by which buffers are one in memory: every trace loads its own modules."""
    held = part.graph.buffers[buffer]
    return (*_key(part, number, buffer), *([str(number)] if held.role is Role.VARIABLE else []))


def _modules(
    part: TracePart, number: int, users: Mapping[tuple[str, ...], set[int]]
) -> Iterator[tuple[tuple[str, ...], int, list[int]]]:
    """Large module variables, which are on every device where the module runs: keys, bytes and
    launches.

    Variables that a step touches count separately, but only where such a step runs. The few bytes
    that most modules have do not matter for a placement; plans still count them.
    """
    launches: dict[str, list[int]] = {}
    for node in part.graph.nodes:
        launches.setdefault(node.name.rpartition(".")[0], []).append(int(node.id))
    rest: dict[str, int] = {}
    for buffer in part.graph.buffers:
        module = buffer.name.rpartition(".")[0]
        if buffer.role is not Role.VARIABLE or module not in launches:
            continue
        key = _resident_key(part, number, int(buffer.id))
        if not users.get(key):
            rest[module] = rest.get(module, 0) + buffer.bytes
        elif buffer.bytes >= _MUCH:
            yield key, buffer.bytes, launches[module]
    for module, size in rest.items():
        if size >= _MUCH:
            yield ("module", str(number), f"variables of {module}"), size, launches[module]


def _rooms(machine: Machine, host_bytes: float) -> tuple[Room, ...]:
    return tuple(
        Room(
            name=card.name,
            bytes=max(0, card.memory_bytes - RESERVED_BYTES * len(machine.slices_of(card.id))),
            devices=tuple(int(device.id) for device in machine.slices_of(card.id)),
            usd_per_hour=card.usd_per_hour or 0.0,
            host_ns=host_bytes * 1e9 / card.gpu.pcie_bandwidth if card.gpu.pcie_bandwidth else 0.0,
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
            end_ns_per_byte=machine.end_ns_per_byte(link),
        )
        for link in machine.links
    )


def _shared(machine: Machine, costs: Costs, rates: Sequence[float]) -> tuple[SharedLoad, ...]:
    """One row per card with slices: all of them draw on one memory."""
    loads = []
    for card in machine.cards:
        slices = machine.slices_of(card.id)
        if len(slices) > 1:
            per_byte = 1e9 / card.gpu.memory_bandwidth
            pairs = zip(costs.steps, rates, strict=True)
            ns = tuple(step.memory_bytes * per_byte * rate for step, rate in pairs)
            devices = tuple(int(device.id) for device in slices)
            loads.append(SharedLoad(name=f"{card.name}.bandwidth", devices=devices, ns=ns))
    return tuple(loads)
