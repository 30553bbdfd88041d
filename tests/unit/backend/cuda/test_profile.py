"""`tessc profile` against the stand-in driver: every step measured, and the file read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tessera.backend.cuda import profile as measuring
from tessera.backend.cuda.api import Driver
from tessera.diagnostics import TesseraError
from tessera.driver import load
from tessera.frontend.profile import parse_profile
from tessera.profiling import ProfileOptions, profile, profile_text, program_digest
from tests.helpers.fake_cuda import FakeCuda

TRACE = Path(__file__).parents[4] / "examples" / "traces" / "mlp.ptx"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "_FLUSH_BYTES", 1 << 16)
    monkeypatch.setattr(measuring, "_MOST_LAUNCHES", 2)
    monkeypatch.setattr(measuring, "_SIZES", (1 << 12, 1 << 14))
    monkeypatch.setattr(FakeCuda, "cuDeviceGetName", lambda self, size, device: (0, b"NVIDIA H200"))


def run(devices: str = "h200", **more: Any) -> tuple[dict[str, Any], FakeCuda]:
    fake = FakeCuda()
    options = ProfileOptions(devices=devices, repeats=3)
    return profile(TRACE, options, driver=Driver(fake), **more), fake


def test_every_step_has_a_time_and_the_file_reads_back() -> None:
    told: list[tuple[int, int]] = []
    found, fake = run(on_step=lambda done, total: told.append((done, total)))
    steps = list(load(TRACE).work())
    assert [row["step"] for row in found["rows"]] == list(range(len(steps)))
    assert all(row["cold_ns"] >= row["warm_ns"] > 0 for row in found["rows"])
    assert told[-1] == (len(steps), len(steps))
    assert {one["kind"] for one in found["transfers"]} == {"device", "in", "out"}
    read = parse_profile(profile_text(found))
    assert read.program_digest == program_digest(load(TRACE))
    assert [row.ns for row in read.rows] == [row["ns"] for row in found["rows"]]
    assert not fake.allocated


def test_the_steps_add_up_to_the_whole_where_they_can() -> None:
    found, _ = run()
    (whole,) = found["wholes"]
    warm = sum(row["warm_ns"] for row in found["rows"])
    cold = sum(row["cold_ns"] for row in found["rows"])
    total = sum(row["ns"] for row in found["rows"])
    assert total == pytest.approx(np.clip(whole["ns"], warm, cold), rel=1e-3)


QUICK = """.version 7.0
.target sm_75
.address_size 64
.visible .entry neighbour_compute(.param .u64 a, .param .u64 b) { ret; }
.visible .entry neighbour_memory(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d)
{ ret; }
"""


def test_a_slice_is_measured_beside_a_neighbour(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The neighbours' own code would keep the stand-in busy for minutes."""
    place = tmp_path / "neighbours.ptx"
    place.write_text(QUICK)
    monkeypatch.setattr(measuring, "_NEIGHBOURS", place)
    monkeypatch.setattr(measuring, "_NEIGHBOUR_BYTES", 1 << 12)
    found, fake = run("h200:84sm")
    beside = [name for name, _ in fake.launched if name.startswith("neighbour_")]
    steps = len(found["rows"])
    assert len(beside) == 2 * steps
    assert {row["sms"] for row in found["rows"]} == {84}
    assert not fake.allocated


def test_a_gpu_that_is_not_here() -> None:
    with pytest.raises(TesseraError) as caught:
        run("a100")
    assert caught.value.diagnostics[0].code == "TSR6009"
    assert caught.value.exit_code == 4
