"""Which trace and which sequence each request has, and to which replica it goes.

The same rules as those of `tessc run` (`driver.run.schedule`), written without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tessera.simulation.intake import Coming


def always(shares: Sequence[float], sequences: int) -> Iterator[Coming]:
    """Requests without end, as `tessc run` makes them."""
    for trace, sequence in sequence_turns(shares, sequences):
        yield Coming(-1.0, trace, sequence)


def sequence_turns(shares: Sequence[float], sequences: int) -> Iterator[tuple[int, int]]:
    """Trace and sequence of one request after the other: sequences take turns, traces by share."""
    counts = [[0] * len(shares) for _ in range(sequences)]
    number = 0
    while True:
        sequence = number % sequences
        trace = most_behind(counts[sequence], shares)
        counts[sequence][trace] += 1
        yield trace, sequence
        number += 1


def most_behind(counts: Sequence[int], shares: Sequence[float]) -> int:
    """Who has the least of what is due; of equals the first."""
    if len(counts) == 1:
        return 0
    due = sum(counts) + 1
    whole = sum(shares)
    return max(range(len(counts)), key=lambda i: (shares[i] / whole * due - counts[i], -i))
