"""Where the variables of a function live: frames, shared memory, kernel parameters.

A device function has a frame in each lane's local memory. It starts with the number of the block to
return to, then the formal parameters, the formal results, and the `.local` and `.param` variables
of the body. A function that may be re-entered before it returns also has space for saved registers
at the end of its frame. The caller writes parameters into the frame above its own. A kernel's
parameters lie in a block that all lanes share; its frame is at address 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from tessera.backend.ptx_executor.emit.kinds import ValueKind
from tessera.backend.ptx_executor.simt.compiled import FUNCTION_BASE, FUNCTION_STEP
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.flatten import FlatFunction
from tessera.ir.ptx.layout import element_bytes, size_bytes

HEADER = 16


@dataclass(frozen=True, slots=True)
class SymbolPlace:
    """Where a symbol is: `frame`, `shared`, `param`, `function` or `global` (a symbol number)."""

    space: str
    offset: int


@dataclass(slots=True)
class FunctionLayout:
    """The registers and variables of one function."""

    flat: FlatFunction
    number: int
    is_entry: bool
    registers: dict[str, tuple[int, ValueKind]] = field(default_factory=dict)
    places: dict[str, SymbolPlace] = field(default_factory=dict)
    variables: dict[str, ptx.Variable] = field(default_factory=dict)
    outer: dict[str, SymbolPlace] = field(default_factory=dict)
    frame_size: int = HEADER
    save_slots: dict[int, int] = field(default_factory=dict)
    recursive: bool = False

    @property
    def name(self) -> str:
        """The function's name."""
        return self.flat.function.name

    def place(self, name: str) -> SymbolPlace | None:
        """The place of a name; names of the body take precedence."""
        return self.places.get(name) or self.outer.get(name)

    def element_size(self, name: str) -> int:
        """The size of an element of an array variable, for `name[index]`."""
        variable = self.variables.get(name)
        return element_bytes(variable) if variable is not None else 1

    def add_frame(self, variable: ptx.Variable) -> None:
        """Reserve space for a variable in the frame."""
        offset = align(self.frame_size, variable_align(variable))
        self.places[variable.name] = SymbolPlace("frame", offset)
        self.variables[variable.name] = variable
        self.frame_size = offset + variable_size(variable)

    def reserve_saves(self) -> None:
        """Reserve space to save every register of the function."""
        for number, kind in self.registers.values():
            width = max(kind.width, 1)
            offset = align(self.frame_size, width)
            self.save_slots[number] = offset
            self.frame_size = offset + width

    def close(self) -> None:
        """Round the frame up so that frames above it are aligned."""
        self.frame_size = align(self.frame_size, 16)


class KernelBuilder(Protocol):
    """The interface of an emitter to the kernel being compiled: constants, names and probes.

    `emit.program` implements it. Emitters see nothing else of a kernel.
    """

    module: ptx.Module
    functions: dict[str, ptx.Function]
    layouts: dict[str, FunctionLayout]
    register_kinds: list[ValueKind]
    always_out: set[int]
    stack_pointer: int
    uses_reserved: bool
    uses_workspace: bool

    def constant(self, bits: int, kind: ValueKind) -> str:
        """The name of a constant of shape (1, 1)."""

    def block_constant(self, block: str) -> str:
        """The name of a constant that holds the number of a block."""

    def frozen(self, value: object, stem: str = "c") -> str:
        """The name under which generated code sees a value."""

    def probe(self, expression: str) -> None:
        """Refuse an expression that `numerics` does not support."""

    def resolve(self, name: str) -> str:
        """The name under which a function is compiled, aliases followed."""

    def carry(self, layout: FunctionLayout) -> int:
        """The number of the carry flag of a function."""


def function_addresses(module: ptx.Module) -> dict[str, int]:
    """The addresses of the functions of a module, the same for each of its kernels."""
    names = dict.fromkeys(f.name for f in module.functions() if not f.is_entry)
    addresses = {name: FUNCTION_BASE + i * FUNCTION_STEP for i, name in enumerate(names)}
    for item in module.items:
        if isinstance(item, ptx.Alias) and item.aliasee in addresses:
            addresses[item.name] = addresses[item.aliasee]
    return addresses


def align(offset: int, boundary: int) -> int:
    """The offset rounded up to a multiple of the boundary."""
    return -(-offset // boundary) * boundary


def variable_size(variable: ptx.Variable) -> int:
    """The size of a variable in bytes; an open dimension counts as zero elements."""
    return size_bytes(variable) or 0


def variable_align(variable: ptx.Variable) -> int:
    """The declared alignment of a variable in bytes, at least that of its elements."""
    return max(variable.align or 0, element_bytes(variable))


Places = list[tuple[int, int]]


def place_in_order(variables: Iterable[ptx.Variable], start: int = 0) -> tuple[Places, int]:
    """Offsets and sizes of consecutive variables, without registers, and the end offset."""
    placed: Places = []
    offset = start
    for variable in variables:
        if variable.space == "reg":
            placed.append((0, 0))
            continue
        offset = align(offset, variable_align(variable))
        placed.append((offset, variable_size(variable)))
        offset += variable_size(variable)
    return placed, offset


def formal_offsets(
    parameters: tuple[ptx.Variable, ...], returns: tuple[ptx.Variable, ...]
) -> tuple[Places, Places]:
    """Offsets and sizes of the parameters and results of a call in the callee's frame."""
    places, _ = place_in_order((*parameters, *returns), HEADER)
    return places[: len(parameters)], places[len(parameters) :]
