"""Progress of a pipeline: the one record that every pipeline reports.

In: stages and counts. Out: `StageProgress` records, to a listener. A pipeline that is called
without a listener tells nobody, and takes no time for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StageProgress:
    """What is done now: `done` of `total` things that are called `unit`; `note` says more."""

    stage: str
    done: int = 0
    total: int | None = None
    unit: str = ""
    note: str = ""


OnProgress = Callable[[StageProgress], None]
Count = Callable[[int, int], None]


def counter(on_progress: OnProgress | None, stage: str, unit: str) -> Count:
    """What hears how many units of a stage are done, and of how many."""

    def count(done: int, total: int) -> None:
        if on_progress is not None:
            on_progress(StageProgress(stage, done, total, unit))

    return count
