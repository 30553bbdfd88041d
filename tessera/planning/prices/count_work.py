"""The work of a launch: instructions, arithmetic by unit, bytes requested; loops included.

In: a kernel's PTX and a launch. Out: a `LaunchWork`. Threads are walked one at a time (see
`thread_walk`; loops by closed forms). An index that no guard depends on needs only one value.
Otherwise the threads of two CTAs, by warp and by lane, are grouped into classes with the same work.
Then CTAs are drawn, in pairs that mirror each other so that work that grows along the grid (a
causal mask) is counted correctly, until the means are stable. `sure` means that they are stable and
that no branch depends on data. The work is the mean times all threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice, product
from math import ceil, prod, sqrt

from tessera.ir.plan.costs import LaunchWork
from tessera.ir.program.program import Launch, ModuleVariant, Scalar
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.layout import packed_bytes
from tessera.ir.same import Same
from tessera.passes.kernel_facts.operand_names import registers_in
from tessera.planning.prices.live_registers import CTA_X, CTA_Y, CTA_Z, LANE, WARP
from tessera.planning.prices.thread_code import ThreadCode, thread_code
from tessera.planning.prices.thread_walk import (
    ASKED,
    BARRIERS,
    INDEXED,
    INSTRUCTIONS,
    LOADS,
    MEMORY,
    SHARED,
    UNITS,
    UNKNOWN_ROUNDS,
    WAITS,
    Tally,
    ThreadWalk,
    Value,
)

_MOST_WALKED = 60_000  # total steps of all threads, after which no more are drawn
_ALL_CTAS = 24  # up to this number, all CTAs are walked
_FEWEST_PAIRS, _MOST_PAIRS = 4, 48
_STABLE = 0.01  # maximum of twice the standard error of the drawn values, relative to the mean
_MOST_WARPS = 8
_MOST_ROUNDS = 1024  # of a loop whose length is unknown
_GROWS = 0.05  # share of bytes by which twice the rounds ask for more, if rounds ask at all
_LANES = ((0, 1), (1, 7), (8, 8), (16, 16))  # a lane, and the number of lanes it stands for
_FEW_THREADS = ((0, 1), (1, 31))
_ONE_LANE = ((0, 32),)
_TURNS = (0.6180339887498949, 0.7548776662466927, 0.5698402909980532)  # near no small fraction
_AXES = ("x", "y", "z")

Index = tuple[int, int, int]


def count_work(
    module: ptx.Module, launch: Launch, unknown_rounds: int = UNKNOWN_ROUNDS
) -> LaunchWork | None:
    """The work of a launch; None if the module has no body of the kernel.

    A loop that ends by a value from memory runs `unknown_rounds` rounds.
    """
    function = next(
        (
            item
            for item in module.items
            if isinstance(item, ptx.Function) and item.name == launch.kernel
        ),
        None,
    )
    if function is None or function.body is None:
        return None
    arguments = _arguments(function, launch)
    counter = _Counter(_code(Same(function)), launch, arguments, unknown_rounds)
    found = counter.count()
    threads = prod(launch.grid) * prod(launch.block)
    most = counter.most
    return LaunchWork(
        ctas=prod(launch.grid),
        threads=threads,
        instructions=found[INSTRUCTIONS] * threads,
        memory_instructions=found[MEMORY] * threads,
        asked_bytes=found[ASKED] * threads,
        indexed_bytes=found[INDEXED] * threads,
        shared_traffic=found[SHARED] * threads,
        units=tuple(
            (unit, found[UNITS + place] * threads)
            for unit, place in sorted(counter.units.items())
            if found[UNITS + place]
        ),
        chain=most[INSTRUCTIONS],
        chain_loads=most[LOADS],
        chain_barriers=most[BARRIERS],
        chain_waits=most[WAITS],
        shared_bytes=launch.shared_bytes + static_shared_bytes(module, function),
        registers=counter.code.registers,
        sure=counter.sure,
    )


@dataclass(frozen=True, slots=True)
class _CountedLaunch:
    """A launch whose work is asked for, equal to those with the same code, shape and numbers."""

    alike: tuple[object, ...]
    touched: float
    module: ptx.Module = field(compare=False)
    launch: Launch = field(compare=False)


def launch_work(variant: ModuleVariant, launch: Launch, touched: float) -> LaunchWork | None:
    """The work of a launch of a variant of its module that may touch these bytes.

    Equal launches are counted once, whichever program they are in.
    """
    scalars = tuple(a.bits if isinstance(a, Scalar) else None for a in launch.arguments)
    shape = launch.grid, launch.ctas, launch.block, launch.cluster, launch.shared_bytes
    text = variant.text or id(variant.ptx)  # code that was made has no text
    asked = _CountedLaunch((text, launch.kernel, shape, scalars), touched, variant.ptx, launch)
    return _kept_work(asked)


@lru_cache(maxsize=1024)
def _kept_work(asked: _CountedLaunch) -> LaunchWork | None:
    return _reading_all(asked.module, asked.launch, asked.touched)


def _reading_all(module: ptx.Module, launch: Launch, touched: float) -> LaunchWork | None:
    """The work of a launch whose loops of unknown length read all that the launch may touch.

    So a decode step reads a full cache, though its length lies in memory. Rounds that ask for no
    further bytes, and launches that ask for all bytes anyway, keep the usual number of rounds.
    """
    work = count_work(module, launch)
    if work is None or work.sure or work.asked_bytes >= touched:
        return work
    more = count_work(module, launch, 2 * UNKNOWN_ROUNDS)
    grown = 0.0 if more is None else (more.asked_bytes - work.asked_bytes) / UNKNOWN_ROUNDS
    if grown * UNKNOWN_ROUNDS <= _GROWS * work.asked_bytes:
        return work
    further = ceil((touched - work.asked_bytes) / grown)
    return count_work(module, launch, min(UNKNOWN_ROUNDS + further, _MOST_ROUNDS))


def static_shared_bytes(module: ptx.Module, function: ptx.Function) -> int:
    """Bytes of shared memory that a kernel declares; the launch sizes arrays without a size."""
    body = tuple(ptx.walk_statements(function.body or ()))
    inner = [s for s in body if isinstance(s, ptx.Variable)]
    operands = (o for s in body if isinstance(s, ptx.Instruction) for o in s.operands)
    used = {name for operand in operands for name in registers_in(operand)}
    outer = [variable for variable in module.variables() if variable.name in used]
    return packed_bytes(v for v in (*inner, *outer) if v.space == "shared")


@lru_cache(maxsize=64)
def _code(function: Same[ptx.Function]) -> ThreadCode:
    return thread_code(function.value)


def _arguments(function: ptx.Function, launch: Launch) -> dict[str, Value]:
    """Values of the scalar parameters by name."""
    return {
        parameter.name: argument.bits if isinstance(argument, Scalar) else None
        for parameter, argument in zip(function.parameters, launch.arguments, strict=False)
    }


@dataclass(slots=True)
class _Counter:
    """One launch. Private and mutable."""

    code: ThreadCode
    launch: Launch
    parameters: dict[str, Value]
    unknown_rounds: int = UNKNOWN_ROUNDS
    units: dict[str, int] = field(init=False)
    most: list[float] = field(init=False)
    sure: bool = True
    walked: int = 0
    known: dict[tuple[Index, int], list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = {step.effect.unit for step in self.code.steps if step.effect.operations}
        self.units = {name: place for place, name in enumerate(sorted(names))}
        self.most = [0.0] * (UNITS + len(names))

    def count(self) -> list[float]:
        """The mean counts of a thread."""
        grid = self.launch.grid
        moving = [bool(self.code.axes & axis) for axis in (CTA_X, CTA_Y, CTA_Z)]
        sizes = [n if moves else 1 for n, moves in zip(grid, moving, strict=True)]
        last = (sizes[0] - 1, sizes[1] - 1, sizes[2] - 1)
        classes = self._classes(((0, 0, 0), last))
        if prod(sizes) <= _ALL_CTAS:
            places = [(x, y, z) for x, y, z in product(*map(range, sizes))]
            return _mean([self._cta(place, classes) for place in places])
        ends = _mean([self._cta((0, 0, 0), classes), self._cta(last, classes)])
        means: list[list[float]] = []
        for one, other in islice(_pairs(sizes), _MOST_PAIRS):
            means.append(_mean([self._cta(one, classes), self._cta(other, classes)]))
            if len(means) >= _FEWEST_PAIRS and _stable(means, ends):
                return _mean(means)
            if len(means) >= _FEWEST_PAIRS and self.walked > _MOST_WALKED:
                break
        self.sure = False
        return _mean(means)

    def _classes(self, places: tuple[Index, Index]) -> list[tuple[list[int], float]]:
        """Classes of threads with the same work in the first and the last CTA, with their sizes."""
        drawn = list(_drawn_threads(prod(self.launch.block), self.code.axes))
        if len(drawn) == 1:
            return [([drawn[0][0]], 1.0)]
        classes: dict[tuple[float, ...], tuple[list[int], float]] = {}
        for thread, weight in drawn:
            same = tuple(c for place in dict.fromkeys(places) for c in self._thread(place, thread))
            members, before = classes.get(same, ([], 0.0))
            classes[same] = ([*members, thread], before + weight)
        return list(classes.values())

    def _cta(self, place: Index, classes: list[tuple[list[int], float]]) -> list[float]:
        """The mean thread of a CTA: one thread of each class, a different one in each CTA."""
        whole = sum(weight for _, weight in classes)
        total = [0.0] * len(self.most)
        for members, weight in classes:
            thread = members[sum(place) % len(members)]
            for n, count in enumerate(self._thread(place, thread)):
                total[n] += count * weight / whole
        return total

    def _thread(self, cta: Index, thread: int) -> list[float]:
        key = cta, thread
        if key not in self.known:
            tally = self._walk(cta, thread)
            self.walked += tally.walked
            self.sure = self.sure and tally.sure
            self.most = [max(a, b) for a, b in zip(self.most, tally.counts, strict=True)]
            self.known[key] = tally.counts
        return self.known[key]

    def _walk(self, cta: Index, thread: int) -> Tally:
        launch, extent = self.launch, self.launch.grid
        if part := launch.ctas:
            # The kernel sees its CTA as if all were launched.
            x, y, z = (c + part.first * (axis == part.axis) for axis, c in enumerate(cta))
            cta = x, y, z
            x, y, z = (part.extent if a == part.axis else n for a, n in enumerate(extent))
            extent = x, y, z
        wide, high, _ = launch.block
        where = (thread % wide, thread // wide % high, thread // wide // high)
        cluster = launch.cluster or (1, 1, 1)
        special = {"%laneid": thread % 32}
        inside = tuple(c % n for c, n in zip(cta, cluster, strict=True))
        special["%cluster_ctarank"] = inside[0] + cluster[0] * (inside[1] + cluster[1] * inside[2])
        special["%cluster_nctarank"] = prod(cluster)
        for name, index in (
            ("%tid", where),
            ("%ctaid", cta),
            ("%ntid", launch.block),
            ("%nctaid", extent),
            ("%cluster_ctaid", inside),
            ("%cluster_nctaid", cluster),
            ("%clusterid", tuple(c // n for c, n in zip(cta, cluster, strict=True))),
        ):
            for axis, value in zip(_AXES, index, strict=True):
                special[f"{name}.{axis}"] = value
        values: list[Value] = [None] * len(self.code.places)
        for name, number in special.items():
            if name in self.code.places:
                values[self.code.places[name]] = number
        walk = ThreadWalk(
            self.code, self.units, values, self.parameters, thread % 32, self.unknown_rounds
        )
        return walk.run()


def _drawn_threads(threads: int, axes: int) -> Iterator[tuple[int, float]]:
    """Threads to walk, each with its weight: more lanes of the first and last warp."""
    warps = -(-threads // 32)
    few = sorted({n * warps // _MOST_WARPS for n in range(_MOST_WARPS)}) if axes & WARP else [0]
    for warp, after in zip(few, [*few[1:], warps], strict=True):
        lanes = _LANES if warp in (few[0], few[-1]) else _FEW_THREADS
        for lane, stands in lanes if axes & LANE else _ONE_LANE:
            # Every other warp takes the last lane of each range above the second lane.
            at = 32 * warp + (lane if warp % 2 == 0 or lane < 2 else lane + stands - 1)
            if at < threads:
                yield at, float((after - warp) * stands)


def _pairs(sizes: list[int]) -> Iterator[tuple[Index, Index]]:
    """CTAs spread evenly over the grid, each with its mirror image."""
    turn = 0
    while True:
        turn += 1
        at = [int((turn * part) % 1.0 * n) for part, n in zip(_TURNS, sizes, strict=True)]
        over = [n - 1 - one for one, n in zip(at, sizes, strict=True)]
        yield (at[0], at[1], at[2]), (over[0], over[1], over[2])


def _mean(rows: list[list[float]]) -> list[float]:
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def _stable(means: list[list[float]], ends: list[float]) -> bool:
    """Whether the mean of each count is known accurately enough."""
    columns = zip(*means, strict=True)
    return all(_steady(list(column), end) for column, end in zip(columns, ends, strict=True))


def _steady(values: list[float], end: float) -> bool:
    """Whether pairs agree, and one more pair like the two ends of the grid would not matter: other
    CTAs may do as much more work as these ends.
    """
    middle = sum(values) / len(values)
    spread = sum((value - middle) ** 2 for value in values) / (len(values) - 1)
    rest = (end - middle) / len(values)
    return max(2.0 * sqrt(spread / len(values)), rest) <= _STABLE * abs(middle)
