"""The CUDA backend on a stand-in driver: random traces and placements, against one device.

The stand-in runs what streams and events leave unordered in random order, so a missing wait shows.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tessera.backend.cuda.api import Driver
from tessera.backend.cuda.backend import CudaBackend, CudaOptions
from tessera.backend.service import BackendOptions, Model
from tessera.ir.plan.launch_program import HOST, Await, LoweredReplica
from tests.helpers.exchanges import exchange_model
from tests.helpers.fake_cuda import FakeCuda
from tests.helpers.random_traces import random_program
from tests.helpers.served import Ask, assert_equal, expected, graph_of, model_of, serve
from tests.helpers.share import least, share

SLICES = {"a": "cuda:0:84sm", "b": "cuda:0:24sm", "c": "cuda:0:16sm"}
GPUS = {"a": "cuda:0", "b": "cuda:1", "c": "cuda:2"}


def random_model(seed: int, devices: str = "abc", traces: int = 1, variable: bool = False) -> Model:
    rng = random.Random(seed)
    wide = seed % 4 == 1
    programs = [random_program(10 * seed + i, variable=variable, wide=wide) for i in range(traces)]
    placements = [[rng.choice(devices) for _ in program.work()] for program in programs]
    return model_of(
        programs,
        placements,
        slots=rng.randint(1, 4),
        lanes=rng.randint(1, 3),
        graphs=[graph_of(program) for program in programs],
    )


def asks_of(model: Model, count: int = 6) -> list[Ask]:
    lanes, traces = model.lowered.lanes, len(model.traces)
    return [Ask(i, i % traces, i % lanes) for i in range(count)]


def run(model: Model, fake: FakeCuda, targets: dict[str, str], **options: object) -> CudaBackend:
    """Run requests and compare them; the backend is closed when it comes back."""
    asks = asks_of(model)
    wanted = expected(model, asks)
    backend = CudaBackend(
        model,
        BackendOptions(targets=targets, timeline=False),
        cuda=CudaOptions(**options),
        driver=Driver(fake),
    )
    done, states = serve(backend, model, asks)
    assert_equal(model, asks, wanted, done, states)
    return backend


@pytest.mark.parametrize("seed", share(range(12)))
def test_slices_of_one_gpu(seed: int) -> None:
    model = random_model(seed)
    run(model, FakeCuda(seed=seed), SLICES, graphs=bool(seed % 2))


@pytest.mark.parametrize("seed", share(range(8, 20)))
def test_slices_in_one_graph(seed: int) -> None:
    """A request is one launch, whatever the order in which the queues of its graph go on."""
    model, fake = random_model(seed), FakeCuda(seed=seed)
    run(model, fake, SLICES, spanning=True)
    assert fake.calls["cuGraphLaunch"] == len(asks_of(model))


@pytest.mark.parametrize("seed", share(range(20, 26)))
def test_gpus_that_reach_each_other(seed: int) -> None:
    fake = FakeCuda(seed=seed, gpus=3)
    run(random_model(seed), fake, GPUS, graphs=bool(seed % 2))
    assert fake.peered >= {(0, 1), (1, 0)}


@pytest.mark.parametrize("seed", share(range(30, 36)))
def test_gpus_that_do_not(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tessera.backend.cuda.links.STAGE_BYTES", 40)  # several parts each
    fake = FakeCuda(seed=seed, gpus=3, peers=False)
    run(random_model(seed), fake, GPUS, graphs=bool(seed % 2))


@pytest.mark.parametrize("seed", share(range(40, 44)))
def test_traces_that_share_states(seed: int) -> None:
    run(random_model(seed, traces=2), FakeCuda(seed=seed), SLICES)


@pytest.mark.parametrize("seed", share(range(50, 54)))
def test_module_variables(seed: int) -> None:
    run(random_model(seed, variable=True), FakeCuda(seed=seed), SLICES)


@pytest.mark.parametrize("seed", share(range(60, 64)))
def test_many_ranges_are_moved_by_a_kernel(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tessera.backend.cuda.links.MANY_PIECES", 0)
    fake = FakeCuda(seed=seed)
    run(random_model(seed), fake, SLICES)
    assert any(name == "copy_ranges" for name, _ in fake.launched)


@pytest.mark.parametrize("way", ["rows", "graph", "peers", "staged", "no kernel", "calls"])
@pytest.mark.parametrize("seed", share([12, 18]))
def test_transfers_of_several_buffers(way: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between GPUs that reach each other's memory each of them is one kernel."""
    model = exchange_model(seed)
    rows = [t for t in model.lowered.traces[0].transfers if HOST not in (t.source, t.target)]
    several = sum(len(transfer.portions) > 1 for transfer in rows)
    assert several > 2
    options = {"graphs": way != "calls", "spanning": way == "graph"}
    if way == "no kernel":
        monkeypatch.setattr("tessera.backend.cuda.links.KERNEL_BYTES", 100)
    if way == "staged":
        monkeypatch.setattr("tessera.backend.cuda.links.STAGE_BYTES", 100)
    gpus = 3 if way in ("peers", "staged") else 1
    fake = FakeCuda(seed=seed, gpus=gpus, peers=way != "staged")
    run(model, fake, SLICES if gpus == 1 else GPUS, **options)
    launched = sum(name == "copy_ranges" for name, _ in fake.launched)
    if way not in ("staged", "no kernel"):
        assert launched >= several * len(asks_of(model))
        assert launched <= len(rows) * len(asks_of(model))
    else:
        assert launched < several


def without_a_wait(lowered: LoweredReplica, rng: random.Random) -> LoweredReplica | None:
    """One wait of one program left out."""
    trace = lowered.traces[0]
    waits = [
        (p, o)
        for p, program in enumerate(trace.programs)
        for o, queued in enumerate(program.operations)
        if isinstance(queued.operation, Await)
    ]
    if not waits:
        return None
    p, o = rng.choice(waits)
    program = trace.programs[p]
    operations = program.operations[:o] + program.operations[o + 1 :]
    programs = list(trace.programs)
    programs[p] = replace(program, operations=operations)
    return replace(lowered, traces=(replace(trace, programs=tuple(programs)),))


def test_a_missing_wait_shows() -> None:
    """The stand-in is able to fail: most waits that are left out change a result."""
    caught = tried = 0
    for seed in range(70, 70 + least(9, 5)):
        model = random_model(seed)
        lowered = without_a_wait(model.lowered, random.Random(seed))
        if lowered is None:
            continue
        tried += 1
        try:
            for order in range(2):
                run(replace(model, lowered=lowered), FakeCuda(seed=order), SLICES)
        except AssertionError:
            caught += 1
    assert tried >= least(6, 3)
    assert caught >= tried // 3
