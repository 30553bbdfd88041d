"""The recorder against a stand-in for the CUDA driver: a fault costs one item only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]


def test_a_fault_and_a_crash_cost_one_item_each(tmp_path: Path) -> None:
    environment = os.environ | {
        "TESSERA_DRIVER_MODULE": "tests.kernels.fake_driver",
        "FAKE_FAULTS": "saxpy",
        "FAKE_CRASH": "mul_f16",
    }
    names = ["add_f32", "saxpy", "mul_f16", "grid_barrier", "redux", "mma_m16n8k8_f32_f16_f16_f32"]
    script = ROOT / "tests" / "data" / "kernels" / "record_h200.py"
    command = [sys.executable, str(script), str(tmp_path), *names]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    items = json.loads((tmp_path / "recording.json").read_text())["items"]
    assert items["saxpy"]["status"] == "DriverError: cuCtxSynchronize: 700" or (
        items["saxpy"]["status"] == "DriverError: cuLaunchKernel: 700"
    )
    assert items["mul_f16"]["status"] == "worker ended with 9"
    assert items["grid_barrier"]["status"] == "ok"
    assert "elements differ" in items["add_f32"]["differs"]["out"]
    with np.load(tmp_path / "probes.npz") as probes:
        assert not probes["mma_m16n8k8_f32_f16_f16_f32"].any()
    with np.load(tmp_path / "cases.npz") as cases:
        assert cases["grid_barrier/arrived"].tolist() == [0]
