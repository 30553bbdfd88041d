"""The CUDA backend: a graph per request, or per row of launches of devices that seldom meet.

In: a model and options. Out: the `Backend` protocol of `backend.service`. Everything is loaded,
allocated and captured during startup. A request then consists of inputs in pinned memory and one
graph launch, or of the launches and calls of a tape. Requests of one slot queue up on one stream,
so the GPU goes from one to the next without the host. If graphs are off, or a library operator
cannot be captured, the same calls are made one by one. No later call waits.

A request sets a word in pinned memory when it is done, before the next request of its slot begins.
A waiting thread sleeps until the request should be done, and polls the word (`pace`).

A kernel fault destroys the context. The words still show which requests had finished, and their
outputs are in host memory: `collect` returns them before it raises. For the same reason `begin`
leaves driver errors to `collect`. A trail of words in pinned memory shows how far each device had
come: exactly without graphs, and from a mark every few steps with graphs.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from operator import itemgetter

from tessera.backend.cuda.api import Driver, DriverError, Handle
from tessera.backend.cuda.device_arrays import ArrayArrivals
from tessera.backend.cuda.enqueue import NUMBER_AT
from tessera.backend.cuda.faults import run_fault
from tessera.backend.cuda.flight import Flight, LastOutputs
from tessera.backend.cuda.lane_states import LaneStates
from tessera.backend.cuda.options import CudaOptions
from tessera.backend.cuda.pace import AWAKE_NS, FAR_NS, Nap, Paces
from tessera.backend.cuda.queued_work import step_name
from tessera.backend.cuda.replica import CudaReplica, ReadyTrace, Root
from tessera.backend.cuda.tape import Refused
from tessera.backend.cuda.trail import DevicePosition, TrailKind
from tessera.backend.service import (
    BackendOptions,
    Completion,
    DeviceBytes,
    Model,
    Request,
    ServiceFault,
)
from tessera.diagnostics import error

__all__ = ["CudaBackend", "CudaOptions"]

_END_S = 2.0
# Seconds between two checks for faults, which the words do not show.
_LOOK_S = 0.05


class CudaBackend(LaneStates):
    """One replica on GPUs and slices of GPUs."""

    def __init__(
        self,
        model: Model,
        options: BackendOptions,
        *,
        cuda: CudaOptions | None = None,
        driver: Driver | None = None,
    ) -> None:
        super().__init__()
        self.replica = replica = CudaReplica(model, options, cuda, driver)
        self.model = model
        self.driver = replica.driver
        self._done = replica.done
        self._roots = replica.roots
        self._arrivals = ArrayArrivals(self.driver, tuple(replica.devices.values()))
        slots = model.lowered.slots
        self._flights: list[deque[Flight]] = [deque() for _ in range(slots)]
        self._turns = [0] * slots
        self._last = LastOutputs(replica.depth)
        self._ended_ns = [0] * slots
        self._free_ns = [0] * slots  # when the last request ended, not when its end was noticed
        # By trace, slot and place in its line: the last request that began there, and its gate.
        self._gates: dict[tuple[int, int, int], tuple[int, Handle]] = {}
        self.is_released: bool | None = None  # after `close`: False if work never ends
        self._nap = Nap()
        self._paces = Paces()
        self._busy = 0
        self._broken: tuple[DriverError | Refused, Request | None] | None = None
        self._contexts = [int(root.context) for root in self._roots]
        # Words that are zero when a request begins: its done word, and the words of its trail.
        self._words = [(done, *replica.trail.words_of(s)) for s, done in enumerate(self._done)]

    @property
    def depth(self) -> int:
        """The number of requests that a slot may have under way."""
        return self.replica.depth

    # --- the steady state ---------------------------------------------------------------------

    def begin(self, request: Request) -> None:
        """Hand a request to the GPUs."""
        root = self._roots[request.slot]
        try:
            if self.driver.is_current(self._contexts[request.slot]):
                self._begin(request, root)
            else:
                with self.driver.using(root.context):
                    self._begin(request, root)
        except (Refused, DriverError) as problem:
            self._broken = self._broken or (problem, request)

    def _begin(self, request: Request, root: Root) -> None:
        begun_ns, slot, trace = time.perf_counter_ns(), request.slot, request.trace
        inputs, in_place = self._last.resolve(request, self._turns)
        stage = slot + len(self._turns) * (self._turns[slot] % self.replica.depth)
        lane = request.lane if trace in self.replica.of_lanes else 0
        key = (trace, stage, lane, tuple(in_place))
        flights = self._flights[slot]
        busy = self._busy if flights else self._busy + 1
        pace = self._paces[trace, slot, busy]
        ready = self.replica.ready.get(key) or self.replica.prepare(*key)
        ready.buffers.put(inputs, in_place)
        for word in self._words[stage]:
            word[0] = 0
        if self.replica.options.unwritten is not None:
            self._done[stage][NUMBER_AT // 4] = request.number & 0xFFFFFFFF
        flights.append(self._last.note(Flight(request, ready, pace, begun_ns), self._turns[slot]))
        self._turns[slot] += 1
        self._busy = busy
        for given in in_place.values():
            self._arrivals.await_in(root.stream, given)
        if ready.gate is not None or self._gates:
            self._keep_apart(request, ready, root)
        if ready.graph is not None:
            self.driver.launch_graph(ready.graph, root.stream)
        else:
            ready.tape.play(self.driver)
        if self._nap.until_ns:
            self._nap.end_by(begun_ns + pace.aim_ns)

    def _keep_apart(self, request: Request, ready: ReadyTrace, root: Root) -> None:
        """Begin after the previous request has passed its gate.

        Requests at the same place in line wait together: the previous request is the last one to
        begin in another slot, at the same or an earlier place in its line.
        """
        trace, slot = request.trace, request.slot
        place = len(self._flights[slot])
        before = max(
            (
                entry
                for (other, elsewhere, ahead), entry in self._gates.items()
                if other == trace and elsewhere != slot and ahead <= place
            ),
            key=itemgetter(0),
            default=None,
        )
        if before is not None:
            self.driver.wait(root.stream, before[1])
        if ready.gate is not None:
            self._gates[trace, slot, place] = sum(self._turns), ready.gate

    def wait(self, timeout_s: float) -> bool:
        """Sleep until there is something to collect; returns whether there is."""
        now_ns = time.perf_counter_ns()
        limit_ns = now_ns + int(timeout_s * 1e9)
        faults_ns = now_ns + int(_LOOK_S * 1e9)
        nap = self._nap
        nap.until_ns = FAR_NS
        while self._broken is None and (next_ns := self._next_look(now_ns)):
            if now_ns >= limit_ns:
                nap.until_ns = 0
                return False
            if now_ns >= faults_ns:
                self._look_for_faults()
                faults_ns = now_ns + int(_LOOK_S * 1e9)
                now_ns = time.perf_counter_ns()
            else:
                now_ns = nap.sleep(now_ns, min(next_ns, limit_ns, faults_ns))
        nap.until_ns = 0
        return True

    def _next_look(self, now_ns: int) -> int:
        """The time of the next poll in nanoseconds; 0 if a request is done."""
        next_ns, due = FAR_NS, None
        for slot, flights in enumerate(self._flights):
            if flights:
                flight = flights[0]
                if self._done[flight.ready.stage][0]:
                    return 0
                start_ns = max(flight.begun_ns, self._free_ns[slot])
                if flight.looked_ns < start_ns + flight.pace.aim_ns - AWAKE_NS <= now_ns:
                    due = flight
                flight.looked_ns = now_ns
                next_ns = min(next_ns, flight.pace.next_look(start_ns, now_ns))
        if due is not None and self._is_seen_to_end(due):
            return 0
        return next_ns

    def _is_seen_to_end(self, flight: Flight) -> bool:
        """Poll during the short time in which a request should end; returns whether it ended."""
        done = self._done[flight.ready.stage]
        until_ns = flight.looked_ns + AWAKE_NS
        while not done[0]:
            flight.looked_ns = time.perf_counter_ns()
            if flight.looked_ns > until_ns:
                return False
        return True

    def collect(self, timeout_s: float) -> tuple[Completion, ...]:
        """Requests that are done, in order by slot; waits at most `timeout_s` seconds for one."""
        if timeout_s:
            self.wait(timeout_s)
        completions: tuple[Completion, ...] = ()
        for flights in self._flights:
            while flights and self._done[flights[0].ready.stage][0]:
                completions += (self._completion(flights.popleft()),)
                if not flights:
                    self._busy -= 1
        if not completions:
            if not timeout_s:
                self._look_for_faults()
            if self._broken is not None:
                raise self._what_broke(*self._broken)
        return completions

    def _look_for_faults(self) -> None:
        failed = self._failed()
        if failed is not None:
            self._broken = self._broken or (failed, None)

    def _failed(self) -> DriverError | None:
        """The error of a stream, if any."""
        try:
            with self.driver.using(self._roots[0].context):
                for flights, root in zip(self._flights, self._roots, strict=True):
                    if flights:
                        self.driver.is_idle(root.stream)
        except DriverError as problem:
            return problem
        return None

    def _completion(self, flight: Flight) -> Completion:
        request, ready, begun_ns = flight.request, flight.ready, flight.begun_ns
        slot = request.slot
        ended_ns = time.perf_counter_ns()
        started_ns = max(begun_ns, self._ended_ns[slot])
        self._ended_ns[slot] = ended_ns
        free_ns = self._free_ns[slot]
        queued = free_ns > begun_ns
        self._free_ns[slot] = flight.pace.learn(
            free_ns if queued else begun_ns, flight.looked_ns, ended_ns, queued=queued
        )
        for given in request.in_place.values():
            self._arrivals.give_back(given)
        flight.outputs = outputs = ready.buffers.take()
        return Completion(
            request=request.number,
            outputs=outputs,
            started_ns=started_ns,
            ended_ns=ended_ns,
            events=self.replica.clock.events(
                ready.timed, ready.stamps, slot=slot, request=request.number
            )
            if ready.timed
            else (),
        )

    def prepare_chain(self, trace: int, inputs: tuple[str, ...]) -> None:
        """Prepare requests whose inputs are outputs of the previous request."""
        with self._at_rest():
            for key in [key for key in self.replica.ready if key[0] == trace and not key[3]]:
                self.replica.prepare(*key[:3], inputs)

    def locate(self, given: object, size: int) -> DeviceBytes | None:
        """The place of an array in GPU memory, if all devices can read it there."""
        try:
            return self._arrivals.take(given, size)
        except DriverError as problem:
            raise self._fault(problem) from None

    def progress(self) -> dict[int, object]:
        """The progress of the devices in the first request of every slot."""
        return {
            flights[0].request.number: self.replica.trail.look(flights[0].ready.stage)
            for flights in self._flights
            if flights
        }

    @contextmanager
    def _at_rest(self) -> Iterator[None]:
        try:
            with self.driver.using(self._roots[0].context):
                yield
        except DriverError as problem:
            raise self._fault(problem) from None

    # --- errors -------------------------------------------------------------------------------

    def _what_broke(self, problem: DriverError | Refused, request: Request | None) -> ServiceFault:
        """The fault to report; a call may also be refused because a kernel failed meanwhile."""
        if isinstance(problem, DriverError):
            return self._fault(problem)
        failed = self._failed()
        if failed is None and request is not None:
            return self.replica.refused(problem, request.trace, request.number)
        return self._fault(failed or problem.problem)

    def stalled(self, request: int, seconds: float) -> ServiceFault:
        """The fault of a request without progress: the progress of devices in all requests."""
        reached = self.reached()
        own = [place for place in reached if place.request == request]
        devices = {place.device for place in own}
        steps = own[0].steps if len(own) == 1 and len(own[0].steps) == 1 else ()
        others = [place.text() for place in reached if place.request != request]
        diagnostic = error(
            "TSR5052",
            f"nothing has happened on the GPUs for request {request} for {seconds:.1f} s",
            notes=(*(place.text() for place in own), *others),
            hint="a kernel that never ends, or a limit that is too short for this plan",
        )
        return ServiceFault(
            diagnostic,
            device=devices.pop() if len(devices) == 1 else None,
            request=request,
            step=steps[0].id if steps else None,
            name=step_name(steps[0]) if steps else "",
        )

    def reached(self) -> list[DevicePosition]:
        """How far the devices have come in the requests that they may be running."""
        places = []
        for flight in [flights[0] for flights in self._flights if flights]:
            ready, request = flight.ready, flight.request
            work = tuple(self.model.traces[request.trace].program.work())
            order = self.replica.orders[request.trace]
            possible = self.replica.trail.possible(ready.stage, ready.trail, order)
            for device, steps in possible.items():
                here = tuple(work[number] for number in steps)
                places.append(DevicePosition(request.number, device, here))
        return places

    def _fault(self, problem: DriverError) -> ServiceFault:
        reached = self.reached()
        # The requests that the devices may be running: the first of every slot.
        requests = [flights[0].request.number for flights in self._flights if flights]
        if len(reached) == 1 and len(reached[0].steps) == 1:
            (step,) = reached[0].steps
            return run_fault(
                problem,
                device=reached[0].device,
                request=reached[0].request,
                step=step.id,
                name=step_name(step),
                span=step.span,
            )
        notes = tuple(place.text() for place in reached)
        if any(
            flights and flights[0].ready.trail is not TrailKind.EXACT for flights in self._flights
        ):
            notes += ("with `TESSERA_NO_GRAPHS=1` it is known which launch it was",)
        if len(requests) > 1:
            notes = (f"under way: requests {', '.join(map(str, requests))}", *notes)
        devices = {place.device for place in reached} or set(self.replica.devices)
        return run_fault(
            problem,
            device=devices.pop() if len(devices) == 1 else None,
            request=requests[0] if len(requests) == 1 else None,
            notes=notes,
        )

    # --- the end ------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop and release everything; work that a GPU never finishes ends with the process."""
        if self.is_released is None:
            self.is_released = self._is_quiet()
            if self.is_released:
                self._end_moving()
                self._arrivals.close()
                self.replica.release()

    def _is_quiet(self) -> bool:
        """Whether all work ends within `_END_S` seconds; freeing memory would wait for it."""
        limit = time.perf_counter() + _END_S
        while True:
            try:
                with self.driver.using(self._roots[0].context):
                    if all(self.driver.is_idle(root.stream) for root in self._roots):
                        return True
            except DriverError:
                return True
            if time.perf_counter() > limit:
                return False
            time.sleep(1e-3)
