"""A diffusion-transformer block from torch.compile, end to end on the CPU backend.

All 17 kernels of `examples/traces/dit.ptx` run with the code for sm_80 (mma.sync) and with that for
sm_90a (wgmma). The result is to the bit that of the H200 (`dit.ref.npz`; the same for both there)
and, within the rounding of bf16, that of eager PyTorch (sources/dit_torch.py) and of NumPy.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tessera.backend.ptx_executor.run import run_program
from tessera.frontend.contents.open_contents import open_contents
from tessera.frontend.trace.read_trace import read_trace
from tests.kernels.case import DATA
from tests.kernels.formats import from_bf16

Values = NDArray[np.float64]
TRACES = Path(__file__).resolve().parents[2] / "examples" / "traces"


def run_block(arch: str) -> NDArray[np.uint16]:
    """The block's result, as bf16 bits."""
    program = read_trace(TRACES / "dit.ptx")
    with open_contents(program, TRACES) as contents:
        given = {b.name: contents.read(b) for b in program.buffers if contents.is_given(b)}
    result = run_program(program, given, arch=arch)
    assert len(result.launches) == 17
    return result.buffers["result"].view(np.uint16)


def normalise(x: Values) -> Values:
    """Layer normalisation without weights."""
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d**2).mean(-1, keepdims=True) + 1e-5)


def reference_block(given: dict[str, Values]) -> Values:
    """The block in double precision."""
    x, condition = given["in0"].reshape(2, 64, 128), given["in1"].reshape(2, 128)
    parts = (condition / (1 + np.exp(-condition))) @ given["ada"].reshape(128, 768)
    scale1, shift1, gate1, scale2, shift2, gate2 = np.split(parts[:, None], 6, axis=-1)
    h = normalise(x) * (1 + scale1) + shift1
    heads = (h @ given["qkv"].reshape(128, 384)).reshape(2, 64, 3, 4, 32).transpose(2, 0, 3, 1, 4)
    q, k, v = heads
    scores = q @ k.swapaxes(-1, -2) / 32**0.5
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    mixed = (weights @ v).transpose(0, 2, 1, 3).reshape(2, 64, 128)
    x = x + gate1 * (mixed @ given["o"].reshape(128, 128))
    h = normalise(x) * (1 + scale2) + shift2
    f = h @ given["f1"].reshape(128, 256)
    f = 0.5 * f * (1 + np.vectorize(math.erf)(f / 2**0.5))
    return x + gate2 * (f @ given["f2"].reshape(256, 128))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_transformer_block(arch: str) -> None:
    got = run_block(arch)
    with np.load(TRACES / "dit.ref.npz") as recorded:
        assert np.array_equal(got, recorded["result"].view(np.uint16))
    with np.load(DATA / "h200" / "dit_torch.npz") as recorded:
        want = from_bf16(recorded["result"].ravel())
    # bf16 keeps 8 bits, and eager PyTorch rounds where the fused kernels do not.
    np.testing.assert_allclose(from_bf16(got), want, rtol=2**-6, atol=2**-6)
    with np.load(TRACES / "dit.npz") as archive:
        given = {n: from_bf16(archive[n].view(np.uint16)).astype(float) for n in archive.files}
    exact = reference_block(given).ravel()
    np.testing.assert_allclose(from_bf16(got), exact, rtol=2**-7, atol=2**-6)
