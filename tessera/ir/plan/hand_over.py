"""Hand-overs: the states of sequences that go from one replica to another between two steps.

In: nothing. Out: frozen records that `planning.lower.hand_over` makes, `passes.checker` proves and
the backends run.

The states of a replica have a first axis of rows, one for each sequence of a lane, or of blocks, of
which a sequence has some. A hand-over reads the bytes of some rows (or blocks) of a lane of the
source and writes them into rows of a lane of the target. The programs have a `Send` on the out
queue of the device that a transfer leaves, and a `Receive` on the in queue of the device that it
reaches; both may be one device, if both replicas are on it.

A hand-over takes its turn in both lanes. It begins when every request before it is done in either.
Later requests of the source begin when its last byte has been read, those of the target when it is
done. Until then the sequences belong to the source, from then on to the target, whose rows nothing
else has had since before the first byte left. If a hand-over fails, what it has written counts for
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from tessera.ir.plan.launch_program import DeviceProgram, TransferId

MovedSpan = tuple[int, int, int]
"""The first byte of a state that is read, the first that is written, and how many."""


@dataclass(frozen=True, slots=True)
class RowPlace:
    """Where the states of a sequence are in a lane: a row, or with `blocks` these, in order."""

    row: int = 0
    blocks: tuple[int, ...] = ()

    @property
    def rows(self) -> tuple[int, ...]:
        """The places along the first axis."""
        return self.blocks or (self.row,)


@dataclass(frozen=True, slots=True)
class MovedSequence:
    """A sequence that goes from one place to another, with as many tokens; None: its whole rows."""

    source: RowPlace
    target: RowPlace
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class StatePortion:
    """What a transfer carries of one state."""

    state: str
    spans: tuple[MovedSpan, ...]

    @property
    def size(self) -> int:
        """The number of bytes."""
        return sum(size for _, _, size in self.spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTransfer:
    """Bytes of states that go together from a device of the source to one of the target."""

    id: TransferId
    source: str
    target: str
    portions: tuple[StatePortion, ...]

    @property
    def size(self) -> int:
        """The number of bytes that move."""
        return sum(portion.size for portion in self.portions)

    def taken(self) -> list[tuple[str, list[tuple[int, int]]]]:
        """The byte ranges of each state that are read, in order."""
        return [(own.state, [(a, a + n) for a, _, n in own.spans]) for own in self.portions]

    def put(self) -> list[tuple[str, list[tuple[int, int]]]]:
        """The byte ranges of each state that are written, in the same order."""
        return [(own.state, [(b, b + n) for _, b, n in own.spans]) for own in self.portions]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """Sequences from one replica to another, both by their numbers in the plan."""

    source: int
    target: int
    transfers: tuple[StateTransfer, ...]
    programs: tuple[DeviceProgram, ...]

    @property
    def size(self) -> int:
        """The number of bytes that move."""
        return sum(transfer.size for transfer in self.transfers)
