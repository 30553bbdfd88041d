"""The contents of registers with regard to `wmma` fragments, and the effects of instructions.

In: an instruction and the values of registers before it. Out: the values after it, and whether it
uses the layout of a fragment. Local memory and parameters of calls are followed where the address
has the same text or was computed in the same way. Printed values are not followed.

A value is UNIFORM (the same in all lanes of a warp), LANE_ID (the lane's number plus something
uniform), VARYING (different in each lane), FRAGMENT (one element of a fragment per lane) or LAYOUT:
it depends on which element of a matrix a lane's register holds, which PTX leaves open. Order, from
below: UNIFORM, LANE_ID, VARYING, LAYOUT; and UNIFORM, FRAGMENT, LAYOUT. The result of an element
and a uniform value is an element. The result of an element and a different element, or of an
element and a value that differs between lanes, depends on the layout.

A value also has a recipe: a number that identifies its computation, whatever the register of the
fragment. Elements of one fragment that were computed in the same way have equal recipes. Where
paths meet, all recipes become one, and a value from memory that is not followed has no recipe. So
the analysis may miss a difference, but never invents one.

Longer than 400 lines because values and the rules that make them explain each other.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tessera.ir.opcodes import Meaning, OperandRole, ThreadScope, Varies, special_register
from tessera.ir.opcodes.extents import matrix_shape
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.constants import integer_value
from tessera.ir.ptx.flatten import FlatFunction
from tessera.passes.kernel_facts.operand_names import (
    known_meaning,
    place_of,
    registers_in,
    written_registers,
)

JOINED = 0
UNKNOWN = -1
_WARP_BITS = 5
_OWN_SPACES = ("local", "param")
_COMMUTE = frozenset({"add", "mul", "min", "max", "and", "or", "xor", "fma", "mad"})
# Votes whose result does not depend on which lane holds which element.
_AGREED = frozenset({"any", "all", "uni"})
_SPECIFIED = frozenset({"mma", "wgmma", "stmatrix", "movmatrix"})


class Holds(enum.IntEnum):
    """The way in which a value differs between the lanes of a warp."""

    UNIFORM = 0
    LANE_ID = 1
    VARYING = 2
    FRAGMENT = 3
    LAYOUT = 4


@dataclass(frozen=True, slots=True)
class FragmentShape:
    """The properties that determine a layout: `role` is `a`, `b` or `accumulator`."""

    role: str
    layout: str
    shape: str
    type: str


@dataclass(frozen=True, slots=True)
class FragmentValue:
    """The value of a register. A FRAGMENT has the fragment's shape, the register's number in it,
    and, if a register was cut into halves, the half. `local`: an address of local memory."""

    holds: Holds = Holds.UNIFORM
    recipe: int = JOINED
    shape: FragmentShape | None = None
    number: int = -1
    part: int = -1
    local: bool = False

    @property
    def element(self) -> tuple[FragmentShape | None, int, int]:
        """The shape of the fragment, and the place of the element in it."""
        return self.shape, self.number, self.part


def combine(values: Iterable[FragmentValue], recipe: int) -> FragmentValue:
    """A value that is computed from others, lane by lane."""
    combined = FragmentValue(recipe=recipe)
    for value in values:
        combined = _together(combined, value, recipe, combined.local or value.local)
    return combined


def join(left: FragmentValue, right: FragmentValue) -> FragmentValue:
    """A value that is one or the other."""
    recipe = left.recipe if left.recipe == right.recipe else JOINED
    return _together(left, right, recipe, left.local and right.local)


def _together(left: FragmentValue, right: FragmentValue, recipe: int, local: bool) -> FragmentValue:
    low, high = sorted((left, right), key=lambda value: value.holds)
    if high.holds is Holds.FRAGMENT and low.holds is Holds.FRAGMENT:
        same = low.element == high.element
        holds = Holds.FRAGMENT if same else Holds.LAYOUT
    elif high.holds is Holds.FRAGMENT and low.holds is not Holds.UNIFORM:
        holds = Holds.LAYOUT
    elif high.holds is Holds.LANE_ID and low.holds is Holds.LANE_ID:
        holds = Holds.VARYING
    else:
        holds = high.holds
    if holds is not Holds.FRAGMENT:
        return FragmentValue(holds, recipe, local=local)
    return FragmentValue(holds, recipe, high.shape, high.number, high.part, local)


def fragment_shapes(modifiers: tuple[str, ...]) -> tuple[FragmentShape, ...]:
    """The fragments of an instruction: one for `wmma.load.x` and `wmma.store.d`; D, A, B and C for
    `wmma.mma`, in operand order."""
    layouts = [modifier for modifier in modifiers if modifier in ("row", "col")]
    at = next((n for n, modifier in enumerate(modifiers) if matrix_shape(modifier)), None)
    if at is None or not layouts:
        return ()
    shape = modifiers[at]
    types = [modifier for modifier in modifiers[at + 1 :] if _is_element(modifier)]
    if modifiers[0] in ("load", "store"):
        role, kind = modifiers[1], types[-1] if types else ""
        if role in ("a", "b"):
            return (FragmentShape(role, layouts[0], shape, kind),)
        return (FragmentShape("accumulator", "", shape, kind),)
    if len(types) < 2 or len(layouts) < 2:
        return ()
    factors = types[1:3] if len(types) >= 4 else ["f16", "f16"]
    return (
        FragmentShape("accumulator", "", shape, types[0]),
        FragmentShape("a", layouts[0], shape, factors[0]),
        FragmentShape("b", layouts[1], shape, factors[1]),
        FragmentShape("accumulator", "", shape, types[-1]),
    )


def _is_element(modifier: str) -> bool:
    return modifier.lstrip("tbfsu").isdigit() and modifier[0] in "tbfsu"


State = dict[str, FragmentValue]
Use = tuple[int, str]
_OF_LAYOUT = (Holds.FRAGMENT, Holds.LAYOUT)


class FragmentSteps:
    """The instructions of a kernel, with a number for each recipe."""

    def __init__(self, flat: FlatFunction) -> None:
        self.flat = flat
        self.meanings = [known_meaning(instruction) for instruction in flat.instructions]
        self.recipes: dict[tuple[object, ...], int] = {("joined",): JOINED}
        self.locals = frozenset(
            variable.name for variable in flat.variables if variable.space == "local"
        )

    def held(self, state: State, name: str) -> FragmentValue:
        """The value of a register, a symbol or a special register."""
        known = state.get(name)
        if known is not None:
            return known
        return FragmentValue(_special(name), self.recipe("name", name), local=name in self.locals)

    def recipe(self, *parts: object) -> int:
        """The number of a recipe."""
        return self.recipes.setdefault(parts, len(self.recipes))

    def step(
        self, index: int, state: State, condition: FragmentValue, layout_uses: list[Use]
    ) -> None:
        """Run one instruction on `state`; add uses of the layout to `layout_uses`."""
        instruction, meaning = self.flat.instructions[index], self.meanings[index]
        how = self._use(instruction, meaning, state)
        if how is not None:
            layout_uses.append((index, how))
        written = dict(self._written(index, state))
        guard = instruction.guard
        if guard is not None:
            condition = combine((condition, self.held(state, guard.register)), JOINED)
        for name, value in written.items():
            state[name] = self._under(condition, guard, self.held(state, name), value)

    def _under(
        self,
        condition: FragmentValue,
        guard: ptx.Guard | None,
        old: FragmentValue,
        new: FragmentValue,
    ) -> FragmentValue:
        """The value of a register that is written only where a condition holds."""
        if guard is not None:
            new = join(old, new)
        if condition.holds is Holds.UNIFORM:
            return new
        touches = new.holds in _OF_LAYOUT or condition.holds in _OF_LAYOUT
        if not touches:
            return combine((condition, new), new.recipe)
        return combine((condition, new), self.recipe("under", condition.recipe, new.recipe))

    # --- uses of the layout ----------------------------------------------------------------

    def _use(self, instruction: ptx.Instruction, meaning: Meaning, state: State) -> str | None:
        opcode, name = instruction.opcode, instruction.opcode.name
        if name == "wmma":
            return self._wmma_use(instruction, state)
        sources = [value for _, value in self._sources(instruction, meaning, state)]
        if name == "call":
            sources += self._passed(instruction, state)
        if not any(value.holds in _OF_LAYOUT for value in sources):
            return None
        if name == "call":
            return "a call gets elements of one"
        if any(e.access.writes for e in meaning.effects):
            own = any(e.space in _OWN_SPACES for e in meaning.effects)
            return None if own or self._is_local(instruction, state) else f"`{opcode}` stores it"
        if name in _SPECIFIED:
            return f"`{opcode}` takes its registers in an order of its own"
        agreed = name == "vote" and _AGREED & set(opcode.modifiers)
        if meaning.scope is ThreadScope.WARP and not agreed:
            return f"`{opcode}` hands it to other lanes"
        return None

    def _wmma_use(self, instruction: ptx.Instruction, state: State) -> str | None:
        modifiers = instruction.opcode.modifiers
        shapes = fragment_shapes(modifiers)
        if modifiers[0] == "load" or not shapes:
            return None
        wanted: Sequence[tuple[FragmentShape, ptx.Operand]] = (
            list(zip(shapes[1:], instruction.operands[1:], strict=False))
            if modifiers[0] == "mma"
            else [(shapes[0], instruction.operands[1])]
        )
        for shape, operand in wanted:
            values = [self._operand(element, state) for element in _elements(operand)]
            if how := _misfit(shape, values):
                return f"`{instruction.opcode}` takes {how}"
        return None

    def _passed(self, instruction: ptx.Instruction, state: State) -> Iterator[FragmentValue]:
        names = {name for operand in instruction.operands for name in registers_in(operand)}
        for key, value in state.items():
            if key.startswith("[") and key[1:].split("+")[0] in names:
                yield value

    def _is_local(self, instruction: ptx.Instruction, state: State) -> bool:
        return any(
            self._operand(operand, state).local
            for operand in instruction.operands
            if isinstance(operand, ptx.Address)
        )

    # --- values ----------------------------------------------------------------------------

    def _sources(
        self, instruction: ptx.Instruction, meaning: Meaning, state: State
    ) -> Iterator[tuple[ptx.Operand, FragmentValue]]:
        """The operands that are read as data, with their values."""
        for role, operand in zip(meaning.roles, instruction.operands, strict=False):
            if role in (
                OperandRole.SOURCE,
                OperandRole.PREDICATE,
                OperandRole.DESTINATION_SOURCE,
                OperandRole.UNKNOWN,
            ):
                yield operand, self._operand(operand, state)

    def _operand(self, operand: ptx.Operand, state: State) -> FragmentValue:
        values = [self.held(state, name) for name in registers_in(operand)]
        if isinstance(operand, ptx.Name) and operand.component is not None:
            return FragmentValue(
                _special(f"{operand.name}.{operand.component}"), self.recipe("name", operand)
            )
        if isinstance(operand, ptx.Name):
            return values[0]
        kind = type(operand).__name__
        text = "" if values else repr(operand)
        return combine(values, self.recipe(kind, text, *(value.recipe for value in values)))

    def _written(self, index: int, state: State) -> Iterator[tuple[str, FragmentValue]]:
        instruction, meaning = self.flat.instructions[index], self.meanings[index]
        name, modifiers = instruction.opcode.name, instruction.opcode.modifiers
        targets = written_registers(instruction, meaning)
        if name == "wmma":
            shapes = fragment_shapes(modifiers)
            for number, target in enumerate(targets if modifiers[0] != "store" else ()):
                shape = shapes[0] if shapes else None
                yield (
                    target,
                    FragmentValue(Holds.FRAGMENT, self.recipe("made", index), shape, number),
                )
            return
        if name in ("ld", "st") and (cell := self._cell(instruction, meaning, state)):
            yield from self._cell_step(instruction, cell, state)
            return
        if name == "mov":
            yield from self._moved(instruction, state)
            return
        value = self._result(index, state)
        for target in targets:
            yield target, value

    def _result(self, index: int, state: State) -> FragmentValue:
        """The result that an instruction computes from its sources."""
        instruction, meaning = self.flat.instructions[index], self.meanings[index]
        opcode, name = instruction.opcode, instruction.opcode.name
        if any(effect.access.reads for effect in meaning.effects):
            values = [
                self._operand(operand, state)
                for operand in instruction.operands
                if isinstance(operand, ptx.Address)
            ]
            loaded = combine(values, self.recipe("loaded", index))
            varies = loaded.holds is not Holds.UNIFORM or name in ("atom", "ldmatrix")
            return FragmentValue(
                max(loaded.holds, Holds.VARYING) if varies else Holds.UNIFORM, loaded.recipe
            )
        values = [value for _, value in self._sources(instruction, meaning, state)]
        recipes = [value.recipe for value in values]
        if name in _COMMUTE:
            recipes[:2] = sorted(recipes[:2])
        computed = combine(values, self.recipe(str(opcode), *recipes))
        if name in _SPECIFIED:
            return FragmentValue(Holds.VARYING, computed.recipe)
        if meaning.scope is ThreadScope.WARP:
            return _from_warp(instruction, computed)
        if computed.holds is Holds.LANE_ID:
            return FragmentValue(_of_lane_id(instruction, values), computed.recipe)
        return computed

    def _moved(
        self, instruction: ptx.Instruction, state: State
    ) -> Iterator[tuple[str, FragmentValue]]:
        """A copy, a register cut into parts, or parts put together."""
        target, source = instruction.operands
        value = self._operand(source, state)
        if isinstance(target, ptx.Vector):
            recipe = self.recipe("part", value.recipe)
            for part, element in enumerate(target.elements):
                for name in registers_in(element):
                    yield name, FragmentValue(value.holds, recipe, value.shape, value.number, part)
            return
        if isinstance(source, ptx.Vector):
            value = self._put_together(
                [self._operand(element, state) for element in source.elements]
            )
        for name in registers_in(target):
            yield name, value

    def _put_together(self, parts: list[FragmentValue]) -> FragmentValue:
        recipe = self.recipe("whole", *(part.recipe for part in parts))
        if all(part.holds is not Holds.FRAGMENT for part in parts):
            return combine(parts, recipe)
        first = parts[0]
        fits = all(
            part.element == (first.shape, first.number, place) and part.recipe == first.recipe
            for place, part in enumerate(parts)
        )
        if not fits:
            return FragmentValue(Holds.LAYOUT, recipe)
        return FragmentValue(Holds.FRAGMENT, recipe, first.shape, first.number)

    # --- memory of a thread's own ----------------------------------------------------------

    def _cell(self, instruction: ptx.Instruction, meaning: Meaning, state: State) -> str | None:
        """A name for the memory at an address of local memory or of a parameter."""
        spaces = {effect.space.partition("::")[0] for effect in meaning.effects}
        address = next((o for o in instruction.operands if isinstance(o, ptx.Address)), None)
        if address is None or not (spaces & set(_OWN_SPACES) or self._is_local(instruction, state)):
            return None
        name, moved = place_of(address)
        if not name:
            return None
        known = state.get(name)
        return f"[{name if known is None else known.recipe}+{moved}"

    def _cell_step(
        self, instruction: ptx.Instruction, cell: str, state: State
    ) -> Iterator[tuple[str, FragmentValue]]:
        stores = instruction.opcode.name == "st"
        operand = instruction.operands[1 if stores else 0]
        for place, element in enumerate(_elements(operand)):
            key = cell if place == 0 else f"{cell}+{place}"
            if stores:
                yield key, self._operand(element, state)
                continue
            for name in registers_in(element):
                yield name, state.get(key, FragmentValue(recipe=UNKNOWN))


def _elements(operand: ptx.Operand) -> tuple[ptx.Operand, ...]:
    return operand.elements if isinstance(operand, ptx.Vector) else (operand,)


def _misfit(shape: FragmentShape, values: Sequence[FragmentValue]) -> str | None:
    """The reason why registers are not a fragment of a shape; None if they are."""
    for number, value in enumerate(values):
        if value.holds is Holds.LAYOUT:
            return "elements that were changed lane by lane or mixed"
        if value.holds in (Holds.VARYING, Holds.LANE_ID):
            return "values that no `wmma.load` or `wmma.mma` made"
        if value.holds is Holds.FRAGMENT and value.element != (shape, number, -1):
            return "elements of another fragment, or in another order"
    if len({value.recipe for value in values} - {UNKNOWN}) > 1:
        return "elements that were not all treated alike"
    return None


def _special(name: str) -> Holds:
    """The value of a special register; assumes that block widths are multiples of a warp."""
    if name in ("%tid.x", "%laneid"):
        return Holds.LANE_ID
    special = special_register(name)
    is_lanes = special is not None and special.varies is Varies.LANE
    return Holds.VARYING if is_lanes else Holds.UNIFORM


def _of_lane_id(instruction: ptx.Instruction, values: Sequence[FragmentValue]) -> Holds:
    """The result of an instruction on the number of a lane: the number of the warp is uniform."""
    last = instruction.operands[-1]
    by = integer_value(last) if isinstance(last, ptx.Integer) else None
    name = instruction.opcode.name
    if name in ("add", "cvt") or (name == "mad" and values[-1].holds is Holds.LANE_ID):
        return Holds.LANE_ID
    if by is None:
        return Holds.VARYING
    drops_lane = name == "shr" and by >= _WARP_BITS
    drops_lane |= name in ("div", "and") and by % (1 << _WARP_BITS) == 0
    return Holds.UNIFORM if drops_lane else Holds.VARYING


def _from_warp(instruction: ptx.Instruction, source: FragmentValue) -> FragmentValue:
    """The result of a warp-wide instruction."""
    name, modifiers = instruction.opcode.name, set(instruction.opcode.modifiers)
    if name == "elect":
        return FragmentValue(Holds.VARYING, source.recipe)
    if name in ("redux", "vote") or source.holds is Holds.UNIFORM:
        return FragmentValue(Holds.UNIFORM, source.recipe)
    if name == "shfl" and "idx" in modifiers and isinstance(instruction.operands[2], ptx.Integer):
        return FragmentValue(Holds.UNIFORM, source.recipe)
    return FragmentValue(Holds.VARYING, source.recipe)
