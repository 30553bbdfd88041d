"""The operator table: convolutions, attention, norms and reductions."""

from __future__ import annotations

from collections.abc import Iterator

from tessera.ir.operators import shapes
from tessera.ir.operators.notation import (
    DIM,
    DTYPE,
    REQUIRED,
    flag,
    forms,
    integer,
    integers,
    number,
    operands,
)
from tessera.ir.operators.records import Kinds, Operator, ResultType
from tessera.ir.operators.work import attended, convolved, per_element, per_element_hard

_DIMS, _KEEP = integers("dim"), flag("keepdim")
_FLOAT, _NUMBER, _FREE = Kinds.FLOAT, Kinds.NUMBER, ResultType.FREE


def matrix_operators() -> Iterator[Operator]:
    """All operators of this file."""
    yield from _networks()
    yield from _norms()
    yield from _reductions()


def _networks() -> Iterator[Operator]:
    settings = (
        *map(integers, ("stride", "padding", "dilation", "output_padding")),
        flag("transposed"),
        integer("groups", 1),
        *map(flag, ("benchmark", "deterministic", "allow_tf32", "cudnn_enabled")),
    )
    for names, reads in (
        ("convolution convolution.out conv1d conv2d conv3d", "input weight bias?"),
        ("cudnn_convolution cudnn_convolution.out", "input weight"),
    ):
        yield from forms(
            names,
            reads,
            shapes.convolution,
            convolved,
            *settings,
            function="convolution",
            kinds=_FLOAT,
        )
    heads = (
        number("dropout_p", 0.0),
        flag("is_causal"),
        flag("return_debug_mask"),
        flag("compute_log_sumexp", True),
        flag("enable_gqa"),
        number("scale"),
    )
    others = "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention"
    results = "out:float logsumexp:float? seed? offset? debug_mask?"
    for names, more, writes in (
        ("_scaled_dot_product_flash_attention", "", results),
        ("scaled_dot_product_attention", " attn_mask:any?", "out:float"),
        (others, " attn_bias:any?", results),
    ):
        yield from forms(
            names,
            f"query key value{more}",
            shapes.attention,
            attended,
            *heads,
            function="attention",
            kinds=_FLOAT,
            writes=writes,
        )
    yield from forms(
        "attention",
        "query key value attn_mask:any? sinks:any? attn_bias:any?",
        shapes.attention,
        attended,
        *heads,
        number("softcap"),
        kinds=_FLOAT,
        namespace="tessera",
    )


def _norms() -> Iterator[Operator]:
    tail = integers("normalized_shape", REQUIRED)
    eps = number("eps", 1e-5)
    rows = operands("out mean? rstd?", _FLOAT)
    both = "input weight? bias?"
    yield from forms(
        "native_layer_norm native_layer_norm.out layer_norm",
        both,
        shapes.normalised,
        per_element_hard,
        *(tail, eps, flag("cudnn_enable", True)),
        function="layer_norm",
        kinds=_FLOAT,
        writes=rows,
    )
    yield from forms(
        "rms_norm _fused_rms_norm",
        "input weight?",
        shapes.normalised,
        per_element_hard,
        *(tail, number("eps")),
        kinds=_FLOAT,
        writes=operands("out rstd?", _FLOAT),
    )
    yield from forms(
        "native_group_norm native_group_norm.out",
        both,
        shapes.group_norm,
        per_element_hard,
        *map(integer, ("N", "C", "HxW")),
        *(integer("group", REQUIRED), eps),
        function="group_norm",
        kinds=_FLOAT,
        writes=rows,
    )
    for names, function, own in (
        ("_softmax _softmax.out softmax.int", "softmax", (flag("half_to_float"),)),
        ("_log_softmax _log_softmax.out log_softmax.int", "log_softmax", (flag("half_to_float"),)),
        ("_safe_softmax", "safe_softmax", ()),
    ):
        yield from forms(
            names,
            "self",
            shapes.along,
            per_element_hard,
            *(DIM, *own, DTYPE),
            function=function,
            kinds=_FLOAT,
            result=ResultType.PROMOTED,
        )


def _reductions() -> Iterator[Operator]:
    for names in (
        "sum sum.out sum.dim_IntList sum.IntList_out",
        "mean mean.dtype_out mean.dim mean.out",
        "prod prod.out prod.dim_int prod.int_out",
    ):
        over = _DIMS, _KEEP, DTYPE
        yield from forms(names, "self", shapes.reduced, per_element, *over, result=_FREE)
    for name in ("amax", "amin"):
        names = f"{name} {name}.out"
        yield from forms(names, "self:number", shapes.chosen, per_element, _DIMS, _KEEP)
    for name in ("any", "all"):
        yield from forms(
            f"{name} {name}.dim {name}.dims {name}.out {name}.all_out",
            "self",
            shapes.reduced,
            per_element,
            *(_DIMS, _KEEP),
            writes="out:bool",
            result=_FREE,
        )
    for name in ("max", "min"):
        yield from _extremes(name)
    span = integer("bins", 100), number("min", 0), number("max", 0)
    yield from forms("histc histc.out", "self:number", shapes.bins, per_element, *span)
    spread = _DIMS, number("correction", 1), _KEEP
    names = "var.correction var.correction_out"
    yield from forms(names, "self:float", shapes.reduced, per_element, *spread)
    names = "var_mean.correction var_mean.correction_out"
    yield from forms(names, "self:float", shapes.reduced, per_element, *spread, writes="var mean")
    names = "logsumexp logsumexp.out"
    yield from forms(names, "self:float", shapes.reduced, per_element_hard, _DIMS, _KEEP)
    yield from forms(
        "linalg_vector_norm linalg_vector_norm.out",
        "self:float",
        shapes.reduced,
        per_element,
        *(number("ord", 2), _DIMS, _KEEP, DTYPE),
        function="vector_norm",
        result=_FREE,
    )


def _extremes(name: str) -> Iterator[Operator]:
    """The largest or smallest of all elements, or along a dimension, with its index."""
    names = f"{name} {name}.unary_out"
    yield from forms(names, "self:number", shapes.chosen, per_element, function=f"a{name}")
    yield from forms(
        f"{name}.dim {name}.dim_{name}",
        "self:number",
        shapes.chosen,
        per_element,
        *(DIM, _KEEP),
        function=f"{name}_dim",
        writes="values indices:integer",
    )
    yield from forms(
        f"arg{name} arg{name}.out",
        "self:number",
        shapes.chosen,
        per_element,
        *(integer("dim"), _KEEP),
        writes="indices:integer",
        result=_FREE,
    )
