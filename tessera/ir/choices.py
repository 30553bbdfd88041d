"""The choices that users make and files record, each an enum: one place, one spelling.

Members are strings, so they print, compare and serialise as the words that users type. Nothing
heavy is imported here: the command line takes its choices from this module. The names of backends
are in `backend.known_backends`.
"""

from __future__ import annotations

from enum import StrEnum


class Objective(StrEnum):
    """What a plan is best for."""

    THROUGHPUT = "throughput"
    LATENCY = "latency"
    COST = "cost"
    PAIR = "latency+throughput"

    @property
    def is_single(self) -> bool:
        """Whether one placement serves it; `PAIR` has one for each of two policies."""
        return self is not Objective.PAIR


SINGLE_OBJECTIVES = tuple(objective for objective in Objective if objective.is_single)
POLICIES = (Objective.LATENCY, Objective.THROUGHPUT)
ADAPTIVE = "adaptive"
"""In place of a policy: all of them are ready, and requests are given one as they come."""


class Strategy(StrEnum):
    """A way to place steps: the search, or a coarse baseline."""

    SINGLE = "single"
    DP = "dp"
    LAYERS = "layers"
    PHASE = "phase"
    ATTENTION = "attention"
    KERNEL = "kernel"


class Ending(StrEnum):
    """Why a search stopped."""

    GAP = "gap"
    NODES = "nodes"
    SEARCH = "search"
    CLOCK = "clock"
    INTERRUPTED = "interrupted"
    GIVEN = "given"


CUT_SHORT = (Ending.CLOCK, Ending.INTERRUPTED)
"""The search ended for a reason of the user's, not its own."""


class Route(StrEnum):
    """How a model is captured."""

    AUTO = "auto"
    PTX = "ptx"
    LIBRARY = "library"
    EAGER = "eager"
    AS_IS = "as-is"
