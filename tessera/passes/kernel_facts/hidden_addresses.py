"""Results of unfollowed computations that may hide a distance between objects.

In: the instructions of a kernel, calls followed. Out: per instruction the parameter words whose
addresses its result may hide: not as an address, but as a combination of several addresses, or as
bits of one address. If the value of such a result is unknown, it is not an index: added to an
address, it may lead into another object (`HARD` of `lane_kinds`).

The excerpt tracks the kinds of its own values (`lane_kinds`), but it has no values for computations
that it does not follow: floating point, carries, video instructions, reductions over a warp, memory
that is written at unknown places or by anything but a plain store, calls. So this analysis looks at
all instructions, without order: a register *carries* the addresses of some words, or *hides* them.
A copy, a selection, and a sum with a value without addresses keep an address. Every other result
computed from addresses hides them. A stored value may come back from every load of that state
space.

Two computations are not detected: a distance that is assembled from comparisons, bit by bit, since
a predicate carries nothing; and a distance that is computed as floats from parts of an address of
at most 32 bits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tessera.ir.opcodes import Meaning, OperandRole, type_bits
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.constants import integer_value
from tessera.ir.ptx.flatten import FlatFunction
from tessera.ir.ptx.types import is_type
from tessera.passes.kernel_facts.doomed_blocks import never_returns
from tessera.passes.kernel_facts.inline_calls import call_parts
from tessera.passes.kernel_facts.operand_names import place_of, registers_in, written_registers

WordPlace = tuple[str, int, int]
"""A parameter, an offset in it, and a number of bytes; -1 bytes: anywhere in the parameter."""

_SYMBOL, _TABLE, _FIRST = 1, 2, 4
_PLAIN = frozenset({"mov", "cvta", "selp", "shfl", "min", "max"})
_VALUES = frozenset(
    {OperandRole.SOURCE, OperandRole.DESTINATION_SOURCE, OperandRole.UNKNOWN, OperandRole.ARGUMENTS}
)
_PLACED = frozenset({"global", "const", "local"})
_FLOAT = re.compile(r"b?f\d|tf\d|e\dm\d|ue\dm\d")
_LOW = 256
_OUTSIDE = frozenset({"global", "const", "generic"})
_SPACES = ("shared", "local", "global", "other")
Carried = tuple[int, int]
"""The set of carried words, and the set of hidden words, as bits."""


@dataclass(frozen=True, slots=True)
class HiddenAddresses:
    """The words that the result of each instruction may hide, as bits: one bit for the address of a
    variable, one for the addresses in tables, then one for each of `words`."""

    words: tuple[WordPlace, ...] = ()
    results: Mapping[int, int] = field(default_factory=dict)

    def where(
        self, offsets: Mapping[str, int], pointers: Sequence[int], *, has_tables: bool
    ) -> frozenset[int]:
        """The instructions that hide an address in a launch with addresses at `pointers` in its
        parameters and, with `has_tables`, in memory."""
        if not self.results:
            return frozenset()
        active = _SYMBOL | (_TABLE if has_tables else 0)
        for number, (name, offset, count) in enumerate(self.words):
            start = offsets.get(name)
            if start is None:
                continue
            low, high = (start + offset, start + offset + count) if count >= 0 else (0, 1 << 32)
            if any(word < high and low < word + 8 for word in pointers):
                active |= _FIRST << number
        return frozenset(index for index, bits in self.results.items() if bits & active)


def hidden_addresses(
    module: ptx.Module, flat: FlatFunction, meanings: Sequence[Meaning]
) -> HiddenAddresses:
    """The words that the results of one kernel's instructions may hide."""
    return _AddressFlow(module, flat, meanings).run()


