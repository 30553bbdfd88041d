"""Parts of library calls: for every operator and every axis, the bytes of the whole call."""

from __future__ import annotations

import itertools
from random import Random

import pytest

from tessera.backend.ptx_executor.operators.run import FUNCTIONS
from tessera.ir.operators import shapes
from tessera.ir.operators.cut_rules import rule_of
from tessera.ir.operators.records import Reach
from tessera.ir.operators.table import bind, reaches, table
from tessera.ir.program.program import LibraryCall
from tessera.passes.dependences.plain_steps import operand_bytes
from tessera.passes.division.cut_calls import CallAxis, call_axes, part_of_call
from tests.helpers.random_calls import random_case

FAMILIES: dict[str, list[str]] = {}
for _entry in table().values():
    FAMILIES.setdefault(_entry.function, []).append(_entry.name)

# Elementwise functions are many and alike.
SEEDS = {False: 10, True: 2}


def edges_of(axis: CallAxis, rng: Random) -> list[int]:
    """Random edges of up to four parts."""
    inner = range(axis.multiple, axis.extent, axis.multiple)
    picked = rng.sample(inner, rng.randint(1, min(3, len(inner))))
    return [0, *sorted(picked), axis.extent]


def parts_of(call: LibraryCall, axis: CallAxis, rng: Random) -> list[LibraryCall]:
    edges = edges_of(axis, rng)
    return [part_of_call(call, axis.axis, first, end) for first, end in itertools.pairwise(edges)]


def written_bytes(call: LibraryCall) -> list[tuple[int, int]]:
    """The bytes that the analysis says a call may write, one by one."""
    found = []
    for operand, reach in zip(call.writes, reaches(call)[1], strict=True):
        assert reach is not Reach.NONE
        for start, end in operand_bytes(operand):
            found += [(int(operand.pointer.buffer), place) for place in range(start, end)]
    return found


@pytest.mark.parametrize("function", FAMILIES)
def test_parts_leave_the_bytes_of_the_whole(function: str) -> None:
    names = FAMILIES[function]
    entry = table()[names[0]]
    axes = set()
    for seed in range(max(SEEDS[entry.shapes is shapes.elementwise], len(names))):
        rng = Random(f"{function} {seed}")
        case = random_case(names[seed % len(names)], rng)
        bind(case.call)
        for axis in call_axes(case.call):
            axes.add(axis.axis)
            parts = parts_of(case.call, axis, rng)
            told = [place for part in parts for place in written_bytes(part)]
            assert sorted(told) == sorted(written_bytes(case.call))
            if function not in FUNCTIONS:
                continue
            whole, (touched,) = case.run(case.call)
            made, shares = case.run(*rng.sample(parts, len(parts)))
            assert made == whole, (case.call, axis, parts)
            assert sum(map(len, shares)) == len(touched)
            assert set().union(*shares) == touched
    assert bool(axes) != rule_of(entry).says.startswith("none"), axes
