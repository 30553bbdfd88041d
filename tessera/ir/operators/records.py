"""The entry of an operator in the table, and a call matched against the entry.

An operator is a pure function of tensors: its entry names the operands in the order of a trace's
`reads` and `writes`, says which elements of each are used, and has rules for shapes and for work.
`.out` and in-place forms have the same operands as the function that allocates its result: an
operand that is changed in place is both read and written.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field

from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import AttributeValue, Operand

Shape = tuple[int, ...]


class OperatorMismatch(Exception):
    """Operands or attributes that do not match the entry of the table."""


class Reach(enum.Enum):
    """The elements of an operand that are used.

    All, those that the values of another operand choose, or none: a tensor that is only
    overwritten is also among the reads of in-place forms.
    """

    WHOLE = "whole"
    INDEXED = "indexed"
    NONE = "none"


class Kinds(enum.Enum):
    """Types of elements that an operand may have."""

    FLOAT = "float"
    INTEGER = "integer"
    NUMBER = "number"
    BOOL = "bool"
    INTEGER_OR_BOOL = "integer or bool"
    ANY = "any"

    def holds(self, dtype: DataType) -> bool:
        """Whether these kinds include a type."""
        is_bool = dtype is DataType.BOOL
        is_integer = not dtype.is_float and not is_bool and not _is_complex(dtype)
        match self:
            case Kinds.FLOAT:
                return dtype.is_float
            case Kinds.INTEGER:
                return is_integer
            case Kinds.NUMBER:
                return dtype.is_float or is_integer
            case Kinds.BOOL:
                return is_bool
            case Kinds.INTEGER_OR_BOOL:
                return is_integer or is_bool
            case Kinds.ANY:
                return True


def _is_complex(dtype: DataType) -> bool:
    return dtype in (DataType.C64, DataType.C128)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperandSpec:
    """One operand: a tensor, an optional tensor, a tensor or a number, or a list of tensors.

    A number is given as the attribute with the operand's name; null means that the operand is
    missing.
    """

    name: str
    kinds: Kinds = Kinds.ANY
    reach: Reach = Reach.WHOLE
    is_optional: bool = False
    is_list: bool = False
    or_number: bool = False


class AttributeKind(enum.Enum):
    """The type of an attribute."""

    INTEGER = "an integer"
    NUMBER = "a number"
    BOOL = "true or false"
    TEXT = "a string"
    INTEGERS = "an integer or a list of them"
    TYPE = "the name of a type"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeSpec:
    """An attribute. Without a default it must be given; null means the default."""

    name: str
    kind: AttributeKind
    default: AttributeValue = None
    is_required: bool = False


class ResultType(enum.Enum):
    """The type of the first result's elements.

    That of the first operand that is used, one of at least the class of the operands (bool,
    integer, float), or any.
    """

    SAME = "same"
    PROMOTED = "promoted"
    FREE = "free"


class Unit(enum.Enum):
    """The unit that does the work: tensor cores, other arithmetic units, or only memory."""

    MATRIX = "matrix"
    PLAIN = "plain"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Work:
    """The arithmetic of a call, in floating-point operations (a multiply-add is two)."""

    operations: float
    unit: Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An entry of the table. Forms of one function have the same `function`.

    `shapes` gives the shape that each result must have, or None for a result of any shape.
    """

    name: str
    function: str
    reads: tuple[OperandSpec, ...]
    writes: tuple[OperandSpec, ...]
    attributes: tuple[AttributeSpec, ...]
    shapes: Callable[[Bound], tuple[Shape | None, ...]]
    work: Callable[[Bound], Work]
    result: ResultType = ResultType.SAME
    is_in_place: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A call whose operands and attributes have been matched with the names of its operator."""

    operator: Operator
    reads: tuple[tuple[OperandSpec, tuple[Operand, ...]], ...]
    writes: tuple[tuple[OperandSpec, Operand], ...]
    attributes: tuple[tuple[str, AttributeValue], ...] = field(default=())

    def operands(self, name: str) -> tuple[Operand, ...]:
        """The tensors of an operand: none if it is missing."""
        return next((operands for spec, operands in self.reads if spec.name == name), ())

    def operand(self, name: str) -> Operand:
        """The tensor of an operand that has one."""
        return self.operands(name)[0]

    def has(self, name: str) -> bool:
        """Whether an optional operand is given."""
        return bool(self.operands(name))

    def shape(self, name: str) -> Shape:
        """The shape of an operand."""
        return self.operand(name).shape

    def attribute(self, name: str) -> AttributeValue:
        """An attribute as given, else its default; None if the operator does not have it."""
        return next((value for key, value in self.attributes if key == name), None)

    def integer(self, name: str) -> int:
        """An attribute that is an integer."""
        value = self.attribute(name)
        if not isinstance(value, int):
            raise OperatorMismatch(f"attribute `{name}` must be given")
        return int(value)

    def number(self, name: str) -> float:
        """An attribute that is a number."""
        value = self.attribute(name)
        if not isinstance(value, int | float):
            raise OperatorMismatch(f"attribute `{name}` must be given")
        return value

    def flag(self, name: str) -> bool:
        """An attribute that is true or false."""
        return bool(self.attribute(name))

    def integers(self, name: str) -> tuple[int, ...] | None:
        """An attribute that is an integer or a list of integers; None if it is null."""
        value = self.attribute(name)
        if value is None:
            return None
        if isinstance(value, tuple):
            return tuple(int(part) for part in value if isinstance(part, int))
        if isinstance(value, int):
            return (value,)
        raise OperatorMismatch(f"attribute `{name}` must be a list of integers")
