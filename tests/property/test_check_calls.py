"""The checker on parts of library calls: those of every operator are right, no others are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from random import Random

from tessera.ir.operators.table import table
from tessera.ir.plan.division import Cut
from tessera.ir.program.program import LibraryCall, Operand, Pointer
from tessera.passes.checker.division_calls import call_fault
from tessera.passes.division.cut_calls import call_axes, part_of_call
from tests.helpers.random_calls import random_case
from tests.property.test_parts_of_calls import FAMILIES, edges_of


def other_operands(operand: Operand, rng: Random) -> Iterator[Operand]:
    pointer = operand.pointer
    yield replace(operand, pointer=Pointer(pointer.buffer, pointer.offset + operand.dtype.bytes))
    yield replace(operand, pointer=Pointer(pointer.buffer + 1, pointer.offset))
    if operand.shape:
        at = rng.randrange(len(operand.shape))
        for step in (1, -1):
            shape = (*operand.shape[:at], operand.shape[at] + step, *operand.shape[at + 1 :])
            yield replace(operand, shape=shape, strides=operand.element_strides())
        strides = list(operand.element_strides())
        strides[at] += 1
        yield replace(operand, strides=tuple(strides))


def other_parts(part: LibraryCall, rng: Random) -> Iterator[LibraryCall]:
    yield replace(part, stream="other")
    yield replace(part, writes=part.writes[:-1])
    yield replace(part, reads=(*part.reads, part.writes[0]))
    for kind in ("reads", "writes"):
        operands = getattr(part, kind)
        for at, operand in enumerate(operands):
            for other in other_operands(operand, rng):
                yield replace(part, **{kind: (*operands[:at], other, *operands[at + 1 :])})
    for at, (name, value) in enumerate(part.attributes):
        changed = value + 1 if isinstance(value, int | float) else "other"
        rest = (*part.attributes[:at], (name, changed), *part.attributes[at + 1 :])
        yield replace(part, attributes=rest)


def test_parts_of_every_operator_are_proved_and_others_refused() -> None:
    assert len(table()) > len(FAMILIES) > 50
    count = 0
    for function, names in FAMILIES.items():
        rng = Random(function)
        call = random_case(rng.choice(names), rng).call
        for axis in call_axes(call):
            cut = Cut(step=0, axis=axis.axis, edges=tuple(edges_of(axis, rng)))
            parts = [part_of_call(call, axis.axis, *bounds) for bounds in pairwise(cut.edges)]
            assert call_fault(call, parts, cut) == "", (call, cut)
            at = rng.randrange(len(parts))
            for other in other_parts(parts[at], rng):
                assert call_fault(call, [*parts[:at], other, *parts[at + 1 :]], cut), other
                count += 1
            assert call_fault(call, parts[::-1], cut)
            for edges in ((0, *cut.edges), (*cut.edges, cut.edges[-1] + 1)):
                moved = [*parts, parts[-1]]
                assert call_fault(call, moved, replace(cut, edges=edges))
            assert call_fault(call, parts, replace(cut, axis="depth"))
    assert count > 1000
