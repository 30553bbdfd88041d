"""The event loop: follows the requests of all replicas in simulated time.

In: the work of a request of every trace on every replica, and the arrival times of requests. Out: a
`Passage` per request. The rules, which `tests/helpers/slow_simulator.py` implements independently:

- At every moment, all work that is due ends first; then requests begin; then free devices and paths
  take the oldest ready work. Within one request, work is taken in program order.
- A device runs one node at a time and is never interrupted, unless requests share it (`sharing`). A
  transfer takes its rate from every capacity of its path. It begins when all of these have that
  much left, and gives the rate back when its bytes have left the path (`wires`).
- A slot holds one request at a time, and so does a sequence. With `depth` above one, further
  requests are assigned to a slot and wait there. At most slots * depth requests are handed over; of
  these, the oldest whose sequence is free begins first.
- With a gate, a request begins when the previous request of its trace has passed the gate.
- If the hand-over takes time, the host hands over one request of a replica at a time.

Consecutive work of one request on a device (a row) is one event. If older work becomes ready in
between, the row is cut after the node that is running. A transfer is one event, at its arrival.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from itertools import accumulate
from types import MappingProxyType

from tessera.simulation.hardware import UNLIMITED
from tessera.simulation.intake import Intake, MovingRequest, SimulatedReplica, places_of
from tessera.simulation.journal import Busy, Journal, Passage
from tessera.simulation.rows import WorkRow, rows_of
from tessera.simulation.sharing import SharedDevice, SharedStep, shared_devices
from tessera.simulation.wires import Wires
from tessera.simulation.work import NOTHING, WAIT, WIRE


class EventLoop:
    """All replicas on their devices and paths."""

    def __init__(
        self,
        replicas: Sequence[SimulatedReplica],
        capacities: Mapping[str, float],
        neighbours: Mapping[str, Sequence[str]] = MappingProxyType({}),
        *,
        keep_timeline: bool = False,
        keep_waiting: bool = False,
    ) -> None:
        works = [replica.work for replica in replicas]
        self._names = places_of(works)
        self._shared = shared_devices(self._names, works, neighbours)
        self._uneven: set[int] = set()
        numbers = {name: number for number, name in enumerate(self._names)}
        self._wires = Wires([capacities.get(name, 0.0) for name in self._names])
        self._freed_ns = UNLIMITED
        self._is_busy = [False] * len(self._names)
        self._ready: list[list[tuple[int, int, MovingRequest]]] = [[] for _ in self._names]
        self._busy_ns = [0.0] * len(self._names)
        self._events: list[tuple[float, int, MovingRequest | None, int]] = []
        self._count = 0
        self._age = 0
        self._rows: list[WorkRow | None] = [None] * len(self._names)
        self._cut: set[int] = set()
        self._intakes = [Intake(index, replica, numbers) for index, replica in enumerate(replicas)]
        if not keep_timeline:
            for intake in self._intakes:
                for columns in intake.columns.values():
                    columns.rows = rows_of(columns)
        self._touched: set[int] = set()
        self._wires_changed = False
        self._changed: set[int] = set()
        self._passages: list[Passage] = []
        self._waiting: list[tuple[float, int]] = []
        self._timeline: list[Busy] | None = [] if keep_timeline else None
        self._keeps_waiting = keep_waiting
        self._most_at_once = UNLIMITED
        self._enough: Sequence[float] = [UNLIMITED] * len(replicas)
        self._lacking = len(replicas)
        self._operations = 0
        self._now = 0.0

    def run(self, enough: Sequence[int] | None = None) -> None:
        """Run until every replica has ended its number of requests, or no request is left."""
        intakes = self._intakes
        self._changed.update(range(len(intakes)))
        self._most_at_once = UNLIMITED if enough is None else max(enough, default=0)
        self._enough = [UNLIMITED] * len(intakes) if enough is None else enough
        self._lacking = sum(
            len(intake.ends) < count for intake, count in zip(intakes, self._enough, strict=True)
        )
        self._moment()
        events, cut = self._events, self._cut
        while events and self._lacking:
            now = self._now = events[0][0]
            while events and events[0][0] <= now:
                _, count, request, number = heappop(events)
                if cut and count in cut:
                    cut.discard(count)
                elif request is not None:
                    self._end(request, number)
                elif number >= 0:
                    self._changed.add(number)
                else:
                    self._freed_ns = UNLIMITED
                    self._wires_changed = True
            self._moment()

    @property
    def now_ns(self) -> float:
        """Current simulated time."""
        return self._now

    @property
    def shares_devices(self) -> bool:
        """Whether any device runs work of several requests at a time."""
        return any(shared is not None for shared in self._shared)

    def busy_ns(self) -> dict[str, float]:
        """Busy time of every place so far."""
        busy_ns = self._busy_ns.copy()
        for place, shared in enumerate(self._shared):
            if shared is not None and self._is_busy[place]:
                busy_ns[place] += self._now - shared.busy_since_ns
        # Work under way was counted in full when it began: subtract its remaining time.
        for at_ns, count, request, node in self._events:
            place = -1 if request is None or count in self._cut else request.columns.device[node]
            if place >= 0 and self._shared[place] is None:
                busy_ns[place] -= at_ns - self._now
        for place, ns in self._wires.ahead_ns(self._now):
            busy_ns[place] -= ns
        return dict(zip(self._names, busy_ns, strict=True))

    def traffic(self) -> Journal:
        """The journal of the simulation so far."""
        return Journal(
            passages=tuple(self._passages),
            busy_ns=self.busy_ns(),
            ended_ns=self._now,
            operations=self._operations,
            waiting=tuple(self._waiting),
            timeline=tuple(self._timeline or ()),
        )

    def ends_of(self, replica: int) -> list[float]:
        """End times of the requests of a replica."""
        return self._intakes[replica].ends

    # --- requests -------------------------------------------------------------------------------

    def _fetch(self, intake: Intake) -> None:
        """Take the requests that have arrived; of back-to-back requests, as many as have room."""
        room = intake.capacity - len(intake.handed) - intake.under_way - len(intake.queue)
        while intake.next is not None:
            coming = intake.next
            if coming.at_ns > self._now:
                if not intake.is_expected:
                    self._push(coming.at_ns, None, intake.index)
                    intake.is_expected = True
                return
            if coming.at_ns < 0:
                if room <= 0:
                    return
                room -= 1
            self._age += 1
            age = self._age if coming.age < 0 else coming.age
            intake.queue.append(MovingRequest(intake, coming, age))
            intake.next = next(intake.coming, None)
            intake.is_expected = False

    def _begin(self, request: MovingRequest) -> None:
        columns = request.columns
        request.began_ns = self._now
        request.ahead = None
        request.missing = columns.before.copy()
        request.left = len(columns.kind) - columns.handed
        self._operations += columns.operations
        if columns.host_ns:
            request.replica.host_free_ns = self._now + columns.host_ns
            self._push(request.replica.host_free_ns, None, request.replica.index)
        if not request.left:
            self._finish(request)
        for node in columns.first:
            self._become_ready(request, node)

    def _finish(self, request: MovingRequest) -> None:
        request.left, intake = 1 << 62, request.replica  # hand-overs may follow
        intake.end(request)
        intake.ends.append(self._now)
        if len(intake.ends) == self._enough[intake.index]:
            self._lacking -= 1
        self._changed.add(intake.index)
        came = request.began_ns if request.came_ns < 0 else request.came_ns
        self._passages.append(
            Passage(intake.index, request.trace, came, request.began_ns, self._now)
        )

    def _begin_requests(self) -> None:
        """Begin requests until none can begin. Requests that take no time would repeat forever, so
        at most the requested number of them ends per replica at one moment."""
        before = [len(intake.ends) for intake in self._intakes]
        later = set()
        while self._changed:
            index = min(self._changed)
            self._changed.discard(index)
            intake = self._intakes[index]
            if len(intake.ends) - before[index] >= self._most_at_once:
                later.add(index)
                continue
            self._fetch(intake)
            intake.hand_over()
            for request in intake.ready():
                if intake.host_free_ns > self._now:
                    break
                self._begin(request)
        self._changed = later

    def _moment(self) -> None:
        """Begin requests, then serve free places; all work due at this moment has ended."""
        if self._changed:
            self._begin_requests()
        if self._keeps_waiting:
            waiting = sum(intake.waiting() for intake in self._intakes)
            if not self._waiting or self._waiting[-1][1] != waiting:
                self._waiting.append((self._now, waiting))
        touched = self._touched
        if touched:
            for place in sorted(touched) if len(touched) > 1 else touched:
                self._serve(place)
            touched.clear()
        if self._uneven:
            for place in sorted(self._uneven):
                self._set_speeds(place)
            self._uneven.clear()
        if self._wires_changed:
            self._wires_changed = False
            self._serve_wires()

    # --- work -----------------------------------------------------------------------------------

    def _push(self, at_ns: float, request: MovingRequest | None, number: int) -> None:
        self._count += 1
        heappush(self._events, (at_ns, self._count, request, number))

    def _become_ready(self, request: MovingRequest, node: int) -> None:
        """Start or enqueue a node that waits for nothing more."""
        columns = request.columns
        place = columns.device[node]
        if place >= 0:
            shared, row = self._shared[place], self._rows[place]  # at most one of them is set
            rank = request.age if shared is None else shared.rank(request)
            heappush(self._ready[place], (rank, node, request))
            if not self._is_busy[place] or shared is not None:
                self._touched.add(place)
            elif row is not None and rank <= row.request.age:
                self._cut_row(place, row, (rank, node))
            return
        kind = columns.kind[node]
        if kind == WIRE:
            self._wires.want(request, node)
            self._wires_changed = True
        elif kind == WAIT:
            self._push(self._now + columns.ns[node], request, node)
        else:
            self._pass(request, node)

    def _end(self, request: MovingRequest, node: int) -> None:
        """Release the resources of a node, then pass it."""
        place = request.columns.device[node]
        if place >= 0:
            self._touched.add(place)
            shared = self._shared[place]
            if shared is not None:
                self._note(request, node, shared.drop(request, node).began_ns, self._now)
            else:
                self._is_busy[place] = False
                row = self._rows[place]
                if row is not None:
                    request.left -= len(row.nodes) - 1
                    self._rows[place] = None
        self._pass(request, node)

    def _pass(self, request: MovingRequest, node: int) -> None:
        """Release the successors of a node, and at once theirs where a successor takes no time."""
        columns, missing = request.columns, request.missing
        kind, gate, passed = columns.kind, columns.gate, [node]
        for node in passed:
            if node == gate:
                request.is_past_gate = True
                self._changed.add(request.replica.index)
            for follower in columns.after[node]:
                left = missing[follower] = missing[follower] - 1
                if not left:
                    if kind[follower] == NOTHING:
                        passed.append(follower)
                    else:
                        self._become_ready(request, follower)
        request.left -= len(passed)
        if request.left <= 0:
            self._finish(request)

    def _serve(self, place: int) -> None:
        """Give a device the oldest ready work."""
        shared = self._shared[place]
        if shared is not None:
            self._take(place, shared)
            return
        ready = self._ready[place]
        if not ready or self._is_busy[place]:
            return
        age, node, request = heappop(ready)
        columns, now = request.columns, self._now
        self._is_busy[place] = True
        self._count += 1
        in_row = columns.rows[node] if columns.rows else None
        if in_row is not None and not (ready and ready[0][0] <= age):
            row_nodes, row_ns, at = in_row
            ends_ns = list(accumulate(row_ns[at:], initial=now))
            self._busy_ns[place] += ends_ns[-1] - now
            heappush(self._events, (ends_ns[-1], self._count, request, row_nodes[-1]))
            self._rows[place] = WorkRow(request, row_nodes[at:], ends_ns, self._count)
            return
        ns = columns.ns[node]
        self._busy_ns[place] += ns
        heappush(self._events, (now + ns, self._count, request, node))
        if self._timeline is not None:
            self._note(request, node, now, now + ns)

    def _take(self, place: int, shared: SharedDevice) -> None:
        """Give a shared device ready work in the order of rank while it has room."""
        ready = self._ready[place]
        while ready and shared.has_room():
            rank, node, request = heappop(ready)
            shared.take(SharedStep(request, node, rank, self._now))
        self._uneven.add(place)
        if bool(shared.steps) != self._is_busy[place]:
            if self._is_busy[place]:
                self._busy_ns[place] += self._now - shared.busy_since_ns
            self._is_busy[place] = not self._is_busy[place]
            shared.busy_since_ns = self._now
            self._uneven.update(shared.neighbours)

    def _set_speeds(self, place: int) -> None:
        """Recompute the speed of each step under way on a shared device."""
        shared = self._shared[place]
        assert shared is not None
        busy = sum(self._is_busy[other] for other in shared.neighbours)
        for step, speed in list(shared.speeds(busy)):
            if speed == step.speed:
                continue
            step.go_on(speed, self._now)
            if step.count:
                self._cut.add(step.count)
                step.count = 0
            if speed:
                self._push(self._now + step.left / speed, step.request, step.node)
                step.count = self._count

    def _cut_row(self, place: int, row: WorkRow, entry: tuple[int, int]) -> None:
        """Cut a row before the first node that has not begun and that comes after `entry`."""
        age = row.request.age
        done = bisect.bisect_left(row.ends_ns, self._now, 1)
        while done < len(row.nodes) and (age, row.nodes[done]) < entry:
            done += 1
        if done >= len(row.nodes):
            return
        self._cut.add(row.count)
        self._busy_ns[place] -= row.ends_ns[-1] - row.ends_ns[done]
        row.nodes, row.ends_ns = row.nodes[:done], row.ends_ns[: done + 1]
        self._push(row.ends_ns[-1], row.request, row.nodes[-1])
        row.count = self._count

    def _serve_wires(self) -> None:
        """Begin the transfers whose path has room."""
        now, wires = self._now, self._wires
        for request, node in wires.begin(now, self._busy_ns):
            columns = request.columns
            ns = columns.ns[node]
            self._push(now + ns + columns.delay_ns[node], request, node)
            self._note(request, node, now, now + ns)
        if wires.is_wanted and wires.free_at_ns < self._freed_ns:
            self._freed_ns = wires.free_at_ns
            self._push(self._freed_ns, None, -1)

    def _note(self, request: MovingRequest, node: int, start_ns: float, end_ns: float) -> None:
        if self._timeline is None:
            return
        names = tuple(self._names[place] for place in request.columns.place[node])
        self._timeline.append(
            Busy(
                names,
                request.replica.index,
                request.trace,
                request.age,
                request.slot,
                node,
                start_ns,
                end_ns,
            )
        )
