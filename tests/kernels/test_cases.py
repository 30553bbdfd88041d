"""Every kernel case on the CPU backend, against its reference."""

from __future__ import annotations

import pytest

from tests.kernels.case import Case, difference
from tests.kernels.cases import CASES
from tests.kernels.cpu import case_result


def test_names_are_unique() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case) -> None:
    run = case.make()
    found = case_result(case)
    for name, expect in run.expect.items():
        assert difference(found.buffers[name], expect) is None, name
    if run.printed is not None:
        assert found.printed == run.printed


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_reference_can_fail(case: Case) -> None:
    """A kernel that does nothing must not pass: the expectation differs from the start."""
    run = case.make()
    assert run.printed or any(difference(run.buffers[n], e) for n, e in run.expect.items())
