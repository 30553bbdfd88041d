"""All devices of a replica in one thread, in a random order that the programs allow.

In: a model and a seed. Out: a `Backend`. Each turn runs a random operation among those that could
run now, so that successive requests go through many of the interleavings of devices that run at
their own speed. This is the fast way to test programs, and `--verify` uses it to find the launch at
which a run diverges. The devices are those of `engine`, as in the processes of `workers`.
"""

from __future__ import annotations

import random
import threading
import time

import numpy as np

from tessera.backend.processes.arena import space_bytes
from tessera.backend.processes.engine import DeviceEngine, Observer
from tessera.backend.processes.exchange import HostSide, MemoryExchange, exchange_bytes
from tessera.backend.processes.visits import Seat, Visit, stall_fault
from tessera.backend.service import (
    Backend,
    BackendOptions,
    Bytes,
    Completion,
    DeviceBytes,
    Model,
    Request,
    ServiceFault,
    StateParts,
)
from tessera.ir.plan.launch_program import HOST, Landing, Queue, Transfer


class InlineBackend:
    """A replica in this thread; `collect` runs the operations."""

    depth = 1

    def __init__(
        self,
        model: Model,
        options: BackendOptions | None = None,
        *,
        seed: int = 0,
        observer: Observer | None = None,
    ) -> None:
        options = options or BackendOptions()
        self.model = model
        self._random = random.Random(seed)
        memory = np.zeros(exchange_bytes(model), np.uint8)
        exchange = MemoryExchange(model, memory, self._deliver)
        self._host = HostSide(model, exchange)
        self.engines = {
            name: DeviceEngine(
                name,
                index,
                model,
                exchange,
                memory_bytes=space_bytes(model, name),
                max_steps=options.max_steps,
                in_real_time=False,
                observer=observer,
                unwritten=options.unwritten,
            )
            for index, name in enumerate(model.lowered.devices)
        }
        self._requests: dict[int, tuple[Request, int]] = {}
        self._visits: dict[int, list[Visit]] = {}
        self._changed = threading.Condition()
        self._looks = 0

    def _deliver(self, request: int, what: Transfer | Landing) -> None:
        if isinstance(what, Landing):
            self.engines[what.source].credit(request, what.id)
        elif what.target != HOST:
            self.engines[what.target].arrive(request, what.id)

    def begin(self, request: Request) -> None:
        """Start a request; nothing runs before `collect`."""
        with self._changed:
            self._host.put_inputs(request)
            self._requests[request.number] = request, time.monotonic_ns()
            self._visits[request.number] = []
            for engine in self.engines.values():
                seat = Seat(request.trace, request.slot, request.lane)
                self._left(engine.begin(request.number, seat))
            self._changed.notify_all()

    def _left(self, visit: Visit | None) -> None:
        if visit is not None:
            self._visits[visit.number].append(visit)

    def collect(self, timeout_s: float) -> tuple[Completion, ...]:
        """Run operations until a request is done; the timeout is that of waiting for requests."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._requests), timeout_s)
        while self._requests:
            with self._changed:
                done = [n for n, seen in self._visits.items() if len(seen) == len(self.engines)]
                if done:
                    return tuple(self._complete(number) for number in done)
                self._turn()
        return ()

    def _turn(self) -> None:
        choices = [(engine, queue) for engine in self.engines.values() for queue in Queue]
        self._random.shuffle(choices)
        for engine, queue in choices:
            task = engine.next_task(queue)
            if task is not None:
                engine.run(task)
                self._left(engine.finish(task))
                return
        raise stall_fault([(n, e.waits()) for n, e in self.engines.items()], None, "at all")

    def _complete(self, number: int) -> Completion:
        request, started_ns = self._requests.pop(number)
        visits = self._visits.pop(number)
        return Completion(
            request=number,
            outputs=self._host.take_outputs(request.trace, request.slot),
            started_ns=started_ns,
            ended_ns=time.monotonic_ns(),
            events=tuple(event for visit in visits for event in visit.events),
            printed=join_printed(visits),
        )

    def progress(self) -> dict[int, object]:
        """Work is done while `collect` runs, so every call reports progress."""
        self._looks += 1
        return dict.fromkeys(self._requests, self._looks)

    def stalled(self, request: int, seconds: float) -> ServiceFault:
        """The fault of a request without progress: what the requests wait for."""
        waits = [(name, engine.waits()) for name, engine in self.engines.items()]
        return stall_fault(waits, request, f"for {seconds:.0f} s")

    def locate(self, given: object, size: int) -> DeviceBytes | None:
        """None, because no device here reads GPU memory."""
        return None

    def read_states(self, lane: int) -> dict[str, Bytes]:
        """The states of a lane in which no request runs."""
        return self._host.join_states(lane, (e.arena.states(lane) for e in self.engines.values()))

    def read_parts(self, lane: int, device: str, parts: StateParts) -> Bytes:
        """Bytes of states of a lane, as a device has them."""
        return self.engines[device].arena.read_parts(lane, parts)

    def write_parts(self, lane: int, device: str, parts: StateParts, content: Bytes) -> None:
        """Set bytes of states of a lane, on one device."""
        self.engines[device].arena.write_parts(lane, parts, content)

    def close(self) -> None:
        """Forget all requests."""
        self._requests.clear()


def join_printed(visits: list[Visit]) -> str:
    """The printed output of a request's launches, in the order of the trace."""
    return "".join(text for _, text in sorted(line for visit in visits for line in visit.printed))


_: type[Backend] = InlineBackend
