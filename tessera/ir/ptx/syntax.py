"""PTX syntax nodes: the contents of a PTX file, without conclusions.

In: nothing. Out: frozen records that `frontend.ptx.read_ptx` builds and `ir.ptx.print_ptx` prints.
The records keep the spelling of constants, so that printing shows what the user wrote, and
drop comments, whitespace and the grouping of declarators (`.reg .b32 %a, %b;` is two
`Variable`s). Invariant: `parse(print(module)) == module`.

Position: statements hold `at`, the character offset of their first token in
`Module.source.text`; it takes no part in equality. `ir.ptx.locate` finds the operand or the
modifier inside a statement again when a diagnostic needs it, which is rare; storing a span per
operand would double the size of a module.

Longer than 400 lines because every node of the language stands here, most of them records of a few
lines that refer to each other.

Source: PTX ISA 9.0, sections 4 (syntax), 5 (state spaces and variables), 6 (operands),
7 (calling convention), 11 (directives).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tessera.diagnostics import Source, Span
from tessera.ir.ptx.unread import WithDefinitions, WithUnreadBody

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
    """`_`: a discarded result, or an omitted argument."""


@dataclass(frozen=True, slots=True)
class Not:
    """`!%p`: an inverted predicate operand."""

    operand: Name


@dataclass(frozen=True, slots=True)
class Negated:
    """`-%r`: a negated register operand (video instructions)."""

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

# --- statements ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Opcode:
    """`ld.global.v4.f32` split at its dots; `::` stays inside a modifier."""

    name: str
    modifiers: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ".".join((self.name, *self.modifiers))


@dataclass(frozen=True, slots=True)
class Guard:
    """`@%p` or `@!%p` in front of an instruction."""

    register: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction with its guard."""

    guard: Guard | None
    opcode: Opcode
    operands: tuple[Operand, ...]
    at: int = field(default=-1, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class LabelStatement:
    """`name:`."""

    name: str
    at: int = field(default=-1, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Location:
    """`.loc file line column [, function_name label[+offset], inlined_at file line column]`."""

    file: int
    line: int
    column: int
    function_name: str | None = None
    function_offset: int = 0
    inlined_at: tuple[int, int, int] | None = None
    at: int = field(default=-1, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Pragma:
    """`.pragma "nounroll", ...;` without the quotes."""

    strings: tuple[str, ...]
    at: int = field(default=-1, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """`.attribute(.managed)` or `.attribute(.unified(a, b))`: one entry of the list."""

    name: str
    values: tuple[Integer, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A declaration of one name in any state space, registers and parameters included.

    `count` is set for `%r<count>`, which declares `%r0` to `%r<count-1>`. A dimension of None
    is an array whose size its initialiser (or the linker) gives. `pointer_space` and
    `pointer_align` are those of `.ptr .global .align 16`; a bare `.ptr` has space "".
    """

    space: str
    type: str
    name: str
    vector: int | None = None
    align: int | None = None
    count: int | None = None
    dimensions: tuple[int | None, ...] = ()
    initializer: Initializer | None = None
    linkage: str | None = None
    bank: int | None = None
    pointer_space: str | None = None
    pointer_align: int | None = None
    attributes: tuple[Attribute, ...] = ()
    at: int = field(default=-1, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPrototype:
    """`name: .callprototype (returns) _ (parameters);` for indirect calls."""

    name: str
    returns: tuple[Variable, ...]
    parameters: tuple[Variable, ...]
    directives: tuple[Directive, ...] = ()
    at: int = field(default=-1, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TargetList:
    """`name: .branchtargets a, b;` or `name: .calltargets f, g;`."""

    name: str
    kind: str
    targets: tuple[str, ...]
    at: int = field(default=-1, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Block:
    """`{ ... }`: a separate scope; names declared inside may shadow outer names."""

    statements: tuple[Statement, ...]
    at: int = field(default=-1, compare=False, repr=False)


Statement = (
    Instruction | LabelStatement | Location | Pragma | Variable | CallPrototype | TargetList | Block
)

# --- modules -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Directive:
    """A performance, cluster or ABI directive of a function: `.maxntid 128, 1, 1`."""

    name: str
    values: tuple[Constant | str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Function(WithUnreadBody):
    """A kernel (`.entry`), a device function (`.func`), or the declaration of one (no body)."""

    is_entry: bool
    name: str
    linkage: str | None = None
    returns: tuple[Variable, ...] = ()
    parameters: tuple[Variable, ...] = ()
    has_parameter_list: bool = True
    directives: tuple[Directive, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    body: tuple[Statement, ...] | None = None
    at: int = field(default=-1, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """`.file index "name" [, timestamp, size]`."""

    index: int
    name: str
    timestamp: int | None = None
    size: int | None = None
    at: int = field(default=-1, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Section:
    """A debug section, or one `@@DWARF` line: kept as text, nothing reads it."""

    text: str
    at: int = field(default=-1, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Alias:
    """`.alias name, aliasee;`."""

    name: str
    aliasee: str
    at: int = field(default=-1, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Target:
    """A further `.target` after the one in the header."""

    names: tuple[str, ...]
    at: int = field(default=-1, compare=False, repr=False)


Item = Function | Variable | SourceFile | Section | Alias | Pragma | Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Module(WithDefinitions[Function]):
    """One PTX file. `address_size` is None where the file does not say (it then means 32 or 64)."""

    version: tuple[int, int]
    target: tuple[str, ...]
    address_size: int | None
    items: tuple[Item, ...]
    source: Source | None = field(default=None, compare=False, repr=False)

    def functions(self) -> Iterator[Function]:
        """Every function and declaration in file order."""
        return (item for item in self.items if isinstance(item, Function))

    def kernels(self) -> Iterator[Function]:
        """The entries that have a body, in file order."""
        return (f for f in self.functions() if f.is_entry and f.has_body)

    def variables(self) -> Iterator[Variable]:
        """The module-scoped variables in file order."""
        return (item for item in self.items if isinstance(item, Variable))

    def span(self, at: int, length: int = 1) -> Span | None:
        """The position of a statement, or None for a module that was not read from text."""
        if self.source is None or at < 0:
            return None
        return Span(self.source, at, at + length)


def walk_statements(body: tuple[Statement, ...]) -> Iterator[Statement]:
    """Every statement of a body in text order, nested blocks opened (they are yielded too)."""
    pending = [iter(body)]
    while pending:
        for statement in pending[-1]:
            yield statement
            if isinstance(statement, Block):
                pending.append(iter(statement.statements))
                break
        else:
            pending.pop()
