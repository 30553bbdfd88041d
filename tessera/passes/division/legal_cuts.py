"""Which steps can be cut into parts, along which axis and where, and why not.

In: a program. Out: `LegalCuts`: for each step the axes along which it can be cut, or the reasons.
`why_not` judges a concrete cut, `for_every_arch` adds the cuts of architectures with other grids.

A cut is legal if its parts do the same on several devices as the whole step on one. For a launch,
the regions of its ranges of CTAs must show that no two parts may write the same byte, and that no
part reads a byte that another may write. The kernel must not tell its CTAs apart, or join them, in
any other way: no atomics on memory, no waiting, no barrier over the grid, no register of the
machine; nothing that is pinned. Clusters stay whole. The parts for all architectures count
together, so part i writes the same bytes on each (`docs/developer/soundness.md`).

If a cut at each of several edges is legal, so is the cut at all of them: what a part may touch is
among what its side of an edge may touch. `LegalCuts` tries few edges: next to both ends, and a
half; all edges where there are few. So an axis that it names can be cut, but an edge of its
own choice is for `why_not`, which runs the ranges of that cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from tessera.diagnostics import Span
from tessera.ir.graph.access import AccessKind, NeedKind
from tessera.ir.plan.division import Cut
from tessera.ir.program import program as ir
from tessera.ir.ptx import syntax as ptx
from tessera.passes.base import Analysis, AnalysisManager, Facts
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.dependences.launch_scene import cluster_size
from tessera.passes.division.cut_calls import call_axes, call_cuts, why_not_axis
from tessera.passes.division.grid_cuts import AXES, GridCuts, falls, parts_of_launch
from tessera.passes.division.part_conflicts import Conflict, find_conflict
from tessera.passes.division.part_regions import PartRegions
from tessera.passes.kernel_facts.inline_calls import call_parts
from tessera.passes.kernel_facts.kernel_code import KernelCode
from tessera.passes.kernel_facts.operand_names import registers_in
from tessera.wording import Wording

BYTES = "bytes"
_ALL_EDGES = 3  # an axis with at most this many places for an edge is tried at all of them
_MOST_MULTIPLES = 8
_TOGETHER = {
    NeedKind.GRID: "its CTAs run at the same time, and may wait for each other",
    NeedKind.WAIT: "its threads wait for others",
    NeedKind.MACHINE: "what it does depends on where and when it runs",
    NeedKind.OUTPUT: "it prints",
}
_REGISTERS = ("%gridid", "%envreg", "%current_graph_exec", "%perctamemory")


@dataclass(frozen=True, slots=True)
class CutAxis:
    """An axis along which a step can be cut: edges are multiples of `multiple` below `extent`."""

    axis: str
    extent: int
    multiple: int


@dataclass(frozen=True, slots=True)
class RefusedAxis:
    """An axis along which a step cannot be cut, and why; no axis: none at all."""

    axis: str
    reason: Wording
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class StepCuts:
    """One step: the axes along which it can be cut, and why there are not more."""

    step: ir.LaunchId
    axes: tuple[CutAxis, ...] = ()
    refused: tuple[RefusedAxis, ...] = ()

    def axis(self, name: str) -> CutAxis | None:
        """The axis with a name, if the step can be cut along it."""
        return next((axis for axis in self.axes if axis.axis == name), None)


@dataclass(frozen=True, slots=True)
class LegalCuts:
    """The legal cuts of every step, in program order."""

    name: ClassVar[str] = "legal-cuts"
    needs: ClassVar[tuple[type[Analysis], ...]] = (AccessRegions, PartRegions)

    steps: tuple[StepCuts, ...]

    @classmethod
    def compute(cls, program: ir.Program, facts: Facts) -> Self:
        """Find the cuts of each step; launches that differ only in their buffers share them."""
        finder = CutFinder.of(facts, program)
        known: dict[int, StepCuts] = {}
        steps: list[StepCuts] = []
        for work, step in zip(program.work(), finder.steps, strict=True):
            mine = known.get(step.pattern) if step.pattern is not None else None
            if mine is None or not isinstance(work, ir.Launch):
                mine = finder.cuts(work)
            if step.pattern is not None:
                known[step.pattern] = mine
            steps.append(replace(mine, step=work.id))
        facts.get(PartRegions).keep()
        return cls(tuple(steps))


def cuts_of(manager: AnalysisManager, steps: Iterable[int]) -> tuple[StepCuts, ...]:
    """The legal cuts of some steps, without those of the others."""
    finder = CutFinder.of(manager, manager.program)
    return tuple(finder.cuts(finder.work[step]) for step in steps)


def why_not(manager: AnalysisManager, *cuts: Cut) -> Wording | None:
    """Why a step cannot be cut so, and the nearest legal cut; None if it can.

    `cuts` are those of one step: one, and one for each architecture with a grid of its own.
    """
    finder = CutFinder.of(manager, manager.program)
    reason = finder.why_not(cuts)
    if reason is None:
        return None
    nearest = _nearest(manager, finder, cuts[0])
    return reason if nearest is None else reason + f"; the nearest legal cut is {nearest}"


def for_every_arch(manager: AnalysisManager, cut: Cut) -> tuple[Cut, ...] | Wording:
    """A cut of a launch's own grid, and those of the architectures with another grid whose parts
    write the same bytes; or why there is none."""
    return CutFinder.of(manager, manager.program).for_every_arch(cut)


def cut_text(cut: Cut) -> str:
    """A cut as people write it: `x=0:96:128`."""
    return f"{cut.axis}=" + ":".join(map(str, cut.edges))


def _nearest(manager: AnalysisManager, finder: CutFinder, cut: Cut) -> str | None:
    """The legal cut with edges nearest to those of a cut, of as many parts."""
    known = manager.get(LegalCuts).steps
    if not 0 <= cut.step < len(known):
        return None
    axes = known[cut.step].axes
    axis = known[cut.step].axis(cut.axis) or next(iter(axes), None)
    if axis is None:
        return None
    scale = axis.extent / max(1, cut.edges[-1]) if axis.axis != cut.axis else 1
    wanted = (round(edge * scale / axis.multiple) * axis.multiple for edge in cut.edges[1:-1])
    inner = sorted({edge for edge in wanted if 0 < edge < axis.extent})
    inner = inner or [axis.multiple * max(1, axis.extent // axis.multiple // 2)]
    near = replace(cut, axis=axis.axis, edges=(0, *inner, axis.extent), arch="")
    made = finder.for_every_arch(near)
    if isinstance(made, Wording) or finder.why_not(made) is not None:
        return None
    return cut_text(near)


# --- one step ------------------------------------------------------------------------------


class CutFinder:
    """Finds and judges cuts of the steps of one program."""

    @classmethod
    def of(cls, facts: Facts | AnalysisManager, program: ir.Program) -> CutFinder:
        """The finder with what is known of a program."""
        return cls(program, facts.get(AccessRegions), facts.get(PartRegions))

    def __init__(self, program: ir.Program, whole: AccessRegions, parts: PartRegions) -> None:
        self.program = program
        self.steps = whole.steps
        self.parts = parts
        self.grids = GridCuts(program, parts)
        self.work = tuple(program.work())

    def cuts(self, work: ir.Work) -> StepCuts:
        """All axes of a step."""
        never = self.never(work)
        if never is not None:
            return StepCuts(work.id, (), (never,))
        if isinstance(work, ir.LibraryCall):
            return _call_cuts(work)
        axes: list[CutAxis] = []
        refused: list[RefusedAxis] = []
        for axis in self.axes(work):
            if axis.extent <= axis.multiple:
                if axis.axis not in AXES or axis.extent > 1:
                    whole = f"all {axis.extent} of `{axis.axis}` are one unit"
                    refused.append(RefusedAxis(axis.axis, Wording(whole)))
                continue
            legal = self._along(work, axis) if isinstance(work, ir.Launch) else axis
            if isinstance(legal, Wording):
                refused.append(RefusedAxis(axis.axis, legal))
            else:
                axes.append(legal)
        if not axes and not refused:
            refused.append(RefusedAxis("", Wording("it has one CTA")))
        return StepCuts(work.id, tuple(axes), tuple(refused))

    def axes(self, work: ir.Work) -> Iterator[CutAxis]:
        """The axes of a step with their extents, and units that no cut divides."""
        match work:
            case ir.Launch():
                cluster = self._cluster(work) or (1, 1, 1)
                yield from map(CutAxis, AXES, work.grid, cluster)
            case ir.Memset():
                yield CutAxis(BYTES, work.bytes, work.element_bytes)
            case ir.Memcpy():
                yield CutAxis(BYTES, work.bytes, self._element(work))
            case ir.LibraryCall():
                for axis in call_axes(work):
                    yield CutAxis(axis.axis, axis.extent, axis.multiple)

    def _element(self, copied: ir.Memcpy) -> int:
        """The size of the elements that a copy moves, if it moves whole ones."""
        ends = (
            self.program.buffers[copied.target.buffer],
            self.program.buffers[copied.source.buffer],
        )
        sizes = [end.dtype.bytes for end in ends if end.dtype is not None]
        size = max(sizes, default=1)
        return 1 if copied.bytes % size or copied.target.offset % size else size

    def _cluster(self, launch: ir.Launch) -> ir.Triple | None:
        """The size of clusters, the same for all architectures; None if it is not known."""
        sizes = {
            cluster_size(ir.for_arch(launch, code.arch), code.ptx.definitions()[launch.kernel])
            for code in self.program.modules[launch.module].variants
        }
        return sizes.pop() if len(sizes) == 1 else None

    def _along(self, launch: ir.Launch, axis: CutAxis) -> CutAxis | Wording:
        """The axis with the smallest multiple at which tried cuts are legal, or a reason."""
        first: Wording | None = None
        for multiple in _multiples(axis):
            edges = tried_edges(replace(axis, multiple=multiple))
            made = self.grids.for_every_arch(
                launch, Cut(step=launch.id, axis=axis.axis, edges=edges)
            )
            if isinstance(made, Wording):
                first = made if first is None else first
                continue
            conflict = self._conflict(launch, made)
            if conflict is None:
                return replace(axis, multiple=multiple)
            first = conflict.reason if first is None else first
            if conflict.is_everywhere:
                break
        assert first is not None
        return first

    def for_every_arch(self, cut: Cut) -> tuple[Cut, ...] | Wording:
        """The cut and those for other grids, or why there is none."""
        work = self.work[cut.step]
        return self.grids.for_every_arch(work, cut) if isinstance(work, ir.Launch) else (cut,)

    # --- concrete cuts -----------------------------------------------------------------------

    def why_not(self, cuts: Sequence[Cut]) -> Wording | None:
        """Why a step cannot be cut so."""
        step = cuts[0].step
        if not 0 <= step < len(self.work):
            return Wording(f"there is no step #{step}: the trace has {len(self.work)} steps")
        work = self.work[step]
        never = self.never(work)
        if never is not None:
            return never.reason
        for cut in cuts:
            wrong = self._misfit(work, cut)
            if wrong is not None:
                return wrong
        if not isinstance(work, ir.Launch):
            return None
        given = {cut.arch for cut in cuts}
        if "" not in given or len(given) < len(cuts) or len({cut.count for cut in cuts}) > 1:
            return Wording("it needs one cut per grid, all with as many parts")
        for arch in self.grids.own_grids(work):
            if arch not in given:
                return Wording(f"the code for `{arch}` has another grid, and no cut")
        conflict = self._conflict(work, cuts)
        return None if conflict is None else conflict.reason

    def _misfit(self, work: ir.Work, cut: Cut) -> Wording | None:
        """Why the edges of a cut do not fit its step."""
        if isinstance(work, ir.Launch) and cut.arch:
            work = ir.for_arch(work, cut.arch)
        axes = {axis.axis: axis for axis in self.axes(work)}
        axis = axes.get(cut.axis)
        if axis is None and isinstance(work, ir.LibraryCall):
            return why_not_axis(work, cut.axis)
        if axis is None:
            names = ", ".join(f"`{name}`" for name in axes) or "none"
            return Wording(f"it has no axis `{cut.axis}`: its axes are {names}")
        edges = cut.edges
        if len(edges) < 3 or edges[0] or edges[-1] != axis.extent or falls(edges):
            return Wording(
                f"edges of `{cut.axis}` go up from 0 to {axis.extent}, with one more between"
            )
        for edge in edges[1:-1]:
            if edge % axis.multiple:
                unit = "clusters of" if isinstance(work, ir.Launch) else "units of"
                text = f"edge {edge} divides {unit} {axis.multiple} along `{cut.axis}`"
                return Wording(text)
        return None

    def never(self, work: ir.Work) -> RefusedAxis | None:
        """Why a step cannot be cut along any axis, before any range is looked at."""
        step = self.steps[work.id]
        if step.pins:
            pin = step.pins[0]
            return RefusedAxis("", Wording(f"it is pinned: {pin.reason}"), pin.span)
        for access in step.accesses:
            if access.kind.writes and self._is_variable(access.buffer):
                name = self.program.buffers[access.buffer].name
                text = f"`{access.text}` writes the module variable `{name}`"
                return RefusedAxis("", Wording(text), access.span)
        if not isinstance(work, ir.Launch):
            return None
        if work.ctas is not None:
            return RefusedAxis("", Wording("it is a part already"), work.span)
        for need in step.needs:
            if need.kind in _TOGETHER:
                text = f"{_TOGETHER[need.kind]}: {need.reason}"
                return RefusedAxis("", Wording(text), need.span)
        for access in step.accesses:
            name = self.program.buffers[access.buffer].name
            if access.kind is AccessKind.ATOMIC:
                text = f"`{access.text}` makes its CTAs share bytes of `{name}`"
                return RefusedAxis("", Wording(text), access.span)
        if self._cluster(work) is None:
            return RefusedAxis("", Wording("the size of its clusters is not known"), work.span)
        return next((no for code in self.parts.codes(work) for no in _in_code(code)), None)

    def _is_variable(self, buffer: ir.BufferId) -> bool:
        return self.program.buffers[buffer].role is ir.Role.VARIABLE

    def _conflict(self, launch: ir.Launch, cuts: Sequence[Cut]) -> Conflict | None:
        """Where the parts of a cut are in each other's way."""
        parts = parts_of_launch(self.program, launch, cuts)
        return find_conflict(self.program, [self.parts.find(part) for part in parts])


