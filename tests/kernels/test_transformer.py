"""A diffusion-transformer block from torch.compile, end to end on the CPU backend.

All 17 kernels of `examples/traces/dit.ptx` run with the code for sm_80 (mma.sync) and with that for
sm_90a (wgmma). The result is the H200's to the bit, and PyTorch's eager one (sources/dit_torch.py)
within the rounding of bf16. `dit.ref.npz` is not used: it does not belong to the inputs in
`dit.npz`, as the H200's own result for them shows.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tessera.backend.cpu.run import run_program
from tessera.frontend.contents import open_contents
from tessera.frontend.trace import read_trace
from tests.kernels.case import DATA
from tests.kernels.formats import from_bf16

TRACES = Path(__file__).resolve().parents[2] / "examples" / "traces"


def run_block(arch: str) -> NDArray[np.uint16]:
    """The block's result, as bf16 bits."""
    program = read_trace(TRACES / "dit.ptx")
    with open_contents(program, TRACES) as contents:
        given = {b.name: contents.read(b) for b in program.buffers if contents.is_given(b)}
    result = run_program(program, given, arch=arch)
    assert len(result.launches) == 17
    return result.buffers["result"].view(np.uint16)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_transformer_block(arch: str) -> None:
    got = run_block(arch)
    with np.load(DATA / "h200" / "dit_gpu.npz") as recorded:
        assert np.array_equal(got, recorded[arch])
    with np.load(DATA / "h200" / "dit_torch.npz") as recorded:
        want = from_bf16(recorded["result"].ravel())
    # bf16 keeps 8 bits, and eager PyTorch rounds where the fused kernels do not.
    np.testing.assert_allclose(from_bf16(got), want, rtol=2**-6, atol=2**-6)
