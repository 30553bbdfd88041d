"""The CUDA backend: requests as CUDA graphs that span all devices of a replica.

In: a model and options. Out: the `Backend` protocol of `backend.service`. Everything is loaded,
allocated and captured while it starts. To begin a request is then: inputs into pinned memory, one
graph launch. The graph ends by setting a word in pinned memory and waking the thread that collects.
Where graphs are off (or a trace calls library operators, which do not promise to be capturable)
the same calls are made one by one. No call in the steady state waits for a GPU.

A fault of a kernel takes the context with it. Outputs of finished requests are host memory by
then. Which launch it was is known from a trail of host words that the compute streams write before
every step; graphs leave the trail out unless asked for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from tessera.backend.cuda.api import Bytes, Driver, DriverError
from tessera.backend.cuda.enqueue import step_name
from tessera.backend.cuda.faults import run_fault
from tessera.backend.cuda.replica import CudaOptions, CudaReplica, Ready
from tessera.backend.cuda.tape import Refused
from tessera.backend.service import (
    BackendOptions,
    Completion,
    Model,
    Request,
    ServiceFault,
)
from tessera.diagnostics import error
from tessera.ir.program import Work

__all__ = ["CudaBackend", "CudaOptions"]

_END_S = 2.0
# A fault wakes nobody: so often it is looked for.
_LOOK_S = 0.05


@dataclass(slots=True)
class _Flight:
    """A request under way."""

    request: Request
    ready: Ready
    started_ns: int


class CudaBackend(CudaReplica):
    """One replica on GPUs and slices of GPUs."""

    def __init__(
        self,
        model: Model,
        options: BackendOptions,
        *,
        cuda: CudaOptions | None = None,
        driver: Driver | None = None,
    ) -> None:
        self._lock = threading.Lock()
        self._flights: list[_Flight] = []
        self._last_ns = time.perf_counter_ns()
        self._closed = False
        self._trail_seen: tuple[bytes, ...] = ()
        super().__init__(model, options, cuda, driver)

    # --- the steady state ---------------------------------------------------------------------

    def begin(self, request: Request) -> None:
        """Start a request."""
        lane = request.lane if request.trace in self._of_lanes else 0
        key = (request.trace, request.slot, lane)
        started = time.perf_counter_ns()
        try:
            ready = self._ready.get(key) or self._prepare(*key)
            ready.buffers.put(request.inputs)
            self._done[request.slot][0] = 0
            self.driver.push(ready.context)
            try:
                self._hand_over(ready, request.slot)
            finally:
                self.driver.pop()
        except Refused as refused:
            raise self._refused(refused, request.trace, request.number) from None
        except DriverError as problem:
            raise self._fault(problem) from None
        with self._lock:
            self._flights.append(_Flight(request, ready, started))
            self._last_ns = started

    def _hand_over(self, ready: Ready, slot: int) -> None:
        if ready.graph is not None:
            self.driver.launch_graph(ready.graph, ready.stream)
            return
        for device in self.devices if self._trail.views else ():
            self._trail.views[slot, device][:] = 0
        ready.tape.play(self.driver)

    def collect(self, timeout_s: float) -> tuple[Completion, ...]:
        """Requests that have become done; waits for one at most that long."""
        limit = time.perf_counter() + timeout_s
        while True:
            found = self._finished()
            left = limit - time.perf_counter()
            if found or left <= 0:
                return found
            if not self._wakeup.wait(min(left, _LOOK_S)):
                self._look_for_faults()

    def _finished(self) -> tuple[Completion, ...]:
        with self._lock:
            done = [one for one in self._flights if self._done[one.request.slot][0]]
            if not done:
                return ()
            self._flights = [one for one in self._flights if one not in done]
            self._last_ns = time.perf_counter_ns()
        return tuple(self._completion(flight) for flight in done)

    def _look_for_faults(self) -> None:
        """Nothing wakes the host after a fault: ask the streams."""
        with self._lock:
            flights = tuple(self._flights)
        try:
            for flight in flights:
                self.driver.use(flight.ready.context)
                self.driver.is_idle(flight.ready.stream)
        except DriverError as problem:
            raise self._fault(problem) from None

    def _completion(self, flight: _Flight) -> Completion:
        request = flight.request
        ready = flight.ready
        events = self._clock.events(
            ready.timed, ready.stamps, slot=request.slot, request=request.number
        )
        return Completion(
            request=request.number,
            outputs=ready.buffers.take(),
            started_ns=flight.started_ns,
            ended_ns=time.perf_counter_ns(),
            events=events,
        )

    def idle_s(self) -> float:
        """Seconds since a request was begun or done, or the trail moved where there is one."""
        seen = tuple(view.tobytes() for view in self._trail.views.values())
        if seen != self._trail_seen:
            self._trail_seen, self._last_ns = seen, time.perf_counter_ns()
        return (time.perf_counter_ns() - self._last_ns) / 1e9

    def read_states(self, lane: int) -> Mapping[str, Bytes]:
        """The states of a lane in which no request runs."""
        try:
            self.driver.push(next(iter(self.devices.values())).context)
            try:
                return self._contents.read_states(lane)
            finally:
                self.driver.pop()
        except DriverError as problem:
            raise self._fault(problem) from None

    # --- errors -------------------------------------------------------------------------------

    def stalled(self) -> ServiceFault:
        """What the requests that are under way wait for."""
        running = self._running()
        names = ", ".join(f"request {f.request.number}" for f in self._flights)
        notes = tuple(f"`{d}` runs step #{s.id} `{step_name(s)}`" for _, d, s in running)
        found = error(
            "TSR5052", f"nothing has happened on the GPUs for {self.idle_s():.1f} s",
            notes=(f"under way: {names}", *notes),
            hint="a kernel that never ends, or a limit that is too short for this plan",
        )  # fmt: skip
        return ServiceFault(found)

    def _running(self) -> list[tuple[Request, str, Work]]:
        """Steps that had begun, by the trail; the last of each device and request."""
        found = []
        for flight in self._flights:
            work = tuple(self.model.traces[flight.request.trace].program.work())
            for device in self.devices if self._trail.views else ():
                view = self._trail.views[flight.request.slot, device]
                number = int.from_bytes(view.tobytes(), "little")
                if number:
                    found.append((flight.request, device, work[number - 1]))
        return found

    def _fault(self, problem: DriverError) -> ServiceFault:
        running = self._running()
        requests = [flight.request.number for flight in self._flights]
        if len(running) == 1:
            request, device, step = running[0]
            return run_fault(
                problem, device=device, request=request.number, step=step.id,
                name=step_name(step), span=step.span,
            )  # fmt: skip
        notes = tuple(
            f"device `{d}` was in request {r.number}, step #{s.id} `{step_name(s)}`"
            for r, d, s in running
        )
        if not running:
            notes = (
                "a graph does not say which launch it was; with `TESSERA_NO_GRAPHS=1` it is known",
            )
        if len(requests) > 1:
            notes = (f"under way: requests {', '.join(map(str, requests))}", *notes)
        one = requests[0] if len(requests) == 1 else None
        only = next(iter(self.devices)) if len(self.devices) == 1 else None
        return run_fault(problem, device=only, request=one, notes=notes)

    # --- the end ------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop and give everything back; what a GPU never finishes is left to the process's end."""
        if self._closed:
            return
        self._closed = True
        if self._is_quiet():
            self.release()
        else:
            self._wakeup.abandon()

    def _is_quiet(self) -> bool:
        """Whether all work has ended, or ends soon; freeing memory would wait for it."""
        limit = time.perf_counter() + _END_S
        while True:
            try:
                if all(self.driver.is_idle(flight.ready.stream) for flight in self._flights):
                    return True
            except DriverError:
                return True
            if time.perf_counter() > limit:
                return False
            time.sleep(1e-3)
