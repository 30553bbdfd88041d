"""`benchmarks.prediction.profiled_runs` against the stand-in driver."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import numpy as np
import pytest

from benchmarks.prediction import profiled_runs
from benchmarks.prediction.unseen_steps import file_of
from tessera.backend.cuda.measure import neighbours, together
from tessera.backend.cuda.measure import profile as measuring
from tessera.driver.load import load
from tests.helpers.fake_cuda import FakeCuda

TRACE = Path(__file__).parents[2] / "examples" / "traces" / "mlp.ptx"
NAME = "vit image"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "_FLUSH_BYTES", 1 << 16)
    monkeypatch.setattr(measuring, "_MOST_LAUNCHES", 2)
    monkeypatch.setattr(measuring, "_SIZES", (1 << 12, 1 << 14))
    monkeypatch.setattr(measuring, "_WARM_UP_NS", 0)
    monkeypatch.setattr(measuring, "_PAUSE_NS", 0)
    monkeypatch.setattr(together, "_MOST_RUNS", 6)
    monkeypatch.setattr(neighbours, "_MEMORY_BYTES", 1 << 12)
    monkeypatch.setattr(FakeCuda, "cuDeviceGetName", lambda self, size, device: (0, b"NVIDIA H200"))
    made = FakeCuda()
    monkeypatch.setattr("tessera.backend.cuda.targets.bindings", lambda: made)
    monkeypatch.setattr(profiled_runs, "UNTIMED", 0)
    monkeypatch.setattr(profiled_runs, "PAUSE_S", 0.0)
    monkeypatch.setattr(profiled_runs, "SHORT_S", float("inf"))
    monkeypatch.setattr(profiled_runs, "LONG_S", 0.2)
    monkeypatch.setattr(profiled_runs, "SETTLE_S", 0.0)


def test_a_profile_in_one_process_and_a_run_in_another(tmp_path: Path) -> None:
    file_of(tmp_path, NAME, ".ptx.xz").write_bytes(lzma.compress(TRACE.read_bytes()))
    (tmp_path / "cases.json").write_text(json.dumps([NAME]))
    promised = profiled_runs.case(profiled_runs.profiled, "measure", tmp_path, NAME)
    assert {promised[aim]["device"] for aim in profiled_runs.AIMS} == {"h200-0"}
    assert promised["latency"]["sources"] == {"profile": 8}
    ran = profiled_runs.case(profiled_runs.ran, "run", tmp_path, NAME)
    files = [tmp_path / "promised.json", tmp_path / "ran.json"]
    for path, row in zip(files, (promised, ran), strict=True):
        path.write_text(json.dumps({"rows": {NAME: row}}))
    profiled_runs.compare(files, tmp_path / "out.json")
    made = json.loads((tmp_path / "out.json").read_text())
    ratios = made["rows"][NAME]["ratios"]
    assert made["steps"] == 1
    assert set(ratios) == {"latency_short", "latency_long", "period_short", "period_long"}
    short = ran["one_by_one"]["short"]["latency_ns"]
    assert ratios["latency_short"] == round(promised["latency"]["latency_ns"] / short, 4)


def test_routers_are_as_the_models_have_them_and_caches_have_room(tmp_path: Path) -> None:
    text = """//! tessera.trace 1
//! buffer a.gate.weight bytes=32 role=weight dtype=bf16 shape=2x8
//! buffer a.gate.e_score_correction_bias bytes=8 role=weight dtype=f32 shape=2
//! buffer cache.cumulative_length bytes=8 role=state dtype=s64
"""
    (tmp_path / "t.ptx").write_text(text)
    given = profiled_runs.contents(load(tmp_path / "t.ptx"), "mixtral decode", 128)
    assert given["cache.cumulative_length"] == 2048 - 128
    assert not given["a.gate.e_score_correction_bias"].any()
    words = given["a.gate.weight"].ravel().astype(np.uint32) << 16
    router = words.view(np.float32)
    assert router.shape == (16,)
    assert 0.02 < router.std() < 0.1
