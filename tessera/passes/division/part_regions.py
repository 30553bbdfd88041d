"""What parts of launches touch, each as if it ran in the place of its launch.

In: a program and the accesses of its steps. Out: `PartRegions`, which answers questions about
single parts. It follows kernels as `AccessRegions` does (`AccessWalk`), and keeps their prepared
code and what was found, so that a further range of a known launch costs one run of its excerpt.
Which words of memory are pointers at a step follows from the accesses of the whole steps before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

from tessera.ir.program import program as ir
from tessera.passes.base import Analysis, Facts
from tessera.passes.dependences.access_regions import AccessRegions, AccessWalk
from tessera.passes.dependences.launch_report import StepAccesses
from tessera.passes.dependences.pointer_words import PointerWords
from tessera.passes.dependences.stored_addresses import AddressHolders

if TYPE_CHECKING:
    from tessera.passes.kernel_facts.kernel_code import KernelCode


class _KnownPointers(NamedTuple):
    """The words of memory that hold addresses before a step."""

    words: PointerWords
    holders: AddressHolders


@dataclass(frozen=True, slots=True, eq=False)
class PartRegions:
    """The accesses of parts of launches, by demand.

    Example: `manager.get(PartRegions).find(replace(launch, grid=(8, 1, 1), ctas=CtaRange(...)))`.
    """

    name: ClassVar[str] = "part-regions"
    needs: ClassVar[tuple[type[Analysis], ...]] = (AccessRegions,)

    program: ir.Program
    _walks: dict[str, AccessWalk]
    _states: tuple[_KnownPointers, ...]

    @classmethod
    def compute(cls, program: ir.Program, facts: Facts) -> Self:
        """Prepare the answers; kernels are followed when a part of them is asked for."""
        walk = AccessWalk(program, facts.store)
        return cls(program, {"": walk}, _states(program, walk, facts.get(AccessRegions).steps))

    def find(self, part: ir.Launch, arch: str = "") -> StepAccesses:
        """The accesses of a part; with `arch`, those of the code for that architecture alone.

        `part.id` is the number of the whole launch.
        """
        walk = self._walks.get(arch)
        if walk is None:
            walk = self._walks[arch] = AccessWalk(
                _for_arch(self.program, arch), self._walks[""].store
            )
        state = self._states[part.id]
        walk.words, walk.holders = copy(state.words), copy(state.holders)
        return walk.launch_accesses(ir.for_arch(part, arch) if arch else part)

    def keep(self) -> None:
        """Write what was found to the store."""
        for walk in self._walks.values():
            walk.close()

    def codes(self, launch: ir.Launch) -> Iterator[KernelCode]:
        """The prepared code of a launch's kernel, for each architecture."""
        walk = self._walks[""]
        for variant in self.program.modules[launch.module].variants:
            yield walk.code(launch, variant)


def _states(
    program: ir.Program, walk: AccessWalk, steps: Sequence[StepAccesses]
) -> tuple[_KnownPointers, ...]:
    """What is known of pointers before each step."""
    while True:
        states = []
        for work, step in zip(program.work(), steps, strict=True):
            states.append(_KnownPointers(copy(walk.words), copy(walk.holders)))
            walk.holders.note(work, step.accesses)
            walk.words.overwrite(step.accesses)
        if not (walk.words.restart() | walk.holders.restart()):
            return tuple(states)


def _for_arch(program: ir.Program, arch: str) -> ir.Program:
    """The program with the code for one architecture, where there is such code."""
    modules = []
    for module in program.modules:
        own = module.variant(arch)
        modules.append(module if own is None else replace(module, variants=(own,)))
    return replace(program, modules=tuple(modules))
