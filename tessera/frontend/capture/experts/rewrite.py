"""Replaces PyTorch's products of experts with our own, in a recorded graph.

In: the graph that torch.compile has recorded, of torch functions. Out: the same graph, with calls
of `tessera::grouped_product` in place of grouped products of rows with weights of experts
(PyTorch's own, and those of the transformers library for versions without them), of
`tessera::greatest` in place of small `topk` calls, and with comparisons and a sum in place of a
histogram of integers with a bin for each. Everything else stays.

A call is replaced in its place by one that reads the same tensors, so the order does not change.
Our own operators are defined here, too.
"""

from __future__ import annotations

import functools

import torch
from torch.fx import Graph, Node

from tessera.frontend.capture.experts.launch import (
    ProductTiles,
    candidates,
    launch,
    launch_greatest,
    size_of,
)
from tessera.frontend.capture.graphs.graph_nodes import call_of, shape_of, value_of
from tessera.frontend.capture.graphs.tuning import tuned

_PRODUCTS = ("grouped_mm", "_grouped_mm", "grouped_mm_fallback")
_GIVEN = ("input", "weight", "offs")
_OTHER_NAMES = {"mat_a": "input", "mat_b": "weight", "self": "input", "mat2": "weight"}
_NOTHING_ELSE = ("bias", "out_dtype")
_MOST_CHOSEN, _MOST_COLUMNS = 32, 2048  # of a row: it is scanned once for each chosen number


def replace_experts(graph: Graph) -> None:
    """Replace the calls that our kernels compute, in place."""
    for node in list(graph.nodes):
        name, _ = call_of(node)
        if name.partition(".")[0] in _PRODUCTS:
            _replace_product(graph, node)
        elif name == "topk":
            _replace_greatest(graph, node)
        elif name == "histc":
            _replace_histogram(graph, node)


def _replace_product(graph: Graph, node: Node) -> None:
    """Replace a product of rows [row, k] and weights [expert, k, n], with the ends of the experts'
    rows."""
    given = dict(zip(_GIVEN, node.args, strict=False))
    given |= {_OTHER_NAMES.get(name, name): value for name, value in node.kwargs.items()}
    if len(node.args) > len(_GIVEN) or any(given.pop(name, None) for name in _NOTHING_ELSE):
        return
    if set(given) != set(_GIVEN):
        return
    rows, weights, ends = (given[name] for name in _GIVEN)
    if not _is_ours(rows, weights, ends):
        return
    with graph.inserting_before(node):
        new = graph.call_function(grouped_product(), (rows, weights, ends))
    _put(graph, new, node)


def _is_ours(rows: object, weights: object, ends: object) -> bool:
    """Whether the kernel computes this product."""
    tensors = [value_of(node) for node in (rows, weights, ends)]
    shapes = [shape_of(node) for node in (rows, weights, ends)]
    if any(t is None or s is None or 0 in s for t, s in zip(tensors, shapes, strict=True)):
        return False
    left, right, last = (t for t in tensors if t is not None)
    if (left.dim(), right.dim(), last.dim()) != (2, 3, 1) or not left.is_cuda:
        return False
    if torch.is_grad_enabled() and (left.requires_grad or right.requires_grad):
        return False
    kinds = (torch.float16, torch.bfloat16, torch.float32)
    is_whole = last.dtype in (torch.int32, torch.int64) and last.stride(0) == 1
    return left.dtype in kinds and right.dtype == left.dtype and is_whole


def _replace_greatest(graph: Graph, node: Node) -> None:
    """Replace the greatest numbers of each row, along the last dimension."""
    given = dict(zip(("input", "k", "dim", "largest", "sorted"), node.args, strict=False))
    given |= {_OTHER_NAMES.get(name, name): value for name, value in node.kwargs.items()}
    source, count = given.pop("input", None), given.pop("k", None)
    dimension, largest = given.pop("dim", -1), given.pop("largest", True)
    given.pop("sorted", None)
    held, shape = value_of(source), shape_of(source)
    if given or held is None or not shape or 0 in shape or not held.is_cuda or not largest:
        return
    if held.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        return
    if dimension not in (-1, len(shape) - 1) or not isinstance(count, int):
        return
    if not 0 < count <= min(_MOST_CHOSEN, shape[-1]) or shape[-1] > _MOST_COLUMNS:
        return
    if torch.is_grad_enabled() and held.requires_grad:
        return
    if any(call_of(user)[0] != "getitem" for user in node.users):
        return
    with graph.inserting_before(node):
        new = graph.call_function(greatest(), (source, count))
    _put(graph, new, node)


