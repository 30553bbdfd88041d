"""The accesses of every kernel in terms of its parameters.

In: the kernels of a program. Out: `KernelAccesses`: per kernel one `KernelAccess` for every access
of global or constant memory: what it is based on, the offset from it, its width and the conditions
it hangs on; and its class: direct, indexed (the offset contains data) or pointer (the base is
data), with the loads that the data comes from. They hold for every launch; what one launch
touches, to the byte, is `access_regions`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Self

from tessera.diagnostics import Span
from tessera.ir.graph.access import AccessKind, AddressClass
from tessera.ir.graph.expr import Expression
from tessera.ir.opcodes import MemoryEffect
from tessera.ir.program import program as ir
from tessera.passes.base import Analysis, Facts
from tessera.passes.kernel_facts.describe_kernel import Describer
from tessera.passes.kernel_facts.kernel_code import KernelCode, Step
from tessera.passes.kernel_facts.kernel_codes import KernelCodes, KernelId, find_kernel
from tessera.passes.kernel_facts.register_values import AddressBase, Provenance, split_base

_SPACES = frozenset({"global", "generic", "const"})
_DATA = re.compile(r"data\.([^\s?]+)\?")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelAccess:
    """One access. `width` is in bytes per thread, None where no constant; `loads` are the registers
    whose loaded values the address contains."""

    text: str
    kind: AccessKind
    base: AddressBase
    offset: Expression
    width: int | None
    conditions: tuple[str, ...]
    address: AddressClass
    loads: tuple[str, ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class KernelAccesses:
    """The accesses of all kernels, in the order of their instructions.

    Example: `AnalysisManager(program).get(KernelAccesses).of("m", "copy")[0].offset`.
    """

    name: ClassVar[str] = "kernel-accesses"
    needs: ClassVar[tuple[type[Analysis], ...]] = (KernelCodes,)

    kernels: dict[KernelId, tuple[KernelAccess, ...]]

    @classmethod
    def compute(cls, program: ir.Program, facts: Facts) -> Self:
        """Accesses of every kernel."""
        codes = facts.get(KernelCodes).codes
        return cls({kernel: tuple(_accesses(code)) for kernel, code in codes.items()})

    def of(self, module: str, kernel: str, arch: str | None = None) -> tuple[KernelAccess, ...]:
        """The accesses of one kernel."""
        return self.kernels[find_kernel(self.kernels, module, kernel, arch)]


def _accesses(code: KernelCode) -> Iterator[KernelAccess]:
    describer = Describer(code)
    for number, block in enumerate(code.blocks):
        if not code.flow.blocks[number].reachable:
            continue
        for step in block:
            for effect in step.effects:
                if effect.space in _SPACES:
                    yield _access(code, describer, number, step, effect)


def _access(
    code: KernelCode, describer: Describer, number: int, step: Step, effect: MemoryEffect
) -> KernelAccess:
    base, offset = split_base(code, describer.address(number, step, effect.operand))
    loads = tuple(dict.fromkeys(_DATA.findall(str(offset))))
    address = AddressClass.INDEXED if loads or "?" in str(offset) else AddressClass.DIRECT
    if base.provenance in {Provenance.LOADED, Provenance.UNKNOWN}:
        address = AddressClass.POINTER
        loads = (base.name, *loads) if base.name else loads
    return KernelAccess(
        text=str(step.instruction.opcode),
        kind=_kind(effect),
        base=base,
        offset=offset,
        width=effect.width,
        conditions=tuple(str(c).replace("@", "?") for c in describer.conditions(number, step)),
        address=address,
        loads=loads,
        span=code.span(step.index),
    )


def _kind(effect: MemoryEffect) -> AccessKind:
    if effect.access.reads and effect.access.writes:
        return AccessKind.ATOMIC
    return AccessKind.WRITE if effect.access.writes else AccessKind.READ
