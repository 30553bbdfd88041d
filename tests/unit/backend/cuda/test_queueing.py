"""Requests of one slot queue up on the GPU: how many, in which order, and what a fault leaves."""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import replace

import numpy as np
import pytest

from tessera.backend.cuda.api import Driver
from tessera.backend.cuda.backend import CudaBackend, CudaOptions
from tessera.backend.host_loop.dispatch import Dispatcher
from tessera.backend.service import BackendOptions, Model, Request, ServiceFault
from tests.helpers.fake_cuda import FakeCuda
from tests.helpers.random_traces import random_program
from tests.helpers.served import Ask, assert_equal, expected, inputs_of, model_of, serve
from tests.helpers.share import share
from tests.helpers.traces import COPY, trace

SLICES = {"a": "cuda:0:84sm", "b": "cuda:0:48sm"}
BUFFERS = """
buffer x bytes=256 role=input dtype=f32 shape=64
buffer y bytes=256 role=output dtype=f32 shape=64
buffer t bytes=256 role=temp
"""
STEPS = """
launch m.copy grid=1,1,1 block=64,1,1 smem=0 args=[t, x, u32:64]
launch m.copy grid=1,1,1 block=64,1,1 smem=0 args=[y, t, u32:64]
"""
# Faults if the first word of its input is not zero.
PICKY = """
.visible .entry picky(.param .u64 y, .param .u64 x) { .reg .b64 %rd<3>; .reg .b32 %r<2>;
    .reg .pred %p<2>;
    ld.param.u64 %rd1, [y]; ld.param.u64 %rd2, [x]; ld.global.u32 %r1, [%rd2];
    setp.eq.u32 %p1, %r1, 0; @!%p1 trap; st.global.u32 [%rd1], %r1; ret; }
"""


def copies(slots: int = 1) -> Model:
    return model_of([trace(BUFFERS, COPY, STEPS)], [["a", "b"]], slots=slots)


def start(model: Model, fake: FakeCuda, **options: object) -> CudaBackend:
    return CudaBackend(
        model,
        BackendOptions(targets=SLICES, timeline=False),
        cuda=CudaOptions(**options),
        driver=Driver(fake),
    )


def request(model: Model, number: int) -> Request:
    inputs = inputs_of(model, Ask(number))
    return Request(number=number, trace=0, slot=0, lane=0, inputs=inputs)


def collected(backend: CudaBackend, count: int) -> list:
    found: list = []
    while len(found) < count:
        found += backend.collect(1.0)
    return found


@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_all_are_handed_over_before_the_first_is_done(graphs: bool, seed: int) -> None:
    """Inputs and outputs of each are its own, and the host does not come between them."""
    model, fake = copies(), FakeCuda(seed=seed)
    backend = start(model, fake, graphs=graphs)
    assert backend.replica.depth == 4
    for turn in range(3):
        numbers = range(4 * turn, 4 * turn + 4)
        for number in numbers:
            backend.begin(request(model, number))
        assert fake.pending
        done = collected(backend, 4)
        assert [one.request for one in done] == list(numbers)
        for one in done:
            wanted = inputs_of(model, Ask(one.request))["x"]
            np.testing.assert_array_equal(one.outputs["y"], wanted)
        for before, after in itertools.pairwise(done):
            assert before.ended_ns <= after.started_ns <= after.ended_ns
    backend.close()
    assert not fake.host


@pytest.mark.parametrize("seed", share(range(8)))
def test_random_traces_lanes_and_depths(seed: int) -> None:
    """Several traces with states in common, some lanes more busy than others."""
    rng = random.Random(seed)
    programs = [random_program(100 * seed + i) for i in range(1 + seed % 2)]
    places = [[rng.choice("ab") for _ in program.work()] for program in programs]
    model = model_of(programs, places, slots=rng.randint(1, 3), lanes=rng.randint(1, 4))
    lanes = [min(rng.randrange(model.lowered.lanes), rng.choice((0, 9))) for _ in range(10)]
    asks = [Ask(i, rng.randrange(len(programs)), lane) for i, lane in enumerate(lanes)]
    backend = start(model, FakeCuda(seed=seed), graphs=bool(seed % 3), depth=rng.randint(1, 4))
    wanted = expected(model, asks)
    done, states = serve(backend, model, asks)
    assert_equal(model, asks, wanted, done, states)


def test_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    for slots, depth in ((1, 4), (2, 2), (3, 2), (8, 2)):
        backend = start(copies(slots), FakeCuda())
        assert backend.replica.depth == depth
        backend.close()
    monkeypatch.setattr("tessera.backend.cuda.replica.MOST_GRAPHS", 6)
    backend = start(copies(2), FakeCuda())
    assert backend.replica.depth == 2
    backend.close()
    monkeypatch.setattr("tessera.backend.cuda.replica.MOST_GRAPHS", 5)
    backend = start(copies(4), FakeCuda())
    assert backend.replica.depth == 1
    backend.close()
    monkeypatch.setattr("tessera.backend.cuda.replica.MOST_STAGED_BYTES", 3 * 512)
    backend = start(copies(1), FakeCuda())
    assert backend.replica.depth == 3
    backend.close()


def test_a_fault_in_the_middle_of_the_queue() -> None:
    """What was done before keeps its outputs; the error names the request that ran, no other."""
    steps = "launch m.picky grid=1,1,1 block=1,1,1 smem=0 args=[y, x]"
    model, fake = model_of([trace(BUFFERS, PICKY, steps)], [["a"]], slots=1), FakeCuda()
    dispatcher = Dispatcher(start(model, fake), slots=1, lanes=1)
    contents = [np.zeros(256, np.uint8), np.zeros(256, np.uint8), np.ones(256, np.uint8)]
    contents.append(np.zeros(256, np.uint8))
    futures = [dispatcher.submit({"x": one}, trace=0, lane=0) for one in contents]
    for future in futures[:2]:
        assert not future.result(300).outputs["y"][:4].any()
    for future in futures[2:]:
        with pytest.raises(ServiceFault, match="TSR5106") as failure:
            future.result(300)
        assert failure.value.request == 2
    dispatcher.close()


