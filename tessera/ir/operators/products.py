"""The operator table: products of matrices and vectors."""

from __future__ import annotations

from collections.abc import Iterator

from tessera.ir.operators import shapes, work
from tessera.ir.operators.elementwise import number
from tessera.ir.operators.matrix import attribute, forms, operands
from tessera.ir.operators.records import (
    AttributeKind,
    AttributeSpec,
    Kinds,
    OperandSpec,
    Operator,
    ResultType,
)


def product_operators() -> Iterator[Operator]:
    """All of them."""
    scales = (number("beta", 1), number("alpha", 1))
    numbers = Kinds.NUMBER
    yield from _of_other_type(scales)
    yield from forms("mm mm.out", "mm", operands("self mat2", numbers), shapes.mm, work.per_product)
    yield from forms(
        "bmm bmm.out", "bmm", operands("self mat2", numbers), shapes.bmm, work.per_product
    )
    yield from forms(
        "addmm addmm.out addmm_",
        "addmm",
        operands("self mat1 mat2", numbers),
        shapes.addmm,
        work.per_product,
        attributes=scales,
    )
    gelu = attribute("use_gelu", AttributeKind.BOOL, False)
    yield from forms(
        "_addmm_activation _addmm_activation.out",
        "addmm_activation",
        operands("self mat1 mat2", Kinds.FLOAT),
        shapes.addmm,
        work.per_product,
        attributes=(*scales, gelu),
    )
    yield from forms(
        "baddbmm baddbmm.out baddbmm_",
        "baddbmm",
        operands("self batch1 batch2", numbers),
        shapes.baddbmm,
        work.per_product,
        attributes=scales,
    )
    scaled = (
        *operands("self mat2 scale_a scale_b", Kinds.FLOAT),
        *operands("bias? scale_result?", Kinds.FLOAT),
    )
    yield from forms(
        "_scaled_mm _scaled_mm.out",
        "scaled_mm",
        scaled,
        shapes.scaled_mm,
        work.per_product,
        result=ResultType.FREE,
        attributes=(
            attribute("out_dtype", AttributeKind.TYPE),
            attribute("use_fast_accum", AttributeKind.BOOL, False),
        ),
    )
    groups = OperandSpec(name="offs", kinds=Kinds.INTEGER, is_optional=True)
    yield from forms(
        "_grouped_mm",
        "grouped_mm",
        (*operands("self mat2", Kinds.FLOAT), groups, *operands("bias?", Kinds.FLOAT)),
        shapes.grouped_mm,
        work.per_product,
        attributes=(attribute("out_dtype", AttributeKind.TYPE),),
        result=ResultType.FREE,
    )
    yield from forms("mv mv.out", "mv", operands("self vec", numbers), shapes.mv, work.per_product)
    yield from forms(
        "dot dot.out", "dot", operands("self tensor", numbers), shapes.dot, work.per_product
    )
    yield from forms(
        "linear linear.out",
        "linear",
        operands("input weight bias?", Kinds.FLOAT),
        shapes.linear,
        work.per_product,
    )


def _of_other_type(scales: tuple[AttributeSpec, ...]) -> Iterator[Operator]:
    """Products that leave their sums in a type that is wider than that of what they read."""
    wide = attribute("out_dtype", AttributeKind.TYPE, required=True)
    kinds = (
        ("mm", "self mat2", shapes.mm, ()),
        ("bmm", "self mat2", shapes.bmm, ()),
        ("addmm", "self mat1 mat2", shapes.addmm, scales),
        ("baddbmm", "self batch1 batch2", shapes.baddbmm, scales),
    )
    for name, names, rule, more in kinds:
        yield from forms(
            f"{name}.dtype {name}.dtype_out",
            name,
            operands(names, Kinds.FLOAT),
            rule,
            work.per_product,
            attributes=(wide, *more),
            result=ResultType.FREE,
        )
