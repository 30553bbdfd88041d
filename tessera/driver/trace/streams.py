"""Streams for work that has a partial order.

In: for each piece of work, in a valid order, the earlier pieces it has to wait for. Out: `Lines`: a
stream for each piece, and the pieces it waits for by an event. Streams and waits together order
exactly what the input orders.

A piece goes on a stream whose last piece it follows anyway, if possible on that of the nearest
piece it waits for; otherwise it begins a new stream. It waits for another piece only if no earlier
wait implies it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Clock = dict[int, int]
"""The last finished piece of each stream."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Per piece its stream, and the pieces of other streams that it waits for."""

    streams: tuple[int, ...]
    waits: tuple[tuple[int, ...], ...]


def find_lines(after: Sequence[Sequence[int]]) -> Lines:
    """Put pieces of work on streams."""
    streams: list[int] = []
    waits: list[tuple[int, ...]] = []
    clocks: list[Clock] = []
    tails: dict[int, int] = {}
    for piece, before in enumerate(after):
        joined: Clock = {}
        for earlier in before:
            _join(joined, clocks[earlier])
        stream = _stream(
            joined, tails, [streams[earlier] for earlier in sorted(before, reverse=True)]
        )
        clock = dict(clocks[tails[stream]]) if stream in tails else {}
        awaited = []
        for earlier in sorted(before, reverse=True):
            if clock.get(streams[earlier], -1) < earlier:
                awaited.append(earlier)
                _join(clock, clocks[earlier])
        clock[stream] = piece
        tails[stream] = piece
        streams.append(stream)
        waits.append(tuple(sorted(awaited)))
        clocks.append(clock)
    return Lines(tuple(streams), tuple(waits))


def _join(clock: Clock, other: Clock) -> None:
    for stream, last in other.items():
        clock[stream] = max(clock.get(stream, -1), last)


def _stream(joined: Clock, tails: dict[int, int], near: Sequence[int]) -> int:
    """A stream whose last piece is finished, near streams first; otherwise a new stream."""
    for stream in (*near, *sorted(tails)):
        if joined.get(stream, -1) >= tails[stream]:
            return stream
    return len(tails)
