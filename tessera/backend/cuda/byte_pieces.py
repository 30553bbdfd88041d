"""Byte ranges as few copies: ranges of equal width at one pitch become rows of a 2D copy.

In: the byte ranges of a transfer. Out: pieces, each of which is one driver copy. Ranges of a
transfer are disjoint, so pieces may be copied in any order. Ranges are grouped by width first,
which also finds the rows of interleaved patterns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tessera.backend.cuda.api import MOST_PITCH
from tessera.ir.plan.launch_program import Bytes, Portion
from tessera.ir.program.program import BufferId


@dataclass(frozen=True, slots=True)
class Piece:
    """`rows` rows of `width` bytes, `pitch` bytes apart (0 for a single row)."""

    start: int
    width: int
    pitch: int = 0
    rows: int = 1


def pieces_of(ranges: Bytes) -> tuple[Piece, ...]:
    """The pieces that cover exactly these ranges, sorted by start."""
    by_width: dict[int, list[int]] = {}
    for start, end in ranges:
        if end > start:
            by_width.setdefault(end - start, []).append(start)
    pieces = [piece for width, starts in by_width.items() for piece in _rows(width, starts)]
    return tuple(sorted(pieces, key=lambda piece: piece.start))


def _rows(width: int, starts: list[int]) -> Iterator[Piece]:
    """Greedily group consecutive starts that have one pitch."""
    at = 0
    while at < len(starts):
        pitch = starts[at + 1] - starts[at] if at + 1 < len(starts) else 0
        end = at + 1
        if 0 < pitch <= MOST_PITCH:
            while end < len(starts) and starts[end] - starts[end - 1] == pitch:
                end += 1
        rows = end - at
        yield Piece(starts[at], width, pitch if rows > 1 else 0, rows)
        at = end


def chunks_of(portions: Iterable[Portion], most: int) -> Iterator[tuple[Portion, ...]]:
    """The portions cut into lists of at most `most` bytes each."""
    chunk: dict[BufferId, list[tuple[int, int]]] = {}
    room = most
    for buffer, start, end in ((p.buffer, *span) for p in portions for span in p.bytes):
        while start < end:
            taken = min(room, end - start)
            chunk.setdefault(buffer, []).append((start, start + taken))
            start, room = start + taken, room - taken
            if not room:
                yield tuple(Portion(own, tuple(ranges)) for own, ranges in chunk.items())
                chunk, room = {}, most
    if chunk:
        yield tuple(Portion(own, tuple(ranges)) for own, ranges in chunk.items())
