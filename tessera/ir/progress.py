"""Progress of a pipeline: the one record that every pipeline reports.

In: stages and counts. Out: `StageProgress` records, passed to a listener. A pipeline without a
listener reports nothing, at no cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StageProgress:
    """The state of a stage: `done` of `total` units named `unit`; `note` gives details."""

    stage: str
    done: int = 0
    total: int | None = None
    unit: str = ""
    note: str = ""


OnProgress = Callable[[StageProgress], None]
Count = Callable[[int, int], None]


def counter(on_progress: OnProgress | None, stage: str, unit: str) -> Count:
    """A function that reports the done and total units of a stage to the listener."""

    def count(done: int, total: int) -> None:
        if on_progress is not None:
            on_progress(StageProgress(stage, done, total, unit))

    return count
