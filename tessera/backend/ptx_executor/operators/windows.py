"""Norms by kept figures, the largest elements of windows, weights by direction and length."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from tessera.backend.ptx_executor.operators.reduce import tree_sum
from tessera.backend.ptx_executor.operators.values import Array, CallValues
from tessera.ir.operators.shapes import axis_of
from tessera.ir.operators.windows import window_sizes


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
    """The first of the largest in every window, and the last NaN if there is one."""
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


WINDOWS: dict[str, Callable[[CallValues], list[Array]]] = {
    "batch_norm": _batch_norm,
    "max_pool2d": _max_pool,
    "weight_norm": _weight_norm,
}
