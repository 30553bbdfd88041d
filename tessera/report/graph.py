"""What `tessc analyze` shows of a kernel graph: a table of steps, edges, pins, cuts.

In: a `KernelGraph`. Out: text and JSON values; nothing is printed here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tessera.ir.graph.access import Access, AccessKind, AddressClass, Certainty
from tessera.ir.graph.graph import Edge, GraphBuffer, KernelGraph, Node
from tessera.ir.graph.region import region_text
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import regions_bytes
from tessera.passes.dependences.prefix_cuts import prefix_cuts
from tessera.wording import Wording

_MOST_EDGES = 400
_LONGEST_REGION = 60


@dataclass(frozen=True, slots=True)
class Total:
    """The bytes of one buffer that a step accesses, and how many of them for certain."""

    buffer: GraphBuffer
    reads: int
    writes: int
    certain: int


class Totals:
    """The totals of the nodes of a graph; launches of one pattern share regions and sizes."""

    def __init__(self, graph: KernelGraph) -> None:
        self.graph = graph
        self._sizes: dict[tuple[object, ...], int] = {}

    def of(self, node: Node) -> tuple[Total, ...]:
        """The totals of a node by buffer, in the order of first access."""
        by_buffer: dict[int, list[Access]] = {}
        for access in node.accesses:
            by_buffer.setdefault(access.buffer, []).append(access)
        return tuple(self._total(self.graph.buffers[b], a) for b, a in by_buffer.items())

    def _total(self, buffer: GraphBuffer, accesses: list[Access]) -> Total:
        written = [a for a in accesses if a.kind is AccessKind.WRITE]
        return Total(
            buffer,
            self._size(buffer, [a for a in accesses if a.kind.reads]),
            self._size(buffer, [a for a in accesses if a.kind.writes]),
            self._size(buffer, [a for a in written if a.certainty is Certainty.MUST]),
        )

    def _size(self, buffer: GraphBuffer, chosen: list[Access]) -> int:
        # The graph keeps its regions, so that an id stands for one of them.
        key = (buffer.bytes, *(id(access.region) for access in chosen))
        size = self._sizes.get(key)
        if size is None:
            ranges = regions_bytes((access.region for access in chosen), buffer.bytes)
            size = self._sizes[key] = intervals.size(intervals.clip(ranges, 0, buffer.bytes))
        return size


def address_class(node: Node) -> str:
    """The class of a step: the least predictable of its accesses."""
    classes = {access.address for access in node.accesses}
    if node.pins:
        return "pinned"
    for kind in (AddressClass.POINTER, AddressClass.INDEXED):
        if kind in classes:
            return str(kind.value)
    return str(AddressClass.DIRECT.value)


# --- text --------------------------------------------------------------------------------------


def graph_blocks(graph: KernelGraph) -> Iterator[str]:
    """Steps, edges, pins and cuts, one block each."""
    yield "\n".join(["steps", *_step_rows(graph)])
    yield "\n".join(_edge_rows(graph))
    pins = [
        f"  #{n.id} {n.name}: {pin.reason}{_at(pin.span)}" for n in graph.nodes for pin in n.pins
    ]
    if pins:
        yield "\n".join(["pinned", *pins])
    needs = list(_need_rows(graph))
    if needs:
        yield "\n".join(["asked of the machine", *needs])
    weights = [f"  {graph.buffers[c.buffer].name} sha256 {c.sha256}" for c in graph.contents]
    if weights:
        yield "\n".join(["holds for these contents only", *weights])
    cuts = prefix_cuts(graph)
    if cuts:
        yield "\n".join(["bytes that cross a cut after a step", *_cut_rows(cuts)])


def _need_rows(graph: KernelGraph) -> Iterator[str]:
    """Requirements of kernels on the machine, each once, at the first step that has it."""
    seen: set[tuple[str, Wording]] = set()
    for node in graph.nodes:
        for need in node.needs:
            if (node.name, need.reason) not in seen:
                seen.add((node.name, need.reason))
                yield f"  #{node.id} {node.name}: {need.kind.value}: {need.reason}{_at(need.span)}"


def _step_rows(graph: KernelGraph) -> Iterator[str]:
    totals = Totals(graph)
    for node in graph.nodes:
        yield f"  #{node.id} {node.name} ({address_class(node)})"
        if node.pins:
            yield f"       may touch {_reach(graph, node)}"
            continue
        touched = totals.of(node)
        reads = [_amount(t.buffer, t.reads) for t in touched if t.reads]
        writes = [_amount(t.buffer, t.writes) + _certainty(t) for t in touched if t.writes]
        if reads:
            yield f"       reads  {', '.join(reads)}"
        if writes:
            yield f"       writes {', '.join(writes)}"


def _reach(graph: KernelGraph, node: Node) -> str:
    touched = {access.buffer for access in node.accesses}
    sized = {buffer.id for buffer in graph.buffers if buffer.bytes}
    if sized <= touched:
        return "every buffer"
    return "all of " + ", ".join(graph.buffers[number].name for number in sorted(touched))


def _amount(buffer: GraphBuffer, count: int) -> str:
    return f"{buffer.name} {'all ' if count == buffer.bytes else ''}{count}"


def _certainty(total: Total) -> str:
    if total.certain == total.writes:
        return " must"
    return f" may ({total.certain} must)" if total.certain else " may"


def _edge_rows(graph: KernelGraph) -> Iterator[str]:
    kinds = Counter(edge.kind.value for edge in graph.edges)
    counts = ", ".join(f"{kinds[kind]} {kind}" for kind in ("raw", "war", "waw") if kinds[kind])
    yield f"edges ({counts})" if counts else "edges (none)"
    pairs: dict[tuple[int, int, bool], list[Edge]] = {}
    for edge in graph.edges:
        pairs.setdefault((edge.source, edge.target, edge.carried), []).append(edge)
    for number, ((source, target, carried), edges) in enumerate(pairs.items()):
        if number == _MOST_EDGES:
            yield f"  and {len(pairs) - number} more; `--emit graph` shows all"
            return
        what = ", ".join(
            f"{edge.kind.value} {graph.buffers[edge.buffer].name} {edge.bytes}" for edge in edges
        )
        later = " of the next request" if carried else ""
        yield f"  #{source} -> #{target}{later}: {what}"


def _cut_rows(cuts: tuple[int, ...]) -> Iterator[str]:
    for first in range(0, len(cuts), 8):
        row = [f"#{i} {cuts[i]}" for i in range(first, min(first + 8, len(cuts)))]
        yield "  " + ", ".join(row)


def _at(span: object) -> str:
    return "" if span is None else f" ({span})"


def why_text(graph: KernelGraph, source: int, target: int) -> str:
    """Every edge between two steps, with the accesses that cause it."""
    edges = list(graph.edges_between(source, target))
    head = f"#{source} {graph.nodes[source].name} -> #{target} {graph.nodes[target].name}"
    if not edges:
        return f"{head}\n  no dependence\n"
    return "\n".join([head, *(row for edge in edges for row in _why_rows(graph, edge))]) + "\n"


def _why_rows(graph: KernelGraph, edge: Edge) -> Iterator[str]:
    buffer = graph.buffers[edge.buffer]
    later = ", in the next request" if edge.carried else ""
    order = "" if edge.moves_bytes else ", order only"
    region = region_text(edge.region)
    shown = region if len(region) <= _LONGEST_REGION else region[:_LONGEST_REGION] + "..."
    what = f"{edge.kind.value} through {edge.bytes} bytes of `{buffer.name}`"
    yield f"  {what}{order}{later}: {shown}"
    ends = ((edge.source, edge.source_access), (edge.target, edge.target_access))
    for step, index in ends:
        access = graph.nodes[step].accesses[index]
        text = f"`{access.text}`" if access.text else "an unknown access"
        yield (
            f"    #{step} {access.kind.value} ({access.certainty.value}, "
            f"{access.address.value}) by {text}{_at(access.span)}"
        )


# --- JSON --------------------------------------------------------------------------------------


def graph_value(graph: KernelGraph) -> dict[str, object]:
    """The graph as JSON values; regions are spelled as in `.tsg`."""
    return {
        "steps": [_node_value(graph, node) for node in graph.nodes],
        "edges": [
            {
                "kind": edge.kind.value,
                "source": edge.source,
                "target": edge.target,
                "buffer": graph.buffers[edge.buffer].name,
                "bytes": edge.bytes,
                "region": region_text(edge.region),
                "moves_bytes": edge.moves_bytes,
                "carried": edge.carried,
            }
            for edge in graph.edges
        ],
        "contents": [
            {"buffer": graph.buffers[known.buffer].name, "sha256": known.sha256}
            for known in graph.contents
        ],
        "prefix_cut_bytes": list(prefix_cuts(graph)),
    }


def _node_value(graph: KernelGraph, node: Node) -> dict[str, object]:
    return {
        "id": node.id,
        "name": node.name,
        "class": address_class(node),
        "pins": [str(pin.reason) for pin in node.pins],
        "needs": [{"kind": need.kind.value, "reason": str(need.reason)} for need in node.needs],
        "accesses": [
            {
                "buffer": graph.buffers[access.buffer].name,
                "kind": access.kind.value,
                "certainty": access.certainty.value,
                "address": access.address.value,
                "region": region_text(access.region),
                "instruction": access.text,
                "line": _line(access),
            }
            for access in node.accesses
        ],
    }


def _line(access: Access) -> int | None:
    span = access.span
    return None if span is None else span.source.position(span.start)[0]
