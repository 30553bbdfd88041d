"""`benchmarks.running.real_models` without a GPU: a tiny model through every line of a case.

Models are made on the host. The capture is that of `tessc trace --device none`, with the addresses
of memory that is there, filled with what PyTorch has on the host; the plan runs on a stand-in for
the driver, whose kernels the CPU executor runs. PyTorch's graph is what PyTorch computes on the
host, so bytes differ where it rounds otherwise: `same_bytes` says little here, `error` says much.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch

from benchmarks.running import real_plan
from benchmarks.running.real_steps import RealStep
from tessera.driver.trace.no_gpu_trace import NoGpuOptions, _recorded
from tessera.frontend.capture.dry_run import without_gpu
from tessera.frontend.capture.inputs import Inputs
from tessera.frontend.capture.memory import CapturedMemory
from tessera.frontend.capture.meta import record as meta
from tessera.frontend.capture.no_gpu.on_host import call_on_host
from tessera.frontend.capture.session import Call
from tessera.frontend.capture.watch import torch_type
from tessera.frontend.machine.gpu_table import gpu_table
from tessera.ir.progress import OnProgress
from tests.helpers.fake_cuda import OK, FakeCuda

GPU = "h200"
MEMORY = 256 << 20
_ALIGNED = 512


class HostAddresses(meta.FakeAddresses):
    """Every storage of the call has memory of the host, of as many bytes."""

    every: list[np.ndarray] = []  # noqa: RUF012  (all of a process)

    def of_storage(self, storage: torch.UntypedStorage) -> int:
        if storage._cdata not in self._known:
            size = max(storage.nbytes(), 1)
            spare = np.zeros(size + _ALIGNED, np.uint8)
            whole = spare[-spare.ctypes.data % _ALIGNED :][:size]
            self.every.append(whole)
            self._known[storage._cdata] = whole.ctypes.data, storage
        return self._known[storage._cdata][0]


class TrialCuda(FakeCuda):
    """The stand-in, which reaches PyTorch's memory too."""

    def view(self, address: int, size: int) -> np.ndarray:
        for whole in HostAddresses.every:
            if 0 <= address - whole.ctypes.data <= whole.nbytes - size:
                return _bytes_at(address, size)
        return super().view(address, size)

    def cuMemcpyDtoD(self, target: int, source: int, size: int) -> Any:
        self._pump(None)
        self.view(target, size)[:] = self.view(source, size)
        return OK

    def settle(self) -> None:
        """Run all that was handed over."""
        with self.lock:
            self._pump(None)


@dataclass
class HostGraph:
    """What a call leaves in memory, by address."""

    made: list[tuple[int, np.ndarray]] = field(default_factory=list)

    def instantiate(self) -> None:
        """There is nothing to make."""

    def replay(self) -> None:
        """Put it there."""
        for address, content in self.made:
            _bytes_at(address, content.nbytes)[:] = content


class _Nothing(nullcontext[None]):
    """Makes nothing the current one."""

    def __init__(self, *_: object) -> None:
        super().__init__()


def _bytes_at(address: int, size: int) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


def made_on_host(make: Callable[[], RealStep]) -> RealStep:
    """A step whose tensors are all on the host."""
    with without_gpu(on_gpu=False):
        return make()


def captured(make: Callable[[], RealStep], heard: OnProgress) -> Call:
    """The call as a capture on a GPU gives it."""

    def given() -> tuple[Any, Inputs]:
        step = make()
        return step.module, Inputs(plain=step.inputs, named={})

    with mock.patch.object(meta, "FakeAddresses", HostAddresses):
        options = NoGpuOptions(gpus=(gpu_table()[GPU],))
        record = _recorded(given, options, heard)
    buffers = {buffer.name: buffer for buffer in record.raw.buffers}
    there = call_on_host(given, buffers, record.returned)
    assert not there.problem, there.problem
    HostGraph([(buffers[name].address, bytes_) for name, bytes_ in there.before.items()]).replay()
    returned = []
    for name, place in record.returned.values():
        whole = _bytes_at(buffers[name].address, buffers[name].bytes)
        view = torch.from_numpy(whole).view(torch_type(place.dtype))
        offset = (place.address - buffers[name].address) // view.element_size()
        returned.append(view.as_strided(place.shape, place.strides, offset))
    after = [(buffers[name].address, bytes_) for name, bytes_ in there.after.items()]
    memory = CapturedMemory()
    for whole in HostAddresses.every:
        memory._storages[whole.ctypes.data] = torch.from_numpy(whole).untyped_storage()
    graph: Any = HostGraph(after)
    return Call(
        raw=record.raw,
        notes=record.notes,
        memory=memory,
        graph=graph,
        kept=None,
        returned=returned,
    )


@contextmanager
def on_trial(make: Callable[[], RealStep]) -> Iterator[None]:
    """Have `real_plan` and `torch.cuda` work without a GPU, for the step that `make` gives."""
    fake = TrialCuda(memory=MEMORY)

    class Stream:
        """Waits for all of them."""

        synchronize = staticmethod(fake.settle)

    generator = SimpleNamespace(get_offset=lambda: 0)
    stand_ins = {
        "get_device_name": lambda: "a trial without a GPU",
        "get_device_capability": lambda: fake.capability,
        "current_device": lambda: 0,
        "device": _Nothing,
        "default_generators": (generator,),
        "synchronize": fake.settle,
        "empty_cache": lambda: None,
        "Stream": Stream,
        "stream": _Nothing,
        "CUDAGraph": HostGraph,
        "graph": _Nothing,
    }
    with ExitStack() as stack:
        for name, value in stand_ins.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, value))
        for owner, name, value in (
            (real_plan, "bindings", lambda: fake),
            (real_plan, "tensor_at", lambda at, n: torch.from_numpy(fake.view(at, n))),
            (real_plan, "capture", lambda step, route, heard: captured(make, heard)),
        ):
            stack.enter_context(mock.patch.object(owner, name, value))
        yield
