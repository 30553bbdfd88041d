"""The bytes of fills, copies and operands, and what clocks of streams order."""

from __future__ import annotations

import pytest

from tessera.ir.graph.region import Affine, Interval
from tessera.ir.program import program as ir
from tessera.ir.program.data_type import DataType
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import may_region, must_region
from tessera.passes.dependences import plain_steps
from tessera.passes.dependences.dependences import find_order
from tessera.passes.dependences.plain_steps import memcpy_accesses, memset_accesses, operand_bytes
from tests.helpers.traces import COPY, trace

X, Y = ir.Pointer(ir.BufferId(0), 8), ir.Pointer(ir.BufferId(1), 16)


@pytest.mark.parametrize("count", [0, 1, 64])
def test_fills_and_copies(count: int) -> None:
    fill = ir.Memset(id=ir.LaunchId(0), target=X, bytes=count, value=0)
    copy = ir.Memcpy(id=ir.LaunchId(0), target=X, source=Y, bytes=count)
    found = [
        (int(a.buffer), a.kind.value, a.region.start, a.region.end)  # type: ignore[union-attr]
        for a in (*memset_accesses(fill), *memcpy_accesses(copy))
    ]
    write = (0, "write", 8, 8 + count)
    assert found == ([write, (1, "read", 16, 16 + count), write] if count else [])


@pytest.mark.parametrize(
    ("shape", "strides", "ranges"),
    [
        ((), None, [(8, 12)]),
        ((0, 4), None, []),
        ((1, 1), (100, 7), [(8, 12)]),
        ((4,), None, [(8, 24)]),
        ((4,), (0,), [(8, 12)]),
        ((3,), (2,), [(8, 12), (16, 20), (24, 28)]),
        ((2, 3), None, [(8, 32)]),
        ((2, 3), (4, 1), [(8, 20), (24, 36)]),
        ((3, 2), (1, 4), [(8, 20), (24, 36)]),
        ((2, 2), (3, 2), [(8, 12), (16, 24), (28, 32)]),
        # Dimensions that overlap.
        ((3, 3), (1, 1), [(8, 28)]),
        ((3, 4), (2, 1), [(8, 40)]),
    ],
)
def test_bytes_of_an_operand(
    shape: tuple[int, ...], strides: tuple[int, ...] | None, ranges: list[tuple[int, int]]
) -> None:
    operand = ir.Operand(pointer=X, dtype=DataType.F32, shape=shape, strides=strides)
    assert [tuple(pair) for pair in operand_bytes(operand).tolist()] == ranges


@pytest.mark.parametrize(("most", "is_exact"), [(6, True), (5, False)])
def test_many_runs_become_one(most: int, is_exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_steps, "_MOST", most)
    operand = ir.Operand(pointer=X, dtype=DataType.F32, shape=(3, 2), strides=(20, 2))
    found = operand_bytes(operand).tolist()
    runs = [[8 + 80 * row + 8 * place, 12 + 80 * row + 8 * place]
            for row in range(3) for place in range(2)]  # fmt: skip
    assert found == (runs if is_exact else [[8, 8 + 160 + 8 + 4]])


def test_one_run_is_an_interval() -> None:
    assert may_region(intervals.interval(3, 9)) == must_region(intervals.interval(3, 9))
    assert may_region(intervals.interval(3, 9)) == Interval(3, 9)
    assert may_region(intervals.EMPTY) == Affine(())


BUFFERS = "buffer x bytes=256 role=input\nbuffer y bytes=256 role=output\n"
STEP = "memset y value=0 bytes=4 stream="


@pytest.mark.parametrize(
    ("steps", "ordered"),
    [
        ([f"{STEP}a", f"{STEP}a"], {(0, 1)}),
        ([f"{STEP}a", f"{STEP}b"], set()),
        ([f"{STEP}a", "event e1 stream=a", "wait e1 stream=b", f"{STEP}b"], {(0, 1)}),
        (["event e1 stream=a", f"{STEP}a", "wait e1 stream=b", f"{STEP}b"], set()),
        ([f"{STEP}a", "event e1 stream=a", f"{STEP}a", "wait e1 stream=b", f"{STEP}b"],
         {(0, 1), (0, 2)}),
        # A wait for an earlier event takes nothing back, and what waits passes its waits on.
        ([f"{STEP}a", "event e1 stream=a", f"{STEP}a", "event e2 stream=a", "wait e2 stream=b",
          "wait e1 stream=b", f"{STEP}b"], {(0, 1), (0, 2), (1, 2)}),
        ([f"{STEP}a", "event e1 stream=a", "wait e1 stream=b", f"{STEP}b", "event e2 stream=b",
          "wait e2 stream=c", f"{STEP}c"], {(0, 1), (0, 2), (1, 2)}),
    ],
)  # fmt: skip
def test_streams_and_events_order_steps(steps: list[str], ordered: set[tuple[int, int]]) -> None:
    program = trace(BUFFERS, COPY, "\n".join(steps) + "\n")
    order = find_order(program)
    count = len(order.clocks)
    assert ordered == {
        (first, second)
        for first in range(count)
        for second in range(first + 1, count)
        if order.ordered(first, second)
    }
