"""What the CUDA backend does with the driver: steady state, memory, kernels, faults."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tessera.backend.cuda.api import Driver
from tessera.backend.cuda.backend import CudaBackend, CudaOptions
from tessera.backend.cuda.targets import open_devices
from tessera.backend.host_loop.dispatch import Dispatcher
from tessera.backend.service import BackendOptions, Model, Request, ServiceFault
from tessera.diagnostics import TesseraError
from tessera.ir.plan.launch_program import MANY_TRANSFERS, Queue
from tests.helpers.fake_cuda import CUresult, FakeCuda
from tests.helpers.random_traces import random_program
from tests.helpers.served import Ask, assert_equal, expected, inputs_of, model_of, serve
from tests.helpers.share import share
from tests.helpers.traces import COPY, trace

SLICES = {"a": "cuda:0:84sm", "b": "cuda:0:48sm"}

SCALE = """
.visible .entry fault(.param .u64 out) { .reg .b64 %rd<2>; ld.param.u64 %rd1, [out];
    st.global.u32 [%rd1+1048576], 1; ret; }
.visible .entry stop() { trap; }
.visible .entry store(.param .u64 out) { .reg .b64 %rd<2>; .reg .b32 %r<2>;
    ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd0, %r1, 4;
    add.s64 %rd1, %rd1, %rd0; st.global.u32 [%rd1], %r1; ret; }
