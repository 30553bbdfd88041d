"""The operator table: functions of each element.

Operands that broadcast. A tensor may be replaced by a number, as ATen's overloads allow.
"""

from __future__ import annotations

from collections.abc import Iterator

from tessera.ir.operators import shapes, work
from tessera.ir.operators.records import (
    AttributeKind,
    AttributeSpec,
    Kinds,
    OperandSpec,
    Operator,
    ResultType,
)

_EASY = ("neg", "abs", "relu", "sign", "floor", "ceil", "trunc", "square")
_HARD = (
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log1p",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "sigmoid",
    "silu",
    "tanh",
    "sin",
    "cos",
    "erf",
)
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")

_SELF = OperandSpec(name="self")
_FLOAT_SELF = OperandSpec(name="self", kinds=Kinds.NUMBER)
_OTHER = OperandSpec(name="other", or_number=True)
_OUT = OperandSpec(name="out")
_BOOL_OUT = OperandSpec(name="out", kinds=Kinds.BOOL)
_ALPHA = AttributeSpec(name="alpha", kind=AttributeKind.NUMBER, default=1)


def number(name: str, default: float | None = None, *, required: bool = False) -> AttributeSpec:
    """An attribute that is a number."""
    return AttributeSpec(
        name=name, kind=AttributeKind.NUMBER, default=default, is_required=required
    )


def entry(
    name: str,
    function: str,
    reads: tuple[OperandSpec, ...],
    *,
    writes: tuple[OperandSpec, ...] = (_OUT,),
    attributes: tuple[AttributeSpec, ...] = (),
    hard: bool = False,
    result: ResultType = ResultType.PROMOTED,
) -> Operator:
    """An elementwise operator; a name that ends in `_` before its overload works in place."""
    return Operator(
        name=f"aten::{name}",
        function=function,
        reads=reads,
        writes=writes,
        attributes=attributes,
        shapes=shapes.elementwise,
        work=work.per_element_hard if hard else work.per_element,
        result=result,
        is_in_place=name.split(".")[0].endswith("_"),
    )


def _unary(
    name: str, *, hard: bool, attributes: tuple[AttributeSpec, ...] = ()
) -> Iterator[Operator]:
    for form in (name, f"{name}.out", f"{name}_"):
        yield entry(form, name, (_FLOAT_SELF,), attributes=attributes, hard=hard)


def _binary(
    name: str,
    *,
    attributes: tuple[AttributeSpec, ...] = (),
    tensor_out: str = "out",
    kinds: Kinds = Kinds.ANY,
    writes: tuple[OperandSpec, ...] = (_OUT,),
    result: ResultType = ResultType.PROMOTED,
) -> Iterator[Operator]:
    reads = (
        OperandSpec(name="self", kinds=kinds),
        OperandSpec(name="other", kinds=kinds, or_number=True),
    )
    overloads = (
        f"{name}.Tensor",
        f"{name}.{tensor_out}",
        f"{name}_.Tensor",
        f"{name}.Scalar",
        f"{name}.Scalar_out",
        f"{name}_.Scalar",
    )
    for form in overloads:
        yield entry(form, name, reads, attributes=attributes, writes=writes, result=result)


def elementwise_operators() -> Iterator[Operator]:
    """All of them."""
    for name in _EASY:
        yield from _unary(name, hard=False)
    for name in _HARD:
        yield from _unary(name, hard=True)
    yield from _unary("gelu", hard=True, attributes=(_text("approximate", "none"),))
    yield from _unary("leaky_relu", hard=False, attributes=(number("negative_slope", 0.01),))
    for form in ("softplus", "softplus.out"):
        bend = (number("beta", 1), number("threshold", 20))
        yield entry(form, "softplus", (_FLOAT_SELF,), attributes=bend, hard=True)
    yield from _unary("round", hard=False)
    yield from _arithmetic()
    yield from _logic()
    yield from _choices()


def _text(name: str, default: str | None) -> AttributeSpec:
    return AttributeSpec(name=name, kind=AttributeKind.TEXT, default=default)


