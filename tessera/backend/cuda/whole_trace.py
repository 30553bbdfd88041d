"""How long the whole trace takes: alone, and while the rest of the GPU is busy with it too.

In: profilers, each with a backend that has the trace on its first device. Out: nanoseconds.

Steps that were timed one by one and for a moment do not tell what slices cost each other that are
all busy for long: a GPU lowers its clock some tenths of a second after it draws too much power, and
the slices fill one L2 cache. So two slices repeat the trace side by side until that has settled.
"""

from __future__ import annotations

import heapq
import math
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tessera.backend.cuda.api import Handle
from tessera.backend.cuda.held_memory import Held
from tessera.backend.cuda.issue_order import Action, Do, Hold, Move
from tessera.backend.cuda.tape import Tape
from tessera.ir.launch_program import HOST, AreaKind, Queue
from tessera.ir.program import Role

if TYPE_CHECKING:
    from tessera.backend.cuda.profile import Profiler

UNTIMED = 2
"""Runs before the first that counts."""

PAUSE_NS = 100_000
"""How long a stream is held up while the host hands it what is timed."""

# A graph is repeated for so long before times count, and then for so long.
_SETTLE_NS, _STEADY_NS = 300_000_000, 500_000_000
_LEAST_GRAPH_NS = 2_000_000
# A state that says where to write next is small; to put caches back would take too long.
_SMALL_STATE_BYTES = 1 << 16


def is_input(action: Action) -> bool:
    """Whether an action brings an input from the host."""
    return isinstance(action, Move) and action.transfer.source == HOST


@dataclass(frozen=True, slots=True)
class _Whole:
    """All steps in a row: `bring` puts inputs in place, `is_early` before what is timed."""

    bring: tuple[Tape, Handle]
    tape: Tape
    stream: Handle
    is_early: bool


def _whole_of(profiler: Profiler) -> _Whole:
    order = profiler.backend._orders[0]
    moves = [one for one in order if is_input(one)]
    held = [i for i, one in enumerate(order) if isinstance(one, Hold) and one.queue is Queue.IN]
    # An input that has to wait for its place belongs to what is timed.
    is_early = not held or all(order.index(one) < held[0] for one in moves)
    timed = [one for one in order if isinstance(one, Do)] if is_early else list(order)
    bring = profiler._tape(moves if is_early else (), prologue=True)
    return _Whole(bring, *profiler._tape(timed), is_early)


def alone_ns(profiler: Profiler) -> float:
    """The median of all steps in a row, inputs in place; states are put back in between."""
    whole = _whole_of(profiler)
    graph = profiler._captured(lambda: whole.tape.play(profiler.driver), whole.stream, 1)
    states = Held(profiler.driver, profiler.stream, _states(profiler))
    times = []
    try:
        profiler._play(*whole.bring)
        run, pause_ns = profiler._runner(whole.tape, whole.stream, graph, 1)
        for _ in range(UNTIMED + profiler.repeats):
            states.restore()
            profiler._play(*whole.bring)
            # Otherwise the time that it takes to launch the graph would count.
            profiler.neighbours.pause(max(pause_ns, PAUSE_NS), whole.stream)
            times.append(profiler.watch.time(run, whole.stream))
        states.restore()
    finally:
        profiler._release(graph, states)
    return statistics.median(times[UNTIMED:])


def _states(profiler: Profiler) -> list[tuple[int, int]]:
    memory = profiler.backend.memory
    assert memory is not None
    return [
        (block.base, block.stride * block.area.count)
        for (device, kind), block in memory.blocks.items()
        if device == profiler.device and kind is AreaKind.LANE
    ]


def _small_states(profiler: Profiler) -> list[tuple[int, int]]:
    memory = profiler.backend.memory
    assert memory is not None
    return [
        (memory.address(0, profiler.device, buffer.id, 0, 0), buffer.bytes)
        for buffer in profiler.backend.model.traces[0].program.buffers
        if buffer.role is Role.STATE and buffer.bytes <= _SMALL_STATE_BYTES
        if (0, profiler.device, buffer.id) in memory.places
    ]


