"""Generated kernels notice faults that were mended, when they are made again.

`tests/data/sabotage/reverted.txt` has the faults; their lines must be in the code of today.
"""

from __future__ import annotations

import pytest

from tests.helpers.reverted import Fault, faults, run_with

FOUND = [fault for fault in faults() if fault.by != "none"]


@pytest.mark.slow
@pytest.mark.parametrize("fault", FOUND, ids=lambda fault: fault.what)
def test_a_generator_notices_it(fault):
    fault.texts()
    status, text = run_with(fault, [fault.by])
    assert status < 0 or status == 1, text  # others: nothing was run


@pytest.mark.slow
@pytest.mark.parametrize("generator", sorted({fault.by for fault in FOUND}))
def test_without_a_fault_it_notices_nothing(generator):
    status, text = run_with(Fault("none"), [generator])
    assert status == 0, text


@pytest.mark.slow
def test_all_of_them_can_be_made_again():
    assert len(FOUND) >= 11
    for fault in faults():
        fault.texts()
