"""The state of an excerpt in the middle of a run, as the parts that run instructions see it.

Registers and local words, the threads at hand, and where accesses go. `steps` runs instructions
on it; calls, local memory, loads, tensor copies, made maps and shared memory have files of their
own, which see this and no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from tessera.ir.arrays import Flags, Words
from tessera.ir.ptx import syntax as ptx
from tessera.passes.footprint.both_ways import Guarded, Side, SureWrite, common_writes
from tessera.passes.footprint.operands import Key, Operands
from tessera.passes.footprint.pieces import GridPiece
from tessera.passes.footprint.recorder import Recorder
from tessera.passes.footprint.scene import Scene
from tessera.passes.kernel_facts.kernel_code import KernelCode, Step
from tessera.passes.kernel_facts.operand_names import SINK
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.digits import NotAlike
from tessera.passes.lane_values.elections import agreeing, merged_choice
from tessera.passes.lane_values.lanes import HARD, NUMBER, Lanes
from tessera.passes.lane_values.masks import ALL, NONE, Mask


class Follower(Protocol):
    """Who is told what an excerpt does with shared memory."""

    def step(self, runner: SliceState, step: Step, mask: Mask) -> None:
        """An instruction that may write shared memory, or order what threads do with it."""
        ...

    def load(self, runner: SliceState, step: Step, mask: Mask) -> None:
        """A load from shared memory: write its results."""
        ...

    def call(self) -> None:
        """A call that cannot be followed."""
        ...


class SliceState(Operands):
    """Registers, and what is done with the results and accesses of an instruction.

    `arriving` are the threads that come to the instruction at hand, whatever its guard says;
    `here` are those that execute it.
    """

    arriving: Mask = Mask(ALL, ALL, ALL)
    here: Mask = arriving

    def __init__(
        self,
        code: KernelCode,
        scene: Scene,
        piece: GridPiece | None,
        recorder: Recorder,
        shared: Follower | None = None,
    ) -> None:
        super().__init__(code, scene, piece, recorder)
        self.shared = shared
        # Whether many rounds of a loop are being followed at once.
        self.in_rounds = False

    def assign(self, key: Key, value: Lanes, mask: Mask) -> None:
        """Write a register: replace where strong, join where it only may happen."""
        old = self.registers.get(key)
        if old is None or mask.everybody:
            self.registers[key] = value
            return
        self.work += 4 * max(value.size, mask.may.size)
        weak = mask.may & ~mask.strong
        result = lanes.merge(mask.strong, value, old)
        if weak.any():
            result = lanes.merge(weak, lanes.join(old, value, self.bits(key)), result)
        if value.choice is not None and not weak.any():
            result.choice = merged_choice(mask.strong, value, old)
        self.registers[key] = result

    def write(self, step: Step, name: str, value: Lanes, mask: Mask) -> None:
        """Write a register, the result of a step."""
        if name == SINK:
            return
        self.work += 8 + value.size
        self.origins[name] = step.index
        if step.index in self.hiding and value.span is not None and value.kind == NUMBER:
            value = lanes.of_kind(value, HARD)
        self.assign(name, value, mask)

    def unknown_results(self, step: Step, mask: Mask, anchor: int = 0, kind: int = 0) -> None:
        """Let every register that a step writes be anything."""
        for name in step.targets:
            if name in self.code.needed:
                bits = self.code.widths.get(name, 64)
                value = lanes.unknown(bits, step.index, anchor)
                self.write(step, name, lanes.of_kind(value, max(kind, value.kind)), mask)

    def elected(self, values: Sequence[Flags | Words]) -> Flags:
        """The threads here of warps of which one is elected, whoever it is, with these values."""
        if self.here.election == -1:
            return NONE
        return agreeing(self.here.elected, values, self.scene.threads)

    def note(self, step: Step, number: int, address: Lanes, width: int, mask: Mask) -> None:
        """Record an access; on a side of a branch that data decides, nothing is certain yet."""
        sure = mask.sure
        address = lanes.exact_in(address, mask.may)
        access = step.effects[number].access
        writes = access.writes and not access.reads and address.span is None
        if self.side is not None:
            if writes and sure.any():
                self.side.add(_sure_write(step, number, address, width, sure))
            sure = NONE
        self.recorder.add(step.index, number, address, width, mask.may, sure)
        if writes and self.here.election != -1:
            chosen = self.elected([address.lo, mask.may]) & mask.may
            if chosen.any():
                self.recorder.add_sure(_sure_write(step, number, address, width, chosen))
        if writes and step.instruction.guard is not None:
            self._note_guarded(step, number, step.instruction.guard, address, width)

    def _note_guarded(
        self, step: Step, number: int, guard: ptx.Guard, address: Lanes, width: int
    ) -> None:
        """A write under a predicate that data decides: look for it under the opposite."""
        value = self.registers.get(guard.register)
        if value is None or value.span is None:
            return
        if self.in_rounds:
            raise NotAlike
        sure = self.arriving.sure & value.span.astype(np.bool_)
        if not sure.any():
            return
        known = self.guarded_writes.get(guard.register)
        if known is None or known.value is not value:
            known = self.guarded_writes[guard.register] = Guarded(value)
        write = _sure_write(step, number, address, width, sure)
        known.sides[guard.negated].add(write)
        self.settle_writes(Side([write]), known.sides[not guard.negated])

    def settle_writes(self, first: Side, second: Side) -> None:
        """What is written on both sides is certain, as far as coming here was."""
        for write in common_writes(first, second):
            self.work += 4 * write.lo.size
            if self.side is not None:
                self.side.add(write)
            else:
                self.recorder.add_sure(write)

    def common_zone(self, address: Lanes) -> int | None:
        """The zone of every thread's address, or None."""
        zone = self.scene.zones.between(*address.bounds()) if address.size else None
        return None if zone is None else zone[0]

    def forget_words(self) -> None:
        """Nothing is known of local memory any more."""
        for key in [k for k in self.registers if not isinstance(k, str)]:
            del self.registers[key]


def _sure_write(step: Step, number: int, address: Lanes, width: int, sure: Flags) -> SureWrite:
    return SureWrite(step.index, number, address.start, width, sure, address.slopes)
