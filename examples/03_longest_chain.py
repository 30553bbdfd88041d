"""How much of a trace could run side by side: its longest chain of steps, and its parts.

    python examples/03_longest_chain.py

`KernelGraph.to_networkx()` gives the kernel graph as a NetworkX graph. `traces/mmdit.ptx` is one
step of a diffusion model with a text and an image stream. No number of GPUs makes one request
shorter than its longest chain; steps that stand in one row may run on different GPUs.
"""

from __future__ import annotations

from pathlib import Path

import networkx

import tessera
from tessera.ir.plan.costs import Duration

TRACE = Path(__file__).parent / "traces" / "mmdit.ptx"
GPU = "h100"


def main() -> None:
    report = tessera.plan([str(TRACE)], tessera.PlanOptions(gpus=GPU))
    (trace,), (costs,) = report.setting.traces, report.setting.costs
    graph = trace.graph.to_networkx()

    # What a request leaves to the next one orders no steps of one request.
    carried = [(a, b, key) for a, b, key, past in graph.edges(keys=True, data="carried") if past]
    graph.remove_edges_from(carried)
    assert networkx.is_directed_acyclic_graph(graph)

    times = {}
    for node, step in zip(graph, costs.steps, strict=True):
        (cost,) = step.on_device
        assert isinstance(cost, Duration)
        times[node] = cost.ns
    chains = networkx.DiGraph()  # an edge is as long as the step that it leads to
    chains.add_weighted_edges_from(("start", node, ns) for node, ns in times.items())
    chains.add_weighted_edges_from(
        (source, target, times[target]) for source, target in graph.edges()
    )
    _, *chain = networkx.dag_longest_path(chains)
    total, longest = sum(times.values()), sum(times[node] for node in chain)
    assert max(times.values()) <= longest <= total
    assert all(graph.has_edge(a, b) for a, b in networkx.utils.pairwise(chain))

    print(f"{len(graph)} steps take {total / 1e3:.0f} us on one {GPU}")
    print(f"the longest chain has {len(chain)} of them and takes {longest / 1e3:.0f} us:")
    print(f"one request gets at most {total / longest:.2f} times as fast on any number of them")
    for node in sorted(chain, key=times.__getitem__, reverse=True)[:5]:
        print(f"  k{node} {graph.nodes[node]['name']}: {times[node] / 1e3:.1f} us")
    rows = [sorted(row) for row in networkx.topological_generations(graph)]
    widest = max(rows, key=len)
    print(f"up to {len(widest)} steps may run side by side: " + " ".join(f"k{n}" for n in widest))
    parts = networkx.number_weakly_connected_components(graph)
    print(f"parts that do not depend on each other: {parts}")


if __name__ == "__main__":
    main()
