"""Library calls in parts: that each part is its range of the operands of the whole call.

In: a call, its parts and their cut. Out: what is wrong, in words. The table of operators says
which dimensions of operands belong together (`ir.operators.cut_rules`); that is trusted, as the
table is in all that it says of operators. That the parts are these ranges is judged here, operand
by operand, and `division` judges the bytes that they touch.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tessera.ir.operators.cut_rules import dims_of
from tessera.ir.operators.cuts import NamedDims, Names
from tessera.ir.operators.records import OperatorMismatch
from tessera.ir.operators.table import bind, table
from tessera.ir.plan.division import Cut
from tessera.ir.program.program import AttributeValue, LibraryCall, Operand


def call_fault(whole: LibraryCall, parts: Sequence[LibraryCall], cut: Cut) -> str:
    """Why calls are not the parts of a call by a cut; empty if they are."""
    try:
        dims = dims_of(bind(whole))
    except OperatorMismatch as misfit:
        return str(misfit)
    axis, extent = cut.axis, cut.edges[-1]
    for name, why in dims.kept:
        if name == axis:
            return f"`{axis}` is kept whole: {why}"
    units = dict(dims.units).get(axis, extent)
    if units < 1 or extent % units or any(edge % (extent // units) for edge in cut.edges):
        return f"`{axis}` has {units} pieces, and edges at {cut.edges}"
    results = list(zip(whole.writes, dims.writes, strict=True))
    results = [(o, names) for o, names in results[: len(results) - dims.once] if 0 not in o.shape]
    if not axis or not results or not all(names.count(axis) == 1 for _, names in results):
        return f"`{axis}` is no dimension of every result"
    size = results[0][0].shape[results[0][1].index(axis)]
    if size != extent:
        return f"`{axis}` is {size} long, and the parts end at {extent}"
    for part, bounds in zip(parts, pairwise(cut.edges), strict=True):
        if reason := _part_fault(whole, part, dims, axis, (*bounds, extent)):
            return f"{reason} in the part from {bounds[0]} to {bounds[1]}"
    return ""


def may_vary(call: LibraryCall) -> bool:
    """Whether a call may give other bytes each time that it is made."""
    operator = table().get(call.operator)
    if operator is None or operator.function == "other":
        return True
    return operator.function in _UNORDERED or bool(dict(call.attributes).get("accumulate"))


_UNORDERED = frozenset(
    ("scatter_add", "scatter_reduce", "index_add", "cumsum", "cumprod", "histc", "bincount")
)

Bounds = tuple[int, int, int]
"""The first element of a part, its end, and the extent of the axis."""


def _part_fault(
    whole: LibraryCall, part: LibraryCall, dims: NamedDims, axis: str, bounds: Bounds
) -> str:
    count = len(whole.writes) - (dims.once if bounds[0] else 0)
    if (part.operator, part.stream) != (whole.operator, whole.stream):
        return "another operator"
    if len(part.reads) != len(whole.reads) or len(part.writes) != count:
        return "more or fewer operands"
    named = [*zip(whole.reads, part.reads, dims.reads, strict=True)]
    named += zip(whole.writes, part.writes, dims.writes, strict=False)
    for operand, own, names in named:
        if not _is_range(operand, own, names, axis, bounds):
            return f"another range of an operand of `{whole.operator}`"
    if [name for name, _ in part.attributes] != [name for name, _ in whole.attributes]:
        return "other attributes"
    for (name, value), (_, own_value) in zip(whole.attributes, part.attributes, strict=True):
        places = [r.at for r in dims.resized if (r.attribute, r.axis) == (name, axis)]
        if not _is_attribute(value, own_value, places, bounds):
            return f"another attribute `{name}`"
    return ""


def _is_range(operand: Operand, own: Operand, names: Names, axis: str, bounds: Bounds) -> bool:
    """Whether an operand is the range of another along the dimension with a name."""
    first, end, extent = bounds
    strides = operand.element_strides()
    if own.dtype != operand.dtype or own.element_strides() != strides:
        return False
    if len(names) != len(operand.shape) or names.count(axis) > 1:
        return False
    offset = operand.pointer.offset
    shape = list(operand.shape)
    for at, name in enumerate(names):
        if name == axis:
            size = operand.shape[at]
            if first * size % extent or end * size % extent:
                return False
            shape[at] = (end - first) * size // extent
            offset += first * size // extent * strides[at] * operand.dtype.bytes
    place = own.pointer.buffer, own.pointer.offset, list(own.shape)
    return place == (operand.pointer.buffer, offset, shape)


def _is_attribute(
    value: AttributeValue, own: AttributeValue, places: list[int | None], bounds: Bounds
) -> bool:
    """Whether an attribute counts what is cut in proportion, and is the same in all else."""
    first, end, extent = bounds
    if not places:
        return own == value and type(own) is type(value)
    if isinstance(value, tuple) and isinstance(own, tuple) and len(value) == len(own):
        return all(
            _is_attribute(value[at], own[at], [None] if at in places else [], bounds)
            for at in range(len(value))
        )
    whole_number = isinstance(value, int) and isinstance(own, int)
    return whole_number and own * extent == value * (end - first)  # type: ignore[operator]
