"""Read the nodes of a captured CUDA graph.

In: the handle of a `CUgraph`. Out: raw nodes in an order that its edges allow (the order of
capture). Nodes that mean no device work (empty ones, events) drop out; host callbacks, child
graphs, conditionals and copies from or to the host are errors that say what to do.

Source: CUDA driver API 13.0, graph management.
"""

# cuda.bindings has no types.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import ctypes
from collections.abc import Container, Iterator
from typing import Any

from tessera.diagnostics import TesseraError, error
from tessera.frontend.capture.raw import RawLaunch, RawMemcpy, RawMemset, RawNode

_WHAT = {
    "CU_GRAPH_NODE_TYPE_HOST": "a host callback",
    "CU_GRAPH_NODE_TYPE_GRAPH": "a child graph",
    "CU_GRAPH_NODE_TYPE_CONDITIONAL": "a conditional node",
    "CU_GRAPH_NODE_TYPE_MEM_ALLOC": "an allocation inside the graph",
    "CU_GRAPH_NODE_TYPE_MEM_FREE": "a free inside the graph",
    "CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL": "a semaphore",
    "CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT": "a semaphore",
    "CU_GRAPH_NODE_TYPE_BATCH_MEM_OP": "a stream memory operation",
}
_SKIPPED = frozenset({
    "CU_GRAPH_NODE_TYPE_EMPTY", "CU_GRAPH_NODE_TYPE_WAIT_EVENT", "CU_GRAPH_NODE_TYPE_EVENT_RECORD",
})  # fmt: skip


def call(function: Any, *arguments: Any) -> Any:
    """A driver call; its result without the status, or an error that names the call."""
    status, *found = function(*arguments)
    if int(status) != 0:
        name = getattr(function, "__name__", "a driver call")
        raise TesseraError(
            error("TSR6001", f"`{name}` failed while the graph was read",
                  notes=(f"the driver says {status}",))
        )  # fmt: skip
    return found[0] if len(found) == 1 else tuple(found)


def count_nodes(graph: Any) -> int:
    """How many nodes a graph has so far."""
    from cuda.bindings import driver

    _, count = call(driver.cuGraphGetNodes, graph, 0)
    return int(count)


def read_nodes(graph: int, known: Container[int]) -> list[tuple[int, RawNode]]:
    """The work of a graph: each node with its place among all nodes in order of capture.

    Arguments are read for the functions in `known` only: how libraries pass theirs is their own
    affair.
    """
    from cuda.bindings import driver

    handle = driver.CUgraph(graph)
    count = count_nodes(handle)
    nodes = call(driver.cuGraphGetNodes, handle, count)[0] if count else []
    return [(place, raw) for place, node in enumerate(nodes) for raw in _read(driver, node, known)]


def _read(driver: Any, node: Any, known: Container[int]) -> Iterator[RawNode]:
    kind = call(driver.cuGraphNodeGetType, node).name
    if kind == "CU_GRAPH_NODE_TYPE_KERNEL":
        yield _kernel(driver, node, known)
    elif kind == "CU_GRAPH_NODE_TYPE_MEMSET":
        yield _memset(call(driver.cuGraphMemsetNodeGetParams, node))
    elif kind == "CU_GRAPH_NODE_TYPE_MEMCPY":
        yield _memcpy(driver, call(driver.cuGraphMemcpyNodeGetParams, node))
    elif kind not in _SKIPPED:
        what = _WHAT.get(kind, kind)
        raise TesseraError(
            error("TSR6002", f"the model launches {what}, which a trace cannot hold",
                  hint="take it out of the traced function, or trace the parts around it")
        )  # fmt: skip


def _kernel(driver: Any, node: Any, known: Container[int]) -> RawLaunch:
    params = call(driver.cuGraphKernelNodeGetParams, node)
    function = params.func
    if not int(function):
        function = call(driver.cuKernelGetFunction, params.kern)
    name = call(driver.cuFuncGetName, function)
    pointers = int(params.kernelParams) if int(function) in known else 0
    return RawLaunch(
        name=name.decode() if isinstance(name, bytes) else str(name),
        function=int(function),
        grid=(int(params.gridDimX), int(params.gridDimY), int(params.gridDimZ)),
        block=(int(params.blockDimX), int(params.blockDimY), int(params.blockDimZ)),
        shared_bytes=int(params.sharedMemBytes),
        arguments=tuple(_arguments(driver, function, pointers)) if pointers else (),
        cluster=_cluster(driver, node),
        cooperative=_cooperative(driver, node),
    )


def _arguments(driver: Any, function: Any, pointers: int) -> Iterator[bytes]:
    """The bytes behind each parameter, read through the array of pointers that the node keeps."""
    index = 0
    while True:
        status, _, size = driver.cuFuncGetParamInfo(function, index)
        if int(status) != 0:
            return
        address = ctypes.c_void_p.from_address(pointers + 8 * index).value
        yield ctypes.string_at(address or 0, int(size))
        index += 1


def _cluster(driver: Any, node: Any) -> tuple[int, int, int] | None:
    kind = driver.CUkernelNodeAttrID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    status, value = driver.cuGraphKernelNodeGetAttribute(node, kind)
    if int(status) != 0:
        return None
    size = (int(value.clusterDim.x), int(value.clusterDim.y), int(value.clusterDim.z))
    return size if all(size) and size != (1, 1, 1) else None


def _cooperative(driver: Any, node: Any) -> bool:
    kind = driver.CUkernelNodeAttrID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
    status, value = driver.cuGraphKernelNodeGetAttribute(node, kind)
    return int(status) == 0 and bool(value.cooperative)


def _memset(params: Any) -> RawMemset:
    size = int(params.elementSize)
    return RawMemset(
        address=int(params.dst),
        bytes=int(params.width) * size,
        value=int(params.value) & ((1 << (8 * size)) - 1),
        element_bytes=size,
        rows=max(int(params.height), 1),
        pitch=int(params.pitch),
    )


def _memcpy(driver: Any, params: Any) -> RawMemcpy:
    device = {"CU_MEMORYTYPE_DEVICE", "CU_MEMORYTYPE_UNIFIED"}
    for kind, side in ((params.srcMemoryType, "from"), (params.dstMemoryType, "to")):
        if kind.name not in device:
            raise TesseraError(
                error("TSR6002", f"the model copies {side} the host, which a trace cannot hold",
                      hint="move the data to the GPU before the traced call")
            )  # fmt: skip
    if int(params.Depth) > 1:
        raise TesseraError(error("TSR6002", "the model makes a 3D copy, which a trace cannot hold"))
    return RawMemcpy(
        target=int(params.dstDevice) + int(params.dstXInBytes)
        + int(params.dstY) * int(params.dstPitch),
        source=int(params.srcDevice) + int(params.srcXInBytes)
        + int(params.srcY) * int(params.srcPitch),
        bytes=int(params.WidthInBytes),
        rows=max(int(params.Height), 1),
        target_pitch=int(params.dstPitch),
        source_pitch=int(params.srcPitch),
    )  # fmt: skip
