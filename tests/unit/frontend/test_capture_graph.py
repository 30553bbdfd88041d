"""Reading a CUDA graph, against a driver that is not there; and the user's model file."""

from __future__ import annotations

import ctypes
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tessera.diagnostics import TesseraError
from tessera.frontend.capture.cuda_graph import read_nodes
from tessera.frontend.capture.kernels import find_codes
from tessera.frontend.capture.model_file import find_model, load_model
from tessera.frontend.capture.raw import RawLaunch, RawMemcpy, RawMemset


class Value:
    """A status, a kind or a bag of fields, as the bindings give them."""

    def __init__(self, name: str = "", **fields: Any) -> None:
        self.name = name
        self.__dict__.update(fields)

    def __int__(self) -> int:
        return 0


class Driver(types.ModuleType):
    """A graph of the nodes that a test puts in."""

    def __init__(self) -> None:
        super().__init__("cuda.bindings.driver")
        self.nodes: list[tuple[str, Any]] = []
        self.status = 0
        self.CUkernelNodeAttrID = Value(
            CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION="cluster", CU_LAUNCH_ATTRIBUTE_COOPERATIVE="coop"
        )

    def CUgraph(self, handle: int) -> int:
        return handle

    def cuGraphGetNodes(self, graph: int, count: int) -> tuple[Any, ...]:
        return self.status, self.nodes[:count], len(self.nodes)

    def cuGraphNodeGetType(self, node: tuple[str, Any]) -> tuple[Any, ...]:
        return 0, Value(f"CU_GRAPH_NODE_TYPE_{node[0]}")

    def _params(self, node: tuple[str, Any]) -> tuple[Any, ...]:
        return 0, node[1]

    cuGraphKernelNodeGetParams = cuGraphMemsetNodeGetParams = _params
    cuGraphMemcpyNodeGetParams = _params

    def cuFuncGetName(self, function: int) -> tuple[Any, ...]:
        return 0, b"kernel"

    def cuFuncGetParamInfo(self, function: int, index: int) -> tuple[Any, ...]:
        return (0, 8 * index, 8) if index < 2 else (1, 0, 0)

    def cuGraphKernelNodeGetAttribute(self, node: Any, kind: str) -> tuple[Any, ...]:
        size = Value(x=2, y=1, z=1)
        return 0, Value(clusterDim=size, cooperative=1)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    package, bindings = types.ModuleType("cuda"), types.ModuleType("cuda.bindings")
    bindings.driver = made  # type: ignore[attr-defined]
    for name, module in (("cuda", package), ("cuda.bindings", bindings)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", made)
    return made


def test_a_kernel_node_with_the_bytes_of_its_arguments(driver: Driver) -> None:
    values = (ctypes.c_uint64 * 2)(0x1122334455667788, 5)
    pointers = (ctypes.c_void_p * 2)(ctypes.addressof(values), ctypes.addressof(values) + 8)
    params = Value(
        func=77, gridDimX=2, gridDimY=3, gridDimZ=1, blockDimX=32, blockDimY=1, blockDimZ=1,
        sharedMemBytes=64, kernelParams=ctypes.addressof(pointers),
    )  # fmt: skip
    driver.nodes = [("EMPTY", None), ("KERNEL", params)]
    ((place, node),) = read_nodes(1, {77})
    assert place == 1
    assert node == RawLaunch(
        name="kernel", function=77, grid=(2, 3, 1), block=(32, 1, 1), shared_bytes=64,
        arguments=((0x1122334455667788).to_bytes(8, "little"), (5).to_bytes(8, "little")),
        cluster=(2, 1, 1), cooperative=True,
    )  # fmt: skip


def copy_params(source: str = "DEVICE", depth: int = 1) -> Value:
    return Value(
        srcMemoryType=Value(f"CU_MEMORYTYPE_{source}"), dstMemoryType=Value("CU_MEMORYTYPE_DEVICE"),
        dstDevice=100, dstXInBytes=4, dstY=1, dstPitch=16, srcDevice=200, srcXInBytes=0, srcY=0,
        srcPitch=32, WidthInBytes=8, Height=2, Depth=depth,
    )  # fmt: skip


def test_memset_and_memcpy_nodes(driver: Driver) -> None:
    fill = Value(dst=100, elementSize=2, width=8, height=1, pitch=0, value=0x12345)
    driver.nodes = [("MEMSET", fill), ("MEMCPY", copy_params())]
    assert [node for _, node in read_nodes(1, {77})] == [
        RawMemset(address=100, bytes=16, value=0x2345, element_bytes=2),
        RawMemcpy(target=120, source=200, bytes=8, rows=2, target_pitch=16, source_pitch=32),
    ]


@pytest.mark.parametrize(
    "node",
    [
        ("HOST", None),
        ("CONDITIONAL", None),
        ("GRAPH", None),
        ("SOMETHING_NEW", None),
        ("MEMCPY", copy_params(source="HOST")),
        ("MEMCPY", copy_params(depth=2)),
    ],
    ids=["host", "conditional", "graph", "unknown", "from host", "3D"],
)
def test_what_a_trace_cannot_hold_is_refused(driver: Driver, node: tuple[str, Any]) -> None:
    driver.nodes = [node]
    with pytest.raises(TesseraError) as caught:
        read_nodes(1, {77})
    assert caught.value.diagnostics[0].code == "TSR6002"


def test_a_driver_that_fails_is_named(driver: Driver) -> None:
    driver.status = 999
    with pytest.raises(TesseraError) as caught:
        read_nodes(1, {77})
    assert caught.value.diagnostics[0].code == "TSR6001"
    assert "cuGraphGetNodes" in caught.value.diagnostics[0].headline


MODEL = """
def pair(size=3):
    return (lambda x: x), [size]

def alone():
    return 7

def broken():
    raise ValueError("hidden must be a multiple of heads")
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    place = tmp_path / "model.py"
    place.write_text(MODEL)
    return place


def test_a_function_makes_the_model_or_is_it(model: Path) -> None:
    _, inputs = load_model(find_model(f"{model}:pair"), {"size": 4})
    assert inputs == (4,)
    function, inputs = load_model(find_model(f"{model}:alone"), {})
    assert (function(), inputs) == (7, ())


@pytest.mark.parametrize("text", ["model.py", "nowhere.py:step", ":step", "model.py:"])
def test_a_model_that_is_not_there(text: str) -> None:
    with pytest.raises(TesseraError) as caught:
        find_model(text)
    assert caught.value.diagnostics[0].code == "TSR6007"


def test_a_function_that_is_not_there(model: Path) -> None:
    with pytest.raises(TesseraError) as caught:
        load_model((model, "nothing"), {})
    assert caught.value.diagnostics[0].code == "TSR6007"


def test_what_the_model_raises_is_told_with_its_line(model: Path) -> None:
    with pytest.raises(TesseraError) as caught:
        load_model((model, "broken"), {})
    (found,) = caught.value.diagnostics
    assert found.code == "TSR6008"
    assert "hidden must be a multiple" in found.headline
    assert "model.py:9" in found.notes[0]


def test_a_kernel_that_does_not_compile_for_another_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What TSR6006 reports: the code there is stays, the rest is said."""
    package = types.ModuleType("triton")
    inner, outer = types.ModuleType("triton.compiler.compiler"), types.ModuleType("backends")

    class CompiledKernel:
        function = 7
        src = "source"
        asm = {"ptx": ".version 8.0\n.target sm_90a\n"}  # noqa: RUF012
        metadata = Value("matmul", shared=64, num_warps=4)

    def compile_for(source: str, target: Any, options: dict[str, int]) -> None:
        assert (source, target, options) == ("source", ("cuda", 80, 32), {"num_warps": 4})
        raise RuntimeError("first line\nout of shared memory")

    inner.CompiledKernel = CompiledKernel  # type: ignore[attr-defined]
    outer.GPUTarget = lambda *parts: parts  # type: ignore[attr-defined]
    package.compile = compile_for  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton", package)
    monkeypatch.setitem(sys.modules, "triton.compiler.compiler", inner)
    monkeypatch.setitem(sys.modules, "triton.backends.compiler", outer)
    kernel = CompiledKernel()
    kernels, problems = find_codes([7, 8], ["sm_80", "sm_90a"], {8: ".target sm_75\n"})
    assert kernel is not None
    assert [(k.function, [v.arch for v in k.variants]) for k in kernels] == [
        (7, ["sm_90a"]),
        (8, ["sm_75"]),
    ]
    assert kernels[0].variants[0].threads == 128
    assert problems == ["`matmul` does not compile for sm_80: out of shared memory"]
