"""A partial order as streams and events: exactly what the graph orders is ordered."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tessera.driver.trace.build import build_program
from tessera.driver.trace.streams import find_lines
from tessera.frontend.capture.raw import RawBuffer, RawCapture, RawMemset
from tessera.ir.program.program import Event, Memset, Program, Role, Wait
from tessera.passes.dependences.dependences import find_order

START = 0x7F0000000000


def program_of(after: list[list[int]]) -> Program:
    """A memset of a buffer of its own per node."""
    buffers = tuple(
        RawBuffer(name=f"b{n}", address=START + 256 * n, bytes=64, role=Role.OUTPUT, lasting=False)
        for n in range(len(after))
    )
    nodes = tuple(RawMemset(address=b.address, bytes=64, value=0, element_bytes=1) for b in buffers)
    raw = RawCapture(
        buffers=buffers, nodes=nodes, operators=(), codes=(), after=tuple(map(tuple, after))
    )
    return build_program(raw)[0]


def ancestors(after: list[list[int]]) -> list[set[int]]:
    found: list[set[int]] = []
    for before in after:
        found.append(set(before).union(*(found[one] for one in before)))
    return found


@st.composite
def orders(draw: st.DrawFn) -> list[list[int]]:
    count = draw(st.integers(1, 12))
    return [
        sorted(draw(st.sets(st.integers(0, n - 1), max_size=3))) if n else [] for n in range(count)
    ]


@given(orders())
def test_a_trace_orders_what_the_graph_orders_and_no_more(after: list[list[int]]) -> None:
    order = find_order(program_of(after))
    wanted = ancestors(after)
    for second in range(len(after)):
        for first in range(second):
            assert order.ordered(first, second) == (first in wanted[second]), (first, second)


def test_a_chain_is_one_stream_without_events() -> None:
    steps = program_of([[], [0], [0, 1], [2]]).steps
    assert [type(step) for step in steps] == [Memset] * 4
    assert {step.stream for step in steps} == {"0"}


def test_a_fork_and_its_join() -> None:
    """0 to 1, 2 on one stream, 3 beside them, 4 after both."""
    lines = find_lines([[], [0], [1], [0], [2, 3]])
    assert lines.streams == (0, 0, 0, 1, 1)
    assert lines.waits == ((), (), (), (0,), (2,))
    steps = program_of([[], [0], [1], [0], [2, 3]]).steps
    assert [type(step).__name__ for step in steps] == [
        "Memset",
        "Event",
        "Memset",
        "Memset",
        "Event",
        "Wait",
        "Memset",
        "Wait",
        "Memset",
    ]
    waits = [step.event for step in steps if isinstance(step, Wait)]
    assert waits == [step.id for step in steps if isinstance(step, Event)]


def test_a_stream_that_is_over_is_used_again() -> None:
    """Two forks one after the other need two streams, not three."""
    lines = find_lines([[], [0], [0], [1, 2], [3], [3], [4, 5]])
    assert max(lines.streams) == 1
