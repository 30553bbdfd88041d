"""Random gates in random models: every request gets through, and the bytes are the same.

In all ways a request is run: as a graph, in rows of graphs, call by call, as calls since the driver
refuses to capture a gate, with and without a timeline, on slices and GPUs, on one hardware queue,
and with several requests queued up in a slot.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from tessera.backend.cuda.api import Driver
from tessera.backend.cuda.backend import CudaBackend, CudaOptions
from tessera.backend.service import BackendOptions, Model
from tests.helpers.fake_cuda import CUresult, FakeCuda
from tests.helpers.random_traces import random_program
from tests.helpers.served import Ask, assert_equal, expected, model_of, serve
from tests.helpers.share import least, share
from tests.unit.backend.cuda.test_random_placements import GPUS, SLICES


def gated_model(rng: random.Random) -> Model:
    """One to three traces; most have a gate, often their last step."""
    programs = [
        random_program(rng.randrange(1 << 30), variable=rng.random() < 0.1)
        for _ in range(rng.choice([1, 1, 2, 3]))
    ]
    places = [[rng.choice("abc") for _ in program.work()] for program in programs]
    model = model_of(programs, places, slots=rng.randint(1, 4), lanes=rng.randint(1, 5))
    traces = []
    for lowered, steps in zip(model.lowered.traces, places, strict=True):
        gate = rng.choice([None, *range(len(steps)), len(steps) - 1])
        traces.append(replace(lowered, gate=gate))
    return replace(model, lowered=replace(model.lowered, traces=tuple(traces)))


def refuse_some(fake: FakeCuda, rng: random.Random) -> None:
    """Every other gate cannot be captured."""
    real = fake.cuEventRecordWithFlags

    def record(event: Any, stream: Any, flags: int) -> Any:
        if stream.capture is not None and rng.random() < 0.5:
            return (CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,)
        return real(event, stream, flags)

    fake.cuEventRecordWithFlags = record


def run(seed: int) -> bool:
    """Whether any trace had a gate."""
    rng = random.Random(seed)
    model = gated_model(rng)
    several = rng.random() < 0.4
    fake = FakeCuda(
        seed=seed,
        gpus=3 if several else 1,
        peers=rng.random() < 0.5,
        one_queue=rng.random() < 0.3,
    )
    if rng.random() < 0.3:
        refuse_some(fake, rng)
    options = BackendOptions(
        targets=GPUS if several else SLICES,
        timeline=rng.random() < 0.5,
        throttle_bytes_per_s=rng.choice([None, 1e6]),
    )
    cuda = CudaOptions(
        graphs=rng.random() < 0.6,
        depth=rng.choice([None, 1, 2, 4]),
        spanning=rng.choice([True, False, None]),
    )
    lanes, traces = model.lowered.lanes, len(model.traces)
    asks = [Ask(i, rng.randrange(traces), rng.randrange(lanes)) for i in range(rng.randint(3, 12))]
    wanted = expected(model, asks)
    backend = CudaBackend(model, options, cuda=cuda, driver=Driver(fake))
    done, states = serve(backend, model, asks)
    assert_equal(model, asks, wanted, done, states)
    return any(trace.gate is not None for trace in model.lowered.traces)


def test_random_gates() -> None:
    assert sum(run(seed) for seed in share(range(8))) > least(4, 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 400, 10))
def test_many_random_gates(seed: int) -> None:
    assert sum(run(seed + i) for i in range(10)) > 4
