"""Chains of steps on two slices of a GPU, each step after an exchange with the other slice.

In: a `Way`: how work is submitted, how bytes move, what says that they are there, and what waits
for it. Out: chains that can be started again and again.

Work is submitted by calls on streams (`streams`), as a graph per slice captured from its stream
(`captured`) or made node by node (`nodes`), or as one graph over both slices (`one`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.running.exchange_slices import (
    AND,
    LINE,
    LONG,
    POINTER,
    SMS,
    SPIN_NS,
    THREADS,
    WORD,
    Calls,
    Nodes,
    Slices,
    step,
)
from tessera.backend.cuda.api import Driver, DriverError


@dataclass(frozen=True, slots=True)
class Way:
    """How two slices exchange."""

    name: str
    submit: str
    move: str
    signal: str
    wait: str
    words_in: str = "device"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A chain: its exchanges, their bytes, and where its words and times begin.

    `both` are exchanges in both directions at once; else the slices take turns.
    """

    exchanges: int
    size: int
    both: bool = False
    first_word: int = 0
    first_time: int = 0
    first_byte: int = 0
    work_ns: int = 3000

    @property
    def steps(self) -> int:
        """Kernels whose times are kept."""
        return (self.exchanges + 1) * (2 if self.both else 1)


def emit(way: Way, shape: Shape, to: Any, slices: Slices) -> None:
    """Every operation of a chain, in an order that a host can call them in."""
    link = _Link(way, shape, to, slices)
    for number in range(shape.exchanges + 1):
        sides = (0,) if way.signal == "none" else (0, 1) if shape.both else (number % 2,)
        for at in sides:
            if number:
                link.wait(at, number - 1)
            link.step(at, number)
        for at in sides:
            if number < shape.exchanges:
                link.send(at, number)
    if way.signal == "numbered":
        for at in (0, 1):
            link.arm(at)