def test_a_kernel_that_never_ends_in_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tessera.backend.cuda.backend._END_S", 0.05)
    model, fake = copies(), FakeCuda(hang=("copy",))
    dispatcher = Dispatcher(start(model, fake, graphs=False), slots=1, lanes=1, limit_s=0.1)
    futures = [
        dispatcher.submit(inputs_of(model, Ask(number)), trace=0, lane=0) for number in range(3)
    ]
    for future in futures:
        with pytest.raises(ServiceFault, match="TSR5052") as failure:
            future.result(300)
        assert (failure.value.device, failure.value.request, failure.value.step) == ("a", 0, 0)
    dispatcher.close()


@pytest.mark.parametrize("graphs", [True, False])
def test_a_slot_that_hangs_while_the_other_goes_on(
    graphs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that does not get on is named, and what runs in the other slot is no excuse."""
    monkeypatch.setattr("tessera.backend.cuda.backend._END_S", 0.05)
    stuck = "launch m.picky grid=1,1,1 block=1,1,1 smem=0 args=[y, x]"
    programs = [trace(BUFFERS, COPY, STEPS), trace(BUFFERS, PICKY, stuck)]
    model = model_of(programs, [["a", "b"], ["b"]], slots=2, lanes=2)
    backend = start(model, FakeCuda(hang=("picky",)), graphs=graphs)
    dispatcher = Dispatcher(backend, slots=2, lanes=2, limit_s=2.0)
    hung = dispatcher.submit(inputs_of(model, Ask(0, trace=1)), trace=1, lane=0)
    limit, done = time.monotonic() + 600, []

    def go_on() -> None:
        while time.monotonic() < limit:
            inputs = inputs_of(model, Ask(len(done)))
            done.append(dispatcher.submit(inputs, trace=0, lane=1).result(300))

    with pytest.raises(ServiceFault, match=r"TSR5052.*for request 0 for") as failure:
        go_on()
    assert done
    fault = failure.value
    assert (fault.device, fault.request, fault.step) == ("b", 0, 0)
    assert fault.diagnostics[0].notes[0] == "device `b`, request 0, launch #0 `picky`"
    assert hung.exception(300) is fault
    dispatcher.close()


def early_starts(gate: int | None, seed: int, *, graphs: bool) -> int:
    """Requests that come to the gate's device before the one before them is past the gate."""
    model = model_of([trace(BUFFERS, COPY, STEPS)], [["a", "b"]], slots=3, lanes=3)
    (lowered,) = model.lowered.traces
    gated = replace(model.lowered, traces=(replace(lowered, gate=gate),))
    model = replace(model, lowered=gated)
    backend = CudaBackend(
        model,
        BackendOptions(targets=SLICES, timeline=True),
        cuda=CudaOptions(graphs=graphs),
        driver=Driver(FakeCuda(seed=seed)),
    )
    asks = [Ask(number, lane=number % 3) for number in range(9)]
    done, states = serve(backend, model, asks)
    assert_equal(model, asks, expected(model, asks), done, states)
    early = 0
    for before, after in itertools.pairwise(done):
        (passed,) = [e for e in before.events if e.step == (gate or 0)]
        (next_there,) = [e for e in after.events if e.step == passed.step]
        early += next_there.start_ns < passed.end_ns
    return early


@pytest.mark.parametrize("graphs", [True, False])
def test_the_next_request_begins_behind_the_gate(graphs: bool) -> None:
    for gate in (0, 1):
        assert not any(early_starts(gate, seed, graphs=graphs) for seed in range(4))
    assert any(early_starts(None, seed, graphs=graphs) for seed in range(4))


@pytest.mark.parametrize("gate", [0, 1])
def test_a_request_does_not_wait_for_one_further_back_in_line(gate: int) -> None:
    """Two requests of a lane are in one slot: who has another begins before the second of them."""
    model = model_of([trace(BUFFERS, COPY, STEPS)], [["a", "b"]], slots=2, lanes=2)
    (lowered,) = model.lowered.traces
    gated = replace(model.lowered, traces=(replace(lowered, gate=gate),))
    model = replace(model, lowered=gated)
    before = 0
    for seed in range(6):
        backend = CudaBackend(
            model,
            BackendOptions(targets=SLICES, timeline=True),
            cuda=CudaOptions(depth=2),
            driver=Driver(FakeCuda(seed=seed)),
        )
        done, _ = serve(backend, model, [Ask(n, lane=n // 2) for n in range(4)])
        starts = [next(e.start_ns for e in one.events if e.step == 0) for one in done]
        before += starts[2] < starts[1]
    assert before >= 3


def test_requests_alone_are_not_expected_to_take_as_long_as_side_by_side() -> None:
    """What one takes is learned for each number of slots that are busy."""
    model = copies(slots=2)
    backend = start(model, FakeCuda())

    def paces(*slots: int) -> list[object]:
        for number, slot in enumerate(slots):
            backend.begin(replace(request(model, number), slot=slot))
        found = [flight.pace for slot in (0, 1) for flight in backend._flights[slot]]
        collected(backend, len(slots))
        return found

    first, queued, second = paces(0, 0, 1)
    assert first is queued
    assert second is not first
    assert paces(0) == [first]
    alone, beside = paces(1, 0)[::-1]
    assert alone not in (first, second, beside)
    assert paces(1) == [alone]
    assert beside is not first
    backend.close()
