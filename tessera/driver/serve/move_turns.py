"""When hand-overs take their turn: between two steps of both batches.

In: moves in the order in which they were reserved. Out: which of them begin now, and which batches
must not begin a step. A hand-over needs both of its batches without a step at the same moment. The
batch that a job leaves waits for that as soon as its step has ended; the batch that the job goes to
goes on until then, so that answers wait for no prompt. Moves between the same two batches go
together.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera.driver.serve.batches import Batch
from tessera.driver.serve.jobs import RowMove


class MoveTurns:
    """The moves that have not ended."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self._batches = batches
        self.moves: list[RowMove] = []

    def add(self, move: RowMove) -> None:
        """Let a move wait for its turn."""
        self.moves.append(move)

    def remove(self, move: RowMove) -> None:
        """Note that a move has ended."""
        self.moves.remove(move)

    def holds(self, batch: int) -> bool:
        """Whether a batch must not begin another step yet."""
        return any(
            batch == move.source
            or (batch == move.target and (move.is_begun or self._is_free(move.source)))
            for move in self.moves
        )

    def _is_free(self, batch: int) -> bool:
        return self._batches[batch].at_work is None

    def begin(self) -> list[list[RowMove]]:
        """The moves whose turn it is, those between the same batches together."""
        taken = {n for move in self.moves if move.is_begun for n in (move.source, move.target)}
        begun: dict[tuple[int, int], list[RowMove]] = {}
        for move in self.moves:
            pair = move.source, move.target
            if move.is_begun or not (pair in begun or taken.isdisjoint(pair)):
                continue
            if all(map(self._is_free, pair)):
                taken.update(pair)
                move.is_begun = True
                begun.setdefault(pair, []).append(move)
        return list(begun.values())
