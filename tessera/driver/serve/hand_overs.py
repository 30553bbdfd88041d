"""Hand-overs under way: the states of sequences on their way from one batch to another.

In: moves whose turn it is: neither of their batches has a step under way, and neither begins one
before the move has ended. Out: the end of each, in the engine's thread. Within a runtime states go
from device to device (`Runtime.move_rows`); to the runtime of another plan they go through arrays.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

import numpy as np

from tessera.diagnostics import TesseraError
from tessera.driver.run.moves import HandOverFault, Moved
from tessera.driver.serve.batches import Sizes
from tessera.driver.serve.homes import BatchGroup, Homes
from tessera.driver.serve.jobs import RowMove


@dataclass(slots=True, eq=False)
class Carried:
    """Moves between the same batches, under way together, and when their replicas were started."""

    moves: Sequence[RowMove]
    groups: tuple[BatchGroup, BatchGroup]
    starts: tuple[int, int]

    def broken(self, problem: BaseException) -> list[BatchGroup]:
        """The groups that have to be started again: that of the replica that failed, if known.

        Groups that were started again since the moves began are as they should be.
        """
        failed = problem.replica if isinstance(problem, HandOverFault) else None
        known = [group for group in self.groups if failed in group.replicas]
        return [
            group
            for group, started in zip(self.groups, self.starts, strict=True)
            if group.starts == started and (group in known or not known)
        ]


OnEnd = Callable[[Carried, Moved | None, BaseException | None], None]


class HandOvers:
    """Moves states between the homes of batches."""

    def __init__(
        self, homes: Homes, tell: Callable[[Callable[[], None]], None], on_end: OnEnd
    ) -> None:
        """`tell` has something called in the engine's thread; `on_end` hears of every end there."""
        self._homes = homes
        self._tell = tell
        self._on_end = on_end

    def begin(self, moves: Sequence[RowMove], sizes: Sizes) -> None:
        """Begin moves between the same two batches."""
        source, target = moves[0].source, moves[0].target
        groups = self._homes.group(source), self._homes.group(target)
        carried = Carried(moves, groups, (groups[0].starts, groups[1].starts))
        (here, own), (there, other) = self._homes.place(source), self._homes.place(target)
        pairs = [_places(move, sizes) for move in moves]
        try:
            if here is there:
                counts, axis = [move.tokens for move in moves], sizes.token_axis
                handle = here.move_rows(own, other, pairs, tokens=counts, token_axis=axis)
                handle.add_done_callback(partial(self._hear, carried))
                return
        except TesseraError as problem:
            self._tell(partial(self._on_end, carried, None, problem))
            return
        threading.Thread(
            target=self._copy, args=(carried, pairs), name="tessera-hand-over", daemon=True
        ).start()

    def _hear(self, carried: Carried, handle: Future[Moved]) -> None:
        """Called by the thread that has moved the bytes."""
        problem = handle.exception()
        moved = handle.result() if problem is None else None
        self._tell(partial(self._on_end, carried, moved, problem))

    def _copy(self, carried: Carried, pairs: Sequence[tuple[Rows, Rows]]) -> None:
        """Move rows to the runtime of another plan."""
        begun_ns, moved_bytes = time.monotonic_ns(), 0
        source, target = carried.moves[0].source, carried.moves[0].target
        (here, own), (there, other) = self._homes.place(source), self._homes.place(target)
        try:
            states = here.states(own)
            for rows in pairs:
                for row, put in zip(*map(_listed, rows), strict=True):
                    content = {name: state[row] for name, state in states.items()}
                    moved_bytes += sum(np.asarray(part).nbytes for part in content.values())
                    there.set_states(content, other, rows=put)
        except BaseException as problem:
            self._tell(partial(self._on_end, carried, None, problem))
        else:
            moved = Moved(bytes=moved_bytes, started_ns=begun_ns, ended_ns=time.monotonic_ns())
            self._tell(partial(self._on_end, carried, moved, None))


Rows = int | Sequence[int]
"""A row of the states, or blocks of a cache."""


def _listed(rows: Rows) -> Sequence[int]:
    return (rows,) if isinstance(rows, int) else rows


def _places(move: RowMove, sizes: Sizes) -> tuple[Rows, Rows]:
    """Where the states are, and where they go: rows of the first axis, or blocks in use."""
    if not sizes.blocks:
        return move.job.row, move.row
    used = -(-move.tokens // sizes.block)
    return move.job.blocks[:used], move.blocks[:used]
