"""What the processes of a run hand over to their devices, as far as anything waits for it.

In: nothing. Out: a record that a backend makes and `passes.checker.handover` judges.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HandedOver:
    """An operation on a stream of a process: it waits for something, or sets it.

    Names hold for one request: what one request sets, no other waits for.
    """

    stream: str
    waits: str = ""
    sets: str = ""
