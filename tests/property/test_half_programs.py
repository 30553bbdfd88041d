"""Random kernels whose pointers go about in halves, against what the CPU backend touches."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.helpers.half_programs import halves_program
from tests.helpers.pointer_cases import checked
from tests.helpers.share import share


def pinned(seeds: Sequence[int]) -> int:
    """How many of them are pinned; every byte that is touched lies in the regions."""
    return sum(bool(checked(halves_program(seed), fills=(0, 3))[0].pins) for seed in seeds)


def test_random_halves_stay_in_the_regions() -> None:
    seeds = share(range(24))
    assert pinned(seeds) < len(seeds)


@pytest.mark.slow
def test_many_random_halves_stay_in_the_regions() -> None:
    assert pinned(range(12, 212)) < 140
