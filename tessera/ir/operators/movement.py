"""The operator table: copies, fills, reading and writing by an index, sorting and scans."""

from __future__ import annotations

from collections.abc import Iterator

from tessera.ir.operators import shapes
from tessera.ir.operators import shapes_moved as places
from tessera.ir.operators.notation import (
    DIM,
    DTYPE,
    REQUIRED,
    flag,
    forms,
    integer,
    integers,
    number,
    word,
)
from tessera.ir.operators.records import Operator, ResultType
from tessera.ir.operators.work import moved, per_element, sorted_elements

_FREE, _PROMOTED = ResultType.FREE, ResultType.PROMOTED
# The dimensions that `indices` apply to, if they are not the first dimensions.
_PLACES = integers("indices_at")


def movement_operators() -> Iterator[Operator]:
    """All operators of this file."""
    yield from _copies()
    yield from _fills()
    yield from _reading_by_index()
    yield from _writing_by_index()
    yield from _orders()


def _copies() -> Iterator[Operator]:
    copies = "clone clone.out contiguous alias_copy"
    yield from forms(copies, "self", shapes.same_as_self, moved, function="copy")
    cast = "_to_copy _to_copy.out"
    yield from forms(cast, "self", shapes.same_as_self, moved, DTYPE, function="copy", result=_FREE)
    into = "copy_ copy copy.out"
    over = "self-? src"
    yield from forms(into, over, places.written_over, moved, function="copy_into", result=_FREE)
    along = integer("dim", 0)
    yield from forms("cat cat.out", "tensors*", places.cat, moved, along, result=_PROMOTED)
    yield from forms("stack stack.out", "tensors*", places.stack, moved, along, result=_PROMOTED)
    yield from forms("flip flip.out", "self", places.flipped, moved, integers("dims", REQUIRED))
    shifts = integers("shifts", REQUIRED), integers("dims")
    yield from forms("roll roll.out", "self", places.rolled, moved, *shifts)
    times = integers("repeats", REQUIRED)
    yield from forms("repeat repeat.out", "self", places.repeated, moved, times)
    padded, sizes = "constant_pad_nd constant_pad_nd.out", integers("pad", REQUIRED)
    yield from forms(
        padded, "self", places.padded, moved, sizes, number("value", 0), function="pad"
    )
    for name in ("tril", "triu"):
        names = f"{name} {name}.out {name}_"
        yield from forms(names, "self", places.triangle, moved, integer("diagonal", 0))


def _fills() -> Iterator[Operator]:
    fills, given = "fill_.Scalar fill_.Tensor fill.Scalar fill.Tensor", "self-? value="
    yield from forms(fills, given, places.written_over, moved, function="fill", result=_FREE)
    value, size = number("fill_value", REQUIRED), integers("size")
    for names, function, own in (
        ("zero_ zero zeros_like zeros_like.out", "zeros", ()),
        ("ones_like ones_like.out", "ones", ()),
        ("full_like full_like.out", "full", (value,)),
    ):
        attributes = (*own, DTYPE)
        yield from forms(
            names, "self-?", places.like_self, moved, *attributes, function=function, result=_FREE
        )
    for name, own in (("zeros", ()), ("ones", ()), ("full", (value,))):
        for names, reads in ((f"{name} {name}.out", ""), (f"new_{name} new_{name}.out", "self-?")):
            attributes = (size, *own, DTYPE)
            yield from forms(
                names, reads, places.sized, moved, *attributes, function=name, result=_FREE
            )
    single, sole = "scalar_tensor scalar_tensor.out", number("s", REQUIRED)
    yield from forms(single, "", shapes.single, moved, sole, DTYPE, function="scalar", result=_FREE)
    ranges = "arange arange.out arange.start arange.start_step arange.start_out"
    ends = number("start", 0), number("end", REQUIRED), number("step", 1), DTYPE
    yield from forms(ranges, "", places.arange, moved, *ends, result=_FREE)


def _reading_by_index() -> Iterator[Operator]:
    names, one = "index_select index_select.out", "self@ index:integer"
    yield from forms(names, one, places.index_select, moved, DIM)
    names, many = "index.Tensor index.Tensor_out _unsafe_index.Tensor", "self@ indices:integer*"
    yield from forms(names, many, places.index_tensor, moved, _PLACES)
    settings = integer("padding_idx", -1), flag("scale_grad_by_freq"), flag("sparse")
    names, rows = "embedding embedding.out", "weight@ indices:integer"
    yield from forms(names, rows, places.embedding, moved, *settings)
    yield from forms("gather gather.out", one, places.gather, moved, DIM, flag("sparse_grad"))


def _writing_by_index() -> Iterator[Operator]:
    """Operators that write by index: in place, only chosen elements are touched; else all are
    copied first."""
    reducing = word("reduce", REQUIRED), flag("include_self", True)
    putting = _PLACES, flag("accumulate"), flag("unsafe")
    one, many = "index:integer", "indices:integer*"
    rows, put = places.index_rows, places.index_put
    for names, reads, rule, effort, attributes in (
        ("scatter.src scatter.src_out scatter_.src", f"{one} src", places.scatter, moved, (DIM,)),
        (
            "scatter.value scatter.value_out scatter_.value",
            one,
            places.scatter,
            moved,
            (DIM, number("value", REQUIRED)),
        ),
        (
            "scatter_add scatter_add.out scatter_add_",
            f"{one} src",
            places.scatter,
            per_element,
            (DIM,),
        ),
        (
            "scatter_reduce.two scatter_reduce.two_out scatter_reduce_.two",
            f"{one} src",
            places.scatter,
            per_element,
            (DIM, *reducing),
        ),
        (
            "index_add index_add.out index_add_",
            f"{one} source",
            rows,
            per_element,
            (DIM, number("alpha", 1)),
        ),
        ("index_copy index_copy.out index_copy_", f"{one} source", rows, moved, (DIM,)),
        (
            "index_put index_put.out index_put_ _index_put_impl_ _unsafe_index_put",
            f"{many} values",
            put,
            moved,
            putting,
        ),
    ):
        function = names.split()[0].partition(".")[0]
        for name in names.split():
            mark = "@" if name.partition(".")[0].endswith("_") else ""
            changed = f"self{mark} {reads}"
            yield from forms(
                name, changed, rule, effort, *attributes, function=function, writes=f"out{mark}"
            )


def _orders() -> Iterator[Operator]:
    both, last = "values indices:integer", integer("dim", -1)
    order = last, flag("descending"), flag("stable")
    names = "sort sort.stable sort.values sort.values_stable"
    yield from forms(names, "self:number", shapes.along, sorted_elements, *order, writes=both)
    yield from forms(
        "argsort argsort.stable",
        "self:number",
        shapes.along,
        sorted_elements,
        *order,
        writes="indices:integer",
        result=_FREE,
    )
    most = integer("k", REQUIRED), last, flag("largest", True), flag("sorted", True)
    names = "topk topk.values"
    yield from forms(names, "self:number", shapes.topk, sorted_elements, *most, writes=both)
    for name in ("cumsum", "cumprod"):
        names = f"{name} {name}.out {name}_"
        yield from forms(names, "self", shapes.along, per_element, DIM, DTYPE, result=_FREE)
