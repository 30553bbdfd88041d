"""Shared memory followed cell by cell, against every order in which threads may run.

Small random programs of two or three threads store, load and wait. Every interleaving that their
barriers allow is run; what any of them loads must be in what the image says, unless the image says
that it cannot follow the program.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from tessera.passes.footprint.shared_image import SharedImage
from tessera.passes.footprint.shared_phases import SharedTrouble
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lanes import U64, Lanes
from tessera.passes.lane_values.masks import NONE, Mask
from tests.helpers.share import least

CELLS = 2
WAITS = ("barrier", "meet")


@dataclass(frozen=True)
class Operation:
    """One instruction: what each thread that takes part does; `certain`: it surely does."""

    kind: str
    threads: tuple[int, ...]
    cells: tuple[int, ...]
    values: tuple[int, ...]
    width: int = 4
    certain: bool = True


def random_program(rng: random.Random, threads: int, length: int) -> list[Operation]:
    found = []
    for _ in range(length):
        kind = rng.choice(["store", "store", "load", "load", "barrier", "meet", "junk"])
        chosen = [t for t in range(threads) if rng.random() < 0.7]
        if kind in WAITS:
            chosen = list(range(threads))
        width = rng.choice([4, 4, 8])
        own = rng.random() < 0.5
        cells = [t % CELLS if own else rng.randrange(CELLS) for t in range(threads)]
        if width == 8:
            cells = [cell // 2 * 2 for cell in cells]
        values = [rng.randrange(1, 1 << 33) if width == 8 else rng.randrange(1, 9)] * threads
        if rng.random() < 0.8:
            values = [value + t for t, value in enumerate(values)]
        certain = rng.random() < 0.8
        found.append(Operation(kind, tuple(chosen), tuple(cells), tuple(values), width, certain))
    return found


def interleavings(program: list[Operation], threads: int) -> Iterator[list[tuple[int, int]]]:
    """Every order of (instruction, thread), barriers kept."""

    def walk(at: tuple[int, ...], done: list[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
        if all(place == len(program) for place in at):
            yield done
            return
        for thread in range(threads):
            place = at[thread]
            if place == len(program):
                continue
            if program[place].kind in WAITS and min(at) < place:
                continue
            moved = tuple(p + (t == thread) for t, p in enumerate(at))
            yield from walk(moved, [*done, (place, thread)])

    yield from walk((0,) * threads, [])


def outcomes(program: list[Operation], threads: int, rng: random.Random) -> dict:
    """Per load and thread what some order loads; open stores happen, or they do not."""
    seen: dict[tuple[int, int], set[int]] = {}
    for order in interleavings(program, threads):
        memory = bytearray(4 * CELLS)
        for place, thread in order:
            one = program[place]
            if thread not in one.threads or one.kind in WAITS:
                continue
            start = 4 * one.cells[thread]
            if one.kind == "load":
                found = int.from_bytes(memory[start : start + one.width], "little")
                seen.setdefault((place, thread), set()).add(found)
            elif one.certain or rng.random() < 0.5:
                value = one.values[thread] if one.kind == "store" else rng.randrange(1 << 32)
                memory[start : start + one.width] = value.to_bytes(one.width, "little")
    return seen


def mask_of(one: Operation, threads: int) -> Mask:
    may = np.array([[t in one.threads for t in range(threads)]])
    return Mask(may, may, may) if one.certain else Mask(may, NONE, NONE)


def follow(program: list[Operation], threads: int) -> dict[int, Lanes]:
    image = SharedImage(CELLS, threads)
    zero = lanes.scalar(0, 32)
    everybody = Mask(*[np.ones((1, threads), dtype=np.bool_)] * 3)
    for cell in range(CELLS):
        first = np.where(np.arange(threads) == 0, cell, -1)
        alone = np.array([[t == 0 for t in range(threads)]])
        image.store(first, 4, zero, Mask(alone, alone, alone), sure=True)
    image.phases.barrier(everybody.sure[:, :1])
    loaded: dict[int, Lanes] = {}
    for place, one in enumerate(program):
        cells = np.array([one.cells[t] if t in one.threads else -1 for t in range(threads)])
        mask = mask_of(one, threads)
        if one.kind == "barrier":
            image.phases.barrier(np.ones((1, 1), dtype=np.bool_))
        elif one.kind == "meet":
            image.phases.meet_warps(everybody.sure)
        elif not one.threads:
            continue
        elif one.kind == "load":
            if image.disturbed(cells, one.width, mask):
                continue
            loaded[place] = image.load(cells, one.width, 0)
        elif one.kind == "junk":
            image.overwrite(cells, one.width // 4, mask)
        else:
            values = Lanes(np.array([one.values], dtype=U64))
            image.store(cells, one.width, values, mask, sure=True)
    return loaded


def holds(value: Lanes, thread: int, number: int, bits: int) -> bool:
    lo = np.broadcast_to(value.low(), (1, 8)) if value.low().shape[-1] == 1 else value.low()
    span = lanes.spans(value)
    span = np.broadcast_to(span, (1, 8)) if span.shape[-1] == 1 else span
    return (number - int(lo[0, thread])) % (1 << bits) <= int(span[0, thread])


@pytest.mark.parametrize(
    ("threads", "length", "count"), [(2, 5, least(250, 100)), (3, 3, least(200, 60))]
)
def test_loads_hold_whatever_the_order(threads: int, length: int, count: int) -> None:
    followed = exact = 0
    for seed in range(count):
        rng = random.Random(seed)
        program = random_program(rng, threads, length)
        try:
            loaded = follow(program, threads)
        except SharedTrouble:
            continue
        seen = outcomes(program, threads, rng)
        for (place, thread), numbers in seen.items():
            value = loaded.get(place)
            if value is None:
                continue
            followed += 1
            exact += value.span is None
            for number in numbers:
                bits = 8 * program[place].width
                assert holds(value, thread, number, bits), (seed, place, thread, number)
    assert followed > count // 4
    assert exact > count // 10


def store(thread: int, value: int) -> Operation:
    return Operation("store", (thread,), (0, 0), (value, value))


def test_two_stores_without_a_barrier_leave_either() -> None:
    barrier = Operation("barrier", (0, 1), (0, 0), (0, 0))
    load = Operation("load", (0, 1), (0, 0), (0, 0))
    found = follow([store(0, 5), store(1, 6), barrier, load], 2)[3]
    assert all(holds(found, thread, number, 32) for thread in (0, 1) for number in (5, 6))
    found = follow([store(0, 5), barrier, store(1, 6), barrier, load], 2)[4]
    assert found.span is None
    assert (found.low() == 6).all()
