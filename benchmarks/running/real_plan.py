"""A captured step as a plan on the whole GPU, beside the PyTorch that made it.

The plan's memory is filled from PyTorch's on the GPU: nothing of it passes through the host, so a
model of any size starts at once. Everything else is the runtime as `tessc run` uses it.
"""

from __future__ import annotations

import sys
import time
from bisect import bisect_right
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from benchmarks.running.real_steps import RealStep
from tessera.backend.cuda import loading
from tessera.backend.cuda.api import Bytes, Driver, bindings
from tessera.backend.cuda.backend import CudaBackend
from tessera.backend.cuda.torch_ops import TorchMemory
from tessera.backend.host_loop.dispatch import Dispatcher
from tessera.backend.service import BackendOptions, Model, ServedTrace
from tessera.driver.analyses import analysis_manager
from tessera.driver.trace import capture_trace as tracing
from tessera.driver.trace.build import draft_program, settle_roles
from tessera.frontend.capture.inputs import Inputs
from tessera.frontend.capture.session import Call, on_one_gpu
from tessera.frontend.capture.watch import tensors_in
from tessera.ir.plan.launch_program import AreaKind
from tessera.ir.program.program import Launch, LibraryCall, Role
from tessera.ir.progress import OnProgress
from tessera.passes.dependences.dependences import Dependences
from tessera.planning.lower.lower_plan import lower_replica
from tessera.planning.prices.estimate_costs import best_variant

DEVICE = "gpu"
_FILLED = (Role.WEIGHT, Role.INPUT, Role.STATE)


