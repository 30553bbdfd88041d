"""The recorded oracle on a real GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu import check_oracle

pytestmark = pytest.mark.gpu


def test_the_oracle_holds_on_a_gpu(tmp_path: Path) -> None:
    driver = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    if int(driver.cuInit(0)[0]) != 0:
        pytest.skip("there is no GPU")
    check_oracle.prepare(tmp_path / "work", [])
    report = check_oracle.run(tmp_path / "work")
    assert report["wrong"] == []
    assert report["failed"] == {}
    assert report["cases"] > 600
