"""Shared memory in an excerpt: exact, as long as it can be followed.

In: the instructions of `SharedUse` as the excerpt runs them. Out: what loads from it give.
`SharedTrouble` is raised where something is left open about a word that may be an address: then
the launch is run again with `SharedRoots`, which only knows which objects the addresses in shared
memory point into.

A barrier orders the threads of a CTA if all of them surely reach it, with one number. Once some
threads of a CTA reached a barrier without the others, barriers of that number order nothing any
more, since it is not known which threads wait for which. What happens on one side of a branch that
depends on data may happen. Inside a loop whose end depends on data, loads are unknown, and so is
what is stored there. Clusters, where another CTA may write, are not followed.
"""

from __future__ import annotations

import numpy as np

from tessera.ir.architecture import WARP
from tessera.ir.arrays import Flags, Offsets
from tessera.ir.opcodes import (
    MemoryAction,
    MemoryEffect,
    OperandRole,
    Rows,
    SizeOperand,
    type_bits,
)
from tessera.ir.ptx import syntax as ptx
from tessera.passes.footprint.excerpt_state import SliceState
from tessera.passes.footprint.local import any_of_type
from tessera.passes.footprint.pointer_steps import settled
from tessera.passes.footprint.scene import Scene
from tessera.passes.footprint.shared_access import (
    SharedSpace,
    load_address,
    load_type,
    most_bytes,
    words_of_store,
    write_address,
)
from tessera.passes.footprint.shared_image import CELL, SharedImage
from tessera.passes.footprint.shared_phases import SharedTrouble
from tessera.passes.kernel_facts.kernel_code import Step
from tessera.passes.kernel_facts.shared_use import SharedUse, is_barrier, is_copy_wait
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lane_ops import extend
from tessera.passes.lane_values.lanes import HARD, MASK, NUMBER, Lanes
from tessera.passes.lane_values.masks import Mask, selected

# Stand for numbers of barriers: all of them, and those of warps.
_ANY_BARRIER = -1
_WARP_BARRIER = -2


