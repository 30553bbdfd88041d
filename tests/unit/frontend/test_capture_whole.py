"""A capture from end to end on a stand-in GPU: PyTorch on the host, a driver with one node per op.

Tensors say that they are on a GPU, every operator adds a kernel without PTX to the graph, and
what is captured has run already when the graph is replayed. So it is for operators that make new
tensors; that they are captured as a real GPU would is tested in `tests/gpu`.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tessera import driver as tessera_driver
from tessera import tracing
from tessera.diagnostics import TesseraError
from tessera.frontend.capture.memory import Memory
from tessera.ir.program import LibraryCall, Role
from tessera.tracing import GraphNodes, TraceOptions, write_trace

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")
EAGER = TraceOptions(route="eager")


class Graph(int):
    """A handle of the only graph."""


class Driver(types.ModuleType):
    """Each pair of questions for the count finds one node more."""

    CUgraph = Graph
    CUpointer_attribute = SimpleNamespace(CU_POINTER_ATTRIBUTE_MEMORY_TYPE=2)
    CUkernelNodeAttrID = SimpleNamespace(
        CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION=0, CU_LAUNCH_ATTRIBUTE_COOPERATIVE=1
    )

    def __init__(self) -> None:
        super().__init__("cuda.bindings.driver")
        self.asked = 0
        self.is_capturing = False

    CUstream = staticmethod(int)

    def cuStreamGetCaptureInfo(self, stream: int) -> tuple[Any, ...]:
        return 0, Graph(1)

    def cuPointerGetAttribute(self, kind: int, word: int) -> tuple[Any, ...]:
        return 1, None

    def cuGraphGetNodes(self, graph: int, count: int) -> tuple[Any, ...]:
        if count:
            return 0, list(range(count)), count
        self.asked += self.is_capturing
        return 0, [], self.asked // 2

    def cuGraphGetEdges(self, graph: int, count: int) -> tuple[Any, ...]:
        chain = list(range(max(self.asked // 2 - 1, 0)))
        return 0, chain[:count], [n + 1 for n in chain[:count]], [], len(chain)

    def cuGraphNodeGetType(self, node: int) -> tuple[Any, ...]:
        return 0, SimpleNamespace(name="CU_GRAPH_NODE_TYPE_KERNEL")

    def cuGraphKernelNodeGetParams(self, node: int) -> tuple[Any, ...]:
        return 0, SimpleNamespace(
            func=9, kern=0, gridDimX=1, gridDimY=1, gridDimZ=1, blockDimX=1, blockDimY=1,
            blockDimZ=1, sharedMemBytes=0, kernelParams=0,
        )  # fmt: skip

    def cuFuncGetName(self, function: int) -> tuple[Any, ...]:
        return 0, b"library_kernel"

    def cuGraphKernelNodeGetAttribute(self, node: int, kind: int) -> tuple[Any, ...]:
        return 1, None


class Generator:
    drawn = 0

    def get_offset(self) -> int:
        Generator.drawn += self.step
        return Generator.drawn

    step = 0

    def initial_seed(self) -> int:
        return 3

    def clone_state(self) -> str:
        return "as before"

    def graphsafe_set_state(self, state: str) -> None:
        self.state = state


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()

    @contextmanager
    def capturing(graph: Any) -> Iterator[None]:
        made.is_capturing = True
        try:
            yield
        finally:
            made.is_capturing = False

    @contextmanager
    def nothing(*_: Any) -> Iterator[None]:
        yield

    stream = SimpleNamespace(wait_stream=lambda other: None, cuda_stream=1)
    graph = SimpleNamespace(raw_cuda_graph=lambda: 1, instantiate=lambda: None, replay=lambda: None)
    stand_ins = {
        "Stream": lambda: stream, "current_stream": lambda: stream, "stream": nothing,
        "synchronize": lambda: None, "graph": capturing, "device": nothing,
        "CUDAGraph": lambda keep_graph: graph, "current_device": lambda: 0,
        "default_generators": [Generator()], "memory_snapshot": list,
    }  # fmt: skip
    for name, value in stand_ins.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda self: True), raising=False)
    bindings = types.ModuleType("cuda.bindings")
    bindings.driver = made  # type: ignore[attr-defined]
    for name, module in (("cuda", types.ModuleType("cuda")), ("cuda.bindings", bindings)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", made)
    monkeypatch.setattr(tracing, "require_gpu", lambda: None)
    return made


class Scale(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(8.0))

    def forward(self, x: Any, *, shift: Any) -> dict[str, Any]:
        scaled = torch.mul(x, self.weight)
        return {"out": torch.add(scaled, shift), "more": [torch.relu(scaled)]}


@pytest.mark.usefixtures("gpu")
def test_from_a_module_to_bytes(tmp_path: Path) -> None:
    x, shift = torch.linspace(-1, 1, 8), torch.full((8,), 0.5)
    found = tracing.trace(Scale(), x, shift=shift, options=EAGER)
    program = found.program
    assert [step.operator for step in program.steps if isinstance(step, LibraryCall)] == [
        "aten::mul.Tensor", "aten::add.Tensor", "aten::relu",
    ]  # fmt: skip
    assert {step.stream for step in program.work()} == {"0"}
    roles = {buffer.name: buffer.role for buffer in program.declared_buffers()}
    assert sorted(roles.values(), key=lambda role: role.value) == [
        Role.INPUT, Role.INPUT, Role.OUTPUT, Role.OUTPUT, Role.TEMP, Role.WEIGHT,
    ]  # fmt: skip
    assert (roles["shift"], roles["weight"]) == (Role.INPUT, Role.WEIGHT)
    assert found.nodes == GraphNodes(
        kernels=3, memsets=0, copies=0, others=0, in_calls=3, skipped=0
    )
    assert found.diagnostics == ()
    write_trace(found, tmp_path / "t.ptx", suffix=".safetensors")
    report = tessera_driver.run(tmp_path / "t.ptx", tessera_driver.RunOptions())
    kept = {buffer.name: data.reshape(-1).view(np.uint8) for buffer, data in report.kept()}
    assert kept.keys() == found.reference.keys() == {"out", "out1"}
    for name, content in found.reference.items():
        np.testing.assert_array_equal(kept[name], content)


@pytest.mark.parametrize("data", [True, False])
def test_state_is_what_a_replay_changes_with_and_without_data(
    gpu: Driver, monkeypatch: pytest.MonkeyPatch, data: bool
) -> None:
    x, read = torch.ones(9), Memory.read
    reads: list[str] = []
    monkeypatch.setattr(Memory, "read", lambda me, b: reads.append(b.name) or read(me, b))
    monkeypatch.setattr(torch.cuda.CUDAGraph(True), "replay", lambda: x.add_(1))
    found = tracing.trace(torch.relu, x, options=replace(EAGER, data=data))
    roles = {buffer.name: buffer.role for buffer in found.program.declared_buffers()}
    assert Role.STATE in roles.values()
    assert bool(reads) == bool(found.contents) == bool(found.reference) == data


def test_numbers_that_are_drawn_otherwise_are_refused(
    gpu: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Generator, "step", 4)
    with pytest.raises(TesseraError) as caught:
        tracing.trace(torch.relu, torch.ones(4), options=EAGER)
    assert caught.value.diagnostics[0].code == "TSR6002"
    assert "random numbers" in caught.value.diagnostics[0].headline


def test_a_failed_capture_leaves_the_generator_as_it_was(gpu: Driver) -> None:
    calls: list[int] = []

    def step(x: Any) -> Any:
        calls.append(1)
        if len(calls) > 3:
            raise ValueError("called too often")
        return torch.relu(x)

    with pytest.raises(TesseraError) as caught:
        tracing.trace(step, torch.ones(4), options=EAGER)
    (found,) = caught.value.diagnostics
    assert found.code == "TSR6003"
    assert found.notes[0] == "called too often"
    assert "`step`, test_capture_whole.py" in found.notes[1]
    assert torch.cuda.default_generators[0].state == "as before"


@pytest.mark.usefixtures("gpu")
def test_nothing_to_capture() -> None:
    with pytest.raises(TesseraError) as caught:
        tracing.trace(lambda: None, options=EAGER)
    assert caught.value.diagnostics[0].code == "TSR6003"
