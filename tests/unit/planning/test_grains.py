"""Bytes in grains, and memory in cells: what is treated alike is together, nothing else is."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest

from tessera.ir.arrays import Ranges
from tessera.ir.plan.launch_program import AreaKind, Place, Transfer, TransferId
from tessera.ir.program.program import BufferId
from tessera.passes.byte_sets import intervals
from tessera.planning.lower.cells import Cells
from tessera.planning.lower.grains import BufferGrains
from tessera.planning.lower.queues import _watched
from tests.helpers.share import share

SIZE = 40


def some_bytes(draw: random.Random, size: int = SIZE) -> Ranges:
    """A few intervals, sorted and apart."""
    edges = sorted(draw.sample(range(size + 1), 2 * draw.randrange(1, 5)))
    return np.array(edges, dtype=np.int64).reshape(-1, 2)


def members(ranges: Ranges) -> set[int]:
    return {byte for start, end in ranges.tolist() for byte in range(start, end)}


@pytest.mark.parametrize("seed", share(range(20)))
def test_bytes_in_the_same_sets_are_one_grain(seed: int) -> None:
    draw = random.Random(seed)
    sets = [some_bytes(draw) for _ in range(draw.randrange(1, 5))]
    sets.append(intervals.interval(0, SIZE) if seed % 2 else intervals.EMPTY)
    grains = BufferGrains(SIZE, sets)
    inside = [frozenset(n for n, one in enumerate(sets) if b in members(one)) for b in range(SIZE)]
    groups: dict[frozenset[int], set[int]] = {}
    for byte, own in enumerate(inside):
        if own:
            groups.setdefault(own, set()).add(byte)
    # In the order of the first bytes.
    assert [members(one) for one in grains.bytes] == sorted(groups.values(), key=min)
    for one in sets:
        numbers = grains.of(one)
        assert set().union(*(members(grains.bytes[n]) for n in numbers)) == members(one)
        assert grains.pairs(numbers) == intervals.pairs(intervals.union([one]))


@dataclass
class Buffer:
    bytes: int


@dataclass
class Program:
    buffers: list[Buffer]


@dataclass
class Trace:
    """As much of a trace as cells ask for."""

    program: Program
    grains: list[BufferGrains] = field(default_factory=list)


@pytest.mark.parametrize("seed", share(range(20)))
def test_cells_meet_where_bytes_meet(seed: int) -> None:
    draw = random.Random(seed)
    trace = Trace(Program([Buffer(SIZE) for _ in range(4)]))
    sets = [[some_bytes(draw) for _ in range(1 + seed % 3)] for _ in range(4)]
    trace.grains = [BufferGrains(SIZE, own) for own in sets]
    places = {
        number: Place(
            trace=0,
            buffer=BufferId(number),
            device="a",
            kind=AreaKind.SLOT,
            offset=draw.randrange(0, 3 * SIZE, 8),
        )
        for number in range(4)
    }
    cells = Cells(trace, places, range(4))  # type: ignore[arg-type]
    at = {}
    for number, place in places.items():
        for grain, own in enumerate(trace.grains[number].bytes):
            at[number, grain] = {place.offset + byte for byte in members(own)}
        at[number, -1] = {place.offset + byte for byte in range(SIZE)}
    found = {
        (number, grain): set(cells.of(number, (grain,)) if grain >= 0 else cells.whole(number))
        for number, grain in at
    }
    for left in at:
        for right in at:
            assert bool(at[left] & at[right]) == bool(found[left] & found[right]), (left, right)


@pytest.mark.parametrize("seed", range(40))
def test_buffers_that_share_bytes_with_moved_or_freed_ones_are_watched(seed: int) -> None:
    draw = random.Random(seed)
    sizes = [draw.choice((8, 8, 16, 40, 100)) for _ in range(9)]
    places = {
        number: Place(
            trace=0,
            buffer=BufferId(number),
            device="a",
            kind=AreaKind.SLOT,
            offset=draw.randrange(0, 240, 8),
        )
        for number in range(9)
    }
    moved = draw.sample(range(9), draw.randrange(4))
    sent = Transfer(id=TransferId(0), source="a", target="b", portions=())
    use = SimpleNamespace(
        actions=[SimpleNamespace(what=sent, covered=((buffer, (0,)),)) for buffer in moved],
        program=Program([Buffer(size) for size in sizes]),
    )
    bytes_of = [
        set(range(places[number].offset, places[number].offset + size))
        for number, size in enumerate(sizes)
    ]
    freed = set(moved) | {n for n in range(9) if any(bytes_of[n] & bytes_of[m] for m in moved)}
    shared = {n for n in range(9) if any(bytes_of[n] & bytes_of[other] for other in freed)}
    found = _watched(use, "a", places)  # type: ignore[arg-type]
    assert found == shared | freed
