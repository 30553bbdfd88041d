"""The values of registers that matter, and the accesses of kernels in terms of their parameters.

In: the kernels of a program. Out: facts that hold for every launch.
- `RegisterValues`: one `RegisterValue` for every register that an instruction writes on the way to
  an address, a guard or a branch: the base of an address, an affine offset, a range and bits.
- `KernelAccesses`: one `KernelAccess` for every access of global or constant memory: its base, the
  offset from the base, its width and the conditions that it depends on; and its class: direct,
  indexed (the offset contains data) or pointer (the base is data), with the loads that the data
  comes from. `access_regions` has the exact bytes that one launch touches.

The provenance of an address is that of its base: a parameter, a module variable, shared or local
memory, a word loaded from memory, or none (a number). The offset is for people and ignores wrapping
(`ir.graph.expr`); ranges and bits account for it (`value_ranges`, `known_bits`).
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Self

from tessera.diagnostics import Span
from tessera.ir.graph import expr
from tessera.ir.graph.access import AccessKind, AddressClass
from tessera.ir.graph.expr import Expression, Origin, Term
from tessera.ir.opcodes import MemoryEffect
from tessera.ir.program import program as ir
from tessera.passes.base import Analysis, Facts
from tessera.passes.kernel_facts.describe_kernel import Describer
from tessera.passes.kernel_facts.kernel_code import KernelCode, Step
from tessera.passes.kernel_facts.kernel_codes import KernelCodes, KernelId, find_kernel
from tessera.passes.kernel_facts.known_bits import KnownBits
from tessera.passes.kernel_facts.operand_names import SINK
from tessera.passes.kernel_facts.value_ranges import ValueRanges


class Provenance(enum.Enum):
    """The base of an address; INTEGER is not an address, UNKNOWN may be any of the others."""

    PARAMETER = "parameter"
    VARIABLE = "variable"
    SHARED = "shared"
    LOCAL = "local"
    LOADED = "loaded"
    INTEGER = "integer"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class AddressBase:
    """A provenance, and the name of the object: a parameter, a variable, the loaded register."""

    provenance: Provenance
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterValue:
    """One register after one instruction. `low` and `high` are None if the value is unknown."""

    register: str
    width: int
    index: int
    base: AddressBase
    offset: Expression
    low: int | None
    high: int | None
    bits: KnownBits
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class RegisterValues:
    """The values of all kernels, in the order of their instructions.

    Example: `AnalysisManager(program).get(RegisterValues).of("m", "copy")[0].base`.
    """

    name: ClassVar[str] = "register-values"
    needs: ClassVar[tuple[type[Analysis], ...]] = (KernelCodes,)

    kernels: dict[KernelId, tuple[RegisterValue, ...]]

    @classmethod
    def compute(cls, program: ir.Program, facts: Facts) -> Self:
        """Values of every kernel."""
        codes = facts.get(KernelCodes).codes
        return cls({kernel: kernel_values(code) for kernel, code in codes.items()})

    def of(self, module: str, kernel: str, arch: str | None = None) -> tuple[RegisterValue, ...]:
        """The values of one kernel."""
        return self.kernels[find_kernel(self.kernels, module, kernel, arch)]


def kernel_values(code: KernelCode) -> tuple[RegisterValue, ...]:
    """The values of one kernel."""
    describer = Describer(code)
    ranges = ValueRanges(code).run()
    values: list[RegisterValue] = []
    for number, block in enumerate(code.blocks):
        for step in block:
            for name in step.targets:
                value = ranges.get((step.index, name))
                width = code.widths.get(name, 64)
                if value is None or width == 1 or name == SINK:
                    continue
                bounds = value.bounds(width)
                base, offset = split_base(code, describer.written(number, step, name), width)
                values.append(
                    RegisterValue(
                        register=name,
                        width=width,
                        index=step.index,
                        base=base,
                        offset=offset,
                        low=bounds[0] if bounds else None,
                        high=bounds[1] if bounds else None,
                        bits=value.bits,
                        span=code.span(step.index),
                    )
                )
    return tuple(values)


def split_base(
    code: KernelCode, value: Expression, width: int = 64
) -> tuple[AddressBase, Expression]:
    """A value as the base of an address and an offset from it."""
    if width < 64:
        return AddressBase(Provenance.INTEGER), value
    objects = _objects(code)
    bases = [
        (objects[term.symbols[0].text], Expression((term,)))
        for term in value.terms
        if term.coefficient == 1 and len(term.symbols) == 1 and term.symbols[0].text in objects
    ]
    if len(bases) == 1:
        return bases[0][0], expr.add(value, bases[0][1], -1)
    loaded = [term for term in value.terms if _is_word(code, term)]
    if not bases and len(loaded) == 1:
        base = AddressBase(Provenance.LOADED, loaded[0].symbols[0].register)
        return base, expr.add(value, Expression((loaded[0],)), -1)
    unknown = bases or not value.is_known
    return AddressBase(Provenance.UNKNOWN if unknown else Provenance.INTEGER), value


def _is_word(code: KernelCode, term: Term) -> bool:
    """Whether a term is one 64-bit word from memory."""
    if term.coefficient != 1 or len(term.symbols) != 1:
        return False
    symbol = term.symbols[0]
    return symbol.origin is Origin.LOADED and code.widths.get(symbol.register, 0) == 64


def _objects(code: KernelCode) -> dict[str, AddressBase]:
    """The possible bases of addresses, by their names in expressions."""
    prefix = f"{code.function.name}_"
    objects = {
        p.name.removeprefix(prefix): AddressBase(Provenance.PARAMETER, p.name)
        for p in code.function.parameters
        if p.type in {"u64", "b64", "s64"} and not p.dimensions
    }
    for variable in (*code.module.variables(), *code.flat.variables):
        kind = {"shared": Provenance.SHARED, "local": Provenance.LOCAL}.get(variable.space)
        if variable.space in {"global", "const"}:
            kind = Provenance.VARIABLE
        if kind is not None:
            objects[variable.name] = AddressBase(kind, variable.name)
    return objects


_SPACES = frozenset({"global", "generic", "const"})


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelAccess:
    """One access. `width` is in bytes per thread, None if not a constant; `loads` are the registers
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
    data = (symbol.register for symbol in offset.symbols() if symbol.origin is Origin.LOADED)
    loads = tuple(dict.fromkeys(data))
    address = AddressClass.DIRECT if offset.is_known else AddressClass.INDEXED
    if base.provenance in {Provenance.LOADED, Provenance.UNKNOWN}:
        address = AddressClass.POINTER
        loads = (base.name, *loads) if base.name else loads
    return KernelAccess(
        text=str(step.instruction.opcode),
        kind=_kind(effect),
        base=base,
        offset=offset,
        width=effect.width,
        conditions=tuple(map(str, describer.conditions(number, step))),
        address=address,
        loads=loads,
        span=code.span(step.index),
    )


def _kind(effect: MemoryEffect) -> AccessKind:
    if effect.access.reads and effect.access.writes:
        return AccessKind.ATOMIC
    return AccessKind.WRITE if effect.access.writes else AccessKind.READ