class _Link:
    """The operations of one exchange, by way."""

    def __init__(self, way: Way, shape: Shape, to: Any, slices: Slices) -> None:
        self.way, self.shape, self.to, self.slices = way, shape, to, slices
        self.events: dict[tuple[int, int], Any] = {}

    def _word(self, source: int, number: int) -> tuple[int, int]:
        """The word of an exchange and its value."""
        place = self.way.words_in
        if self.way.signal == "numbered":
            line = self.shape.first_word + source * (self.shape.exchanges + 1) + number
            return self.slices.word(line, place), 1
        return self.slices.word(self.shape.first_word + source, place), number + 1

    def _boxes(self, at: int, number: int) -> tuple[int, int]:
        """Where a slice writes what it sends, and where the other one reads it."""
        pair = self.slices.outboxes, self.slices.inboxes
        source, target = (boxes[at][number % 2] + self.shape.first_byte for boxes in pair)
        return source, source if self.way.move == "none" else target

    def step(self, at: int, number: int) -> None:
        shape = self.shape
        source = at if self.way.signal == "none" else 1 - at
        inbox = self._boxes(source, number - 1)[1] if number else 0
        outbox = self._boxes(at, number)[0]
        stamp = shape.first_time + (2 * number + at if shape.both else number)
        step(self.to, at, inbox, outbox, shape.size // 4, number, shape.work_ns, stamp)

    def send(self, at: int, number: int) -> None:
        slices, way, size = self.slices, self.way, self.shape.size
        source, target = self._boxes(at, number)
        word, value = self._word(at, number)
        if way.signal == "event":
            self._send_by_event(at, number, source, target)
            return
        if way.move == "copy":
            self.to.copy(at, target, source, size)
        elif way.move == "push":
            ctas = max(1, min(SMS[at], size // (16 * THREADS)))
            values = (target, source, size // 4, slices.counts[at], word, value)
            self.to.kernel(
                at, "push", ctas, THREADS, values, (POINTER, POINTER, LONG, POINTER, POINTER, WORD)
            )
            return
        match way.signal:
            case "memop":
                self.to.write(at, word, value)
            case "kernel":
                self.to.kernel(at, "signal", 1, 1, (word, value), (POINTER, WORD))
            case "numbered":
                self.to.kernel(at, "sign", 1, 1, (word, slices.requests[at]), (POINTER, POINTER))
            case "edge":
                self.events[at, number] = self.to.last[at]

    def _send_by_event(self, at: int, number: int, source: int, target: int) -> None:
        """As the backend does it: the copy is on a stream of its own, between two events."""
        slices, to = self.slices, self.to
        begin = self.events[at, number] = slices.event(at, number, "begin")
        to.call("cuEventRecord", begin, slices.streams[at])
        if self.way.move == "copy":
            to.call("cuStreamWaitEvent", slices.copies[at], begin, 0)
            size, stream = self.shape.size, slices.copies[at]
            to.call("cuMemcpyDtoDAsync", target, source, size, stream)
            end = self.events[at, number] = slices.event(at, number, "end")
            to.call("cuEventRecord", end, stream)

    def wait(self, at: int, number: int) -> None:
        source = 1 - at
        word, value = self._word(source, number)
        match self.way.wait:
            case "event":
                event = self.events[source, number]
                self.to.call("cuStreamWaitEvent", self.slices.streams[at], event, 0)
            case "memop":
                self.to.wait(at, word, value)
            case "numbered":
                self.to.wait(at, word, value, AND)
            case "spin":
                values = (word, value, SPIN_NS, self.slices.late)
                self.to.kernel(at, "spin", 1, 1, values, (POINTER, WORD, LONG, POINTER))
            case "edge":
                mine = self.to.last[at]
                sent = self.events[source, number]
                self.to.last[at] = [*mine, *(node for node in sent if node not in mine)]

    def arm(self, at: int) -> None:
        """The words that this slice waits for, for its next request."""
        first, _ = self._word(1 - at, 0)
        values = (first, self.shape.exchanges + 1, LINE, self.slices.requests[at])
        self.to.kernel(at, "arm", 1, THREADS, values, (POINTER, WORD, WORD, POINTER))


Start = Callable[[], None]


def capture(way: Way, shape: Shape, slices: Slices, streams: list[Any]) -> list[Any]:
    """A graph per slice, captured from its stream."""
    driver = slices.driver
    mode = driver.cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    for stream in streams:
        driver.call("cuStreamBeginCapture", stream, mode)
    problem: Exception | None = None
    try:
        emit(way, shape, Calls(slices, streams), slices)
    except DriverError as found:
        problem = found
    ended = [driver.cu.cuStreamEndCapture(stream) for stream in streams]
    if problem is not None:
        raise problem
    for status, _ in ended:
        driver.check("cuStreamEndCapture", status)
    return [driver.call("cuGraphInstantiate", graph, 0) for _, graph in ended]


def chain(way: Way, shape: Shape, slices: Slices, *, is_gated: bool = False) -> Start:
    """A chain that is ready to start; each start submits all of it.

    Calls on streams may stand behind a gate, so that the host is ahead of the GPU.
    """
    driver = slices.driver
    if way.submit == "streams":
        tape: list[tuple[Any, Any]] = []
        calls = Calls(slices, tape=tape)
        if is_gated:
            values = (slices.gate_address, SPIN_NS, slices.late)
            calls.kernel(0, "gate", 1, 1, values, (POINTER, LONG, POINTER))
        emit(way, shape, calls, slices)
        return lambda: play(driver, tape)
    if way.submit == "captured":
        graphs = capture(way, shape, slices, slices.streams)
    else:
        nodes = Nodes(slices, one=way.submit == "one")
        emit(way, shape, nodes, slices)
        graphs = nodes.ready()
    pairs = list(zip(graphs, slices.streams, strict=False))
    for graph, stream in pairs:
        driver.upload_graph(graph, stream)
    return lambda: launch(driver, pairs)


def play(driver: Driver, tape: list[tuple[Any, Any]]) -> None:
    """Make the calls of a tape."""
    for function, args in tape:
        status = function(*args)[0]
        if status:
            driver.check(function.__name__, status)


def launch(driver: Driver, pairs: list[tuple[Any, Any]]) -> None:
    """Launch graphs on their streams."""
    for graph, stream in pairs:
        driver.launch_graph(graph, stream)
