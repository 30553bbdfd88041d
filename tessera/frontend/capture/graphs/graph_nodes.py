"""Reads nodes of a recorded graph: their calls, their results, and their in-place changes."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Iterable

import torch
from torch.fx import Graph, Node


def shape_of(node: object) -> tuple[int, ...] | None:
    """The shape of a node's result, if that is a tensor with plain numbers for sizes."""
    value = value_of(node)
    if value is None or not all(isinstance(size, int) for size in value.shape):
        return None
    return tuple(value.shape)


def value_of(node: object) -> torch.Tensor | None:
    """The tensor that represents a node's result.

    None also for a tensor inside `vmap`: it has one more dimension than it shows, and our
    replacements of calls do not accept it.
    """
    value = _shown_value(node)
    return None if value is None or is_in_vmap(value) else value


def is_in_vmap(tensor: torch.Tensor) -> bool:
    """Whether a tensor is the view that a function under `vmap` (or `grad`) has of another."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def _shown_value(node: object) -> torch.Tensor | None:
    meta = getattr(node, "meta", {})
    value = meta.get("example_value", meta.get("val"))
    return value if isinstance(value, torch.Tensor) else None


def call_of(node: object) -> tuple[str, tuple[object, ...]]:
    """The plain name of the function that a node calls, and its positional arguments."""
    target = getattr(node, "target", None)
    arguments = tuple(getattr(node, "args", ()))
    if getattr(node, "op", None) == "call_method":
        return str(target), arguments
    if getattr(node, "op", None) == "call_function":
        if target is operator.getitem:
            return "getitem", arguments
        return str(getattr(target, "__name__", "")), arguments
    return "", ()


def is_plain_index(index: object) -> bool:
    """Whether an index only adds dimensions."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(
        part is None or part is ... or (isinstance(part, slice) and part == slice(None))
        for part in parts
    )


# --- changes in place ---------------------------------------------------------------------------

_OPERATORS = ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow")
_ON_BITS = ("and", "or", "xor", "lshift", "rshift")
_IN_PLACE = {"setitem", *(f"i{name}" for name in (*_OPERATORS, *_ON_BITS))}


def written_by(node: Node) -> tuple[object, ...]:
    """The arguments that a node may change in place."""
    return tuple(part for part in _written_by(node) if part is not None)


def _written_by(node: Node) -> tuple[object, ...]:
    if "out" in node.kwargs:
        return (node.kwargs["out"], *node.args[:1])
    if node.op == "call_module":
        return tuple(node.all_input_nodes)
    name, arguments = call_of(node)
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return _written_by_operator(target._schema, node)
    if isinstance(target, torch._ops.OpOverloadPacket):
        schemas = [getattr(target, overload)._schema for overload in target.overloads()]
        written = [_written_by_operator(schema, node) for schema in schemas]
        return tuple(part for parts in written for part in parts)
    if isinstance(target, torch._ops.HigherOrderOperator):
        return tuple(node.all_input_nodes)
    is_operator = name.rstrip("_") in ("and", "or", "not")
    ends = name.endswith("_") and not name.endswith("__") and not is_operator
    if ends or name in _IN_PLACE or _asked_in_place(node):
        return arguments[:1]
    if name in ("batch_norm", "instance_norm"):  # statistics of a norm in training
        return (*arguments[1:3], *(node.kwargs.get(f"running_{kind}") for kind in ("mean", "var")))
    return ()


def _written_by_operator(schema: torch.FunctionSchema, node: Node) -> tuple[object, ...]:
    written = []
    for place, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = node.args[place : place + 1] if not argument.kwarg_only else ()
            written += [*given, node.kwargs.get(argument.name)]
    return tuple(written)


def _asked_in_place(node: Node) -> bool:
    """Whether a function is called with `inplace`."""
    if node.op != "call_function" or not callable(node.target):
        return False
    place = _place_of_inplace(node.target)
    given = node.args[place] if 0 <= place < len(node.args) else node.kwargs.get("inplace")
    return bool(given)


@functools.cache
def _place_of_inplace(function: Callable[..., object]) -> int:
    """The position of a function's argument `inplace`; -1 if it has none."""
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return -1
    return names.index("inplace") if "inplace" in names else -1


def storages(tensors: Iterable[torch.Tensor]) -> set[int]:
    """The memory of tensors, by PyTorch's own identifier."""
    return {tensor.untyped_storage()._cdata for tensor in tensors}


def storage_of(tensor: torch.Tensor) -> int | None:
    """The memory of a tensor, also inside `vmap`; None if it has no single storage."""
    while is_in_vmap(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):  # a sparse tensor, for example
        return None


def is_changed(node: object, changed: frozenset[int] | None) -> bool:
    """Whether a node's result may be in memory that is changed (`changed_memory`)."""
    value = _shown_value(node)
    if value is None:
        return False
    storage = storage_of(value)
    return changed is None or storage is None or storage in changed


def changed_memory(graph: Graph) -> frozenset[int] | None:
    """The memory that a graph changes in place (`storages`); None: possibly any memory."""
    changed: set[int] = set()
    for node in graph.nodes:
        for part in written_by(node):
            if isinstance(part, int | float | str):
                continue
            parts = part if isinstance(part, list | tuple) else [part]
            for value in map(_shown_value, parts):
                storage = None if value is None else storage_of(value)
                if storage is None:
                    return None
                changed.add(storage)
    return frozenset(changed)
