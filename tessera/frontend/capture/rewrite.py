"""What is put in place of a recorded graph's calls while it is compiled.

In: the graph that torch.compile has recorded, of torch functions (for Inductor's
`pre_grad_custom_pass`). Out: the same graph with kernels of our own in it. The parts are in
`attention`, `experts`, `product_rows`, `small_parts` and `data_dependence`.
"""

from __future__ import annotations

from torch.fx import Graph

from tessera.frontend.capture.attention.rewrite import replace_attention
from tessera.frontend.capture.data_dependence import refuse_data_dependence
from tessera.frontend.capture.experts.rewrite import replace_experts
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
