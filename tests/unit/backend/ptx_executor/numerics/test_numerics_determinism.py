"""The same bits whatever the host CPU can do: run again with NumPy's SIMD features switched off."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

from tessera.backend.ptx_executor.numerics import approx, convert, floats, matrix, quiet
from tests.helpers import mma_cases
from tests.helpers.numerics_cases import all_cases
from tests.helpers.ptx_cases import inputs
from tests.helpers.share import least

ROOT = Path(__file__).parents[5]


def digest(every: int) -> str:
    """A digest of many results: of every case, or of one in so many."""
    state = hashlib.sha256()
    with quiet():
        for case in [*all_cases()][::every]:
            operands = [inputs(kind, at) for at, kind in enumerate(case.operands)]
            state.update(np.ascontiguousarray(case.function(*operands)).tobytes())
        for case in mma_cases.cases()[:16:every]:
            arrays = mma_cases.case_inputs(case, 6)
            types = (case.shape, case.dt, case.at, case.bt, case.ct)
            for register in matrix.mma(*types, *(list(arrays[key]) for key in "abc")):
                state.update(register.tobytes())
        # Long arrays take other loops than short ones.
        words = np.arange(70_001, dtype=np.uint32) * np.uint32(2654435761)
        for t in ("f32", "f16x2", "bf16x2"):
            state.update(floats.fma(t, words, words[::-1].copy(), words ^ 1).tobytes())
        state.update(approx.ex2("f32", words).tobytes())
        state.update(approx.sin("f32", words).tobytes())
        state.update(convert.cvt("f16", "f32", words).tobytes())
    return state.hexdigest()


def test_results_do_not_depend_on_cpu_features():
    enabled = [name for name in __cpu_dispatch__ if __cpu_features__.get(name)]
    if not enabled:
        pytest.skip("NumPy dispatches on no feature of this CPU, so there is none to switch off")
    module = "tests.unit.backend.ptx_executor.numerics.test_numerics_determinism"
    every = least(1, 3)
    code = f"import {module} as t; print(t.digest({every}))"
    environment = os.environ | {
        "NPY_DISABLE_CPU_FEATURES": " ".join(enabled),
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "ignore",
    }
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == digest(every)
