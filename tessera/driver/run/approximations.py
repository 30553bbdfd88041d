"""Which steps of a trace approximate, and what that may do to results.

In: a program. Out: the kernels with approximate instructions (`ex2.approx`, `rsqrt.approx`, ...) or
with matrix products whose sums have no stated order, and the library calls: of these two devices
need not have the same bits. And the type that results are compared in, at least: where steps round
to fewer bits on the way, one bit of difference before that becomes one of theirs.
"""

from __future__ import annotations

from dataclasses import dataclass

from tessera.driver.run.tolerance import TOLERANCE
from tessera.ir.program import program as ir
from tessera.ir.program.data_type import DataType
from tessera.passes.kernel_facts.inline_calls import inline_calls

_PRODUCTS = ("mma", "wgmma", "wmma", "tcgen05")
_ROUNDED = (DataType.F64, DataType.F32, DataType.F16, DataType.BF16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Approximations:
    """Kernels by name with the instructions that approximate, and how many library calls."""

    kernels: tuple[tuple[str, tuple[str, ...]], ...]
    calls: int
    widened: DataType | None

    def text(self, most: int = 4) -> str:
        """For people: which steps approximate."""
        names = [f"`{name}` ({', '.join(opcodes)})" for name, opcodes in self.kernels[:most]]
        more = len(self.kernels) - len(names)
        names += [f"{more} more kernels"] if more else []
        names += [f"{self.calls} library calls"] if self.calls else []
        return ", ".join(names) if names else "no step approximates"


def approximations(program: ir.Program) -> Approximations:
    """Which steps of a program approximate."""
    launched = dict.fromkeys((step.module, step.kernel) for step in program.launches())
    kernels = []
    for module, name in launched:
        variant = program.modules[module].variants[0]
        for kernel in variant.ptx.kernels():
            if kernel.name == name and kernel.body is not None:
                used = {
                    _named(instruction.opcode.name, instruction.opcode.modifiers)
                    for instruction in inline_calls(variant.ptx, kernel).instructions
                }
                opcodes = tuple(sorted(opcode for opcode in used if opcode))
                if opcodes:
                    kernels.append((name, opcodes))
    calls = sum(isinstance(step, ir.LibraryCall) for step in program.work())
    kinds = {buffer.dtype for buffer in program.declared_buffers()}
    coarse = [kind for kind in _ROUNDED if kind in kinds]
    return Approximations(
        kernels=tuple(kernels),
        calls=calls,
        widened=max(coarse, key=lambda kind: TOLERANCE[kind])
        if coarse and (kernels or calls)
        else None,
    )


def _named(name: str, modifiers: tuple[str, ...]) -> str:
    """An instruction that approximates, by its short name; nothing for others."""
    if "approx" in modifiers:
        return f"{name}.approx"
    return name if name in _PRODUCTS else ""
