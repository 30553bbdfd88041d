"""Constants, initialisers and operands: the parts of PTX statements.

In: nothing. Out: frozen records. Everybody takes them from `ir.ptx.syntax`, with the statements.
Source: PTX ISA 9.0, sections 4.5 (constants), 5.4 (initialisers), 6 (operands).
"""

from __future__ import annotations

from dataclasses import dataclass

# --- constants -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer constant as spelled (`-4`, `0xffU`, `010`, `0b101`) and its value."""

    text: str
    value: int


@dataclass(frozen=True, slots=True)
class Float:
    """A floating-point constant as spelled, and its bits in a format of `width` bits."""

    text: str
    bits: int
    width: int


@dataclass(frozen=True, slots=True)
class Name:
    """A register, variable, label, function or parameter, with `.x`, `.b0`... if selected."""

    name: str
    component: str | None = None


@dataclass(frozen=True, slots=True)
class Unary:
    """`-a`, `!a`, `~a` or `+a` in a constant expression."""

    operator: str
    operand: Constant


@dataclass(frozen=True, slots=True)
class Binary:
    """`a + b` and the like in a constant expression."""

    operator: str
    left: Constant
    right: Constant


@dataclass(frozen=True, slots=True)
class Conditional:
    """`a ? b : c` in a constant expression."""

    condition: Constant
    then: Constant
    otherwise: Constant


@dataclass(frozen=True, slots=True)
class Cast:
    """`(.s64) a` or `(.u64) a` in a constant expression."""

    type: str
    operand: Constant


@dataclass(frozen=True, slots=True)
class Generic:
    """`generic(symbol)`: the generic address of a variable, in an initialiser."""

    operand: Constant


@dataclass(frozen=True, slots=True)
class MaskedByte:
    """`0xFF00(symbol)`: one byte of an address, in an initialiser."""

    mask: Integer
    operand: Constant


Constant = Integer | Float | Name | Unary | Binary | Conditional | Cast | Generic | MaskedByte


@dataclass(frozen=True, slots=True)
class InitializerList:
    """`{ a, b, { c } }` in an initialiser."""

    elements: tuple[Initializer, ...]


@dataclass(frozen=True, slots=True)
class InitializerField:
    """`filter_mode = nearest` in the initialiser of a sampler, texture or surface."""

    name: str
    value: Constant


Initializer = Constant | InitializerList | InitializerField

# --- operands ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sink:
    """`_`: a result that is thrown away, or an argument that is left out."""


@dataclass(frozen=True, slots=True)
class Not:
    """`!%p`: a predicate operand taken inverted."""

    operand: Name


@dataclass(frozen=True, slots=True)
class Negated:
    """`-%r`: a register operand taken negative (video instructions)."""

    operand: Name


@dataclass(frozen=True, slots=True)
class Pair:
    """`%p|%q`: two destinations; a texture fetch has `{%f0, %f1, %f2, %f3}|%p`."""

    first: Name | Sink | Vector
    second: Name | Sink


@dataclass(frozen=True, slots=True)
class Vector:
    """`{%r0, %r1}`."""

    elements: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Offset:
    """`base + displacement` inside an address: a register or symbol and a constant or register."""

    base: Name
    displacement: Constant


@dataclass(frozen=True, slots=True)
class Address:
    """`[a]`, `[a+4]`, `[16]`; with more parts, `[map, {%r0, %r1}]`, `[tex, sampler, {...}]`.

    `suffix` is the `unified` of `[a].unified`.
    """

    parts: tuple[Operand, ...]
    suffix: str | None = None


@dataclass(frozen=True, slots=True)
class Subscript:
    """`name[index]`: an element of an array variable."""

    name: str
    index: Offset | Constant


@dataclass(frozen=True, slots=True)
class Group:
    """`(a, b)`: the results or the arguments of a call."""

    elements: tuple[Operand, ...]


Operand = Constant | Sink | Not | Negated | Pair | Vector | Offset | Address | Subscript | Group
