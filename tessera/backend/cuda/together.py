"""How long a request takes on a slice while the rest of the GPU is as busy, with the same.

In: two backends that have one trace each on a device of their own. Out: nanoseconds on both.

Steps that were timed one by one and for a moment do not tell what slices cost each other that are
all busy for long: a GPU lowers its clock some tenths of a second after it draws too much power, and
the slices fill one L2 cache. So both repeat their requests until that has settled.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping

from tessera.backend.cuda.api import Bytes, Handle
from tessera.backend.cuda.backend import CudaBackend
from tessera.backend.cuda.held_memory import Held
from tessera.backend.cuda.stopwatch import Stopwatch
from tessera.ir.program import Role

# Requests are repeated for so long before times count, and then for so long; at most so many.
_SETTLE_NS, _STEADY_NS = 300_000_000, 500_000_000
_MOST_RUNS = 4000
_UNTIMED = 2
# A state that says where to write next is small; to put caches back would take too long.
_SMALL_STATE_BYTES = 1 << 16


def together_ns(
    one: CudaBackend, other: CudaBackend, inputs: Mapping[str, Bytes], limit_s: float
) -> tuple[float, float] | None:
    """What a request takes on both while both repeat it; None where a graph cannot hold it.

    The host would be too slow without a graph. Large states are not put back in between: no step
    says what they hold.
    """
    if _graph(one) is None or _graph(other) is None:
        return None
    driver = one.driver
    driver.use(one._roots[0].context)
    watch = Stopwatch(driver, limit_s)
    watch.what = "the whole trace, beside itself"
    both = [_Repeating(backend, inputs, watch) for backend in (one, other)]
    try:
        return _side_by_side(*both)
    finally:
        if not watch.is_stuck:
            for each in both:
                each.close()
            watch.close()


def _graph(backend: CudaBackend) -> Handle | None:
    return backend._ready[0, 0, 0, ()].graph


class _Repeating:
    """The request of a backend, handed over again and again; an event after each."""

    def __init__(self, backend: CudaBackend, inputs: Mapping[str, Bytes], watch: Stopwatch) -> None:
        self.driver = backend.driver
        self.stream = backend._roots[0].stream
        self._graph = _graph(backend)
        self._watch = watch
        self._states = Held(self.driver, self.stream, list(_small_states(backend)))
        self._events: list[Handle] = []
        backend._buffers[0, 0].put(inputs)
        self.each_ns = max(min(watch.time(self._run, self.stream) for _ in range(_UNTIMED)), 1.0)

    def _run(self) -> None:
        self._states.restore()
        self.driver.launch_graph(self._graph, self.stream)

    def hand_over(self) -> None:
        """Once more."""
        self._run()
        self._events.append(self.driver.event(timed=True))
        self.driver.record(self._events[-1], self.stream)

    def ended_ns(self, start: Handle) -> list[int]:
        """When each had ended, from an event on."""
        for event in self._events:
            self._watch.wait(event)
        return [self.driver.elapsed_ns(start, event) for event in self._events]

    def close(self) -> None:
        """Give memory and events back."""
        self._states.close()
        for event in self._events:
            self.driver.destroy_event(event)


def _small_states(backend: CudaBackend) -> Iterator[tuple[int, int]]:
    memory, (device, *_) = backend.memory, backend.devices
    assert memory is not None
    for buffer in backend.model.traces[0].program.buffers:
        is_small = buffer.role is Role.STATE and buffer.bytes <= _SMALL_STATE_BYTES
        if is_small and (0, device, buffer.id) in memory.places:
            yield memory.address(0, device, buffer.id, 0, 0), buffer.bytes


def _side_by_side(one: _Repeating, other: _Repeating) -> tuple[float, float]:
    driver = one.driver
    start = driver.event(timed=True)
    driver.record(start, one.stream)
    driver.wait(other.stream, start)
    for each in _in_turns(one, other):
        each.hand_over()
    ended = [each.ended_ns(start) for each in (one, other)]
    driver.destroy_event(start)
    until = min(max(times) for times in ended)
    first, second = (_each_ns(times, min(_SETTLE_NS, until // 2), until) for times in ended)
    return first, second


def _in_turns(one: _Repeating, other: _Repeating) -> Iterator[_Repeating]:
    """As they will end: neither runs out of work while the host hands over the other's."""
    due = [(0.0, 0, one), (0.0, 1, other)]
    for _ in range(_MOST_RUNS):
        at_ns, number, each = due[0]
        if at_ns >= _SETTLE_NS + _STEADY_NS:
            return
        yield each
        heapq.heapreplace(due, (at_ns + each.each_ns, number, each))


def _each_ns(ended: list[int], start: int, end: int) -> float:
    """Nanoseconds from one to the next within a time in which both devices are busy."""
    within = [at for at in ended if start <= at <= end]
    if len(within) < 2:
        return max(ended) / len(ended)
    return (within[-1] - within[0]) / (len(within) - 1)
