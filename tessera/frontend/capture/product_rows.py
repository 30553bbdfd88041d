"""How torch.compile treats the products of a recorded graph, by how many rows they have.

It makes reductions of products with one row, which read a matrix as fast as memory gives it, but
only if it may search for the best shape of every kernel (`tune_single_rows`). That takes a minute
for a model of eight layers, so it may do so only where it matters: not for the last token of a
prompt, or for what a step of a diffusion model makes of its time.

It may compute what a product reads inside the product, such as the end of a norm, and measures
whether that pays: against a kernel for that part alone. But without the product that part is in the
kernel of the norm, where it costs next to nothing. With many rows each block of columns computes it
again, and the product is slower than a library's. So it may do so only where products have few rows
(`fuse_before_few_rows`).

Source: PyTorch 2.11, `torch._inductor.decomposition.mm`, `Scheduler.speedup_by_fusion`.
"""

from __future__ import annotations

import math

from torch.fx import Graph

from tessera.frontend.capture.graphs.graph_nodes import call_of, shape_of

# By name the place of the first factor.
_PRODUCTS = {"linear": 0, "matmul": 0, "mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}
_ROWS = 200  # from here on a product takes longer than to read its matrix, about, on any large GPU
_LEAST = 0.2  # of the time of all products
_FEW = 64  # rows: one block of a kernel has them all
_MOST_TIME = 0.5


def tune_single_rows(graph: Graph) -> None:
    """Tune kernels closely from here on, if products with one row take much of the time."""
    from torch._inductor import config

    if share_of_rows(graph, 1) >= _LEAST:
        config.coordinate_descent_tuning = True


def fuse_before_few_rows(graph: Graph) -> None:
    """Fuse nothing into products from here on, if products with many rows take most of the time."""
    from torch._inductor import config

    if share_of_rows(graph, _FEW) < _MOST_TIME and hasattr(config, "prologue_fusion"):
        config.prologue_fusion = False


def share_of_rows(graph: Graph, most: int) -> float:
    """The approximate share of products with at most `most` rows in the time of all products."""
    few = total = 0.0
    for node in graph.nodes:
        name, arguments = call_of(node)
        first = _PRODUCTS.get(name, len(arguments))
        if len(arguments) < first + 2:
            continue
        left, right = (shape_of(factor) for factor in arguments[first : first + 2])
        if left is None or right is None:
            continue
        rows = math.prod(left[:-1]) if name == "linear" or len(right) < 3 else (1, *left)[-2]
        taken = math.prod(right) * max(1.0, rows / _ROWS)
        total += taken
        few += taken if rows <= most else 0.0
    return few / total if total else 0.0
