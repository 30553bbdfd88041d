"""Small rules about ranges: of parts of operands, of which access touches some bytes, of what the
store of patterns may hold, and of regions with many pieces."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from tessera.ir.graph.access import Access, AccessKind, AddressClass, Certainty
from tessera.ir.graph.region import Interval
from tessera.ir.program import program as ir
from tessera.ir.program.data_type import DataType
from tessera.passes.byte_sets import intervals
from tessera.passes.checker.division_calls import _is_range
from tessera.passes.dependences.launch_pattern import _descriptor
from tessera.passes.dependences.launch_report import StepAccesses
from tessera.passes.dependences.step_totals import BufferTotal
from tests.helpers.pointer_cases import checked, kernel, trace

B0 = ir.BufferId(0)


def operand_of(at: int, shape: tuple[int, ...]) -> ir.Operand:
    return ir.Operand(pointer=ir.Pointer(B0, at), dtype=DataType.F32, shape=shape)


@pytest.mark.parametrize("rows", [1, 4, 8, 16])
def test_parts_of_operands_begin_and_end_at_rows(rows: int) -> None:
    """Of an axis of 16 that the operand has `rows` of."""
    operand = operand_of(64, (rows, 3))
    for first, end in combinations(range(17), 2):
        start, count = first * rows // 16, (end - first) * rows // 16
        own = operand_of(64 + 12 * start, (count, 3))
        fits = first * rows % 16 == 0 and end * rows % 16 == 0
        assert _is_range(operand, own, ("n", "k"), "n", (first, end, 16)) is fits
        for moved in (-12, 12):
            other = operand_of(own.pointer.offset + moved, own.shape)
            assert not _is_range(operand, other, ("n", "k"), "n", (first, end, 16))


@pytest.mark.parametrize("seed", range(30))
def test_an_edge_names_the_first_access_that_touches_its_bytes(seed: int) -> None:
    rng = random.Random(seed)
    spans = [(a, a + rng.randrange(1, 9)) for a in (rng.randrange(40) for _ in range(4))]
    accesses = tuple(
        Access(
            buffer=B0,
            kind=AccessKind.READ,
            certainty=Certainty.MAY,
            address=AddressClass.DIRECT,
            region=Interval(*span),
        )
        for span in spans
    )
    step = StepAccesses(id=ir.LaunchId(0), name="k", accesses=accesses)
    total = BufferTotal(
        buffer=B0,
        kind=AccessKind.READ,
        ends=False,
        ranges=intervals.from_pairs(spans),
        places=(0, 1, 2, 3),
    )
    for start in range(48):
        ranges = intervals.from_pairs([(start, start + 2), (60, 70)])
        touching = [n for n, (a, b) in enumerate(spans) if a < start + 2 and start < b]
        assert total.behind(step, ranges) == (touching or [0])[0]


@pytest.mark.parametrize(
    "row", [[-4, 4, []], [0, True, []], [0, 4, [[4.0, 2]]], [0, 4, [[4, "2"]]]]
)
def test_a_stored_region_has_numbers_from_zero_on(row: list[object]) -> None:
    assert _descriptor([0, 4, [[8, 2]]]).width == 4
    with pytest.raises(ValueError, match="not a number"):
        _descriptor(row)


@pytest.mark.parametrize("blocks", [1, 4])
def test_regions_of_many_pieces(blocks: int) -> None:
    """At every third word, or at the one beside it, by a hash of the thread."""
    body = """
  mov.u32 %r0, %ctaid.x; mad.lo.u32 %r0, %r0, 256, %t; mul.lo.u32 %r1, %r0, 2654435761;
  mul.lo.u32 %r1, %r1, %r1; shr.u32 %r1, %r1, 31;
  mad.lo.u32 %r0, %r0, 3, %r1; mul.wide.u32 %d0, %r0, 4; add.s64 %d1, %p0, %d0;
  ld.global.u32 %r1, [%p1]; setp.lt.u32 %c0, %t, %r1;
  st.global.u32 [%d1], %t; @%c0 st.global.u32 [%d1], %r1;
"""
    buffers = "//! buffer b0 bytes=90000 role=state\n//! buffer b1 bytes=64 role=state"
    launch = f"//! launch m.k grid={blocks},1,1 block=256,1,1 args=[b0, b1]"
    (found,) = checked(trace(buffers, kernel("k", 2, body), [launch]), fills=(300,))
    assert found.is_exact
