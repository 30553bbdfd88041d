"""Chains: steps in parts that are cut at the same place, and the classes of chains that are alike.

In: the ways of all traces of a plan. Out: `ShareClass`es, each with the chains that get the same
shares, and the `Division` of each trace for given shares.

Steps are in one chain if a part of one reads what the same part of the other left, if they read the
same weight, or touch the same bytes of a state, in any trace: then a device holds each byte once.
A chain has as many units as divide the extents of all its steps. Chains whose steps are alike, as
those of equal layers, are one class.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd

from tessera.ir.connected import connected
from tessera.ir.plan.division import Cut, Division, Twin
from tessera.ir.program.program import Launch, LibraryCall, Memcpy, Memset, Role, Work
from tessera.passes.division.legal_cuts import CutFinder
from tessera.planning.division.choose_ways import joined_steps, part_line
from tessera.planning.division.ways import StepWay, TraceWays, divided_buffers
from tessera.wording import Wording

StepKey = tuple[int, int]
"""A trace and a step of it."""


@dataclass(frozen=True, slots=True)
class DividedWays:
    """A trace, the way of each step, and how often the trace runs in a mix."""

    trace: TraceWays
    ways: tuple[StepWay, ...]
    rate: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareClass:
    """Chains that get the same shares, counted in `units`.

    `fixed_ns` and `ns` are, for each device, the time of one of the chains, per unit of the mix:
    for any part of it, and for the whole. `bytes` are the weights and states of one chain; its
    `lane_bytes` are needed for every lane.
    """

    chains: tuple[tuple[StepKey, ...], ...]
    units: int
    fixed_ns: tuple[float, ...]
    ns: tuple[float, ...]
    bytes: int
    lane_bytes: int


def find_classes(divided: Sequence[DividedWays], devices: int) -> list[ShareClass]:
    """The classes of all chains, in the order of their first steps."""
    steps: list[StepKey] = []
    joined = [*_kept_together(divided)]
    for number, own in enumerate(divided):
        steps += ((number, step) for step, way in enumerate(own.ways) if way.axis)
        pairs = joined_steps(own.trace, own.ways)
        joined += (((number, first), (number, second)) for first, second in pairs)
    work = [tuple(own.trace.program.work()) for own in divided]
    by_kind: dict[object, list[tuple[StepKey, ...]]] = {}
    for chain in sorted(map(sorted, connected(steps, joined))):
        kind = tuple((n, _kind(divided[n], step, work[n][step])) for n, step in chain)
        by_kind.setdefault(kind, []).append(tuple(chain))
    return [_share_class(divided, chains, devices) for chains in by_kind.values()]


def _kept_together(divided: Sequence[DividedWays]) -> Iterator[tuple[StepKey, StepKey]]:
    """Steps whose parts hold different bytes of the same weights or states."""
    first: dict[tuple[Role, str], StepKey] = {}
    for number, own in enumerate(divided):
        for step, way in enumerate(own.ways):
            for index in divided_buffers(way):
                buffer = own.trace.program.buffers[index]
                key = buffer.role, buffer.name
                yield first.setdefault(key, (number, step)), (number, step)


def _kind(own: DividedWays, step: int, work: Work) -> object:
    """What makes steps alike: their work without its buffers, the axis, and the times."""
    return _shape(work), own.ways[step].axis, own.trace.steps[step].ns


def _shape(work: Work) -> object:
    match work:
        case Launch():
            return work.module, work.kernel, work.grid, work.block
        case LibraryCall():
            return work.operator, tuple(o.shape for o in (*work.reads, *work.writes))
        case Memset() | Memcpy():
            return type(work), work.bytes


def units_of(divided: Sequence[DividedWays], chain: Sequence[StepKey]) -> int:
    """The number of equal pieces of a chain that can be dealt to devices."""
    axes = [divided[trace].ways[step].axis for trace, step in chain]
    return gcd(*(axis.extent // axis.multiple for axis in axes if axis is not None))


def _share_class(
    divided: Sequence[DividedWays], chains: Sequence[tuple[StepKey, ...]], devices: int
) -> ShareClass:
    fixed, slopes = [0.0] * devices, [0.0] * devices
    kept: dict[tuple[Role, str], int] = {}
    for trace, step in chains[0]:
        own = divided[trace]
        way = own.ways[step]
        for device in range(devices):
            line = part_line(own.trace.steps[step], way, device)
            start, slope = line or (float("inf"), float("inf"))
            fixed[device] += start * own.rate
            slopes[device] += slope * own.rate
        for index, size in divided_buffers(way).items():
            buffer = own.trace.program.buffers[index]
            key = buffer.role, buffer.name
            kept[key] = max(kept.get(key, 0), size)
    return ShareClass(
        chains=tuple(chains),
        units=units_of(divided, chains[0]),
        fixed_ns=tuple(fixed),
        ns=tuple(slopes),
        bytes=sum(size for (role, _), size in kept.items() if role is Role.WEIGHT),
        lane_bytes=sum(size for (role, _), size in kept.items() if role is Role.STATE),
    )


def division_of(
    own: DividedWays,
    number: int,
    classes: Sequence[ShareClass],
    counts: Sequence[Sequence[int]],
    devices: Sequence[int],
) -> tuple[Division, tuple[int, ...]] | None:
    """The division of a trace, and the device of each step of the divided trace.

    `counts` has, per class, the units of each device. None if a cut is not legal at its edges.
    """
    class_of = {
        step: index
        for index, shared in enumerate(classes)
        for chain in shared.chains
        for trace, step in chain
        if trace == number
    }
    finder = CutFinder.of(own.trace.manager, own.trace.program)
    cuts: list[Cut] = []
    twins: list[Twin] = []
    places: list[int] = []
    for step, way in enumerate(own.ways):
        if way.axis is not None:
            shared = classes[class_of[step]]
            mine = [(d, n) for d, n in zip(devices, counts[class_of[step]], strict=True) if n]
            size = way.axis.extent // shared.units
            edges = [0]
            for _, units in mine:
                edges.append(edges[-1] + units * size)
            if len(mine) > 1:
                cut = Cut(step=step, axis=way.axis.axis, edges=tuple(edges))
                every = finder.for_every_arch(cut)
                if isinstance(every, Wording) or finder.why_not(every) is not None:
                    return None
                cuts += every
            places += [device for device, _ in mine]
        elif way.is_twin:
            twins.append(Twin(step, len(devices)))
            places += devices
        else:
            places.append(devices[0])
    return Division(tuple(cuts), tuple(twins)), tuple(places)


def whole_ns(divided: Sequence[DividedWays], devices: Sequence[int]) -> list[float]:
    """The time of wholes and twins on each device, per unit of the mix."""
    total = [0.0] * len(devices)
    for own in divided:
        for step, way in zip(own.trace.steps, own.ways, strict=True):
            if way.axis is None:
                for at in range(len(devices) if way.is_twin else 1):
                    total[at] += (step.ns[devices[at]] or 0.0) * own.rate
    return total


def whole_bytes(divided: Sequence[DividedWays], devices: Sequence[int], lanes: int) -> list[int]:
    """The bytes of weights and states that steps keep undivided on each device."""
    kept: list[dict[str, int]] = [{} for _ in devices]
    for own in divided:
        buffers = own.trace.program.buffers
        for way in own.ways:
            apart = divided_buffers(way)
            for at in range(len(devices) if way.sides[1] is not None else 1):
                for index, (start, end) in way.sides[0].kept:
                    if index not in apart:
                        buffer = buffers[index]
                        copies = lanes if buffer.role is Role.STATE else 1
                        known = kept[at].get(buffer.name, 0)
                        kept[at][buffer.name] = max(known, (end - start) * copies)
    return [sum(own.values()) for own in kept]


def least_bytes(traces: Sequence[TraceWays], lanes: int) -> int:
    """The bytes of weights and states that all devices together hold at least, in any way."""
    least: dict[str, int] = {}
    for trace in traces:
        for step in trace.steps:
            ways = [{**_hulls(way), **divided_buffers(way)} for way in step.ways]
            for index in ways[0]:
                buffer = trace.program.buffers[index]
                copies = lanes if buffer.role is Role.STATE else 1
                own = min(way.get(index, 0) for way in ways) * copies
                least[buffer.name] = max(least.get(buffer.name, 0), own)
    return sum(least.values())


def _hulls(way: StepWay) -> dict[int, int]:
    return {index: end - start for index, (start, end) in way.sides[0].kept}
