"""What a step of a trace is on a compute queue: one description for the backend and for programs.

In: a step and the architecture it runs as. Out: a record with everything resolved but addresses.
`enqueue` makes driver calls of it, `emit_python` writes it down as Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from tessera.ir.program.program import (
    Argument,
    Launch,
    LaunchId,
    LibraryCall,
    Memcpy,
    Memset,
    ModuleId,
    Pointer,
    Work,
    for_arch,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCall:
    """A kernel of a module in one variant, with its sizes and arguments."""

    step: LaunchId
    module: ModuleId
    arch: str
    launch: Launch

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """The arguments, in the order of the parameters."""
        return self.launch.arguments

    @property
    def is_plain(self) -> bool:
        """Whether `cuLaunchKernel` can launch it."""
        return self.launch.cluster is None and not self.launch.cooperative


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCall:
    """A run of equal elements."""

    target: Pointer
    value: int
    element_bytes: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyCall:
    """A run of bytes from one buffer to another on the same device."""

    target: Pointer
    source: Pointer
    size: int


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """An operator of a library."""

    call: LibraryCall


QueuedWork = KernelCall | SetCall | CopyCall | OperatorCall


def describe_step(step: Work, arch: str) -> QueuedWork:
    """What a step does on its queue; `arch` counts for launches only."""
    match step:
        case Launch():
            launch = for_arch(step, arch)
            return KernelCall(step=step.id, module=step.module, arch=arch, launch=launch)
        case Memset():
            count = step.bytes // step.element_bytes
            return SetCall(
                target=step.target,
                value=step.value,
                element_bytes=step.element_bytes,
                count=count,
            )
        case Memcpy():
            return CopyCall(target=step.target, source=step.source, size=step.bytes)
        case LibraryCall():
            return OperatorCall(step)
        case _:
            assert_never(step)
