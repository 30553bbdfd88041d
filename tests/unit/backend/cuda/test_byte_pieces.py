from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from tessera.backend.cuda.byte_pieces import Piece, chunks_of, pieces_of
from tessera.ir.plan.launch_program import Portion
from tessera.ir.program.program import BufferId


def ranges_from(gaps: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    found, at = [], 0
    for gap, width in gaps:
        found.append((at + gap, at + gap + width))
        at += gap + width
    return tuple(found)


RANGES = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), max_size=30).map(ranges_from)


def covered(pieces: tuple[Piece, ...]) -> list[tuple[int, int]]:
    return sorted(
        (p.start + row * p.pitch, p.start + row * p.pitch + p.width)
        for p in pieces
        for row in range(p.rows)
    )


@given(RANGES)
def test_pieces_cover_exactly_the_ranges(ranges: tuple[tuple[int, int], ...]) -> None:
    assert covered(pieces_of(ranges)) == sorted(ranges)


@given(st.lists(RANGES, max_size=3), st.integers(1, 9))
def test_chunks_cover_exactly_the_portions(
    several: list[tuple[tuple[int, int], ...]], most: int
) -> None:
    portions = [Portion(BufferId(buffer), ranges) for buffer, ranges in enumerate(several)]
    chunks = list(chunks_of(portions, most))
    assert all(0 < sum(portion.size for portion in chunk) <= most for chunk in chunks)
    assert bytes_in(portion for chunk in chunks for portion in chunk) == bytes_in(portions)


def bytes_in(portions: Iterable[Portion]) -> list[tuple[int, int]]:
    return [(int(p.buffer), b) for p in portions for span in p.bytes for b in range(*span)]


def test_rows_of_a_matrix_are_one_piece() -> None:
    rows = tuple((100 + 64 * i, 116 + 64 * i) for i in range(50))
    assert pieces_of(rows) == (Piece(100, 16, 64, 50),)


def test_interleaved_patterns_are_one_piece_each() -> None:
    rows = tuple(
        sorted(
            [(64 * i, 64 * i + 8) for i in range(9)]
            + [(64 * i + 32, 64 * i + 36) for i in range(9)]
        )
    )
    assert pieces_of(rows) == (Piece(0, 8, 64, 9), Piece(32, 4, 64, 9))
