"""What a register holds with regard to fragments of `wmma`, and how values combine.

A value is UNIFORM (the same in all lanes of a warp), LANE_ID (the lane's number plus something
uniform), LANES (other in each lane), FRAGMENT (one element of a fragment per lane) or LAYOUT: it
depends on which element of a matrix a lane's register holds, which PTX leaves open. Order, from
below: UNIFORM, LANE_ID, LANES, LAYOUT; and UNIFORM, FRAGMENT, LAYOUT. What is computed of an
element and a uniform value is an element; of an element and another one, or one and what differs
from lane to lane, it depends on the layout.

A value also has a recipe, a number for how it was made without regard to the register of the
fragment: elements of one fragment that were treated alike have equal recipes. Where paths meet all
recipes become one, and what comes from memory that is not followed has none; so a difference may
be missed, and none is made up.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from tessera.ir.opcodes.extents import matrix_shape

JOINED = 0
UNKNOWN = -1


class Holds(enum.IntEnum):
    """What differs between the lanes of a warp."""

    UNIFORM = 0
    LANE_ID = 1
    LANES = 2
    FRAGMENT = 3
    LAYOUT = 4


@dataclass(frozen=True, slots=True)
class FragmentShape:
    """Which fragments have one layout: `role` is `a`, `b` or `accumulator`."""

    role: str
    layout: str
    shape: str
    type: str


@dataclass(frozen=True, slots=True)
class FragmentValue:
    """What a register holds. A FRAGMENT has the fragment's shape, the register's number in it and,
    where a register was cut into halves, which one this is. `local`: an address of local memory."""

    holds: Holds = Holds.UNIFORM
    recipe: int = JOINED
    shape: FragmentShape | None = None
    number: int = -1
    part: int = -1
    local: bool = False

    @property
    def element(self) -> tuple[FragmentShape | None, int, int]:
        """Which element of which kind of fragment it is."""
        return self.shape, self.number, self.part


def combine(values: Iterable[FragmentValue], recipe: int) -> FragmentValue:
    """A value that is computed of others, lane by lane."""
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
        holds = Holds.LANES
    else:
        holds = high.holds
    if holds is not Holds.FRAGMENT:
        return FragmentValue(holds, recipe, local=local)
    return FragmentValue(holds, recipe, high.shape, high.number, high.part, local)


def fragment_shapes(modifiers: tuple[str, ...]) -> tuple[FragmentShape, ...]:
    """The fragments of an instruction: of `wmma.load.x` and `wmma.store.d` one; of `wmma.mma`
    those of D, A, B and C, in operand order."""
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
