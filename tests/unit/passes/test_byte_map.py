"""The map from bytes to values, against a plain list."""

from __future__ import annotations

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from tessera.passes.byte_sets.byte_map import ByteMap

SIZE = 24


def _add(value: int, old: int) -> int:
    return (old + value) % 4


@st.composite
def ranges(draw: st.DrawFn) -> list[tuple[int, int]]:
    marks = draw(st.lists(st.booleans(), min_size=SIZE, max_size=SIZE))
    apart = draw(st.booleans())
    found: list[tuple[int, int]] = []
    for at, marked in enumerate(marks):
        if marked and found and found[-1][1] == at and not apart:
            found[-1] = (found[-1][0], at + 1)
        elif marked:
            found.append((at, at + 1))
    return found


@given(st.lists(st.tuples(ranges(), st.integers(0, 3), st.booleans()), max_size=8), ranges())
def test_like_a_list(
    changes: list[tuple[list[tuple[int, int]], int, bool]], asked: list[tuple[int, int]]
) -> None:
    tested = ByteMap(SIZE, 0)
    plain = [0] * SIZE
    for some, value, adds in changes:
        if adds:
            tested.change(some, partial(_add, value))
        else:
            tested.set(some, value)
        for start, end in some:
            for at in range(start, end):
                plain[at] = (plain[at] + value) % 4 if adds else value
    expanded = [value for low, high, value in tested.get([(0, SIZE)]) for _ in range(low, high)]
    assert expanded == plain
    assert all(a != b for a, b in zip(tested.values, tested.values[1:], strict=False))
    for low, high, value in tested.get(asked):
        assert plain[low:high] == [value] * (high - low)
