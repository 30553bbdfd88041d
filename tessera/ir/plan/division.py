"""How a plan divides the steps of a trace: parts of launches, and twins.

In: nothing. Out: frozen records that `planning` makes, `ir.plan.print_plan` prints and
`frontend.plan.tsp` reads; `passes.division` makes the divided program of a trace and a `Division`.

A *part* is a range of the CTAs of a launch along one axis of its grid, or of the operands of a
library call along one of its dimensions. *Twins* are a step that several devices do, each for
itself. Both replace their step, in its place, so the steps of the divided program count on.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A step in parts: part i goes from `edges[i]` to `edges[i + 1]`, the last edge is the extent.

    `step` counts the work of the trace as it was read. `axis` is `x`, `y` or `z` of a grid, `bytes`
    of a memset or memcpy, or a dimension by which the operator of a library call can be cut
    (`columns`, `rows`, `heads`). `arch` is set where the code for an architecture has a grid of its
    own: that cut has as many parts, and each writes the same bytes.
    """

    step: int
    axis: str
    edges: tuple[int, ...]
    arch: str = ""

    @property
    def count(self) -> int:
        """The number of parts."""
        return len(self.edges) - 1


@dataclass(frozen=True, slots=True)
class Twin:
    """A step that `count` devices do."""

    step: int
    count: int


@dataclass(frozen=True, slots=True)
class Division:
    """The steps of a trace that are cut or have twins; the others stay whole. In order of steps."""

    cuts: tuple[Cut, ...] = ()
    twins: tuple[Twin, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.cuts or self.twins)

    def count(self, step: int) -> int:
        """The number of steps that take the place of a step."""
        mine = (cut.count for cut in self.cuts if cut.step == step)
        return next(mine, next((twin.count for twin in self.twins if twin.step == step), 1))


WHOLE = Division()
"""No step is divided."""
