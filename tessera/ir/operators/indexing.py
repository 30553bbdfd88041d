"""The operator table: reading and writing by an index."""

from __future__ import annotations

from collections.abc import Iterator

from tessera.ir.operators import shapes_moved as places
from tessera.ir.operators import work
from tessera.ir.operators.elementwise import number
from tessera.ir.operators.matrix import DIM, attribute, forms, operands
from tessera.ir.operators.records import (
    AttributeKind,
    Kinds,
    OperandSpec,
    Operator,
    Reach,
)

_SELF = operands("self")
# Changed in place without being read, or read for its shape only.
_UNREAD = OperandSpec(name="self", reach=Reach.NONE, is_optional=True)
_CHOSEN = OperandSpec(name="self", reach=Reach.INDEXED)
_CHANGED = OperandSpec(name="out", reach=Reach.INDEXED)
_INDEX = OperandSpec(name="index", kinds=Kinds.INTEGER)
_SIZE = attribute("size", AttributeKind.INTEGERS)
_TYPE = attribute("dtype", AttributeKind.TYPE)
# Dimensions that `indices` are for, if they are not the first ones.
_PLACES = attribute("indices_at", AttributeKind.INTEGERS)


def indexing_operators() -> Iterator[Operator]:
    """All of them."""
    yield from _reading_by_index()
    yield from _writing_by_index()


def _reading_by_index() -> Iterator[Operator]:
    yield from forms(
        "index_select index_select.out",
        "index_select",
        (_CHOSEN, _INDEX),
        places.index_select,
        work.moved,
        attributes=(DIM,),
    )
    indices = OperandSpec(name="indices", kinds=Kinds.INTEGER, is_list=True)
    yield from forms(
        "index.Tensor index.Tensor_out _unsafe_index.Tensor",
        "index",
        (_CHOSEN, indices),
        places.index_tensor,
        work.moved,
        attributes=(_PLACES,),
    )
    table = OperandSpec(name="weight", reach=Reach.INDEXED)
    rows = OperandSpec(name="indices", kinds=Kinds.INTEGER)
    settings = (
        attribute("padding_idx", AttributeKind.INTEGER, -1),
        attribute("scale_grad_by_freq", AttributeKind.BOOL, False),
        attribute("sparse", AttributeKind.BOOL, False),
    )
    yield from forms(
        "embedding embedding.out",
        "embedding",
        (table, rows),
        places.embedding,
        work.moved,
        attributes=settings,
    )
    sparse = attribute("sparse_grad", AttributeKind.BOOL, False)
    yield from forms(
        "gather gather.out",
        "gather",
        (_CHOSEN, _INDEX),
        places.gather,
        work.moved,
        attributes=(DIM, sparse),
    )


def _writing_by_index() -> Iterator[Operator]:
    """In place, only the chosen elements are touched; else all are copied first."""
    source, value = OperandSpec(name="src"), number("value", required=True)
    reduce = attribute("reduce", AttributeKind.TEXT, required=True)
    include = attribute("include_self", AttributeKind.BOOL, True)
    for form, reads in _changing("scatter.src scatter.src_out scatter_.src", (_INDEX, source)):
        yield from forms(
            form,
            "scatter",
            reads,
            places.scatter,
            work.moved,
            attributes=(DIM,),
            writes=_written(form),
        )
    for form, reads in _changing("scatter.value scatter.value_out scatter_.value", (_INDEX,)):
        yield from forms(
            form,
            "scatter",
            reads,
            places.scatter,
            work.moved,
            attributes=(DIM, value),
            writes=_written(form),
        )
    for form, reads in _changing("scatter_add scatter_add.out scatter_add_", (_INDEX, source)):
        yield from forms(
            form,
            "scatter_add",
            reads,
            places.scatter,
            work.per_element,
            attributes=(DIM,),
            writes=_written(form),
        )
    names = "scatter_reduce.two scatter_reduce.two_out scatter_reduce_.two"
    for form, reads in _changing(names, (_INDEX, source)):
        yield from forms(
            form,
            "scatter_reduce",
            reads,
            places.scatter,
            work.per_element,
            attributes=(DIM, reduce, include),
            writes=_written(form),
        )
    rows = OperandSpec(name="source")
    for form, reads in _changing("index_add index_add.out index_add_", (_INDEX, rows)):
        yield from forms(
            form,
            "index_add",
            reads,
            places.index_rows,
            work.per_element,
            attributes=(DIM, number("alpha", 1)),
            writes=_written(form),
        )
    for form, reads in _changing("index_copy index_copy.out index_copy_", (_INDEX, rows)):
        yield from forms(
            form,
            "index_copy",
            reads,
            places.index_rows,
            work.moved,
            attributes=(DIM,),
            writes=_written(form),
        )
    indices = OperandSpec(name="indices", kinds=Kinds.INTEGER, is_list=True)
    values = OperandSpec(name="values")
    flags = (
        _PLACES,
        attribute("accumulate", AttributeKind.BOOL, False),
        attribute("unsafe", AttributeKind.BOOL, False),
    )
    names = "index_put index_put.out index_put_ _index_put_impl_ _unsafe_index_put"
    for form, reads in _changing(names, (indices, values)):
        yield from forms(
            form,
            "index_put",
            reads,
            places.index_put,
            work.moved,
            attributes=flags,
            writes=_written(form),
        )


def _changing(
    names: str, rest: tuple[OperandSpec, ...]
) -> Iterator[tuple[str, tuple[OperandSpec, ...]]]:
    for name in names.split():
        yield name, ((_CHOSEN if _is_in_place(name) else _SELF[0]), *rest)


def _written(name: str) -> tuple[OperandSpec, ...]:
    return (_CHANGED,) if _is_in_place(name) else (OperandSpec(name="out"),)


def _is_in_place(name: str) -> bool:
    return name.split(".")[0].endswith("_")