def _call_cuts(call: ir.LibraryCall) -> StepCuts:
    """The axes of a library call, by the rule of its operator."""
    cuts = call_cuts(call)
    axes = tuple(CutAxis(axis.axis, axis.extent, axis.multiple) for axis in cuts.axes)
    refused = tuple(RefusedAxis(axis, reason, call.span) for axis, reason in cuts.refused)
    if not axes and not refused:
        refused = (RefusedAxis("", Wording(f"no rule cuts `{call.operator}`"), call.span),)
    return StepCuts(call.id, axes, refused)


def _in_code(code: KernelCode) -> Iterator[RefusedAxis]:
    """What a kernel's code does that parts could tell."""
    for index, instruction in enumerate(code.flat.instructions):
        if instruction.opcode.name == "clusterlaunchcontrol":
            reason = f"`{instruction.opcode}` takes CTAs of the grid away"
            yield RefusedAxis("", Wording(reason), code.span(index))
        if instruction.opcode.name == "call" and not _is_outside(code, instruction):
            reason = "it calls a function that is not followed: recursive, or through a register"
            yield RefusedAxis("", Wording(reason), code.span(index))
        for operand in instruction.operands:
            for name in registers_in(operand):
                if name.startswith(_REGISTERS):
                    reason = f"it reads `{name}`, which differs from launch to launch"
                    yield RefusedAxis("", Wording(reason), code.span(index))


def _is_outside(code: KernelCode, call: ptx.Instruction) -> bool:
    """Whether a call that was not inlined is of a function that the module only declares."""
    declared = {function.name for function in code.module.functions() if not function.has_body}
    callee = call_parts(call)[0]
    return callee in declared - code.module.definitions().keys()


def _multiples(axis: CutAxis) -> Iterator[int]:
    """What edges could be multiples of: units, pairs of them and so on, then divisors."""
    units = -(-axis.extent // axis.multiple)
    doubled = (1 << power for power in range(1, units.bit_length()))
    divisors = (size for size in range(3, min(units, 4096) // 2 + 1) if units % size == 0)
    sizes = dict.fromkeys([1, *sorted({*doubled, *divisors})])
    for size in [size for size in sizes if size < units][:_MOST_MULTIPLES]:
        yield size * axis.multiple


def tried_edges(axis: CutAxis) -> tuple[int, ...]:
    """The edges at which a launch is tried along an axis."""
    units = -(-axis.extent // axis.multiple)
    inner = set(range(1, units)) if units - 1 <= _ALL_EDGES else {1, units // 2, units - 1}
    return (0, *(axis.multiple * place for place in sorted(inner)), axis.extent)