class CopyingDriver(Driver):
    """A driver that copies contents on the GPU, from where PyTorch has them."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self._starts: list[int] = []
        self._places: list[tuple[int, int, int]] = []
        self.copied: dict[int, int] = {}

    def placeholder(self, source: int, size: int) -> Bytes:
        """An array that nobody reads: it stands for memory of the GPU."""
        empty = np.empty(size, np.uint8)
        at = bisect_right(self._starts, empty.ctypes.data)
        self._starts.insert(at, empty.ctypes.data)
        self._places.insert(at, (empty.ctypes.data, size, source))
        return empty

    def upload(self, address: int, data: Bytes) -> None:
        at = bisect_right(self._starts, data.ctypes.data) - 1
        if at >= 0:
            start, size, source = self._places[at]
            offset = data.ctypes.data - start
            if offset + data.nbytes <= size:
                self.call("cuMemcpyDtoD", address, source + offset, data.nbytes)
                self.copied[start] = self.copied.get(start, 0) + data.nbytes
                return
        super().upload(address, data)


def tensor_at(address: int, size: int) -> torch.Tensor:
    """Memory of the GPU as a tensor of bytes."""
    return torch.as_tensor(TorchMemory(address, size), device="cuda")


def capture(step: RealStep, route: str, heard: OnProgress) -> Call:
    """A call of the step, as `tessc trace` captures it."""
    options = tracing.TraceOptions(route=route, data=False)
    return tracing._capture(step.module, Inputs(plain=step.inputs, named={}), options, heard)


class WholePlan:
    """The plan, ready to run. `heard` is told how far the capture is."""

    def __init__(self, step: RealStep, route: str, row: dict[str, Any], heard: OnProgress) -> None:
        begun = time.monotonic()
        with on_one_gpu(step.module, Inputs(plain=step.inputs, named={})):
            self.call = capture(step, route, heard)
            row["capture_s"] = round(time.monotonic() - begun, 1)
            draft = draft_program(self.call.raw, self.call.read)
            names = [b.name for b in draft.program.declared_buffers()]
            ran = self.call.run(names, data=False)
            program = settle_roles(draft, self.call.raw, ran.changed)
        self.program = program
        work = tuple(program.work())
        row["launches"] = sum(isinstance(one, Launch) for one in work)
        row["library_calls"] = sum(isinstance(one, LibraryCall) for one in work)
        row["steps"] = len(work)
        begun = time.monotonic()
        graph = analysis_manager(program, ".", None).get(Dependences).graph
        row["analysis_s"] = round(time.monotonic() - begun, 1)
        begun = time.monotonic()
        capability = torch.cuda.get_device_capability()
        arch = f"sm_{capability[0]}{capability[1]}"
        codes = [
            best_variant(program, one, arch) if isinstance(one, Launch) else None for one in work
        ]
        arches = tuple("" if code is None else code.arch for code in codes)
        driver = CopyingDriver(bindings())
        lowered = lower_replica([program], [graph], [[DEVICE] * len(work)], slots=1, lanes=1)
        self.addresses = {b.name: b.address for b in self.call.raw.buffers}
        given = {
            b.name: driver.placeholder(self.addresses[b.name], b.bytes)
            for b in program.declared_buffers()
            if b.role in _FILLED
        }
        model = Model(
            lowered=lowered,
            traces=(ServedTrace(name="step", program=program, arches=arches),),
            weights=given,
            states=(given,),
            fillings=({},),
        )
        options = BackendOptions(targets={DEVICE: "cuda:0"}, timeline=False)
        with patch.object(loading, "LEAST_STAGED_BYTES", sys.maxsize):  # all by `upload`
            self.backend = CudaBackend(model, options, driver=driver)
        for place in lowered.places:
            if place.kind in (AreaKind.WEIGHTS, AreaKind.LANE):
                name = program.buffers[place.buffer].name
                copied = driver.copied.get(given[name].ctypes.data, 0)
                least = given[name].nbytes if place.kind is AreaKind.WEIGHTS else 1
                assert copied >= least, f"`{name}` was not copied from where PyTorch has it"
        self.driver = driver
        torch.cuda.synchronize()
        row["start_s"] = round(time.monotonic() - begun, 1)
        self.given = {
            b.name: driver.download(self.addresses[b.name], b.bytes)
            for b in program.declared_buffers()
            if b.role is Role.INPUT
        }
        self.dispatcher = Dispatcher(self.backend, slots=1, lanes=1, limit_s=20.0)
        ready = next(iter(self.backend.replica.ready.values()))
        self.ready = ready
        row["one_graph"] = ready.graph is not None
        row["rows"] = len(ready.rows)

    def replay(self, count: int) -> None:
        """The plan's requests one after the other, without waiting in between."""
        root = self.backend.replica.roots[0]
        with self.driver.using(root.context):
            for _ in range(count):
                if self.ready.graph is not None:
                    self.driver.launch_graph(self.ready.graph, root.stream)
                else:
                    self.ready.tape.play(self.driver)

    def serve(self, count: int) -> None:
        """Requests through the dispatcher, as many under way as it takes."""
        futures = [self.dispatcher.submit(self.given, trace=0, lane=0) for _ in range(count)]
        for future in futures:
            self.result = future.result().outputs

    def check(self, row: dict[str, Any]) -> None:
        """Once by PyTorch's graph and once by the plan, from the same states."""
        self.call.graph.replay()
        torch.cuda.synchronize()
        self.serve(1)
        wrong = []
        places = self.backend.replica.memory
        assert places is not None
        for buffer in self.program.declared_buffers():
            if buffer.role not in (Role.STATE, Role.OUTPUT):
                continue
            ours = tensor_at(places.address(0, DEVICE, buffer.id, 0, 0), buffer.bytes)
            theirs = tensor_at(self.addresses[buffer.name], buffer.bytes)
            if not torch.equal(ours, theirs):
                off = int((ours != theirs).sum())
                wrong.append(f"{buffer.name}: {off} of {buffer.bytes} bytes")
        row["same_bytes"] = not wrong
        if wrong:
            row["wrong"] = wrong[:8]

    def output(self) -> torch.Tensor:
        """The first output, as the captured call returned it: it may be a part of its buffer."""
        first, name = next(
            (tensor, b.name)
            for tensor in tensors_in(self.call.returned)
            for b in self.program.declared_buffers()
            if self.holds(b.name, tensor.untyped_storage().data_ptr())
        )
        raw = np.asarray(self.result[name]).reshape(-1).view(np.uint8)
        whole = torch.from_numpy(raw.copy()).to(first.device).view(first.dtype)
        return whole.as_strided(first.shape, first.stride(), first.storage_offset())

    def holds(self, name: str, address: int) -> bool:
        """Whether a result is what PyTorch has at an address."""
        return name in self.result and self.addresses[name] == address
