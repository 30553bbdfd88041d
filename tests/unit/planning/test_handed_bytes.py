"""Which bytes of states a hand-over takes along, and what it refuses, worked out by hand."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tessera.diagnostics import TesseraError
from tessera.ir.plan.hand_over import HandOver, MovedSequence, RowPlace, StatePortion
from tessera.ir.plan.launch_program import AreaKind, Home
from tessera.ir.program import program as ir
from tessera.ir.program.data_type import DataType
from tessera.passes.byte_sets import intervals
from tessera.planning.lower import hand_over as maker
from tessera.planning.lower.hand_over import (
    HandOverMaker,
    HeldState,
    _chunks,
    _folded,
    _joined,
    _row_spans,
    _StateForm,
    _within,
    held_states,
)
from tests.helpers.hand_overs import replica
from tests.helpers.served import graph_of
from tests.helpers.traces import trace

OUT = "buffer x bytes=64 role=output\n"
MOVED = (MovedSequence(RowPlace(1), RowPlace(2)),)


def state(name: str, shape: str, size: int = 64) -> str:
    return f"buffer {name} bytes={size} role=state {shape}\n"


def spans(*rows: tuple[int, int, int]) -> np.ndarray:
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def maker_of(
    traces: Sequence[tuple[str, str]],
    served: Sequence[Sequence[int]],
    devices: Sequence[str] = ("a", "b"),
    hosts: dict[str, str] | None = None,
    *,
    whole: bool = True,
) -> HandOverMaker:
    """Of two replicas whose states have all bytes at home, on each device."""
    programs = [trace(OUT + buffers, "", steps) for buffers, steps in traces]
    replicas = []
    for own, numbers in zip(devices, served, strict=True):
        held = replica(random.Random(0), own, numbers, programs)
        homes = tuple(
            Home(
                trace=place.trace, buffer=place.buffer, device=place.device,
                bytes=((0, programs[place.trace].buffers[place.buffer].bytes),),
            )
            for place in held.places
        )  # fmt: skip
        replicas.append(replace(held, homes=homes))
    graphs = [graph_of(program) for program in programs] if whole else None
    return HandOverMaker(replicas, programs, graphs, hosts or {})


def made(
    *given: Any, moved: Sequence[MovedSequence] = MOVED, axis: int = 0, **options: Any
) -> HandOver:
    return maker_of(*given, **options).make(0, 1, moved, axis)


def taken(given: HandOver) -> dict[tuple[str, str, str], tuple[tuple[int, int, int], ...]]:
    return {
        (own.source, own.target, portion.state): portion.spans
        for own in given.transfers
        for portion in own.portions
    }


ROWS = "dtype=u8 shape=4x16"
READS = "memcpy x k+3 bytes=5"  # of row 0


@pytest.mark.parametrize(
    ("devices", "hosts", "origins"),
    [
        (("ab", "cd"), {"a": "h", "b": "g", "c": "g", "d": "h"}, {"c": "b", "d": "a"}),
        (("ab", "cd"), {"a": "g", "b": "h", "c": "g", "d": "h"}, {"c": "a", "d": "b"}),
        (("ab", "cd"), {}, {"c": "a", "d": "a"}),
        (("ab", "bc"), {"a": "g", "b": "h", "c": "g"}, {"b": "b", "c": "a"}),
        (("ab", "ba"), {"a": "g", "b": "g"}, {"b": "b", "a": "a"}),
    ],
)
def test_bytes_leave_from_the_nearest_device(
    devices: Sequence[str], hosts: dict[str, str], origins: dict[str, str]
) -> None:
    found = taken(made([(state("k", ROWS), READS)], [[0], [0]], devices, hosts))
    assert found == {(at, to, "k"): ((16 + 3, 32 + 3, 5),) for to, at in origins.items()}


def test_states_that_the_target_does_not_read() -> None:
    """Its trace has them, another one reads them: they go along where they are, and are not missed
    where they are not."""
    reads, other = (state("k", ROWS), READS), (state("k", ROWS), "memset x bytes=4 value=0x00")
    unknown = (state("j", ROWS), "memset x bytes=4 value=0x00")
    assert taken(made([reads, other], [[0], [1]])) == {("a", "b", "k"): ((19, 35, 5),)}
    assert taken(made([reads, other], [[0], [0]])) == {("a", "b", "k"): ((19, 35, 5),)}
    assert taken(made([other, other], [[0], [1]])) == {}
    assert taken(made([reads, other, unknown], [[2], [1]])) == {}
    with pytest.raises(TesseraError, match="has no state `k`"):
        made([reads, other, unknown], [[2], [0]])


@pytest.mark.parametrize(
    ("here", "there", "said"),
    [
        (("", 64), ("", 64), "has no rows"),
        (("", 64), (ROWS, 64), "has no rows"),
        ((ROWS, 64), ("", 64), "has no rows"),
        ((ROWS, 64), ("dtype=u8 shape=4x4x4", 64), "differ"),
        (("dtype=u8 shape=4x16", 64), ("dtype=u16 shape=2x16", 64), "differ"),
        ((ROWS, 64), ("dtype=u8 shape=8x16", 128), ""),
    ],
)
def test_rows_of_another_form_are_refused(
    here: tuple[str, int], there: tuple[str, int], said: str
) -> None:
    traces = [(state("k", *own), READS) for own in (here, there)]
    if not said:
        assert taken(made(traces, [[0], [1]]))
        return
    with pytest.raises(TesseraError, match=said):
        made(traces, [[0], [1]])


def test_states_with_addresses_stay() -> None:
    words = state("k", ROWS) + state("j", ROWS)
    steps = READS + "\nmemcpy x+32 j+3 bytes=5"
    made([(words + "pointers x @{8:k}\n", steps)], [[0], [0]])
    with pytest.raises(TesseraError, match="`j` holds addresses"):
        made([(words + "pointers j @{8:x}\n", steps)], [[0], [0]])


def test_without_graphs_all_bytes_of_states_are_read_and_nothing_else() -> None:
    words = state("k", ROWS) + "buffer t bytes=64 role=temp\n" + state("j", ROWS)
    found = taken(made([(words, "memset t bytes=4 value=0x00")], [[0], [0]], whole=False))
    assert found == {("a", "b", name): ((16, 32, 16),) for name in "kj"}
    one = (MovedSequence(RowPlace(0), RowPlace(0)),)
    given = [(state("k", "dtype=u8 shape=1x64"), "memset k bytes=4 value=0x00")]
    given.append(("buffer k bytes=64 role=temp\n", "memset k bytes=4 value=0x00"))
    found = taken(made(given, [[0], [0, 1]], whole=False, moved=one))
    assert found == {("a", "b", "k"): ((0, 0, 64),)}


def test_rows_side_by_side_travel_as_one() -> None:
    moved = [MovedSequence(RowPlace(row), RowPlace(row + 1)) for row in (1, 2)]
    found = taken(made([(state("k", ROWS), "memcpy x k+0 bytes=16")], [[0], [0]], moved=moved))
    assert found == {("a", "b", "k"): ((16, 32, 32),)}


@pytest.mark.parametrize(
    ("row", "there", "said"),
    [(3, 0, ""), (4, 0, "not row 4"), (0, 3, ""), (0, 4, "not row 4"), (-1, 0, "not row -1")],
)
def test_rows_that_are_not_there(row: int, there: int, said: str) -> None:
    moved = (MovedSequence(RowPlace(row), RowPlace(there)),)
    with pytest.raises(TesseraError, match=said) if said else nullcontext():
        made([(state("k", ROWS), READS)], [[0], [0]], moved=moved)


def test_bytes_of_one_sequence() -> None:
    """In pieces, from both devices to both."""
    halves = "memcpy x k+0 bytes=16"
    given = maker_of([(state("k", "dtype=u8 shape=4x4x4"), halves)], [[0], [0]], ("ab", "ca"))
    assert given.bytes_between(0, 1) == {("a", "c"): 16, ("a", "a"): 16}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maker, "MOST_BYTES", 5)
        assert given.bytes_between(0, 1, 3, 4) == {("a", "c"): 12, ("a", "a"): 12}


def test_tokens_of_a_sequence() -> None:
    """Four tokens of four bytes in each row; with blocks the second has what is left."""
    reads = "memcpy x k+0 bytes=16"
    for shape, axis, tokens, wanted in (
        ("dtype=u8 shape=4x4x4", 4, 3, ((16, 32, 12),)),
        ("dtype=u8 shape=4x4x4", 4, None, ((16, 32, 16),)),
        ("dtype=u8 shape=4x4x4", 4, 0, None),
        ("dtype=u8 shape=4x4x4", 4, 9, ((16, 32, 16),)),
        ("dtype=u8 shape=4x4x4", 0, 3, ((16, 32, 16),)),
        ("dtype=u8 shape=4x4x4", 2, 3, ((16, 32, 16),)),
        ("dtype=u8 shape=4x16", 4, 3, ((16, 32, 16),)),
        ("dtype=u32 shape=16", 16, 3, ((4, 8, 4),)),
        ("dtype=u8 shape=64", 64, 3, ((1, 2, 1),)),
    ):
        moved = (replace(MOVED[0], tokens=tokens),)
        found = taken(made([(state("k", shape), reads)], [[0], [0]], moved=moved, axis=axis))
        assert found.get(("a", "b", "k")) == wanted, (shape, axis, tokens)
    blocks = RowPlace(blocks=(0, 2)), RowPlace(blocks=(1, 3))
    for tokens, wanted in ((5, ((0, 16, 16), (32, 48, 4))), (4, ((0, 16, 16),))):
        moved = (MovedSequence(*blocks, tokens),)
        given = [(state("k", "dtype=u8 shape=4x4x4"), reads)]
        found = taken(made(given, [[0], [0]], moved=moved, axis=4))
        assert found == {("a", "b", "k"): wanted}


def test_only_states_in_the_memory_of_a_request_are_held() -> None:
    program = trace(OUT + state("k", ROWS), "", READS)
    given = replica(random.Random(0), "ab", (0,), [program])
    place = given.places[0]
    output = next(b.id for b in program.buffers if b.role is ir.Role.OUTPUT)
    assert list(held_states(given, [program])) == ["k"]
    for other in (replace(place, kind=AreaKind.SLOT), replace(place, buffer=output)):
        assert held_states(replace(given, places=(other,)), [program]) == {}


# --- pieces of bytes -----------------------------------------------------------------------


def buffer_of(size: int, shape: tuple[int, ...] | None) -> ir.Buffer:
    return ir.Buffer(
        id=ir.BufferId(0), name="k", bytes=size, role=ir.Role.STATE, dtype=DataType.U8, shape=shape
    )


@pytest.mark.parametrize(
    ("read", "own", "wanted"),
    [
        ([(3, 5)], (4, 16), [(3, 5)]),
        ([(16, 17), (50, 52)], (4, 16), [(0, 1), (2, 4)]),
        ([(12, 16), (28, 31)], (4, 16), [(12, 16)]),
        ([(12, 20)], (4, 16), [(0, 4), (12, 16)]),  # over the end of a row
        ([(13, 16), (29, 33)], (4, 16), [(0, 1), (13, 16)]),
        ([(1, 16)], (4, 16), [(1, 16)]),
        ([(1, 17)], (4, 16), [(0, 16)]),
        ([(8, 40)], (4, 16), [(0, 16)]),
        ([(3, 5)], (4, 4, 4), [(0, 16)]),  # other rows in the trace that reads
        ([(3, 5)], (8, 8), [(0, 16)]),
        ([(3, 5)], None, [(0, 16)]),
        ([(3, 5)], (8, 16), [(3, 5)]),
    ],
)
def test_bytes_of_rows(
    read: list[tuple[int, int]], own: tuple[int, ...] | None, wanted: list[tuple[int, int]]
) -> None:
    program: Any = ir.Program.__new__(ir.Program)
    other = replace(buffer_of(64, (4, 16)), role=ir.Role.TEMP)
    object.__setattr__(program, "buffers", (other, buffer_of(64, own)))
    held = HeldState(buffer_of(64, (4, 16)), {})
    assert intervals.pairs(_folded(intervals.from_pairs(read), program, held)) == tuple(wanted)


def test_a_state_without_rows_in_both_is_one() -> None:
    program: Any = ir.Program.__new__(ir.Program)
    object.__setattr__(program, "buffers", (buffer_of(64, None),))
    held = HeldState(buffer_of(64, None), {})
    assert intervals.pairs(_folded(intervals.from_pairs([(3, 5)]), program, held)) == ((3, 5),)


def test_parts_of_spans_in_a_set() -> None:
    given = spans((0, 100, 10), (20, 130, 5))
    for side, held, wanted in (
        (0, [(0, 50)], [(0, 100, 10), (20, 130, 5)]),
        (0, [(9, 21)], [(9, 109, 1), (20, 130, 1)]),
        (0, [(10, 20), (25, 30)], []),
        (0, [(2, 4), (6, 8)], [(2, 102, 2), (6, 106, 2)]),
        (1, [(2, 4), (6, 8)], []),
        (1, [(105, 132)], [(5, 105, 5), (20, 130, 2)]),
        (0, [], []),
    ):
        found = _within(given, intervals.from_pairs(held), side)
        assert found.tolist() == [[*one] for one in wanted]


def test_spans_that_follow_one_another_are_one() -> None:
    for given, wanted in (
        ([], []),
        ([(0, 10, 5)], [(0, 10, 5)]),
        ([(0, 10, 5), (5, 15, 2), (7, 17, 1)], [(0, 10, 8)]),
        ([(0, 10, 5), (5, 16, 2)], [(0, 10, 5), (5, 16, 2)]),
        ([(0, 10, 5), (6, 15, 2)], [(0, 10, 5), (6, 15, 2)]),
        ([(0, 10, 5), (7, 17, 1), (8, 18, 3)], [(0, 10, 5), (7, 17, 4)]),
    ):
        assert _joined(spans(*given)).tolist() == [[*one] for one in wanted]


def test_of_no_sequence_there_are_no_spans() -> None:
    held = HeldState(buffer_of(64, (4, 16)), {})
    form = _StateForm(("k",), held, held, intervals.interval(0, 16), intervals.EMPTY)
    assert _row_spans(form, (), 0).shape == (0, 3)


@pytest.mark.parametrize("most", [4, 5, 8, 12, 100])
def test_pieces_are_as_large_as_allowed(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """All bytes go in order, in pieces that are full but for the last one."""
    monkeypatch.setattr(maker, "MOST_BYTES", most)
    given = [
        StatePortion("a", ((0, 50, 3),)),
        StatePortion("b", ((3, 60, 1), (10, 70, 9))),
        StatePortion("c", ((40, 90, 7),)),
    ]
    pieces = list(_chunks(given))
    sizes = [sum(portion.size for portion in piece) for piece in pieces]
    assert sizes == [most] * (20 // most) + ([20 % most] if 20 % most else [])

    def bytes_of(portions: Sequence[StatePortion]) -> list[tuple[str, int, int]]:
        return [
            (portion.state, start + n, put + n)
            for portion in portions
            for start, put, size in portion.spans
            for n in range(size)
        ]

    assert bytes_of([portion for piece in pieces for portion in piece]) == bytes_of(given)
    assert all(size > 0 for piece in pieces for p in piece for _, _, size in p.spans)
    assert all(portion.spans for piece in pieces for portion in piece)
