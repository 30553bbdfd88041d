"""The operator table: elementwise functions.

Operands broadcast. A number may replace a tensor, as the overloads of ATen allow.
"""

from __future__ import annotations

from collections.abc import Iterator

from tessera.ir.operators import shapes, work
from tessera.ir.operators.notation import forms, number, word
from tessera.ir.operators.records import AttributeSpec, Operator, ResultType

_EASY = "neg abs relu sign floor ceil trunc square round"
_HARD = "exp exp2 expm1 log log2 log1p sqrt rsqrt reciprocal sigmoid silu tanh sin cos erf"
_COMPARISONS = "eq ne lt le gt ge"
_ALPHA = number("alpha", 1)


def elementwise_operators() -> Iterator[Operator]:
    """All elementwise operators."""
    yield from _unary(_EASY)
    yield from _unary(_HARD, hard=True)
    yield from _unary("gelu", word("approximate", "none"), hard=True)
    yield from _unary("leaky_relu", number("negative_slope", 0.01))
    bend = number("beta", 1), number("threshold", 20)
    yield from _each("softplus softplus.out", "self:number", *bend, hard=True)
    yield from _arithmetic()
    yield from _logic()
    yield from _choices()


def _each(
    names: str,
    reads: str,
    *attributes: AttributeSpec,
    function: str = "",
    writes: str = "out",
    hard: bool = False,
    result: ResultType = ResultType.PROMOTED,
) -> Iterator[Operator]:
    """Forms of an elementwise operator."""
    effort = work.per_element_hard if hard else work.per_element
    return forms(
        names,
        reads,
        shapes.elementwise,
        effort,
        *attributes,
        function=function,
        writes=writes,
        result=result,
    )


def _unary(names: str, *attributes: AttributeSpec, hard: bool = False) -> Iterator[Operator]:
    for name in names.split():
        yield from _each(f"{name} {name}.out {name}_", "self:number", *attributes, hard=hard)


def _binary(
    name: str,
    *attributes: AttributeSpec,
    out: str = "out",
    reads: str = "self other=",
    result: ResultType = ResultType.PROMOTED,
) -> Iterator[Operator]:
    tensors = f"{name}.Tensor {name}.{out} {name}_.Tensor"
    numbers = f"{name}.Scalar {name}.Scalar_out {name}_.Scalar"
    return _each(f"{tensors} {numbers}", reads, *attributes, result=result)


def _arithmetic() -> Iterator[Operator]:
    yield from _binary("add", _ALPHA)
    yield from _binary("sub", _ALPHA)
    yield from _binary("mul")
    mode, free = word("rounding_mode"), ResultType.FREE
    yield from _binary("div", mode, result=free)
    modes = "div.Tensor_mode div.out_mode div_.Tensor_mode div.Scalar_mode div_.Scalar_mode"
    yield from _each(modes, "self other=", mode, result=free)
    whole = "floor_divide floor_divide.out floor_divide_.Tensor"
    parts = "floor_divide.Scalar floor_divide.Scalar_out floor_divide_.Scalar"
    yield from _each(f"{whole} {parts}", "self other=")
    backward = "rsub.Tensor rsub.Scalar rsub.Tensor_out rsub.Scalar_out"
    yield from _each(backward, "self other=", _ALPHA)
    for name in ("maximum", "minimum"):
        yield from _each(f"{name} {name}.out", "self other=")
    yield from _binary("remainder", out="Tensor_out")
    yield from _binary("fmod", out="Tensor_out")
    powers = (
        "pow.Tensor_Tensor pow.Tensor_Tensor_out pow.Tensor_Scalar pow.Tensor_Scalar_out"
        " pow.Scalar pow.Scalar_out pow_.Scalar pow_.Tensor"
    )
    yield from _each(powers, "self= exponent=", hard=True)
    for name in ("addcmul", "addcdiv"):
        each = f"{name} {name}.out {name}_"
        yield from _each(each, "self tensor1 tensor2", number("value", 1))
    between = "lerp.Scalar lerp.Tensor lerp.Scalar_out lerp.Tensor_out lerp_.Scalar lerp_.Tensor"
    yield from _each(between, "self end weight=")


def _logic() -> Iterator[Operator]:
    free = ResultType.FREE
    for name in _COMPARISONS.split():
        each = f"{name}.Tensor {name}.Tensor_out {name}.Scalar {name}.Scalar_out"
        yield from _each(each, "self other=", writes="out:bool", result=free)
    for name in ("logical_and", "logical_or", "logical_xor"):
        each = f"{name} {name}.out {name}_"
        yield from _each(each, "self other=", writes="out:bool", result=free)
    for name in ("logical_not", "isnan"):
        yield from _each(f"{name} {name}.out", "self", writes="out:bool", result=free)
    bits = "self:integer_or_bool other:integer_or_bool="
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        yield from _binary(name, out="Tensor_out", reads=bits)
    for name in ("bitwise_left_shift", "bitwise_right_shift"):
        each = f"{name}.Tensor {name}.Tensor_out {name}.Tensor_Scalar {name}.Tensor_Scalar_out"
        yield from _each(f"{each} {name}_.Tensor {name}_.Tensor_Scalar", "self:integer other=")
    yield from _each("bitwise_not bitwise_not.out bitwise_not_", "self:integer_or_bool")


def _choices() -> Iterator[Operator]:
    either = "where.self where.self_out where.ScalarSelf where.ScalarOther where.Scalar"
    chosen = "condition:integer_or_bool self= other="
    yield from _each(either, chosen, result=ResultType.FREE)
    filled = (
        "masked_fill.Scalar masked_fill.Scalar_out masked_fill_.Scalar"
        " masked_fill.Tensor masked_fill.Tensor_out masked_fill_.Tensor"
    )
    yield from _each(filled, "self mask:bool value=", result=ResultType.SAME)
    limited = "clamp clamp.out clamp_ clamp.Tensor clamp.Tensor_out clamp_.Tensor"
    yield from _each(limited, "self min?= max?=")
    for name, limit in (("clamp_min", "min?="), ("clamp_max", "max?=")):
        each = f"{name} {name}.out {name}_ {name}.Tensor {name}_.Tensor"
        yield from _each(each, f"self {limit}", function="clamp")
