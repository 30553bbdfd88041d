"""Whether a recorded graph has products with one row: then its kernels are tuned closely.

torch.compile makes reductions of such products, which read a matrix as fast as memory gives it, but
only if it may search for the best shape of every kernel. That takes a minute for a model of eight
layers, so it may do so only where it matters.

Source: PyTorch 2.11, `torch._inductor.decomposition.mm`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tessera.frontend.capture.attention.masks import call_of, shape_of

if TYPE_CHECKING:
    from torch.fx import Graph

# By name the place of the matrix whose rows count.
_PRODUCTS = {"matmul": 0, "mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}


def tune_single_rows(graph: Graph) -> None:
    """Have kernels tuned closely from here on, if there is a product with one row."""
    from torch._inductor import config

    if has_single_rows(graph):
        config.coordinate_descent_tuning = True


def has_single_rows(graph: Graph) -> bool:
    """Whether some product is of one row."""
    for node in graph.nodes:
        name, arguments = call_of(node)
        if name == "linear":
            made = shape_of(node)
            if made is not None and all(size == 1 for size in made[:-1]):
                return True
        elif name in _PRODUCTS and len(arguments) > _PRODUCTS[name]:
            rows = shape_of(arguments[_PRODUCTS[name]])
            if rows is not None and (len(rows) == 1 or rows[-2] == 1):
                return True
    return False
