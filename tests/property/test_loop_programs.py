"""Random loops against the log of the CPU backend: as they are, in pieces, and round by round."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tessera.diagnostics import TesseraError
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.access_regions import AccessRegions
from tests.helpers.loop_programs import LoopProgram
from tests.helpers.share import least, share
from tests.property.test_grid_pieces import in_pieces
from tests.property.test_soundness_generated import check_log, log_of, program_of


def followed(seeds: Sequence[int]) -> int:
    """In how many runs every byte was in the regions; some leave their buffers and do not count."""
    runs = 0
    for seed in seeds:
        kernel = LoopProgram(seed).kernel()
        program = program_of(kernel)
        (whole,) = AnalysisManager(program).get(AccessRegions).steps
        steps = [step for step in (whole, in_pieces(program)) if not step.pins]
        for contents in ("zeros", "ones", "small"):
            try:
                log = log_of(program, kernel, contents)
            except TesseraError:
                continue
            for step in steps:
                check_log(program, step, log, f"seed {seed}, {contents}\n{kernel.text}")
                runs += 1
    return runs


def test_random_loops_stay_in_the_regions() -> None:
    assert followed(share(range(100))) > least(400, 40)


@pytest.mark.slow
def test_many_random_loops_stay_in_the_regions() -> None:
    assert followed(range(100, 2000)) > 6000
