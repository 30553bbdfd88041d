"""The operator table: products of matrices and vectors."""

from __future__ import annotations

from collections.abc import Iterator

from tessera.ir.operators import shapes
from tessera.ir.operators.notation import REQUIRED, flag, forms, number, type_name
from tessera.ir.operators.records import Kinds, Operator, ResultType
from tessera.ir.operators.work import per_product

_SCALES = (number("beta", 1), number("alpha", 1))


def product_operators() -> Iterator[Operator]:
    """All operators of this file."""
    yield from _of_other_type()
    numbers, floats, free = Kinds.NUMBER, Kinds.FLOAT, ResultType.FREE
    yield from forms("mm mm.out", "self mat2", shapes.mm, per_product, kinds=numbers)
    yield from forms("bmm bmm.out", "self mat2", shapes.bmm, per_product, kinds=numbers)
    three = "self mat1 mat2"
    yield from forms(
        "addmm addmm.out addmm_", three, shapes.addmm, per_product, *_SCALES, kinds=numbers
    )
    yield from forms(
        "_addmm_activation _addmm_activation.out",
        three,
        shapes.addmm,
        per_product,
        *_SCALES,
        flag("use_gelu"),
        function="addmm_activation",
        kinds=floats,
    )
    names, batches = "baddbmm baddbmm.out baddbmm_", "self batch1 batch2"
    yield from forms(names, batches, shapes.baddbmm, per_product, *_SCALES, kinds=numbers)
    yield from forms(
        "_scaled_mm _scaled_mm.out",
        "self mat2 scale_a scale_b bias? scale_result?",
        shapes.scaled_mm,
        per_product,
        type_name("out_dtype"),
        flag("use_fast_accum"),
        function="scaled_mm",
        kinds=floats,
        result=free,
    )
    yield from forms(
        "_grouped_mm",
        "self mat2 offs:integer? bias?",
        shapes.grouped_mm,
        per_product,
        type_name("out_dtype"),
        function="grouped_mm",
        kinds=floats,
        result=free,
    )
    yield from forms("mv mv.out", "self vec", shapes.mv, per_product, kinds=numbers)
    yield from forms("dot dot.out", "self tensor", shapes.dot, per_product, kinds=numbers)
    layer = "input weight bias?"
    yield from forms("linear linear.out", layer, shapes.linear, per_product, kinds=floats)


def _of_other_type() -> Iterator[Operator]:
    """Products whose results have a wider type than their operands."""
    kinds = (
        ("mm", "self mat2", shapes.mm, ()),
        ("bmm", "self mat2", shapes.bmm, ()),
        ("addmm", "self mat1 mat2", shapes.addmm, _SCALES),
        ("baddbmm", "self batch1 batch2", shapes.baddbmm, _SCALES),
    )
    for name, reads, rule, more in kinds:
        yield from forms(
            f"{name}.dtype {name}.dtype_out",
            reads,
            rule,
            per_product,
            type_name("out_dtype", REQUIRED),
            *more,
            kinds=Kinds.FLOAT,
            result=ResultType.FREE,
        )
