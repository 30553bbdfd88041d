"""Rules of the operator table: the shapes of results of copies, fills and indexing.

In: a bound call. Out: shapes, or an `OperatorMismatch` that says which operands do not fit.
"""

from __future__ import annotations

from math import prod

from tessera.ir.operators.records import Bound, OperatorMismatch, Shape
from tessera.ir.operators.shapes import Shapes, axes_of, axis_of, broadcast, ranks, text


def like_self(bound: Bound) -> Shapes:
    """The shape of `self`, if it is given."""
    return (bound.shape("self") if bound.has("self") else None,)


def written_over(bound: Bound) -> Shapes:
    """The shape of the written tensor, to which the source broadcasts."""
    target = bound.writes[0][1].shape
    if bound.has("value") and prod(bound.shape("value")) != 1:
        raise OperatorMismatch("`value` must have one element")
    for name in ("src", "value"):
        if bound.has(name) and broadcast(bound.shape(name), target) != target:
            raise OperatorMismatch(
                f"`{name}` {text(bound.shape(name))} does not broadcast to {text(target)}"
            )
    return like_self(bound)


def flipped(bound: Bound) -> Shapes:
    """The shape of `self`, whose dimensions `dims` must exist."""
    axes_of(bound, len(bound.shape("self")), "dims")
    return (bound.shape("self"),)


def rolled(bound: Bound) -> Shapes:
    """The shape of `self`, with a shift for each of `dims`, or one for the flattened elements."""
    shifts, dims = bound.integers("shifts") or (), bound.integers("dims") or ()
    if len(shifts) != max(len(dims), 1):
        raise OperatorMismatch("`shifts` must have as many numbers as `dims`, or one without them")
    axes_of(bound, len(bound.shape("self")), "dims")
    return (bound.shape("self"),)


def triangle(bound: Bound) -> Shapes:
    """The shape of `self`, which is a matrix or a batch of matrices."""
    if len(bound.shape("self")) < 2:
        raise OperatorMismatch("`self` must have at least 2 dimensions")
    return (bound.shape("self"),)


def cat(bound: Bound) -> Shapes:
    """Tensors concatenated along `dim`; empty tensors of one dimension are ignored."""
    shapes = [operand.shape for operand in bound.operands("tensors") if operand.shape != (0,)]
    if not shapes:
        return ((0,),)
    first = shapes[0]
    if not first:
        raise OperatorMismatch("tensors without dimensions cannot be joined")
    axis = axis_of(bound.integer("dim"), len(first))
    for shape in shapes:
        if len(shape) != len(first) or _without(shape, axis) != _without(first, axis):
            raise OperatorMismatch(f"{text(shape)} beside {text(first)} along dimension {axis}")
    total = sum(shape[axis] for shape in shapes)
    return ((*first[:axis], total, *first[axis + 1 :]),)


def _without(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1 :])


def stack(bound: Bound) -> Shapes:
    """Tensors of equal shape, stacked along a new dimension."""
    shapes = [operand.shape for operand in bound.operands("tensors")]
    if not shapes or any(shape != shapes[0] for shape in shapes):
        raise OperatorMismatch("the tensors to stack must have one shape")
    axis = axis_of(bound.integer("dim"), len(shapes[0]) + 1)
    return ((*shapes[0][:axis], len(shapes), *shapes[0][axis:]),)


def repeated(bound: Bound) -> Shapes:
    """Each dimension times a count; new dimensions are added in front."""
    counts, shape = bound.integers("repeats") or (), bound.shape("self")
    if len(counts) < len(shape) or min(counts, default=0) < 0:
        raise OperatorMismatch(f"`repeats` has {len(counts)} counts for {len(shape)} dimensions")
    wide = (1,) * (len(counts) - len(shape)) + shape
    return (tuple(size * count for size, count in zip(wide, counts, strict=True)),)


