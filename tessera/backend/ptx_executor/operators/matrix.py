"""Matrix products, convolutions and attention.

Products are summed in float64 in ascending k, one by one, on every machine. BLAS is not used
because its order of summation varies. Integers are summed in 64 bits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tessera.backend.ptx_executor.operators import elementary
from tessera.backend.ptx_executor.operators.reduce import log_sum_exp, softmax_of
from tessera.backend.ptx_executor.operators.values import Array, CallValues
from tessera.ir.operators.shapes import pairs

# Elements per block of results; a block stays in the second-level cache.
_BLOCK = 1 << 15


def product(left: Array, right: Array) -> Array:
    """[..., m, k] times [..., k, n], where the leading dimensions are the same."""
    kind = np.float64 if left.dtype.kind == "f" or right.dtype.kind == "f" else np.int64
    a, b = left.astype(kind), right.astype(kind)
    (*batch, m, depth), n = a.shape, b.shape[-1]
    total = np.zeros((*batch, m, n), kind)
    if not total.size or not depth:
        return total
    step = max(1, _BLOCK // max(1, n))
    rows = a.reshape(-1, m, depth)
    matrices, results = b.reshape(-1, depth, n), total.reshape(-1, m, n)
    for row_block, matrix, result in zip(rows, matrices, results, strict=True):
        for first in range(0, m, step):
            _multiply_into(row_block[first : first + step], matrix, result[first : first + step])
    return total


def _multiply_into(a: Array, b: Array, total: Array) -> None:
    columns = np.ascontiguousarray(a.T)
    term = np.empty_like(total)
    for k in range(len(b)):
        np.multiply(columns[k][:, None], b[k], out=term)
        total += term


def _added(left: str, right: str) -> Callable[[CallValues], list[Array]]:
    """beta * self + alpha * product; if beta is 0, `self` is ignored, even a NaN."""

    def apply(call: CallValues) -> list[Array]:
        made = product(call[left], call[right])
        beta, alpha = call.number("beta"), call.number("alpha")
        scaled = made if alpha == 1 else made * np.asarray(alpha).astype(made.dtype)
        if beta == 0:
            return [scaled]
        base = call["self"].astype(made.dtype)
        return [scaled + (base if beta == 1 else base * np.asarray(beta).astype(made.dtype))]

    return apply


def _activated(call: CallValues) -> list[Array]:
    x = _added("mat1", "mat2")(call)[0]
    if call.bound.flag("use_gelu"):
        return [elementary.gelu_by_tanh(x)]
    return [np.where(x < 0, 0.0, x)]


def _scaled(call: CallValues) -> list[Array]:
    scale = call.float64("scale_a") * call.float64("scale_b")
    made = product(call["self"], call["mat2"]) * scale
    return [made + call.float64("bias") if call.bound.has("bias") else made]


def _linear(call: CallValues) -> list[Array]:
    x, weight = call["input"], call["weight"]
    made = product(x.reshape(math.prod(x.shape[:-1]), x.shape[-1]), weight.T)
    if call.has("bias"):
        made = made + call["bias"].astype(np.float64)
    return [made.reshape(*x.shape[:-1], weight.shape[0])]


def _grouped_mm(call: CallValues) -> list[Array]:
    """The product of each group of rows; rows after the last group are zero."""
    rows, ends = call["self"], call["offs"].astype(np.int64)
    made = np.zeros(call.results[0].shape)
    start = 0
    for matrix, end in zip(call["mat2"], ends, strict=True):
        last = min(max(int(end), start), rows.shape[0])
        if last > start:
            made[start:last] = product(rows[start:last], matrix)
        start = last
    return [made]


def _convolution(call: CallValues) -> list[Array]:
    data, kernel = call["input"].astype(np.float64), call["weight"].astype(np.float64)
    rank, bound = data.ndim - 2, call.bound
    stride = pairs(bound.integers("stride"), rank, 1)
    padding = pairs(bound.integers("padding"), rank, 0)
    dilation = pairs(bound.integers("dilation"), rank, 1)
    groups = bound.integer("groups")
    data = np.pad(data, [(0, 0), (0, 0), *((p, p) for p in padding)])
    shape = call.results[0].shape
    total = np.zeros((shape[0], groups, shape[1] // groups, *shape[2:]))
    inputs = data.reshape(data.shape[0], groups, -1, *data.shape[2:])
    kernels = kernel.reshape(groups, -1, *kernel.shape[1:])
    for channel in range(kernel.shape[1]):
        for place in itertools.product(*(range(size) for size in kernel.shape[2:])):
            window = tuple(
                slice(start * d, start * d + (size - 1) * s + 1, s)
                for start, d, s, size in zip(place, dilation, stride, shape[2:], strict=True)
            )
            values = inputs[:, :, channel][(slice(None), slice(None), *window)]
            at: Any = (..., *place)
            weights = kernels[:, :, channel][at]
            total += values[:, :, None] * weights.reshape(1, *weights.shape, *([1] * rank))
    made = total.reshape(shape)
    if call.has("bias"):
        made = made + call["bias"].astype(np.float64).reshape(1, -1, *([1] * rank))
    return [made]


def _attention(call: CallValues) -> list[Array]:
    query, key, value = (call[name].astype(np.float64) for name in ("query", "key", "value"))
    heads = query.shape[-3] // key.shape[-3]
    key, value = (np.repeat(tensor, heads, axis=-3) for tensor in (key, value))
    scale = call.bound.attribute("scale")
    factor = 1 / math.sqrt(max(query.shape[-1], 1)) if scale is None else call.number("scale")
    scores = product(query, np.swapaxes(key, -1, -2)) * factor
    named = {spec.name for spec in call.bound.operator.attributes}
    if "softcap" in named and call.bound.attribute("softcap") is not None:
        cap = call.number("softcap")
        scores = elementary.tanh(scores / cap) * cap
    scores = _masked(call, scores)
    keys = scores.shape[-1]
    if call.bound.has("sinks"):  # a score beside those of the keys, without a value
        sinks = np.broadcast_to(call["sinks"], (*scores.shape[:-1], 1))
        scores = np.concatenate((scores, sinks), axis=-1)
    sums = log_sum_exp(scores, (scores.ndim - 1,))
    shares = softmax_of(scores, -1)[..., :keys]
    made = {"out": product(shares, value), "logsumexp": sums[..., 0]}
    return [
        made[spec.name] if spec.name in made else np.zeros(operand.shape, np.int64)
        for spec, operand in call.bound.writes
    ]


def _masked(call: CallValues, scores: Array) -> Array:
    for name in ("attn_mask", "attn_bias"):
        if call.bound.has(name):
            mask = call[name]
            keep = mask if mask.dtype == np.bool_ else None
            scores = scores + mask if keep is None else np.where(keep, scores, -np.inf)
    if call.bound.flag("is_causal"):
        later = np.triu(np.ones(scores.shape[-2:], np.bool_), 1)
        scores = np.where(later, -np.inf, scores)
    return scores


MATRIX: dict[str, Callable[[CallValues], list[Array]]] = {
    "mm": lambda call: [product(call["self"], call["mat2"])],
    "grouped_mm": _grouped_mm,
    "bmm": lambda call: [product(call["self"], call["mat2"])],
    "scaled_mm": _scaled,
    "mv": lambda call: [product(call["self"], call["vec"][:, None])[:, 0]],
    "dot": lambda call: [product(call["self"][None], call["tensor"][:, None])[0, 0]],
    "addmm": _added("mat1", "mat2"),
    "baddbmm": _added("batch1", "batch2"),
    "addmm_activation": _activated,
    "linear": _linear,
    "convolution": _convolution,
    "attention": _attention,
}
