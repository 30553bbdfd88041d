"""A kernel graph as one HTML page: steps from top to bottom, dependences as arcs beside them.

Needs no other file and no network. A step's arcs light up under the pointer. The page grows with
the number of steps and never sideways, so 500 launches stay readable.
"""

from __future__ import annotations

from html import escape

from tessera.ir.graph.graph import Edge, EdgeKind, KernelGraph
from tessera.output import Kind, mark
from tessera.report.graph import address_class

_ROW = 18
_TEXT = 460
_REACH = 420
_STYLE = """
body { font: 12px sans-serif; margin: 16px; }
path { fill: none; stroke-opacity: 0.45; }
path.raw { stroke: #1f6fb2; } path.war { stroke: #aaaaaa; } path.waw { stroke: #777777; }
path.order { stroke-dasharray: 3 3; } path.carried { stroke: #b2541f; }
g.step:hover text { font-weight: bold; }
path:hover { stroke-opacity: 1; stroke-width: 3; }
text.pinned { fill: #b00020; } text.indexed, text.pointer { fill: #8a5a00; }
"""


def picture(graph: KernelGraph, title: str) -> str:
    """The page."""
    height = _ROW * (len(graph.nodes) + 1)
    parts = [_step(graph, i) for i in range(len(graph.nodes))]
    pairs: dict[tuple[int, int, bool], list[Edge]] = {}
    for edge in graph.edges:
        pairs.setdefault((edge.source, edge.target, edge.carried), []).append(edge)
    parts += [_arc(graph, key, edges) for key, edges in pairs.items()]
    drawing = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="generator" content="{mark(Kind.PAGE)}">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>\n"
        f"<h1>{escape(title)}</h1>\n<p>{len(graph.nodes)} steps, {len(graph.edges)} edges. "
        "Blue arcs carry data, dashed ones only order, orange ones lead to the next request."
        f'</p>\n<svg width="{_TEXT + _REACH + 20}" height="{height}">\n{drawing}\n</svg>\n'
        "</body></html>\n"
    )


def _step(graph: KernelGraph, index: int) -> str:
    node = graph.nodes[index]
    kind = address_class(node)
    name = node.name if len(node.name) <= 64 else node.name[:61] + "..."
    label = escape(f"#{node.id} {name}")
    return (
        f'<g class="step"><text class="{kind}" x="{_TEXT - 8}" y="{_y(index) + 4}" '
        f'text-anchor="end">{label}<title>{escape(node.name)} ({kind})</title></text>'
        f'<circle cx="{_TEXT}" cy="{_y(index)}" r="3"/></g>'
    )


def _y(index: int) -> int:
    return _ROW * index + _ROW // 2


def _arc(graph: KernelGraph, key: tuple[int, int, bool], edges: list[Edge]) -> str:
    source, target, carried = key
    data = any(edge.kind is EdgeKind.RAW for edge in edges)
    classes = ["raw" if data else edges[0].kind.value]
    classes += ["order"] if not data else []
    classes += ["carried"] if carried else []
    far = max(len(graph.nodes) - 1, 1)
    bulge = 20 + (_REACH - 20) * abs(target - source) / far
    lines = [
        f"{edge.kind.value} {graph.buffers[edge.buffer].name}: {edge.bytes} bytes" for edge in edges
    ]
    hint = escape("\n".join([f"#{source} to #{target}", *lines]))
    first, last = _y(source), _y(target)
    x = _TEXT + bulge * 4 / 3
    return (
        f'<path class="{" ".join(classes)}" d="M{_TEXT} {first} C{x:.0f} {first} {x:.0f} {last} '
        f'{_TEXT} {last}"><title>{hint}</title></path>'
    )
