"""Random kernels of what compilers seldom write, against the log of the CPU backend."""

from __future__ import annotations

from functools import partial

import pytest

from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.footprint import footprint
from tests.helpers.rare_programs import RareProgram
from tests.helpers.share import least, share
from tests.property.test_soundness_generated import check_log, log_of, program_of


@pytest.mark.parametrize("budget", [None, 0])
def test_what_is_seldom_written_stays_in_the_regions(budget: int | None) -> None:
    """With every CTA by itself, and with one row of threads for all."""
    followed = 0
    for seed in share(range(400)):
        kernel = RareProgram(seed).kernel()
        program = program_of(kernel)
        with pytest.MonkeyPatch.context() as patch:
            if budget is not None:
                find = partial(footprint.find_footprint, exact_budget=budget)
                patch.setattr(footprint, "find_footprint", find)
            (step,) = AnalysisManager(program).get(AccessRegions).steps
        if step.pins:
            continue
        followed += 1
        for contents in ("zeros", "ones", "small"):
            log = log_of(program, kernel, contents)
            check_log(program, step, log, f"seed {seed}, {contents}\n{kernel.text}")
    assert followed > least(60, 12)
