"""A model that was captured on a GPU, split over two devices, against the bytes of PyTorch."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from tessera.backend.cuda.api import Driver
from tessera.backend.cuda.backend import CudaBackend
from tessera.backend.service import BackendOptions, Bytes, Request
from tessera.driver.load import load
from tessera.frontend.contents.open_contents import open_contents
from tessera.ir.program.program import Role
from tests.helpers.fake_cuda import FakeCuda
from tests.helpers.served import model_of

TRACES = Path(__file__).parents[4] / "examples" / "traces"
TARGETS = {"a": "cuda:0:84sm", "b": "cuda:0:48sm"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_llama_decode(seed: int) -> None:
    program = load(TRACES / "llama_decode.ptx")
    rng = random.Random(seed)
    model = model_of([program], [[rng.choice("ab") for _ in program.work()]], slots=1)
    given: dict[Role, dict[str, Bytes]] = {role: {} for role in Role}
    with open_contents(program, TRACES) as contents:
        for buffer in program.declared_buffers():
            given[buffer.role][buffer.name] = np.array(contents.read(buffer))
    model.weights.update(given[Role.WEIGHT])
    model.states[0].update(given[Role.STATE])
    fake = FakeCuda(memory=1 << 30, seed=seed)
    backend = CudaBackend(model, BackendOptions(targets=TARGETS), driver=Driver(fake))
    inputs = given[Role.INPUT]
    backend.begin(Request(number=0, trace=0, slot=0, lane=0, inputs=inputs))
    done = ()
    while not done:
        done = backend.collect(10.0)
    found = dict(done[0].outputs) | dict(backend.read_states(0))
    backend.close()
    with np.load(TRACES / "llama_decode.ref.npz") as wanted:
        for name in wanted:
            np.testing.assert_array_equal(found[name], wanted[name].reshape(-1).view(np.uint8))
