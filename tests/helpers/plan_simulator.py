"""Runs launch programs on made-up bytes, in random orders: the oracle for the judge of plans.

Simple on purpose, and without a line of the code that it tests. Memory is cells (`plan_cells`).
Twins decide alike. Operations take several turns, and the turns of all queues and requests are
mixed within what events, transfers, slots and lanes allow. `simulate` gives what the host and the
lanes hold in the end; `reference` gives the same for one device and file order, requests one after
the other.

Longer than 400 lines because all operations work on the same memory and wait for each other.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence

from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.launch_program import (
    HOST,
    AreaKind,
    Await,
    AwaitPut,
    Credit,
    Fill,
    Free,
    LoweredReplica,
    Operation,
    Place,
    Portion,
    Put,
    Receive,
    Record,
    Run,
    Send,
)
from tessera.ir.program.program import Program, Role
from tests.helpers.plan_cells import LASTING, OWN, WINDOW, Cells, Key, Request, number_of, outcome

Result = dict[Key, list[int]]
_LOST, _DIFFERENT = -1, -2
_ROUNDS = (5, 40, 1000)
_ORDERS = 5


class Stuck(Exception):
    """Every queue waits."""


class Outside(Exception):
    """An operation touches bytes that are not there."""


def some_requests(slots: int, lanes: int, traces: int, seed: int, count: int = 4) -> list[Request]:
    """Random ones, of which many may overlap."""
    rng = random.Random(seed)
    order = rng.sample(range(slots), min(slots, 8)), rng.sample(range(lanes), min(lanes, 8))
    made = []
    for number in range(count):
        slot, lane = (row[number % len(row)] for row in order)
        if rng.random() < 0.3:
            slot, lane = rng.randrange(slots), rng.randrange(lanes)
        made.append(Request(rng.randrange(traces), lane, slot))
    return made


def differs(
    replica: LoweredReplica,
    programs: Sequence[Program],
    graphs: Sequence[KernelGraph],
    schedules: int,
    of: LoweredReplica | None = None,
) -> str:
    """What goes wrong in some of so many orders, or nothing; requests, and what steps that may
    write do write, change every few. Requests are in the slots and lanes of `of`."""
    of = of or replica
    try:
        model = Cells(replica, programs, graphs)
        for first in range(0, schedules, _ORDERS):
            model.salt = first
            requests = some_requests(of.slots, of.lanes, len(programs), first)
            wanted = reference(model, requests)
            for seed in range(first, min(first + _ORDERS, schedules)):
                found = simulate(model, requests, seed)
                if found != wanted:
                    other = [key for key in wanted if found.get(key) != wanted[key]]
                    return f"other bytes in {other}"
    except Stuck:
        return "it hangs"
    except (Outside, KeyError, IndexError) as problem:
        return f"what is not there: {problem!r}"
    return ""


# --- one device, file order ------------------------------------------------------------------


def reference(model: Cells, requests: Sequence[Request]) -> Result:
    """Outputs of every request, and the states of every lane after the last."""
    states: dict[Key, dict[int, int]] = {}
    result: Result = {}
    for number, request in enumerate(requests):
        trace, program = request.trace, model.programs[request.trace]
        memory = {}
        for one in program.buffers:
            buffer = int(one.id)
            first = model.first(trace, buffer, request.lane, number)
            own = {at: hash((first, at)) for at in model.whole(trace, buffer)}
            address = model.address(trace, buffer)
            own |= {at: hash((address, at)) for at in model.word_cells(trace, buffer)}
            if one.role in LASTING:
                own = states.setdefault(model.lasting(request, one), own)
            memory[buffer] = own
        again = {member for group in model.graphs[trace].twins for member in group[1:]}
        for step in (n for n in range(len(model.graphs[trace].nodes)) if n not in again):
            touches = model.step(trace, step)
            seen = [tuple(memory[t.buffer][at] for at in t.reads) for t in touches]
            digest = model.digest(trace, step, seen)
            for touch in touches:
                memory[touch.buffer].update(outcome(digest, touch))
        for one in program.buffers:
            if one.role is Role.OUTPUT:
                values = memory[int(one.id)]
                values |= dict.fromkeys(model.word_cells(trace, int(one.id)), 0)
                result["output", number, one.name] = list(values.values())
    for request in requests:
        for one in model.programs[request.trace].buffers:
            if one.role in LASTING:
                key = model.lasting(request, one)
                result["lasting", request.trace, *key] = list(states[key].values())
    return result


# --- launch programs -------------------------------------------------------------------------


def simulate(model: Cells, requests: Sequence[Request], seed: int) -> Result:
    """The same, by the launch programs in one random order; raises `Stuck` and `Outside`."""
    return _Machine(model, requests, random.Random(seed)).run()


class _Memory(dict[int, int]):
    """Cells by address; those that nothing wrote hold numbers that nothing else has."""

    def __init__(self) -> None:
        self.garbage = itertools.count(1)

    def __missing__(self, cell: int) -> int:
        value = self[cell] = -3 - next(self.garbage)
        return value


class _Machine:
    """The memory of all devices while requests run."""

    def __init__(self, model: Cells, requests: Sequence[Request], rng: random.Random) -> None:
        self.model, self.requests, self.rng = model, requests, rng
        self.buffered = rng.random() < 0.5
        self.memory = _Memory()
        self.landings: dict[tuple[int, int], dict[int, int]] = {}
        self.held: set[tuple[int, int]] = set()
        self.bases: dict[tuple[int, str, int, int, int], tuple[int, int, int]] = {}
        self.result: Result = {}
        self.awake: list[_Line] = []
        self.asleep: dict[Key, list[_Line]] = defaultdict(list)

    def base(
        self, trace: int, device: str, buffer: int, lane: int, slot: int
    ) -> tuple[int, int, int]:
        """Where byte 0 of a buffer is, and which of its bytes are there."""
        key = (trace, device, buffer, lane, slot)
        if key in self.bases:
            return self.bases[key]
        place = self.model.places.get((trace, device, buffer))
        if place is None:
            raise Outside(f"buffer {buffer} of trace {trace} is not on {device}")
        first, end = self.model.held(place)
        if place.kind is AreaKind.MODULE:
            at = (number_of(device, trace, buffer) + 4096) * WINDOW
        else:
            if (device, place.kind) not in self.model.areas:
                raise Outside(f"{place}")
            number, area = self.model.areas[device, place.kind]
            copy = {AreaKind.LANE: lane, AreaKind.SLOT: slot}.get(place.kind, 0)
            at = copy * area.bytes + place.base
            if not (0 <= at + first <= at + end <= area.bytes * area.count):
                raise Outside(f"{place}")
            at += number * WINDOW
        self.bases[key] = (at, first, end)
        return self.bases[key]

    def run(self) -> Result:
        """All requests, each when its slot and its lane are free."""
        self._begin()
        waiting = list(enumerate(self.requests))
        running: list[_Live] = []
        while waiting or running:
            busy = {("lane", live.request.lane) for live in running}
            busy |= {("slot", live.request.slot) for live in running}
            for item in list(waiting):
                number, request = item
                wants = {("lane", request.lane), ("slot", request.slot)}
                if not busy & wants:
                    waiting.remove(item)
                    live = _Live(self, number, request)
                    running.append(live)
                    self.awake += live.lines
                busy |= wants
            self._turns(running)
            for live in [live for live in running if not live.left]:
                live.finish()
                running.remove(live)
        self._end()
        return self.result

    def _turns(self, running: Sequence[_Live]) -> None:
        """Give turns until a request has ended: by fixed priorities, or wholly at random."""
        rng = self.rng
        while all(live.left for live in running):
            strict = rng.random() < 0.7
            for line in self.awake:
                line.rank = rng.random()
            for _ in range(rng.choice(_ROUNDS)):
                if not self.awake:
                    raise Stuck
                line = min(self.awake, key=_rank) if strict else rng.choice(self.awake)
                waits = next(line.turns, _DONE)
                if waits is None:
                    continue
                self.awake.remove(line)
                if waits is _DONE:
                    line.live.left -= 1
                    break
                self.asleep[waits].append(line)

    def wake(self, key: Key) -> None:
        """Lines that wait for this look again."""
        if key in self.asleep:
            self.awake += self.asleep.pop(key)

    def _begin(self) -> None:
        """Weights, and what lanes begin with."""
        model = self.model
        lanes = sorted({request.lane for request in self.requests})
        for place in model.replica.places:
            trace, buffer = place.trace, int(place.buffer)
            role = model.programs[trace].buffers[buffer].role
            cells = model.cells(trace, buffer, [model.held(place)])
            if role in LASTING:
                cells = self._at_home(place, cells)
            if role in OWN or (role is Role.WEIGHT and place.kind is AreaKind.SLOT):
                continue
            for lane in lanes:
                base, _, _ = self.base(trace, place.device, buffer, lane, 0)
                first = model.first(trace, buffer, lane, 0)
                self.memory.update((base + at, hash((first, at))) for at in cells)

    def _at_home(self, place: Place, cells: tuple[int, ...]) -> list[int]:
        """Cells that hold what a lane begins with: those at home, those that nobody writes."""
        model, trace, buffer = self.model, place.trace, int(place.buffer)
        written = set(model.cells(trace, buffer, model.written[model.owner(trace, buffer)]))
        here, elsewhere = set[int](), set[int]()
        for home in model.replica.homes:
            if (home.trace, home.buffer) == (trace, buffer):
                mine = home.device == place.device
                (here if mine else elsewhere).update(model.cells(trace, buffer, home.bytes))
        return [at for at in cells if at in here or not (at in elsewhere or at in written)]

    def _end(self) -> None:
        """What every home holds; where homes differ or are missing, a number says so."""
        model = self.model
        for request in self.requests:
            trace = request.trace
            for one in model.programs[trace].buffers:
                if one.role not in LASTING:
                    continue
                buffer = int(one.id)
                first = model.first(trace, buffer, request.lane, 0)
                values = {at: hash((first, at)) for at in model.whole(trace, buffer)}
                written = model.cells(trace, buffer, model.written[model.owner(trace, buffer)])
                values |= dict.fromkeys(written, _LOST)
                for home in model.replica.homes:
                    if (home.trace, home.buffer) == (trace, one.id):
                        base, _, _ = self.base(trace, home.device, buffer, request.lane, 0)
                        for at in model.cells(trace, buffer, home.bytes):
                            new, old = self.memory[base + at], values[at]
                            values[at] = new if old in (_LOST, new) else _DIFFERENT
                address = model.address(trace, buffer)
                values |= {at: hash((address, at)) for at in model.word_cells(trace, buffer)}
                key = model.lasting(request, one)
                self.result["lasting", trace, *key] = list(values.values())


_DONE: Key = ("done",)


class _Line:
    """A queue of a request: its turns, each of which yields what it waits for, or nothing."""

    def __init__(self, live: _Live, turns: Iterator[Key | None]) -> None:
        self.live, self.turns, self.rank = live, turns, 0.0


def _rank(line: _Line) -> float:
    return line.rank


class _Live:
    """A request under way."""

    def __init__(self, machine: _Machine, number: int, request: Request) -> None:
        self.machine, self.number, self.request = machine, number, request
        self.spot = (request.lane, request.slot)
        self.model, self.memory, self.trace = machine.model, machine.memory, request.trace
        self.lowered = self.model.lowered[self.trace]
        self.transfers = {t.id: t for t in self.lowered.transfers}
        self.events: set[tuple[str, int]] = set()
        self.read: dict[tuple[int, int], list[int]] = {}
        self.begun: set[int] = set()
        self.late: list[tuple[Portion, list[int]]] = []
        self._tables()
        self.lines = [
            _Line(self, self._queue(program.device, list(program.on(queue))))
            for program in self.lowered.programs
            for queue in {one.queue: None for one in program.operations}
        ]
        machine.rng.shuffle(self.lines)
        self.left = len(self.lines)

    def _tables(self) -> None:
        """Words hold addresses of their place; weights in a slot are there for the request."""
        model = self.model
        for (trace, device, buffer), place in model.places.items():
            if trace != self.trace or device not in model.replica.devices:
                continue
            words = model.word_cells(trace, buffer)
            role = model.programs[trace].buffers[buffer].role
            is_fresh = role is Role.WEIGHT and place.kind is AreaKind.SLOT
            if words or is_fresh:
                base = self._base(device, buffer)
                if is_fresh:
                    first = model.first(trace, buffer, 0, self.number)
                    self.memory.update(
                        (base + at, hash((first, at))) for at in model.whole(trace, buffer)
                    )
                own = self._own_address(device, buffer)
                self.memory.update((base + at, hash((own, at))) for at in words)

    def _own_address(self, device: str, buffer: int) -> int:
        """One that is there once has the same for all requests."""
        place = self.model.places[self.trace, device, buffer]
        own = (self.request.slot, self.request.lane)
        where = () if place.kind is AreaKind.WEIGHTS else own
        return self.model.address(self.trace, buffer, device, *where)

    def _base(self, device: str, buffer: int) -> int:
        return self.machine.base(self.trace, device, buffer, *self.spot)[0]

    def _addresses(self, device: str, buffer: int, cells: Sequence[int]) -> list[int]:
        """Where cells are on a device."""
        if not cells:
            return []
        base, first, end = self.machine.base(self.trace, device, buffer, *self.spot)
        if cells[0] < first or cells[-1] >= end:
            raise Outside(f"bytes of buffer {buffer} on {device}")
        return [base + at for at in cells]

    def _cells(self, portion: Portion) -> tuple[int, ...]:
        size = self.model.programs[self.trace].buffers[portion.buffer].bytes
        if any(not 0 <= start < end <= size for start, end in portion.bytes):
            raise Outside(f"{portion}")
        return self.model.cells(self.trace, int(portion.buffer), portion.bytes)

    def _queue(self, device: str, operations: list[Operation]) -> Iterator[Key | None]:
        for operation in operations:
            match operation:
                case Await(event):
                    while (device, event) not in self.events:
                        yield ("event", self.number, device, event)
                case Record(event):
                    self.events.add((device, event))
                    self.machine.wake(("event", self.number, device, event))
                case Run(step):
                    yield from self._run(device, int(step))
                case Fill(buffer, found):
                    cells = self._cells(Portion(buffer, found))
                    first = self.model.first(self.trace, int(buffer), 0, self.number)
                    values = [hash((first, at)) for at in cells]
                    yield from self._store(device, int(buffer), cells, values)
                case Free(buffer):
                    base, *held = self.machine.base(self.trace, device, int(buffer), *self.spot)
                    for at in self.model.cells(self.trace, int(buffer), [(held[0], held[1])]):
                        self.memory.pop(base + at, None)
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
                    self.machine.wake(("landing", self.request.slot, int(landing)))
            yield None

    def _load(self, device: str, buffer: int, cells: Sequence[int]) -> list[int]:
        return [self.memory[at] for at in self._addresses(device, buffer, cells)]

    def _store(
        self, device: str, buffer: int, cells: Sequence[int], values: Sequence[int]
    ) -> Iterator[Key | None]:
        """Two turns, cut anywhere."""
        pairs = list(zip(self._addresses(device, buffer, cells), values, strict=True))
        cut = self.machine.rng.randrange(len(pairs) + 1)
        self.memory.update(pairs[:cut])
        yield None
        self.memory.update(pairs[cut:])
        yield None

    def _run(self, device: str, step: int) -> Iterator[Key | None]:
        touches = self.model.step(self.trace, step)
        seen = []
        for touch in touches:
            values = self._load(device, touch.buffer, touch.reads)
            words = self.model.words[self.trace][touch.buffer]
            if words and values:
                own = self._own_address(device, touch.buffer)
                common = self.model.address(self.trace, touch.buffer)
                cells = set(self.model.word_cells(self.trace, touch.buffer))
                values = [
                    hash((common, at)) if at in cells and value == hash((own, at)) else value
                    for at, value in zip(touch.reads, values, strict=True)
                ]
            seen.append(tuple(values))
            yield None
        digest = self.model.digest(self.trace, step, seen)
        for touch in touches:
            if touch.writes:
                self._addresses(device, touch.buffer, [at for at, _ in touch.writes])
                new = outcome(digest, touch)
                yield from self._store(device, touch.buffer, list(new), list(new.values()))

    def _send(self, device: str, number: int) -> Iterator[Key | None]:
        transfer = self.transfers[number]
        for portion in transfer.portions:
            values = self._load(device, int(portion.buffer), self._cells(portion))
            if transfer.target == HOST:
                self.late.append((portion, values))
            else:
                self.read[number, int(portion.buffer)] = values
                self.machine.wake(("read", self.number, number, int(portion.buffer)))
            yield None
        if transfer.target != HOST and not self.machine.buffered:
            while number not in self.begun:
                yield ("begun", self.number, number)

    def _receive(self, device: str, number: int) -> Iterator[Key | None]:
        self._begun(number)
        transfer = self.transfers[number]
        for portion in transfer.portions:
            buffer = int(portion.buffer)
            cells = self._cells(portion)
            if transfer.source == HOST:
                first = self.model.first(self.trace, buffer, 0, self.number)
                values = [hash((first, at)) for at in cells]
            else:
                while (number, buffer) not in self.read:
                    yield ("read", self.number, number, buffer)
                values = self.read[number, buffer]
            yield from self._store(device, buffer, cells, values)

    def _begun(self, number: int) -> None:
        self.begun.add(number)
        self.machine.wake(("begun", self.number, number))

    def _put(self, device: str, number: int, landing: int) -> Iterator[Key | None]:
        """One-sided: the bytes land when they are read, whatever the target does."""
        key = (self.request.slot, landing)
        while key in self.machine.held:
            yield ("landing", *key)
        self.machine.held.add(key)
        self._check_landing(number, landing)
        own = self.machine.landings[key] = {}
        for portion in self.transfers[number].portions:
            cells = self._cells(portion)
            values = self._load(device, int(portion.buffer), cells)
            own.update(zip(((portion.buffer, at) for at in cells), values, strict=True))
            yield None
        self._begun(number)

    def _take(self, device: str, number: int, landing: int) -> Iterator[Key | None]:
        while number not in self.begun:
            yield ("begun", self.number, number)
        for portion in self.transfers[number].portions:
            cells, buffer = self._cells(portion), int(portion.buffer)
            self._check_landing(number, landing)
            own = self.machine.landings.get((self.request.slot, landing), {})
            values = [own.get((portion.buffer, at), _LOST) for at in cells]
            yield from self._store(device, buffer, cells, values)

    def _check_landing(self, number: int, landing: int) -> None:
        sizes = {one.id: one.bytes for one in self.model.replica.landings}
        if self.transfers[number].size > sizes.get(landing, -1):
            raise Outside(f"landing {landing}")

    def finish(self) -> None:
        """What was sent to the host arrives, in any order."""
        model, trace = self.model, self.trace
        self.machine.rng.shuffle(self.late)
        for one in model.programs[trace].buffers:
            if one.role is not Role.OUTPUT:
                continue
            buffer = int(one.id)
            first = model.first(trace, buffer, 0, self.number)
            values = {at: hash((first, at)) for at in model.whole(trace, buffer)}
            for portion, sent in self.late:
                if portion.buffer == buffer:
                    values.update(zip(self._cells(portion), sent, strict=True))
            values |= dict.fromkeys(model.word_cells(trace, buffer), 0)
            self.machine.result["output", self.number, one.name] = list(values.values())
