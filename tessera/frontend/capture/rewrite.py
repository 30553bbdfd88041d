"""What is put in place of a recorded graph's calls while it is compiled.

In: the graph that torch.compile has recorded, of torch functions (for Inductor's
`pre_grad_custom_pass`). Out: the same graph with kernels of our own in it. The parts are in
`attention`, `experts`, `product_rows` and `small_parts`.

A graph that reads a value from the GPU while it runs is refused here (TSR6003, with the line of the
model). torch.compile would make code of it that waits for the GPU, and the capture would fail
later, where nobody knows the line.
"""

from __future__ import annotations

from torch.fx import Graph

from tessera.frontend.capture.attention.rewrite import replace_attention
from tessera.frontend.capture.experts.rewrite import replace_experts
from tessera.frontend.capture.graphs.graph_nodes import call_of, value_of
from tessera.frontend.capture.problems import BRANCHES, draws_numbers, reads_data, takes_functions
from tessera.frontend.capture.product_rows import fuse_before_few_rows, tune_single_rows
from tessera.frontend.capture.small_parts import copy_small_results


def replace_calls(graph: Graph, *, by_triton: bool) -> None:
    """Replace products of experts and, where Triton makes all kernels, attention; copy results
    that are small parts of what was made.

    Raises TSR6003 where the graph waits for the GPU.
    """
    refuse_data_dependence(graph)
    copy_small_results(graph)
    if by_triton:
        tune_single_rows(graph)
        fuse_before_few_rows(graph)
        replace_attention(graph)
    replace_experts(graph)


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
