"""Every kernel of a program, with calls inlined, cut down to what its accesses depend on.

In: a program. Out: `KernelCodes`: a `KernelCode` for each kernel of each variant of each module.
Analyses of kernels depend on this analysis.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from tessera.ir.program import program as ir
from tessera.passes.base import Analysis, Facts
from tessera.passes.kernel_facts.kernel_code import KernelCode, prepare_kernel


@dataclass(frozen=True, slots=True)
class KernelId:
    """A kernel of one variant of a module; printed `module.kernel` or `module.kernel@arch`."""

    module: str
    kernel: str
    arch: str

    def __str__(self) -> str:
        return f"{self.module}.{self.kernel}@{self.arch}"


@dataclass(frozen=True, slots=True)
class KernelCodes:
    """The kernels by id, in file order.

    Example: `AnalysisManager(program).get(KernelCodes).of("m", "copy").blocks`.
    """

    name: ClassVar[str] = "kernel-codes"
    needs: ClassVar[tuple[type[Analysis], ...]] = ()

    codes: dict[KernelId, KernelCode]

    @classmethod
    def compute(cls, program: ir.Program, facts: Facts) -> Self:
        """Prepare every kernel."""
        return cls(
            {
                KernelId(module.name, function.name, variant.arch): prepare_kernel(
                    variant.ptx, function
                )
                for module in program.modules
                for variant in module.variants
                for function in variant.ptx.kernels()
            }
        )

    def of(self, module: str, kernel: str, arch: str | None = None) -> KernelCode:
        """The code of a kernel; of the first variant if no architecture is given."""
        return self.codes[find_kernel(self.codes, module, kernel, arch)]


def find_kernel(
    known: Mapping[KernelId, object], module: str, kernel: str, arch: str | None = None
) -> KernelId:
    """The id of a kernel; KeyError if there is none."""
    matches: Iterator[KernelId] = (
        candidate
        for candidate in known
        if (candidate.module, candidate.kernel) == (module, kernel)
        and arch in (None, candidate.arch)
    )
    for candidate in matches:
        return candidate
    raise KeyError(f"no kernel `{module}.{kernel}`")
