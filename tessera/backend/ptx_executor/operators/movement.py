"""Copies, fills, indexing and sorting. Elements that only move keep their bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tessera.backend.ptx_executor.operators.values import Array, CallValues
from tessera.ir.operators.shapes_moved import indexed_axes

Function = Callable[[CallValues], list[Array]]

# Functions whose results are elements of their operands, which may have any type.
MOVES = frozenset(
    (
        "copy",
        "copy_into",
        "cat",
        "stack",
        "flip",
        "roll",
        "repeat",
        "index_select",
        "index",
        "embedding",
        "gather",
        "scatter",
        "index_copy",
        "index_put",
        "tril",
        "triu",
    )
)


class IndexOutOfRange(Exception):
    """An index outside its dimension."""


def checked(index: Array, size: int, *, wraps: bool = False) -> Array:
    """Checked indices into a dimension; with `wraps`, negative indices count from its end."""
    places = index.astype(np.int64)
    if wraps:
        places = np.where(places < 0, places + size, places)
    bad = (places < 0) | (places >= size)
    if bad.any():
        wrong = int(index.reshape(-1)[int(bad.reshape(-1).argmax())])
        raise IndexOutOfRange(f"index {wrong} into a dimension of {size} elements")
    return places


def _axis(call: CallValues, name: str = "self") -> int:
    return call.bound.integer("dim") % max(call[name].ndim, 1)


def _cat(call: CallValues) -> list[Array]:
    parts = [part for part in call.all("tensors") if part.shape != (0,)]
    if not parts:
        return [np.zeros(call.results[0].shape)]
    return [np.concatenate(parts, axis=call.bound.integer("dim") % max(parts[0].ndim, 1))]


def _stack(call: CallValues) -> list[Array]:
    return [np.stack(call.all("tensors"), axis=call.bound.integer("dim"))]


def _flip(call: CallValues) -> list[Array]:
    values = call["self"]
    return [np.flip(values, call.bound.integers("dims") or ()) if values.ndim else values]


def _roll(call: CallValues) -> list[Array]:
    shifts, dims = call.bound.integers("shifts") or (), call.bound.integers("dims") or ()
    return [np.roll(call["self"], shifts, dims) if dims else np.roll(call["self"], shifts[0])]


def _repeat(call: CallValues) -> list[Array]:
    return [np.tile(call["self"], call.bound.integers("repeats") or ())]


def _pad(call: CallValues) -> list[Array]:
    values, pad = call["self"], call.bound.integers("pad") or ()
    kind = call.wide if values.dtype != np.bool_ else np.dtype(np.bool_)
    made = np.full(call.results[0].shape, call.number("value")).astype(kind)
    source, target = [slice(None)] * values.ndim, [slice(None)] * values.ndim
    for place in range(0, len(pad), 2):
        axis, before = values.ndim - 1 - place // 2, pad[place]
        stop = min(values.shape[axis], made.shape[axis] - before)
        source[axis] = slice(max(0, -before), max(0, stop))
        target[axis] = slice(max(0, before), max(0, before + stop))
    made[tuple(target)] = values[tuple(source)]
    return [made]


def _triangle(keep: Callable[..., Array]) -> Function:
    return lambda call: [keep(call["self"], call.bound.integer("diagonal"))]


def _filled(value: Callable[[CallValues], float]) -> Function:
    def apply(call: CallValues) -> list[Array]:
        made = call.results[0]
        number = value(call)
        kind = np.float64 if isinstance(number, float) else np.int64
        return [np.full(made.shape, number, kind)]

    return apply


def _fill(call: CallValues) -> list[Array]:
    return [np.broadcast_to(call["value"].reshape(()), call.results[0].shape)]


def _arange(call: CallValues) -> list[Array]:
    start, step = call.number("start"), call.number("step")
    return [start + np.arange(call.results[0].shape[0]) * step]


# --- reading by index ----------------------------------------------------------------------


def _index_select(call: CallValues) -> list[Array]:
    values, axis = np.atleast_1d(call["self"]), _axis(call)
    places = checked(call["index"].reshape(-1), values.shape[axis])
    return [values.take(places, axis=axis).reshape(call.results[0].shape)]


def _places(call: CallValues) -> tuple[Any, ...]:
    """The NumPy index of the chosen elements: an index array or a full slice per dimension."""
    shape, axes = call["self"].shape, indexed_axes(call.bound)
    picked: list[Any] = [slice(None)] * (axes[-1] + 1 if axes else 0)
    for axis, index in zip(axes, call.all("indices"), strict=True):
        picked[axis] = checked(index, shape[axis], wraps=True)
    return tuple(picked)


def _index(call: CallValues) -> list[Array]:
    return [call["self"][_places(call)]]


def _embedding(call: CallValues) -> list[Array]:
    table = call["weight"]
    return [table[checked(call["indices"], table.shape[0])]]


def _along(call: CallValues) -> tuple[Array, tuple[Array, ...]]:
    """`self`, and the NumPy index of the elements that `index` chooses along `dim`."""
    values, index, axis = np.atleast_1d(call["self"]), np.atleast_1d(call["index"]), _axis(call)
    places: list[Array] = list(np.indices(index.shape, sparse=True))
    places[axis] = checked(index, values.shape[axis])
    return values, tuple(places)


def _gather(call: CallValues) -> list[Array]:
    values, places = _along(call)
    return [values[places].reshape(call.results[0].shape)]


# --- writing by index ----------------------------------------------------------------------


def _source(call: CallValues, places: tuple[Array, ...]) -> Array:
    """The values to write: the part of `src` that `index` covers, or a number."""
    shape = np.broadcast_shapes(*(place.shape for place in places))
    name = "src" if call.bound.has("src") else "value"
    values = call[name]
    if name == "value":
        return np.broadcast_to(values, shape)
    return np.atleast_1d(values)[tuple(slice(size) for size in shape)]


def _scatter(call: CallValues) -> list[Array]:
    values, places = _along(call)
    made = values.copy()
    # Among equal indices, the last value wins: NumPy stores in row-major order.
    made[places] = _source(call, places).astype(made.dtype)
    return [made.reshape(call.results[0].shape)]


def _accumulated(call: CallValues) -> Array:
    kind = np.float64 if call.is_float else np.int64
    return np.atleast_1d(call["self"]).astype(kind)


def _scatter_add(call: CallValues) -> list[Array]:
    _, places = _along(call)
    made = _accumulated(call)
    np.add.at(made, places, _source(call, places).astype(made.dtype))
    return [made.reshape(call.results[0].shape)]


_COMBINE = {"sum": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}
_START = {"sum": 0.0, "prod": 1.0, "amax": -np.inf, "amin": np.inf}


def _scatter_reduce(call: CallValues) -> list[Array]:
    name = str(call.bound.attribute("reduce"))
    _, places = _along(call)
    source = _source(call, places).astype(np.float64)
    before = np.atleast_1d(call["self"]).astype(np.float64)
    touched = np.zeros(before.shape, np.bool_)
    touched[places] = True
    made = before.copy()
    count = touched.astype(np.float64) if call.bound.flag("include_self") else touched * 0.0
    if not call.bound.flag("include_self"):
        made[touched] = _START.get(name, 0.0)
    (_COMBINE.get(name) or np.add).at(made, places, source)
    if name == "mean":
        np.add.at(count, places, 1.0)
        parts = made / np.maximum(count, 1.0)
        made = np.where(touched, parts if call.is_float else np.floor(parts), made)
    return [np.where(touched, made, before).reshape(call.results[0].shape)]


def _rows(call: CallValues) -> tuple[int, Array]:
    axis = _axis(call)
    return axis, checked(call["index"].reshape(-1), np.atleast_1d(call["self"]).shape[axis])


def _index_add(call: CallValues) -> list[Array]:
    axis, places = _rows(call)
    made = np.moveaxis(_accumulated(call), axis, 0).copy()
    source = np.moveaxis(np.atleast_1d(call["source"]), axis, 0).astype(made.dtype)
    np.add.at(made, places, source * np.asarray(call.number("alpha")).astype(made.dtype))
    return [np.moveaxis(made, 0, axis).reshape(call.results[0].shape)]


def _index_copy(call: CallValues) -> list[Array]:
    axis, places = _rows(call)
    made = np.moveaxis(np.atleast_1d(call["self"]), axis, 0).copy()
    made[places] = np.moveaxis(np.atleast_1d(call["source"]), axis, 0)
    return [np.moveaxis(made, 0, axis).reshape(call.results[0].shape)]


def _index_put(call: CallValues) -> list[Array]:
    places = _places(call)
    if call.bound.flag("accumulate"):
        made = _accumulated(call)
        np.add.at(made, places, call["values"].astype(made.dtype))
        return [made]
    made = call["self"].copy()
    chosen = np.broadcast_to(call["values"], made[places].shape)
    made[places] = chosen.astype(made.dtype)
    return [made]


# --- order ---------------------------------------------------------------------------------


def _order(values: Array, axis: int, descending: bool) -> Array:
    """Indices in sorted order; the sort is stable, and NaN is the largest."""
    ranks = np.unique(values, return_inverse=True, equal_nan=True)[1].reshape(values.shape)
    return np.argsort(-ranks if descending else ranks, axis=axis, kind="stable")


def _sort(call: CallValues) -> list[Array]:
    values = np.atleast_1d(call["self"])
    axis = call.bound.integer("dim") % values.ndim
    order = _order(values, axis, call.bound.flag("descending"))
    shape = call.results[0].shape
    return [np.take_along_axis(values, order, axis).reshape(shape), order.reshape(shape)]


def _topk(call: CallValues) -> list[Array]:
    values = np.atleast_1d(call["self"])
    axis = call.bound.integer("dim") % values.ndim
    order = _order(values, axis, call.bound.flag("largest"))
    first = order.take(range(call.bound.integer("k")), axis=axis)
    shape = call.results[0].shape
    return [np.take_along_axis(values, first, axis).reshape(shape), first.reshape(shape)]


MOVEMENT: dict[str, Function] = {
    "copy": lambda call: [call["self"]],
    "copy_into": lambda call: [np.broadcast_to(call["src"], call.results[0].shape)],
    "cat": _cat,
    "stack": _stack,
    "flip": _flip,
    "roll": _roll,
    "repeat": _repeat,
    "pad": _pad,
    "tril": _triangle(np.tril),
    "triu": _triangle(np.triu),
    "fill": _fill,
    "zeros": _filled(lambda call: 0),
    "ones": _filled(lambda call: 1),
    "full": _filled(lambda call: call.number("fill_value")),
    "scalar": _filled(lambda call: call.number("s")),
    "arange": _arange,
    "index_select": _index_select,
    "index": _index,
    "embedding": _embedding,
    "gather": _gather,
    "scatter": _scatter,
    "scatter_add": _scatter_add,
    "scatter_reduce": _scatter_reduce,
    "index_add": _index_add,
    "index_copy": _index_copy,
    "index_put": _index_put,
    "sort": _sort,
    "argsort": lambda call: _sort(call)[1:],
    "topk": _topk,
}
