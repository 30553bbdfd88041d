"""Our graph code against NetworkX: processor seconds of each on the same graphs.

    python -m benchmarks.analysis.graph_library

Measures the import of NetworkX, dominators, depth-first order and circles. Building the NetworkX
graph counts. Checks that results are equal, prints a table. The figures are in decision 0015.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np  # noqa: F401  # NetworkX may import it: that would not be its own time

from tessera.ir.ptx import control_flow
from tessera.passes.kernel_facts.call_graph import components

BLOCKS, FUNCTIONS, REPEATS = 20_000, 100_000, 3


def seconds(work: Callable[[], object]) -> tuple[float, object]:
    """The least processor time of a few runs, and the result."""
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        result = work()
        times.append(time.process_time() - start)
    return min(times), result


def compare(name: str, ours: Callable[[], object], theirs: Callable[[], object]) -> None:
    """A row of the table."""
    (own, own_result), (other, other_result) = seconds(ours), seconds(theirs)
    assert own_result == other_result, name
    print(f"{name:40} {own:8.3f} {other:8.3f}")


def main() -> None:
    start = time.process_time()
    import networkx

    print(f"{'':40} {'ours':>8} {'networkx':>8}")
    print(f"{'import':40} {0:8.3f} {time.process_time() - start:8.3f}")

    edges = [[n + 1, *([n - 5] if n % 7 == 6 else [])] for n in range(BLOCKS - 1)]
    edges.append([control_flow.EXIT])
    order = control_flow._depth_first(edges, 0)

    def flow() -> networkx.DiGraph:
        pairs = ((a, b) for a, targets in enumerate(edges) for b in targets)
        return networkx.DiGraph((a, b) for a, b in pairs if b != control_flow.EXIT)

    def tree() -> list[int | None]:
        dominators = networkx.immediate_dominators(flow(), 0)
        return [None if n == 0 else dominators[n] for n in range(BLOCKS)]

    compare(
        f"dominators of {BLOCKS} blocks",
        lambda: control_flow._immediate_dominators(edges, order, 0),
        tree,
    )
    compare(
        f"depth-first order of {BLOCKS} blocks",
        lambda: control_flow._depth_first(edges, 0),
        lambda: list(networkx.dfs_postorder_nodes(flow(), 0))[::-1],
    )
    calls = {f"f{n}": [f"f{n + 1}"] for n in range(FUNCTIONS - 1)}
    calls[f"f{FUNCTIONS - 1}"] = []
    for n in range(0, FUNCTIONS, 10):
        calls[f"f{n}"].append(f"f{max(0, n - 3)}")
    compare(
        f"circles among {FUNCTIONS} functions",
        lambda: [sorted(group) for group in components(calls)],
        lambda: [
            sorted(group)
            for group in networkx.strongly_connected_components(networkx.DiGraph(calls))
        ],
    )


if __name__ == "__main__":
    main()