class SharedFollower:
    """Follows shared memory exactly, for one run; see the module docstring."""

    def __init__(self, use: SharedUse, scene: Scene) -> None:
        if not use.is_plain or scene.cluster != (1, 1, 1):
            raise SharedTrouble
        self.use = use
        self.space = SharedSpace(use, scene)
        self.image = SharedImage(self.space.cells, scene.threads)
        self.untrusted: set[int] = set()
        # Whether all threads, since their last `cp.async`, waited for all; put it into a group.
        self.waited = True
        self.committed = True

    # --- instructions ----------------------------------------------------------------------

    def step(self, runner: SliceState, step: Step, mask: Mask) -> None:
        """Follow a store, a copy, a barrier or a wait."""
        if is_barrier(step.instruction):
            self._barrier(runner, step, mask)
        elif is_copy_wait(step.instruction):
            self._wait(runner, step, mask)
        else:
            for effect in step.meaning.effects:
                if effect.access.writes and effect.space.startswith(("shared", "generic")):
                    self._write(runner, step, effect, mask)
        runner.work += self.image.work
        self.image.work = 0

    def call(self) -> None:
        """It is not known what a call does to shared memory, or which threads it waits for."""
        raise SharedTrouble

    # --- writes ----------------------------------------------------------------------------

    def _write(self, runner: SliceState, step: Step, effect: MemoryEffect, mask: Mask) -> None:
        address = write_address(runner, step, effect, mask)
        if address is None:
            return
        words = words_of_store(step)
        if words is not None:
            for place, element in enumerate(words[1]):
                moved = lanes.add(address, lanes.scalar(place * words[0], 32), 32)
                self._store(runner, step, moved, words[0], element, mask)
            return
        self._overwrite(runner, step, effect, address, mask)

    def _store(
        self,
        runner: SliceState,
        step: Step,
        address: Lanes,
        width: int,
        element: ptx.Operand,
        mask: Mask,
    ) -> None:
        value = lanes.unknown(8 * width, -1)
        if step.index not in self.use.opaque:
            value = runner.value(element, 8 * width, -1)
        cells = self._cells(address, width, mask)
        looping = _in_open_loop(runner)
        if width == 8 and (cells is None or looping) and not _is_anything(value):
            raise SharedTrouble
        if cells is None:
            self._overwrite_near(address, width, mask, forever=False)
        elif looping or width < CELL:
            self.image.overwrite(cells, max(1, width // CELL), mask)
        else:
            self.image.store(cells, width, value, mask, sure=runner.side is None)

    def _overwrite(
        self, runner: SliceState, step: Step, effect: MemoryEffect, address: Lanes, mask: Mask
    ) -> None:
        """Follow a write that is not a plain store: the written value is unknown."""
        count = _extent(runner, step, effect)
        opcode = step.instruction.opcode
        copies = opcode.name == "cp" and "bulk" not in opcode.modifiers
        later = effect.access.is_async or effect.access is MemoryAction.MBARRIER
        if isinstance(effect.extent, Rows):
            lane = np.arange(runner.scene.threads) % WARP < effect.extent.lanes
            mask = Mask(mask.may & lane, mask.strong & lane, mask.sure & lane)
        cells = None if count is None else self._cells(address, count, mask)
        if copies:
            self.waited, self.committed = False, False
        if cells is None or count is None:
            most = most_bytes(runner, step, effect)
            self._overwrite_near(address, most, mask, forever=later)
            return
        cells_each = -(-count // CELL)
        self.image.overwrite(cells, cells_each, mask, later=copies, forever=later and not copies)

    def _overwrite_near(
        self, address: Lanes, most: int | None, mask: Mask, *, forever: bool
    ) -> None:
        """From the least address to the end of the variable, where all that is written, `most`
        bytes from each address, is known to be inside; else everything."""
        address = lanes.exact_in(address, mask.may)
        (numbers,) = selected(mask.may, address.low())
        first, last = 0, self.space.cells
        if most is not None and address.span is None and numbers.size:
            cells, ends, inside = self.space.place(numbers, most)
            if inside.all():
                first, last = int(cells.min()), int(ends.max())
        self.image.overwrite_range(first, last, forever=forever)

    def _cells(self, address: Lanes, width: int, mask: Mask) -> Offsets | None:
        """The cell of each thread of a mask; None if that is not known, or differs by CTA."""
        address = lanes.exact_in(address, mask.may)
        if address.span is not None:
            return None
        lo = address.low().reshape(-1, address.low().shape[-1])
        if not (lo == lo[:1]).all():
            return None
        here = mask.may.reshape(-1, mask.may.shape[-1]).any(axis=0)
        threads = (self.image.threads,)
        here, numbers = np.broadcast_to(here, threads), np.broadcast_to(lo[0], threads)
        cells, _, inside = self.space.place(numbers, width)
        aligned = numbers % np.uint64(min(width, 8)) == 0
        if not (inside & aligned)[here].all():
            return None
        return np.where(here, cells, -1)

    # --- order -----------------------------------------------------------------------------

    def _barrier(self, runner: SliceState, step: Step, mask: Mask) -> None:
        instruction, roles = step.instruction, step.meaning.roles
        if "warp" in instruction.opcode.modifiers:
            self._meet(runner, step, mask)
            return
        given = {
            role: _known_number(runner, operand, step.index)
            for role, operand in zip(roles, instruction.operands, strict=False)
            if role in {OperandRole.BARRIER, OperandRole.THREADS}
        }
        number = given.get(OperandRole.BARRIER)
        count = given.get(OperandRole.THREADS, runner.scene.threads)
        everybody = np.asarray(mask.sure.all(axis=-1, keepdims=True))
        some = mask.may.any(axis=-1, keepdims=True)
        full = runner.side is None and count == runner.scene.threads
        waits = "arrive" not in instruction.opcode.modifiers
        if number is None or not full or not waits or (some & ~everybody).any():
            self.untrusted.add(_ANY_BARRIER if number is None else number)
            return
        if self.untrusted & {number, _ANY_BARRIER}:
            return
        if self.waited and everybody.all():
            self.image.copies_are_over()
        self.image.phases.barrier(everybody)

    def _meet(self, runner: SliceState, step: Step, mask: Mask) -> None:
        members = runner.value(step.instruction.operands[0], 32, step.index)
        full = members.span is None and bool((members.low() == np.uint64(MASK[32])).all())
        threads = runner.scene.threads
        sure = np.broadcast_to(mask.sure, (*mask.sure.shape[:-1], threads))
        split = _split_warps(np.broadcast_to(mask.may, (*mask.may.shape[:-1], threads)), sure)
        if not full or split or runner.side is not None:
            self.untrusted.add(_WARP_BARRIER)
        elif _WARP_BARRIER not in self.untrusted:
            self.image.phases.meet_warps(sure)

    def _wait(self, runner: SliceState, step: Step, mask: Mask) -> None:
        """All threads wait for all of their copies; what waits for fewer does not count."""
        if runner.side is not None or not mask.sure.all():
            return
        modifiers, operands = step.instruction.opcode.modifiers, step.instruction.operands
        if "commit_group" in modifiers:
            self.committed = True
            return
        kept: int | None = 0
        if "wait_group" in modifiers:
            kept = _known_number(runner, operands[0], step.index) if self.committed else None
        self.waited = self.waited or kept == 0

    # --- loads -----------------------------------------------------------------------------

    def load(self, runner: SliceState, step: Step, mask: Mask) -> None:
        """Write the words that a load gives."""
        type = load_type(step)
        if type is None:
            runner.unknown_results(step, mask)
            return
        address = load_address(runner, step)
        width = type_bits(type) // 8
        for place, name in enumerate(step.targets):
            if name in runner.code.needed:
                moved = lanes.add(address, lanes.scalar(place * width, 32), 32)
                bits = runner.bits(name)
                runner.write(step, name, self._word(runner, step, moved, type, bits, mask), mask)
        runner.work += self.image.work
        self.image.work = 0

    def _word(
        self, runner: SliceState, step: Step, address: Lanes, type: str, bits: int, mask: Mask
    ) -> Lanes:
        width = type_bits(type) // 8
        cells = self._cells(address, width, mask)
        unsafe = cells is None or _in_open_loop(runner)
        if cells is None or unsafe or self.image.disturbed(cells, width, mask):
            if width == 8:
                raise SharedTrouble
            return any_of_type(type, bits, step.index)
        word = settled(runner, self.image.load(cells, width, step.index), 8 * width)
        if word.why < 0:
            word = lanes.copied(word)
            word.why = step.index
        if width < CELL:
            word = _piece(word, address, width, type, step.index)
        # Where nothing is known, the type still says something.
        open_ = lanes.spans(word) >= np.uint64(MASK[min(8 * width, 64)])
        if width < 8 and open_.any():
            anything = any_of_type(type, bits, step.index)
            return lanes.merge(open_, anything, lanes.truncate(extend(word, type), bits))
        return lanes.truncate(extend(word, type), bits) if bits > 8 * width else word


def _in_open_loop(runner: SliceState) -> bool:
    """Whether this is a loop whose end depends on data: what is stored in a round is not run to an
    end."""
    return bool((runner.arriving.may & ~runner.arriving.strong).any())


def _piece(cell: Lanes, address: Lanes, width: int, type: str, index: int) -> Lanes:
    """One or two bytes of a cell."""
    bits = 8 * width
    kind = HARD if cell.kind else NUMBER
    if cell.span is not None:
        return lanes.of_kind(lanes.unknown(bits, index), kind)
    shift = (address.low() % np.uint64(CELL)) * np.uint64(8)
    return Lanes((cell.low() >> shift) & np.uint64(MASK[bits]), kind=kind)


def _extent(runner: SliceState, step: Step, effect: MemoryEffect) -> int | None:
    """How many bytes from its address an effect writes; None if that is not one number."""
    if isinstance(effect.extent, SizeOperand):
        place = effect.extent.index
        return _known_number(runner, step.instruction.operands[place], step.index)
    return most_bytes(runner, step, effect)


def _known_number(runner: SliceState, operand: ptx.Operand, index: int) -> int | None:
    """The number that an operand is for every thread."""
    value = runner.value(operand, 32, index)
    low, high = value.bounds()
    return low if value.span is None and low == high else None


def _is_anything(value: Lanes) -> bool:
    """Whether a 64-bit value is unknown in all threads, and no address."""
    span = lanes.spans(value)
    return bool((span == np.uint64(MASK[64])).all()) and not value.low().any() and not value.kind


def _split_warps(may: Flags, sure: Flags) -> bool:
    """Whether some threads of a warp may be here without the others surely being here."""
    flat = np.broadcast_arrays(may, sure)
    threads = flat[0].shape[-1]
    width = -(-threads // WARP) * WARP
    padded = []
    for array, missing in zip(flat, (False, True), strict=True):
        grown = np.full((*array.shape[:-1], width), missing)
        grown[..., :threads] = array
        padded.append(grown.reshape(*array.shape[:-1], -1, WARP))
    some, every = padded[0].any(axis=-1), padded[1].all(axis=-1)
    return bool((some & ~every).any())
