"""Accesses whose address depends on loaded data, given the arguments of a launch.

In: the accesses of kernels and of steps. Out: `IndirectAccesses`: for every step the accesses that
are indexed or through a pointer *with its arguments*. A kernel that gathers only when an optional
pointer is given is direct if that pointer is null. A pointer that a `pointers` record resolves is
an address like any other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Self

from tessera.diagnostics import Span
from tessera.ir.graph.access import AddressClass
from tessera.ir.program import program as ir
from tessera.passes.base import Analysis, Facts
from tessera.passes.dependences.access_regions import AccessRegions


@dataclass(frozen=True, slots=True, kw_only=True)
class IndirectAccess:
    """One access of one step whose address contains data; `reason` names the source of the data."""

    step: ir.LaunchId
    buffer: ir.BufferId
    address: AddressClass
    text: str
    reason: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class IndirectAccesses:
    """All indirect accesses in program order; `pinned` are the steps that may touch anything.

    Example: `{a.address for a in AnalysisManager(program).get(IndirectAccesses).accesses}`.
    """

    name: ClassVar[str] = "indirect"
    needs: ClassVar[tuple[type[Analysis], ...]] = (AccessRegions,)

    accesses: tuple[IndirectAccess, ...]
    pinned: tuple[ir.LaunchId, ...]

    @classmethod
    def compute(cls, program: ir.Program, facts: Facts) -> Self:
        """Select the indirect accesses of every step."""
        steps = facts.get(AccessRegions).steps
        accesses = tuple(
            IndirectAccess(
                step=step.id,
                buffer=access.buffer,
                address=access.address,
                text=access.text,
                reason=getattr(access.region, "reason", "the address contains data"),
                span=access.span,
            )
            for step in steps
            for access in step.accesses
            if access.address is not AddressClass.DIRECT
        )
        return cls(accesses, tuple(step.id for step in steps if step.pins))
