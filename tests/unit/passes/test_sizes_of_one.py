"""Sizes of which one is a case of its own: clusters, states without a shape, two threads."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.ir.graph.access import NeedKind
from tessera.ir.program import program as ir
from tessera.ir.program.data_type import DataType
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.dependences.launch_scene import cluster_size
from tessera.passes.lane_values.lanes import Lanes, single
from tessera.planning.lower.hand_over import HeldState
from tests.helpers.traces import trace

KERNEL = ".visible .entry k(.param .u64 y)\nDIRECTIVE\n{ ret; }\n"


def program(directive: str = "", given: str = "") -> ir.Program:
    launch = f"launch m.k grid=8,8,8 block=1,1,1 {given}args=[y]\n"
    return trace("buffer y bytes=8 role=output", KERNEL.replace("DIRECTIVE", directive), launch)


@pytest.mark.parametrize("size", [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2)])
def test_a_cluster_of_more_than_one_is_a_need(size: tuple[int, int, int]) -> None:
    given = program(given=f"cluster={','.join(map(str, size))} ")
    (step,) = AnalysisManager(given).get(AccessRegions).steps
    assert (NeedKind.CLUSTER in {need.kind for need in step.needs}) is (size != (1, 1, 1))


@pytest.mark.parametrize(
    ("text", "size"), [("3", (3, 1, 1)), ("3, 2", (3, 2, 1)), ("1, 2, 4", (1, 2, 4))]
)
def test_numbers_of_a_directive_that_are_left_out(text: str, size: ir.Triple) -> None:
    given = program(f".reqnctapercluster {text}")
    (function,) = given.modules[0].variants[0].ptx.kernels()
    (launch,) = given.work()
    assert isinstance(launch, ir.Launch)
    assert cluster_size(launch, function) == size


def test_two_threads_with_two_numbers_have_no_single_one() -> None:
    assert single(Lanes(np.array([[3, 4]], np.uint64))) is None
    assert single(Lanes(np.array([[3, 3]], np.uint64))) == 3


def test_a_state_without_a_shape_is_one_row() -> None:
    buffer = ir.Buffer(id=ir.BufferId(0), name="s", bytes=24, role=ir.Role.STATE)
    rows = ir.Buffer(
        id=ir.BufferId(0), name="s", bytes=24, role=ir.Role.STATE, dtype=DataType.U32, shape=(3, 2)
    )
    assert HeldState(buffer, None).row_bytes == 24  # type: ignore[arg-type]
    assert HeldState(rows, None).row_bytes == 8  # type: ignore[arg-type]
