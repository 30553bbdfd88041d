"""Runs launch programs on made-up bytes, in random orders: the oracle for the judge of plans.

Simple on purpose, and without a line of the code that it tests: memory is arrays of numbers, a step
reads what it may read, writes what it must, and writes some of what it may, all decided by a hash
of what it read. Twins decide alike. Operations take several turns, and the turns of all queues and
requests are mixed at random within what events, transfers, slots and lanes allow. `simulate` gives
what the host and the lanes hold in the end; `reference` gives the same for one device and file
order.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tessera.ir.graph.access import AccessKind, Certainty
from tessera.ir.graph.graph import KernelGraph, Node
from tessera.ir.plan.launch_program import (
    HOST,
    AreaKind,
    Await,
    AwaitPut,
    Bytes,
    Credit,
    Fill,
    Free,
    LoweredReplica,
    Operation,
    Put,
    Receive,
    Record,
    Run,
    Send,
)
from tessera.ir.program.program import Buffer, Program, Role
from tests.helpers.regions import region_intervals

Values = np.ndarray
Result = dict[tuple[object, ...], list[int]]
_OWN = (Role.INPUT, Role.OUTPUT, Role.TEMP)


_LOST, _DIFFERENT = np.uint64(0xDEAD), np.uint64(0xBAD)


class Stuck(Exception):
    """Every queue waits."""


@dataclass(frozen=True)
class Request:
    """One request: which trace, lane and slot."""

    trace: int
    lane: int
    slot: int


def _mix(values: Values) -> Values:
    """Scrambles 64-bit numbers (splitmix)."""
    with np.errstate(over="ignore"):
        values = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))


def first_values(*key: object, size: int) -> Values:
    """What a buffer holds in the beginning: other numbers for every key."""
    seed = sum(ord(c) * 31**i for i, c in enumerate(repr(key))) % (1 << 61)
    return _mix(np.arange(size, dtype=np.uint64) + np.uint64(seed * 7919 % (1 << 62)))


def _mask(node: Node, buffer: int, size: int, *, kinds: str) -> np.ndarray:
    found = np.zeros(size, dtype=bool)
    for access in node.accesses:
        if access.buffer != buffer:
            continue
        certain = access.kind is AccessKind.WRITE and access.certainty is Certainty.MUST
        wanted = {"read": access.kind.reads, "may": access.kind.writes, "must": certain}[kinds]
        if wanted:
            for start, end in region_intervals(access.region, size):
                found[max(start, 0) : min(end, size)] = True
    return found


def addresses(program: Program, buffer: int, *where: object) -> tuple[np.ndarray, Values]:
    """Which bytes of a buffer are words of a table, and the addresses that a place has in them."""
    size = program.buffers[buffer].bytes
    mask = np.zeros(size, dtype=bool)
    for table in program.pointer_tables:
        for word in table.words:
            if table.buffer == buffer:
                mask[word.offset : word.offset + 8] = True
    name = program.buffers[buffer].name
    return mask, first_values("address", name, *where, size=size)


def outcome(node: Node, graph: KernelGraph, seen: dict[int, Values]) -> dict:
    """What a step writes where, given what it saw of each buffer: masks and values."""
    group = next((group for group in graph.twins if node.id in group), (node.id,))
    digest = np.uint64(int(group[0]) + 1)
    for buffer in sorted(seen):
        size = graph.buffers[buffer].bytes
        reads = _mask(node, buffer, size, kinds="read")
        mixed = _mix(seen[buffer][reads] + np.arange(reads.sum(), dtype=np.uint64))
        with np.errstate(over="ignore"):
            digest = _mix(np.array([digest + mixed.sum(dtype=np.uint64)], dtype=np.uint64))[0]
    found = {}
    for buffer in sorted(seen):
        size = graph.buffers[buffer].bytes
        may = _mask(node, buffer, size, kinds="may")
        if not may.any():
            continue
        with np.errstate(over="ignore"):
            new = _mix(np.arange(size, dtype=np.uint64) * np.uint64(buffer * 2 + 3) + digest)
        written = may & ((new & np.uint64(1) == 1) | _mask(node, buffer, size, kinds="must"))
        found[buffer] = (written, new)
    return found


def touched(node: Node, graph: KernelGraph) -> list[int]:
    """The buffers of a step that have bytes."""
    return sorted({int(a.buffer) for a in node.accesses if graph.buffers[a.buffer].bytes})


# --- one device, file order ------------------------------------------------------------------


def reference(
    programs: Sequence[Program], graphs: Sequence[KernelGraph], requests: Sequence[Request]
) -> Result:
    """Outputs of every request, and the states of every lane after the last."""
    states: dict[tuple[object, ...], Values] = {}
    found: Result = {}
    for number, request in enumerate(requests):
        program, graph = programs[request.trace], graphs[request.trace]
        memory = {}
        for one in program.buffers:
            key, first = _owner(one, request), _first(one, request, number)
            words, symbols = addresses(program, int(one.id))
            first[words] = symbols[words]
            memory[int(one.id)] = states.setdefault(key, first) if key else first
        again = {member for group in graph.twins for member in group[1:]}
        for node in (node for node in graph.nodes if node.id not in again):
            seen = {b: memory[b].copy() for b in touched(node, graph)}
            for buffer, (written, new) in outcome(node, graph, seen).items():
                memory[buffer][written] = new[written]
        for one in program.buffers:
            if one.role is Role.OUTPUT:
                values = memory[int(one.id)]
                values[addresses(program, int(one.id))[0]] = 0
                found["output", number, one.name] = values.tolist()
    for key, values in states.items():
        found[("lasting", *key)] = values.tolist()
    return found


def _owner(one: Buffer, request: Request) -> tuple[object, ...]:
    """Whose bytes these are, if they outlive the request."""
    if one.role is Role.STATE:
        return ("state", request.lane, one.name)
    if one.role is Role.VARIABLE:
        return ("variable", request.trace, one.name)
    return ()


def _first(one: Buffer, request: Request, number: int) -> Values:
    """What a buffer holds before a request, or for ever in the case of a weight."""
    own = number if one.role in _OWN else ""
    return first_values(one.name, *_owner(one, request), own, size=one.bytes)


# --- launch programs -------------------------------------------------------------------------


@dataclass
class _Machine:
    replica: LoweredReplica
    programs: Sequence[Program]
    graphs: Sequence[KernelGraph]
    rng: random.Random
    buffered: bool
    areas: dict[tuple[str, AreaKind], Values] = field(default_factory=dict)
    variables: dict[tuple[str, int, int], Values] = field(default_factory=dict)
    landings: dict[tuple[int, int], Values] = field(default_factory=dict)
    held: set[tuple[int, int]] = field(default_factory=set)
    garbage: int = 1 << 60
    found: Result = field(default_factory=dict)

    def poison(self, size: int) -> Values:
        """Numbers that nothing else has."""
        self.garbage += size
        return _mix(np.arange(self.garbage - size, self.garbage, dtype=np.uint64))

    def begin(self, lanes: Sequence[int]) -> None:
        """Memory full of poison, but for weights and what lanes begin with."""
        for area in self.replica.areas:
            around = area.bytes * area.count + 2 * self.margin
            self.areas[area.device, area.kind] = self.poison(around)
        for landing in self.replica.landings:
            for slot in range(self.replica.slots):
                self.landings[slot, landing.id] = self.poison(landing.bytes)
        written = _written_by_name(self)
        for place in self.replica.places:
            one = self.programs[place.trace].buffers[place.buffer]
            spot = (place.trace, place.buffer)
            homes = [h for h in self.replica.homes if (h.trace, h.buffer) == spot]
            if one.role in _OWN:
                continue
            if one.role is Role.WEIGHT:
                view = self.view(place.device, place.trace, int(place.buffer), 0, 0)
                here = slice(*place.held(one.bytes))
                view[here] = _first(one, Request(place.trace, 0, 0), 0)[here]
                continue
            key = one.name if one.role is Role.STATE else (place.trace, one.name)
            at_home = ~written.get(key, np.zeros(one.bytes, dtype=bool))
            first, end = place.held(one.bytes)
            at_home[:first] = at_home[end:] = False
            for home in sorted(homes, key=lambda home: home.device == place.device):
                for start, end in home.bytes:
                    at_home[start:end] = home.device == place.device
            for lane in lanes:
                request = Request(place.trace, lane, 0)
                view = self.view(place.device, place.trace, int(place.buffer), lane, 0)
                view[at_home] = _first(one, request, 0)[at_home]

    @property
    def margin(self) -> int:
        """Bytes around an area: a buffer of which a part is there may reach outside."""
        return max((b.bytes for program in self.programs for b in program.buffers), default=0)

    def view(self, device: str, trace: int, buffer: int, lane: int, slot: int) -> Values:
        """The bytes of a buffer on a device, and those of others where it is not there."""
        place = next(
            p
            for p in self.replica.places
            if (p.device, p.trace, p.buffer) == (device, trace, buffer)
        )
        size = self.programs[trace].buffers[buffer].bytes
        if place.kind is AreaKind.MODULE:
            key = (device, trace, buffer)
            if key not in self.variables:
                self.variables[key] = self.poison(size)
            return self.variables[key]
        area = next(a for a in self.replica.areas if (a.device, a.kind) == (device, place.kind))
        copy = {AreaKind.LANE: lane, AreaKind.SLOT: slot}.get(place.kind, 0)
        start = self.margin + copy * area.bytes + place.base
        return self.areas[device, place.kind][start : start + size]


def _written_by_name(machine: _Machine) -> dict[object, np.ndarray]:
    found: dict[object, np.ndarray] = {}
    for trace, (program, graph) in enumerate(zip(machine.programs, machine.graphs, strict=True)):
        for node in graph.nodes:
            for one in program.buffers:
                if one.role in (Role.STATE, Role.VARIABLE):
                    key = one.name if one.role is Role.STATE else (trace, one.name)
                    mask = _mask(node, int(one.id), one.bytes, kinds="may")
                    found[key] = found.get(key, np.zeros(one.bytes, dtype=bool)) | mask
    return found


class _Live:
    """A request under way: its queues as generators that yield whether they could go on."""

    def __init__(self, machine: _Machine, number: int, request: Request) -> None:
        self.machine, self.number, self.request = machine, number, request
        self.program = machine.programs[request.trace]
        self.graph = machine.graphs[request.trace]
        self.lowered = next(t for t in machine.replica.traces if t.trace == request.trace)
        self.transfers = {t.id: t for t in self.lowered.transfers}
        self.events: set[tuple[str, int]] = set()
        self.read: dict[int, np.ndarray] = {}
        self.values: dict[int, Values] = {}
        self.begun: set[int] = set()
        self.late: list[tuple[int, Values]] = []
        self.host = {
            int(one.id): _first(one, request, number)
            for one in self.program.buffers
            if one.role is Role.OUTPUT
        }
        for place in machine.replica.places:
            if place.trace == request.trace and place.device in machine.replica.devices:
                words, own = self._words(place.device, int(place.buffer))
                one = self.program.buffers[place.buffer]
                if one.role is Role.WEIGHT and place.kind is AreaKind.SLOT:
                    self.view(place.device, int(place.buffer))[:] = _first(one, request, number)
                if words.any():
                    self.view(place.device, int(place.buffer))[words] = own[words]
        self.queues = [
            self._queue(program.device, list(program.on(queue)))
            for program in self.lowered.programs
            for queue in {one.queue: None for one in program.operations}
        ]

    def _words(self, device: str, buffer: int) -> tuple[np.ndarray, Values]:
        """The addresses in a table; one that is there once has the same for all requests."""
        kinds = {
            place.kind
            for place in self.machine.replica.places
            if (place.device, place.trace, place.buffer) == (device, self.request.trace, buffer)
        }
        own = () if AreaKind.WEIGHTS in kinds else (self.request.slot, self.request.lane)
        return addresses(self.program, buffer, device, *own)

    def view(self, device: str, buffer: int) -> Values:
        return self.machine.view(
            device, self.request.trace, buffer, self.request.lane, self.request.slot
        )

    def _free(self, device: str, buffer: int) -> None:
        held = next(
            place.held(self.program.buffers[buffer].bytes)
            for place in self.machine.replica.places
            if (place.device, place.trace, place.buffer) == (device, self.request.trace, buffer)
        )
        view = self.view(device, buffer)[slice(*held)]
        view[:] = self.machine.poison(len(view))

    def _queue(self, device: str, operations: list[Operation]) -> Iterator[bool]:
        for operation in operations:
            match operation:
                case Await(event):
                    while (device, event) not in self.events:
                        yield False
                case Record(event):
                    self.events.add((device, event))
                case Run(step):
                    yield from self._run(device, int(step))
                case Fill(buffer, found):
                    values = _first(self.program.buffers[buffer], self.request, self.number)
                    yield from self._store(self.view(device, int(buffer)), found, values)
                case Free(buffer):
                    self._free(device, int(buffer))
                case Send(number):
                    yield from self._send(device, int(number))
                case Receive(number):
                    yield from self._receive(device, int(number))
                case Put(number, landing):
                    yield from self._put(device, int(number), int(landing))
                case AwaitPut(number, landing):
                    yield from self._take(device, int(number), int(landing))
                case Credit(landing):
                    self.machine.held.discard((self.request.slot, int(landing)))
            yield True

    def _run(self, device: str, step: int) -> Iterator[bool]:
        node = self.graph.nodes[step]
        seen: dict[int, Values] = {}
        for buffer in touched(node, self.graph):
            seen[buffer] = self.view(device, buffer).copy()
            words, own = self._words(device, buffer)
            mine = words & (seen[buffer] == own)
            seen[buffer][mine] = addresses(self.program, buffer)[1][mine]
            yield True
        for buffer, (written, new) in outcome(node, self.graph, seen).items():
            cut = self.machine.rng.randrange(len(written) + 1)
            for part in (slice(0, cut), slice(cut, None)):
                view = self.view(device, buffer)[part]
                view[written[part]] = new[part][written[part]]
                yield True

    def _store(self, view: Values, found: Bytes, values: Values) -> Iterator[bool]:
        for start, end in found:
            view[start:end] = values[start:end]
            yield True

    def _spans(self, device: str, number: int) -> Iterator[tuple[Values, slice]]:
        """The ranges of a transfer in the buffers of a device, and where they are when packed."""
        at = 0
        for portion in self.transfers[number].portions:
            view = self.view(device, int(portion.buffer))
            for start, end in portion.bytes:
                yield view[start:end], slice(at, at + end - start)
                at += end - start

    def _send(self, device: str, number: int) -> Iterator[bool]:
        transfer = self.transfers[number]
        self.values[number] = np.zeros(transfer.size, dtype=np.uint64)
        self.read[number] = np.zeros(transfer.size, dtype=bool)
        for own, packed in self._spans(device, number):
            self.values[number][packed] = own
            self.read[number][packed] = True
            yield True
        if transfer.target == HOST:
            self.late.append((number, self.values[number]))
        elif not self.machine.buffered:
            while number not in self.begun:
                yield False

    def _receive(self, device: str, number: int) -> Iterator[bool]:
        self.begun.add(number)
        transfer = self.transfers[number]
        if transfer.source == HOST:
            (portion,) = transfer.portions
            view = self.view(device, int(portion.buffer))
            first = _first(self.program.buffers[portion.buffer], self.request, self.number)
            yield from self._store(view, portion.bytes, first)
            return
        for own, packed in self._spans(device, number):
            while number not in self.read or not self.read[number][packed].all():
                yield False
            own[:] = self.values[number][packed]
            yield True

    def _put(self, device: str, number: int, landing: int) -> Iterator[bool]:
        """One-sided: the bytes land when they are read, whatever the target does."""
        key = (self.request.slot, landing)
        while key in self.machine.held:
            yield False
        self.machine.held.add(key)
        for own, packed in self._spans(device, number):
            self.machine.landings[key][packed] = own
            yield True
        self.begun.add(number)

    def _take(self, device: str, number: int, landing: int) -> Iterator[bool]:
        while number not in self.begun:
            yield False
        for own, packed in self._spans(device, number):
            own[:] = self.machine.landings[self.request.slot, landing][packed]
            yield True

    def finish(self) -> None:
        """What was sent to the host arrives, in any order."""
        self.machine.rng.shuffle(self.late)
        for number, values in self.late:
            (portion,), at = self.transfers[number].portions, 0
            for start, end in portion.bytes:
                self.host[int(portion.buffer)][start:end] = values[at : at + end - start]
                at += end - start
        for one in self.program.buffers:
            if one.role is Role.OUTPUT:
                self.host[int(one.id)][addresses(self.program, int(one.id))[0]] = 0
                self.machine.found["output", self.number, one.name] = self.host[
                    int(one.id)
                ].tolist()


def simulate(
    replica: LoweredReplica,
    programs: Sequence[Program],
    graphs: Sequence[KernelGraph],
    requests: Sequence[Request],
    seed: int,
) -> Result:
    """Run requests in one random order; raises `Stuck` where all queues wait."""
    rng = random.Random(seed)
    machine = _Machine(replica, programs, graphs, rng, buffered=rng.random() < 0.5)
    lanes = sorted({request.lane for request in requests})
    machine.begin(lanes)
    waiting = list(enumerate(requests))
    running: list[tuple[_Live, list]] = []
    while waiting or running:
        busy = {("lane", live.request.lane) for live, _ in running}
        busy |= {("slot", live.request.slot) for live, _ in running}
        for item in list(waiting):
            number, request = item
            if not busy & {("lane", request.lane), ("slot", request.slot)}:
                waiting.remove(item)
                live = _Live(machine, number, request)
                queues = [[queue, rng.random()] for queue in live.queues]
                running.append((live, queues))
            busy |= {("lane", request.lane), ("slot", request.slot)}
        _turns(running, rng)
        for live, queues in list(running):
            if not queues:
                live.finish()
                running.remove((live, queues))
    _lasting(machine, requests, lanes)
    return machine.found


def _turns(running: list, rng: random.Random) -> None:
    """Give turns until a request has ended: by fixed priorities, or wholly at random."""
    strict = rng.random() < 0.7
    while all(queues for _, queues in running):
        every = [(queue, queues) for _, queues in running for queue in queues]
        if strict:
            every.sort(key=lambda pair: pair[0][1])
        else:
            rng.shuffle(every)
        for queue, queues in every:
            try:
                moved = next(queue[0])
            except StopIteration:
                queues.remove(queue)
                moved = True
            if moved:
                break
        else:
            raise Stuck


def _lasting(machine: _Machine, requests: Sequence[Request], lanes: Sequence[int]) -> None:
    """What every home holds in the end; where homes differ or are missing, a number says so."""
    written = _written_by_name(machine)
    for request in {Request(r.trace, r.lane, 0): None for r in requests}:
        for one in machine.programs[request.trace].buffers:
            if one.role not in (Role.STATE, Role.VARIABLE):
                continue
            key = one.name if one.role is Role.STATE else (request.trace, one.name)
            values = _first(one, request, 0)
            values[written.get(key, np.zeros(one.bytes, dtype=bool))] = _LOST
            for home in machine.replica.homes:
                if (home.trace, home.buffer) != (request.trace, one.id):
                    continue
                view = machine.view(home.device, request.trace, int(one.id), request.lane, 0)
                for start, end in home.bytes:
                    old, new = values[start:end], view[start:end]
                    values[start:end] = np.where((old == _LOST) | (old == new), new, _DIFFERENT)
            words, symbols = addresses(machine.programs[request.trace], int(one.id))
            values[words] = symbols[words]
            machine.found[("lasting", *_owner(one, request))] = values.tolist()
