"""Records of a compiled kernel: blocks as Python functions, and the data of a launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tessera.backend.ptx_executor.memory.memory import Array
from tessera.diagnostics import Span
from tessera.ir.ptx import syntax as ptx

# Addresses of functions: the first address, and the distance between two.
FUNCTION_BASE = 1 << 32
FUNCTION_STEP = 16


@dataclass(slots=True)
class Site:
    """An instruction that can fault: its function and statement."""

    function: str
    instruction: ptx.Instruction


# The lanes that must arrive before a block runs: none, the threads of a mask, a group of warps, or
# the mask in a register.
Members = int | str | tuple[str, int] | None


@dataclass(slots=True)
class CompiledBlock:
    """One block: `run(cx, *ins)` returns the values of `outs`, and the value that decides the
    next block."""

    number: int
    name: str
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    control: str
    targets: tuple[int, ...]
    members: Members
    only_waits: bool
    polls: bool
    length: int
    site: int
    run: Callable[..., tuple[tuple[Array, ...], Any]]


@dataclass(slots=True)
class KernelProgram:
    """A compiled kernel: everything that a launch needs."""

    kernel: ptx.Function
    module: ptx.Module
    blocks: list[CompiledBlock]
    entry: int
    sites: list[Site]
    source: str
    initial_registers: list[Array]
    local_bytes: int
    recursive: bool
    symbols: tuple[str, ...]
    shared_static: int
    shared_dynamic: bool
    reserved_shared: int
    uses_workspace: bool
    parameters: tuple[tuple[int, int], ...]
    parameter_size: int
    function_entries: Array
    frame_limit: int

    def span(self, site: int) -> Span | None:
        """The source position of the instruction of a site."""
        if site < 0:
            return None
        return self.module.span(self.sites[site].instruction.at)
