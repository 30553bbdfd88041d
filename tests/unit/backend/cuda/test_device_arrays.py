"""Inputs in the memory of a GPU: no copy through the host, no read before they are there."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import numpy as np
import pytest

from tessera.backend.cuda.api import Driver
from tessera.backend.cuda.backend import CudaBackend, CudaOptions
from tessera.backend.host_loop.dispatch import Dispatcher
from tessera.backend.service import (
    BackendOptions,
    CommonMemory,
    Completion,
    EarlierOutput,
    Model,
    Request,
)
from tessera.diagnostics import TesseraError
from tessera.driver.run.runtime import inputs_of, read_inputs
from tests.helpers.fake_cuda import FakeCuda
from tests.helpers.gpu_arrays import GpuArray
from tests.helpers.served import model_of
from tests.helpers.share import share
from tests.helpers.traces import COPY, trace

BUFFERS = """
buffer x bytes=256 role=input dtype=f32 shape=8x8
buffer v bytes=256 role=input dtype=f32 shape=64
buffer y bytes=256 role=output dtype=f32 shape=64
buffer z bytes=256 role=output dtype=f32 shape=64
"""
STEPS = """
launch m.copy grid=1,1,1 block=64,1,1 smem=0 args=[y, x, u32:64]
launch m.copy grid=1,1,1 block=64,1,1 smem=0 args=[z, v, u32:64]
"""
SLICES = {"a": "cuda:0:84sm", "b": "cuda:0:48sm"}


def two_inputs() -> Model:
    return model_of([trace(BUFFERS, COPY, STEPS)], [["a", "b"]], slots=2, lanes=2)


def values(start: int) -> np.ndarray:
    return np.arange(start, start + 64, dtype=np.float32)


def submit(dispatcher: Dispatcher, model: Model, given: dict[str, Any], lane: int = 0) -> Any:
    program = model.traces[0].program
    content, in_place = read_inputs(inputs_of(program), given, partial(dispatcher.backend.locate))
    return dispatcher.submit(content, trace=0, lane=lane, in_place=in_place)


def check(done: Completion, x: int, v: int) -> None:
    np.testing.assert_array_equal(done.outputs["y"].view(np.float32), values(x))
    np.testing.assert_array_equal(done.outputs["z"].view(np.float32), values(v))


@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("seed", share(range(4)))
def test_arrays_of_a_gpu_and_of_the_host(graphs: bool, seed: int) -> None:
    model, fake = two_inputs(), FakeCuda(seed=seed)
    options = BackendOptions(targets=SLICES, timeline=bool(seed % 2))
    backend = CudaBackend(model, options, cuda=CudaOptions(graphs=graphs), driver=Driver(fake))
    dispatcher = Dispatcher(backend, slots=2, lanes=2)
    futures, kept = [], []
    for number in range(8):
        x = GpuArray(fake, values(10 * number).reshape(8, 8))
        v = values(1000 + number) if number % 2 else GpuArray(fake, values(1000 + number))
        kept += [x, v]
        futures.append(submit(dispatcher, model, {"x": x, "v": v}, lane=number % 2))
    for number, future in enumerate(futures):
        done = future.result(300)
        check(done, 10 * number, 1000 + number)
        names = [event.name for event in done.events if event.name.startswith("receive x")]
        assert names == ["receive x in place"] * (seed % 2)
    dispatcher.close()
    assert ("fetch_ranges", 84) in fake.launched


def test_graphs_and_events_are_used_again() -> None:
    model, fake = two_inputs(), FakeCuda()
    options = BackendOptions(targets=SLICES, timeline=False)
    backend = CudaBackend(model, options, cuda=CudaOptions(depth=2), driver=Driver(fake))
    dispatcher = Dispatcher(backend, slots=2, lanes=2)
    arrays = [GpuArray(fake, values(k)) for k in range(2)]
    made = []
    for number in range(8):
        given = {"x": arrays[number % 2], "v": arrays[0]}
        check(submit(dispatcher, model, given).result(300), number % 2, 0)
        made.append((fake.calls["cuGraphInstantiate"], fake.calls["cuEventCreate"]))
    # Two stages of the slot that this lane is in; the arrays themselves make an event each time.
    assert made[-1][0] == made[1][0]
    assert made[-1][1] - made[-2][1] == 2
    dispatcher.close()


def test_several_ranges_and_large_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tessera.backend.cuda.links.FETCH_BYTES", 48)
    model, fake = two_inputs(), FakeCuda()
    backend = CudaBackend(model, BackendOptions(targets=SLICES), driver=Driver(fake))
    dispatcher = Dispatcher(backend, slots=2, lanes=2)
    given = {"x": GpuArray(fake, values(3)), "v": GpuArray(fake, values(5))}
    check(submit(dispatcher, model, given).result(300), 3, 5)
    dispatcher.close()


@pytest.fixture
def located() -> Any:
    fake = FakeCuda(gpus=2, peers=False)
    model = model_of([trace(BUFFERS, COPY, STEPS)], [["a", "a"]])
    backend = CudaBackend(model, BackendOptions(targets={"a": "cuda:0"}), driver=Driver(fake))
    yield fake, backend
    backend.close()


def test_what_cannot_be_read_in_place(located: Any) -> None:
    fake, backend = located
    assert backend.locate(values(0), 256) is None
    assert backend.locate(GpuArray(fake, values(0), gpu=1), 256) is None
    columns_first = GpuArray(fake, values(0).reshape(8, 8), strides=(1, 8))
    assert backend.locate(columns_first, 256) is None
    rows = GpuArray(fake, values(0).reshape(8, 8), strides=(8, 1))
    found = backend.locate(rows, 256)
    assert found is not None
    assert (found.address, found.nbytes, found.type_name) == (rows.address, 256, "float32")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (np.arange(64, dtype=np.int32), "is of type float32, not int32"),
        (np.arange(32, dtype=np.float32), "takes 256 bytes, not 128"),
    ],
)
def test_arrays_that_do_not_fit(located: Any, content: np.ndarray, message: str) -> None:
    fake, backend = located
    given = {"x": GpuArray(fake, content), "v": values(0)}
    with pytest.raises(TesseraError, match=message) as failure:
        read_inputs(inputs_of(backend.model.traces[0].program), given, backend.locate)
    assert failure.value.diagnostics[0].code == "TSR5053"


@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_an_input_is_an_output_of_the_request_before_in_its_lane(graphs: bool, seed: int) -> None:
    """Handed over before that is known, also where the lane has moved to another slot since."""
    model, fake, draw = two_inputs(), FakeCuda(seed=seed), random.Random(seed)
    options = BackendOptions(targets=SLICES, timeline=False)
    backend = CudaBackend(model, options, cuda=CudaOptions(graphs=graphs), driver=Driver(fake))
    assert backend.depth > 1
    dispatcher = Dispatcher(backend, slots=2, lanes=2)
    with pytest.raises(TesseraError, match="no request before has given `y`"):
        backend._last.resolve(request_of({"x": EarlierOutput("y")}), [0, 0])
    handles: list[Any] = []
    expected: list[tuple[int, int]] = []
    last: dict[int, tuple[int, int]] = {}
    for number in range(24):
        lane = draw.randrange(2)
        given: dict[str, Any] = {"x": values(10 * number).reshape(8, 8), "v": values(number)}
        gives = 10 * number, number
        if lane in last and draw.random() < 0.7:
            given["x"], gives = EarlierOutput("z"), (last[lane][1], number)
        last[lane] = gives
        expected.append(gives)
        handles.append(submit(dispatcher, model, given, lane=lane))
        if draw.random() < 0.3:
            handles[-1].result(300)
    for handle, (x, v) in zip(handles, expected, strict=True):
        check(handle.result(300), x, v)
    dispatcher.close()


def test_beside_another_plan_kernels_have_one_priority() -> None:
    """Streams are scarce: more than the hardware has queues wait for each other."""
    made = []
    for common in (None, CommonMemory()):
        fake = FakeCuda()
        known = {name: (name, 0) for name in SLICES}
        options = BackendOptions(targets=SLICES, timeline=False, common=common, common_as=known)
        backend = CudaBackend(two_inputs(), options, driver=Driver(fake))
        made.append(fake.calls["cuGreenCtxStreamCreate"])
        assert any(own for own in backend.replica.parts.priorities.values()) == (common is None)
        backend.close()
    assert made[1] <= made[0]


def request_of(in_place: dict[str, Any]) -> Request:
    return Request(number=0, trace=0, slot=0, lane=0, inputs={}, in_place=in_place)
