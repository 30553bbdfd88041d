"""The same bytes on every run: with fewer CPU features, another BLAS, and on a second run.

One process per setting runs a selection of cases (float arithmetic, approximations, float
atomics, tensor cores) and prints a digest of every output.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.operator_calls import call
from tests.kernels.cases import CASES
from tests.kernels.cpu import run_case

NAMES = (
    "saxpy",
    "gelu",
    "softmax",
    "layernorm",
    "rope",
    "sin_f64",
    "pow_f32",
    "fast_f32",
    "div_f32",
    "sgemm",
    "fft256",
    "float_atomics",
    "mma_tf32",
    "wmma_f64",
    "triton_attention_80",
    "triton_matmul_e4m3_90",
    "selective_scan",
    "cross_entropy",
)


def vector_features() -> list[str]:
    """The CPU features beyond the baseline that NumPy uses in this process."""
    config = np.show_config(mode="dicts")
    found: list[str] = config["SIMD Extensions"].get("found", [])
    return found


SETTINGS = {
    "plain": {},
    "no vector extensions": {"NPY_DISABLE_CPU_FEATURES": " ".join(vector_features())},
    "another BLAS core": {"OPENBLAS_CORETYPE": "Prescott", "OPENBLAS_NUM_THREADS": "1"},
}


@cache
def digests() -> str:
    """One line per case."""
    lines = []
    for case in CASES:
        if case.name in NAMES:
            results = run_case(case, case.make()).buffers
            sha = hashlib.sha256()
            for name in sorted(results):
                sha.update(np.ascontiguousarray(results[name]).tobytes())
            lines.append(f"{case.name} {sha.hexdigest()}")
    lines += operator_digests()
    return "\n".join(lines)


def operator_digests() -> list[str]:
    """Library operators: products, reductions and functions that NumPy does its own way."""
    rng = np.random.default_rng(9)
    x = rng.standard_normal((37, 53)).astype(np.float32)
    shape = [((37, 53), "f32")]
    made = {
        name: call(f"aten::{name}", [x], shape)[0]
        for name in ("exp", "tanh", "sin", "erf", "gelu", "sigmoid", "log1p")
    }
    made["mm"] = call("aten::mm", [x, x.T.copy()], [((37, 37), "f32")])[0]
    made["softmax"] = call("aten::_softmax", [x], shape, dim=1)[0]
    made["sum"] = call("aten::sum", [x], [((), "f32")])[0]
    made["norm"] = call("aten::rms_norm", [x], shape, normalized_shape=(53,))[0]
    return [f"{name} {hashlib.sha256(one.tobytes()).hexdigest()}" for name, one in made.items()]


# All in `make slow`; each starts a process that runs all cases.
@pytest.mark.parametrize(
    "setting",
    [pytest.param(s, marks=[pytest.mark.slow] * (s == "plain")) for s in SETTINGS],
)
def test_same_bytes(setting: str) -> None:
    program = (
        "import sys; from tests.kernels.test_deterministic import digests, vector_features;"
        " sys.stdout.write(f'{len(vector_features())}\\n' + digests())"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | SETTINGS[setting],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    features, _, lines = run.stdout.partition("\n")
    assert features == "0" or setting != "no vector extensions"
    assert len(lines.splitlines()) == len(NAMES) + len(operator_digests())
    assert lines == digests()
