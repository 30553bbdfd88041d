"""Durations of requests on slices of a GPU that are all busy, or on a whole GPU.

In: backends that have one trace each on a device of their own. Out: nanoseconds per request on
each.

Steps that are timed one by one for a short time do not show how slices that are all busy slow each
other down: a GPU lowers its clock a second or two after it begins to draw too much power, and the
slices share one L2 cache. Nor do they show how much requests of several slots gain by filling each
other's gaps. Therefore requests are repeated in all slots until the times have settled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tessera.backend.cuda.api import Bytes, Handle
from tessera.backend.cuda.backend import CudaBackend
from tessera.backend.cuda.measure.stopwatch import Held, Stopwatch
from tessera.ir.program.program import Role

# Nanoseconds of repeated requests before their times count, and during which they count.
_SETTLE_NS, _STEADY_NS = 2_000_000_000, 800_000_000
_MOST_RUNS = 12_000
# Requests that are handed over ahead of time are limited: work that never ends must not fill the
# driver's queues, or handing over would also wait forever.
_AHEAD_NS, _LEAST_AHEAD = 100_000_000, 4
# With shorter requests the host would be timed.
_LEAST_NS = 500_000
_UNTIMED = 2
# A state that says where to write next is small; restoring caches would take too long.
_SMALL_STATE_BYTES = 1 << 16


def together_ns(
    backends: Sequence[CudaBackend], inputs: Mapping[str, Bytes], limit_s: float
) -> tuple[float, ...] | None:
    """Nanoseconds of a request on each backend while all are busy; None if not meaningful.

    It is not meaningful for short requests, and for requests that no graph can hold. Large states
    are not restored in between: no step says what they hold.
    """
    driver = backends[0].driver
    driver.use(backends[0]._roots[0].context)
    watch = Stopwatch(driver, limit_s)
    watch.what = "the whole trace, beside itself"
    every = [_Repeating(backend, watch) for backend in backends]
    try:
        for each in every:
            each.start(inputs)
            if each.each_ns < _LEAST_NS:
                return None
        return _side_by_side(every, watch)
    finally:
        # After Ctrl-C, much work may be under way, and freeing memory would wait for it.
        if not watch.is_stuck and all(backend._is_quiet() for backend in backends):
            for each in every:
                each.close()
            watch.close()


class _Repeating:
    """Requests of a backend, handed over to its slots in turn; each is followed by an event."""

    def __init__(self, backend: CudaBackend, watch: Stopwatch) -> None:
        self.driver = backend.driver
        self.streams = [root.stream for root in backend.replica.roots]
        self.each_ns = 0.0
        self._backend = backend
        self._watch = watch
        self._graphs: list[Handle | None] = []
        self._states: list[Held] = []
        self._events: list[Handle] = []
        self._begun = 0

    def start(self, inputs: Mapping[str, Bytes]) -> None:
        """Save inputs and small states, and time one request."""
        backend = self._backend
        for slot, stream in enumerate(self.streams):
            backend.replica.buffers[0, slot].put(inputs)
            lane = slot if 0 in backend.replica.of_lanes else 0
            self._graphs.append(backend.replica.ready[0, slot, lane, ()].graph)
            small = list(_small_states(backend, slot, lane))
            self._states.append(Held(self.driver, stream, small))
        # Without graphs the host cannot hand requests over fast enough.
        if None not in self._graphs:
            self.each_ns = min(self._timed() for _ in range(_UNTIMED))

    def _timed(self) -> float:
        self._begun = 0
        return self._watch.time(self._run, self.streams[0])

    def _run(self) -> Handle:
        """Run the next request; returns its stream."""
        slot = self._begun % len(self.streams)
        self._begun += 1
        self._states[slot].restore()
        self.driver.launch_graph(self._graphs[slot], self.streams[slot])
        return self.streams[slot]

    def hand_over(self) -> None:
        """Hand over one more request."""
        stream = self._run()
        self._events.append(self.driver.event(timed=True))
        self.driver.record(self._events[-1], stream)

    def full_until(self) -> Handle | None:
        """The event after which there is room for more requests; None if there is room now."""
        ahead = max(_AHEAD_NS // max(int(self.each_ns), 1), _LEAST_AHEAD * len(self.streams))
        event = self._events[-ahead] if len(self._events) >= ahead else None
        return None if event is None or self.driver.is_done(event) else event

    def ended_ns(self, start: Handle) -> list[int]:
        """Nanoseconds from an event to the end of each request, sorted."""
        for event in self._events:
            self._watch.wait(event)
        return sorted(self.driver.elapsed_ns(start, event) for event in self._events)

    def close(self) -> None:
        """Free memory and events."""
        for states in self._states:
            states.close()
        for event in self._events:
            self.driver.destroy_event(event)


def _small_states(backend: CudaBackend, slot: int, lane: int) -> Iterator[tuple[int, int]]:
    memory, (device, *_) = backend.replica.memory, backend.replica.devices
    assert memory is not None
    for buffer in backend.model.traces[0].program.buffers:
        is_small = buffer.role is Role.STATE and buffer.bytes <= _SMALL_STATE_BYTES
        if is_small and (0, device, buffer.id) in memory.places:
            yield memory.address(0, device, buffer.id, slot, lane), buffer.bytes


def _side_by_side(every: Sequence[_Repeating], watch: Stopwatch) -> tuple[float, ...]:
    driver = every[0].driver
    start = driver.event(timed=True)
    first, *others = (stream for each in every for stream in each.streams)
    driver.record(start, first)
    for stream in others:
        driver.wait(stream, start)
    for each in _in_turns(every, watch):
        each.hand_over()
    ended = [each.ended_ns(start) for each in every]
    driver.destroy_event(start)
    until = min(times[-1] for times in ended)
    return tuple(
        round(_each_ns(times, min(_SETTLE_NS, until // 2), until, len(each.streams)), 1)
        for times, each in zip(ended, every, strict=True)
    )


def _in_turns(every: Sequence[_Repeating], watch: Stopwatch) -> Iterator[_Repeating]:
    """The order of hand-overs, by expected end, so that no backend runs out of work."""
    due = dict.fromkeys(every, 0.0)
    for _ in range(_MOST_RUNS):
        if min(due.values()) >= _SETTLE_NS + _STEADY_NS:
            return
        while True:
            full = {each: each.full_until() for each in every}
            free = [each for each, event in full.items() if event is None]
            if free:
                break
            watch.wait(*full.values())
        each = min(free, key=due.__getitem__)
        yield each
        due[each] += each.each_ns


def _each_ns(ended: list[int], start: int, end: int, slots: int) -> float:
    """Nanoseconds from one end to the next, within the time in which all devices are busy.

    Requests of several slots end side by side, so the interval is that between two requests of one
    slot.
    """
    within = [at for at in ended if start <= at <= end]
    count = (len(within) - 1) // slots * slots
    if count < 1:
        return ended[-1] / len(ended)
    return (within[-1] - within[-1 - count]) / count