class _AddressFlow:
    """The words that registers and state spaces carry and hide, computed until nothing changes."""

    def __init__(self, module: ptx.Module, flat: FlatFunction, meanings: Sequence[Meaning]) -> None:
        self.flat = flat
        self.defined = module.definitions()
        self.meanings = meanings
        self.parameters = frozenset(p.name for p in flat.function.parameters)
        self.widths = {register.name: type_bits(register.type) for register in flat.registers}
        variables = (*module.variables(), *flat.variables)
        self.symbols = frozenset(v.name for v in variables if v.space in _PLACED)
        self.words: dict[WordPlace, int] = {}
        self.known: dict[str, Carried] = {}
        self.users: dict[str, list[int]] = {}

    def run(self) -> HiddenAddresses:
        pending: list[int] = []
        for index, instruction in enumerate(self.flat.instructions):
            for name in self._read(instruction, self.meanings[index]):
                if name in self.widths or name.startswith("@"):
                    self.users.setdefault(name, []).append(index)
                elif name in self.symbols or name in self.parameters:
                    pending.append(index)
        results: dict[int, int] = {}
        while pending:
            index = pending.pop()
            for name, (carried, hidden) in self._written(index):
                if hidden and not name.startswith("@"):
                    results[index] = results.get(index, 0) | hidden
                old = self.known.get(name, (0, 0))
                new = (old[0] | carried, old[1] | hidden)
                if new != old:
                    self.known[name] = new
                    pending += self.users.get(name, ())
        return HiddenAddresses(tuple(self.words), results)

    def _read(self, instruction: ptx.Instruction, meaning: Meaning) -> Iterator[str]:
        for operand in instruction.operands:
            yield from registers_in(operand)
        for effect in meaning.effects:
            if effect.access.reads:
                yield from _spaces(effect.space)
        if instruction.opcode.name == "call":
            yield from _spaces("generic")

    def _written(self, index: int) -> Iterator[tuple[str, Carried]]:
        """The words that an instruction adds to registers and state spaces."""
        instruction, meaning = self.flat.instructions[index], self.meanings[index]
        if instruction.opcode.name == "call":
            yield from self._call(instruction, meaning)
            return
        carried, hidden = self._result(instruction, meaning)
        if carried | hidden:
            for name in written_registers(instruction, meaning):
                if self.widths.get(name, 64) > 1:
                    yield name, (carried, hidden)
        for effect in meaning.effects:
            if effect.access.writes:
                stored = [*self._sources(instruction, meaning), self._copied(meaning)]
                for name in _spaces(effect.space):
                    yield name, _union(stored)

    def _copied(self, meaning: Meaning) -> Carried:
        """The words that an instruction moves from memory to memory."""
        spaces = {effect.space for effect in meaning.effects if effect.access.reads}
        values = [self.known.get(name, (0, 0)) for space in spaces for name in _spaces(space)]
        return _union([*values, (_TABLE if spaces & _OUTSIDE else 0, 0)])

    def _call(
        self, instruction: ptx.Instruction, meaning: Meaning
    ) -> Iterator[tuple[str, Carried]]:
        """A call that was not followed may compute anything from all values that it can reach."""
        callee = call_parts(instruction)[0]
        prints = callee == "vprintf" and callee not in self.defined
        if prints or never_returns(instruction, self.defined):
            return
        values = self._sources(instruction, meaning)
        values += [self.known.get(name, (0, 0)) for name in _spaces("generic")]
        everything = _union(values)
        reached = everything[0] | everything[1]
        if reached:
            for name in (*written_registers(instruction, meaning), *_spaces("generic")):
                yield name, (reached, reached)

    def _sources(self, instruction: ptx.Instruction, meaning: Meaning) -> list[Carried]:
        """The words that each operand which is computed with or stored carries and hides."""
        names = {"cvta", "mapa"}
        addresses = {effect.operand for effect in meaning.effects}
        values: list[Carried] = []
        roles = zip(meaning.roles, instruction.operands, strict=True)
        for place, (role, operand) in enumerate(roles):
            takes = role in _VALUES or (
                role is OperandRole.ADDRESS and instruction.opcode.name in names
            )
            if takes and place not in addresses:
                values.append(_union([self._named(name) for name in registers_in(operand)]))
        return values

    def _named(self, name: str) -> Carried:
        if name in self.widths:
            return self.known.get(name, (0, 0))
        if name in self.parameters:
            return self._word((name, 0, -1))
        return (_SYMBOL, 0) if name in self.symbols else (0, 0)

    def _word(self, place: WordPlace) -> Carried:
        return _FIRST << self.words.setdefault(place, len(self.words)), 0

    def _result(self, instruction: ptx.Instruction, meaning: Meaning) -> Carried:
        values = self._sources(instruction, meaning)
        loads = [e for e in meaning.effects if e.access.reads]
        if loads:
            given = [self._loaded(instruction, effect.space, effect.operand) for effect in loads]
            # Loads from tables are followed; other instructions that read tables are not.
            table = instruction.opcode.name not in {"ld", "ldu"} and _OUTSIDE & {
                effect.space for effect in loads
            }
            return _union([*given, *values, (_TABLE if table else 0, 0)])
        if self._is_float(instruction, meaning):
            return 0, 0
        return _computed(instruction, values)

    def _is_float(self, instruction: ptx.Instruction, meaning: Meaning) -> bool:
        """Whether this computes with floats of 32 bits or fewer, from nothing longer."""
        types = [m for m in instruction.opcode.modifiers if is_type(m)]
        floats = any(_FLOAT.match(type) for type in types)
        if not floats or instruction.opcode.name in _PLAIN:
            return False
        return all(
            self.widths.get(name, 64) <= 32
            for role, operand in zip(meaning.roles, instruction.operands, strict=False)
            if role in _VALUES
            for name in registers_in(operand)
        )

    def _loaded(self, instruction: ptx.Instruction, space: str, operand: int) -> Carried:
        given = _union([self.known.get(name, (0, 0)) for name in _spaces(space)])
        if not space.startswith("param") and space != "generic":
            return given
        types = [m for m in instruction.opcode.modifiers if is_type(m)]
        bits = type_bits(types[-1]) if types else 64
        base, offset = place_of(instruction.operands[operand])
        if base in self.parameters:
            target = instruction.operands[0]
            words = len(target.elements) if isinstance(target, ptx.Vector) else 1
            count = -1 if offset is None else words * max(1, bits // 8)
            word = self._word((base, offset or 0, count))
        elif base in self.widths:
            # Through a pointer: any word of the parameters from which the pointer was computed.
            word = (self.known.get(base, (0, 0))[0] & ~_SYMBOL, 0) if self._taken else (0, 0)
        else:
            return given
        whole = bits == 64
        return _union([given, word if whole else (0, word[0])])

    @property
    def _taken(self) -> bool:
        """Whether a register may hold the address of a parameter."""
        return any(count == -1 for _, _, count in self.words)


def _computed(instruction: ptx.Instruction, values: Sequence[Carried]) -> Carried:
    """The result of an instruction that touches no memory."""
    carried, hidden = _union(values)
    if not carried:
        return 0, hidden
    name, modifiers = instruction.opcode.name, instruction.opcode.modifiers
    is_vector = any(isinstance(operand, ptx.Vector) for operand in instruction.operands)
    if name in _PLAIN and not is_vector:
        return carried, hidden
    if name == "cvt" and all(type_bits(m) == 64 for m in modifiers if is_type(m)):
        return (carried, hidden) if not any(m.startswith("f") for m in modifiers) else (0, carried)
    if name == "and":
        mask = _mask(instruction)
        if mask is not None and mask < _LOW:
            return 0, 0
        if mask is not None and mask >= (1 << 64) - _LOW:
            return carried, hidden
    with_address = [place for place, value in enumerate(values) if any(value)]
    wanted = {"add": None, "sub": 0, "mad": 2}
    is_plain = name in wanted and not {"cc", "sat", "hi"} & {*modifiers}
    if is_plain and len(with_address) == 1 and wanted[name] in (None, with_address[0]):
        return carried, hidden
    # In a sum of several addresses, all but one may cancel out.
    return carried if name in wanted else 0, carried | hidden


def _mask(instruction: ptx.Instruction) -> int | None:
    operand = instruction.operands[-1]
    value = integer_value(operand) if isinstance(operand, ptx.Integer | ptx.Unary) else None
    return None if value is None else value & ((1 << 64) - 1)


def _union(values: Sequence[Carried]) -> Carried:
    carried = hidden = 0
    for value in values:
        carried, hidden = carried | value[0], hidden | value[1]
    return carried, hidden


def _spaces(space: str) -> tuple[str, ...]:
    """The names that stand for the contents of a state space."""
    if space == "generic":
        return ("@shared", "@local", "@global")
    if space.startswith("param"):
        return ("@local",)
    known = next((known for known in _SPACES if space.startswith(known)), "other")
    return (f"@{known}",)
