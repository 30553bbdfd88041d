"""Steps without the loads of bytes that the same thread has stored.

In: the accesses of every step. Out: the same accesses, without loads from a temporary or an output
if the same thread has stored these bytes earlier (`own_reads`) and no earlier step may have written
any of them. Such a load does not depend on the earlier contents, so nothing has to put bytes there
first. The launch still writes these bytes, which orders later steps behind it.

If an earlier step may have written some of the bytes, the read stays. So even if this analysis
misjudges a kernel, the kernel could only have read bytes that nothing wrote.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from tessera.ir.arrays import Ranges
from tessera.ir.graph.access import Access, AccessKind
from tessera.ir.program import program as ir
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import region_bytes
from tessera.passes.dependences.launch_report import StepAccesses
from tessera.passes.dependences.launch_scene import argument_pointers

if TYPE_CHECKING:
    from tessera.passes.kernel_facts.own_reads import KernelLoad

_Arguments = dict[str, ir.Argument]
_PRIVATE = frozenset({ir.Role.TEMP, ir.Role.OUTPUT})


def without_read_back(
    program: ir.Program, steps: tuple[StepAccesses, ...]
) -> tuple[StepAccesses, ...]:
    """The steps of a program, in its order."""
    asked = {buffer for step in steps for buffer in _read_and_written(program, step)}
    if not asked:
        return steps
    known = _OwnReads(program)
    written: dict[ir.BufferId, list[Ranges]] = {}
    kept = list(steps)
    works = list(program.work())
    # Twins find what was there before the first of them.
    for group in ir.grouped(len(steps), program.twins):
        for at in group:
            buffers = _read_and_written(program, steps[at])
            work = works[at]
            if buffers and isinstance(work, ir.Launch) and not steps[at].pins:
                before = {buffer: intervals.union(written.get(buffer, [])) for buffer in buffers}
                kept[at] = known.left_out(work, steps[at], before)
        for access in (access for at in group for access in steps[at].accesses):
            if access.buffer in asked and access.kind.writes:
                written.setdefault(access.buffer, []).append(_bytes(program, access))
    return tuple(kept)


def _read_and_written(program: ir.Program, step: StepAccesses) -> frozenset[ir.BufferId]:
    """The temporaries and outputs that a step both loads and stores."""
    loaded = {a.buffer for a in step.accesses if a.kind is AccessKind.READ}
    stored = {a.buffer for a in step.accesses if a.kind is AccessKind.WRITE}
    return frozenset(b for b in loaded & stored if program.buffers[b].role in _PRIVATE)


def _bytes(program: ir.Program, access: Access) -> Ranges:
    size = program.buffers[access.buffer].bytes
    return intervals.clip(region_bytes(access.region, size), 0, size)


class _OwnReads:
    """The loads of kernels from bytes that the same thread stored; computed once per kernel."""

    def __init__(self, program: ir.Program) -> None:
        self._program = program
        self._known: dict[object, tuple[KernelLoad, ...]] = {}

    def left_out(
        self, launch: ir.Launch, step: StepAccesses, before: dict[ir.BufferId, Ranges]
    ) -> StepAccesses:
        """A step without these loads; `before` has the bytes that earlier steps may write."""
        parts: dict[ir.BufferId, list[Ranges]] = {buffer: [] for buffer in before}
        for access in step.accesses:
            if access.kind is AccessKind.WRITE and access.buffer in parts:
                parts[access.buffer].append(_bytes(self._program, access))
        stored = {buffer: intervals.union(written) for buffer, written in parts.items()}
        is_own = cache(partial(self._is_own, launch))
        accesses = tuple(
            access
            for access in step.accesses
            if access.kind is not AccessKind.READ
            or access.buffer not in before
            or not self._is_new(access, before[access.buffer], stored[access.buffer])
            or not is_own(access.text, access.buffer)
        )
        if len(accesses) == len(step.accesses):
            return step
        return replace(step, accesses=accesses, pattern=None)

    def _is_own(self, launch: ir.Launch, text: str, buffer: ir.BufferId) -> bool:
        """Whether all loads that an access stands for load bytes that their thread has stored.

        One access stands for all instructions with the same text and the same bytes.
        """
        loads, given = self._loads(launch)
        alike = [load for load in loads if load.text == text]
        return any(load.is_own for load in alike) and all(
            load.is_own or _is_elsewhere(load, given, buffer) for load in alike
        )

    def _is_new(self, access: Access, before: Ranges, stored: Ranges) -> bool:
        """Whether the launch may write all these bytes, and no earlier step has."""
        wanted = _bytes(self._program, access)
        return not len(intervals.intersect(wanted, before)) and intervals.covers(stored, wanted)

    def _loads(self, launch: ir.Launch) -> tuple[tuple[KernelLoad, ...], _Arguments]:
        """The loads of a kernel and its arguments. Empty if there is code for several GPUs, because
        the accesses of these variants are added up."""
        variants = self._program.modules[launch.module].variants
        functions = [f for f in variants[0].ptx.kernels() if f.name == launch.kernel]
        if len(variants) != 1 or len(functions) != 1:
            return (), {}
        key = launch.module, launch.kernel
        if key not in self._known:
            from tessera.passes.kernel_facts.kernel_code import prepare_kernel
            from tessera.passes.kernel_facts.own_reads import loads_of

            self._known[key] = loads_of(prepare_kernel(variants[0].ptx, functions[0]))
        names = [parameter.name for parameter in functions[0].parameters]
        given = ir.for_arch(launch, variants[0].arch).arguments
        return self._known[key], dict(zip(names, given, strict=False))


def _is_elsewhere(load: KernelLoad, given: _Arguments, buffer: ir.BufferId) -> bool:
    """Whether the address of a load is made of pointers into other buffers and of numbers."""
    if load.parameters is None or not load.parameters <= given.keys():
        return False
    arguments = tuple(given[name] for name in sorted(load.parameters))
    buffers = {pointer.buffer for pointer in argument_pointers(arguments)}
    return bool(buffers) and buffer not in buffers
