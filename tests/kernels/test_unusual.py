"""Kernels in the corners of CUDA: their results, and the regions that the analysis gives them."""

from __future__ import annotations

import pytest

from tests.kernels.case import Case, difference
from tests.kernels.cases.unusual import CASES
from tests.kernels.cpu import run_case
from tests.property import test_soundness_kernels as soundness


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_results(case: Case) -> None:
    run = case.make()
    results = run_case(case, run).buffers
    for name, expect in run.expect.items():
        assert difference(run.buffers[name], expect) is not None, "the start must not pass"
        assert difference(results[name], expect) is None, name


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("kind", ["own", "zeros", "ones"])
def test_logged_bytes_are_in_the_regions(case: Case, kind: str) -> None:
    soundness.test_logged_bytes_are_in_the_regions(case, kind)
