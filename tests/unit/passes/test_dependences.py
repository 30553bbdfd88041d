"""Edges between steps: by bytes, with certain writes ending what came before."""

from __future__ import annotations

from dataclasses import replace

import networkx

from tessera.ir.graph.graph import EdgeKind, KernelGraph
from tessera.ir.program.program import LaunchId
from tessera.planning.problem.plan_problem import groups_of, tensors_of
from tests.helpers.traces import COPY, dependences, trace

BUFFERS = """
buffer x bytes=4096 role=input
buffer t bytes=4096 role=temp
buffer s bytes=4096 role=state
buffer y bytes=4096 role=output
"""
Found = set[tuple[str, int, int, str, int]]


def edges(graph: KernelGraph, *, carried: bool = False) -> Found:
    return {
        (e.kind.value, int(e.source), int(e.target), graph.buffers[e.buffer].name, e.bytes)
        for e in graph.edges
        if e.carried is carried
    }


def graph_of(steps: str, buffers: str = BUFFERS) -> KernelGraph:
    return dependences(trace(buffers, COPY, steps)).graph


def launch(out: str, source: str, count: int, blocks: int = 8) -> str:
    return f"launch m.copy grid={blocks},1,1 block=128,1,1 args=[{out}, {source}, u32:{count}]\n"


def test_a_read_depends_on_the_write_by_exactly_its_bytes() -> None:
    graph = graph_of(launch("t", "x", 1000) + launch("y", "t", 999))
    assert edges(graph) == {("raw", 0, 1, "t", 3996)}


def test_a_grid_that_is_too_small_writes_less() -> None:
    graph = graph_of(launch("t", "x", 1000, blocks=2) + launch("y", "t", 1000))
    assert edges(graph) == {("raw", 0, 1, "t", 1024)}


def test_disjoint_slices_have_no_edge() -> None:
    graph = graph_of(launch("t", "x", 512) + launch("t+2048", "x", 512))
    assert edges(graph) == set()


def test_one_byte_is_enough() -> None:
    steps = "memset t+0 bytes=2049 value=0x00\n" + launch("t+2048", "x", 512)
    assert edges(graph_of(steps)) == {("waw", 0, 1, "t", 1)}


def test_a_certain_write_ends_what_came_before() -> None:
    steps = launch("t", "x", 1024) + launch("t", "x", 1024) + launch("y", "t", 1024)
    assert edges(graph_of(steps)) == {("waw", 0, 1, "t", 4096), ("raw", 1, 2, "t", 4096)}


def test_war_and_order_only() -> None:
    graph = graph_of(
        launch("y", "x", 16) + "memset t+0 bytes=64 value=0x00\n" + launch("x", "t", 8)
    )
    assert edges(graph) == {("war", 0, 2, "x", 32), ("raw", 1, 2, "t", 32)}
    war = next(e for e in graph.edges if e.kind is EdgeKind.WAR)
    assert not war.moves_bytes


def test_memcpy_reads_and_writes() -> None:
    steps = launch("t", "x", 1024) + "memcpy y+0 t+64 bytes=128\n" + launch("t", "y", 32)
    assert edges(graph_of(steps)) == {
        ("raw", 0, 1, "t", 128),
        ("raw", 1, 2, "y", 128),
        ("waw", 0, 2, "t", 128),
        ("war", 1, 2, "t", 64),
    }


def test_state_is_carried_to_the_next_request() -> None:
    graph = graph_of(launch("y", "s", 16) + launch("s", "x", 8))
    assert edges(graph) == {("war", 0, 1, "s", 32)}
    assert edges(graph, carried=True) == {("raw", 1, 0, "s", 32), ("waw", 1, 1, "s", 32)}


def test_inputs_are_not_carried() -> None:
    graph = graph_of(launch("t", "x", 16) + launch("y", "t", 16))
    assert edges(graph, carried=True) == set()


def test_a_library_call_with_strides() -> None:
    steps = "op aten::copy reads=[x:f32[4,2]{8,1}] writes=[t:f32[4,2]{8,1}] attrs={}\n"
    graph = graph_of(steps + launch("y", "t", 16))
    assert edges(graph) == {("raw", 0, 1, "t", 16)}


def test_an_edge_names_its_accesses() -> None:
    graph = graph_of(launch("t", "x", 64) + launch("y", "t", 64))
    (edge,) = graph.edges
    source = graph.nodes[edge.source].accesses[edge.source_access]
    target = graph.nodes[edge.target].accesses[edge.target_access]
    assert (source.text, target.text) == ("st.global.f32", "ld.global.f32")
    assert source.span is not None
    assert target.span is not None


def test_networkx_view() -> None:
    graph = graph_of(launch("t", "x", 64) + launch("y", "t", 64))
    view = graph.to_networkx()
    assert dict(view.nodes(data="name")) == {0: graph.nodes[0].name, 1: graph.nodes[1].name}
    assert [view.nodes[number]["record"] for number in view] == list(graph.nodes)
    ((_, _, data),) = view.edges(data=True)
    assert data == {
        "kind": "raw",
        "buffer": "t",
        "bytes": 256,
        "carried": False,
        "record": graph.edges[0],
    }


def test_the_networkx_view_has_every_edge_and_cycles_only_through_carried_ones() -> None:
    graph = graph_of(launch("s", "s", 64) + launch("s", "s", 64))
    view = graph.to_networkx()
    records = [data["record"] for _, _, data in view.edges(data=True)]
    assert sorted(records, key=repr) == sorted(graph.edges, key=repr)
    carried = [(a, b, key) for a, b, key, past in view.edges(keys=True, data="carried") if past]
    assert len(carried) == sum(edge.carried for edge in graph.edges) > 0
    assert not networkx.is_directed_acyclic_graph(view)
    view.remove_edges_from(carried)
    assert networkx.is_directed_acyclic_graph(view)


def test_twins_find_what_was_there_before_and_serve_what_follows() -> None:
    add_in_place = "launch m.copy grid=8,1,1 block=128,1,1 args=[s, s, u32:1024]\n"
    steps = launch("t", "x", 1024) + 2 * add_in_place + launch("y", "s", 1024)
    program = trace(BUFFERS, COPY, steps)
    twins = (LaunchId(1), LaunchId(2))
    graph = dependences(replace(program, twins=(twins,))).graph
    assert graph.twins == (twins,)
    assert edges(graph) == {("raw", 1, 3, "s", 4096), ("raw", 2, 3, "s", 4096)}
    both = {(source, target) for source in (1, 2) for target in (1, 2)}
    assert {(e[1], e[2]) for e in edges(graph, carried=True) if e[0] == "raw"} == both
    assert ("war", 3, 1, "s", 4096) in edges(graph, carried=True)
    # Twins can be on different devices, and nothing is sent for them.
    assert len(set(groups_of(graph))) == 4
    assert list(tensors_of(graph, 0, 1.0)) == []
