"""A kernel graph as text (`.tsg`).

In: a `KernelGraph`. Out: text whose first line names format and version; one record per line,
nodes followed by their pins, needs and accesses. `frontend.graph.tsg` reads it back. Positions in
the PTX are omitted: they are not part of the graph. Version 2 adds `contents` and `need`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator

from tessera.ir.graph.access import Access
from tessera.ir.graph.graph import Edge, KernelGraph
from tessera.ir.graph.region import Region, Unknown, WholeBuffer, region_text

FORMAT = "tessera-graph"
VERSION = 2
READABLE = (1, 2)


def print_graph(graph: KernelGraph) -> str:
    """The graph in the `.tsg` format."""
    return "\n".join(_lines(graph)) + "\n"


def _lines(graph: KernelGraph) -> Iterator[str]:
    yield f"{FORMAT} {VERSION}"
    if graph.trace is not None:
        yield f"trace {_quoted(graph.trace.path)} digest={_quoted(graph.trace.digest)}"
    for buffer in graph.buffers:
        name = _quoted(buffer.name)
        yield f"buffer {buffer.id} {name} bytes={buffer.bytes} role={buffer.role.value}"
    for known in graph.contents:
        yield f"contents {known.buffer} sha256={_quoted(known.sha256)}"
    # Launches of one kernel share their regions, and the graph keeps them while it is printed.
    regions: dict[int, str] = {}
    for node in graph.nodes:
        yield f"node {node.id} {_quoted(node.name)}"
        for pin in node.pins:
            yield f"  pin {_quoted(str(pin.reason))}"
        for need in node.needs:
            yield f"  need {need.kind.value} {_quoted(str(need.reason))}"
        for access in node.accesses:
            region = regions.get(id(access.region))
            if region is None:
                region = regions[id(access.region)] = _region(access.region)
            yield f"  {_access(access, region)}"
    for edge in graph.edges:
        yield _edge(edge)


def _access(access: Access, region: str) -> str:
    return (
        f"access {access.kind.value} certainty={access.certainty.value}"
        f" address={access.address.value} buffer={access.buffer}"
        f" region={region} text={_quoted(access.text)}"
    )


def _edge(edge: Edge) -> str:
    return (
        f"edge {edge.kind.value} source={edge.source} target={edge.target} buffer={edge.buffer}"
        f" bytes={edge.bytes} moves={int(edge.moves_bytes)} carried={int(edge.carried)}"
        f" accesses={edge.source_access},{edge.target_access} region={_region(edge.region)}"
    )


def _region(region: Region) -> str:
    if isinstance(region, WholeBuffer | Unknown):
        return f"{region_text(region)}({_quoted(str(region.reason))})"
    return region_text(region)


@functools.lru_cache(maxsize=4096)
def _quoted(text: str) -> str:
    return json.dumps(text)
