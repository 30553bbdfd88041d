"""Parts of library calls: the dimensions by which a call can be cut, and the call of a part.

In: a call, an axis and a range of it. Out: the same operator on a range of its operands: pointers
move, shapes shrink, strides stay. `ir.operators.cut_rules` says which dimensions belong together;
here the sizes of the operands and the bytes that they share decide whether that holds for a call.

A part computes each element of its results as the whole call does, from the same elements and in
the same order. On the CPU that gives the same bytes, because its operators have a fixed order for
each element. A library on a GPU may choose another kernel for a smaller call, and round
differently: there, the calls of the plan itself are the reference, all run on one device.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

from tessera.ir.operators.cut_rules import dims_of
from tessera.ir.operators.cuts import NamedDims, Names
from tessera.ir.operators.records import Bound, OperatorMismatch, Reach
from tessera.ir.operators.table import bind
from tessera.ir.program.program import AttributeValue, LibraryCall, Operand, Pointer
from tessera.passes.byte_sets import intervals
from tessera.passes.dependences.plain_steps import operand_bytes
from tessera.wording import Wording


@dataclass(frozen=True, slots=True)
class CallAxis:
    """A dimension by which a call can be cut, between multiples of `multiple` elements."""

    axis: str
    extent: int
    multiple: int


@dataclass(frozen=True, slots=True)
class CallCuts:
    """The axes of a call, and why its other dimensions are none."""

    axes: tuple[CallAxis, ...]
    refused: tuple[tuple[str, Wording], ...]


def call_axes(call: LibraryCall) -> tuple[CallAxis, ...]:
    """The axes by which a call can be cut into at least two parts."""
    return call_cuts(call).axes


def why_not_axis(call: LibraryCall, axis: str) -> Wording | None:
    """Why a call cannot be cut by an axis; None if it can."""
    cuts = call_cuts(call)
    if any(known.axis == axis for known in cuts.axes):
        return None
    names = (*(known.axis for known in cuts.axes), *(name for name, _ in cuts.refused))
    listed = ", ".join(f"`{name}`" for name in names)
    other = Wording(f"`{call.operator}` has no dimension `{axis}`; it has {listed or 'none'}")
    return next((reason for name, reason in cuts.refused if name == axis), other)


def call_cuts(call: LibraryCall) -> CallCuts:
    """Each dimension of the results, as an axis or with the reason why it is none."""
    try:
        bound = bind(call)
    except OperatorMismatch as mismatch:
        return CallCuts((), (("", Wording(str(mismatch))),))
    dims = dims_of(bound)
    shared = _shared_bytes(bound, dims)
    axes: list[CallAxis] = []
    refused: list[tuple[str, Wording]] = []
    for axis, extent in _extents(call, dims).items():
        reason = dict(dims.kept).get(axis, shared)
        if reason is None:
            reason = _misfit(call, dims, axis, extent)
        units = dict(dims.units).get(axis, extent)
        if reason is None and min(units, extent) < 2:
            reason = Wording(f"it cannot be divided: {extent} elements in {units} pieces")
        if reason is None:
            axes.append(CallAxis(axis, extent, extent // units))
        else:
            refused.append((axis, reason))
    return CallCuts(tuple(axes), tuple(refused))


def part_of_call(call: LibraryCall, axis: str, first: int, end: int) -> LibraryCall:
    """The call on the range from `first` to `end` of an axis that `call_axes` gives."""
    dims = dims_of(bind(call))
    extent = _extents(call, dims)[axis]

    def cut(operand: Operand, names: Names) -> Operand:
        if axis not in names:
            return operand
        at = names.index(axis)
        size = operand.shape[at]
        return _narrowed(operand, at, first * size // extent, end * size // extent)

    kept = len(call.writes) - (dims.once if first else 0)
    changes = {(r.attribute, r.at): r for r in dims.resized if r.axis == axis}
    return replace(
        call,
        reads=tuple(map(cut, call.reads, dims.reads)),
        writes=tuple(map(cut, call.writes, dims.writes))[:kept],
        attributes=tuple(
            (name, _resized(value, [at for key, at in changes if key == name], end - first, extent))
            for name, value in call.attributes
        ),
    )


def _narrowed(operand: Operand, axis: int, first: int, end: int) -> Operand:
    """A range of one dimension; strides are stated if they are no longer row-major."""
    strides = operand.element_strides()
    shape = (*operand.shape[:axis], end - first, *operand.shape[axis + 1 :])
    offset = operand.pointer.offset + first * strides[axis] * operand.dtype.bytes
    made = Operand(
        pointer=Pointer(operand.pointer.buffer, offset), dtype=operand.dtype, shape=shape
    )
    if operand.strides is None and made.element_strides() == strides:
        return made
    return replace(made, strides=strides)


def _resized(
    value: AttributeValue, places: list[int | None], length: int, extent: int
) -> AttributeValue:
    """An attribute that counts elements of the axis, for `length` of them."""
    if isinstance(value, tuple):
        return tuple(
            part * length // extent if at in places and isinstance(part, int) else part
            for at, part in enumerate(value)
        )
    return value * length // extent if places and isinstance(value, int) else value


def _extents(call: LibraryCall, dims: NamedDims) -> dict[str, int]:
    """The size of each dimension of the results, by its name."""
    extents: dict[str, int] = {}
    for operand, names in zip(call.writes, dims.writes, strict=True):
        for name, size in zip(names, operand.shape, strict=False):
            if name:
                extents.setdefault(name, size)
    return extents


def _misfit(call: LibraryCall, dims: NamedDims, axis: str, extent: int) -> Wording | None:
    """Why the operands of a call cannot all be cut along an axis."""
    units = dict(dims.units).get(axis, extent)
    written = list(zip(call.writes, dims.writes, strict=True))
    cut = written[: len(written) - dims.once]
    for operand, names in (*zip(call.reads, dims.reads, strict=True), *cut):
        sizes = [size for name, size in zip(names, operand.shape, strict=False) if name == axis]
        if len(names) != len(operand.shape) or len(sizes) > 1:
            return Wording("the shapes of its operands are not those of its rule")
        if sizes and (units == 0 or sizes[0] % units or (units == extent != sizes[0])):
            return Wording(f"an operand has {sizes[0]} elements along it, the result {extent}")
    if any(axis not in names and 0 not in operand.shape for operand, names in cut):
        return Wording("each part would write all of one of its results")
    return None


def _shared_bytes(bound: Bound, dims: NamedDims) -> Wording | None:
    """Why no axis is safe: bytes that two elements of the results have, or that a part reads and
    another writes."""
    writes = [operand for _, operand in bound.writes]
    if not all(map(_is_injective, writes)):
        return Wording("elements of a result lie on each other")
    if any(_overlap(left, right) for left, right in combinations(writes, 2)):
        return Wording("two of its results share bytes")
    specs = [(spec, operand) for spec, operands in bound.reads for operand in operands]
    for (spec, read), own in zip(specs, dims.reads, strict=True):
        for written, names in zip(writes, dims.writes, strict=True):
            same = own == names and _layout(read) == _layout(written)
            if spec.reach is not Reach.NONE and not same and _overlap(read, written):
                return Wording(f"`{spec.name}` shares bytes with a result")
    return None


def _layout(operand: Operand) -> tuple[Pointer, int, tuple[int, ...], tuple[int, ...]]:
    return operand.pointer, operand.dtype.bytes, operand.shape, operand.element_strides()


def _overlap(left: Operand, right: Operand) -> bool:
    """Whether two operands share a byte."""
    if left.pointer.buffer != right.pointer.buffer:
        return False
    starts = (left.pointer.offset, right.pointer.offset)
    if max(starts) >= min(starts[0] + left.extent_bytes(), starts[1] + right.extent_bytes()):
        return False
    return len(intervals.intersect(operand_bytes(left), operand_bytes(right))) > 0


def _is_injective(operand: Operand) -> bool:
    """Whether no two elements share a byte: each stride is past all smaller dimensions."""
    if 0 in operand.shape:
        return True
    reach = 1
    for stride, size in sorted(zip(operand.element_strides(), operand.shape, strict=True)):
        if size > 1:
            if stride < reach:
                return False
            reach += stride * (size - 1)
    return True
