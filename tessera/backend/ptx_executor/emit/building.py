"""What an emitter may ask of the kernel that is being compiled.

`emit.program` implements it; emitters see nothing else of a kernel.
"""

from __future__ import annotations

from typing import Protocol

from tessera.backend.ptx_executor.emit.kinds import ValueKind
from tessera.backend.ptx_executor.emit.layout import FunctionLayout
from tessera.ir.ptx import syntax as ptx


class KernelBuilder(Protocol):
    """The kernel as a whole: constants, registers and functions that its blocks share."""

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
        """The name of any value that the generated code needs."""

    def probe(self, expression: str) -> None:
        """Refuse an expression that the numerics have no code for."""

    def resolve(self, name: str) -> str:
        """The name under which a function is compiled, aliases followed."""

    def carry(self, layout: FunctionLayout) -> int:
        """The number of the carry flag of a function."""
