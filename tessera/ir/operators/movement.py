"""The operator table: copies, fills, sorting and scans; indexing is in `indexing`."""

from __future__ import annotations

from collections.abc import Iterator

from tessera.ir.operators import shapes, work
from tessera.ir.operators import shapes_moved as places
from tessera.ir.operators.elementwise import number
from tessera.ir.operators.indexing import indexing_operators
from tessera.ir.operators.matrix import DIM, attribute, forms, operands
from tessera.ir.operators.records import (
    AttributeKind,
    Kinds,
    OperandSpec,
    Operator,
    Reach,
    ResultType,
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


def movement_operators() -> Iterator[Operator]:
    """All of them."""
    yield from _copies()
    yield from _fills()
    yield from indexing_operators()
    yield from _orders()


def _copies() -> Iterator[Operator]:
    yield from forms(
        "clone clone.out contiguous alias_copy", "copy", _SELF, shapes.same_as_self, work.moved
    )
    yield from forms(
        "_to_copy _to_copy.out",
        "copy",
        _SELF,
        shapes.same_as_self,
        work.moved,
        attributes=(_TYPE,),
        result=ResultType.FREE,
    )
    source = OperandSpec(name="src")
    yield from forms(
        "copy_ copy copy.out",
        "copy_into",
        (_UNREAD, source),
        places.written_over,
        work.moved,
        result=ResultType.FREE,
    )
    many = (OperandSpec(name="tensors", is_list=True),)
    along = (attribute("dim", AttributeKind.INTEGER, 0),)
    yield from forms(
        "cat cat.out",
        "cat",
        many,
        places.cat,
        work.moved,
        attributes=along,
        result=ResultType.PROMOTED,
    )
    yield from forms(
        "stack stack.out",
        "stack",
        many,
        places.stack,
        work.moved,
        attributes=along,
        result=ResultType.PROMOTED,
    )
    dims = attribute("dims", AttributeKind.INTEGERS, required=True)
    yield from forms("flip flip.out", "flip", _SELF, places.flipped, work.moved, attributes=(dims,))
    steps = attribute("shifts", AttributeKind.INTEGERS, required=True)
    yield from forms(
        "roll roll.out",
        "roll",
        _SELF,
        places.rolled,
        work.moved,
        attributes=(steps, attribute("dims", AttributeKind.INTEGERS)),
    )
    yield from forms(
        "repeat repeat.out",
        "repeat",
        _SELF,
        places.repeated,
        work.moved,
        attributes=(attribute("repeats", AttributeKind.INTEGERS, required=True),),
    )
    yield from forms(
        "constant_pad_nd constant_pad_nd.out",
        "pad",
        _SELF,
        places.padded,
        work.moved,
        attributes=(attribute("pad", AttributeKind.INTEGERS, required=True), number("value", 0)),
    )
    for name in ("tril", "triu"):
        yield from forms(
            f"{name} {name}.out {name}_",
            name,
            _SELF,
            places.triangle,
            work.moved,
            attributes=(attribute("diagonal", AttributeKind.INTEGER, 0),),
        )


def _fills() -> Iterator[Operator]:
    value = OperandSpec(name="value", or_number=True)
    yield from forms(
        "fill_.Scalar fill_.Tensor fill.Scalar fill.Tensor",
        "fill",
        (_UNREAD, value),
        places.written_over,
        work.moved,
        result=ResultType.FREE,
    )
    yield from forms(
        "zero_ zero zeros_like zeros_like.out",
        "zeros",
        (_UNREAD,),
        places.like_self,
        work.moved,
        attributes=(_TYPE,),
        result=ResultType.FREE,
    )
    yield from forms(
        "ones_like ones_like.out",
        "ones",
        (_UNREAD,),
        places.like_self,
        work.moved,
        attributes=(_TYPE,),
        result=ResultType.FREE,
    )
    number_given = number("fill_value", required=True)
    yield from forms(
        "full_like full_like.out",
        "full",
        (_UNREAD,),
        places.like_self,
        work.moved,
        attributes=(number_given, _TYPE),
        result=ResultType.FREE,
    )
    for name in ("zeros", "ones"):
        yield from forms(
            f"{name} {name}.out",
            name,
            (),
            places.sized,
            work.moved,
            attributes=(_SIZE, _TYPE),
            result=ResultType.FREE,
        )
        yield from forms(
            f"new_{name} new_{name}.out",
            name,
            (_UNREAD,),
            places.sized,
            work.moved,
            attributes=(_SIZE, _TYPE),
            result=ResultType.FREE,
        )
    yield from forms(
        "full full.out",
        "full",
        (),
        places.sized,
        work.moved,
        attributes=(_SIZE, number_given, _TYPE),
        result=ResultType.FREE,
    )
    yield from forms(
        "new_full new_full.out",
        "full",
        (_UNREAD,),
        places.sized,
        work.moved,
        attributes=(_SIZE, number_given, _TYPE),
        result=ResultType.FREE,
    )
    yield from forms(
        "scalar_tensor scalar_tensor.out",
        "scalar",
        (),
        shapes.single,
        work.moved,
        attributes=(number("s", required=True), _TYPE),
        result=ResultType.FREE,
    )
    ends = (number("start", 0), number("end", required=True), number("step", 1), _TYPE)
    yield from forms(
        "arange arange.out arange.start arange.start_step arange.start_out",
        "arange",
        (),
        places.arange,
        work.moved,
        attributes=ends,
        result=ResultType.FREE,
    )


def _orders() -> Iterator[Operator]:
    numbers = operands("self", Kinds.NUMBER)
    both = (OperandSpec(name="values"), OperandSpec(name="indices", kinds=Kinds.INTEGER))
    last = attribute("dim", AttributeKind.INTEGER, -1)
    order = (
        last,
        attribute("descending", AttributeKind.BOOL, False),
        attribute("stable", AttributeKind.BOOL, False),
    )
    yield from forms(
        "sort sort.stable sort.values sort.values_stable",
        "sort",
        numbers,
        shapes.along,
        work.sorted_elements,
        attributes=order,
        writes=both,
    )
    yield from forms(
        "argsort argsort.stable",
        "argsort",
        numbers,
        shapes.along,
        work.sorted_elements,
        attributes=order,
        writes=both[1:],
        result=ResultType.FREE,
    )
    most = (
        attribute("k", AttributeKind.INTEGER, required=True),
        last,
        attribute("largest", AttributeKind.BOOL, True),
        attribute("sorted", AttributeKind.BOOL, True),
    )
    yield from forms(
        "topk topk.values",
        "topk",
        numbers,
        shapes.topk,
        work.sorted_elements,
        attributes=most,
        writes=both,
    )
    for name in ("cumsum", "cumprod"):
        yield from forms(
            f"{name} {name}.out {name}_",
            name,
            _SELF,
            shapes.along,
            work.per_element,
            attributes=(DIM, _TYPE),
            result=ResultType.FREE,
        )
