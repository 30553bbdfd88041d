"""The kernel graph: the steps of a program, their accesses, and their dependences.

In: nothing. Out: frozen records that `passes.dependences` makes, `ir.graph.print_graph` prints and
`frontend.graph.tsg` reads.

An edge goes from an earlier step to a later one, or, if `carried`, from a step to one of the next
request of the same sequence (through a buffer that persists). RAW carries bytes; WAR orders only.
WAW orders only if the later write must cover the bytes (`moves_bytes` is false). If the later write
may leave some bytes unchanged, the later step also needs the earlier step's bytes.

Twins have no edges among each other. A step that needs their bytes has an edge from each of them
and needs the bytes of one, whichever is nearest.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tessera.diagnostics import Span
from tessera.ir.graph.access import Access, AddressClass, Need, Pin
from tessera.ir.graph.region import Region
from tessera.ir.notebook import frame_of
from tessera.ir.notebook_pages import html_of
from tessera.ir.program.program import BufferId, LaunchId, Role

if TYPE_CHECKING:
    import networkx
    import pandas

_COLUMNS = ("step", "name", "accesses", "pinned", "indirect", "bytes_in", "bytes_out")


class EdgeKind(enum.Enum):
    """Read after write, write after read, write after write."""

    RAW = "raw"
    WAR = "war"
    WAW = "waw"


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphBuffer:
    """A buffer as the graph knows it."""

    id: BufferId
    name: str
    bytes: int
    role: Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A step. Accesses are in the order of its instructions.

    `needs` are its requirements on the machine, such as CTAs that run together.
    """

    id: LaunchId
    name: str
    accesses: tuple[Access, ...]
    pins: tuple[Pin, ...] = ()
    needs: tuple[Need, ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A dependence through bytes of one buffer, and the accesses behind it.

    `source_access` and `target_access` index the accesses of the two nodes.
    """

    kind: EdgeKind
    source: LaunchId
    target: LaunchId
    buffer: BufferId
    region: Region
    bytes: int
    source_access: int
    target_access: int
    moves_bytes: bool
    carried: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReference:
    """The trace of a graph: its path relative to the graph's file, and its digest."""

    path: str
    digest: str


@dataclass(frozen=True, slots=True)
class ContentsDigest:
    """The contents of a weight that the graph is valid for: they decide what a step touches."""

    buffer: BufferId
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelGraph:
    """All of a program's dependences. Edges are sorted by target, source, kind and buffer.

    `contents` are the weights whose contents it depends on, in the order of the buffers. `twins`
    are those of the program; traces have none, so neither has the text of a graph.
    """

    buffers: tuple[GraphBuffer, ...]
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    contents: tuple[ContentsDigest, ...] = ()
    twins: tuple[tuple[LaunchId, ...], ...] = ()
    trace: TraceReference | None = field(default=None, compare=False)

    def edges_between(self, source: int, target: int) -> Iterator[Edge]:
        """The edges from one step to another."""
        return (e for e in self.edges if e.source == source and e.target == target)

    def _repr_html_(self) -> str:
        return html_of(self)

    def to_frame(self) -> pandas.DataFrame:
        """Steps as a pandas frame, with the bytes received from and sent to other steps."""
        into: dict[int, int] = {}
        out: dict[int, int] = {}
        for edge in self.edges:
            if edge.moves_bytes:
                into[edge.target] = into.get(edge.target, 0) + edge.bytes
                out[edge.source] = out.get(edge.source, 0) + edge.bytes
        rows = (
            {
                "step": int(node.id),
                "name": node.name,
                "accesses": len(node.accesses),
                "pinned": bool(node.pins),
                "indirect": any(a.address is not AddressClass.DIRECT for a in node.accesses),
                "bytes_in": into.get(node.id, 0),
                "bytes_out": out.get(node.id, 0),
            }
            for node in self.nodes
        )
        return frame_of(rows, _COLUMNS)

    def to_networkx(self) -> networkx.MultiDiGraph:
        """A copy for graph algorithms: a node for each step, by its id, an edge per dependence.

        Nodes have `name` and `record`; edges have `kind` ("raw", "war", "waw"), `buffer` (a name),
        `bytes`, `carried` and `record`. Without the carried edges it has no cycle.
        """
        import networkx

        graph = networkx.MultiDiGraph()
        for node in self.nodes:
            graph.add_node(int(node.id), name=node.name, record=node)
        for edge in self.edges:
            graph.add_edge(
                int(edge.source),
                int(edge.target),
                kind=edge.kind.value,
                buffer=self.buffers[edge.buffer].name,
                bytes=edge.bytes,
                carried=edge.carried,
                record=edge,
            )
        return graph
