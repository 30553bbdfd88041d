"""Ranges and known bits of a kernel's registers, for every launch at once.

In: a `KernelCode`. Out: for every register that a kept instruction writes, at that instruction,
an interval and known bits that hold in every thread of every launch. Branches narrow ranges: on the
side where `%r < n` holds, `%r` is below the greatest `n`. Guards of instructions narrow ranges in
the same way.

States of blocks are joined where paths meet. At a block that changes for the third time, the values
that change are widened, first to the end of the non-negative numbers, then to everything. Transfer
functions are those of the analysis of launches (`lane_ops`), applied to a single value.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from tessera.ir.opcodes import Flow, OperandRole, type_bits
from tessera.ir.opcodes.comparisons import INVERSE_COMPARISONS, MIRRORED_COMPARISONS, UNSIGNED_NAMES
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.constants import integer_value
from tessera.ir.ptx.types import is_type
from tessera.passes.kernel_facts import known_bits
from tessera.passes.kernel_facts.kernel_code import KernelCode, Step
from tessera.passes.kernel_facts.known_bits import NOTHING, KnownBits
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lane_ops import source_bits
from tessera.passes.lane_values.lanes import MASK, Lanes

_SPECIALS = {
    "%tid.x": (0, 1023),
    "%tid.y": (0, 1023),
    "%tid.z": (0, 63),
    "%laneid": (0, 31),
    "%ntid.x": (1, 1024),
    "%ntid.y": (1, 1024),
    "%ntid.z": (1, 64),
    "WARP_SZ": (32, 32),
    "%ctaid.x": (0, 2**31 - 2),
    "%ctaid.y": (0, 65534),
    "%ctaid.z": (0, 65534),
    "%nctaid.x": (1, 2**31 - 1),
    "%nctaid.y": (1, 65535),
    "%nctaid.z": (1, 65535),
}
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class RangedValue:
    """The known facts about one value: an interval (`lanes`, of one thread) and bits."""

    range: Lanes
    bits: KnownBits

    def bounds(self, width: int) -> tuple[int, int] | None:
        """The least and greatest number, signed if that range is shorter; None for everything."""
        low = int(self.range.low().flat[0])
        span = 0 if self.range.span is None else int(self.range.span.flat[0])
        if span >= MASK[width]:
            return None
        if low + span > MASK[width]:
            low -= 1 << width
        return low, low + span


State = dict[str, RangedValue]
Place = tuple[int, str]


class ValueRanges:
    """One analysis of a kernel; `values` has a value for each instruction and register."""

    def __init__(self, code: KernelCode) -> None:
        self.code = code
        self.specials = _special_ranges(code)
        self.values: dict[Place, RangedValue] = {}
        self.rank = {block: i for i, block in enumerate(code.flow.order)}
        self.block_of = {step.index: block for block in code.blocks for step in block}

    def run(self) -> dict[Place, RangedValue]:
        """Walk the blocks until nothing changes."""
        entries: dict[int, State] = {0: {}}
        visits: dict[int, int] = {}
        pending = {0}
        while pending:
            block = min(pending, key=self.rank.__getitem__)
            pending.discard(block)
            visits[block] = visits.get(block, 0) + 1
            state = dict(entries[block])
            for step in self.code.blocks[block]:
                self._step(step, state)
            for target in self.code.flow.blocks[block].successors:
                out = self._narrowed(block, target, state)
                if out is not None and self._merge(entries, target, out, visits.get(target, 0)):
                    pending.add(target)
        return self.values

    # --- instructions ------------------------------------------------------------------------

    def _step(self, step: Step, state: State) -> None:
        guard = step.instruction.guard
        inside: State | None = state
        if guard is not None and step.targets:
            inside = self._under(step, state, guard.register, holds=not guard.negated)
        if inside is None:
            return
        results = self._results(step, inside)
        for name, value in results.items():
            if guard is not None:
                old = state.get(name)
                value = self._join(name, old, value) if old is not None else self._anything(name)
            state[name] = value
            self.values[step.index, name] = value

    def _results(self, step: Step, state: State) -> State:
        width = {name: self.code.widths.get(name, 64) for name in step.targets}
        is_known = len(step.targets) == 1 and step.function is not None
        if not is_known or step.instruction.opcode.name == "setp" or step.effects:
            return {name: self._anything(name) for name in step.targets}
        name = step.targets[0]
        values = self._sources(step, state)
        if values is None or width[name] not in MASK:
            return {name: self._anything(name)}
        assert step.function is not None
        computed = lanes.truncate(step.function([v.range for v in values]), width[name])
        opcode = step.instruction.opcode
        bits = known_bits.opcode_bits(opcode, [v.bits for v in values], width[name])
        return {name: self._settle(computed, bits, width[name])}

    def _settle(self, value_range: Lanes, bits: KnownBits, width: int) -> RangedValue:
        low, high = (int(b.flat[0]) for b in lanes.unsigned_bounds(value_range, width))
        if low == high:
            return RangedValue(value_range, known_bits.constant_bits(low, width))
        return RangedValue(value_range, known_bits.both(bits, known_bits.bounded_bits(high, width)))

    def _sources(self, step: Step, state: State) -> list[RangedValue] | None:
        opcode = step.instruction.opcode
        types = [m for m in opcode.modifiers if is_type(m)]
        width = min(64, type_bits(types[-1])) if types else 64
        wanted = (OperandRole.SOURCE, OperandRole.IMMEDIATE, OperandRole.PREDICATE)
        sources: list[RangedValue] = []
        for role, operand in zip(step.meaning.roles, step.instruction.operands, strict=False):
            if role in wanted:
                bits = (
                    1 if role is OperandRole.PREDICATE else source_bits(opcode, len(sources), width)
                )
                sources.append(self._operand(operand, bits, state))
        return sources

    def _operand(self, operand: ptx.Operand, bits: int, state: State) -> RangedValue:
        if isinstance(operand, ptx.Name):
            if operand.name in self.code.widths and operand.component is None:
                value = state.get(operand.name)
                if value is None:
                    return self._unknown(bits)
                return RangedValue(lanes.truncate(value.range, bits), value.bits)
            text = f"{operand.name}.{operand.component}" if operand.component else operand.name
            bounds = self.specials.get(text)
            if bounds is not None:
                return self._settle(lanes.between(*bounds, bits, 0), NOTHING, bits)
            return self._unknown(bits)
        if isinstance(operand, ptx.Integer | ptx.Unary | ptx.Binary | ptx.Cast):
            number = integer_value(operand)
            if number is not None:
                return self._settle(lanes.scalar(number, bits), NOTHING, bits)
        return self._unknown(bits)

    def _unknown(self, bits: int) -> RangedValue:
        return RangedValue(lanes.unknown(bits, 0), NOTHING)

    def _anything(self, name: str) -> RangedValue:
        return self._unknown(self.code.widths.get(name, 64))

    # --- where states meet -------------------------------------------------------------------

    def _join(self, name: str, left: RangedValue, right: RangedValue) -> RangedValue:
        width = self.code.widths.get(name, 64)
        return RangedValue(lanes.join(left.range, right.range, width), left.bits.join(right.bits))

    def _merge(self, entries: dict[int, State], target: int, out: State, visits: int) -> bool:
        """Join a state into the entry state of a block; return whether that changed it."""
        old = entries.get(target)
        if old is None:
            entries[target] = out
            return True
        merged: State = {}
        changed = False
        for name in old.keys() & out.keys():
            joined = self._join(name, old[name], out[name])
            if not _same(joined, old[name]):
                changed = True
                joined = self._widened(name, old[name], joined) if visits >= _ROUNDS else joined
            merged[name] = joined
        changed |= len(merged) != len(old)
        entries[target] = merged
        return changed

    def _widened(self, name: str, old: RangedValue, new: RangedValue) -> RangedValue:
        width = self.code.widths.get(name, 64)
        top = MASK[width] >> 1 if width in MASK else 0
        before, after = old.bounds(width), new.bounds(width)
        grows = before is not None and after is not None and before[0] == after[0] >= 0
        if grows and after is not None and after[1] < top:
            return RangedValue(lanes.between(after[0], top, width, 0), new.bits)
        return RangedValue(lanes.unknown(width, 0), new.bits)

    # --- branches ------------------------------------------------------------------------------

    def _narrowed(self, block: int, target: int, state: State) -> State | None:
        """The state on the edge to one successor; None if no thread goes there."""
        steps = self.code.blocks[block]
        last = steps[-1] if steps else None
        guard = last.instruction.guard if last is not None else None
        ways = self.code.flow.blocks[block].successors
        if last is None or guard is None or len(ways) > 2 or last.meaning.flow is Flow.NEXT:
            return state
        falls = target == block + 1
        jumps = last.instruction.opcode.name == "bra"
        if falls and jumps and ways[0] == target:
            return state
        return self._under(last, state, guard.register, holds=guard.negated == falls)

    def _under(self, step: Step, state: State, register: str, *, holds: bool) -> State | None:
        """The state in which a predicate holds or does not hold; None if that is impossible."""
        test = self._test_of(step, register)
        if test is None:
            return state
        modifiers = test.instruction.opcode.modifiers
        name = next((m for m in modifiers if m in INVERSE_COMPARISONS), None)
        kind = next((m for m in reversed(modifiers) if is_type(m)), "")
        if name is None or kind[:1] not in "sub" or {"and", "or", "xor"} & set(modifiers):
            return state
        name = name if holds else INVERSE_COMPARISONS[name]
        signed = kind.startswith("s")
        left, right = test.instruction.operands[1:3]
        narrowed = dict(state)
        operator = UNSIGNED_NAMES.get(name, name)
        for mine, other, sign in (
            (left, right, operator),
            (right, left, MIRRORED_COMPARISONS[operator]),
        ):
            if not isinstance(mine, ptx.Name) or mine.name not in state or mine.component:
                continue
            bits = type_bits(kind)
            if self.code.widths.get(mine.name) != bits:
                continue
            cut = _cut(state[mine.name], self._operand(other, bits, state), sign, bits, signed)
            if cut is None:
                return None
            narrowed[mine.name] = cut
        return narrowed

    def _test_of(self, step: Step, register: str) -> Step | None:
        """The `setp` behind a predicate, if its operands still hold the same values."""
        before = [s for s in self.block_of[step.index] if s.index < step.index]
        for place, writer in reversed(list(enumerate(before))):
            if register in writer.targets:
                if writer.instruction.opcode.name != "setp" or writer.instruction.guard is not None:
                    return None
                later = {name for s in before[place + 1 :] for name in s.targets}
                names = {o.name for o in writer.instruction.operands[1:] if isinstance(o, ptx.Name)}
                first = writer.targets[0] == register
                return writer if first and not names & later else None
        return None


def _same(left: RangedValue, right: RangedValue) -> bool:
    return lanes.equal(left.range, right.range) and left.bits == right.bits


def _cut(
    value: RangedValue, other: RangedValue, sign: str, bits: int, signed: bool
) -> RangedValue | None:
    """A value for which `value sign other` can hold; None if it cannot."""
    bounds = lanes.biased_bounds if signed else lanes.unsigned_bounds
    low, high = (int(b.flat[0]) for b in bounds(value.range, bits))
    least, most = (int(b.flat[0]) for b in bounds(other.range, bits))
    match sign:
        case "lt":
            high = min(high, most - 1)
        case "le":
            high = min(high, most)
        case "gt":
            low = max(low, least + 1)
        case "ge":
            low = max(low, least)
        case "eq":
            low, high = max(low, least), min(high, most)
        case "ne" if least == most:
            low, high = low + (low == least), high - (high == least)
    if low > high:
        return None
    build = lanes.from_biased if signed else lanes.from_bounds
    first, last = (np.array([[number]], dtype=np.uint64) for number in (low, high))
    return RangedValue(build(first, last, bits, 0), value.bits)


def _special_ranges(code: KernelCode) -> dict[str, tuple[int, int]]:
    """The ranges of special registers; `.reqntid` and `.maxntid` narrow those of the block."""
    ranges = dict(_SPECIALS)
    for directive in code.function.directives:
        name = directive.name.lstrip(".")
        if name not in {"reqntid", "maxntid"}:
            continue
        given = [integer_value(v) for v in directive.values if isinstance(v, ptx.Integer)]
        sizes = [size or 1 for size in (*given, 1, 1, 1)][:3]
        for axis, size in zip("xyz", sizes, strict=True):
            if name == "reqntid":
                ranges[f"%ntid.{axis}"] = (size, size)
                ranges[f"%tid.{axis}"] = (0, size - 1)
            else:
                # The product is a bound; a block may spend it all on one axis.
                most = min(prod(sizes), ranges[f"%ntid.{axis}"][1])
                ranges[f"%ntid.{axis}"] = (1, most)
                ranges[f"%tid.{axis}"] = (0, most - 1)
    return ranges
