"""How a plan divides the steps of a trace: parts of launches, and twins.

In: nothing. Out: frozen records that `planning` makes, `ir.plan.print_plan` prints and
`frontend.plan.tsp` reads; `passes.division` makes the divided program of a trace and a `Division`.

A *part* is a range of the CTAs of a launch along one axis of its grid, or of the operands of a
library call along one of its dimensions. *Twins* are a step that several devices do, each for
itself. Both replace their step, in its place, so the steps of the divided program count on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tessera.wording import Wording


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


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPart:
    """Where a step of the divided program comes from: number `index` of the `count` steps that
    take the place of step `origin` of the trace. `cuts` has one cut, and those for architectures
    with a grid of their own; twins and whole steps have none."""

    step: int
    origin: int
    index: int = 0
    count: int = 1
    cuts: tuple[Cut, ...] = ()

    @property
    def is_twin(self) -> bool:
        """Whether other devices do the same step."""
        return self.count > 1 and not self.cuts

    def range_on(self, arch: str = "") -> tuple[str, int, int, int] | None:
        """The axis, first, end and extent of a part in the code of an architecture."""
        if not self.cuts:
            return None
        cut = next((cut for cut in self.cuts if arch and cut.arch == arch), self.cuts[0])
        return cut.axis, cut.edges[self.index], cut.edges[self.index + 1], cut.edges[-1]

    def words(self, arch: str = "") -> Wording:
        """What stands behind the name of the step: ` [x 0:96 of 128]`, nothing for a whole one."""
        if bounds := self.range_on(arch):
            axis, first, end, extent = bounds
            return Wording(f" [{axis} {first}:{end} of {extent}]")
        return Wording(f" [twin {self.index + 1} of {self.count}]" if self.is_twin else "")


def parts_of(steps: int, division: Division) -> tuple[StepPart, ...]:
    """The steps of the divided program of a trace with `steps` steps, in order."""
    return tuple(_walk(steps, division))


def _walk(steps: int, division: Division) -> Iterator[StepPart]:
    cuts: dict[int, tuple[Cut, ...]] = {}
    for cut in division.cuts:
        cuts[cut.step] = (*cuts.get(cut.step, ()), cut)
    counts = {twin.step: twin.count for twin in division.twins}
    counts |= {step: mine[0].count for step, mine in cuts.items()}
    step = 0
    for origin in range(steps):
        count = counts.get(origin, 1)
        for index in range(count):
            mine = cuts.get(origin, ())
            yield StepPart(step=step, origin=origin, index=index, count=count, cuts=mine)
            step += 1
