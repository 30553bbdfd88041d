"""Operands of an excerpt's instructions as `Lanes`: registers, special registers, symbols, numbers.

A register that nothing wrote, and a name that stands for nothing known, can hold anything.
"""

from __future__ import annotations

import numpy as np

from tessera.ir.arrays import Flags, Offsets, Words
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.constants import integer_value
from tessera.ir.ptx.layout import alignment, size_bytes
from tessera.passes.footprint.both_ways import Guarded, Side
from tessera.passes.footprint.map_table import MadeMaps
from tessera.passes.footprint.pieces import GridPiece, whole_grid
from tessera.passes.footprint.recorder import Recorder
from tessera.passes.footprint.scene import Scene, special_values
from tessera.passes.footprint.zones import LOCAL, PARAMETER
from tessera.passes.kernel_facts.kernel_code import KernelCode
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.digits import Split
from tessera.passes.lane_values.elections import choose
from tessera.passes.lane_values.lanes import NUMBER, POINTER, Lanes
from tessera.passes.lane_values.masks import Mask
from tessera.passes.lane_values.predicates import invert

_APART = 1 << 20
Key = str | tuple[int, int]
"""A register by its name, or a local word by offset and width."""


class Operands:
    """The registers of a run, its symbols, and the values of operands."""

    def __init__(
        self, code: KernelCode, scene: Scene, piece: GridPiece | None, recorder: Recorder
    ) -> None:
        self.code = code
        self.scene = scene
        self.recorder = recorder
        # Those that some way reads before it writes them hold anything until then.
        self.registers: dict[Key, Lanes] = {
            name: lanes.unknown(code.widths[name], -1)
            for name in code.live.unwritten()
            if name in code.widths
        }
        self.pins: dict[int, str] = {}
        self.work = 0
        self.specials = special_values(scene, piece)
        # Where in local memory variables start and end.
        self.local_variables: list[tuple[int, int]] = []
        self.symbols = self._place_symbols()
        self.origins: dict[str, int] = {}
        # The greatest kind of any value that was stored in local memory.
        self.local_kind = NUMBER
        # The side of a branch that is being run, if data decides it; writes under predicates.
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

    def _place_symbols(self) -> dict[str, int]:
        """Addresses of parameters, of local variables, and of module variables."""
        zones = self.scene.zones
        addresses = {n: zones.address(zone) for n, zone in self.scene.symbols.items()}
        for name, offset in self.scene.parameter_offsets.items():
            addresses[name] = zones.address(PARAMETER, offset)
        start = _APART
        for variable in self.code.flat.variables:
            if variable.space in {"global", "const"}:
                # A variable of a function is no buffer, whatever the module has of that name.
                addresses.pop(variable.name, None)
            if variable.space not in {"local", "param"}:
                continue
            addresses[variable.name] = zones.address(LOCAL, start)
            end = start + (size_bytes(variable) or 64)
            self.local_variables.append((start, end))
            # Nobody knows which variable follows, so none does: what leaves one is in none.
            start = (end + _APART) // _APART * _APART
        return addresses

    def _alignments(self) -> dict[int, int]:
        """What variables begin at multiples of, by zone; allocations at those of 256."""
        zones = self.scene.symbols
        own = {zones[v.name]: v for v in self.code.module.variables() if v.name in zones}
        return {LOCAL: 1, PARAMETER: 4} | {zone: alignment(v) for zone, v in own.items()}

    def _place_shared(self) -> dict[str, int]:
        """Addresses of shared variables, where nothing hangs on their numbers."""
        use = self.code.shared
        if use is None or not use.is_plain:
            return {}
        return {name: variable.base for name, variable in use.variables.items()}

    def by_cta(self, values: Words, ctas: Flags) -> tuple[Words, Offsets]:
        """The values of some CTAs (arrays with the axes of `Lanes`), and the CTAs' numbers."""
        piece = self.piece or whole_grid((1, 1, 1))
        if piece.digits:
            raise Split(piece.digits)
        x, y, z = (axis.places() for axis in piece.axes)
        columns, rows, _ = self.scene.grid
        numbers = ((z[:, None, None] * rows + y[:, None]) * columns + x)[..., None]
        shape = np.broadcast_shapes(numbers.shape, values.shape, ctas.shape)
        chosen = np.broadcast_to(ctas, shape)
        return np.broadcast_to(values, shape)[chosen], np.broadcast_to(numbers, shape)[chosen]

    def bits(self, key: Key) -> int:
        """The width of a register or of a local word."""
        return self.code.widths.get(key, 64) if isinstance(key, str) else 8 * key[1]

    def origin(self, key: Key) -> int:
        """The instruction that writes a register, for messages."""
        return self.origins.get(key, -1) if isinstance(key, str) else -1

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
            # On one side of a branch that data decides nothing is certain, elected or not.
            chosen.election = -1
        return chosen

    def _register(self, name: str, bits: int, index: int) -> Lanes:
        value = self.registers.get(name)
        if value is None:
            return lanes.unknown(bits, index)
        width = self.code.widths.get(name, bits)
        return lanes.truncate(value, bits) if bits < width else value

    def value(self, operand: ptx.Operand, bits: int, index: int) -> Lanes:
        """An operand as a value of `bits` bits."""
        match operand:
            case ptx.Name():
                return self._named(operand, bits, index)
            case ptx.Not():
                return invert(self._register(operand.operand.name, 1, index))
            case ptx.Float():
                # A constant of another width is rounded to the type of the instruction.
                same = operand.width == bits
                return lanes.scalar(operand.bits, bits) if same else lanes.unknown(bits, index)
            case ptx.Offset():
                base = self._named(operand.base, bits, index)
                moved = self.value(operand.displacement, bits, index)
                return lanes.add(base, moved, bits)
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