def _replace_histogram(graph: Graph, node: Node) -> None:
    """Replace a histogram of integers with a bin for each by counts of equal numbers.

    Bin `x - least` of PyTorch's histogram counts the numbers from `x` to below `x + 1`; the last
    bin includes the greatest number. Numbers outside the range are not counted.
    """
    given = dict(zip(("input", "bins", "min", "max"), node.args, strict=False)) | node.kwargs
    given = {_OTHER_NAMES.get(name, name): value for name, value in given.items()}
    source = given.pop("input", None)
    bins, least, greatest = (given.pop(name, None) for name in ("bins", "min", "max"))
    held, shape = value_of(source), shape_of(source)
    if given or held is None or shape is None or held.dtype not in (torch.int32, torch.int64):
        return
    if not all(isinstance(number, int) for number in (bins, least, greatest)) or not held.is_cuda:
        return
    if bins != greatest - least + 1 or bins < 2:
        return
    with graph.inserting_before(node):
        numbers = graph.call_function(
            torch.arange, (least, greatest + 1), {"device": held.device, "dtype": held.dtype}
        )
        column = graph.call_method("reshape", (numbers, (bins, 1)))
        row = graph.call_method("reshape", (source, (1, -1)))
        equal = graph.call_function(torch.eq, (column, row))
        new = graph.call_method("sum", (equal,), {"dim": 1, "dtype": held.dtype})
    _put(graph, new, node)


def _put(graph: Graph, new: Node, node: Node) -> None:
    """Replace an old node with a new one."""
    new.meta.update(node.meta)
    node.replace_all_uses_with(new)
    graph.erase_node(node)


_SCHEMAS = {
    "grouped_product": "(Tensor rows, Tensor weights, Tensor ends) -> Tensor",
    "greatest": "(Tensor rows, int count) -> (Tensor, Tensor)",
}


def grouped_product() -> torch._ops.OpOverload:
    """Rows sorted by expert times the weights of their experts."""
    _define()
    return torch.ops.tessera.grouped_product.default


def greatest() -> torch._ops.OpOverload:
    """The greatest numbers along the last dimension, and their places."""
    _define()
    return torch.ops.tessera.greatest.default


@functools.cache
def _define() -> None:
    tags = getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)
    library = torch.library.Library("tessera", "FRAGMENT")
    made = {"grouped_product": (_product, _product_shape), "greatest": (_greatest, _greatest_shape)}
    for name, schema in _SCHEMAS.items():
        compute, shape = made[name]
        library.define(name + schema, tags=(tags,))
        library.impl(name, compute, "CompositeExplicitAutograd")
        torch.library.register_fake(f"tessera::{name}", shape, lib=library)
    _KEPT.append(library)


# An operator exists as long as its library does.
_KEPT: list[object] = []


def _product_shape(rows: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    return rows.new_empty((rows.shape[0], weights.shape[2]))


def _product(rows: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    rows = rows if rows.stride(1) == 1 else rows.contiguous()

    def run(tiles: ProductTiles, weights: torch.Tensor = weights) -> torch.Tensor:
        return launch(rows, weights, ends, tiles)

    size = size_of(rows, weights)
    return run(tuned(size, list(candidates(size)), (weights,), run))


def _greatest_shape(rows: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (*rows.shape[:-1], count)
    return rows.new_empty(shape), rows.new_empty(shape, dtype=torch.int64)


def _greatest(rows: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    values, places = launch_greatest(rows.reshape(-1, rows.shape[-1]), count)
    shape = (*rows.shape[:-1], count)
    return values.view(shape), places.view(shape)
