"""The ways in which two sides can do each step of a trace, and the bytes that each way touches.

In: a trace, its legal cuts, and a pricing of programs. Out: a `TraceWays`: `StepWay`s of each
step, with bytes as sets of grains, and the times of the parts.

Two sides stand for any number of devices: what two parts of a step read and write says which steps
can follow each other in parts without an exchange, whatever the shares are. The trace is divided in
two once per legal axis, all steps at the same share, and these programs are analysed and priced
like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tessera.ir.arrays import Ranges
from tessera.ir.graph.graph import GraphBuffer, KernelGraph, Node
from tessera.ir.plan.costs import Costs, Duration, StepCosts
from tessera.ir.plan.division import Cut, Division, parts_of
from tessera.ir.program.program import Program, Role
from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets import intervals
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.dependences.read_back import without_read_back
from tessera.passes.division.divide import divide
from tessera.passes.division.legal_cuts import CutAxis, CutFinder, LegalCuts
from tessera.passes.division.twins import TwinRules
from tessera.planning.lower.grains import BufferGrains, BufferUse, buffer_uses
from tessera.wording import Wording

Price = Callable[[Program, KernelGraph, Division], Costs]
Masks = tuple[tuple[int, int], ...]
"""Grains of buffers: pairs of a buffer and a set of its grains, as bits."""

_APART = 1.5
"""Halves that hold fewer bytes than this multiple of both together divide a buffer."""

_MOST_PIECES = 8192
_DENOMINATORS = (4, 2, 3, 5, 7)

Span = tuple[int, int]
"""The bytes of a buffer from one to another, exclusive."""

Times = tuple[float | None, ...]
"""Nanoseconds per device; None where a step cannot run."""


@dataclass(frozen=True, slots=True)
class Touch:
    """What one side needs and may write; `kept` are the bytes of weights and states that it holds.

    A device holds a buffer from the first to the last byte that it touches.
    """

    needs: Masks
    writes: Masks
    kept: tuple[tuple[int, Span], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWay:
    """How two sides do a step: a touch for each, None for a side that does nothing.

    With `axis`, the sides do parts of it. `first_share` is the share of the first side, and `ns`
    are the times of both parts on each device.
    """

    sides: tuple[Touch, Touch | None]
    axis: CutAxis | None = None
    first_share: float = 1.0
    ns: tuple[Times, Times] = ((), ())

    @property
    def is_twin(self) -> bool:
        """Whether both sides do the whole step."""
        return self.axis is None and self.sides[1] is not None


@dataclass(frozen=True, slots=True)
class StepWays:
    """The time of a whole step on each device, and the ways to do it; the whole is the first."""

    ns: Times
    ways: tuple[StepWay, ...]

    @property
    def can_be_cut(self) -> bool:
        """Whether some way has parts."""
        return any(way.axis is not None for way in self.ways)

    def least_ns(self, device: int) -> float | None:
        """The least time per share of the step that a device reaches, for the whole or a part."""
        times = [(self.ns[device], 1.0)]
        for way in self.ways:
            if way.axis is not None:
                shares = (way.first_share, 1.0 - way.first_share)
                times += [(ns[device], share) for ns, share in zip(way.ns, shares, strict=True)]
        return min((ns / share for ns, share in times if ns is not None), default=None)


@dataclass(frozen=True, slots=True)
class TraceWays:
    """All steps of a trace. `sizes` are the bytes of the grains of each buffer."""

    manager: AnalysisManager
    steps: tuple[StepWays, ...]
    sizes: Mapping[int, tuple[int, ...]]

    @property
    def program(self) -> Program:
        """The program of the trace."""
        return self.manager.program


def find_ways(
    manager: AnalysisManager, graph: KernelGraph, costs: Costs, price: Price
) -> TraceWays:
    """The ways to do each step of a trace whose steps cost `costs`."""
    program = manager.program
    legal = manager.get(LegalCuts).steps
    twins = TwinRules(program, graph)
    halved = [
        _halved(
            manager, [own.axes[number] if number < len(own.axes) else None for own in legal], price
        )
        for number in range(max((len(own.axes) for own in legal), default=0))
    ]
    whole = list(buffer_uses(graph))
    grains = _grains(
        program, (uses for half in halved for pair in half.values() for uses in pair.uses), whole
    )
    touch = _Touches(program, grains)
    steps = []
    for number, (uses, cost) in enumerate(zip(whole, costs.steps, strict=True)):
        alone = touch.of(uses)
        ways = [StepWay(sides=(alone, None))]
        if twins.why_not(number) is None:
            ways.append(StepWay(sides=(alone, alone)))
        for half in halved:
            if (pair := half.get(number)) is not None:
                first, second = map(touch.of, pair.uses)
                ways.append(
                    StepWay(
                        sides=(first, second),
                        axis=pair.axis,
                        first_share=pair.first_share,
                        ns=(_times(pair.costs[0]), _times(pair.costs[1])),
                    )
                )
        steps.append(StepWays(_times(cost), tuple(ways)))
    sizes = {b: tuple(map(intervals.size, own.bytes)) for b, own in grains.items()}
    return TraceWays(manager, tuple(steps), sizes)


Uses = dict[int, BufferUse]


@dataclass(frozen=True, slots=True, kw_only=True)
class _HalvedStep:
    """A step in two parts: what they touch and cost."""

    axis: CutAxis
    first_share: float
    uses: tuple[Uses, Uses]
    costs: tuple[StepCosts, StepCosts]


def _halved(
    manager: AnalysisManager, axes: list[CutAxis | None], price: Price
) -> dict[int, _HalvedStep]:
    """The steps that have an axis, in two parts along it."""
    finder = CutFinder.of(manager, manager.program)
    halves: dict[int, tuple[Cut, ...]] = {}
    pieces = _pieces(axis for axis in axes if axis is not None)
    for step, axis in enumerate(axes):
        if axis is not None and 0 < (edge := _edge(axis, pieces)) < axis.extent:
            cut = Cut(step=step, axis=axis.axis, edges=(0, edge, axis.extent))
            every = finder.for_every_arch(cut)
            if not isinstance(every, Wording):
                halves[step] = every
    if not halves:
        return {}
    program = manager.program
    cuts = tuple(cut for own in halves.values() for cut in own)
    division = Division(cuts)
    divided = divide(program, division)
    graph = _without_edges(AnalysisManager(divided, manager.store))
    costs = price(divided, graph, division)
    uses = list(buffer_uses(graph))
    halved: dict[int, _HalvedStep] = {}
    for part in parts_of(len(axes), division):
        axis, at = axes[part.origin], part.step
        if axis is None or part.origin not in halves or part.origin in halved:
            continue
        if not _is_scattered(uses[at]):
            share = halves[part.origin][0].edges[1] / axis.extent
            halved[part.origin] = _HalvedStep(
                axis=axis,
                first_share=share,
                uses=(uses[at], uses[at + 1]),
                costs=(costs.steps[at], costs.steps[at + 1]),
            )
    return halved


def _without_edges(manager: AnalysisManager) -> KernelGraph:
    """What the steps of a program touch; how they depend on each other does not matter here."""
    program = manager.program
    steps = without_read_back(program, manager.get(AccessRegions).steps)
    buffers = (
        GraphBuffer(id=b.id, name=b.name, bytes=b.bytes, role=b.role) for b in program.buffers
    )
    nodes = (
        Node(id=step.id, name=step.name, accesses=step.accesses, pins=step.pins, needs=step.needs)
        for step in steps
    )
    return KernelGraph(buffers=tuple(buffers), nodes=tuple(nodes), edges=())


def _is_scattered(uses: Uses) -> bool:
    """Whether a part touches so many pieces that no device would keep or send them."""
    return any(len(use.reads) + len(use.writes) > _MOST_PIECES for use in uses.values())


def _pieces(axes: Iterable[CutAxis]) -> int:
    """Into how many equal pieces most axes can be cut: the first part is one of them."""
    units = [axis.extent // axis.multiple for axis in axes]
    return max(_DENOMINATORS, key=lambda pieces: sum(count % pieces == 0 for count in units))


def _edge(axis: CutAxis, pieces: int) -> int:
    """The edge behind the first piece, or the nearest to it."""
    return max(1, round(axis.extent / axis.multiple / pieces)) * axis.multiple


def _times(cost: StepCosts) -> Times:
    return tuple(own.ns if isinstance(own, Duration) else None for own in cost.on_device)


def _grains(
    program: Program, halves: Iterable[Uses], whole: Iterable[Uses]
) -> dict[int, BufferGrains]:
    """The grains of all buffers that are not weights, for the bytes of wholes and halves."""
    sets: dict[int, list[Ranges]] = {}
    for uses in (*halves, *whole):
        for buffer, use in uses.items():
            if program.buffers[buffer].role is not Role.WEIGHT:
                sets.setdefault(buffer, []).extend((use.needed, use.writes))
    known: dict[object, BufferGrains] = {}  # equal layers have equal grains
    grains = {}
    for buffer, some in sets.items():
        size = program.buffers[buffer].bytes
        key = size, tuple(ranges.tobytes() for ranges in some)
        if key not in known:
            known[key] = BufferGrains(size, some)
        grains[buffer] = known[key]
    return grains


class _Touches:
    """Uses of buffers as grains; equal uses are translated once."""

    def __init__(self, program: Program, grains: Mapping[int, BufferGrains]) -> None:
        self.program = program
        self.grains = grains
        self._masks: dict[tuple[BufferGrains, bytes], int] = {}

    def of(self, uses: Uses) -> Touch:
        """The touch of one side."""
        needs: list[tuple[int, int]] = []
        writes: list[tuple[int, int]] = []
        kept = []
        for buffer, use in uses.items():
            role = self.program.buffers[buffer].role
            if role in (Role.WEIGHT, Role.STATE) and (len(use.reads) or len(use.writes)):
                kept.append((buffer, _hull(use.reads, use.writes)))
            if role is Role.WEIGHT:
                continue
            for masks, ranges in ((needs, use.needed), (writes, use.writes)):
                if mask := self._mask(buffer, ranges):
                    masks.append((buffer, mask))
        return Touch(tuple(needs), tuple(writes), tuple(kept))

    def _mask(self, buffer: int, ranges: Ranges) -> int:
        grains = self.grains[buffer]
        key = grains, ranges.tobytes()
        if key not in self._masks:
            self._masks[key] = sum(1 << grain for grain in grains.of(ranges))
        return self._masks[key]


def _hull(*sets: Ranges) -> Span:
    """From the first to the last byte that is touched."""
    some = [ranges for ranges in sets if len(ranges)]
    return min(int(r[0, 0]) for r in some), max(int(r[-1, 1]) for r in some)


def masked_bytes(sizes: Sequence[int], mask: int) -> int:
    """The bytes of the grains in a mask."""
    return sum(size for grain, size in enumerate(sizes) if mask >> grain & 1)


def last_uses(steps: Iterable[StepWays]) -> dict[int, int]:
    """The last step that touches each buffer."""
    return {
        buffer: number for number, step in enumerate(steps) for buffer, _ in _touched(step.ways[0])
    }


def _touched(way: StepWay) -> Iterator[tuple[int, int]]:
    yield from way.sides[0].needs
    yield from way.sides[0].writes


def divided_buffers(way: StepWay) -> dict[int, int]:
    """The weights and states of which parts of a step hold different bytes, and all these bytes."""
    if way.axis is None or way.sides[1] is None:
        return {}
    others = dict(way.sides[1].kept)
    apart = {}
    for buffer, (first, end) in way.sides[0].kept:
        start, stop = others.get(buffer, (first, end))
        both = max(end, stop) - min(first, start)
        if end - first + stop - start < _APART * both:
            apart[buffer] = both
    return apart
