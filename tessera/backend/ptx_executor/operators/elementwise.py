"""Elementwise functions.

Sums, products, quotients and roots of floats are computed and rounded in float32 (float64 if an
operand is float64), as PyTorch does before it rounds to 16 bits. Other functions use float64.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tessera.backend.ptx_executor.operators import elementary
from tessera.backend.ptx_executor.operators.values import Array, CallValues, decode, round_to

Function = Callable[[CallValues], list[Array]]


def _cast(call: CallValues, name: str) -> Array:
    return np.asarray(call[name]).astype(call.wide)


def _number(call: CallValues, name: str) -> Array:
    """An attribute in the type of the arithmetic."""
    return np.asarray(call.number(name)).astype(call.wide)


def _one(function: Callable[[Array], Array]) -> Function:
    """An exact function in the type of the arithmetic."""
    return lambda call: [function(_cast(call, "self"))]


def _two(function: Callable[[Array, Array], Array]) -> Function:
    return lambda call: [function(_cast(call, "self"), _cast(call, "other"))]


def _smooth(function: Callable[[Array], Array]) -> Function:
    """A function in float64, rounded to the type of the arithmetic."""

    def apply(call: CallValues) -> list[Array]:
        made = function(call.float64("self").reshape(-1)).reshape(call["self"].shape)
        return [made.astype(call.wide) if call.is_float else made]

    return apply


def _scaled_sum(sign: int, first: str, second: str) -> Function:
    def apply(call: CallValues) -> list[Array]:
        alpha = _number(call, "alpha")
        left, right = _cast(call, first), _cast(call, second)
        scaled = right if alpha == 1 else right * alpha
        return [left + scaled if sign > 0 else left - scaled]

    return apply


def _divide(call: CallValues) -> list[Array]:
    mode = call.bound.attribute("rounding_mode")
    left, right = np.asarray(call["self"]), np.asarray(call["other"])
    if mode is not None and not call.is_float:
        quotient = np.floor_divide(left.astype(call.wide), right.astype(call.wide))
        if mode == "trunc":
            rest = left - quotient * right
            quotient = quotient + ((rest != 0) & ((left < 0) != (right < 0)))
        return [quotient]
    kind = call.wide if call.is_float else np.dtype(np.float32)
    if mode == "floor":
        # As in Python: the remainder is subtracted before the division, so 1 // 0.1 is 9.
        return [np.floor_divide(left.astype(kind), right.astype(kind))]
    exact = left.astype(kind) / right.astype(kind)
    if mode == "trunc":
        # For 16-bit floats, the quotient is rounded before it is truncated.
        dtype = call.results[0].dtype
        return [np.trunc(decode(dtype, round_to(dtype, exact)))]
    return [exact]


def _power(call: CallValues) -> list[Array]:
    base, exponent = call["self"], call["exponent"]
    if not call.is_float:
        return [_whole_power(base.astype(call.wide), exponent.astype(call.wide))]
    if exponent.size == 1:
        simple = _simple_power(base.astype(call.wide), float(exponent.reshape(-1)[0]))
        if simple is not None:
            return [simple]
    made = elementary.power(base.astype(np.float64), exponent.astype(np.float64))
    return [made.astype(call.wide)]


def _whole_power(base: Array, exponent: Array) -> Array:
    """Powers of integers; with a negative exponent, bases other than 1 and -1 give zero."""
    positive = np.power(base, np.maximum(exponent, 0))
    sign = np.where(exponent % 2 == 0, base * base, base)
    return np.where(exponent < 0, np.where(np.abs(base) == 1, sign, 0), positive)


def _simple_power(base: Array, exponent: float) -> Array | None:
    """The power, for exponents with an exactly rounded operation; else None."""
    if exponent == 1:
        return base
    if exponent == 2:
        return base * base
    if exponent == 3:
        return base * base * base
    if exponent == 0.5:
        return np.sqrt(base)
    if exponent == -1:
        result: Array | None = base.dtype.type(1) / base
        return result
    return None


def _gelu(call: CallValues) -> list[Array]:
    is_tanh = call.bound.attribute("approximate") == "tanh"
    function = elementary.gelu_by_tanh if is_tanh else elementary.gelu
    return [function(call.float64("self")).astype(call.wide)]


def _softplus(call: CallValues) -> list[Array]:
    x, beta = call.float64("self"), call.number("beta")
    steep = x * beta > call.number("threshold")
    curved = elementary.log1p(elementary.exp(np.where(steep, 0.0, x * beta))) / beta
    return [np.where(steep, x, curved).astype(call.wide)]


def _round_half_even(x: Array) -> Array:
    return x if x.dtype.kind in "iu" else np.rint(x)


def _relu(x: Array) -> Array:
    # NaN stays NaN.
    return np.where(x < 0, x.dtype.type(0), x)


def _leaky(call: CallValues) -> list[Array]:
    x = _cast(call, "self")
    return [np.where(x > 0, x, x * _number(call, "negative_slope"))]


def _rsqrt(call: CallValues) -> list[Array]:
    return [(1.0 / np.sqrt(call.float64("self"))).astype(call.wide)]


def _three(sign: Callable[[Array, Array], Array]) -> Function:
    def apply(call: CallValues) -> list[Array]:
        value = _number(call, "value")
        first, second = _cast(call, "tensor1"), _cast(call, "tensor2")
        return [_cast(call, "self") + value * sign(first, second)]

    return apply


def _lerp(call: CallValues) -> list[Array]:
    start, end, weight = (_cast(call, name) for name in ("self", "end", "weight"))
    near = start + weight * (end - start)
    far = end - (end - start) * (1 - weight)
    return [np.where(np.abs(weight) < 0.5, near, far)]


def _compare(function: Callable[[Array, Array], Array]) -> Function:
    def apply(call: CallValues) -> list[Array]:
        left, right = np.asarray(call["self"]), np.asarray(call["other"])
        if left.dtype.kind == "f" or right.dtype.kind == "f":
            left, right = left.astype(call.wide), right.astype(call.wide)
        return [function(left, right)]

    return apply


def _logical(function: Callable[[Array, Array], Array]) -> Function:
    return lambda call: [function(call["self"] != 0, call["other"] != 0)]


def _bitwise(function: Callable[[Array, Array], Array]) -> Function:
    return lambda call: [function(_integers(call, "self"), _integers(call, "other"))]


def _integers(call: CallValues, name: str) -> Array:
    return np.asarray(call[name]).astype(np.int64)


def _bitwise_not(call: CallValues) -> list[Array]:
    x = call["self"]
    return [~x if x.dtype == np.bool_ else np.invert(x.astype(np.int64))]


def _where(call: CallValues) -> list[Array]:
    return [np.where(call["condition"] != 0, _cast(call, "self"), _cast(call, "other"))]


def _masked_fill(call: CallValues) -> list[Array]:
    return [np.where(call["mask"], _cast(call, "value"), _cast(call, "self"))]


def _clamp(call: CallValues) -> list[Array]:
    values = _cast(call, "self")
    if call.has("min"):
        values = np.maximum(values, _cast(call, "min"))
    if call.has("max"):
        values = np.minimum(values, _cast(call, "max"))
    return [values]


ELEMENTWISE: dict[str, Function] = {
    "neg": _one(np.negative),
    "abs": _one(np.abs),
    "relu": _one(_relu),
    "sign": _one(np.sign),
    "floor": _one(np.floor),
    "ceil": _one(np.ceil),
    "trunc": _one(np.trunc),
    "round": _one(_round_half_even),
    "square": _one(np.square),
    "sqrt": _one(lambda x: np.sqrt(x if x.dtype.kind == "f" else x.astype(np.float32))),
    "reciprocal": _one(lambda x: 1 / x if x.dtype.kind == "f" else np.float32(1) / x),
    "rsqrt": _rsqrt,
    "exp": _smooth(elementary.exp),
    "exp2": _smooth(lambda x: elementary.power(np.full(1, 2.0), x)),
    "expm1": _smooth(elementary.expm1),
    "log": _smooth(elementary.log),
    "log2": _smooth(elementary.log2),
    "log1p": _smooth(elementary.log1p),
    "sigmoid": _smooth(elementary.sigmoid),
    "silu": _smooth(lambda x: x * elementary.sigmoid(x)),
    "tanh": _smooth(elementary.tanh),
    "sin": _smooth(elementary.sin),
    "cos": _smooth(elementary.cos),
    "erf": _smooth(elementary.erf),
    "gelu": _gelu,
    "leaky_relu": _leaky,
    "softplus": _softplus,
    "add": _scaled_sum(1, "self", "other"),
    "sub": _scaled_sum(-1, "self", "other"),
    "rsub": _scaled_sum(-1, "other", "self"),
    "mul": _two(np.multiply),
    "div": _divide,
    "floor_divide": _two(np.floor_divide),
    "maximum": _two(np.maximum),
    "minimum": _two(np.minimum),
    "remainder": _two(np.mod),  # has the sign of the divisor
    "fmod": _two(np.fmod),
    "pow": _power,
    "addcmul": _three(np.multiply),
    "addcdiv": _three(np.divide),
    "lerp": _lerp,
    "eq": _compare(np.equal),
    "ne": _compare(np.not_equal),
    "lt": _compare(np.less),
    "le": _compare(np.less_equal),
    "gt": _compare(np.greater),
    "ge": _compare(np.greater_equal),
    "logical_and": _logical(np.logical_and),
    "logical_or": _logical(np.logical_or),
    "logical_xor": _logical(np.logical_xor),
    "logical_not": lambda call: [call["self"] == 0],
    "isnan": lambda call: [call["self"] != call["self"]],
    "bitwise_and": _bitwise(np.bitwise_and),
    "bitwise_or": _bitwise(np.bitwise_or),
    "bitwise_xor": _bitwise(np.bitwise_xor),
    "bitwise_left_shift": _bitwise(np.left_shift),
    "bitwise_right_shift": _bitwise(np.right_shift),
    "bitwise_not": _bitwise_not,
    "where": _where,
    "masked_fill": _masked_fill,
    "clamp": _clamp,
}
