"""The captured models run on the CPU backend and give the bytes that an H200 gave PyTorch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tessera.driver.run.run_trace import RunOptions, run_trace

TRACES = Path(__file__).parents[2] / "examples" / "traces"
MODELS = (
    "llama_prefill",
    "llama_decode",
    "llama_decode_library",
    "moe",
    "mamba",
    "vision_language",
    "mmdit",
)


def compare(model: str, arch: str) -> None:
    report = run_trace(TRACES / f"{model}.ptx", RunOptions(arch=arch))
    found = {buffer.name: data for buffer, data in report.kept()}
    with np.load(TRACES / f"{model}.ref.npz", allow_pickle=False) as reference:
        assert sorted(reference) == sorted(found)
        for name in reference:
            expected = reference[name].reshape(-1).view(np.uint8)
            np.testing.assert_array_equal(found[name].reshape(-1), expected, err_msg=name)


LARGE = ("vision_language", "mmdit")


@pytest.mark.parametrize(
    "model", [pytest.param(m, marks=[pytest.mark.slow] * (m in LARGE)) for m in MODELS]
)
def test_the_model_gives_the_recorded_bytes(model: str) -> None:
    compare(model, "sm_80")


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_the_code_for_hopper_gives_the_recorded_bytes(model: str) -> None:
    compare(model, "sm_90a")
