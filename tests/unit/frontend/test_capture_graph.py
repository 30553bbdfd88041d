"""Reading a CUDA graph, against a driver that is not there."""

from __future__ import annotations

import ctypes
import sys
import types
from typing import Any

import pytest

from tessera.diagnostics import TesseraError
from tessera.frontend.capture.cuda_graph import order_of, read_graph
from tessera.frontend.capture.raw import RawLaunch, RawMemcpy, RawMemset, RawOther


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
        self.edges: list[tuple[int, int]] = []
        self.name = b"kernel"
        self.status = 0
        self.CUkernelNodeAttrID = Value(
            CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION="cluster", CU_LAUNCH_ATTRIBUTE_COOPERATIVE="coop"
        )

    def CUgraph(self, handle: int) -> int:
        return handle

    def cuGraphGetNodes(self, graph: int, count: int) -> tuple[Any, ...]:
        return self.status, list(range(count)), len(self.nodes)

    def cuGraphGetEdges(self, graph: int, count: int) -> tuple[Any, ...]:
        starts, ends = ([edge[end] for edge in self.edges[:count]] for end in (0, 1))
        return 0, starts, ends, [None] * count, len(self.edges)

    def cuGraphNodeGetType(self, node: int) -> tuple[Any, ...]:
        return 0, Value(f"CU_GRAPH_NODE_TYPE_{self.nodes[node][0]}")

    def _params(self, node: int) -> tuple[Any, ...]:
        return 0, self.nodes[node][1]

    cuGraphKernelNodeGetParams = cuGraphMemsetNodeGetParams = _params
    cuGraphMemcpyNodeGetParams = _params

    def cuFuncGetName(self, function: int) -> tuple[Any, ...]:
        return 0, self.name

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
        func=77,
        gridDimX=2,
        gridDimY=3,
        gridDimZ=1,
        blockDimX=32,
        blockDimY=1,
        blockDimZ=1,
        sharedMemBytes=64,
        kernelParams=ctypes.addressof(pointers),
    )
    driver.nodes = [("EMPTY", None), ("KERNEL", params)]
    found = read_graph(1, lambda function, name: (function, name) == (77, "kernel"))
    assert (found.places, found.skipped, found.after) == ((1,), 1, ((),))
    (node,) = found.nodes
    assert node == RawLaunch(
        name="kernel",
        function=77,
        grid=(2, 3, 1),
        block=(32, 1, 1),
        shared_bytes=64,
        arguments=((0x1122334455667788).to_bytes(8, "little"), (5).to_bytes(8, "little")),
        cluster=(2, 1, 1),
        cooperative=True,
    )


def nothing(function: int, name: str) -> bool:
    return False


def copy_params(source: str = "DEVICE", depth: int = 1) -> Value:
    return Value(
        srcMemoryType=Value(f"CU_MEMORYTYPE_{source}"),
        dstMemoryType=Value("CU_MEMORYTYPE_DEVICE"),
        dstDevice=100,
        dstXInBytes=4,
        dstY=1,
        dstPitch=16,
        srcDevice=200,
        srcXInBytes=0,
        srcY=0,
        srcPitch=32,
        WidthInBytes=8,
        Height=2,
        Depth=depth,
    )


def test_memset_and_memcpy_nodes(driver: Driver) -> None:
    fill = Value(dst=100, elementSize=2, width=8, height=1, pitch=0, value=0x12345)
    driver.nodes = [("MEMSET", fill), ("MEMCPY", copy_params())]
    assert read_graph(1, nothing).nodes == (
        RawMemset(address=100, bytes=16, value=0x2345, element_bytes=2),
        RawMemcpy(target=120, source=200, bytes=8, rows=2, target_pitch=16, source_pitch=32),
    )


@pytest.mark.parametrize(
    "node",
    [
        ("HOST", None),
        ("CONDITIONAL", None),
        ("GRAPH", None),
        ("SOMETHING_NEW", None),
        ("MEMCPY", copy_params(source="HOST")),
        ("MEMCPY", copy_params(source="ARRAY")),
        ("MEMCPY", copy_params(depth=2)),
    ],
    ids=["host", "conditional", "graph", "unknown", "from host", "from array", "3D"],
)
def test_what_a_trace_cannot_hold_is_noted(driver: Driver, node: tuple[str, Any]) -> None:
    driver.nodes = [node]
    (found,) = read_graph(1, nothing).nodes
    assert isinstance(found, RawOther)


def test_a_driver_that_fails_is_named(driver: Driver) -> None:
    driver.status = 999
    with pytest.raises(TesseraError) as caught:
        read_graph(1, nothing)
    assert caught.value.diagnostics[0].code == "TSR6003"
    assert "cuGraphGetNodes" in str(caught.value.diagnostics[0].headline)


def kernel_params() -> Value:
    sizes = dict.fromkeys(
        ("gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ"), 1
    )
    return Value(func=77, sharedMemBytes=0, kernelParams=0, **sizes)


@pytest.mark.parametrize("mangled", ["%s", "_Z39%s24ncclDevKernelArgsStorageILm4096EE"])
def test_a_kernel_that_talks_to_other_gpus_is_refused(driver: Driver, mangled: str) -> None:
    driver.nodes = [("KERNEL", kernel_params())]
    driver.name = (mangled % "ncclDevKernel_AllReduce_Sum_f32_RING_LL").encode()
    with pytest.raises(TesseraError) as caught:
        read_graph(1, nothing)
    assert caught.value.diagnostics[0].code == "TSR6002"
    assert "ncclDevKernel_AllReduce" in str(caught.value.diagnostics[0].headline)


def test_the_order_of_a_graph_goes_through_nodes_that_do_nothing(driver: Driver) -> None:
    """A fork and a join; an empty node stands in one of its arms."""
    fill = Value(dst=100, elementSize=1, width=8, height=1, pitch=0, value=0)
    kinds = ("MEMSET", "EVENT_RECORD", "MEMSET", "MEMSET", "MEMSET")
    driver.nodes = [(kind, fill) for kind in kinds]
    driver.edges = [(3, 4), (0, 1), (1, 2), (2, 4), (0, 3)]
    found = read_graph(1, nothing)
    assert found.places == (0, 2, 3, 4)
    assert found.after == ((), (0,), (0,), (1, 2))
    assert found.skipped == 1


def test_an_order_that_the_edges_forbid_is_an_error() -> None:
    with pytest.raises(TesseraError) as caught:
        order_of((0, 1), 2, [(1, 0)])
    assert caught.value.diagnostics[0].code == "TSR6003"
