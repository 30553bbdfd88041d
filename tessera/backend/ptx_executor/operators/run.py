"""Run a library call on a device: read operands, compute, round, write, log the bytes.

In: an `op` record and the address of every buffer. Out: the result of a launch: the bytes touched.
A call that is not supported here is refused before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np

from tessera.backend.ptx_executor.memory.access_log import AccessLog, Direction
from tessera.backend.ptx_executor.memory.memory import AddressSpace
from tessera.backend.ptx_executor.memory.watch import Shadow
from tessera.backend.ptx_executor.numerics import quiet
from tessera.backend.ptx_executor.operators.elementwise import ELEMENTWISE
from tessera.backend.ptx_executor.operators.matrix import MATRIX
from tessera.backend.ptx_executor.operators.movement import MOVEMENT, MOVES, IndexOutOfRange
from tessera.backend.ptx_executor.operators.reduce import REDUCTIONS
from tessera.backend.ptx_executor.operators.values import (
    COMPLEX,
    Array,
    CallValues,
    round_to,
    storage,
)
from tessera.backend.ptx_executor.simt.launch import LaunchResult
from tessera.diagnostics import ExitCode, TesseraError
from tessera.ir.operators.records import Bound, Kinds, OperandSpec, OperatorMismatch, Reach
from tessera.ir.operators.table import bind
from tessera.ir.program import program as ir

AddressOf = Callable[[ir.BufferId], int]

FUNCTIONS = {**ELEMENTWISE, **MATRIX, **REDUCTIONS, **MOVEMENT}
# Functions that add to the elements they change, so they also read the chosen elements.
_ADDS = frozenset(("scatter_add", "scatter_reduce", "index_add"))


class CalledMemory(Protocol):
    """The part of a `device.Device` that a call uses."""

    space: AddressSpace
    log: AccessLog
    shadow: Shadow | None

    def mark_written(self, address: int, size: int) -> None:
        """Mark bytes as initialised."""


def check(call: ir.LibraryCall) -> Bound:
    """Match the call with the table; refuse a call that cannot run here."""
    try:
        bound = bind(call)
    except OperatorMismatch as reason:
        raise _refused(call, str(reason)) from None
    if bound.operator.function not in FUNCTIONS:
        raise _refused(call, "it has no code on the CPU")
    if _moves_bits(bound):
        return bound
    used = [(spec.name, tensor.dtype) for spec, tensors in bound.reads for tensor in tensors]
    for name, dtype in (*used, *((spec.name, tensor.dtype) for spec, tensor in bound.writes)):
        if dtype in COMPLEX:
            raise _refused(call, f"`{name}` has elements of type `{dtype.value}`")
    return bound


def _refused(call: ir.LibraryCall, reason: str) -> Exception:
    return TesseraError.of(
        "TSR5001",
        f"the CPU backend cannot run the operator `{call.operator}`",
        call.span,
        notes=(reason,),
    )


def _moves_bits(bound: Bound) -> bool:
    """Whether the call only moves elements, between tensors of the same type."""
    numbers = {spec.name for spec in bound.operator.reads if spec.or_number}
    if bound.operator.function not in MOVES or numbers & {name for name, _ in bound.attributes}:
        return False
    given = dict(bound.attributes)
    if given.get("accumulate") or given.get("value") is not None:
        return False
    moved = [
        tensor.dtype
        for spec, tensors in bound.reads
        for tensor in tensors
        if spec.reach is not Reach.NONE and spec.kinds is not Kinds.INTEGER
    ]
    return all(dtype is bound.writes[0][1].dtype for dtype in moved)


def run(device: CalledMemory, call: ir.LibraryCall, address_of: AddressOf) -> LaunchResult:
    """Run a call; the result is like that of a launch with one step."""
    bound = check(call)
    places = _OperandPlaces(device, address_of)
    bits = {spec.name: [_bits(places, spec, t) for t in tensors] for spec, tensors in bound.reads}
    given = CallValues(bound, bits, moves_bits=_moves_bits(bound))
    try:
        with quiet():
            _log_reads(places, given, call)
            made = FUNCTIONS[bound.operator.function](given)
            for (spec, operand), values in zip(bound.writes, made, strict=True):
                _write(places, given, spec, operand, values)
    except IndexOutOfRange as reason:
        raise TesseraError.of(
            "TSR5002",
            f"the operator `{call.operator}` reaches outside a tensor: {reason}",
            call.span,
            exit_code=ExitCode.FAULT,
        ) from None
    return LaunchResult(accesses=device.log.finish(), output="", steps=1)


def _bits(places: _OperandPlaces, spec: OperandSpec, operand: ir.Operand) -> Array:
    """A copy of an operand; of one that is not read, which may have no place here, the shape."""
    if spec.reach is Reach.NONE:
        return np.zeros(operand.shape, storage(operand.dtype))
    return np.array(places.view(operand))


class _OperandPlaces:
    """The locations of operands in the memory of a device."""

    def __init__(self, device: CalledMemory, address_of: AddressOf) -> None:
        self.device = device
        self.address_of = address_of

    def start(self, operand: ir.Operand) -> int:
        """The offset of the first element in the device's memory."""
        address = self.address_of(operand.pointer.buffer) + operand.pointer.offset
        return address - self.device.space.base

    def view(self, operand: ir.Operand) -> Array:
        """An operand in place, as stored."""
        kind = storage(operand.dtype)
        if 0 in operand.shape:
            return np.zeros(operand.shape, kind)
        strides = tuple(kind.itemsize * step for step in operand.element_strides())
        memory = self.device.space.bytes
        return np.ndarray(
            operand.shape, kind, memory.data, offset=self.start(operand), strides=strides
        )

    def ranges(self, operand: ir.Operand, chosen: Array | None) -> Array:
        """The bytes of all elements, or of the chosen elements, as rows of start and end."""
        width, first = operand.dtype.bytes, self.start(operand)
        strides = operand.element_strides()
        if 0 in operand.shape:
            return np.zeros((0, 2), np.int64)
        offsets = np.full((), first, np.int64)
        if chosen is None and _is_dense(operand.shape, strides):
            return np.array([[first, first + operand.extent_bytes()]], np.int64)
        for axis, (size, stride) in enumerate(zip(operand.shape, strides, strict=True)):
            steps = np.arange(size, dtype=np.int64) * (stride * width)
            offsets = offsets + steps.reshape(-1, *([1] * (len(strides) - 1 - axis)))
        picked = np.unique(offsets if chosen is None else offsets[chosen])
        return np.stack([picked, picked + width], axis=1)


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether the elements are contiguous in some order of the dimensions."""
    reach = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size == 1:
            continue
        if stride > reach:
            return False
        reach = stride * (size - 1) + reach
    return True


def _log_reads(places: _OperandPlaces, call: CallValues, record: ir.LibraryCall) -> None:
    for spec, tensors in call.bound.reads:
        for operand in tensors:
            for chosen in _chosen_reads(call, spec):
                _log(places.device.log.reads, places.ranges(operand, chosen))
                _need_written(places, operand, chosen, record)


def _chosen_reads(call: CallValues, spec: OperandSpec) -> Iterator[Array | None]:
    """The elements of an operand that are read: `None` for all; yields nothing if none are."""
    if spec.reach is Reach.WHOLE:
        yield None
    if spec.reach is not Reach.INDEXED:
        return
    if any(written.reach is Reach.INDEXED for written, _ in call.bound.writes):
        adds = call.bound.operator.function in _ADDS
        if adds or dict(call.bound.attributes).get("accumulate"):
            yield _changed(call)
        return
    shape = call[spec.name].shape
    numbers = np.arange(call[spec.name].size).reshape(shape)
    picked = _replaced(call, {spec.name: numbers})
    chosen = np.zeros(numbers.size, np.bool_)
    chosen[picked.astype(np.int64).reshape(-1)] = True
    yield chosen.reshape(shape)


def _changed(call: CallValues) -> Array:
    """The elements of `self` that a function that writes by index changes."""
    marks = {"self": np.zeros(call["self"].shape, np.int64)}
    for name in ("src", "source", "values", "value"):
        if call.has(name):
            marks[name] = np.ones(call[name].shape, np.int64)
    function = call.bound.operator.function
    plain = {"scatter_add": "scatter", "scatter_reduce": "scatter", "index_add": "index_copy"}
    result: Array = _replaced(call, marks, plain.get(function, function)) != 0
    return result


def _replaced(call: CallValues, operands: dict[str, Array], function: str | None = None) -> Array:
    """The result of a function that moves elements, with some operands replaced."""
    other = CallValues(call.bound, dict(call.values), moves_bits=True)
    for name, values in operands.items():
        other.values[name] = [values]
    made = MOVEMENT[function or call.bound.operator.function](other)[0]
    return made


def _log(direction: Direction, ranges: Array) -> None:
    if len(ranges):
        direction.add_ranges(ranges)


def _need_written(
    places: _OperandPlaces, operand: ir.Operand, chosen: Array | None, record: ir.LibraryCall
) -> None:
    shadow = places.device.shadow
    if shadow is None:
        return
    for start, end in places.ranges(operand, chosen).tolist():
        if not shadow.flags[start:end].all():
            raise TesseraError.of(
                "TSR5015",
                f"the operator `{record.operator}` reads memory that nothing has written",
                record.span,
                exit_code=ExitCode.FAULT,
            )


def _write(
    places: _OperandPlaces, call: CallValues, spec: OperandSpec, operand: ir.Operand, values: Array
) -> None:
    target = places.view(operand)
    moved = _moves_bits(call.bound)
    raw = np.asarray(values) if moved else round_to(operand.dtype, np.asarray(values))
    chosen = _changed(call) if spec.reach is Reach.INDEXED else None
    if chosen is None:
        target[...] = raw.reshape(target.shape)
    else:
        target[chosen] = raw.reshape(target.shape)[chosen]
    ranges = places.ranges(operand, chosen)
    _log(places.device.log.writes, ranges)
    base = places.device.space.base
    for start, end in ranges.tolist() if places.device.shadow is not None else ():
        places.device.mark_written(base + start, end - start)
