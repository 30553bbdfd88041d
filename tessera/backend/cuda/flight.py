"""A request under way on GPUs.

In: nothing. Out: the record that `backend.cuda.backend` keeps of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tessera.backend.cuda.pace import Pace
from tessera.backend.cuda.replica import ReadyTrace
from tessera.backend.service import Request


@dataclass(slots=True)
class Flight:
    """A request under way."""

    request: Request
    ready: ReadyTrace
    pace: Pace
    begun_ns: int
    looked_ns: int = 0
