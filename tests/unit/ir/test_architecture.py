"""Architectures: names, which code runs where, and the two tables of limits."""

from __future__ import annotations

import pytest

from tessera.frontend.machine.gpu_table import gpu_table
from tessera.ir.architecture import LIMITS, NEWER, OLDER, architecture, limits_of, runs_on
from tessera.passes.checker import fits


def test_the_checker_has_the_same_limits() -> None:
    theirs = {n: (x.threads, x.ctas, x.shared_kib, x.cta_shared_kib) for n, x in LIMITS.items()}
    assert theirs == fits._LIMITS
    largest = max(theirs.values(), key=lambda row: (row[3], row))
    assert (NEWER.threads, NEWER.ctas, NEWER.shared_kib, NEWER.cta_shared_kib) == largest
    assert largest == fits._LARGEST


def test_every_gpu_of_the_table_is_known() -> None:
    """A new GPU needs a row here only if its architecture is new."""
    archs = {gpu.arch for gpu in gpu_table().values()}
    assert archs
    for arch in archs:
        found = architecture(arch)
        assert found is not None
        assert found.number in LIMITS, arch


@pytest.mark.parametrize(
    ("code", "gpu", "runs"),
    [
        ("sm_80", "sm_90", True),
        ("sm_90", "sm_80", False),
        ("sm_90a", "sm_90", True),
        ("sm_90a", "sm_100", False),
        ("sm_100f", "sm_103", True),
        ("sm_100f", "sm_120", False),
        ("sm_80", "gfx90", False),
        ("sm_", "sm_80", False),
        ("sm_080", "sm_90", False),
    ],
)
def test_what_runs_where(code: str, gpu: str, runs: bool) -> None:
    assert runs_on(code, gpu) is runs


def test_what_is_not_known_has_the_largest_limits() -> None:
    assert limits_of("sm_130") is NEWER
    assert limits_of("sm_52") is OLDER
