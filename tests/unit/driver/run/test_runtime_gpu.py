"""`tessera.Runtime` on GPUs: arrays in their memory do not go through the host."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.run.runtime import Runtime
from tests.helpers.fake_cuda import FakeCuda
from tests.helpers.gpu_arrays import GpuArray
from tests.helpers.plan_files import plan_of
from tests.helpers.traces import COPY, trace

BUFFERS = """
buffer x bytes=64 role=input dtype=f32 shape=4x4
buffer y bytes=64 role=output dtype=f32 shape=4x4
"""
STEPS = "launch m.copy grid=1,1,1 block=16,1,1 args=[y, x, u32:16]"


def values(number: float) -> np.ndarray:
    return np.full((4, 4), number, np.float32)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    made = FakeCuda()
    monkeypatch.setattr("tessera.backend.cuda.targets.bindings", lambda: made)
    monkeypatch.setattr("tessera.backend.cuda.backend._LOOK_S", 1e-4)
    return made


def test_arrays_of_the_gpu_and_of_the_host(fake: FakeCuda) -> None:
    plan = plan_of([trace(BUFFERS, COPY, STEPS)], [["a"]], slots=1, lanes=1)
    with Runtime(plan, backend="cuda", targets={"a": "cuda:0"}) as runtime:
        assert runtime.capacity == 4
        given = [GpuArray(fake, values(n)) if n % 2 else values(n) for n in range(6)]
        futures = [runtime.submit({"x": one}) for one in given]
        for number, future in enumerate(futures):
            np.testing.assert_array_equal(future.result(300)["y"], values(number))
        assert fake.launched.count(("fetch_ranges", fake.sms)) == 3
        with pytest.raises(TesseraError, match="is of type float32, not int32"):
            runtime.submit({"x": GpuArray(fake, values(1).astype(np.int32))})
