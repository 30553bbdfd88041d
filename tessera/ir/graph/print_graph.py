"""A kernel graph as text (`.tsg`), and as a picture for Graphviz.

In: a `KernelGraph`. Out: text whose first line names format and version; one record per line,
nodes followed by their pins, needs and accesses. `frontend.graph.tsg` reads it back. Positions in
the PTX are left out: they are no part of the graph. Version 2 adds `contents` and `need`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator

from tessera.ir.graph.access import Access
from tessera.ir.graph.graph import Edge, EdgeKind, KernelGraph
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
            yield f"  pin {_quoted(pin.reason)}"
        for need in node.needs:
            yield f"  need {need.kind.value} {_quoted(need.reason)}"
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
        return f"{region_text(region)}({_quoted(region.reason)})"
    return region_text(region)


@functools.lru_cache(maxsize=4096)
def _quoted(text: str) -> str:
    return json.dumps(text)


_COLOURS = {EdgeKind.RAW: "black", EdgeKind.WAR: "gray60", EdgeKind.WAW: "gray40"}
_MOST_LABELLED = 200


def print_dot(graph: KernelGraph) -> str:
    """The graph for Graphviz: one arrow per pair of steps, data solid, order dashed.

    Large graphs get short labels, so that the picture stays readable.
    """
    brief = len(graph.nodes) > _MOST_LABELLED
    lines = ["digraph kernels {", "  rankdir=LR;", '  node [shape=box, fontname="sans-serif"];']
    for node in graph.nodes:
        label = f"#{node.id}" if brief else f"#{node.id} {node.name}"
        style = ', style=filled, fillcolor="mistyrose"' if node.pins else ""
        lines.append(f"  n{node.id} [label={_quoted(label)}, tooltip={_quoted(node.name)}{style}];")
    pairs: dict[tuple[int, int, bool], list[Edge]] = {}
    for edge in graph.edges:
        pairs.setdefault((edge.source, edge.target, edge.carried), []).append(edge)
    for (source, target, carried), edges in pairs.items():
        data = [e for e in edges if e.kind is EdgeKind.RAW]
        names = dict.fromkeys(graph.buffers[e.buffer].name for e in data or edges)
        label = "" if brief else ", ".join(names)
        style = "solid" if data else "dashed"
        colour = _COLOURS[EdgeKind.RAW if data else edges[0].kind]
        extra = ", constraint=false" if carried else ""
        text = f"label={_quoted(label)}, style={style}, color={colour}{extra}"
        lines.append(f"  n{source} -> n{target} [{text}];")
    return "\n".join([*lines, "}"]) + "\n"
