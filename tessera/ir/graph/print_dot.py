"""A kernel graph as a picture for Graphviz, from top to bottom.

In: a `KernelGraph`. Out: text in the language of `dot`. Layers that repeat are drawn once, in a box
with the count; blue arrows lead from one repetition to the next. Data is solid, order is dashed,
and order that data implies is omitted. `--emit graph` has every edge.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from tessera.ir.graph.graph import Edge, EdgeKind, KernelGraph
from tessera.ir.graph.layers import Layer, graph_layers

_LONGEST_NAME = 40
_MOST_NAMES = 3
_HEAD = (
    "digraph kernels {",
    "  rankdir=TB;",
    '  node [shape=box, fontname="sans-serif"];',
    '  edge [fontname="sans-serif", fontsize=10];',
)


class _Way(Enum):
    """The target of an arrow: a later step, the next layer of its box, or the next request."""

    ON = ""
    NEXT_LAYER = ", color=blue, constraint=false"
    NEXT_REQUEST = ", color=orangered, constraint=false"


@dataclass(slots=True)
class _Arrow:
    source: int
    target: int
    way: _Way
    is_data: bool = False
    buffers: dict[str, None] = field(default_factory=dict)


def print_dot(graph: KernelGraph) -> str:
    """The graph for Graphviz: one arrow per pair of steps."""
    layers = graph_layers(graph)
    shown = _shown(len(graph.nodes), layers)
    lines = list(_HEAD)
    for number, layer in enumerate(layers):
        last = layer.end - 1
        said = f"{layer.times} times; #{layer.first} to #{last} in all"
        lines.append(f"  subgraph cluster_{number} {{ label={_quoted(said)}; style=rounded;")
        lines += [f"  {_node(graph, layer.first + place)}" for place in range(layer.length)]
        lines.append("  }")
    boxed = {step for layer in layers for step in range(layer.first, layer.end)}
    lines += [_node(graph, step) for step in range(len(graph.nodes)) if step not in boxed]
    lines += _arrow_lines(_needed(_arrows(graph, layers, shown)))
    return "\n".join([*lines, "}"]) + "\n"


def _shown(count: int, layers: tuple[Layer, ...]) -> list[int]:
    """For each step, the step that is drawn for it."""
    shown = list(range(count))
    for layer in layers:
        for step in range(layer.first, layer.end):
            shown[step] = layer.shown(step)
    return shown


def _node(graph: KernelGraph, step: int) -> str:
    node = graph.nodes[step]
    name = node.name
    if len(name) > _LONGEST_NAME:
        half = _LONGEST_NAME // 2 - 1
        name = f"{name[:half]}...{name[-half:]}"
    style = ', style=filled, fillcolor="mistyrose"' if node.pins else ""
    label = f"#{node.id} {name}"
    return f"  n{node.id} [label={_quoted(label)}, tooltip={_quoted(node.name)}{style}];"


def _arrows(graph: KernelGraph, layers: tuple[Layer, ...], shown: list[int]) -> list[_Arrow]:
    turn = [0] * len(shown)  # the index of the layer of its box that a step is in
    box = [-1] * len(shown)
    for number, layer in enumerate(layers):
        for step in range(layer.first, layer.end):
            turn[step], box[step] = (step - layer.first) // layer.length, number
    arrows: dict[tuple[int, int, _Way], _Arrow] = {}
    for edge in graph.edges:
        source, target = edge.source, edge.target
        way = _Way.ON
        if edge.carried:
            way = _Way.NEXT_REQUEST
        elif box[source] == box[target] >= 0 and turn[source] != turn[target]:
            way = _Way.NEXT_LAYER
        key = (shown[source], shown[target], way)
        arrow = arrows.setdefault(key, _Arrow(*key))
        _add(arrow, edge, graph.buffers[edge.buffer].name)
    return list(arrows.values())


def _add(arrow: _Arrow, edge: Edge, buffer: str) -> None:
    is_data = edge.kind is EdgeKind.RAW or edge.moves_bytes
    if is_data and not arrow.is_data:
        arrow.is_data = True
        arrow.buffers.clear()
    if is_data == arrow.is_data:
        arrow.buffers[buffer] = None


def _needed(arrows: list[_Arrow]) -> Iterator[_Arrow]:
    """All edges except order edges that a data path in the same request implies."""
    data: dict[int, list[int]] = {}
    for arrow in arrows:
        if arrow.way is _Way.ON and arrow.is_data:
            data.setdefault(arrow.source, []).append(arrow.target)
    reached: dict[int, int] = {}  # per step, the steps that data reaches, as bits
    for source in sorted(data, reverse=True):
        bits = 0
        for target in data[source]:
            bits |= 1 << target | reached.get(target, 0)
        reached[source] = bits
    for arrow in arrows:
        implied = arrow.way is _Way.ON and reached.get(arrow.source, 0) >> arrow.target & 1
        if arrow.is_data or not implied:
            yield arrow


def _arrow_lines(arrows: Iterator[_Arrow]) -> Iterator[str]:
    for arrow in arrows:
        names = list(arrow.buffers)
        label = ", ".join(names) if len(names) <= _MOST_NAMES else f"{len(names)} buffers"
        if len(label) > _LONGEST_NAME or not arrow.is_data:
            label = ""
        style = "solid" if arrow.is_data else "dashed"
        text = f"label={_quoted(label)}, tooltip={_quoted(', '.join(names))}, style={style}"
        yield f"  n{arrow.source} -> n{arrow.target} [{text}{arrow.way.value}];"


def _quoted(text: str) -> str:
    return json.dumps(text)
