"""Hand-overs under way: the states of sequences on their way from one batch to another.

In: moves for which the scheduler has reserved rows. Out: their ends, one call each. States are
taken out of a batch between two of its steps, and put into the other one between two of that one's
steps; other rows of both go on in the meantime. `holds` says for which batches a gap is awaited or
used: they begin no step until it is over. Threads that move bytes touch nothing but the runtimes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from tessera.driver.run.arrays import TypedArray
from tessera.driver.serve.batches import RowMove, Sizes
from tessera.driver.serve.homes import BatchGroup, Homes

OnEnd = Callable[["Carried", "BaseException | None"], None]


@dataclass(slots=True, eq=False)
class Carried:
    """A move under way: which batch it needs now, and which it has had."""

    move: RowMove
    rows: Sequence[tuple[int, int]]
    groups: tuple[BatchGroup, BatchGroup]
    starts: tuple[int, int]
    begun_ns: int
    at: int
    states: Mapping[str, TypedArray] = field(default_factory=dict)
    is_moving: bool = False
    bytes: int = 0

    @property
    def broken(self) -> BatchGroup | None:
        """The group in which it stands, unless that was started again since it began."""
        side = int(self.at == self.move.target)
        group = self.groups[side]
        return group if group.starts == self.starts[side] else None


class HandOvers:
    """All moves under way."""

    def __init__(self, homes: Homes, tell: Callable[[Callable[[], None]], None], on_end: OnEnd):
        """`tell` has something called in the engine's thread; `on_end` hears of every end there."""
        self._homes = homes
        self._tell = tell
        self._on_end = on_end
        self._carried: list[Carried] = []

    def __len__(self) -> int:
        return len(self._carried)

    def begin(self, moves: Iterable[RowMove], sizes: Sizes) -> None:
        """Take up moves; `go_on` begins what can begin."""
        for move in moves:
            groups = self._homes.group(move.source), self._homes.group(move.target)
            self._carried.append(
                Carried(
                    move,
                    _row_pairs(move, sizes),
                    groups,
                    (groups[0].starts, groups[1].starts),
                    time.monotonic_ns(),
                    move.source,
                )
            )

    def holds(self, batch: int) -> bool:
        """Whether a batch must not begin another step yet."""
        return any(carried.at == batch for carried in self._carried)

    def go_on(self, is_busy: Callable[[int], bool]) -> None:
        """Let every move go on whose batch has no step under way."""
        moving = {carried.at for carried in self._carried if carried.is_moving}
        for carried in self._carried:
            if not (carried.is_moving or carried.at in moving or is_busy(carried.at)):
                carried.is_moving = True
                moving.add(carried.at)
                threading.Thread(
                    target=self._move, args=(carried,), name="tessera-hand-over", daemon=True
                ).start()

    def _move(self, carried: Carried) -> None:
        runtime, sequence = self._homes.place(carried.at)
        try:
            if carried.at == carried.move.source:
                states = runtime.states(sequence)
                rows = [row for row, _ in carried.rows]
                carried.states = {name: state[rows] for name, state in states.items()}
            else:
                for number, (_, row) in enumerate(carried.rows):
                    own = {name: state[number] for name, state in carried.states.items()}
                    runtime.set_states(own, sequence, rows=row)
        except BaseException as problem:
            self._tell(partial(self._ended, carried, problem))
        else:
            self._tell(partial(self._ended, carried, None))

    def _ended(self, carried: Carried, problem: BaseException | None) -> None:
        carried.is_moving = False
        move = carried.move
        is_over = move.job.dropped or move.source_is_lost or move.target_is_lost
        if problem is None and carried.at == move.source and not is_over:
            carried.at = move.target
            carried.bytes = sum(np.asarray(state).nbytes for state in carried.states.values())
            return
        self._carried.remove(carried)
        self._on_end(carried, problem)


def _row_pairs(move: RowMove, sizes: Sizes) -> list[tuple[int, int]]:
    """The rows of the states that move, and where to: of the first axis, or blocks of a cache."""
    if not sizes.blocks:
        return [(move.job.row, move.row)]
    used = -(-move.tokens // sizes.block)
    return list(zip(move.job.blocks[:used], move.blocks[:used], strict=True))
