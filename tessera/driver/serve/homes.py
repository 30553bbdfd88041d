"""Where the batches of an engine run (runtime and sequence), and how groups are started again.

In: a runtime, later perhaps another one. Out: a home for every batch. Batches are numbered across
all runtimes that an engine has had. The sequences of a runtime form groups that fault together and
are started again together, in a thread of their own, while all others go on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tessera.driver.run.runtime import Runtime
from tessera.driver.serve.drift import StepMonitor
from tessera.driver.serve.step_clocks import batches_of

MOST_RESTARTS = 3
"""Consecutive failures to start a group again before it is left out."""


@dataclass(slots=True, eq=False)
class BatchGroup:
    """Batches that fault together. `starts` counts how often they were restarted.

    `replicas` are the numbers of their replicas in the runtime.
    """

    runtime: Runtime
    batches: tuple[int, ...]
    first: int
    replicas: frozenset[int]
    starts: int = 0
    in_row: int = 0
    is_open: bool = True
    is_retired: bool = False
    monitor: StepMonitor | None = None


@dataclass(slots=True)
class Homes:
    """The homes of all batches."""

    groups: list[BatchGroup] = field(default_factory=list)
    _of: list[BatchGroup] = field(default_factory=list)
    _retiring: list[tuple[Runtime, tuple[int, ...], threading.Event]] = field(default_factory=list)

    def add(self, runtime: Runtime, monitor: StepMonitor | None = None) -> None:
        """Add batches for the sequences of a runtime, numbered after the existing ones."""
        first = len(self._of)
        by_sequence: dict[int, BatchGroup] = {}
        places = batches_of(runtime.replicas)
        for sequences in runtime.groups:
            batches = tuple(first + sequence for sequence in sequences)
            replicas = frozenset(places[sequence][0] for sequence in sequences)
            group = BatchGroup(runtime, batches, first, replicas, monitor=monitor)
            self.groups.append(group)
            by_sequence.update(dict.fromkeys(sequences, group))
        self._of += [by_sequence[sequence] for sequence in range(runtime.sequences)]

    def group(self, batch: int) -> BatchGroup:
        """The group of batches that fault together with this one."""
        return self._of[batch]

    def place(self, batch: int) -> tuple[Runtime, int]:
        """The runtime of a batch, and its sequence there."""
        group = self._of[batch]
        return group.runtime, batch - group.first

    def runtimes(self) -> Iterator[Runtime]:
        """All runtimes in use."""
        seen: list[Runtime] = []
        for group in self.groups:
            if group.runtime not in seen:
                seen.append(group.runtime)
                yield group.runtime

    @property
    def is_retiring(self) -> bool:
        """Whether a runtime waits for its last batches."""
        return bool(self._retiring)

    def retire_all(self, over: threading.Event) -> None:
        """Let no existing batch begin another step; `over` is set once their runtime is closed."""
        leaving = [group for group in self.groups if not group.is_retired]
        for group in leaving:
            group.is_retired = True
        if leaving:
            batches = tuple(batch for group in leaving for batch in group.batches)
            self._retiring.append((leaving[-1].runtime, batches, over))

    def close_retired(self, is_used: Callable[[int], bool]) -> None:
        """Close retired runtimes with no batch in use, each in a thread of its own."""
        for entry in list(self._retiring):
            runtime, batches, over = entry
            if not any(map(is_used, batches)):
                self._retiring.remove(entry)
                self._close(runtime, over)

    def give_up_retiring(self) -> None:
        """Wake threads that wait for retired runtimes: nothing will close these."""
        for _, _, over in self._retiring:
            over.set()

    def _close(self, runtime: Runtime, over: threading.Event) -> None:
        self.groups = [group for group in self.groups if group.runtime is not runtime]

        def close() -> None:
            try:
                runtime.close()
            finally:
                over.set()

        threading.Thread(target=close, name="tessera-retire", daemon=True).start()

    def restart(self, group: BatchGroup, on_done: Callable[[BaseException | None], None]) -> None:
        """Start a group again, in a thread of its own."""
        group.starts += 1
        group.in_row += 1
        group.is_open = False

        def start() -> None:
            try:
                group.runtime.restart(group.batches[0] - group.first)
            except BaseException as problem:
                on_done(problem)
            else:
                on_done(None)

        threading.Thread(target=start, name="tessera-restart", daemon=True).start()
