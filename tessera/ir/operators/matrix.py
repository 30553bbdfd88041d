"""The operator table: convolutions, attention, norms and reductions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tessera.ir.operators import shapes, work
from tessera.ir.operators.elementwise import number
from tessera.ir.operators.records import (
    AttributeKind,
    AttributeSpec,
    Bound,
    Kinds,
    OperandSpec,
    Operator,
    ResultType,
    Shape,
    Work,
)
from tessera.ir.program.program import AttributeValue

_ShapeRule = Callable[[Bound], tuple[Shape | None, ...]]
_WorkRule = Callable[[Bound], Work]


def attribute(
    name: str, kind: AttributeKind, default: AttributeValue = None, *, required: bool = False
) -> AttributeSpec:
    """An attribute of any kind."""
    return AttributeSpec(name=name, kind=kind, default=default, is_required=required)


def operands(names: str, kinds: Kinds = Kinds.ANY) -> tuple[OperandSpec, ...]:
    """Specifications from names with a space between; `?` marks those that may be missing."""
    return tuple(
        OperandSpec(name=name.rstrip("?"), kinds=kinds, is_optional=name.endswith("?"))
        for name in names.split()
    )


def forms(
    names: str,
    function: str,
    reads: tuple[OperandSpec, ...],
    rule: _ShapeRule,
    effort: _WorkRule,
    *,
    writes: tuple[OperandSpec, ...] = (OperandSpec(name="out"),),
    attributes: tuple[AttributeSpec, ...] = (),
    result: ResultType = ResultType.SAME,
) -> Iterator[Operator]:
    """One entry per name, which have a space between."""
    for name in names.split():
        yield Operator(
            name=f"aten::{name}",
            function=function,
            reads=reads,
            writes=writes,
            attributes=attributes,
            shapes=rule,
            work=effort,
            result=result,
            is_in_place=name.split(".")[0].endswith("_"),
        )


DIM = attribute("dim", AttributeKind.INTEGER, required=True)
_DIMS = attribute("dim", AttributeKind.INTEGERS)
_KEEP = attribute("keepdim", AttributeKind.BOOL, False)
_TYPE = attribute("dtype", AttributeKind.TYPE)
_SELF = operands("self")


def matrix_operators() -> Iterator[Operator]:
    """All of them."""
    yield from _networks()
    yield from _norms()
    yield from _reductions()


def _networks() -> Iterator[Operator]:
    sizes = tuple(
        attribute(name, AttributeKind.INTEGERS)
        for name in ("stride", "padding", "dilation", "output_padding")
    )
    switches = (
        attribute("transposed", AttributeKind.BOOL, False),
        attribute("groups", AttributeKind.INTEGER, 1),
        *(
            attribute(name, AttributeKind.BOOL, False)
            for name in ("benchmark", "deterministic", "allow_tf32", "cudnn_enabled")
        ),
    )
    data = operands("input weight bias?", Kinds.FLOAT)
    yield from forms(
        "convolution convolution.out conv1d conv2d conv3d",
        "convolution",
        data,
        shapes.convolution,
        work.convolved,
        attributes=(*sizes, *switches),
    )
    plain = (
        OperandSpec(name="input", kinds=Kinds.FLOAT),
        OperandSpec(name="weight", kinds=Kinds.FLOAT),
    )
    yield from forms(
        "cudnn_convolution cudnn_convolution.out",
        "convolution",
        plain,
        shapes.convolution,
        work.convolved,
        attributes=(*sizes, *switches),
    )
    heads = (
        number("dropout_p", 0.0),
        attribute("is_causal", AttributeKind.BOOL, False),
        attribute("return_debug_mask", AttributeKind.BOOL, False),
        attribute("compute_log_sumexp", AttributeKind.BOOL, True),
        attribute("enable_gqa", AttributeKind.BOOL, False),
        number("scale"),
    )
    results = (
        OperandSpec(name="out", kinds=Kinds.FLOAT),
        OperandSpec(name="logsumexp", kinds=Kinds.FLOAT, is_optional=True),
        *(OperandSpec(name=name, is_optional=True) for name in ("seed", "offset", "debug_mask")),
    )
    three = operands("query key value", Kinds.FLOAT)
    bias = OperandSpec(name="attn_mask", is_optional=True)
    yield from forms(
        "_scaled_dot_product_flash_attention",
        "attention",
        three,
        shapes.attention,
        work.attended,
        attributes=heads,
        writes=results,
    )
    yield from forms(
        "scaled_dot_product_attention",
        "attention",
        (*three, bias),
        shapes.attention,
        work.attended,
        attributes=heads,
        writes=results[:1],
    )
    named = OperandSpec(name="attn_bias", is_optional=True)
    yield from forms(
        "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention",
        "attention",
        (*three, named),
        shapes.attention,
        work.attended,
        attributes=heads,
        writes=results,
    )


def _norms() -> Iterator[Operator]:
    tail = attribute("normalized_shape", AttributeKind.INTEGERS, required=True)
    eps = number("eps", 1e-5)
    rows = operands("out mean? rstd?", Kinds.FLOAT)
    both = operands("input weight? bias?", Kinds.FLOAT)
    enable = attribute("cudnn_enable", AttributeKind.BOOL, True)
    yield from forms(
        "native_layer_norm native_layer_norm.out layer_norm",
        "layer_norm",
        both,
        shapes.normalised,
        work.per_element_hard,
        writes=rows,
        attributes=(tail, eps, enable),
    )
    yield from forms(
        "rms_norm _fused_rms_norm",
        "rms_norm",
        operands("input weight?", Kinds.FLOAT),
        shapes.normalised,
        work.per_element_hard,
        writes=operands("out rstd?", Kinds.FLOAT),
        attributes=(tail, number("eps")),
    )
    counts = tuple(attribute(name, AttributeKind.INTEGER) for name in ("N", "C", "HxW"))
    group = attribute("group", AttributeKind.INTEGER, required=True)
    yield from forms(
        "native_group_norm native_group_norm.out",
        "group_norm",
        both,
        shapes.group_norm,
        work.per_element_hard,
        writes=rows,
        attributes=(*counts, group, eps),
    )
    half = attribute("half_to_float", AttributeKind.BOOL, False)
    numbers = operands("self", Kinds.FLOAT)
    for name in ("softmax", "log_softmax"):
        yield from forms(
            f"_{name} _{name}.out {name}.int",
            name,
            numbers,
            shapes.along,
            work.per_element_hard,
            attributes=(DIM, half, _TYPE),
            result=ResultType.PROMOTED,
        )
    yield from forms(
        "_safe_softmax",
        "safe_softmax",
        numbers,
        shapes.along,
        work.per_element_hard,
        attributes=(DIM, _TYPE),
        result=ResultType.PROMOTED,
    )


def _reductions() -> Iterator[Operator]:
    over = (_DIMS, _KEEP, _TYPE)
    for name, more in (
        ("sum", "sum sum.out sum.dim_IntList sum.IntList_out"),
        ("mean", "mean mean.dtype_out mean.dim mean.out"),
        ("prod", "prod prod.out prod.dim_int prod.int_out"),
    ):
        yield from forms(
            more,
            name,
            _SELF,
            shapes.reduced,
            work.per_element,
            attributes=over,
            result=ResultType.FREE,
        )
    for name in ("amax", "amin"):
        yield from forms(
            f"{name} {name}.out",
            name,
            operands("self", Kinds.NUMBER),
            shapes.chosen,
            work.per_element,
            attributes=(_DIMS, _KEEP),
        )
    truth = (OperandSpec(name="out", kinds=Kinds.BOOL),)
    for name in ("any", "all"):
        yield from forms(
            f"{name} {name}.dim {name}.dims {name}.out {name}.all_out",
            name,
            _SELF,
            shapes.reduced,
            work.per_element,
            attributes=(_DIMS, _KEEP),
            writes=truth,
            result=ResultType.FREE,
        )
    place = OperandSpec(name="indices", kinds=Kinds.INTEGER)
    for name in ("max", "min"):
        numbers = operands("self", Kinds.NUMBER)
        yield from forms(
            f"{name} {name}.unary_out", f"a{name}", numbers, shapes.chosen, work.per_element
        )
        yield from forms(
            f"{name}.dim {name}.dim_{name}",
            f"{name}_dim",
            numbers,
            shapes.chosen,
            work.per_element,
            attributes=(DIM, _KEEP),
            writes=(OperandSpec(name="values"), place),
        )
        dimension = attribute("dim", AttributeKind.INTEGER)
        yield from forms(
            f"arg{name} arg{name}.out",
            f"arg{name}",
            numbers,
            shapes.chosen,
            work.per_element,
            attributes=(dimension, _KEEP),
            writes=(place,),
            result=ResultType.FREE,
        )
    yield from forms(
        "histc histc.out",
        "histc",
        operands("self", Kinds.NUMBER),
        shapes.bins,
        work.per_element,
        attributes=(
            attribute("bins", AttributeKind.INTEGER, 100),
            number("min", 0),
            number("max", 0),
        ),
    )
    floats = operands("self", Kinds.FLOAT)
    spread = (_DIMS, number("correction", 1), _KEEP)
    yield from forms(
        "var.correction var.correction_out",
        "var",
        floats,
        shapes.reduced,
        work.per_element,
        attributes=spread,
    )
    yield from forms(
        "var_mean.correction var_mean.correction_out",
        "var_mean",
        floats,
        shapes.reduced,
        work.per_element,
        attributes=spread,
        writes=operands("var mean"),
    )
    yield from forms(
        "logsumexp logsumexp.out",
        "logsumexp",
        floats,
        shapes.reduced,
        work.per_element_hard,
        attributes=(_DIMS, _KEEP),
    )
    yield from forms(
        "linalg_vector_norm linalg_vector_norm.out",
        "vector_norm",
        floats,
        shapes.reduced,
        work.per_element,
        attributes=(number("ord", 2), *over),
        result=ResultType.FREE,
    )
