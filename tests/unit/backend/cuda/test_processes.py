"""Devices that are in processes of their own, on one stand-in for the driver: bytes, and words."""

from __future__ import annotations

import threading
from collections import Counter, deque
from types import SimpleNamespace

import numpy as np
import pytest

from tessera.backend.cuda.api import Driver
from tessera.backend.cuda.far_ways import _NOTE, FarWays
from tessera.backend.cuda.process_part import GpuPart
from tessera.backend.hosts.gpu_worker import GpuWorker
from tessera.backend.hosts.messages import Release
from tessera.backend.hosts.windows import DriverExchange, peers_of
from tessera.backend.processes.device_group import part_of
from tessera.backend.processes.exchange import HostSide
from tessera.backend.processes.reference import Expected
from tessera.backend.service import BackendOptions, Bytes, Completion, Model, Request
from tessera.backend.transports.transport import TransportPlace
from tessera.ir.plan.launch_program import HOST, Transfer
from tessera.ir.plan.one_host import on_one_host
from tests.helpers.exchanges import exchange_model
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


@pytest.mark.parametrize("hosts", [{}, {"a": "left", "b": "left", "c": "right"}])
def test_transfers_of_several_buffers(hosts: dict[str, str]) -> None:
    """They are packed and unpacked by one kernel each, in GPU memory; on their way to another host
    by copies."""
    model, fake = exchange_model(18), FakeCuda(seed=3)
    several = [t for t in between_devices(model) if len(t.portions) > 1]
    near = [t for t in several if hosts.get(t.source) == hosts.get(t.target)]
    run(model, fake, SLICES, hosts or None)
    kernels = sum(name == "copy_ranges" for name, _ in fake.launched)
    assert kernels == 2 * len(near) * len(asks_of(model))
    assert len(several) > 2
    assert bool(hosts) == (len(near) < len(several))


def between_devices(model: Model) -> list[Transfer]:
    (trace,) = model.lowered.traces
    return [t for t in trace.transfers if HOST not in (t.source, t.target)]


def finish(backend: PartsBackend, want: Expected) -> None:
    """The request under way ends, with the bytes of one device."""
    done: tuple[Completion, ...] = ()
    while not done:
        done = backend.collect(0.01)
    for name, content in want.outputs.items():
        np.testing.assert_array_equal(done[0].outputs[name], content)


def test_no_call_lies_between_producer_and_consumer() -> None:
    """A request is handed over at once in every process, and nothing else reaches the driver."""
    model = random_model(3)
    fake = FakeCuda(seed=3)
    backend = PartsBackend(model, fake, SLICES)
    between = between_devices(model)
    assert between
    (ask,) = asks_of(model, 1)
    fake.calls = Counter()
    backend.begin(Request(number=0, trace=0, slot=0, lane=0, inputs=inputs_of(model, ask)))
    assert fake.calls["cuStreamWaitValue32"] == len(between)
    fake.calls = Counter()
    finish(backend, *expected(model, [ask]))
    assert set(fake.calls) <= {
        f"cu{name}" for name in ("CtxGetCurrent", "CtxPushCurrent", "CtxPopCurrent", "StreamQuery")
    }
    backend.close()


@pytest.mark.parametrize("number", [7, 0xFFFFFFFE])
def test_a_late_write_satisfies_no_later_wait(number: int) -> None:
    """Words are numbered by request and never reset, also where the numbers begin anew."""
    model, fake = random_model(12), FakeCuda(seed=3)
    backend = PartsBackend(model, fake, SLICES)
    parts = backend.parts
    assert {(t.source, t.target) for t in between_devices(model)} == {("c", "b")}
    places = [parts["b"]._ways.place(0, 0, transfer) for transfer in between_devices(model)]
    for part in parts.values():
        part._ways.number(0, 0)[0] = number
    asks = asks_of(model)
    for count, (ask, want) in enumerate(zip(asks, expected(model, asks), strict=True)):
        for _, word in places:  # that of the request before
            fake.view(word, 4).view(np.uint32)[0] = (number + count) & 0xFFFFFFFF
        inputs = inputs_of(model, ask)
        request = Request(number=count, trace=0, slot=0, lane=ask.lane, inputs=inputs)
        backend.parts = {"b": parts["b"]}
        backend.begin(request)
        fake._pump(None)
        assert [node.label for node in fake.pending].count("wait") == len(places)
        backend.parts = {device: part for device, part in parts.items() if device != "b"}
        backend.begin(request)
        backend.parts, backend.underway[count] = parts, (request, set(parts))
        finish(backend, want)
    backend.close()


@pytest.mark.parametrize("late", [0, 0xFFFFFFFF, 5])
def test_a_late_note_of_another_host_changes_nothing(late: int) -> None:
    """Nor does a note of a request to come: a word takes its numbers one after the other."""
    model, hosts = random_model(12), {"a": "left", "b": "left", "c": "right"}
    lowered = on_one_host(model.lowered)
    far = FarWays(Driver(FakeCuda()), lowered, "b", hosts)
    for transfer in between_devices(model):
        key = 0, 0, int(transfer.id)
        word = far._coming[key]
        for number, given in ((0, late), (1, 1), (1, late), (2, 2)):
            far.hear("c", _NOTE.pack(*key, given))
            assert far._arrived[word] == number
    far.close()


def test_what_waits_for_a_device_that_is_gone_ends_with_its_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its memory is not freed under the stream, nor are kernels run on bytes that never came."""
    monkeypatch.setattr("tessera.backend.cuda.backend._END_S", 0.01)
    model = random_model(3)
    fake = FakeCuda(seed=3)
    backend = PartsBackend(model, fake, SLICES)
    lost = between_devices(model)[0]
    part = backend.parts[lost.target]
    (ask,) = asks_of(model, 1)
    given = [backend.exchange.region(0, 0, t.id) for t in backend._from_host(0, lost.target)]
    backend.host.put_inputs(
        Request(number=0, trace=0, slot=0, lane=0, inputs=inputs_of(model, ask))
    )
    part.begin(0, 0, 0, 0, given)
    ended: list[bool] = []
    channel = SimpleNamespace(receive=lambda: (Release(), []), send=lambda *_: None)
    GpuWorker(channel, part, beat_s=9.0, orphan=lambda: ended.append(True)).serve()  # type: ignore[arg-type]
    assert ended == [True]
    assert "wait" in [node.label for node in fake.pending]
    for other in backend.parts.values():
        assert other is part or other.close()
