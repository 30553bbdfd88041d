"""Results that are a small part of what was made for them: the last token of all logits, say.

A buffer is an output as a whole, and comes back to the host as a whole. So a result that is at most
half of its memory is copied as the last thing that the call does, and the rest of that memory is
temporary. What lasts (inputs, weights, states) is left alone: a result that is a part of it shows
what it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from tessera.frontend.capture.graphs.graph_nodes import call_of, storages, value_of
from tessera.frontend.capture.tensors import tensors_in

_PART = 0.5  # of its memory: up to here a result is copied


def copy_small_results(graph: Graph) -> None:
    """Make a recorded graph return copies of small parts."""
    (last,) = (node for node in graph.nodes if node.op == "output")
    lasting = storages(
        value
        for node in graph.nodes
        if node.op in ("placeholder", "get_attr") and (value := value_of(node)) is not None
    )
    results = list(dict.fromkeys(last.all_input_nodes))
    values = [value_of(node) for node in results]
    if any(
        value is None and not _is_number(node) for node, value in zip(results, values, strict=True)
    ):
        return  # it may share memory with any other
    for node in results:
        _keep_copy(node, lasting)
    small = _small([value for value in values if value is not None], lasting.__contains__)
    copies: dict[Node, Node] = {}
    with graph.inserting_before(last):
        for node, value in zip(results, values, strict=True):
            if value is not None and id(value) in small:
                whole = {"memory_format": torch.contiguous_format}
                copies[node] = graph.call_method("clone", (node,), whole)
                copies[node].meta = {"example_value": _copy_of(value)}
    if copies:
        last.args = map_arg(last.args, lambda node: copies.get(node, node))


def _keep_copy(node: Node, lasting: set[int]) -> None:
    """Lay out anew the copy of a small part that a result is made of.

    The compiler drops a copy that lies as its source does, and a single row lies so: the result
    would be a part again.
    """
    value = value_of(node)
    while value is not None and call_of(node)[0] != "clone":
        sources = [n for n in node.all_input_nodes if _share(value_of(n), value)]
        if len(sources) != 1:
            return
        node = sources[0]
    source = value_of(node.args[0]) if value is not None else None
    if value is None or source is None or not _small([source], lasting.__contains__):
        return
    made = value_of(node)
    if made is not None and made.is_contiguous():
        node.kwargs = {**node.kwargs, "memory_format": torch.contiguous_format}
        node.meta["example_value"] = _copy_of(made)


def _share(first: torch.Tensor | None, second: torch.Tensor) -> bool:
    return first is not None and storages([first]) == storages([second])


def copied_parts(result: object, lasts: Callable[[int], bool]) -> Sequence[torch.Tensor]:
    """The tensors of a result, with copies in place of small parts.

    `lasts` says of a storage (`storages`) whether it was there before the call.
    """
    tensors = list(tensors_in(result))
    small = _small([tensor for tensor in tensors if tensor.is_cuda], lasts)
    return [_copy_of(tensor) if id(tensor) in small else tensor for tensor in tensors]


def _copy_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


def _is_number(node: Node) -> bool:
    return isinstance(node.meta.get("example_value"), int | float | bool)


def _small(tensors: Iterable[torch.Tensor], lasts: Callable[[int], bool]) -> set[int]:
    """The `id`s of tensors that, with all others in the same memory, are a small part of it."""
    groups: dict[int, list[torch.Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.untyped_storage()._cdata, []).append(tensor)
    return {
        id(tensor)
        for storage, parts in groups.items()
        if not lasts(storage) and _is_small(parts)
        for tensor in parts
    }


def _is_small(parts: Sequence[torch.Tensor]) -> bool:
    used = sum(part.numel() * part.element_size() for part in parts)
    return bool(used <= _PART * parts[0].untyped_storage().nbytes())
