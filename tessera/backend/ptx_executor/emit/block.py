"""The Python source of one basic block: registers as variables, instructions as statements.

An `Emitter` receives the instructions of a block in order. For each register it keeps the
variables that hold its present value: `r7u` as raw bits, `r7s` and `r7f` the same bits viewed as
signed or floating point, `r7p` for predicates. A register read before it is set becomes an
input of the block (`ins`). A register that the block sets is a candidate for its outputs (`outs`);
liveness decides which are kept. A guarded definition reads the old value.

The handlers in the other files of `emit` write the statements of each instruction. A handler
refuses a form that it does not support by name, before a launch starts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tessera.backend.ptx_executor.emit.kinds import (
    Unsupported,
    ValueKind,
    float_bits,
    kind_of,
    pack_float,
)
from tessera.backend.ptx_executor.emit.layout import FunctionLayout, KernelBuilder
from tessera.backend.ptx_executor.simt.chunk import SPECIAL_WIDTHS
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.constants import integer_value


@dataclass(slots=True)
class Control:
    """How a block ends.

    kind: goto (`targets[0]`), branch (variable `value` picks `targets[0]` or `targets[1]`),
    table (variable holds indices into `targets`), return (variable holds block numbers; a target is
    the block for lanes that stay in the function), call (one function), barrier (`value` holds its
    operands, then goto), exit, trap. Targets are names of blocks, `function:number`, or EXIT.
    """

    kind: str
    targets: tuple[str, ...] = ()
    value: str = "None"


EXIT = "exit"


@dataclass(slots=True)
class Emitter:
    """Builds the statements of one block."""

    program: KernelBuilder
    layout: FunctionLayout
    lines: list[str] = field(default_factory=list)
    ins: dict[int, str] = field(default_factory=dict)
    current: dict[int, dict[str, str]] = field(default_factory=dict)
    defined: dict[int, None] = field(default_factory=dict)
    control: Control | None = None
    polls: bool = False
    guard: str | None = None
    site: int = -1
    temporaries: int = 0
    after: str = EXIT
    labels: dict[str, str] = field(default_factory=dict)

    # --- statements --------------------------------------------------------------------

    def line(self, text: str) -> None:
        """Add a statement."""
        self.lines.append(text)

    def temporary(self, expression: str) -> str:
        """A fresh variable that holds an expression."""
        self.temporaries += 1
        name = f"t{self.temporaries}"
        self.line(f"{name} = {expression}")
        self.program.probe(expression)
        return name

    # --- registers ---------------------------------------------------------------------

    def register(self, name: str) -> tuple[int, ValueKind]:
        """The number of a register, and the kind of its values."""
        register = self.layout.registers.get(name)
        if register is None:
            raise Unsupported(f"operand `{name}`: not a register")
        return register

    def read_number(self, number: int, kind: ValueKind) -> str:
        """A variable with the value of a register, as a kind of the same width."""
        forms = self.current.get(number)
        if forms is None:
            home = "p" if kind.form == "p" else "u"
            forms = {home: f"r{number}{home}"}
            self.current[number] = forms
            self.ins[number] = forms[home]
        variable = forms.get(kind.form)
        if variable is None:
            source = next(iter(forms.values()))
            variable = f"r{number}{kind.form}"
            self.line(f"{variable} = {source}.view({kind.dtype})")
            forms[kind.form] = variable
        return variable

    def write_number(self, number: int, kind: ValueKind, expression: str) -> None:
        """Set a register; under a guard, only in lanes where the guard holds."""
        self.program.probe(expression)
        if self.guard is not None:
            old = self.read_number(number, kind)
            expression = f"sel({self.guard}, {expression}, {old})"
        variable = f"r{number}{kind.form}"
        self.line(f"{variable} = {expression}")
        self.current[number] = {kind.form: variable}
        self.defined[number] = None

    def write(self, operand: ptx.Operand, type_name: str, expression: str) -> None:
        """Set a destination to a value of a type, extended if the register is wider."""
        if isinstance(operand, ptx.Sink):
            return
        if not isinstance(operand, ptx.Name):
            raise Unsupported("destination that is not a register")
        number, held = self.register(operand.name)
        kind = kind_of(type_name)
        if held.width == kind.width:
            self.write_number(number, kind, expression)
        elif held.width > kind.width:
            wide = ValueKind("s" if kind.form == "s" else "u", held.width)
            if kind.form == "f":
                expression = f"({expression}).view(u{kind.width})"
            self.write_number(number, wide, f"({expression}).astype({wide.dtype})")
        else:
            narrow = ValueKind("u", held.width)
            self.write_number(number, narrow, f"({expression}).astype({narrow.dtype})")

    # --- operands ----------------------------------------------------------------------

    def value(self, operand: ptx.Operand, type_name: str) -> str:
        """A variable or constant with an operand's value as a type."""
        kind = kind_of(type_name)
        match operand:
            case ptx.Name():
                return self.name_value(operand, kind)
            case ptx.Not():
                return f"(~{self.name_value(operand.operand, kind)})"
            case ptx.Offset(base=base, displacement=moved):
                return self.moved(base, self.integer(moved), kind)
            case ptx.Binary(operator="+" | "-" as sign, left=ptx.Name() as base, right=moved):
                return self.moved(base, self.integer(moved) * (1 if sign == "+" else -1), kind)
            case ptx.Vector(elements=elements) if len(elements) > 0:
                return self.packed(elements, kind)
            case _:
                return self.program.constant(self.constant_bits(operand, kind), kind)

    def moved(self, base: ptx.Name, distance: int, kind: ValueKind) -> str:
        """A symbol (or register) plus a constant, as in `mov.u64 %rd, table+8`."""
        start = self.name_value(base, kind)
        return f"({start} + {self.program.constant(distance, kind)})"

    def packed(self, elements: tuple[ptx.Operand, ...], kind: ValueKind) -> str:
        """Several registers packed into one value, the first in the lowest bits."""
        width = kind.width // len(elements)
        parts = ", ".join(self.value(e, f"b{8 * width}") for e in elements)
        joined = f"join_words([{parts}], {width})"
        if kind.form == "u":
            return joined
        return f"{joined}.view({kind.dtype})"

    def name_value(self, operand: ptx.Name, kind: ValueKind) -> str:
        """A register, special register, or the address of a symbol."""
        name = operand.name if operand.component is None else f"{operand.name}.{operand.component}"
        register = self.layout.registers.get(operand.name)
        if register is not None and operand.component is None:
            return self.register_value(register, kind)
        if name in SPECIAL_WIDTHS:
            return self.special(name, kind)
        if name == "WARP_SZ":
            return self.program.constant(32, kind)
        if operand.name.startswith(("%envreg", "%pm")):
            return self.program.constant(0, kind)
        return self.symbol(operand.name, kind)

    def register_value(self, register: tuple[int, ValueKind], kind: ValueKind) -> str:
        """A register as a type, truncated or zero-extended if the widths differ."""
        number, held = register
        if held.form == "p" or kind.form == "p":
            if held.form != kind.form:
                raise Unsupported("predicate and value mixed")
            return self.read_number(number, held)
        if held.width == kind.width:
            return self.read_number(number, kind)
        if 16 in (held.width, kind.width):
            raise Unsupported("16 bytes and fewer mixed")
        source = self.read_number(number, ValueKind("u", held.width))
        if held.width > kind.width:
            narrow = ValueKind("u", kind.width)
            cut = f"{source}.astype({narrow.dtype})"
            return cut if kind.form == "u" else f"{cut}.view({kind.dtype})"
        return f"{source}.astype({kind.dtype})"

    def special(self, name: str, kind: ValueKind) -> str:
        """A special register, truncated or widened to the type of the instruction."""
        width = SPECIAL_WIDTHS[name]
        if name.startswith("%reserved_smem"):
            self.program.uses_reserved = True
        if name.startswith("%envreg"):
            self.program.uses_workspace = True
        value = f"cx.take(cx.chunk.special({name!r}))"
        if kind.form == "p":
            return value
        if width != kind.width:
            return f"{value}.astype({kind.dtype})"
        return value if kind.form == "u" else f"{value}.view({kind.dtype})"

    def symbol(self, name: str, kind: ValueKind) -> str:
        """The address of a variable or function in its own space."""
        place = self.layout.place(name)
        if place is None:
            if any(f.is_entry and f.name == name for f in self.program.module.functions()):
                raise Unsupported(f"kernel `{name}`: launches by the device are not supported")
            raise Unsupported(f"`{name}`: not declared")
        if place.space == "frame":
            return self.frame_address(place.offset, kind)
        if place.space in ("shared", "param", "function"):
            return self.program.constant(place.offset, kind)
        value = f"cx.chunk.launch.symbols[{place.offset}]"
        return value if kind.width == 8 else f"{value}.astype({kind.dtype})"

    def frame_address(self, offset: int, kind: ValueKind | None = None) -> str:
        """The local address `offset` bytes into the function's frame."""
        kind = kind or ValueKind("u", 8)
        if self.layout.is_entry:
            return self.program.constant(offset, kind)
        base = self.read_number(self.program.stack_pointer, ValueKind("u", 8))
        value = f"({base} + {self.program.constant(offset, ValueKind('u', 8))})"
        return value if kind.width == 8 else f"{value}.astype({kind.dtype})"

    def constant_bits(self, operand: ptx.Operand, kind: ValueKind) -> int:
        """The bits of a constant as a type."""
        if isinstance(operand, ptx.Float):
            return float_bits(operand, kind)
        value = integer_value(operand)
        if value is None:
            raise Unsupported("operand that is no register, constant or symbol")
        if kind.form == "f":
            return pack_float(float(value), kind.width)
        return value

    def integer(self, operand: ptx.Operand) -> int:
        """The value of an operand that must be a constant at compile time."""
        value = integer_value(operand)
        if value is None:
            raise Unsupported("operand that must be a constant")
        return value

    # --- addresses ---------------------------------------------------------------------

    def address(self, operand: ptx.Operand, space: str) -> tuple[str, str]:
        """The address that `[...]` names, and its space (that of the symbol, if it names one)."""
        if isinstance(operand, ptx.Address):
            operand = operand.parts[0]
        match operand:
            case ptx.Name():
                return self.base_address(operand.name, 0, space)
            case ptx.Offset(base=base, displacement=moved):
                if isinstance(moved, ptx.Name):
                    start, space = self.base_address(base.name, 0, space)
                    kind = self.register(moved.name)[1]
                    more = self.value(moved, f"s{8 * kind.width}")
                    return f"({start} + {more}.astype(i8).view(u8))", space
                return self.base_address(base.name, self.integer(moved), space)
            case ptx.Subscript(name=name, index=index):
                return self.subscript(name, index, space)
            case _:
                fixed = self.integer(operand)
                return self.program.constant(fixed, ValueKind("u", 8)), space

    def subscript(self, name: str, index: ptx.Offset | ptx.Constant, space: str) -> tuple[str, str]:
        """`name[index]`."""
        size = self.layout.element_size(name)
        start, space = self.base_address(name, 0, space)
        if isinstance(index, ptx.Offset):
            scaled = (
                self.value(index.base, "u32") + f".astype(u8) + {self.integer(index.displacement)}"
            )
        elif isinstance(index, ptx.Name):
            scaled = self.value(index, "u32") + ".astype(u8)"
        else:
            return self.base_address(name, self.integer(index) * size, space)
        return f"({start} + ({scaled}) * {self.program.constant(size, ValueKind('u', 8))})", space

    def base_address(self, name: str, moved: int, space: str) -> tuple[str, str]:
        """A register or symbol plus a constant."""
        register = self.layout.registers.get(name)
        if register is not None:
            number, held = register
            kind = ValueKind("u", 8 if space in ("generic", "global", "const") else held.width)
            base = self.register_value((number, held), kind)
            if moved == 0:
                return base, space
            return f"({base} + {self.program.constant(moved, kind)})", space
        return self.symbol_address(name, moved, space)

    def symbol_address(self, name: str, moved: int, space: str) -> tuple[str, str]:
        """A symbol plus a constant, in the space of the symbol."""
        place = self.layout.place(name)
        if place is None:
            raise Unsupported(f"`{name}`: not declared")
        if place.space == "frame":
            return self.frame_address(place.offset + moved), "local"
        if place.space in ("shared", "param"):
            offset = self.program.constant(place.offset + moved, ValueKind("u", 8))
            return offset, place.space
        value = f"cx.chunk.launch.symbols[{place.offset}]"
        if moved:
            value = f"({value} + {self.program.constant(moved, ValueKind('u', 8))})"
        return value, "const" if space == "const" else "global"


