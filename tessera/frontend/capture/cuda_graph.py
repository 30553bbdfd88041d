"""Reads the nodes of a captured CUDA graph.

In: the handle of a `CUgraph`. Out: raw nodes in the order of capture, which its edges allow, and
the predecessors of each node. Nodes without device work (empty nodes, events) are left out, and
their successors get their predecessors. Host callbacks, child graphs, conditionals and copies from
or to the host are `RawOther`: inside library calls they are allowed.

Source: CUDA driver API 13.0, graph management.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tessera.diagnostics import TesseraError
from tessera.frontend.capture.raw import RawLaunch, RawMemcpy, RawMemset, RawNode, RawOther

if TYPE_CHECKING:
    from cuda.bindings import driver

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
# Kernels of NCCL and NVSHMEM, whose names may be mangled (C++).
_COMMUNICATES = re.compile(r"(_Z\d+)?(nccl|nvshmem)")
_SKIPPED = frozenset(
    {
        "CU_GRAPH_NODE_TYPE_EMPTY",
        "CU_GRAPH_NODE_TYPE_WAIT_EVENT",
        "CU_GRAPH_NODE_TYPE_EVENT_RECORD",
    }
)


def call(function: Callable[..., tuple[Any, ...]], *arguments: object) -> Any:
    """Make a driver call; its result without the status, or an error that names the call."""
    status, *results = function(*arguments)
    if int(status) != 0:
        name = getattr(function, "__name__", "a driver call")
        raise TesseraError.of(
            "TSR6003",
            f"`{name}` failed while the graph was read",
            notes=(f"the driver says {status}",),
        )
    return results[0] if len(results) == 1 else tuple(results)


def count_nodes(graph: driver.CUgraph) -> int:
    """The number of nodes that a graph has so far."""
    from cuda.bindings import driver

    _, count = call(driver.cuGraphGetNodes, graph, 0)
    return int(count)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedNodes:
    """The work of a graph, node by node.

    `places` are the nodes' numbers among all nodes in order of capture, and `after` says which
    nodes of `nodes` each one has an edge from. `skipped` counts nodes that do nothing.
    """

    nodes: tuple[RawNode, ...]
    places: tuple[int, ...]
    after: tuple[tuple[int, ...], ...]
    skipped: int


def read_graph(graph: int, is_known: Callable[[int, str], bool]) -> CapturedNodes:
    """The work of a graph and its order.

    Arguments are read only for known functions (by handle and name): libraries may pass theirs in
    any way.
    """
    from cuda.bindings import driver

    handle = driver.CUgraph(graph)
    count = count_nodes(handle)
    every = list(call(driver.cuGraphGetNodes, handle, count)[0]) if count else []
    numbered = [(n, raw) for n, node in enumerate(every) for raw in _read(node, is_known)]
    places = tuple(place for place, _ in numbered)
    return CapturedNodes(
        nodes=tuple(raw for _, raw in numbered),
        places=places,
        after=order_of(places, count, _edges(handle, every)),
        skipped=count - len(numbered),
    )


def _edges(handle: driver.CUgraph, nodes: Sequence[driver.CUgraphNode]) -> list[tuple[int, int]]:
    """Pairs of places, of which the second comes after the first."""
    from cuda.bindings import driver

    # The bindings return starts, ends, the kinds of the edges (from CUDA 13 on), and a count.
    count = int(call(driver.cuGraphGetEdges, handle, 0)[-1])
    if not count:
        return []
    starts, ends, *_ = call(driver.cuGraphGetEdges, handle, count)
    places = {int(node): place for place, node in enumerate(nodes)}
    return [(places[int(a)], places[int(b)]) for a, b in zip(starts, ends, strict=True)]


def order_of(
    places: Sequence[int], count: int, edges: Sequence[tuple[int, int]]
) -> tuple[tuple[int, ...], ...]:
    """The predecessors of each node at `places`, through nodes that are left out."""
    number = {place: n for n, place in enumerate(places)}
    sources: list[set[int]] = [set() for _ in range(count)]
    for first, second in sorted(edges, key=lambda edge: edge[1]):
        if first >= second:
            raise TesseraError.of(
                "TSR6003",
                "the driver lists the nodes of the graph in no order that its edges allow",
            )
        sources[second] |= {number[first]} if first in number else sources[first]
    return tuple(tuple(sorted(sources[place])) for place in places)


def _read(node: driver.CUgraphNode, is_known: Callable[[int, str], bool]) -> Iterator[RawNode]:
    from cuda.bindings import driver

    kind = call(driver.cuGraphNodeGetType, node).name
    if kind == "CU_GRAPH_NODE_TYPE_KERNEL":
        yield _kernel(node, is_known)
    elif kind == "CU_GRAPH_NODE_TYPE_MEMSET":
        yield _memset(call(driver.cuGraphMemsetNodeGetParams, node))
    elif kind == "CU_GRAPH_NODE_TYPE_MEMCPY":
        yield _memcpy(call(driver.cuGraphMemcpyNodeGetParams, node))
    elif kind not in _SKIPPED:
        yield RawOther(
            what=f"launches {_WHAT.get(kind, kind)}",
            hint="take it out of the traced function, or trace the parts around it",
        )


def _kernel(node: driver.CUgraphNode, is_known: Callable[[int, str], bool]) -> RawLaunch:
    from cuda.bindings import driver

    params = call(driver.cuGraphKernelNodeGetParams, node)
    function = params.func
    if not int(function):
        function = call(driver.cuKernelGetFunction, params.kern)
    name = call(driver.cuFuncGetName, function)
    name = name.decode() if isinstance(name, bytes) else str(name)
    if _COMMUNICATES.match(name):
        raise TesseraError.of(
            "TSR6002",
            f"the model talks to other GPUs (`{name}`), which a trace cannot hold",
            hint="trace the parts between the collective operations, on one GPU",
        )
    pointers = int(params.kernelParams) if is_known(int(function), name) else 0
    return RawLaunch(
        name=name,
        function=int(function),
        grid=(int(params.gridDimX), int(params.gridDimY), int(params.gridDimZ)),
        block=(int(params.blockDimX), int(params.blockDimY), int(params.blockDimZ)),
        shared_bytes=int(params.sharedMemBytes),
        arguments=tuple(_arguments(function, pointers)) if pointers else (),
        cluster=_cluster(node),
        cooperative=_cooperative(node),
    )


def _arguments(function: driver.CUfunction, pointers: int) -> Iterator[bytes]:
    """The bytes behind each parameter, read through the array of pointers that the node keeps."""
    from cuda.bindings import driver

    index = 0
    while True:
        status, _, size = driver.cuFuncGetParamInfo(function, index)
        if int(status) != 0:
            return
        address = ctypes.c_void_p.from_address(pointers + 8 * index).value
        yield ctypes.string_at(address or 0, int(size))
        index += 1


def _cluster(node: driver.CUgraphNode) -> tuple[int, int, int] | None:
    from cuda.bindings import driver

    kind = driver.CUkernelNodeAttrID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    status, value = driver.cuGraphKernelNodeGetAttribute(node, kind)
    if int(status) != 0:
        return None
    size = (int(value.clusterDim.x), int(value.clusterDim.y), int(value.clusterDim.z))
    return size if all(size) and size != (1, 1, 1) else None


def _cooperative(node: driver.CUgraphNode) -> bool:
    from cuda.bindings import driver

    kind = driver.CUkernelNodeAttrID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
    status, value = driver.cuGraphKernelNodeGetAttribute(node, kind)
    return int(status) == 0 and bool(value.cooperative)


def _memset(params: driver.CUDA_MEMSET_NODE_PARAMS) -> RawMemset:
    size = int(params.elementSize)
    return RawMemset(
        address=int(params.dst),
        bytes=int(params.width) * size,
        value=int(params.value) & ((1 << (8 * size)) - 1),
        element_bytes=size,
        rows=max(int(params.height), 1),
        pitch=int(params.pitch),
    )


def _memcpy(params: driver.CUDA_MEMCPY3D) -> RawMemcpy | RawOther:
    device = {"CU_MEMORYTYPE_DEVICE", "CU_MEMORYTYPE_UNIFIED"}
    for kind, side in ((params.srcMemoryType, "from"), (params.dstMemoryType, "to")):
        if kind.name not in device:
            other = "the host" if kind.name == "CU_MEMORYTYPE_HOST" else "a CUDA array"
            hint = "move the data to the GPU before the traced call"
            return RawOther(what=f"copies {side} {other}", hint=hint)
    if int(params.Depth) > 1:
        return RawOther(what="makes a 3D copy", hint="copy slice by slice, or with a kernel")
    return RawMemcpy(
        target=int(params.dstDevice)
        + int(params.dstXInBytes)
        + int(params.dstY) * int(params.dstPitch),
        source=int(params.srcDevice)
        + int(params.srcXInBytes)
        + int(params.srcY) * int(params.srcPitch),
        bytes=int(params.WidthInBytes),
        rows=max(int(params.Height), 1),
        target_pitch=int(params.dstPitch),
        source_pitch=int(params.srcPitch),
    )
