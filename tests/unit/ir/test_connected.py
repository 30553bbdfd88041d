"""Parts of a graph, against networkx."""

from __future__ import annotations

import random

import networkx

from tessera.ir.connected import connected


def test_parts_are_those_of_networkx_in_the_order_of_their_first_nodes() -> None:
    rng = random.Random(1)
    for _ in range(200):
        nodes = rng.sample(range(12), rng.randrange(12))
        pairs = [(rng.randrange(12), rng.randrange(12)) for _ in range(rng.randrange(9))]
        graph = networkx.Graph()
        graph.add_nodes_from(nodes)
        graph.add_edges_from(pairs)
        expected = [set(part) for part in networkx.connected_components(graph)]
        parts = connected(nodes, pairs)
        assert list(map(set, parts)) == expected
        assert sum(map(len, parts)) == len(graph)