def padded(bound: Bound) -> Shapes:
    """`pad` has pairs, starting with the last dimension; negative padding crops."""
    shape, pad = list(bound.shape("self")), bound.integers("pad") or ()
    if len(pad) % 2 or len(pad) > 2 * len(shape):
        raise OperatorMismatch(f"`pad` has {len(pad)} values for {len(shape)} dimensions")
    for place in range(0, len(pad), 2):
        shape[-1 - place // 2] += pad[place] + pad[place + 1]
    if min(shape, default=0) < 0:
        raise OperatorMismatch("`pad` cuts off more than there is")
    return (tuple(shape),)


def arange(bound: Bound) -> Shapes:
    """One element per step between `start` and `end`."""
    start, end, step = (bound.number(name) for name in ("start", "end", "step"))
    if step == 0:
        raise OperatorMismatch("`step` is 0")
    return ((max(0, -int(-(end - start) // step)),),)


def sized(bound: Bound) -> Shapes:
    """The shape that `size` gives, if it is given."""
    return (bound.integers("size"),)


def index_select(bound: Bound) -> Shapes:
    """The shape of `self` with the length of `index` in dimension `dim`."""
    shape, index = bound.shape("self"), bound.shape("index")
    if len(index) > 1:
        raise OperatorMismatch(f"`index` is {text(index)}; it must have one dimension")
    axis = axis_of(bound.integer("dim"), len(shape))
    return ((*shape[:axis], prod(index), *shape[axis + 1 :]) if shape else (),)


def indexed_axes(bound: Bound) -> tuple[int, ...]:
    """The dimensions that the indices apply to: `indices_at`, or the first dimensions."""
    count, rank = len(bound.operands("indices")), len(bound.shape("self"))
    axes = bound.integers("indices_at")
    if axes is None:
        axes = tuple(range(count))
    if count > rank:
        raise OperatorMismatch(f"{count} indices for {rank} dimensions")
    if len(axes) != count or any(not 0 <= axis < rank for axis in axes):
        raise OperatorMismatch(f"`indices_at` must name {count} of {rank} dimensions")
    if list(axes) != sorted(set(axes)):
        raise OperatorMismatch("`indices_at` must rise")
    return axes


def index_tensor(bound: Bound) -> Shapes:
    """Dimensions of `self` replaced by the common shape of the indices.

    It takes their position if they are adjacent, else the front.
    """
    shape, axes = bound.shape("self"), indexed_axes(bound)
    common = broadcast(*(operand.shape for operand in bound.operands("indices")))
    if not axes:
        return (shape,)
    rest = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    at = axes[0] if axes[-1] - axes[0] == len(axes) - 1 else 0
    return ((*rest[:at], *common, *rest[at:]),)


def embedding(bound: Bound) -> Shapes:
    """A row of `weight` for every index."""
    ranks(bound, weight=2)
    return ((*bound.shape("indices"), bound.shape("weight")[1]),)


def _fits_beside(bound: Bound, name: str) -> None:
    """Check that `name` fits inside `self` in all dimensions except `dim`."""
    shape, index = bound.shape("self"), bound.shape(name)
    axis = axis_of(bound.integer("dim"), len(shape))
    inside = all(
        size <= whole
        for place, (size, whole) in enumerate(zip(index, shape, strict=False))
        if place != axis
    )
    if len(index) != len(shape) or not inside:
        raise OperatorMismatch(f"`{name}` {text(index)} does not fit `self` {text(shape)}")


def gather(bound: Bound) -> Shapes:
    """The shape of `index`."""
    _fits_beside(bound, "index")
    return (bound.shape("index"),)


def scatter(bound: Bound) -> Shapes:
    """The shape of `self`; `src` is at least as large as `index`."""
    _fits_beside(bound, "index")
    if bound.has("src"):
        index, source = bound.shape("index"), bound.shape("src")
        if len(source) != len(index) or any(i > s for i, s in zip(index, source, strict=True)):
            raise OperatorMismatch(f"`src` {text(source)} is smaller than `index` {text(index)}")
    return (bound.shape("self"),)


def index_put(bound: Bound) -> Shapes:
    """The shape of `self`; `values` broadcast to the elements that the indices choose."""
    chosen = index_tensor(bound)[0]
    values = bound.shape("values")
    if chosen is None or broadcast(values, chosen) != chosen:
        raise OperatorMismatch(f"`values` {text(values)} do not broadcast to {text(chosen or ())}")
    return (bound.shape("self"),)


def index_rows(bound: Bound) -> Shapes:
    """The shape of `self`; `source` has that shape with the length of `index` in `dim`."""
    chosen = index_select(bound)[0]
    if bound.has("source") and bound.shape("source") != chosen:
        raise OperatorMismatch(
            f"`source` is {text(bound.shape('source'))}, the chosen part {text(chosen or ())}"
        )
    return (bound.shape("self"),)
