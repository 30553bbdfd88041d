"""The state of an excerpt in the middle of a run, as the parts that run instructions see it.

The state has registers and local words, the current threads, the values of operands, and the
recorder of accesses. `steps` runs instructions on it; calls, local memory, loads, tensor copies,
made maps and shared memory have files of their own, which see only this state. A register that
nothing wrote, and an unknown name, can hold anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tessera.ir.arrays import Flags, Offsets, Words
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.constants import integer_value
from tessera.ir.ptx.layout import alignment, size_bytes
from tessera.passes.footprint.both_ways import Guarded, Side, SureWrite, common_writes
from tessera.passes.footprint.halves import Halves
from tessera.passes.footprint.moved_products import MovedProducts
from tessera.passes.footprint.pieces import GridPiece, whole_grid
from tessera.passes.footprint.recorder import Recorder
from tessera.passes.footprint.scene import Scene, special_values
from tessera.passes.footprint.zones import LOCAL, PARAMETER
from tessera.passes.kernel_facts.kernel_code import KernelCode, Step
from tessera.passes.kernel_facts.operand_names import SINK
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.digits import NotAlike, Split
from tessera.passes.lane_values.lanes import HARD, NUMBER, POINTER, BySign, Lanes
from tessera.passes.lane_values.masks import ALL, NONE, Mask, selected
from tessera.passes.lane_values.narrowing import narrowed
from tessera.passes.lane_values.predicates import invert
from tessera.passes.lane_values.symbols import Assumptions, Bounds
from tessera.passes.lane_values.warps import agreeing, choose, merged_choice
from tessera.wording import Wording

_APART = 1 << 20
Key = str | tuple[int, int]
"""A register by its name, or a local word by offset and width."""
Field = tuple[str, int]
"""A field of a tensor map, and its axis."""


@dataclass(slots=True)
class MadeMaps:
    """The map under construction, and the maps that were copied to global memory."""

    first: int = -1
    place: str = ""
    fields: dict[Field, int] = field(default_factory=dict)
    copies: list[tuple[Words, Flags, bytes]] = field(default_factory=list)

    def drop(self) -> None:
        """Forget the map under construction."""
        self.first, self.place, self.fields = -1, "", {}

    def content_at(self, addresses: Words, here: Flags) -> bytes | None:
        """The map that all threads here find at their addresses: the last that was copied there."""
        for known, ctas, content in reversed(self.copies):
            (same,) = selected(here, (known == addresses) & ctas)
            if same.any():
                # A map made again for only some CTAs: there is no single map.
                return content if same.all() else None
        return None


class Follower(Protocol):
    """Follows the use of shared memory by an excerpt."""

    def step(self, runner: SliceState, step: Step, mask: Mask) -> None:
        """Follow an instruction that may write shared memory, or order the accesses of threads."""
        ...

    def load(self, runner: SliceState, step: Step, mask: Mask) -> None:
        """Write the results of a load from shared memory."""
        ...

    def call(self) -> None:
        """Account for a call that cannot be followed."""
        ...


class SliceState:
    """Registers, symbols and operands of a run, and the handling of results and accesses.

    `arriving` are the threads that reach the current instruction, whatever its guard says; `here`
    are those that execute it.
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
        self.code = code
        self.scene = scene
        self.recorder = recorder
        # A register that some path reads before it writes it can hold anything until then.
        self.registers: dict[Key, Lanes] = {
            name: lanes.unknown(code.widths[name], -1)
            for name in code.live.unwritten()
            if name in code.widths
        }
        self.pins: dict[int, Wording] = {}
        self.work = 0
        self.specials = special_values(scene, piece)
        # The starts and ends of variables in local memory.
        self.local_variables: list[tuple[int, int]] = []
        self.symbols = self._place_symbols()
        self.origins: dict[Key, int] = {}
        # The greatest kind of any value that was stored in local memory.
        self.local_kind = NUMBER
        # The current side of a branch that depends on data, if any; writes under predicates.
        self.side: Side | None = None
        self.elections = 0
        self.made_maps = MadeMaps()
        self.piece = piece
        self.guarded_writes: dict[str, Guarded] = {}
        self.shared_symbols = self._place_shared()
        self.alignments = self._alignments()
        # Instructions whose unknown results may be distances between objects.
        self.hiding = code.hidden.where(
            scene.parameter_offsets, scene.pointer_words, has_tables=bool(scene.holders)
        )
        self.shared = shared
        # Whether many rounds of a loop are being followed at once.
        self.in_rounds = False
        self.halves = Halves()
        self.products = MovedProducts(code)
        self.assumed = Assumptions()
        # Numbers from memory with names, by what they are loaded from.
        self.loads: dict[object, Lanes] = {}

    def _place_symbols(self) -> dict[str, int]:
        """Addresses of parameters, of local variables, and of module variables."""
        zones = self.scene.zones
        addresses = {n: zones.address(zone) for n, zone in self.scene.symbols.items()}
        for name, offset in self.scene.parameter_offsets.items():
            addresses[name] = zones.address(PARAMETER, offset)
        start = _APART
        for variable in self.code.flat.variables:
            if variable.space in {"global", "const"}:
                # A variable of a function is not a buffer, even if the module has one of that name.
                addresses.pop(variable.name, None)
            if variable.space not in {"local", "param"}:
                continue
            addresses[variable.name] = zones.address(LOCAL, start)
            end = start + (size_bytes(variable) or 64)
            self.local_variables.append((start, end))
            # It is unknown which variable follows in memory, so variables are placed apart: an
            # address that leaves a variable is in no variable.
            start = (end + _APART) // _APART * _APART
        return addresses

    def _alignments(self) -> dict[int, int]:
        """The alignment of variables, by zone; allocations are aligned to 256 bytes."""
        zones = self.scene.symbols
        own = {zones[v.name]: v for v in self.code.module.variables() if v.name in zones}
        return {LOCAL: 1, PARAMETER: 4} | {zone: alignment(v) for zone, v in own.items()}

    def _place_shared(self) -> dict[str, int]:
        """Addresses of shared variables, if nothing depends on their numeric values."""
        use = self.code.shared
        if use is None or not use.is_plain:
            return {}
        return {name: variable.base for name, variable in use.variables.items()}

    def by_cta(self, values: Words, ctas: Flags) -> tuple[Words, Offsets]:
        """The values of some CTAs (arrays with the axes of `Lanes`), and the CTAs' numbers."""
        piece = self.piece or whole_grid(self.scene.grid)
        if piece.digits:
            raise Split(piece.digits)
        x, y, z = (axis.places() for axis in piece.axes)
        columns, rows, _ = self.scene.extent
        numbers = ((z[:, None, None] * rows + y[:, None]) * columns + x)[..., None]
        chosen, places = selected(ctas, values, numbers.astype(np.uint64))
        return chosen, places.astype(np.int64)

    def bits(self, key: Key) -> int:
        """The width of a register or of a local word."""
        return self.code.widths.get(key, 64) if isinstance(key, str) else 8 * key[1]

    def origin(self, key: Key) -> int:
        """The instruction that writes a register, for messages."""
        return self.origins.get(key, -1)

    # --- operands --------------------------------------------------------------------------

    def predicate(self, guard: ptx.Guard) -> Lanes:
        """Whether a guard lets an instruction run."""
        value = self._register(guard.register, 1, -1)
        return choose(lambda given: (invert(given[0]),), [value])[0] if guard.negated else value

    def guarded(self, instruction: ptx.Instruction, mask: Mask) -> Mask | None:
        """The threads that execute an instruction."""
        if instruction.guard is None:
            return mask
        chosen = mask.narrow(self.predicate(instruction.guard))
        if chosen is not None and self.side is not None and mask.election == -1:
            # On one side of a branch that depends on data, no thread is certain, elected or not.
            chosen.election = -1
        return chosen

    def _register(self, name: str, bits: int, index: int) -> Lanes:
        value = self.registers.get(name)
        if value is None:
            return lanes.unknown(bits, index)
        width = self.code.widths.get(name, bits)
        if value.form is not None or value.signs is not None:
            value = narrowed(value, width)
        return lanes.truncate(value, bits) if bits < width else value

    def value(self, operand: ptx.Operand, bits: int, index: int) -> Lanes:
        """An operand as a value of `bits` bits."""
        match operand:
            case ptx.Name():
                return self._named(operand, bits, index)
            case ptx.Not():
                return invert(self._register(operand.operand.name, 1, index))
            case ptx.Float():
                # A float constant of another width is rounded to the type of the instruction.
                same = operand.width == bits
                return lanes.scalar(operand.bits, bits) if same else lanes.unknown(bits, index)
            case ptx.Offset():
                base = self._named(operand.base, bits, index)
                moved = self.value(operand.displacement, bits, index)
                total = lanes.add(base, moved, bits)
                if base.signs is not None:
                    key, *sides = base.signs
                    total.signs = BySign(key, *(lanes.add(side, moved, bits) for side in sides))
                return total
            case ptx.Integer() | ptx.Unary() | ptx.Binary() | ptx.Conditional() | ptx.Cast():
                number = integer_value(operand)
                return lanes.unknown(bits, index) if number is None else lanes.scalar(number, bits)
        return lanes.unknown(bits, index)

    def _named(self, name: ptx.Name, bits: int, index: int) -> Lanes:
        if name.name in self.code.widths:
            if name.component is not None:
                return lanes.unknown(bits, index)
            return self._register(name.name, bits, index)
        text = name.name if name.component is None else f"{name.name}.{name.component}"
        special = self.specials.get(text)
        if special is not None:
            return special
        if name.name in self.symbols and bits == 64:
            return lanes.of_kind(lanes.scalar(self.symbols[name.name]), POINTER)
        if name.name in self.shared_symbols and bits >= 32:
            return lanes.scalar(self.shared_symbols[name.name])
        return lanes.unknown(bits, index)

    def address(self, operand: ptx.Operand, index: int) -> Lanes:
        """The address that an operand in brackets stands for."""
        if not isinstance(operand, ptx.Address) or len(operand.parts) != 1:
            if isinstance(operand, ptx.Subscript):
                return self._subscript(operand, index)
            return self.value(operand, 64, index)
        part = operand.parts[0]
        if isinstance(part, ptx.Subscript):
            return self._subscript(part, index)
        names = [part.base] if isinstance(part, ptx.Offset) else [part]
        if any(isinstance(n, ptx.Name) and self.code.widths.get(n.name, 64) < 64 for n in names):
            # A 32-bit address of local or parameter memory.
            return lanes.unknown(64, index)
        return self.value(part, 64, index)

    def _subscript(self, operand: ptx.Subscript, index: int) -> Lanes:
        if operand.name not in self.symbols:
            return lanes.unknown(64, index)
        return lanes.unknown(64, index, self.symbols[operand.name])

    # --- results and accesses ----------------------------------------------------------------

    def assign(self, key: Key, value: Lanes, mask: Mask) -> None:
        """Write a register: replace the value of strong threads, join that of the others."""
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
        """Make every register that a step writes unknown."""
        for name in step.targets:
            if name in self.code.needed:
                bits = self.bits(name)
                value = lanes.unknown(bits, step.index, anchor)
                self.write(step, name, lanes.of_kind(value, max(kind, value.kind)), mask)

    def elected(self, values: Sequence[Flags | Words]) -> Flags:
        """The threads here in warps where every thread that may be elected has the same values."""
        if self.here.election == -1:
            return NONE
        return agreeing(self.here.elected, values, self.scene.threads)

    def told(self, guard: ptx.Guard | None) -> Bounds:
        """What is known of symbols where a guard lets an instruction run."""
        facts = None if guard is None else self.predicate(guard).facts
        return () if facts is None else facts.true

    def note(self, step: Step, number: int, address: Lanes, width: int, mask: Mask) -> None:
        """Record an access; on a side of a branch that depends on data, nothing is certain yet."""
        sure = mask.sure
        address = lanes.exact_in(address, mask.may)
        access = step.effects[number].access
        writes = not access.reads and address.span is None
        if self.side is not None:
            if writes and sure.any():
                self.side.add(_sure_write(step, number, address, width, sure))
            sure = NONE
        self.recorder.add(step.index, number, address, width, mask.may, sure)
        if writes and self.here.election != -1:
            chosen = self.elected([address.low(), mask.may]) & mask.may
            if chosen.any():
                self.recorder.add_sure(_sure_write(step, number, address, width, chosen))
        if writes and step.instruction.guard is not None:
            self._note_guarded(step, number, step.instruction.guard, address, width)

    def _note_guarded(
        self, step: Step, number: int, guard: ptx.Guard, address: Lanes, width: int
    ) -> None:
        """Pair a write under a predicate that depends on data with one under its negation."""
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
        """Make writes on both sides as certain as the branch itself."""
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
        """Forget the contents of local memory."""
        for key in [k for k in self.registers if not isinstance(k, str)]:
            del self.registers[key]


def _sure_write(step: Step, number: int, address: Lanes, width: int, sure: Flags) -> SureWrite:
    return SureWrite(step.index, number, address.start, width, sure, address.slopes)
