"""Regions on a real GPU: nothing outside them changes, nothing else is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu import check_regions

pytestmark = pytest.mark.gpu


def _gpu() -> str | None:
    """Why there is no GPU to test on, or None."""
    try:
        from cuda.bindings import driver
    except ImportError:
        return "the package cuda-bindings is not installed"
    status = driver.cuInit(0)[0]
    if int(status) != 0 or int(driver.cuDeviceGetCount()[1]) == 0:
        return "there is no GPU"
    return None


def test_regions_hold_on_a_gpu(tmp_path: Path) -> None:
    reason = _gpu()
    if reason is not None:
        pytest.skip(reason)
    check_regions.prepare(tmp_path / "works")
    report = check_regions.run(tmp_path / "works", tmp_path / "out")
    assert report["wrong"] == []
    assert report["failed"] == {}
    assert report["checked"] > 200