def _arithmetic() -> Iterator[Operator]:
    yield from _binary("add", attributes=(_ALPHA,))
    yield from _binary("sub", attributes=(_ALPHA,))
    yield from _binary("mul")
    yield from _binary("div", attributes=(_text("rounding_mode", None),), result=ResultType.FREE)
    for form in (
        "div.Tensor_mode",
        "div.out_mode",
        "div_.Tensor_mode",
        "div.Scalar_mode",
        "div_.Scalar_mode",
    ):
        mode = (_text("rounding_mode", None),)
        yield entry(form, "div", (_SELF, _OTHER), attributes=mode, result=ResultType.FREE)
    for form in (
        "floor_divide",
        "floor_divide.out",
        "floor_divide_.Tensor",
        "floor_divide.Scalar",
        "floor_divide.Scalar_out",
        "floor_divide_.Scalar",
    ):
        yield entry(form, "floor_divide", (_SELF, _OTHER))
    for form in ("rsub.Tensor", "rsub.Scalar", "rsub.Tensor_out", "rsub.Scalar_out"):
        yield entry(form, "rsub", (_SELF, _OTHER), attributes=(_ALPHA,))
    for name in ("maximum", "minimum"):
        for form in (name, f"{name}.out"):
            yield entry(form, name, (_SELF, _OTHER))
    yield from _binary("remainder", tensor_out="Tensor_out")
    yield from _binary("fmod", tensor_out="Tensor_out")
    power = (
        OperandSpec(name="self", or_number=True),
        OperandSpec(name="exponent", or_number=True),
    )
    for form in (
        "pow.Tensor_Tensor",
        "pow.Tensor_Tensor_out",
        "pow.Tensor_Scalar",
        "pow.Tensor_Scalar_out",
        "pow.Scalar",
        "pow.Scalar_out",
        "pow_.Scalar",
        "pow_.Tensor",
    ):
        yield entry(form, "pow", power, hard=True)
    three = (_SELF, OperandSpec(name="tensor1"), OperandSpec(name="tensor2"))
    for name in ("addcmul", "addcdiv"):
        for form in (name, f"{name}.out", f"{name}_"):
            yield entry(form, name, three, attributes=(number("value", 1),))
    ends = (_SELF, OperandSpec(name="end"), OperandSpec(name="weight", or_number=True))
    for form in (
        "lerp.Scalar",
        "lerp.Tensor",
        "lerp.Scalar_out",
        "lerp.Tensor_out",
        "lerp_.Scalar",
        "lerp_.Tensor",
    ):
        yield entry(form, "lerp", ends)


def _logic() -> Iterator[Operator]:
    for name in _COMPARISONS:
        reads = (_SELF, _OTHER)
        for form in (
            f"{name}.Tensor",
            f"{name}.Tensor_out",
            f"{name}.Scalar",
            f"{name}.Scalar_out",
        ):
            yield entry(form, name, reads, writes=(_BOOL_OUT,), result=ResultType.FREE)
    for name in ("logical_and", "logical_or", "logical_xor"):
        for form in (name, f"{name}.out", f"{name}_"):
            yield entry(form, name, (_SELF, _OTHER), writes=(_BOOL_OUT,), result=ResultType.FREE)
    for name in ("logical_not", "isnan"):
        for form in (name, f"{name}.out"):
            yield entry(form, name, (_SELF,), writes=(_BOOL_OUT,), result=ResultType.FREE)
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        yield from _binary(name, tensor_out="Tensor_out", kinds=Kinds.INTEGER_OR_BOOL)
    shifted = OperandSpec(name="self", kinds=Kinds.INTEGER)
    for name in ("bitwise_left_shift", "bitwise_right_shift"):
        for form in ("Tensor", "Tensor_out", "Tensor_Scalar", "Tensor_Scalar_out"):
            yield entry(f"{name}.{form}", name, (shifted, _OTHER))
        for form in ("Tensor", "Tensor_Scalar"):
            yield entry(f"{name}_.{form}", name, (shifted, _OTHER))
    whole = OperandSpec(name="self", kinds=Kinds.INTEGER_OR_BOOL)
    for form in ("bitwise_not", "bitwise_not.out", "bitwise_not_"):
        yield entry(form, "bitwise_not", (whole,))


def _choices() -> Iterator[Operator]:
    condition = OperandSpec(name="condition", kinds=Kinds.INTEGER_OR_BOOL)
    chosen = (condition, OperandSpec(name="self", or_number=True), _OTHER)
    for form in (
        "where.self",
        "where.self_out",
        "where.ScalarSelf",
        "where.ScalarOther",
        "where.Scalar",
    ):
        yield entry(form, "where", chosen, result=ResultType.FREE)
    mask = OperandSpec(name="mask", kinds=Kinds.BOOL)
    filled = (_SELF, mask, OperandSpec(name="value", or_number=True))
    for form in (
        "masked_fill.Scalar",
        "masked_fill.Scalar_out",
        "masked_fill_.Scalar",
        "masked_fill.Tensor",
        "masked_fill.Tensor_out",
        "masked_fill_.Tensor",
    ):
        yield entry(form, "masked_fill", filled, result=ResultType.SAME)
    limits = (
        _SELF,
        OperandSpec(name="min", or_number=True, is_optional=True),
        OperandSpec(name="max", or_number=True, is_optional=True),
    )
    for form in (
        "clamp",
        "clamp.out",
        "clamp_",
        "clamp.Tensor",
        "clamp.Tensor_out",
        "clamp_.Tensor",
    ):
        yield entry(form, "clamp", limits)
    for name, limit in (("clamp_min", limits[1]), ("clamp_max", limits[2])):
        for form in (name, f"{name}.out", f"{name}_", f"{name}.Tensor", f"{name}_.Tensor"):
            yield entry(form, "clamp", (_SELF, limit))
