"""What a trace holds: its buffers by role, its steps by kind, its launches by kernel.

In: a `Program`. Out: a `ProgramSummary`, with a `ModuleSummary` for each variant of each module.
A plain PTX file is a program with one module and no steps.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TypeVar

from tessera.ir.program.program import Launch, LibraryCall, Memcpy, Memset, Program, Role, Triple
from tessera.passes.kernel_facts.summarise_kernels import ModuleSummary, summarise_module

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RoleTotal:
    """The buffers of one role."""

    role: Role
    buffers: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTotal:
    """The launches of one kernel; the shape is None where they differ in it."""

    module: str
    kernel: str
    launches: int
    grid: Triple | None
    block: Triple | None
    shared_bytes: int | None


@dataclass(frozen=True, slots=True)
class VariantSummary:
    """A module's code for one architecture."""

    module: str
    arch: str
    summary: ModuleSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSummary:
    """One trace or PTX file."""

    roles: tuple[RoleTotal, ...]
    resident: str | None
    streams: int
    memsets: int
    memcpys: int
    library_calls: int
    launches: tuple[LaunchTotal, ...]
    variants: tuple[VariantSummary, ...]


def summarise_program(program: Program) -> ProgramSummary:
    """The summary of a trace or of a PTX file."""
    work = tuple(program.work())
    return ProgramSummary(
        roles=_roles(program),
        resident=program.resident,
        streams=len({step.stream for step in work}),
        memsets=sum(isinstance(step, Memset) for step in work),
        memcpys=sum(isinstance(step, Memcpy) for step in work),
        library_calls=sum(isinstance(step, LibraryCall) for step in work),
        launches=_launches(program),
        variants=tuple(
            VariantSummary(module.name, variant.arch, summarise_module(variant.ptx))
            for module in program.modules
            for variant in module.variants
        ),
    )


def _roles(program: Program) -> tuple[RoleTotal, ...]:
    """Totals of the declared buffers, in the order of `Role`; roles without buffers left out."""
    counts: Counter[Role] = Counter()
    sizes: Counter[Role] = Counter()
    for buffer in program.declared_buffers():
        counts[buffer.role] += 1
        sizes[buffer.role] += buffer.bytes
    return tuple(RoleTotal(role, counts[role], sizes[role]) for role in Role if counts[role])


def _launches(program: Program) -> tuple[LaunchTotal, ...]:
    """Launches by kernel, in the order of the first launch."""
    by_kernel: dict[tuple[str, str], list[Launch]] = {}
    for launch in program.launches():
        module = program.modules[launch.module].name
        by_kernel.setdefault((module, launch.kernel), []).append(launch)
    return tuple(
        LaunchTotal(
            module=module,
            kernel=kernel,
            launches=len(launches),
            grid=_if_same({launch.grid for launch in launches}),
            block=_if_same({launch.block for launch in launches}),
            shared_bytes=_if_same({launch.shared_bytes for launch in launches}),
        )
        for (module, kernel), launches in by_kernel.items()
    )


def _if_same(values: set[_T]) -> _T | None:
    return next(iter(values)) if len(values) == 1 else None