"""
BUFFERS = """
buffer x bytes=256 role=input dtype=f32 shape=64
buffer y bytes=256 role=output dtype=f32 shape=64
buffer z bytes=256 role=output dtype=f32 shape=64
buffer t bytes=256 role=temp
"""


def two_copies(steps: str = "") -> Model:
    """x to t on `a`, t to y on `b`."""
    program = trace(
        BUFFERS,
        COPY + SCALE,
        "launch m.copy grid=1,1,1 block=64,1,1 smem=0 args=[t, x, u32:64]\n"
        "launch m.copy grid=1,1,1 block=64,1,1 smem=0 args=[y, t, u32:64]\n" + steps,
    )
    places = ["a", "b"] + ["b"] * steps.count("\n")
    return model_of([program], [places], slots=2)


def backend_of(model: Model, fake: FakeCuda, timeline: bool = False, **options: object):
    return CudaBackend(
        model,
        BackendOptions(targets=SLICES, timeline=timeline),
        cuda=CudaOptions(**options),
        driver=Driver(fake),
    )


IN_A_ROW = "launch m.copy grid=1,1,1 block=64,1,1 smem=0 args=[y, t, u32:64]\n" * 3
NEVER_WAITS = {
    "cuEventRecord",
    "cuGraphLaunch",
    "cuLaunchKernel",
    "cuMemcpyAsync",
    "cuMemsetD32Async",
    "cuStreamWaitEvent",
    "cuStreamWriteValue32",
}


@pytest.mark.parametrize("spanning", [True, False])
def test_steady_state_neither_waits_nor_allocates(spanning: bool) -> None:
    model, fake = two_copies(IN_A_ROW), FakeCuda()
    backend = backend_of(model, fake, spanning=spanning, priorities=False)
    fake.calls.clear()
    dispatcher = Dispatcher(backend, slots=2, lanes=1)
    for number in range(8):
        dispatcher.submit(inputs_of(model, Ask(number)), trace=0, lane=0).result(300)
    looks = fake.calls.pop("cuStreamQuery")
    assert fake.calls.pop("cuCtxGetCurrent") == 8 + looks
    assert fake.calls["cuGraphLaunch"] == 8
    assert set(fake.calls) == ({"cuGraphLaunch"} if spanning else NEVER_WAITS)
    dispatcher.close()
    assert not fake.allocated
    assert not fake.host


@pytest.mark.parametrize("seed", share(range(4)))
def test_what_follows_in_a_row_on_a_device_is_one_graph(seed: int) -> None:
    """Everything between queues stays as it is, so nothing runs before what it waits for."""
    model, fake = two_copies(IN_A_ROW), FakeCuda(seed=seed)
    asks = [Ask(number) for number in range(6)]
    done, states = serve(backend_of(model, fake, priorities=False), model, asks)
    assert_equal(model, asks, expected(model, asks), done, states)
    assert fake.calls["cuGraphLaunch"] == len(asks)


@pytest.mark.parametrize(
    ("slots", "moves", "targets", "is_one"),
    [
        (1, 1, SLICES, True),
        (2, MANY_TRANSFERS - 1, SLICES, False),
        (2, MANY_TRANSFERS, SLICES, True),
        (1, MANY_TRANSFERS, {"a": "cuda:0", "b": "cuda:1"}, False),
    ],
)
def test_slices_that_meet_often_are_one_graph(
    slots: int, moves: int, targets: dict[str, str], is_one: bool
) -> None:
    copy = "launch m.copy grid=1,1,1 block=64,1,1 smem=0 args=[{}, {}, u32:64]\n"
    names = ["x", *(("t", "u")[number % 2] for number in range(moves)), "y"]
    steps = "".join(copy.format(to, origin) for origin, to in pairwise(names))
    program = trace(BUFFERS + "buffer u bytes=256 role=temp\n", COPY, steps)
    places = [["ab"[number % 2] for number in range(moves + 1)]]
    model, fake = model_of([program], places, slots=slots), FakeCuda(gpus=2)
    asks = [Ask(number) for number in range(2)]
    backend = CudaBackend(
        model, BackendOptions(targets=targets, timeline=False), driver=Driver(fake)
    )
    captured = {ready.graph is not None for ready in backend.replica.ready.values()}
    fake.calls.clear()
    done, states = serve(backend, model, asks)
    assert_equal(model, asks, expected(model, asks), done, states)
    assert captured == {is_one}
    assert (fake.calls["cuLaunchKernel"] == 0) is is_one
    assert backend.replica.parts.priorities[0] == {} or not is_one


def test_those_who_have_come_further_go_first() -> None:
    """Five levels below that of transfers, by the steps of a device; nobody waits on one device."""
    model, fake = two_copies(IN_A_ROW), FakeCuda()
    launch, given = fake.cuLaunchKernel, []

    def watched(function: Any, *rest: Any) -> Any:
        given.append(rest[7].priority)
        return launch(function, *rest)

    fake.cuLaunchKernel = watched
    lowest, highest = Driver(fake).priorities()
    asks = [Ask(number) for number in range(6)]
    done, states = serve(backend_of(model, fake), model, asks)
    assert_equal(model, asks, expected(model, asks), done, states)
    # One step on `a`; four on `b`.
    assert sorted(set(given)) == sorted({lowest - n * (lowest - highest) // 4 for n in range(4)})
    assert min(given) > highest
    given.clear()
    serve(backend_of(model, fake, priorities=False), model, asks)
    model = model_of([model.traces[0].program], [["a"] * 5], slots=2)
    serve(backend_of(model, fake), model, asks)
    assert set(given) == {lowest}


@pytest.mark.parametrize("seed", share(range(4)))
def test_a_graph_has_kernels_of_one_priority(seed: int) -> None:
    """Where the priority rises another stream goes on: in a graph the driver would pick queues."""
    launches = IN_A_ROW * 4
    model, fake = two_copies(launches), FakeCuda(seed=seed)
    levels = []
    launch = fake.cuGraphLaunch

    def watched(graph: Any, stream: Any) -> Any:
        levels.append(stream.priority)
        return launch(graph, stream)

    fake.cuGraphLaunch = watched
    asks = [Ask(number) for number in range(6)]
    done, states = serve(backend_of(model, fake), model, asks)
    assert_equal(model, asks, expected(model, asks), done, states)
    assert len(set(levels)) > 2
    assert fake.calls["cuLaunchKernelEx"] == 0


def test_what_cannot_be_captured_runs_call_by_call() -> None:
    model, fake = two_copies(IN_A_ROW), FakeCuda()
    launch = fake.cuLaunchKernelEx

    def refuse(config: Any, *rest: Any) -> Any:
        if config.hStream.capture is not None:
            return (CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,)
        return launch(config, *rest)

    fake.cuLaunchKernelEx = refuse
    asks = [Ask(0), Ask(1)]
    wanted = expected(model, asks)
    done, states = serve(backend_of(model, fake), model, asks)
    assert_equal(model, asks, wanted, done, states)
    assert not fake.calls["cuGraphLaunch"]


def test_graphs_beyond_the_first_are_made_when_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tessera.backend.cuda.replica.MOST_GRAPHS", 1)
    model, fake = two_copies(), FakeCuda()
    backend = backend_of(model, fake, spanning=True)
    assert fake.calls["cuGraphInstantiate"] == 1
    asks = [Ask(number) for number in range(4)]
    wanted = expected(model, asks)
    for slot, ask in enumerate(asks):
        inputs = inputs_of(model, ask)
        backend.begin(Request(number=slot, trace=0, slot=slot % 2, lane=0, inputs=inputs))
        done = ()
        while not done:
            done = backend.collect(1.0)
        assert np.array_equal(done[0].outputs["y"], wanted[slot].outputs["y"])
    assert fake.calls["cuGraphInstantiate"] == 2
    backend.close()


def test_a_throttled_link_takes_its_time() -> None:
    model, fake = two_copies(), FakeCuda()
    options = BackendOptions(targets=SLICES, throttle_bytes_per_s=256e6)
    backend = CudaBackend(model, options, driver=Driver(fake))
    done, _ = serve(backend, model, [Ask(0)])
    assert ("link_turn", 84) in fake.launched
    assert ("link_delay", 84) in fake.launched
    (sent,) = [e for e in done[0].events if e.peer == "b"]
    assert sent.bytes == 256


def test_graphs_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_NO_GRAPHS", "1")
    fake = FakeCuda()
    backend = CudaBackend(two_copies(), BackendOptions(targets=SLICES), driver=Driver(fake))
    backend.close()
    assert not fake.calls["cuStreamBeginCapture"]


def test_every_device_works_and_bytes_move() -> None:
    model, fake = two_copies(), FakeCuda()
    asks = [Ask(0)]
    wanted = expected(model, asks)
    done, states = serve(backend_of(model, fake, timeline=True), model, asks)
    assert_equal(model, asks, wanted, done, states)
    assert [one for one in fake.launched if one[0] == "copy"] == [("copy", 84), ("copy", 48)]
    moved = [(e.device, e.queue, e.name, e.peer, e.bytes) for e in done[0].events if e.bytes]
    assert moved == [
        ("a", Queue.IN, "receive x from host", "host", 256),
        ("a", Queue.OUT, "send t to b", "b", 256),
        ("b", Queue.IN, "receive t from a", "a", 256),
        ("b", Queue.OUT, "send y to host", "host", 256),
    ]
    assert [e.step for e in done[0].events if e.queue is Queue.COMPUTE] == [0, 1]
    assert all(e.start_ns < e.end_ns for e in done[0].events)


def test_outputs_nobody_writes_are_poison_or_filled() -> None:
    model = two_copies()
    filled = replace(model, fillings=[{"z": np.arange(256, dtype=np.uint8)}])
    for one, wanted in ((model, np.full(256, 0xCB)), (filled, np.arange(256))):
        done, _ = serve(backend_of(one, FakeCuda()), one, [Ask(0)])
        if "z" in done[0].outputs:
            assert np.array_equal(done[0].outputs["z"], wanted)


@pytest.mark.parametrize("width", [1, 2, 4])
def test_memset_of_every_width(width: int) -> None:
    value = 0x1122334455667788 & ((1 << 8 * width) - 1)
    model = two_copies(f"memset z bytes=256 element_bytes={width} value={value:#x}\n")
    done, _ = serve(backend_of(model, FakeCuda()), model, [Ask(0)])
    pattern = np.frombuffer(value.to_bytes(width, "little"), np.uint8)
    assert np.array_equal(done[0].outputs["z"], np.tile(pattern, 256 // width))


def test_clusters_cooperative_launches_and_large_shared_memory() -> None:
    model = two_copies(
        "launch m.store grid=4,1,1 block=64,1,1 cluster=2,1,1 smem=0 args=[z]\n"
        "launch m.store grid=1,1,1 block=64,1,1 smem=0 cooperative=1 args=[z]\n"
        "launch m.store grid=1,1,1 block=64,1,1 smem=65536 args=[z]\n"
    )
    fake = FakeCuda()
    done, _ = serve(backend_of(model, fake, priorities=False), model, [Ask(0)])
    assert np.array_equal(done[0].outputs["z"].view(np.uint32), np.arange(64))
    assert fake.calls["cuLaunchKernelEx"] == 2 * 4  # two slots, two stages each
    assert fake.calls["cuFuncSetAttribute"] == 1


def test_guards_catch_a_write_outside() -> None:
    program = trace(BUFFERS, SCALE, "launch m.store grid=1,1,1 block=66,1,1 smem=0 args=[y]")
    model = model_of([program], [["a"]], slots=2)
    backend = backend_of(model, FakeCuda(), guard_bytes=256)
    assert backend.replica.memory is not None
    backend.replica.memory.check_guards()
    backend.begin(Request(number=0, trace=0, slot=0, lane=0, inputs={}))
    while not backend.collect(1.0):
        pass
    with pytest.raises(TesseraError, match="TSR5002"):
        backend.replica.memory.check_guards()
    backend.close()


@pytest.mark.parametrize("seed", range(3))
def test_guards_stay_whole(seed: int) -> None:
    program = random_program(seed)
    model = model_of([program], [["ab"[i % 2] for i, _ in enumerate(program.work())]], slots=2)
    backend = backend_of(model, FakeCuda(seed=seed), guard_bytes=64)
    assert backend.replica.memory is not None
    request = Request(number=0, trace=0, slot=1, lane=0, inputs=inputs_of(model, Ask(0)))
    backend.begin(request)
    while not backend.collect(1.0):
        pass
    backend.replica.memory.check_guards()
    backend.close()


# --- what goes wrong ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{"spanning": True}, {}, {"graphs": False}], ids=["spanning", "rows", "calls"]
)
@pytest.mark.parametrize("seed", share(range(4)))
def test_a_fault_names_what_is_known(options: dict[str, bool], seed: int) -> None:
    steps = "launch m.fault grid=1,1,1 block=1,1,1 smem=0 args=[z]\n"
    model, fake = two_copies(steps), FakeCuda(seed=seed)
    dispatcher = Dispatcher(backend_of(model, fake, **options), slots=2, lanes=1)
    with pytest.raises(ServiceFault, match="TSR5106") as failure:
        dispatcher.submit(inputs_of(model, Ask(0)), trace=0, lane=0, number=4).result(300)
    fault = failure.value
    assert fault.exit_code == 6
    assert fault.request == 4
    notes = "\n".join(fault.diagnostics[0].notes)
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in notes
    if "spanning" not in options:  # a row ends where its results are sent, before the fault
        assert (fault.device, fault.step) == ("b", 2)
    else:  # what is named must have the launch among it, however late a mark is
        (told,) = [one for one in fault.diagnostics[0].notes if one.startswith("device `b` was")]
        assert "#2 `fault`" in told
        assert fault.step is None
    dispatcher.close()


def test_a_fault_in_a_graph_is_narrowed_down() -> None:
    """One device, marks every four steps: at most the steps since the last mark are named."""
    copy = "launch m.copy grid=1,1,1 block=64,1,1 smem=0 args=[t, x, u32:64]\n"
    fault = "launch m.fault grid=1,1,1 block=1,1,1 smem=0 args=[z]\n"
    found = set()
    for seed in range(8):
        program = trace(BUFFERS, COPY + SCALE, copy * 8 + fault)
        model = model_of([program], [["a"] * 9], slots=1)
        dispatcher = Dispatcher(backend_of(model, FakeCuda(seed=seed)), slots=1, lanes=1)
        with pytest.raises(ServiceFault) as failure:
            dispatcher.submit(inputs_of(model, Ask(0)), trace=0, lane=0).result(300)
        dispatcher.close()
        assert failure.value.device == "a"
        if failure.value.step is None:
            told = failure.value.diagnostics[0].notes[-2]
            assert "`fault`" in told or "after that" in told
        found.add(failure.value.step)
    assert found <= {None, 8}
    assert 8 in found


def test_a_trap() -> None:
    model, fake = two_copies("launch m.stop grid=1,1,1 block=1,1,1 smem=0 args=[]\n"), FakeCuda()
    dispatcher = Dispatcher(backend_of(model, fake), slots=2, lanes=1)
    with pytest.raises(ServiceFault, match="trap"):
        dispatcher.submit(inputs_of(model, Ask(0)), trace=0, lane=0).result(300)
    dispatcher.close()


def test_a_trap_while_the_request_is_handed_over() -> None:
    """The driver refuses the calls that follow; what failed is the kernel."""
    model, fake = two_copies("launch m.stop grid=1,1,1 block=1,1,1 smem=0 args=[]\n"), FakeCuda()
    launch = fake.cuLaunchKernel

    def launch_and_run(function: Any, *arguments: Any) -> Any:
        status = launch(function, *arguments)
        if function.name == "stop":
            fake._pump(None)
        return status

    fake.cuLaunchKernel = launch_and_run
    dispatcher = Dispatcher(backend_of(model, fake, graphs=False), slots=2, lanes=1)
    with pytest.raises(ServiceFault, match="TSR5106") as failure:
        dispatcher.submit(inputs_of(model, Ask(0)), trace=0, lane=0, number=3).result(300)
    assert (failure.value.device, failure.value.step, failure.value.request) == ("b", 2, 3)
    dispatcher.close()


@pytest.mark.parametrize("graphs", [True, False])
def test_a_kernel_that_never_ends(graphs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tessera.backend.cuda.backend._END_S", 0.05)
    model, fake = two_copies(), FakeCuda(hang=("copy",))
    backend = backend_of(model, fake, graphs=graphs)
    dispatcher = Dispatcher(backend, slots=2, lanes=1, limit_s=0.1)
    with pytest.raises(ServiceFault, match="TSR5052") as failure:
        dispatcher.submit(inputs_of(model, Ask(0)), trace=0, lane=0).result(300)
    assert any("step #0 `copy`" in note for note in failure.value.diagnostics[0].notes)
    dispatcher.close()


def test_a_launch_that_the_driver_refuses() -> None:
    model = two_copies("launch m.store grid=1,1,1 block=64,1,1 smem=240000 args=[z]\n")
    with pytest.raises(ServiceFault, match="TSR5104") as failure:
        backend_of(model, FakeCuda())
    assert failure.value.step == 2
    assert failure.value.device == "b"


def refused(model: Model, fake: FakeCuda, targets: dict[str, str], code: str) -> TesseraError:
    with pytest.raises(TesseraError, match=code) as failure:
        CudaBackend(model, BackendOptions(targets=targets), driver=Driver(fake))
    assert failure.value.exit_code == 4
    return failure.value


def test_a_link_too_slow_for_any_clock() -> None:
    """It can be set up; whether a transfer comes is for the watchdog to say."""
    options = BackendOptions(targets=SLICES, throttle_bytes_per_s=1e-300)
    CudaBackend(two_copies(), options, driver=Driver(FakeCuda())).close()


def test_machines_that_do_not_fit() -> None:
    model = two_copies()
    refused(model, FakeCuda(gpus=0), SLICES, "TSR5100")
    refused(model, FakeCuda(), {"a": "cuda:0", "b": "cuda:1"}, "TSR5055")
    refused(model, FakeCuda(), {"a": "cuda:0", "b": "cuda:0"}, "TSR5055")
    refused(model, FakeCuda(), {"a": "cuda:0", "b": "gpu"}, "TSR5055")
    refused(model, FakeCuda(), {"a": "cuda:0:96sm", "b": "cuda:0:48sm"}, "TSR5105")
    refused(model, FakeCuda(memory=1 << 10), SLICES, "TSR5102")


def test_ptx_newer_than_the_driver() -> None:
    failure = refused(two_copies(), FakeCuda(version=11080), SLICES, "TSR5104")
    assert "up to 7.8" in failure.diagnostics[0].notes[0]


def test_code_for_a_newer_gpu() -> None:
    failure = refused(two_copies(), FakeCuda(capability=(7, 5)), SLICES, "TSR5104")
    assert "sm_75" in str(failure.diagnostics[0].headline)


def test_memory_that_may_not_be_used() -> None:
    options = BackendOptions(targets=SLICES, memory_bytes={"b": 100})
    with pytest.raises(TesseraError, match="TSR5102"):
        CudaBackend(two_copies(), options, driver=Driver(FakeCuda()))


def test_driver_calls_that_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCuda()
    fake.cuStreamCreateWithPriority = fake.cuGreenCtxStreamCreate = lambda *_: (1, None)
    with pytest.raises(TesseraError, match="TSR5107"):
        backend_of(two_copies(), fake)


@pytest.mark.parametrize(
    "sizes", [(84, 48), (48, 84), (64, 40), (40, 40, 40), (64, 40, 24), (84,), (34, 50), (44,) * 3]
)
def test_slices_of_two_replicas_are_apart(sizes: tuple[int, ...]) -> None:
    """Each replica opens its own slice of a GPU that the plan cuts up."""
    fake = FakeCuda()
    targets = {f"d{i}": f"cuda:0:{size}sm" for i, size in enumerate(sizes)}
    for name, size in zip(targets, sizes, strict=True):
        (device,) = open_devices(Driver(fake), [name], targets)
        assert device.sms == size
    taken = fake.sms_in_use()
    assert len(set(taken)) == len(taken) == sum(sizes)


@pytest.mark.parametrize("sizes", [(84, 48), (64, 40, 24), (84,), (40, 84), (16,) * 8])
def test_sms_of_a_slice_lie_together(sizes: tuple[int, ...]) -> None:
    """In groups of 8, but for what is left over: clusters of 8 blocks run on every slice."""
    fake = FakeCuda()
    flags = []
    split = fake.cuDevSmResourceSplitByCount

    def watched(groups: int, whole: Any, flag: int, least: int) -> Any:
        flags.append(flag)
        return split(groups, whole, flag, least)

    fake.cuDevSmResourceSplitByCount = watched
    targets = {f"d{i}": f"cuda:0:{size}sm" for i, size in enumerate(sizes)}
    opened = open_devices(Driver(fake), list(targets), targets)
    assert [device.sms for device in opened] == list(sizes)
    assert set(flags) == {0}
    assert len(fake.greens) == len(sizes)


@pytest.mark.parametrize("failing", range(1, 8))
def test_what_was_cut_is_given_back_when_the_next_fails(failing: int) -> None:
    """Three slices on each of two GPUs; one green context after the other cannot be made."""
    fake = FakeCuda(gpus=2)
    make, made = fake.cuGreenCtxCreate, 0

    def fails(*arguments: Any) -> Any:
        nonlocal made
        made += 1
        return make(*arguments) if made < failing else (2, None)

    fake.cuGreenCtxCreate = fails
    targets = {f"d{i}": f"cuda:{i % 2}:40sm" for i in range(6)}
    with pytest.raises(TesseraError, match="TSR5105"):
        open_devices(Driver(fake), list(targets), targets)
    assert not fake.greens
    assert fake.calls["cuDevicePrimaryCtxRetain"] == fake.calls["cuDevicePrimaryCtxRelease"] == 2


def test_a_gpu_that_another_program_fills() -> None:
    fake = FakeCuda(gpus=2)
    retain = fake.cuDevicePrimaryCtxRetain
    full = CUresult.CUDA_ERROR_OUT_OF_MEMORY
    fake.cuDevicePrimaryCtxRetain = lambda gpu: (full, None) if gpu else retain(gpu)
    with pytest.raises(TesseraError, match="TSR5102") as caught:
        open_devices(Driver(fake), ["a", "b"], {})
    assert "cuda:1" in str(caught.value.diagnostics[0].headline)
    assert fake.calls["cuDevicePrimaryCtxRelease"] == 1


@pytest.mark.parametrize("text", ["cuda:0:0sm", "cuda:0:000sm"])
def test_a_slice_without_sms(text: str) -> None:
    with pytest.raises(TesseraError, match="TSR5055"):
        open_devices(Driver(FakeCuda()), ["a"], {"a": text})
