"""Operations that the processes of a run give to the streams of their devices, and their waits.

In: nothing. Out: a record that a backend makes and `passes.checker.circles` judges.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StreamOperation:
    """An operation on a stream of a process: it waits for something, or sets it.

    Names hold for one request: what one request sets, no other waits for.
    """

    stream: str
    waits: str = ""
    sets: str = ""
