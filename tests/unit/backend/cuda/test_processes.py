"""Devices that are in processes of their own, on one stand-in for the driver: bytes, and calls."""

from __future__ import annotations

import threading
from collections import Counter, deque

import numpy as np
import pytest

from tessera.backend.cuda.api import Driver
from tessera.backend.cuda.process_part import GpuPart
from tessera.backend.hosts.windows import DriverExchange, peers_of
from tessera.backend.processes.device_group import part_of
from tessera.backend.processes.exchange import HostSide
from tessera.backend.service import BackendOptions, Bytes, Completion, Model, Request
from tessera.backend.transports.transport import TransportPlace
from tessera.ir.plan.launch_program import HOST, Transfer
from tests.helpers.fake_cuda import FakeCuda
from tests.helpers.served import assert_equal, expected, inputs_of, serve
from tests.unit.backend.cuda.test_random_placements import GPUS, SLICES, asks_of, random_model


class PartsBackend:
    """A driver of parts that are in this process, each with a driver of its own."""

    depth = 1

    def __init__(
        self,
        model: Model,
        fake: FakeCuda,
        targets: dict[str, str],
        hosts: dict[str, str] | None = None,
    ) -> None:
        self.model = model
        options = BackendOptions(targets=targets, timeline=False)
        self.parts = {
            device: GpuPart(
                part_of(model, device),
                device,
                options,
                Driver(fake),
                hosts=hosts,
                place=None if hosts is None else place_of(device, hosts[device]),
            )
            for device in model.lowered.devices
        }
        addresses = {device: part.address for device, part in self.parts.items()}
        joining = []
        for device, part in self.parts.items():
            others = {d: addresses[d] for d in peers_of(model.lowered)[device]}
            joining.append(threading.Thread(target=part.connect, args=(others,)))
            joining[-1].start()
            if hosts is None:  # nobody waits for a call
                joining[-1].join()
        for thread in joining:
            thread.join()
        self.exchange = DriverExchange(model)
        self.host = HostSide(model, self.exchange)
        self.underway: dict[int, tuple[Request, set[str]]] = {}
        self.finished: deque[Completion] = deque()

    def _from_host(self, trace: int, device: str) -> list[Transfer]:
        lowered = next(t for t in self.model.lowered.traces if t.trace == trace)
        return [t for t in lowered.transfers if (t.source, t.target) == (HOST, device)]

    def begin(self, request: Request) -> None:
        self.host.put_inputs(request)
        self.underway[request.number] = request, set(self.parts)
        trace, slot = request.trace, request.slot
        for device, part in self.parts.items():
            given = [
                self.exchange.region(trace, slot, t.id) for t in self._from_host(trace, device)
            ]
            part.begin(request.number, trace, slot, request.lane, given)

    def collect(self, timeout_s: float) -> tuple[Completion, ...]:
        for device, part in self.parts.items():
            for done in part.collect(min(timeout_s, 0.001)):
                request, missing = self.underway[done.number]
                for transfer, content in done.outputs:
                    self.exchange.region(request.trace, request.slot, transfer)[:] = content
                missing.discard(device)
                if not missing:
                    outputs = self.host.take_outputs(request.trace, request.slot)
                    self.finished.append(
                        Completion(request=done.number, outputs=outputs, started_ns=0, ended_ns=1)
                    )
        return tuple(self.finished.popleft() for _ in range(len(self.finished)))

    def progress(self) -> dict[int, object]:
        return {}

    def locate(self, given: object, size: int) -> None:
        return None

    def read_states(self, lane: int) -> dict[str, Bytes]:
        replicas = [part.backend.replica for part in self.parts.values()]
        return self.host.join_states(lane, [r.contents.pieces(lane) for r in replicas])

    def close(self) -> None:
        for part in self.parts.values():
            part.close()
        for part in self.parts.values():
            part.free_window()


def place_of(device: str, host: str) -> TransportPlace:
    return TransportPlace(
        kind="tcp", name=device, host=host, bind="127.0.0.1", token="secret", run="run"
    )


def run(
    model: Model, fake: FakeCuda, targets: dict[str, str], hosts: dict[str, str] | None = None
) -> PartsBackend:
    asks = asks_of(model)
    wanted = expected(model, asks)
    backend = PartsBackend(model, fake, targets, hosts)
    done, states = serve(backend, model, asks)  # type: ignore[arg-type]
    assert_equal(model, asks, wanted, done, states)
    return backend


@pytest.mark.parametrize("seed", [101, 102])
def test_slices_of_one_gpu(seed: int) -> None:
    run(random_model(seed, traces=1 + seed % 2), FakeCuda(seed=seed), SLICES)


@pytest.mark.parametrize("seed", [110, 113])
def test_gpus_of_their_own(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a process has one queue for all its streams: what waits there stops the rest."""
    monkeypatch.setenv("TESSERA_NO_GRAPHS", "1")
    run(random_model(seed), FakeCuda(seed=1, gpus=3, one_queue=True), GPUS)


@pytest.mark.parametrize("seed", [102, 120])
def test_devices_of_two_hosts(seed: int) -> None:
    """Between hosts bytes go through pinned memory and a transport, inside one by IPC."""
    hosts = {"a": "left", "b": "left", "c": "right"}
    model = random_model(seed, traces=1 + seed % 2)
    between = [
        t
        for trace in model.lowered.traces
        for t in trace.transfers
        if HOST not in (t.source, t.target) and hosts[t.source] != hosts[t.target]
    ]
    assert between
    run(model, FakeCuda(seed=seed), SLICES, hosts)


def test_no_call_lies_between_producer_and_consumer() -> None:
    """A request is one graph launch in every process, and nothing else reaches the driver."""
    model = random_model(3)
    fake = FakeCuda(seed=3)
    backend = PartsBackend(model, fake, SLICES)
    between = [t for t in model.lowered.traces[0].transfers if HOST not in (t.source, t.target)]
    assert between
    (ask,) = asks_of(model, 1)
    fake.calls = Counter()
    request = Request(number=0, trace=0, slot=0, lane=0, inputs=inputs_of(model, ask))
    backend.begin(request)
    assert fake.calls.pop("cuGraphLaunch") == len(backend.parts)
    assert set(fake.calls) <= {"cuCtxGetCurrent", "cuCtxPushCurrent", "cuCtxPopCurrent"}
    # Every transfer is there, in the graphs: a word is set, waited for and cleared.
    labels = Counter(node.label for node in fake.pending)
    assert labels["wait"] == len(between)
    assert labels["write"] == 2 * len(between)
    fake.calls = Counter()
    done: tuple[Completion, ...] = ()
    while not done:
        done = backend.collect(0.01)
    assert not {name for name in fake.calls if name.startswith(("cuMem", "cuLaunch", "cuGraph"))}
    (want,) = expected(model, [ask])
    for name, content in want.outputs.items():
        np.testing.assert_array_equal(done[0].outputs[name], content)
    backend.close()
