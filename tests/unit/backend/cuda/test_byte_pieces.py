from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tessera.backend.cuda.byte_pieces import Piece, chunks_of, pieces_of


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


@given(RANGES, st.integers(1, 9))
def test_chunks_cover_exactly_the_ranges(ranges: tuple[tuple[int, int], ...], most: int) -> None:
    chunks = list(chunks_of(ranges, most))
    assert all(0 < sum(end - start for start, end in chunk) <= most for chunk in chunks)
    bytes_in = [b for chunk in chunks for start, end in chunk for b in range(start, end)]
    assert bytes_in == [b for start, end in ranges for b in range(start, end)]


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
