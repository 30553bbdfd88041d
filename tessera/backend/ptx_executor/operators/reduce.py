"""Reductions, norms, scans and windows, in float64 and in a fixed order.

A sum is a tree that adds halves element by element, which NumPy computes equally on every machine.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np

from tessera.backend.ptx_executor.operators import elementary
from tessera.backend.ptx_executor.operators.values import Array, CallValues
from tessera.ir.operators.shapes import axes_of, axis_of
from tessera.ir.operators.windows import window_sizes
from tessera.ir.program.data_type import DataType

Function = Callable[[CallValues], list[Array]]


def _to_front(values: Array, axes: tuple[int, ...]) -> Array:
    """Merge the reduced dimensions into one, in front of the others."""
    moved = np.moveaxis(values, axes, range(len(axes)))
    return moved.reshape(math.prod(moved.shape[: len(axes)]), *moved.shape[len(axes) :])


def _with_ones(values: Array, axes: tuple[int, ...]) -> Array:
    return np.expand_dims(values, tuple(sorted(axes)))


def tree_sum(values: Array, axes: tuple[int, ...]) -> Array:
    """The sum over some dimensions, which are kept with length 1."""
    rows = _to_front(values, axes)
    if not len(rows):
        return _with_ones(np.zeros(rows.shape[1:], values.dtype), axes)
    while len(rows) > 1:
        half = len(rows) // 2
        paired = rows[:half] + rows[half : 2 * half]
        rows = paired if len(rows) % 2 == 0 else np.concatenate([paired, rows[-1:]])
    return _with_ones(rows[0], axes)


def _count(values: Array, axes: tuple[int, ...]) -> int:
    return math.prod(values.shape[axis] for axis in axes)


def mean_of(values: Array, axes: tuple[int, ...]) -> Array:
    """The mean over some dimensions, which are kept with length 1."""
    return tree_sum(values, axes) / _count(values, axes)


def softmax_of(values: Array, dim: int) -> Array:
    """Exponentials divided by their sum; a row of only -inf gives NaN, as in PyTorch."""
    axis = dim % max(values.ndim, 1)
    if not values.size:
        return values
    powers = elementary.exp(values - values.max(axis=axis, keepdims=True))
    return powers / tree_sum(powers, (axis,))


def log_sum_exp(values: Array, axes: tuple[int, ...]) -> Array:
    """The logarithm of the sum of exponentials; the dimensions are kept with length 1."""
    if not values.size:
        return elementary.log(tree_sum(values, axes))
    top = values.max(axis=axes, keepdims=True)
    base = np.where(np.isfinite(top), top, 0.0)
    return elementary.log(tree_sum(elementary.exp(values - base), axes)) + base


# --- entries -------------------------------------------------------------------------------


def _axes(call: CallValues) -> tuple[int, ...]:
    return axes_of(call.bound, call["self"].ndim)


def _numbers(call: CallValues) -> Array:
    """`self` in float64, or in 64-bit integers if the result is not a float."""
    made = call.results[0].dtype
    values = call["self"]
    if values.dtype.kind == "f" or made.is_float:
        return values.astype(np.float64)
    return values.astype(np.uint64 if made is DataType.U64 else np.int64)


def _shaped(call: CallValues, values: Array) -> Array:
    """Values without the reduced dimensions, if the result does not keep them."""
    return values.reshape(call.results[0].shape)


def _over(function: Callable[[Array, tuple[int, ...]], Array]) -> Function:
    return lambda call: [_shaped(call, function(_numbers(call), _axes(call)))]


def _extreme(name: str) -> Function:
    def apply(call: CallValues) -> list[Array]:
        return [_shaped(call, getattr(call["self"], name)(axis=_axes(call), keepdims=True))]

    return apply


def _best(values: Array, axis: int, largest: bool) -> Array:
    """Indices of the first best elements; a NaN ranks above any number."""
    keys = np.where(values != values, np.inf if largest else -np.inf, values)
    if values.dtype.kind == "f" and (values != values).any():
        is_nan = values != values
        places = (keys.argmax if largest else keys.argmin)(axis=axis)
        first = is_nan.argmax(axis=axis)
        result: Array = np.where(is_nan.any(axis=axis), first, places)
        return result
    result = (values.argmax if largest else values.argmin)(axis=axis)
    return result


def _arg(largest: bool) -> Function:
    def apply(call: CallValues) -> list[Array]:
        dims, values = call.bound.integers("dim"), call["self"]
        if dims is None:
            return [_shaped(call, _best(values.reshape(-1), 0, largest))]
        axis = dims[0] % max(values.ndim, 1)
        values = np.atleast_1d(values)
        return [_shaped(call, _best(values, axis, largest))]

    return apply


def _best_along(largest: bool) -> Function:
    def apply(call: CallValues) -> list[Array]:
        values = np.atleast_1d(call["self"])
        axis = call.bound.integer("dim") % values.ndim
        places = np.expand_dims(_best(values, axis, largest), axis)
        best = np.take_along_axis(values, places, axis)
        return [_shaped(call, best), _shaped(call, places)]

    return apply


def _variance(call: CallValues) -> tuple[Array, Array]:
    values, axes = call["self"].astype(np.float64), _axes(call)
    mean = mean_of(values, axes)
    squares = tree_sum(np.square(values - mean), axes)
    count = max(_count(values, axes) - call.number("correction"), 0)
    return squares / np.float64(count), mean


def _product(call: CallValues) -> list[Array]:
    rows = _to_front(_numbers(call), _axes(call))
    total = np.ones(rows.shape[1:], rows.dtype)
    for row in rows:
        total = total * row
    return [_shaped(call, total)]


def _norm(call: CallValues) -> list[Array]:
    values, axes, order = np.abs(_numbers(call)), _axes(call), call.number("ord")
    if order == math.inf or order == -math.inf:
        made = (values.max if order > 0 else values.min)(axis=axes, keepdims=True)
    elif order == 2:
        made = np.sqrt(tree_sum(values * values, axes))
    elif order == 1:
        made = tree_sum(values, axes)
    elif order == 0:
        made = tree_sum((values != 0).astype(np.float64), axes)
    else:
        total = tree_sum(elementary.power(values, np.asarray(order)), axes)
        made = elementary.power(total, np.asarray(1 / order))
    return [_shaped(call, made)]


def _softmax(is_log: bool) -> Function:
    def apply(call: CallValues) -> list[Array]:
        values, dim = np.atleast_1d(call["self"].astype(np.float64)), call.bound.integer("dim")
        axis = dim % values.ndim
        made = values - log_sum_exp(values, (axis,)) if is_log else softmax_of(values, axis)
        return [_shaped(call, made)]

    return apply


def _safe_softmax(call: CallValues) -> list[Array]:
    """A softmax in which rows without any valid element are zero, not NaN."""
    values = np.atleast_1d(call["self"].astype(np.float64))
    axis = call.bound.integer("dim") % values.ndim
    is_empty = np.isneginf(values).all(axis=axis, keepdims=True)
    made = softmax_of(np.where(is_empty, 0.0, values), axis)
    return [_shaped(call, np.where(is_empty, 0.0, made))]


def _layer_norm(call: CallValues) -> list[Array]:
    values = call["input"].astype(np.float64)
    rank = len(call.bound.integers("normalized_shape") or ())
    axes = tuple(range(values.ndim - rank, values.ndim))
    mean = mean_of(values, axes)
    rstd = 1.0 / np.sqrt(mean_of(np.square(values - mean), axes) + call.number("eps"))
    made = (values - mean) * rstd
    return [_affine(call, made), mean, rstd][: len(call.results)]


def _affine(call: CallValues, made: Array, shape: tuple[int, ...] | None = None) -> Array:
    for name in ("weight", "bias"):
        if call.bound.has(name):
            given = call[name].astype(np.float64)
            given = given if shape is None else given.reshape(shape)
            made = made * given if name == "weight" else made + given
    return made


def _rms_norm(call: CallValues) -> list[Array]:
    values = call["input"].astype(np.float64)
    rank = len(call.bound.integers("normalized_shape") or ())
    axes = tuple(range(values.ndim - rank, values.ndim))
    eps = call.bound.attribute("eps")
    small = {DataType.F64: 2.0**-52, DataType.F16: 2.0**-10, DataType.BF16: 2.0**-7}
    dtype = call.bound.operand("input").dtype
    # The default of eps is the machine epsilon of the type.
    least = float(eps) if isinstance(eps, int | float) else small.get(dtype, 2.0**-23)
    rstd = 1.0 / np.sqrt(mean_of(values * values, axes) + least)
    return [_affine(call, values * rstd), rstd][: len(call.results)]


def _group_norm(call: CallValues) -> list[Array]:
    values = call["input"].astype(np.float64)
    groups = call.bound.integer("group")
    split = values.reshape(values.shape[0], groups, -1)
    mean = mean_of(split, (2,))
    rstd = 1.0 / np.sqrt(mean_of(np.square(split - mean), (2,)) + call.number("eps"))
    made = ((split - mean) * rstd).reshape(values.shape)
    made = _affine(call, made, (1, -1, *([1] * (values.ndim - 2))))
    return [made, mean[..., 0], rstd[..., 0]][: len(call.results)]


def _scan(combine: Callable[[Array, Array], Array]) -> Function:
    def apply(call: CallValues) -> list[Array]:
        values = np.atleast_1d(_numbers(call))
        axis = call.bound.integer("dim") % values.ndim
        rows = np.moveaxis(values, axis, 0).copy()
        for place in range(1, len(rows)):
            rows[place] = combine(rows[place - 1], rows[place])
        return [_shaped(call, np.moveaxis(rows, 0, axis))]

    return apply


def _truth(is_all: bool) -> Function:
    def apply(call: CallValues) -> list[Array]:
        flags, axes = call["self"] != 0, _axes(call)
        made = (
            flags.all(axis=axes, keepdims=True) if is_all else flags.any(axis=axes, keepdims=True)
        )
        return [_shaped(call, made)]

    return apply


def _histogram(call: CallValues) -> list[Array]:
    """Counts per bin of equal width between two numbers; equal numbers mean the whole range."""
    values = call["self"].astype(np.float64).ravel()
    low, high, bins = call.number("min"), call.number("max"), call.bound.integer("bins")
    if low == high and values.size:
        low, high = float(values.min()), float(values.max())
    if low == high:
        low, high = low - 1, high + 1
    inside = values[(values >= low) & (values <= high)]
    places = np.minimum(((inside - low) / (high - low) * bins).astype(np.int64), bins - 1)
    return [np.bincount(places, minlength=bins).astype(np.float64)]


# --- windows and weights -------------------------------------------------------------------


def _batch_norm(call: CallValues) -> list[Array]:
    values = call["input"].astype(np.float64)

    def of_channels(name: str) -> Array:
        return call[name].astype(np.float64).reshape(1, -1, *([1] * (values.ndim - 2)))

    spread = np.sqrt(of_channels("running_var") + call.number("eps"))
    made = (values - of_channels("running_mean")) / spread
    made = made * of_channels("weight") if call.has("weight") else made
    made = made + of_channels("bias") if call.has("bias") else made
    return [made, *(np.zeros(result.shape) for result in call.results[1:])]


def _max_pool(call: CallValues) -> list[Array]:
    """The first largest element of each window; if a window has NaNs, its last NaN."""
    values = call["self"].astype(np.float64)
    kernel, stride, padding, dilation = window_sizes(call.bound)
    shape, sizes = call.results[0].shape, values.shape[-2:]
    best, place = np.full(shape, -np.inf), np.full(shape, -1, np.int64)
    for offsets in itertools.product(*map(range, kernel)):
        rows, columns = (
            np.arange(shape[axis - 2]) * stride[axis] - padding[axis] + offset * dilation[axis]
            for axis, offset in enumerate(offsets)
        )
        inside = ((rows >= 0) & (rows < sizes[0]))[:, None] & (columns >= 0) & (columns < sizes[1])
        rows, columns = rows.clip(0, sizes[0] - 1)[:, None], columns.clip(0, sizes[1] - 1)
        seen = values[..., rows, columns]
        taken = inside & ((place < 0) | (seen > best) | np.isnan(seen))
        best = np.where(taken, seen, best)
        place = np.where(taken, rows * sizes[1] + columns, place)
    return [best, place]


def _weight_norm(call: CallValues) -> list[Array]:
    values = call["v"].astype(np.float64)
    axis = axis_of(call.bound.integer("dim"), values.ndim)
    others = tuple(place for place in range(values.ndim) if place != axis)
    lengths = np.sqrt(tree_sum(np.square(values), others))
    made = values * (call["g"].astype(np.float64) / lengths)
    return [made, lengths][: len(call.results)]


REDUCTIONS: dict[str, Function] = {
    "sum": _over(tree_sum),
    "mean": _over(mean_of),
    "prod": _product,
    "amax": _extreme("max"),
    "amin": _extreme("min"),
    "any": _truth(False),
    "all": _truth(True),
    "argmax": _arg(True),
    "argmin": _arg(False),
    "max_dim": _best_along(True),
    "min_dim": _best_along(False),
    "var": lambda call: [_shaped(call, _variance(call)[0])],
    "var_mean": lambda call: [_shaped(call, moment) for moment in _variance(call)],
    "logsumexp": lambda call: [
        _shaped(call, log_sum_exp(call["self"].astype(np.float64), _axes(call)))
    ],
    "vector_norm": _norm,
    "softmax": _softmax(False),
    "log_softmax": _softmax(True),
    "safe_softmax": _safe_softmax,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "cumsum": _scan(np.add),
    "histc": _histogram,
    "cumprod": _scan(np.multiply),
    "batch_norm": _batch_norm,
    "max_pool2d": _max_pool,
    "weight_norm": _weight_norm,
}
