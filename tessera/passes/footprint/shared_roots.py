"""The objects that addresses in shared memory point into.

In: every store to shared memory of a run, wherever and whenever it happens, and the loads of 8
bytes. Out: per load the objects that any store may have put an address of where it loads, or None
if something else may be there. This is what is left when shared memory cannot be followed cell
by cell (`footprint.shared`): threads without barriers between them, stores at unknown places, loops
whose end depends on data.

During the run the result of each load is in a zone of its own (`zones.LOADED`); afterwards what was
touched there was touched in the objects that the load stands for (`resolve`). A load that turns out
to give something else (`numbers`) is unknown when the launch is run again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tessera.ir.arrays import Flags
from tessera.ir.opcodes import MemoryEffect, type_bits
from tessera.ir.ptx import syntax as ptx
from tessera.passes.byte_sets.intervals import distinct
from tessera.passes.footprint.excerpt_state import SliceState
from tessera.passes.footprint.local import any_of_type
from tessera.passes.footprint.scene import Scene
from tessera.passes.footprint.shared_access import (
    SharedSpace,
    load_address,
    load_type,
    most_bytes,
    words_of_store,
    write_address,
)
from tessera.passes.footprint.zones import END, FIRST, LOADED, SHARED, Zones
from tessera.passes.kernel_facts.kernel_code import Step
from tessera.passes.kernel_facts.shared_use import BASE, SPACING, SharedUse
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lanes import HARD, MASK, POINTER, U64, Lanes
from tessera.passes.lane_values.masks import Mask, selected

if TYPE_CHECKING:
    from tessera.passes.footprint.recorder import Recorder

Span = tuple[int, int]
_EVERYWHERE: Span = (0, 1 << 33)
Roots = frozenset[int] | None
"""Zones of objects; None if the value may also be something else."""


@dataclass(slots=True)
class Stored:
    """All that one instruction stores: where, and addresses of which objects."""

    where: Span
    zones: set[int] = field(default_factory=set)
    is_other: bool = False


class SharedRoots:
    """Collects stores and loads over all runs of a launch; see the module docstring."""

    def __init__(
        self, use: SharedUse, scene: Scene, numbers: frozenset[int], is_mixed: bool = False
    ) -> None:
        self.use = use
        # Whether distances between objects may be there (`lane_kinds`): known before, seen now.
        self.was_mixed = self.is_mixed = is_mixed
        self.space = SharedSpace(use, scene)
        self.numbers = numbers
        self.stores: dict[int, Stored] = {}
        self.loads: dict[int, Span] = {}
        self.zone_of: dict[int, int] = {}

    def follower(self) -> SharedRoots:
        """This one, for every run of the launch."""
        return self

    # --- as the excerpt runs -----------------------------------------------------------------

    def step(self, runner: SliceState, step: Step, mask: Mask) -> None:
        """Note what an instruction may store."""
        for effect in step.meaning.effects:
            if effect.access.writes and effect.space.startswith(("shared", "generic")):
                self._write(runner, step, effect, mask)

    def call(self) -> None:
        """A call that cannot be followed may store anything anywhere."""
        self._note(-1, _EVERYWHERE).is_other = True

    def _write(self, runner: SliceState, step: Step, effect: MemoryEffect, mask: Mask) -> None:
        address = write_address(runner, step, effect, mask)
        if address is None:
            return
        words = words_of_store(step)
        if words is None:
            most = most_bytes(runner, step, effect)
            where = _EVERYWHERE if most is None else self._reach(address, mask, most)
            self._note(step.index, where).is_other = True
            return
        width, elements = words
        stored = self._note(step.index, self._reach(address, mask, width * len(elements)))
        for element in elements:
            self._value(runner, step, stored, width, element, mask)

    def _value(
        self,
        runner: SliceState,
        step: Step,
        stored: Stored,
        width: int,
        element: ptx.Operand,
        mask: Mask,
    ) -> None:
        value = runner.value(element, 8 * width, step.index) if width <= 8 else None
        self.is_mixed = self.is_mixed or (value is not None and value.kind > POINTER)
        if width != 8 or value is None or step.index in self.use.opaque:
            stored.is_other = True
            return
        zones: set[int] = set()
        for option in value.options or (value,):
            exact = lanes.exact_in(option, mask.may)
            zones.update(_zones(runner.scene.zones, exact, mask.may))
        stored.zones.update(zones)
        stored.is_other = stored.is_other or any(zone < FIRST and zone != SHARED for zone in zones)

    def load(self, runner: SliceState, step: Step, mask: Mask) -> None:
        """Let a load of 8 bytes point into whatever was stored; every other load is unknown."""
        type = load_type(step)
        if type is None:
            runner.unknown_results(step, mask)
            return
        followed = type_bits(type) == 64 and step.index not in self.numbers
        zone = self.zone_of.setdefault(step.index, LOADED + len(self.zone_of)) if followed else END
        if zone < END:
            where = self._reach(load_address(runner, step), mask, 8 * len(step.targets))
            self.loads[step.index] = _hull(self.loads.get(step.index, where), where)
        for name in step.targets:
            if name in runner.code.needed:
                bits = runner.bits(name)
                value = any_of_type(type, bits, step.index)
                value = lanes.of_kind(value, HARD if self.was_mixed else value.kind)
                if zone < END:
                    anchor = runner.scene.zones.address(zone)
                    value = lanes.unknown(64, step.index, anchor)
                runner.write(step, name, value, mask)

    def _note(self, index: int, where: Span) -> Stored:
        old = self.stores.get(index)
        if old is None:
            old = self.stores[index] = Stored(where)
        old.where = _hull(old.where, where)
        return old

    def _reach(self, address: Lanes, mask: Mask, width: int) -> Span:
        """From the least to the last byte of `width` at addresses of threads of a mask.

        That is in one variable; what may leave it may be anywhere.
        """
        low, span = selected(mask.may, address.low(), lanes.spans(address))
        if low.size == 0:
            return _EVERYWHERE
        ends = np.array([low.min(), (low + span).max()], dtype=U64)
        inside = self.space.place(ends, width)[2]
        if not inside.all() or len(set(((ends - U64(BASE)) // U64(SPACING)).tolist())) > 1:
            return _EVERYWHERE
        return int(ends[0]), int(ends[1]) + width

    # --- afterwards ------------------------------------------------------------------------

    def solve(self) -> dict[int, Roots]:
        """The objects behind each load."""
        load_of = {zone: index for index, zone in self.zone_of.items()}
        roots_of: dict[int, Roots] = dict.fromkeys(self.loads, frozenset())
        changed = True
        while changed:
            changed = False
            for index, where in self.loads.items():
                new = self._roots(where, roots_of, load_of)
                changed = changed or new != roots_of[index]
                roots_of[index] = new
        # Memory that no store reaches can hold anything.
        return {index: roots or None for index, roots in roots_of.items()}

    def _roots(self, where: Span, roots_of: dict[int, Roots], load_of: dict[int, int]) -> Roots:
        roots: set[int] = set()
        for stored in self.stores.values():
            if stored.where[0] >= where[1] or where[0] >= stored.where[1]:
                continue
            if stored.is_other:
                return None
            for zone in stored.zones:
                behind = roots_of[load_of[zone]] if zone >= LOADED else frozenset({zone})
                if behind is None:
                    return None
                roots |= behind
        return frozenset(roots)

    def resolve(self, recorder: Recorder) -> frozenset[int]:
        """Move what was touched through loaded addresses to the objects; loads that give no
        addresses are returned, and nothing counts then."""
        solved = self.solve()
        wrong = frozenset(index for index, roots in solved.items() if roots is None)
        for index, roots in solved.items():
            if roots is not None:
                recorder.move_zone(self.zone_of[index], roots - {SHARED}, index)
        return wrong


def _zones(zones: Zones, value: Lanes, may: Flags) -> list[int]:
    """The zones that the threads' values point into; 0 among them where one points nowhere."""
    span = lanes.spans(value)
    if value.kind > POINTER and (span == U64(MASK[64])).any():
        return [0]
    near = np.where(span == U64(MASK[64]), U64(0), span)
    first, reach = selected(may, value.low(), near)
    start, end = zones.decode(first)[0], zones.decode(first + reach)[0]
    return [int(zone) for zone in distinct(np.where(start == end, start, 0))]


def _hull(left: Span, right: Span) -> Span:
    return min(left[0], right[0]), max(left[1], right[1])
