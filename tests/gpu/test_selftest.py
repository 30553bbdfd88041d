"""`tessc selftest` on two slices of a real GPU: every part passes, in a short form."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tessera.backend.cuda.doctor import check_machine
from tessera.backend.cuda.measure import profile as measuring
from tessera.driver.selftest import links
from tessera.driver.selftest.traces import TrialSize
from tests.helpers.command import tessc

MACHINE = check_machine()
IS_H200 = any("H200" in gpu.facts.name for gpu in MACHINE.gpus)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not IS_H200, reason=f"no H200: {MACHINE.problem or 'another GPU'}"),
]


def test_every_part_passes_on_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes are equal, links and plans have figures that can be; nothing is missing."""
    monkeypatch.setattr(links, "_SIZES", {TrialSize.USUAL: (1 << 12, 1 << 28)})
    monkeypatch.setattr(measuring, "_WARM_UP_NS", 50_000_000)
    path = tmp_path / "selftest.json"
    words = ("--devices", "h200:84sm,h200:48sm", "--models", "decode", "--placements", "6")
    done = tessc("selftest", *words, "--minutes", "30", "-o", str(path))
    assert done.code == 0, done.err + done.text
    data = json.loads(path.read_text())
    assert data["missing"] == []
    assert {part["status"] for part in data["parts"].values()} == {"passed"}
    assert len(data["placements"]) == 6
    between = [row for row in data["links"] if "host" not in (row["source"], row["target"])]
    assert len(between) == 2
    assert all(0 < row["bytes_per_second"] < 5e12 for row in between)
    exchanges = [row for row in data["exchanges"] if row["bytes"] == 1 << 16]
    assert len(exchanges) == 2
    assert all(0 < row["ns"] <= row["p90_ns"] <= row["p99_ns"] < 1e8 for row in exchanges)
    # Tests beside this one have the GPU too, and then a figure is any figure.
    least, most = (0.0, 1e9) if "PYTEST_XDIST_WORKER" in os.environ else (0.5, 2.0)
    for row in data["plans"]:
        ratio = row["measured"]["requests_per_s"] / row["predicted"]["requests_per_s"]
        assert least < ratio < most, row
