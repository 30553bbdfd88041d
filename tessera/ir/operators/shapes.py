"""Rules of the operator table: the shapes of results.

In: a bound call. Out: shapes, or an `OperatorMismatch` that says which operands do not fit.
The rules are those of PyTorch's operators of the same names.
"""

from __future__ import annotations

from tessera.ir.operators.records import Bound, OperatorMismatch, Shape

Shapes = tuple[Shape | None, ...]


def text(shape: Shape) -> str:
    """A shape as written in a trace."""
    return f"[{','.join(map(str, shape))}]"


def broadcast(*shapes: Shape) -> Shape:
    """The common shape of operands that broadcast."""
    rank = max((len(shape) for shape in shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            if size != 1 and result[axis] not in (1, size):
                listed = " and ".join(text(shape) for shape in shapes)
                raise OperatorMismatch(f"shapes {listed} do not broadcast")
            result[axis] = size if size != 1 else result[axis]
    return tuple(result)


def axis_of(dim: int, rank: int) -> int:
    """A dimension counted from the front."""
    bound = max(rank, 1)
    if not -bound <= dim < bound:
        raise OperatorMismatch(f"dimension {dim} of a tensor with {rank}")
    return dim % bound


def axes_of(bound: Bound, rank: int, name: str = "dim") -> tuple[int, ...]:
    """The dimensions of a reduction: all if none are given."""
    dims = bound.integers(name)
    if not dims:
        return tuple(range(rank))
    axes = tuple(axis_of(dim, rank) for dim in dims)
    if len(set(axes)) != len(axes):
        raise OperatorMismatch(f"a dimension stands twice in `{name}`")
    return axes if rank else ()


# --- elementwise ---------------------------------------------------------------------------


def elementwise(bound: Bound) -> Shapes:
    """All operands broadcast; in place, to the shape that is written."""
    shapes = [operand.shape for _, operands in bound.reads for operand in operands]
    common = broadcast(*shapes)
    target = bound.writes[0][1].shape
    if bound.operator.is_in_place and broadcast(common, target) == target:
        return (target,)
    return (common,)


def same_as_self(bound: Bound) -> Shapes:
    """The shape of `self`."""
    return (bound.shape("self"),)


# --- matrices ------------------------------------------------------------------------------


def ranks(bound: Bound, **wanted: int) -> None:
    """Check the number of dimensions of operands."""
    for name, rank in wanted.items():
        shape = bound.shape(name)
        if len(shape) != rank:
            raise OperatorMismatch(f"`{name}` is {text(shape)}; it must have {rank} dimensions")


def _same(bound: Bound, name: str, axis: int, other: str, other_axis: int) -> None:
    first, second = bound.shape(name), bound.shape(other)
    if first[axis] != second[other_axis]:
        raise OperatorMismatch(
            f"dimension {axis} of `{name}` {text(first)} is not dimension {other_axis} of "
            f"`{other}` {text(second)}"
        )


def mm(bound: Bound, left: str = "self", right: str = "mat2") -> Shapes:
    """[m, k] times [k, n]."""
    ranks(bound, **{left: 2, right: 2})
    _same(bound, left, 1, right, 0)
    return ((bound.shape(left)[0], bound.shape(right)[1]),)


def scaled_mm(bound: Bound) -> Shapes:
    """[m, k] times [k, n], with one scale per matrix, or per row of the left and column of B."""
    (shape,) = mm(bound)
    m, n = shape or (0, 0)
    for name, wide in (("scale_a", (m, 1)), ("scale_b", (1, n))):
        if bound.shape(name) not in ((), (1,), (1, 1), wide):
            raise OperatorMismatch(
                f"`{name}` {text(bound.shape(name))} is no scale of {text(wide)}"
            )
    if bound.has("bias") and bound.shape("bias") != (n,):
        raise OperatorMismatch(f"`bias` must have {n} elements")
    if bound.has("scale_result"):
        raise OperatorMismatch("`scale_result` is not in the table")
    return (shape,)


def bmm(bound: Bound, left: str = "self", right: str = "mat2") -> Shapes:
    """[b, m, k] times [b, k, n]."""
    ranks(bound, **{left: 3, right: 3})
    _same(bound, left, 0, right, 0)
    _same(bound, left, 2, right, 1)
    return ((*bound.shape(left)[:2], bound.shape(right)[2]),)


def grouped_mm(bound: Bound) -> Shapes:
    """Rows [m, k] in groups, each times its [k, n] of [g, k, n]; `offs` are the group ends."""
    ranks(bound, self=2, mat2=3)
    _same(bound, "self", 1, "mat2", 1)
    if bound.has("bias"):
        raise OperatorMismatch("`bias` is not in the table")
    if not bound.has("offs") or bound.shape("offs") != bound.shape("mat2")[:1]:
        raise OperatorMismatch("`offs` must have an element for each matrix of `mat2`")
    return ((bound.shape("self")[0], bound.shape("mat2")[2]),)


def bins(bound: Bound) -> Shapes:
    """One element per bin."""
    return ((bound.integer("bins"),),)


def addmm(bound: Bound) -> Shapes:
    """`self` broadcasts to the product of `mat1` and `mat2`."""
    return _added(bound, mm(bound, "mat1", "mat2"))


def baddbmm(bound: Bound) -> Shapes:
    """`self` broadcasts to the product of `batch1` and `batch2`."""
    return _added(bound, bmm(bound, "batch1", "batch2"))


def _added(bound: Bound, result: Shapes) -> Shapes:
    shape = result[0]
    if shape is None or broadcast(bound.shape("self"), shape) != shape:
        raise OperatorMismatch(f"`self` {text(bound.shape('self'))} does not broadcast to it")
    return result


def mv(bound: Bound) -> Shapes:
    """[m, k] times [k]."""
    ranks(bound, self=2, vec=1)
    _same(bound, "self", 1, "vec", 0)
    return ((bound.shape("self")[0],),)


def dot(bound: Bound) -> Shapes:
    """[k] times [k]."""
    ranks(bound, self=1, tensor=1)
    _same(bound, "self", 0, "tensor", 0)
    return ((),)


def linear(bound: Bound) -> Shapes:
    """[..., k] times the transpose of [n, k], and a bias [n]."""
    ranks(bound, weight=2)
    if not bound.shape("input"):
        raise OperatorMismatch("`input` has no dimensions")
    _same(bound, "input", -1, "weight", 1)
    if bound.has("bias"):
        ranks(bound, bias=1)
        _same(bound, "bias", 0, "weight", 0)
    return ((*bound.shape("input")[:-1], bound.shape("weight")[0]),)


def pairs(value: tuple[int, ...] | None, rank: int, default: int) -> tuple[int, ...]:
    """An attribute of a convolution, one value per spatial dimension."""
    if not value:
        return (default,) * rank
    return value * rank if len(value) == 1 else value


def convolution(bound: Bound) -> Shapes:
    """[n, c, ...] with kernels [o, c / groups, ...]."""
    data, kernel = bound.shape("input"), bound.shape("weight")
    rank = len(data) - 2
    if rank < 1 or len(kernel) != len(data):
        raise OperatorMismatch(f"a convolution of {text(data)} with {text(kernel)}")
    if bound.flag("transposed"):
        raise OperatorMismatch("transposed convolutions are not in the table")
    groups = bound.integer("groups")
    if groups < 1 or data[1] != kernel[1] * groups or kernel[0] % groups:
        raise OperatorMismatch(
            f"{data[1]} channels, {groups} groups and kernels of {text(kernel)} do not agree"
        )
    stride = pairs(bound.integers("stride"), rank, 1)
    padding = pairs(bound.integers("padding"), rank, 0)
    dilation = pairs(bound.integers("dilation"), rank, 1)
    if not len(stride) == len(padding) == len(dilation) == rank or min(*stride, *dilation) < 1:
        raise OperatorMismatch("`stride`, `padding` and `dilation` need one value per dimension")
    sizes = tuple(
        (data[axis + 2] + 2 * padding[axis] - dilation[axis] * (kernel[axis + 2] - 1) - 1)
        // stride[axis]
        + 1
        for axis in range(rank)
    )
    if min(sizes) < 0:
        raise OperatorMismatch(f"kernels of {text(kernel)} are larger than {text(data)}")
    return ((data[0], kernel[0], *sizes),)


def attention(bound: Bound) -> Shapes:
    """Queries [..., l, e], keys [..., s, e], values [..., s, v]; keys may have fewer heads."""
    if bound.number("dropout_p"):
        raise OperatorMismatch("`dropout_p` draws random numbers; it must be 0")
    query, key, value = (bound.shape(name) for name in ("query", "key", "value"))
    if not len(query) == len(key) == len(value) >= 3:
        raise OperatorMismatch("`query`, `key` and `value` must have as many dimensions")
    _same(bound, "query", -1, "key", -1)
    _same(bound, "key", -2, "value", -2)
    if key[:-2] != value[:-2] or key[:-3] != query[:-3]:
        raise OperatorMismatch("the batches of `query`, `key` and `value` differ")
    if key[-3] == 0 or query[-3] % key[-3]:
        raise OperatorMismatch(f"{query[-3]} heads of queries over {key[-3]} of keys")
    scores = (*query[:-1], key[-2])
    for name in ("attn_mask", "attn_bias"):
        if bound.has(name) and broadcast(bound.shape(name), scores) != scores:
            raise OperatorMismatch(f"`{name}` does not broadcast to {text(scores)}")
    out = (*query[:-1], value[-1])
    made = {"out": out, "logsumexp": query[:-1]}
    return tuple(made.get(spec.name) for spec, _ in bound.writes)


# --- reductions ----------------------------------------------------------------------------


def reduced(bound: Bound) -> Shapes:
    """Dimensions `dim` are removed, or become 1 with `keepdim`."""
    shape = bound.shape("self")
    axes = axes_of(bound, len(shape))
    keep = bound.flag("keepdim")
    left = tuple(
        1 if axis in axes else size for axis, size in enumerate(shape) if keep or axis not in axes
    )
    return tuple(left for _ in bound.writes)


def chosen(bound: Bound) -> Shapes:
    """Like `reduced`, for functions that are undefined for zero elements."""
    shape = bound.shape("self")
    if any(shape[axis] == 0 for axis in axes_of(bound, len(shape)) if shape):
        raise OperatorMismatch(f"`self` {text(shape)} has no elements to choose from")
    return reduced(bound)


def single(bound: Bound) -> Shapes:
    """A single element."""
    return tuple(() for _ in bound.writes)


def along(bound: Bound) -> Shapes:
    """The shape of `self`, whose dimension `dim` must exist, for every result."""
    shape = bound.shape("self")
    axis_of(bound.integer("dim"), len(shape))
    return tuple(shape for _ in bound.writes)


def topk(bound: Bound) -> Shapes:
    """`k` elements along `dim`."""
    shape = bound.shape("self")
    axis, count = axis_of(bound.integer("dim"), len(shape)), bound.integer("k")
    size = shape[axis] if shape else 1
    if not 0 <= count <= size or (not shape and count != 1):
        raise OperatorMismatch(f"`k` is {count}, but dimension {axis} has {size} elements")
    left = (*shape[:axis], count, *shape[axis + 1 :]) if shape else ()
    return (left, left)


def normalised(bound: Bound) -> Shapes:
    """The shape of the input, and a mean and a deviation per row if they are written."""
    shape = bound.shape("input")
    tail = bound.integers("normalized_shape") or ()
    if not tail or shape[-len(tail) :] != tail:
        raise OperatorMismatch(f"`normalized_shape` is {text(tail)}, the input {text(shape)}")
    for name in ("weight", "bias"):
        if bound.has(name) and bound.shape(name) != tail:
            raise OperatorMismatch(f"`{name}` is {text(bound.shape(name))}, not {text(tail)}")
    rows = (*shape[: -len(tail)], *(1 for _ in tail))
    return (shape, rows, rows)[: len(bound.writes)]


def group_norm(bound: Bound) -> Shapes:
    """The shape of the input, and [n, groups] twice if they are written."""
    shape, groups = bound.shape("input"), bound.integer("group")
    if len(shape) < 2 or groups < 1 or shape[1] % groups:
        raise OperatorMismatch(f"{groups} groups of the channels of {text(shape)}")
    for name in ("weight", "bias"):
        if bound.has(name) and bound.shape(name) != (shape[1],):
            raise OperatorMismatch(f"`{name}` must have {shape[1]} elements")
    return (shape, (shape[0], groups), (shape[0], groups))[: len(bound.writes)]
