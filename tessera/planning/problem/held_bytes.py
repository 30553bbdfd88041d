"""The bytes of a buffer that are in memory wherever some steps run.

In: the regions that steps touch. Out: pieces of the buffer, each with the steps whose device holds
it: those that touch bytes on both sides of it, or its own. A device holds a buffer from the first
to the last byte that its steps touch (`planning.lower.places`), so it holds no less than the pieces
of its steps; where these touch each other, no more.
"""

from __future__ import annotations

from collections.abc import Iterable

from tessera.ir.graph.region import Affine, Interval, Region

Users = tuple[int, ...]


def pieces_of(size: int, touched: Iterable[tuple[int, Region]]) -> dict[Users, int]:
    """The bytes that exactly these steps hold, of a buffer of `size` bytes; in order of bytes."""
    hulls: dict[int, tuple[int, int]] = {}
    for step, region in touched:
        start, end = _hull(region, size)
        if start < end:
            known = hulls.get(step, (start, end))
            hulls[step] = min(start, known[0]), max(end, known[1])
    if set(hulls.values()) <= {(0, size)}:
        return {tuple(sorted(hulls)): size} if hulls else {}
    begins: dict[int, list[int]] = {}
    ends: dict[int, list[int]] = {}
    for step, (start, end) in hulls.items():
        begins.setdefault(start, []).append(step)
        ends.setdefault(end, []).append(step)
    pieces: dict[Users, int] = {}
    here: set[int] = set()
    last = 0
    for edge in sorted(begins.keys() | ends.keys()):
        if here:
            users = tuple(sorted(here))
            pieces[users] = pieces.get(users, 0) + edge - last
        here.difference_update(ends.get(edge, ()))
        here.update(begins.get(edge, ()))
        last = edge
    return pieces


def _hull(region: Region, size: int) -> tuple[int, int]:
    """The first byte of a region in a buffer, and the end of its last."""
    match region:
        case Affine(pieces):
            starts = [piece.offset for piece in pieces]
            ends = [piece.end for piece in pieces]
            return max(0, min(starts, default=0)), min(size, max(ends, default=0))
        case Interval(start, end):
            return max(0, start), min(size, end)
        case _:
            return 0, size
