"""Follows launch programs through time, slowly: the second opinion on `tessera.simulation`.

Written from `docs/concepts/simulation.md` alone, without a line of the code that it judges. At
every moment all queues are looked at again; when nothing can happen, time goes on to the next end.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, cast

from tessera.ir.plan import launch_program as lp
from tessera.ir.plan.launch_program import HOST, AwaitPut, Credit, Fill, Put, Receive, Run, Send
from tessera.ir.plan.plan import Plan
from tests.helpers.slow_hosts import credited, host_time, is_one_graph, is_put, may_land

NOTHING, PAYING, PAID, MOVING, LEFT, ARRIVED, TAKING, DONE = range(8)
"""How far a transfer is. Steps and fills are at nothing, under way, or done."""


class Request:  # who it is, and how far it is; `times` are those of its steps
    def __init__(self, replica: int, trace: int, sequence: int, lowered: Any, times: Any) -> None:
        self.replica, self.trace, self.sequence = replica, trace, sequence
        self.lowered: lp.LoweredTrace = lowered
        self.times: Mapping[int, tuple[float, float, float]] = times
        self.came_ns, self.age, self.slot = 0.0, -1, -1
        self.before = self.began_ns = self.ended_ns = cast(Any, None)
        self.stage, self.reached = defaultdict[Any, int](int), set[Any]()
        self.ready_ns = dict[Any, float]()
        self.transfers = {int(transfer.id): transfer for transfer in lowered.transfers}
        self.queues = [
            [(index, at, one.operation) for at, one in enumerate(operations) if one.queue is queue]
            for index, operations in enumerate(one.operations for one in lowered.programs)
            for queue in lp.Queue
        ]

    @property
    def is_split(self) -> bool:
        runs = ({type(one.operation) for one in own.operations} for own in self.lowered.programs)
        return sum(Run in kinds for kinds in runs) > 1

    def heads(self) -> list[tuple[int, int, lp.Operation]]:
        """Program, position and operation that every queue has come to; what stands first first."""
        return sorted((queue[0] for queue in self.queues if queue), key=lambda head: head[:2])


class Task:  # what a device does or a way carries for a request, or a latency
    def __init__(self, request: Request, key: Any, after: int, place: Any, end_ns: float) -> None:
        self.request, self.key, self.after, self.place = request, key, after, place
        self.end_ns, self.left, self.speed, self.since_ns = end_ns, 1.0, 0.0, 0.0
        self.share, self.order = 1.0, cast(Any, None)
        self.times: tuple[float, ...] = ()


class Line:  # a replica: its requests in line, those that are handed over, and its slots
    def __init__(self, slots: int, depth: int, coming: Iterator[Request]) -> None:
        self.depth, self.coming = depth, coming
        self.following = next(coming, None)
        self.handed, self.slots = list[Request](), [list[Request]() for _ in range(slots)]
        self.given, self.host_ns = [0] * slots, 0.0
        self.last_slot, self.last_of_trace = dict[int, int](), dict[int, Request]()

    def hand_over(self, now: float, ages: Iterator[int]) -> None:
        room = len(self.slots) * self.depth - sum(len(requests) for requests in self.slots)
        while (request := self.following) and request.came_ns <= now and len(self.handed) < room:
            self.handed.append(request)
            request.age = request.age if request.age >= 0 else next(ages)
            self.following = next(self.coming, None)

    def slot_for(self, request: Request) -> int | None:
        for number, requests in enumerate(self.slots):
            if any(other.sequence == request.sequence for other in requests):
                return number if len(requests) < self.depth else None
        wanted = self.last_slot.get(request.sequence, request.sequence % len(self.slots))
        if not self.slots[wanted]:
            return wanted
        fewest, _, number = min((len(own), self.given[n], n) for n, own in enumerate(self.slots))
        return number if fewest < self.depth else None

    def give_slots(self) -> None:
        waiting: set[int] = set()
        for request in list(self.handed):
            slot = None if request.sequence in waiting else self.slot_for(request)
            if slot is None:
                waiting.add(request.sequence)
                continue
            self.handed.remove(request)
            self.slots[slot].append(request)
            self.given[slot] = max(self.given) + 1
            self.last_slot[request.sequence] = request.slot = slot
            request.before = self.last_of_trace.get(request.trace)
            self.last_of_trace[request.trace] = request

    def beginning(self) -> list[Request]:
        """Those that are the first in their slots, and past their gates, and have not begun."""
        first = [slot[0] for slot in self.slots if slot and slot[0].began_ns is None]
        gates = [(request, request.before, request.lowered.gate) for request in first]
        return [r for r, b, gate in gates if not b or gate is None or b.stage[Run(gate)] == DONE]


class SlowSimulator:  # all replicas of a plan on one machine, from time 0 on
    def __init__(self, plan: Plan, machine: Any) -> None:  # a `Hardware`
        self.plan, self.machine, self.paths = plan, machine, machine.paths
        self.now, self.most_at_once, self.ages = 0.0, 0, itertools.count()
        self.lines, self.tasks = list[Line](), list[Task]()
        self.active, self.ended = list[Request](), list[Request]()
        steps = [s for one in plan.replicas for own in one.traces for s in own.steps]
        uneven = {s.device for s in steps if s.predicted_ns and len(set(s.times_ns)) > 1}
        beside = (self.machine.neighbours.get(device, ()) for device in uneven)
        users = defaultdict[str, set[int]](set)
        for number, one in enumerate(plan.replicas):
            for lowered, own in zip(one.lowered.traces, one.traces, strict=True):
                times = {s.step: s.times_ns for s in own.steps}
                request = Request(number, own.trace, 0, lowered, times)
                for index, position, operation in itertools.chain(*request.queues):
                    if self.work(request, index, position, operation)[1][0]:
                        users[lowered.programs[index].device].add(number)
        self.in_turns = {name for name in uneven.union(*beside) if len(users[name]) == 1}

    def requests(self, replica: int) -> Iterator[Request]:
        placed = self.plan.replicas[replica]
        shares = [trace.share for trace in self.plan.traces]
        steps = {t.trace: {s.step: s.times_ns for s in t.steps} for t in placed.traces}
        lowered = {trace.trace: trace for trace in placed.lowered.traces}
        counts = [[0] * len(shares) for _ in range(placed.lanes)]
        for number in itertools.count():
            sequence = number % placed.lanes
            trace = furthest_behind(counts[sequence], shares)
            counts[sequence][trace] += 1
            yield Request(replica, trace, sequence, lowered[trace], steps[trace])

    def saturate(self, count: int) -> list[Request]:
        numbers = range(len(self.plan.replicas))
        return self.run([self.requests(number) for number in numbers], [count] * len(numbers))

    def arrive(self, times_ns: Sequence[float]) -> list[Request]:
        shares = [replica.share for replica in self.plan.replicas]
        endless = [self.requests(replica) for replica in range(len(shares))]
        dealt: list[list[Request]] = [[] for _ in shares]
        for age, time_ns in enumerate(times_ns):
            replica = furthest_behind([len(own) for own in dealt], shares)
            request = next(endless[replica])
            request.age, request.came_ns = age, time_ns
            dealt[replica].append(request)
        return self.run([iter(own) for own in dealt], [len(own) for own in dealt])

    def run(self, coming: Sequence[Iterator[Request]], wanted: list[int]) -> list[Request]:
        self.most_at_once = max(wanted)
        for replica, requests in zip(self.plan.replicas, coming, strict=True):
            self.lines.append(Line(replica.slots, self.machine.depth, requests))
        while any(sum(r.replica == n for r in self.ended) < most for n, most in enumerate(wanted)):
            self.moment()
        return self.ended

    def moment(self) -> None:
        done = [task for task in self.tasks if task.end_ns == self.now]
        for task in done:
            self.tasks.remove(task)
            task.request.stage[task.key] = task.after
        self.settle(dict.fromkeys(task.request for task in done))
        for line in self.lines:
            self.begin_requests(line)
        self.take_work()
        self.set_speeds()
        times = [line.following.came_ns for line in self.lines if line.following]
        times = [time for time in times if time > self.now] + [task.end_ns for task in self.tasks]
        if not times and self.active:
            raise RuntimeError(f"every queue waits at {self.now} ns")
        self.now = min(times, default=self.now)

    def begin_requests(self, line: Line) -> None:
        """Until no more can begin; one that takes no time makes room for the next at once."""
        ended, beginning, host_ns = len(self.ended), None, self.machine.host_call_ns
        while beginning != [] and len(self.ended) - ended < self.most_at_once:
            line.hand_over(self.now, self.ages)
            line.give_slots()
            beginning = sorted(line.beginning(), key=lambda request: request.age)
            beginning = beginning[: 1 if host_ns else None] if line.host_ns <= self.now else []
            for request in beginning:
                request.began_ns, request.stage[HOST] = self.now, NOTHING if host_ns else DONE
                taken_ns = host_time(self.machine, request.lowered, len(line.slots))
                line.host_ns = self.now + (host_ns and taken_ns)
                self.tasks += [Task(request, HOST, DONE, None, line.host_ns)] if host_ns else []
            self.active += beginning
            self.settle(beginning)

    def settle(self, requests: Iterable[Request]) -> None:
        """Pass all that takes no time and waits for nothing; end requests that are done."""
        for request in requests:
            while self.goes_on(request):
                pass
            there = all(request.stage[number] >= ARRIVED for number in request.transfers)
            if there and request.stage[HOST] == DONE and not request.heads():
                request.ended_ns = self.now
                self.active.remove(request)
                self.ended.append(request)
                self.lines[request.replica].slots[request.slot].remove(request)

    def goes_on(self, request: Request) -> bool:
        gone = False
        for queue in [queue for queue in request.queues if queue]:
            index, position, operation = queue[0]
            request.reached |= {operation, (index, operation)}
            key, ns, before, after = self.work(request, index, position, operation)
            if not may_land(request, operation, ARRIVED):
                continue
            if not ns[0] and request.stage[key] == before:
                free = isinstance(operation, Credit) and credited(request, operation, self.paths)
                if free:
                    request.stage[free[0]] = LEFT if free[1] else ARRIVED
                    self.tasks += [Task(request, free[0], ARRIVED, None, self.now + free[1])]
                request.stage[key], gone = after, True
            if self.is_over(request, index, key, operation):
                gone = bool(queue.pop(0))
        for moved in request.transfers.values():
            way = self.paths[moved.source, moved.target]
            if request.stage[moved.id] == PAID and way.bytes_per_second == float("inf"):
                gone |= self.move(request, moved, set())
        return gone

    def is_over(self, request: Request, index: int, key: Any, operation: lp.Operation) -> bool:
        if isinstance(operation, lp.Await):
            return (index, lp.Record(operation.event)) in request.reached
        least = LEFT if self.machine.buffered or isinstance(operation, Put) else ARRIVED
        return request.stage[key] >= (least if isinstance(operation, Send | Put) else DONE)

    def work(self, request: Request, index: int, position: int, operation: Any) -> Any:
        """Its name in `Request.stage`, what it takes of its device, from which stage to which."""
        match operation:
            case Run(step):
                return operation, request.times[step], NOTHING, DONE
            case Fill(_, filled):
                device = request.lowered.programs[index].device
                size = sum(end - start for start, end in filled)
                ns = self.machine.fill_ns + size * self.machine.fill_ns_per_byte.get(device, 0.0)
                return (index, position), (ns,) * 3, NOTHING, DONE
            case Send(number) | Put(number):
                return number, self.end_ns(request, number), NOTHING, PAID
            case Receive(number) | AwaitPut(number):
                comes = request.transfers[number].source == HOST and not request.stage[number]
                stages = (NOTHING, PAID) if comes else (ARRIVED, DONE)
                return number, self.end_ns(request, number), *stages
        return (index, position), (0.0,) * 3, NOTHING, DONE

    def take_work(self) -> None:
        """Devices take the first of what is ready while they have room, then ways the oldest."""
        ready, kept = list[Any](), set[str]()
        for request in self.active:
            for index, position, operation in request.heads():
                device = request.lowered.programs[index].device
                key, ns, before, after = self.work(request, index, position, operation)
                if ns[0] and request.stage[key] == before and may_land(request, operation, ARRIVED):
                    task = Task(request, key, after, device, float("inf"))
                    task.times, task.share = ns, ns[0] / ns[1]
                    since_ns = request.ready_ns.setdefault((key, before), self.now)
                    late = not request.is_split and device in self.in_turns
                    task.order = late, late * since_ns, request.age, index, position
                    ready.append((task, before))
        for task, before in sorted(ready, key=lambda entry: entry[0].order):
            if sum(other.share for other in self.tasks if other.place == task.place) < 1 - 1e-9:
                task.request.stage[task.key] = before + 1
                self.tasks.append(task)
        for request in sorted(self.active, key=lambda request: request.age):
            for moved in request.transfers.values():
                if request.stage[moved.id] == PAID:
                    self.move(request, moved, kept)

    def set_speeds(self) -> None:
        """The first first; between quiet and not, by how many of the neighbours compute."""
        tasks = [task for task in self.tasks if isinstance(task.place, str)]
        room = {task.place: 1.0 for task in tasks}
        for task in sorted(tasks, key=lambda task: task.order):
            others = self.machine.neighbours.get(task.place, ())
            beside = sum(other in room for other in others) / max(len(others), 1)
            given = min(task.share, room[task.place])
            room[task.place] -= given
            _, alone, quiet = task.times
            speed = given / (task.share * (quiet + beside * (alone - quiet)))
            if speed != task.speed:
                task.left = max(task.left - (self.now - task.since_ns) * task.speed, 0.0)
                task.since_ns, task.speed = self.now, speed
                task.end_ns = self.now + task.left / speed if speed else float("inf")

    def move(self, request: Request, moved: lp.Transfer, kept: set[str]) -> bool:
        """The bytes of a transfer begin to move, or keep younger ones from what they wait for."""
        way = self.paths[moved.source, moved.target]
        alone = self.machine.buffered or moved.target == HOST or is_put(request, moved.id)
        if not alone and Receive(moved.id) not in request.reached:
            return False
        ns = moved.size * 1e9 / way.bytes_per_second
        shares = way.shares if ns else ()
        ways = [task.place for task in self.tasks if isinstance(task.place, type(way))]
        for name in shares:
            used = sum(other.bytes_per_second for other in ways if name in other.shares)
            if used + way.bytes_per_second > self.machine.capacities[name] * (1 + 1e-9):
                kept.add(name)
        if kept & set(shares):
            return False
        latency = way.latency_ns
        if HOST not in (moved.source, moved.target) and self.is_one_graph(request):
            latency += 2 * (way.tax_ns + moved.size * way.tax_ns_per_byte)
        request.stage[moved.id] = MOVING if ns else LEFT if latency else ARRIVED
        if ns:
            self.tasks.append(Task(request, moved.id, LEFT, way, self.now + ns))
        if ns + latency > 0:
            self.tasks.append(Task(request, moved.id, ARRIVED, None, self.now + ns + latency))
        return True

    def end_ns(self, request: Request, number: lp.TransferId) -> tuple[float, float, float]:
        moved = request.transfers[number]
        way = self.paths[moved.source, moved.target]
        ns = way.tax_ns + moved.size * way.tax_ns_per_byte
        is_free = HOST in (moved.source, moved.target) or self.is_one_graph(request)
        return (0.0 if is_free else ns,) * 3

    def is_one_graph(self, request: Request) -> bool:
        slots = self.plan.replicas[request.replica].slots
        return is_one_graph(self.machine, request.lowered, slots)


def furthest_behind(counts: Sequence[int], shares: Sequence[float]) -> int:  # the first of several
    part = (sum(counts) + 1) / sum(map(Fraction, shares))
    behind = [Fraction(own) * part - count for own, count in zip(shares, counts, strict=True)]
    return behind.index(max(behind))
