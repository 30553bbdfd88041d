"""Replicas that a plan with roles may have, and how sequences go through a mix.

In: nothing. Out: frozen records that `planning.roles` makes and candidates carry. Traces are
numbers in the mix.
"""

from __future__ import annotations

from dataclasses import dataclass

from tessera.planning.problem.plan_problem import Planning
from tessera.planning.problem.problem import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class RolePart:
    """A possible replica: the traces that it serves, and a device for each of their tasks.

    `planning` is that of these traces. `homes` has the device of each state that they touch.
    """

    traces: tuple[int, ...]
    planning: Planning
    placement: Placement
    homes: tuple[tuple[str, int], ...] = ()

    def steps_of(self, trace: int) -> Placement:
        """The device of each step of a trace that the part serves."""
        return self.planning.expand_part(self.placement, self.traces.index(trace))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequences:
    """How sequences go through a mix.

    `begun` is the number of sequences that a request of each trace begins, `carried` the number
    that it goes on with; both are 0 for a trace that shares no states with others. `states` has the
    bytes of one sequence that a trace which goes on may read, by state: they are handed over.
    """

    begun: tuple[float, ...]
    carried: tuple[float, ...]
    states: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleMix:
    """The parts among which the requests of a mix are shared, and its sequences."""

    parts: tuple[RolePart, ...]
    sequences: Sequences
