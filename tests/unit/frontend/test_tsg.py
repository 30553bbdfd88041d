"""Kernel graphs as text: what is printed is read back, and bad text is refused with a place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tessera.diagnostics import TesseraError
from tessera.frontend.graph.tsg import parse_graph
from tessera.frontend.trace.read_trace import read_trace
from tessera.ir.graph.access import Need, NeedKind
from tessera.ir.graph.graph import ContentsDigest, TraceReference
from tessera.ir.graph.print_dot import print_dot
from tessera.ir.graph.print_graph import print_graph
from tessera.ir.program.program import BufferId
from tessera.wording import Wording
from tests.helpers.traces import COPY, dependences, trace

EXAMPLES = Path(__file__).parents[3] / "examples" / "traces"
BUFFERS = """
buffer x bytes=4096 role=input
buffer t bytes=4096 role=temp
buffer s bytes=4096 role=state
"""
STEPS = """
launch m.copy grid=8,1,1 block=128,1,1 args=[t, x, u32:1000]
op aten::copy reads=[t:f32[4,2]{8,1}] writes=[s:f32[4,2]{8,1}] attrs={}
launch m.copy grid=8,1,1 block=128,1,1 args=[x, s, u32:9]
"""


@pytest.mark.parametrize("name", ["dit.ptx", "mlp.ptx"])
def test_real_graphs_are_read_back(name: str) -> None:
    graph = dependences(read_trace(EXAMPLES / name)).graph
    text = print_graph(graph)
    assert parse_graph(text) == graph
    assert print_graph(parse_graph(text)) == text


def test_strides_and_carried_edges_are_read_back() -> None:
    graph = dependences(trace(BUFFERS, COPY, STEPS)).graph
    assert any(edge.carried for edge in graph.edges)
    assert parse_graph(print_graph(graph)) == graph


@pytest.mark.parametrize(
    ("text", "code", "where"),
    [
        ("", "TSR1001", "1:1"),
        ("graph 1\n", "TSR1001", "1:1"),
        ("tessera-graph 3\n", "TSR1009", "1:15"),
        ('tessera-graph 1\nbuffer 0 "x" bytes=4 role=whatever\n', "TSR1009", "2:27"),
        ('tessera-graph 1\nbuffer 0 "x" bytes=4 color=red\n', "TSR1001", "2:22"),
        ('tessera-graph 1\nbuffer 3 "x" bytes=4 role=temp\n', "TSR1009", "1:15"),
        ('tessera-graph 1\nnode 0 "\\q"\n', "TSR1009", "2:8"),
        ('tessera-graph 2\nnode 0 "k"\nneed luck "x"\n', "TSR1009", "3:6"),
        ('tessera-graph 2\ncontents 0 sha256="12"\n', "TSR1009", "2:19"),
    ],
)
def test_bad_text(text: str, code: str, where: str) -> None:
    with pytest.raises(TesseraError) as caught:
        parse_graph(text, "g.tsg")
    (found,) = caught.value.diagnostics
    assert found.code == code
    assert found.primary is not None
    assert str(found.primary.span) == f"g.tsg:{where}"


def test_dot_names_every_step_once() -> None:
    text = print_dot(dependences(trace(BUFFERS, COPY, STEPS)).graph)
    assert text.count('[label="#') == 3
    assert "n0 -> n1" in text


def test_dot_draws_a_layer_once() -> None:
    """Four layers of two steps: two boxes, an arrow between them, one to the next layer."""
    steps = STEPS.strip().splitlines()[:2] * 4
    graph = dependences(trace(BUFFERS, COPY, "\n".join(steps) + "\n")).graph
    named = [replace(n, name=f"m.{'ab'[n.id % 2]}_{n.id}") for n in graph.nodes]
    text = print_dot(replace(graph, nodes=tuple(named)))
    assert "rankdir=TB" in text
    assert text.count('[label="#') == 2
    assert 'label="4 times; #0 to #7 in all"' in text
    assert text.count("n0 -> n1 [") == 1
    assert "color=blue" in text


def test_needs_and_contents_are_read_back() -> None:
    graph = dependences(trace(BUFFERS, COPY, STEPS)).graph
    first = replace(graph.nodes[0], needs=(Need(NeedKind.GRID, Wording('a "launch"')),))
    known = (ContentsDigest(BufferId(2), "0f" * 32),)
    full = replace(graph, nodes=(first, *graph.nodes[1:]), contents=known)
    assert parse_graph(print_graph(full)) == full


def test_version_1_is_read() -> None:
    graph = dependences(trace(BUFFERS, COPY, STEPS)).graph
    text = print_graph(graph)
    assert text.startswith("tessera-graph 2\n")
    assert parse_graph(text.replace("tessera-graph 2", "tessera-graph 1")) == graph


def test_the_trace_is_named() -> None:
    graph = dependences(trace(BUFFERS, COPY, STEPS)).graph
    named = replace(graph, trace=TraceReference(path="a b/t.ptx", digest="12"))
    text = print_graph(named)
    assert text.splitlines()[1] == 'trace "a b/t.ptx" digest="12"'
    assert parse_graph(text).trace == named.trace
    assert parse_graph(print_graph(graph)).trace is None


def test_a_cycle_is_refused() -> None:
    text = print_graph(dependences(trace(BUFFERS, COPY, STEPS)).graph)
    assert "source=0 target=1" in text
    with pytest.raises(TesseraError, match=r"TSR1009.*makes a cycle"):
        parse_graph(text.replace("source=0 target=1", "source=1 target=0"), "g.tsg")
