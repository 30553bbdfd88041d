"""Large grids in pieces against every CTA by itself: the same bytes, to the last one."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets import intervals
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.footprint import footprint
from tessera.passes.footprint.footprint import Footprint
from tests.property.grid_strategies import grid_kernels
from tests.property.kernel_strategies import Kernel, kernels
from tests.property.test_soundness_generated import log_of, program_of, check_log

GRIDS = [(40, 1, 1), (17, 5, 2), (7, 3, 4), (96, 2, 1), (5, 64, 1), (1, 1, 33), (61, 1, 3)]


def both_ways(program: ir.Program) -> tuple[Footprint, Footprint]:
    """The footprint of a launch with every CTA by itself, and in pieces."""
    kept: list[tuple[Footprint, Footprint]] = []
    find = footprint.find_footprint

    def twice(*args: object) -> Footprint:
        alone = find(*args, few_lanes=1 << 62)  # type: ignore[arg-type]
        kept.append((alone, find(*args, few_lanes=0)))  # type: ignore[arg-type]
        return alone

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(footprint, "find_footprint", twice)
        AnalysisManager(program).get(AccessRegions)
    return kept[0]


def check_equal(alone: Footprint, pieces: Footprint) -> None:
    assert not alone.is_coarse
    assert not pieces.is_coarse
    assert {e.key for e in alone.entries} == {e.key for e in pieces.entries}
    for left, right in zip(alone.entries, pieces.entries, strict=True):
        assert np.array_equal(left.may, right.may), left.key
        assert np.array_equal(left.sure, right.sure), left.key
        assert (left.whole is None, left.exact) == (right.whole is None, right.exact), left.key
    assert alone.unresolved.keys() == pieces.unresolved.keys()
    assert (alone.nulls, alone.pins) == (pieces.nulls, pieces.pins)
    assert (alone.doubt, alone.asked) == (pieces.doubt, pieces.asked)


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(kernels(), st.sampled_from(GRIDS))
def test_pieces_touch_what_all_ctas_touch(kernel: Kernel, grid: tuple[int, int, int]) -> None:
    check_equal(*both_ways(program_of(replace(kernel, grid=grid))))


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(grid_kernels())
def test_pieces_of_tiled_kernels_touch_what_all_ctas_touch(kernel: Kernel) -> None:
    check_equal(*both_ways(program_of(kernel)))
