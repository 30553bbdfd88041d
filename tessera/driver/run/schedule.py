"""Assigns a trace and a sequence to each request of a run.

In: shares of traces and replicas, and the number of sequences of each replica. Out: one `Turn` per
request, the same for the same input. Replicas and traces get their shares as evenly as whole
requests allow; every sequence sees its traces in the same order, and the sequences of a replica
take turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Turn:
    """A request: its number, trace and sequence, and its index among the requests of its trace."""

    request: int
    trace: int
    sequence: int
    turn: int


def schedule(
    requests: int,
    trace_shares: Sequence[float],
    replicas: Sequence[tuple[float, int]],
    own_shares: Sequence[Sequence[float]] = (),
) -> tuple[Turn, ...]:
    """One turn per request; a replica is given as its share and its number of sequences.

    `own_shares` has how often the requests of each replica are of each trace, if not of all alike.
    """
    served = [0] * len(replicas)
    starts = [sum(sequences for _, sequences in replicas[:index]) for index in range(len(replicas))]
    in_sequence: dict[int, list[int]] = {}
    of_trace = [0] * len(trace_shares)
    turns = []
    for request in range(requests):
        replica = most_behind(served, [share for share, _ in replicas])
        sequence = starts[replica] + served[replica] % replicas[replica][1]
        served[replica] += 1
        counts = in_sequence.setdefault(sequence, [0] * len(trace_shares))
        trace = most_behind(counts, own_shares[replica] if own_shares else trace_shares)
        counts[trace] += 1
        turns.append(Turn(request, trace, sequence, of_trace[trace]))
        of_trace[trace] += 1
    return tuple(turns)


def first_sequences(turns: Sequence[Turn]) -> frozenset[int]:
    """The sequence, for each trace, of the first request that is also the first of its sequence."""
    begun: set[int] = set()
    sequence_of: dict[int, int] = {}
    for turn in turns:
        if turn.sequence not in begun:
            begun.add(turn.sequence)
            sequence_of.setdefault(turn.trace, turn.sequence)
    return frozenset(sequence_of.values())


def most_behind(counts: Sequence[int], shares: Sequence[float]) -> int:
    """The index that is furthest behind its share; the first of equal ones."""
    whole = sum(shares)
    due = sum(counts) + 1
    return max(range(len(counts)), key=lambda i: (shares[i] / whole * due - counts[i], -i))