# --- side by side -------------------------------------------------------------------------------


def together_ns(one: Profiler, other: Profiler) -> tuple[float, float] | None:
    """What the trace takes on both devices while both repeat it; None where a graph cannot hold it.

    The host would be too slow without a graph. Large states are not put back in between: no step
    says what they hold.
    """
    with _repeating(one) as first, _repeating(other) as second:
        if first is None or second is None:
            return None
        return _side_by_side(first, second)


@dataclass(slots=True)
class _Repeating:
    """A graph with the trace so many times, handed over again and again; an event after each."""

    profiler: Profiler
    stream: Handle
    launch: Callable[[], None]
    times: int
    graph_ns: float
    events: list[Handle]

    def hand_over(self) -> None:
        self.launch()
        self.events.append(self.profiler.driver.event(timed=True))
        self.profiler.driver.record(self.events[-1], self.stream)

    def ended_ns(self, start: Handle) -> list[int]:
        """When each graph had ended, from an event on."""
        self.profiler.watch.what = "the whole trace, beside itself"
        for event in self.events:
            self.profiler.watch.wait(event)
        return [self.profiler.driver.elapsed_ns(start, event) for event in self.events]


@contextmanager
def _repeating(profiler: Profiler) -> Iterator[_Repeating | None]:
    driver = profiler.driver
    driver.use(profiler.backend.devices[profiler.device].context)
    whole = _whole_of(profiler)
    if not whole.is_early or int(whole.stream) != int(profiler.stream):
        yield None
        return
    states = Held(driver, profiler.stream, _states(profiler))
    small = Held(driver, profiler.stream, _small_states(profiler))
    graph = found = None
    try:
        profiler._play(*whole.bring)

        def again() -> None:
            small.restore()
            whole.tape.play(driver)

        once = profiler.watch.time(again, whole.stream)
        times = max(1, math.ceil(_LEAST_GRAPH_NS / max(once, 1.0)))
        graph = profiler._captured(again, whole.stream, times)
        if graph is not None:
            kept = graph

            def launch() -> None:
                driver.launch_graph(kept, whole.stream)

            once = profiler.watch.time(launch, whole.stream)
            found = _Repeating(profiler, whole.stream, launch, times, max(once, 1.0), [])
        yield found
        states.restore()
        profiler.watch.finish(whole.stream)
    finally:
        profiler._release(graph, states)
        profiler._release(None, small)
        for event in found.events if found is not None and not profiler.watch.is_stuck else ():
            driver.destroy_event(event)


def _side_by_side(one: _Repeating, other: _Repeating) -> tuple[float, float]:
    driver = one.profiler.driver
    start = driver.event(timed=True)
    driver.record(start, one.stream)
    driver.wait(other.stream, start)
    # As they will end, so that neither runs out of work while the host hands over the other's.
    due = [(0.0, 0, one), (0.0, 1, other)]
    while due[0][0] < _SETTLE_NS + _STEADY_NS:
        at_ns, number, next_one = heapq.heappop(due)
        next_one.hand_over()
        heapq.heappush(due, (at_ns + next_one.graph_ns, number, next_one))
    ended = [each.ended_ns(start) for each in (one, other)]
    driver.destroy_event(start)
    until = min(max(times) for times in ended)
    first, second = (
        _each_ns(times, min(_SETTLE_NS, until // 2), until) / each.times
        for each, times in zip((one, other), ended, strict=True)
    )
    return first, second


def _each_ns(ended: list[int], start: int, end: int) -> float:
    """Nanoseconds from one to the next within a time in which both devices are busy."""
    within = [at for at in ended if start <= at <= end]
    if len(within) < 2:
        return max(ended) / len(ended)
    return (within[-1] - within[0]) / (len(within) - 1)
