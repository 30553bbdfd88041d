"""Whether a recorded graph reads a value from the GPU while it runs, and where.

In: the graph that torch.compile has recorded. Out: TSR6003 with the line of the model, if there is
such a place. torch.compile itself would make code of it that waits for the GPU, and the capture
would fail later, where nobody knows the line.
"""

from __future__ import annotations

from torch.fx import Graph

from tessera.frontend.capture.graph_nodes import call_of, value_of
from tessera.frontend.capture.problems import BRANCHES, draws_numbers, reads_data, takes_functions

_DRAWN_BY_LIBRARIES = ("multinomial", "poisson", "binomial", "_standard_gamma", "_sample_dirichlet")


def refuse_data_dependence(graph: Graph) -> None:
    """Raise if a number, the size of a tensor or a branch depends on data on the GPU; or if random
    numbers are drawn by an operator that the compiler leaves to a library."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    for node in graph.nodes:
        name, stack = call_of(node)[0], node.meta.get("stack_trace") or ""
        if name in BRANCHES:
            raise takes_functions(name, stack)
        if name in _DRAWN_BY_LIBRARIES:
            raise draws_numbers(name, stack)
        value = node.meta.get("example_value")
        if value is None or not node.users or not free_unbacked_symbols(value):
            continue
        operands = [value_of(operand) for operand in node.all_input_nodes]
        if any(operand is not None and operand.is_cuda for operand in operands):
            raise reads_data(stack, is_size=hasattr(value, "shape"))
