"""How a plan divides the steps of a trace: parts of launches, and twins.

In: nothing. Out: frozen records that `planning` makes, `ir.plan.print_plan` prints and
`frontend.plan.tsp` reads; `passes.division` makes the divided program of a trace and a `Division`.

A *part* is a range of the CTAs of a launch along one axis of its grid, or of the operands of a
library call along one of its dimensions. *Twins* are a step that several devices do, each for
itself. Both replace their step, in its place, so the steps of the divided program count on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

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
    """The steps of a trace that are cut or have twins; the others stay whole.

    Both are in order of steps; of one step, the cut without an architecture comes first.
    """

    cuts: tuple[Cut, ...] = ()
    twins: tuple[Twin, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.cuts or self.twins)

    def counts(self) -> dict[int, int]:
        """The number of steps that take the place of each step that is divided."""
        twins = {twin.step: twin.count for twin in self.twins}
        return twins | {cut.step: cut.count for cut in reversed(self.cuts)}

    def steps_of(self, divided: int) -> int:
        """The number of steps of the trace, if the divided program has `divided`."""
        return divided - sum(count - 1 for count in self.counts().values())


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
    counts = division.counts()
    step = 0
    for origin in range(steps):
        count = counts.get(origin, 1)
        for index in range(count):
            mine = cuts.get(origin, ())
            yield StepPart(step=step, origin=origin, index=index, count=count, cuts=mine)
            step += 1


def division_flaws(division: Division, steps: int) -> Iterator[tuple[Cut | Twin, str]]:
    """What is wrong with a division of any trace of so many steps, with the record at fault."""
    twins = Counter(twin.step for twin in division.twins)
    cuts = Counter((cut.step, cut.arch) for cut in division.cuts)
    first = {cut.step: cut for cut in division.cuts if not cut.arch}
    for cut in division.cuts:
        if not 0 <= cut.step < steps:
            yield cut, f"the trace has {steps} steps"
        if cuts[cut.step, cut.arch] > 1:
            yield cut, "it is cut twice" + (f" for `{cut.arch}`" if cut.arch else "")
        if cut.step not in first:
            yield cut, f"it is cut for `{cut.arch}` and not for the launch itself"
        elif cut.count != first[cut.step].count:
            yield cut, f"{cut.count} parts for `{cut.arch}`, and {first[cut.step].count} otherwise"
        if cut.step in twins:
            yield cut, "it is cut and has twins"
        yield from ((cut, why) for why in _edge_flaws(cut))
    for twin in division.twins:
        if not 0 <= twin.step < steps:
            yield twin, f"the trace has {steps} steps"
        if twins[twin.step] > 1:
            yield twin, "it has twins twice"
        if twin.count < 2:
            yield twin, f"twins are at least 2 steps, not {twin.count}"
    for before, cut in pairwise(division.cuts):
        if (before.step, before.arch) > (cut.step, cut.arch):
            yield cut, "cuts are in order of steps and architectures"
    for earlier, twin in pairwise(division.twins):
        if earlier.step > twin.step:
            yield twin, "twins are in order of steps"


def _edge_flaws(cut: Cut) -> Iterator[str]:
    if cut.count < 2:
        yield "a cut makes at least two parts"
    elif cut.edges[0]:
        yield f"its first part begins at {cut.edges[0]}, not at 0"
    for edge, after in pairwise(cut.edges):
        if edge >= after:
            yield f"edge {after} of `{cut.axis}` comes after edge {edge}"
