"""Which steps the streams and events of a program order.

In: a program. Out: `HappensBefore.ordered(a, b)`: whether step `a` is over before step `b` starts.
Each step has a clock: per stream, the last step that is over before it starts.
"""

from __future__ import annotations

from dataclasses import dataclass

from tessera.ir.program import program as ir

Clock = dict[str, int]


@dataclass(frozen=True, slots=True)
class HappensBefore:
    """Clocks and streams by step."""

    clocks: tuple[Clock, ...]
    streams: tuple[str, ...]

    def ordered(self, first: int, second: int) -> bool:
        """Whether `first` is over before `second` starts."""
        return self.clocks[second].get(self.streams[first], -1) >= first


def find_order(program: ir.Program) -> HappensBefore:
    """Walk the records once."""
    current: dict[str, Clock] = {}
    events: dict[int, Clock] = {}
    clocks: list[Clock] = []
    streams: list[str] = []
    for step in program.steps:
        clock = current.setdefault(step.stream, {})
        if isinstance(step, ir.Event):
            events[step.id] = dict(clock)
        elif isinstance(step, ir.Wait):
            for stream, last in events.get(step.event, {}).items():
                clock[stream] = max(clock.get(stream, -1), last)
        else:
            clocks.append(dict(clock))
            streams.append(step.stream)
            clock[step.stream] = int(step.id)
    return HappensBefore(tuple(clocks), tuple(streams))
