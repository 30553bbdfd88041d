"""Writes certificates: what the analysis says of a launch, and what it saw at the heads of loops.

In: a program. Out: for each launch and architecture a certificate for `checker.check`. The
regions are those of `AccessRegions`, which everything else uses. The forms of registers and the
trip counts are read from the registers of the analysis when it visits the head of a loop, and from
the rounds that it went through at once (`LoopRounds`). Nothing here has to be right: a wrong
certificate is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tessera.ir.graph.access import Access, Certainty
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import region_bytes
from tessera.passes.dependences.access_regions import AccessRegions, AccessWalk
from tessera.passes.dependences.launch_pattern import Pattern
from tessera.passes.dependences.launch_report import StepAccesses
from tessera.passes.dependences.launch_scene import LaunchSetting
from tessera.passes.footprint import footprint, machine
from tessera.passes.footprint.rounds import LoopRounds, SilentRecorder
from tessera.passes.footprint.scene import Scene
from tessera.passes.lane_values.digits import RoundDigit
from tessera.passes.lane_values.lanes import Lanes
from tessera.passes.lane_values.masks import Mask

Certificate = dict[str, Any]
Numbers = np.ndarray[Any, Any]


@dataclass
class Visit:
    """A visit of the head of a loop: the threads, the exact registers, the rounds made at once."""

    head: int
    label: str
    here: Numbers
    registers: dict[str, tuple[Numbers, int]]
    jumped: Numbers | int = 0


@dataclass
class _Watch:
    visits: list[Visit] = field(default_factory=list)


_WATCH = _Watch()


class _WatchedRounds(LoopRounds):
    """Notes what registers hold at the heads of loops."""

    def visit(self, block: int, mask: Mask) -> None:
        run, code = self.machine, self.machine.code
        if block not in self.heads or run.side is not None:
            super().visit(block, mask)
            return
        starts = {code.flow.blocks[block].start}
        label = next((x.name for x in code.flat.labels if x.index in starts), "")
        held = {
            key: (value.low(), run.bits(key))
            for key, value in run.registers.items()
            if isinstance(key, str) and code.live.is_live(block, key) and _is_exact(value)
        }
        seen = Visit(block, label, np.array(mask.may), held)
        _WATCH.visits.append(seen)
        super().visit(block, mask)

    def _run_once(
        self, head: int, mask: Mask, period: int, steps: dict[Any, Lanes], digit: RoundDigit
    ) -> None:
        super()._run_once(head, mask, period, steps, digit)
        if not isinstance(self.machine.recorder, SilentRecorder):
            _WATCH.visits[-1].jumped = (digit.last + 1) * period


def _is_exact(value: Lanes) -> bool:
    return value.span is None and not value.options and not value.slopes


@contextmanager
def _watched() -> Iterator[None]:
    """Let the analysis follow all CTAs at once, and watch it."""
    rounds, find = machine.LoopRounds, footprint.find_footprint
    machine.LoopRounds = _WatchedRounds  # type: ignore[misc]
    footprint.find_footprint = partial(find, few_threads=1 << 40)  # type: ignore[assignment]
    try:
        yield
    finally:
        machine.LoopRounds, footprint.find_footprint = rounds, find  # type: ignore[misc]


class _WatchedWalk(AccessWalk):
    """Keeps what was seen of each launch, on each architecture."""

    def __init__(self, program: ir.Program) -> None:
        super().__init__(program, None)
        self.seen: dict[tuple[object, ...], tuple[list[Visit], Scene]] = {}
        self.settings: dict[tuple[int, str], tuple[list[Visit], Scene, LaunchSetting]] = {}

    def _pattern(self, step: ir.Launch, key: object, buffers: Any) -> Pattern | None:
        return None

    def _footprint(
        self, step: ir.Launch, variant: ir.ModuleVariant, setting: LaunchSetting, *rest: Any
    ) -> footprint.Footprint:
        _WATCH.visits = []
        known = super()._footprint(step, variant, setting, *rest)
        key = (step.module, variant.arch, step.kernel, setting.key)
        if key not in self.seen or _WATCH.visits:
            self.seen[key] = (_WATCH.visits, setting.scene)
        return known

    def _variant(
        self, step: ir.Launch, variant: ir.ModuleVariant, setting: LaunchSetting
    ) -> StepAccesses:
        key = (step.module, variant.arch, step.kernel, setting.key)
        arch = variant.arch
        self.settings[int(step.id), arch] = (*self.seen[key], setting)
        return super()._variant(step, variant, setting)


def certificates(
    program: ir.Program, wanted: Mapping[int, bool]
) -> Iterator[tuple[int, dict[str, Certificate]]]:
    """The certificates of launches, by number and architecture, where the analysis pins nothing.

    `wanted` says of each launch that gets some whether it has loops, which have to be watched.
    """
    steps = AnalysisManager(program).get(AccessRegions).steps
    walk = _WatchedWalk(program)
    launches = [(w, s) for w, s in zip(program.work(), steps, strict=True) if type(w) is ir.Launch]
    for place, has_loops in wanted.items():
        launch, step = launches[place]
        if step.pins:
            continue
        if has_loops:
            with _watched():
                walk.step(launch)
        made = {}
        for variant in program.modules[launch.module].variants:
            seen = walk.settings.get((int(launch.id), variant.arch))
            made[variant.arch] = {
                "ranges": _ranges(ir.for_arch(launch, variant.arch)),
                "loops": {} if seen is None else _Loops(program, *seen).claims(),
                "accesses": [access_record(program, access) for access in step.accesses],
            }
        yield place, made


def _ranges(launch: ir.Launch) -> dict[str, int]:
    named = {"ctaid": launch.grid, "tid": launch.block}
    return {f"{k}.{'xyz'[axis]}": int(v[axis]) for k, v in named.items() for axis in range(3)}


def access_record(program: ir.Program, access: Access) -> dict[str, Any]:
    buffer = program.buffers[access.buffer]
    pairs = intervals.pairs(region_bytes(access.region, buffer.bytes))
    return {
        "buffer": buffer.name,
        "kind": access.kind.value,
        "must": access.certainty is Certainty.MUST,
        "region": pieces(pairs),
    }


def pieces(pairs: list[tuple[int, int]]) -> list[list[int]]:
    """Intervals as runs of equal ones: start, length, stride, count."""
    found: list[list[int]] = []
    for start, end in pairs:
        if found:
            first, length, stride, count = found[-1]
            if end - start == length and (count == 1 or start == first + stride * count):
                found[-1][2:] = [start - first if count == 1 else stride, count + 1]
                continue
        found.append([start, end - start, 0, 1])
    return found


class _Loops:
    """The claims for the loops of a launch, from what was seen."""

    def __init__(
        self, program: ir.Program, visits: list[Visit], scene: Scene, setting: LaunchSetting
    ) -> None:
        self.visits, self.scene, self.setting, self.program = visits, scene, setting, program
        gx, gy, gz = scene.grid
        bx, by, bz = scene.block
        self.shape = (gz, gy, gx, bx * by * bz)
        thread = np.arange(bx * by * bz)
        axes = np.indices((gz, gy, gx, 1))
        self.symbols = {
            "ctaid.x": axes[2], "ctaid.y": axes[1], "ctaid.z": axes[0],
            "tid.x": thread % bx, "tid.y": thread // bx % by, "tid.z": thread // (bx * by),
        }  # fmt: skip

    def claims(self) -> dict[str, Any]:
        """Per label what the loop does."""
        found: dict[str, Any] = {}
        for label in dict.fromkeys(visit.label for visit in self.visits):
            mine = [visit for visit in self.visits if visit.label == label]
            claim = self._claim(label, mine)
            if claim is not None:
                found[label] = claim
        return found

    def _claim(self, label: str, visits: list[Visit]) -> dict[str, Any] | None:
        first = visits[0]
        entered = np.broadcast_to(first.here, self.shape)
        trips = np.zeros(self.shape, np.int64)
        at = np.zeros((1, 1, 1, 1), np.int64)
        starts = []
        for visit in visits:
            starts.append(at)
            at = at + visit.jumped + 1
            trips = np.where(visit.here, at, trips)
        form = self._form(trips.astype(np.uint64), 64, entered)
        if form is None:
            return None
        registers = {}
        for name, (values, bits) in first.registers.items():
            step = 0
            if len(visits) > 1:
                after = visits[1].registers.get(name)
                # The second visit may be many rounds later, evenly.
                rounds = int(np.max(starts[1]))
                if after is None:
                    continue
                moved = (after[0] - values).view(np.int64)
                moved = np.broadcast_to(moved, self.shape)[
                    np.broadcast_to(visits[1].here, self.shape)
                ]
                if not (moved == moved[0]).all() or int(moved[0]) % rounds:
                    continue
                step = int(moved[0]) // rounds
            started = self._form(values, bits, entered)
            if started is None:
                continue
            if step:
                started["terms"].append([step, label, 1, 1 << 32])
            registers[name] = started
        return {"trips": form, "registers": registers}

    def _form(self, values: Numbers, bits: int, here: Numbers) -> dict[str, Any] | None:
        """Numbers as a sum over bits of the numbers of CTA and thread; None if they are not."""
        full = np.broadcast_to(values, self.shape)
        form: dict[str, Any] = {"at": 0, "terms": []}
        place = int(self.scene.zones.decode(full[here][:1])[0][0])
        if bits == 64 and place in self.setting.buffers:
            buffer = self.program.buffers[self.setting.buffers[place]].name
            form["buffer"] = buffer
            base = self.scene.zones.address(place) - self.setting.offsets.get(place, 0)
            full = full - np.uint64(base % 2**64)
        origin = tuple(int(i[0]) for i in np.nonzero(here))
        at = int(full[origin])
        total = np.full(self.shape, at, np.uint64)
        for symbol, numbers in self.symbols.items():
            numbers = np.broadcast_to(numbers, self.shape)
            for bit in range(int(numbers.max()).bit_length()):
                term = self._bit(full, origin, symbol, bit, bits)
                if term:
                    digit = (numbers >> bit & 1).astype(np.uint64)
                    total = total + digit * np.uint64(term % 2**64)
                    form["terms"].append([term, symbol, 1 << bit, 2])
        mask = np.uint64(2**bits - 1)
        if ((total & mask) != (full & mask))[here].any():
            return None
        form["at"] = _signed(at, bits)
        form["terms"] = _joined(form["terms"])
        return form

    def _bit(self, full: Numbers, origin: tuple[int, ...], symbol: str, bit: int, bits: int) -> int:
        bx, by, _ = self.scene.block
        place = list(origin)
        axis, step = {
            "ctaid.x": (2, 1), "ctaid.y": (1, 1), "ctaid.z": (0, 1),
            "tid.x": (3, 1), "tid.y": (3, bx), "tid.z": (3, bx * by),
        }[symbol]  # fmt: skip
        place[axis] += step << bit
        if place[axis] >= self.shape[axis]:
            return 0
        return _signed((int(full[tuple(place)]) - int(full[origin])) % 2**bits, bits)


def _signed(value: int, bits: int) -> int:
    value %= 2**bits
    return value - 2**bits if value >> (bits - 1) else value


def _joined(terms: list[list[Any]]) -> list[list[Any]]:
    """Neighbouring bits whose factors double, as one digit."""
    found: list[list[Any]] = []
    for factor, symbol, divisor, modulus in terms:
        if found and found[-1][1] == symbol:
            first, _, low, size = found[-1]
            if low * size == divisor and factor == first * size:
                found[-1][3] *= modulus
                continue
        found.append([factor, symbol, divisor, modulus])
    return found
