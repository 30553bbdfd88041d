"""Legal cuts against brute force: parts that run apart, and every row of CTAs by itself.

Where a cut is legal, its parts run on memories of their own, and what they change is put together:
that is what the whole launch leaves. Where every address is direct, a cut is legal exactly if no
two rows of CTAs on its sides are in each other's way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tessera.backend.ptx_executor.run import run_program
from tessera.driver.traces import proved_kernels
from tessera.ir.arrays import Ranges
from tessera.ir.graph.access import AccessKind, AddressClass
from tessera.ir.plan.division import Cut
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import regions_bytes
from tessera.passes.dependences.launch_report import StepAccesses
from tessera.passes.division.grid_cuts import parts_of_launch
from tessera.passes.division.legal_cuts import LegalCuts, tried_edges, why_not
from tessera.passes.division.part_regions import PartRegions
from tests.property.grid_strategies import grid_kernels
from tests.property.kernel_strategies import Kernel, kernels
from tests.property.test_soundness_generated import program_of

GRIDS = [(7, 1, 1), (4, 3, 1), (2, 2, 3)]
_SETTINGS = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    max_examples=settings.default.max_examples // 2,
)


def left_by(program: ir.Program, contents: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    left = run_program(program, {name: value.copy() for name, value in contents.items()}).buffers
    return {name: np.frombuffer(bytes(left[name]), np.uint8) for name in contents}


def check_apart(program: ir.Program, parts: Sequence[ir.Launch]) -> None:
    """What parts change, each from the first contents on, is what the whole launch changes."""
    for seed, most in ((3, 256), (4, 8)):
        rng = np.random.default_rng(seed)
        first = {b.name: rng.integers(0, most, b.bytes).astype(np.uint8) for b in program.buffers}
        whole = left_by(program, first)
        merged = {name: value.copy() for name, value in first.items()}
        for part in parts:
            alone = replace(program, steps=(replace(part, id=ir.LaunchId(0)),))
            for name, left in left_by(proved_kernels(alone), first).items():
                changed = left != first[name]
                assert (merged[name][changed] == first[name][changed]).all(), name
                merged[name][changed] = left[changed]
        for name in first:
            assert np.array_equal(merged[name], whole[name]), name


@_SETTINGS
@given(
    st.one_of(
        st.tuples(kernels(), st.sampled_from(GRIDS)).map(
            lambda both: replace(both[0], grid=both[1])
        ),
        grid_kernels(inside=True),
    ),
    st.data(),
)
def test_parts_of_legal_cuts_leave_what_the_launch_leaves(
    kernel: Kernel, data: st.DataObject
) -> None:
    program = program_of(kernel)
    (launch,) = program.launches()
    manager = AnalysisManager(program)
    for axis, extent in zip("xyz", kernel.grid, strict=True):
        if extent > 1:
            inner = data.draw(st.sets(st.integers(1, extent - 1), min_size=1, max_size=3))
            cut = Cut(step=0, axis=axis, edges=(0, *sorted(inner), extent))
            if why_not(manager, cut) is None:
                check_apart(program, parts_of_launch(program, launch, [cut]))


def sides(program: ir.Program, row: StepAccesses) -> tuple[dict[int, Ranges], dict[int, Ranges]]:
    """The bytes that a row of CTAs reads and writes, by buffer."""
    found: tuple[dict[int, Ranges], dict[int, Ranges]] = ({}, {})
    for place, kinds in enumerate((("read", "atomic"), ("write", "atomic"))):
        for buffer in program.buffers:
            regions = [
                a.region for a in row.accesses if a.buffer == buffer.id and a.kind.value in kinds
            ]
            found[place][buffer.id] = regions_bytes(regions, buffer.bytes)
    return found


@_SETTINGS
@given(grid_kernels(inside=True))
def test_direct_launches_are_cut_where_no_rows_meet(kernel: Kernel) -> None:
    program = program_of(replace(kernel, grid=tuple(min(size, 9) for size in kernel.grid)))
    (launch,) = program.launches()
    manager = AnalysisManager(program)
    (known,) = manager.get(LegalCuts).steps
    for axis, extent in zip("xyz", launch.grid, strict=True):
        if extent < 2:
            continue
        every = Cut(step=0, axis=axis, edges=tuple(range(extent + 1)))
        parts = parts_of_launch(program, launch, [every])
        rows = [manager.get(PartRegions).find(part) for part in parts]
        accesses = [a for row in rows for a in row.accesses]
        if any(a.address is not AddressClass.DIRECT for a in accesses):
            continue
        assert all(a.kind is not AccessKind.ATOMIC for a in accesses)
        touched = [sides(program, row) for row in rows]
        forbidden: set[int] = set()
        for low, high in combinations(range(extent), 2):
            (reads, writes), (more_reads, more_writes) = touched[low], touched[high]
            pairs = ((writes, more_writes), (writes, more_reads), (reads, more_writes))
            if any(len(intervals.intersect(a[b], c[b])) for a, c in pairs for b in a):
                forbidden.update(range(low + 1, high + 1))
        for edge in range(1, extent):
            cut = Cut(step=0, axis=axis, edges=(0, edge, extent))
            assert (why_not(manager, cut) is None) == (edge not in forbidden), (axis, edge)
        legal = known.axis(axis)
        if legal is None:
            assert forbidden
        else:
            assert forbidden.isdisjoint(tried_edges(legal)[1:-1])
            assert forbidden or legal.multiple == 1
