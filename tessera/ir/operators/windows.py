"""The operator table: operators of convolutional networks other than convolutions.

These are batch norms with stored statistics, max pooling over windows, and weights given as a
direction and a length. A norm that recomputes its statistics would change them, which its schema
does not say, so it is not in the table.
"""

from __future__ import annotations

from collections.abc import Iterator

from tessera.ir.operators import work
from tessera.ir.operators.notation import (
    REQUIRED,
    flag,
    forms,
    integer,
    integers,
    number,
    operands,
)
from tessera.ir.operators.records import Bound, Kinds, Operator, OperatorMismatch, Shape
from tessera.ir.operators.shapes import axis_of, pairs, text


def window_operators() -> Iterator[Operator]:
    """All window operators."""
    for name, more in (
        ("native_batch_norm", (flag("training", REQUIRED),)),
        ("_native_batch_norm_legit_no_training", ()),
    ):
        yield from forms(
            name,
            "input weight? bias? running_mean running_var",
            _batch_norm,
            work.per_element_hard,
            *(*more, number("momentum", 0.1), number("eps", 1e-5)),
            function="batch_norm",
            kinds=Kinds.FLOAT,
            writes=operands("out mean? rstd?", Kinds.FLOAT),
        )
    yield from forms(
        "max_pool2d_with_indices",
        "self:float",
        _pooled,
        work.per_element,
        integers("kernel_size", REQUIRED),
        *map(integers, ("stride", "padding", "dilation")),
        flag("ceil_mode"),
        function="max_pool2d",
        writes="out indices:integer",
    )
    yield from forms(
        "_weight_norm_interface",
        "v:float g:float",
        _weight_norm,
        work.per_element_hard,
        integer("dim", 0),
        function="weight_norm",
        writes="out:float norms:float?",
    )


def _batch_norm(bound: Bound) -> tuple[Shape | None, ...]:
    """The shape of the input; tensors kept for a backward pass are empty."""
    shape = bound.shape("input")
    if bound.flag("training"):
        raise OperatorMismatch("a norm that counts its figures anew (`training`) changes them")
    if len(shape) < 2:
        raise OperatorMismatch(f"there are no channels in {text(shape)}")
    for name in ("weight", "bias", "running_mean", "running_var"):
        if bound.has(name) and bound.shape(name) != (shape[1],):
            raise OperatorMismatch(f"`{name}` must have {shape[1]} elements")
    return (shape, None, None)[: len(bound.writes)]


def _pooled(bound: Bound) -> tuple[Shape | None, ...]:
    """[..., h, w], where h and w are the numbers of windows."""
    shape = bound.shape("self")
    if len(shape) not in (3, 4):
        raise OperatorMismatch(f"there are no planes in {text(shape)}")
    made = (*shape[:-2], *_window_counts(bound))
    return (made, made)


def _window_counts(bound: Bound) -> tuple[int, int]:
    """The numbers of windows along the height and the width."""
    sizes = bound.shape("self")[-2:]
    kernel, stride, padding, dilation = window_sizes(bound)
    counts = []
    for axis in (0, 1):
        reach = sizes[axis] + 2 * padding[axis] - dilation[axis] * (kernel[axis] - 1) - 1
        if reach < 0:
            raise OperatorMismatch(f"windows of {text(kernel)} are larger than {text(sizes)}")
        up = stride[axis] - 1 if bound.flag("ceil_mode") else 0
        count = (reach + up) // stride[axis] + 1
        # The last window begins inside the plane or the padding before it.
        counts.append(count - ((count - 1) * stride[axis] >= sizes[axis] + padding[axis]))
    return counts[0], counts[1]


def window_sizes(bound: Bound) -> tuple[tuple[int, ...], ...]:
    """Kernel, stride, padding and dilation, each for height and width."""
    kernel = pairs(bound.integers("kernel_size"), 2, 1)
    stride = pairs(bound.integers("stride"), 2, 1) if bound.integers("stride") else kernel
    padding = pairs(bound.integers("padding"), 2, 0)
    dilation = pairs(bound.integers("dilation"), 2, 1)
    given = (kernel, stride, padding, dilation)
    if any(len(some) != 2 for some in given) or min(*kernel, *stride, *dilation) < 1:
        raise OperatorMismatch("`kernel_size` and the like need one value per dimension")
    if any(not 0 <= 2 * padding[axis] <= kernel[axis] for axis in (0, 1)):
        raise OperatorMismatch("`padding` is at most half of the window")
    return given


def _weight_norm(bound: Bound) -> tuple[Shape | None, ...]:
    """The shape of the direction, and that of the lengths."""
    shape, lengths = bound.shape("v"), bound.shape("g")
    axis = axis_of(bound.integer("dim"), len(shape))
    wanted = tuple(size if place == axis else 1 for place, size in enumerate(shape))
    if lengths != wanted:
        raise OperatorMismatch(f"`g` is {text(lengths)}, not {text(wanted)}")
    return (shape, None)[: len(bound.writes)]
