"""Whether products with one row take much of a recorded graph: then kernels are tuned closely.

torch.compile makes reductions of such products, which read a matrix as fast as memory gives it, but
only if it may search for the best shape of every kernel. That takes a minute for a model of eight
layers, so it may do so only where it matters: not for the last token of a prompt, or for what a
step of a diffusion model makes of its time.

Source: PyTorch 2.11, `torch._inductor.decomposition.mm`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tessera.frontend.capture.graph_nodes import call_of, shape_of

if TYPE_CHECKING:
    from torch.fx import Graph

# By name the place of the first factor.
_PRODUCTS = {"linear": 0, "matmul": 0, "mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}
_ROWS = 200  # from here on a product takes longer than to read its matrix, about, on any large GPU
_LEAST = 0.2  # of the time of all products


def tune_single_rows(graph: Graph) -> None:
    """Have kernels tuned closely from here on, if products with one row take much of the time."""
    from torch._inductor import config

    if share_of_single_rows(graph) >= _LEAST:
        config.coordinate_descent_tuning = True


def share_of_single_rows(graph: Graph) -> float:
    """The part of products with one row in the time of all products, about."""
    single = total = 0.0
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
        single += taken if rows == 1 else 0.0
    return single / total if total else 0.0