def following_blocks(emitter: Emitter) -> tuple[str, ...]:
    """The blocks of the same function that may follow; a call is followed by its return point."""
    control = emitter.control
    assert control is not None
    if control.kind in ("call", "table_call"):
        return (emitter.after,)
    return tuple(t for t in control.targets if t != EXIT)


def live_out(blocks: dict[str, tuple[set[int], set[int], tuple[str, ...]]]) -> dict[str, set[int]]:
    """The registers live at the end of each block: some later path reads them before setting them.

    In: for each block, the registers that it reads before setting them, those that it sets, and the
    blocks that may follow.
    """
    before: dict[str, list[str]] = {name: [] for name in blocks}
    for name, (_, _, following) in blocks.items():
        for target in following:
            before[target].append(name)
    live_in = {name: set(reads) for name, (reads, _, _) in blocks.items()}
    outs: dict[str, set[int]] = {name: set() for name in blocks}
    pending = dict.fromkeys(reversed(list(blocks)))
    while pending:
        name = next(iter(pending))
        del pending[name]
        reads, sets, following = blocks[name]
        out = set().union(*(live_in[target] for target in following))
        outs[name] = out
        inside = reads | (out - sets)
        if inside != live_in[name]:
            live_in[name] = inside
            pending.update(dict.fromkeys(before[name]))
    return outs
