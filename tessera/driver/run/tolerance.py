"""How far apart two results of one launch are, in the numbers that their bytes stand for.

In: bytes of a buffer from two runs, and its type. Out: the worst element, the error by norm, and
whether both are within the tolerance of the type. The error of an element is relative to the
element or, if that is smaller, to the usual size of elements: the median of the nonzero ones, or a
hundredth of their root mean square. The reason is that intermediate values are as large as the
neighbours of an element, and sums in another order lose relative precision near zero. The median
keeps a few elements that are a thousand times as large as the rest from hiding errors in the rest.
The norm of all errors has to be within a third of the tolerance, so that many small errors do not
pass as rounding; so does the norm of the errors of elements no larger than ten times the usual
size. Among very many elements, some have several times the usual error: with a thousand or more,
the limit of an element is three times the error that 99 of 100 are within, if that is more than
the tolerance, and at most three times the tolerance. Integers have to be equal; NaN equals NaN.

A result is no more exact than the values it is computed from: `widened` is a type that earlier
steps round to. `approximations` finds it, and library calls, and kernels with approximate
instructions (`ex2.approx`) or matrix products without a stated order of sums: devices may differ.

`near_ties` judges integers that differ: indices of ordered values (`sort`, `topk`, `argmax`) may
differ if the values are equal within their tolerance. The evidence is the ordered values, if both
runs name the same indices of a row, or the tensor that was ordered, if the indices lead to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tessera.backend.service import Bytes
from tessera.ir.program import program as ir
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import Buffer
from tessera.passes.kernel_facts.inline_calls import inline_calls

TOLERANCE = {
    DataType.F64: 1e-10,
    DataType.F32: 1e-4,
    DataType.F16: 5e-3,
    DataType.BF16: 3e-2,
    DataType.E4M3: 0.15,
    DataType.E5M2: 0.3,
    DataType.C64: 1e-4,
    DataType.C128: 1e-10,
}
_FLOOR = 0.01
_FEW_ARE_LARGER = 10.0
_MANY = 1000
_TAIL = 3.0
_NORM = 1 / 3  # of the tolerance: how large the error by norm may be, where there are many elements


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """The worst element of a comparison: its index, its expected and its found value; and the
    number of unequal elements and of all. A complex number is one element."""

    element: int
    expected: float | int
    found: float | int
    error: float
    tolerance: float
    norm: float = 0.0
    norm_tolerance: float = 0.0
    different: int = 0
    count: int = 0

    @property
    def is_within(self) -> bool:
        """Whether the error is within the tolerance."""
        return self.error <= self.tolerance and self.norm <= self.norm_tolerance

    def text(self) -> str:
        """The worst element in words."""
        actual, expected = (
            str(number) if isinstance(number, int) else f"{number:.8g}"
            for number in (self.found, self.expected)
        )
        return (
            f"element {self.element}: {actual} instead of {expected}, "
            f"error {self.error:.2g} of {self.tolerance:.2g} allowed, "
            f"by norm {self.norm:.2g} of {self.norm_tolerance:.2g}"
        )


def distance(
    dtype: DataType | None, expected: Bytes, actual: Bytes, widened: DataType | None = None
) -> Distance:
    """Compare the bytes of one buffer, or of a run of whole elements of it."""
    elements = as_numbers(dtype, expected), as_numbers(dtype, actual)
    left, right = (part.astype(np.float64) for part in elements)
    tolerance = tolerance_of(dtype, widened)
    if not len(left):
        return Distance(element=0, expected=0.0, found=0.0, error=0.0, tolerance=tolerance)
    with np.errstate(invalid="ignore", over="ignore"):
        same = (elements[0] == elements[1]) | (np.isnan(left) & np.isnan(right))
        # 64-bit integers may differ although their nearest binary64 values are equal.
        apart = np.where(same, 0.0, np.maximum(np.abs(left - right), np.spacing(np.abs(left))))
        usual = scale_of(left)
        scale = np.maximum(np.abs(left), usual)
        errors = np.where(same, 0.0, apart / scale)
        whole = np.isfinite(left) & np.isfinite(apart)
        most = whole & (np.abs(left) <= _FEW_ARE_LARGER * usual)
        off = max(
            _norm(apart[whole], np.linalg.norm(left[whole])),
            _norm(apart[most], np.linalg.norm(scale[most])),
        )
    errors = np.where(np.isnan(errors), np.inf, errors)
    worst = int(np.argmax(errors))
    parts = 2 if dtype in (DataType.C64, DataType.C128) else 1
    differ = ~same if parts == 1 else ~(same[::2] & same[1::2])
    return Distance(
        element=worst // parts,
        expected=elements[0][worst].item(),
        found=elements[1][worst].item(),
        error=float(errors[worst]),
        tolerance=_limit(errors, tolerance),
        norm=off,
        norm_tolerance=tolerance * max(_NORM, len(left) ** -0.5),
        different=int(differ.sum()),
        count=len(differ),
    )


def tolerance_of(dtype: DataType | None, widened: DataType | None = None) -> float:
    """The relative error that an element of a type may have; 0 for integers."""
    tolerance = 0.0 if dtype is None else TOLERANCE.get(dtype, 0.0)
    return max(tolerance, TOLERANCE.get(widened, 0.0)) if tolerance and widened else tolerance


def scale_of(numbers: npt.NDArray[np.float64]) -> float:
    """The least size that errors of elements are measured against."""
    return max(_usual(numbers), float(np.finfo(np.float64).tiny))


def _limit(errors: npt.NDArray[np.float64], tolerance: float) -> float:
    """The largest allowed error of an element, by the error that 99 of 100 are within."""
    if len(errors) < _MANY or not tolerance:
        return tolerance
    most = float(np.quantile(errors, 0.99, method="higher"))
    return min(max(tolerance, _TAIL * most), _TAIL * tolerance)


def _norm(apart: npt.NDArray[np.float64], size: np.floating) -> float:
    """The norm of the errors, relative to the norm of the values."""
    off = float(np.linalg.norm(apart))
    return off / float(size) if size else (np.inf if off else 0.0)


def _usual(numbers: npt.NDArray[np.float64]) -> float:
    """The usual size of elements: errors are not measured against less."""
    sizes = np.abs(numbers[np.isfinite(numbers) & (numbers != 0)])
    if not len(sizes):
        return 0.0
    largest = float(sizes.max())
    mean_square = float(np.sqrt(np.mean((sizes / largest) ** 2))) * largest
    return max(float(np.median(sizes)), _FLOOR * mean_square)


_GUESSES = (DataType.F32, DataType.BF16, DataType.F16, DataType.F64)


def nearest(
    dtype: DataType | None, expected: Bytes, actual: Bytes
) -> tuple[DataType | None, Distance]:
    """Compare in the buffer's own type, or in the type that a launch may have stored instead.

    Memory is reused: a buffer may hold elements of another type than its declared one, or have no
    declared type.
    """
    first = distance(dtype, expected, actual)
    if first.is_within:
        return dtype, first
    for guess in _GUESSES:
        if guess is not dtype and len(expected) % guess.bytes == 0:
            other = distance(guess, expected, actual)
            if other.is_within:
                return guess, other
    return dtype, first


def as_numbers(dtype: DataType | None, content: Bytes) -> npt.NDArray[Any]:
    """Elements as numbers; complex elements as pairs, untyped ones as bytes."""
    raw = np.ascontiguousarray(content)
    match dtype:
        case DataType.F64 | DataType.C128:
            return raw.view(np.float64)
        case DataType.F32 | DataType.C64:
            return raw.view(np.float32)
        case DataType.F16:
            return raw.view(np.float16)
        case DataType.BF16:
            return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        case DataType.E5M2:
            return (raw.astype(np.uint16) << 8).view(np.float16)
        case DataType.E4M3:
            return _from_e4m3(raw)
        case None:
            return raw
        case _ if len(raw) % dtype.bytes:  # not all bytes of an element were written
            return raw
        case _:
            return raw.view(f"{'i' if dtype.is_signed else 'u'}{dtype.bytes}")


def _from_e4m3(raw: Bytes) -> npt.NDArray[np.float64]:
    exponent, fraction = (raw >> 3) & 15, (raw & 7).astype(np.float64)
    normal = (8.0 + fraction) * 2.0 ** (exponent.astype(np.float64) - 10.0)
    values = np.where(exponent == 0, fraction * 2.0**-9, normal)
    values = np.where((raw & 0x7F) == 0x7F, np.nan, values)
    return np.where(raw & 0x80, -values, values)


# --- steps that approximate ----------------------------------------------------------------------


_PRODUCTS = ("mma", "wgmma", "wmma", "tcgen05")
_ROUNDED = (DataType.F64, DataType.F32, DataType.F16, DataType.BF16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Approximations:
    """Kernels by name with their approximate instructions, and the number of library calls."""

    kernels: tuple[tuple[str, tuple[str, ...]], ...]
    calls: int
    widened: DataType | None

    def text(self, most: int = 4) -> str:
        """The steps that approximate, in words."""
        names = [f"`{name}` ({', '.join(opcodes)})" for name, opcodes in self.kernels[:most]]
        more = len(self.kernels) - len(names)
        names += [f"{more} more kernels"] if more else []
        names += [f"{self.calls} library calls"] if self.calls else []
        return ", ".join(names) if names else "no step approximates"


def approximations(program: ir.Program) -> Approximations:
    """The steps of a program that approximate."""
    launched = dict.fromkeys((step.module, step.kernel) for step in program.launches())
    kernels = []
    for module, name in launched:
        variant = program.modules[module].variants[0]
        for kernel in variant.ptx.kernels():
            if kernel.name == name and kernel.body is not None:
                used = {
                    _named(instruction.opcode.name, instruction.opcode.modifiers)
                    for instruction in inline_calls(variant.ptx, kernel).instructions
                }
                opcodes = tuple(sorted(opcode for opcode in used if opcode))
                if opcodes:
                    kernels.append((name, opcodes))
    calls = sum(isinstance(step, ir.LibraryCall) for step in program.work())
    kinds = {buffer.dtype for buffer in program.declared_buffers()}
    coarse = [kind for kind in _ROUNDED if kind in kinds]
    return Approximations(
        kernels=tuple(kernels),
        calls=calls,
        widened=max(coarse, key=lambda kind: TOLERANCE[kind])
        if coarse and (kernels or calls)
        else None,
    )


def _named(name: str, modifiers: tuple[str, ...]) -> str:
    """The short name of an instruction that approximates; empty for others."""
    if "approx" in modifiers:
        return f"{name}.approx"
    return name if name in _PRODUCTS else ""


# --- orders among near ties ----------------------------------------------------------------------


Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
_PLACES = (DataType.S32, DataType.S64, DataType.U32, DataType.S16, DataType.U16, DataType.U8)


@dataclass(frozen=True, slots=True, kw_only=True)
class NearTies:
    """The number of indices of `count` that differ; `values` names the buffer that was ordered,
    `error` is the largest error."""

    places: int
    count: int
    values: str
    error: float
    tolerance: float

    def text(self, name: str) -> str:
        """The ties in words; `name` is the result that holds the indices."""
        return (
            f"`{name}` has another order in {self.places} of {self.count} places, all among "
            f"values of `{self.values}` that are equal within the tolerance (at most "
            f"{self.error:.2g} of {self.tolerance:.2g} apart)"
        )


def near_ties(
    buffer: Buffer,
    recorded: Bytes,
    found: Bytes,
    floats: Iterable[tuple[Buffer, Bytes]],
    widened: DataType | None,
) -> NearTies | None:
    """The near ties, if the indices that differ are of values equal within tolerance; `floats` are
    the recorded results to search for those values."""
    shape = _shape(buffer)
    if buffer.dtype not in _PLACES or shape is None:
        return None
    left, right = (as_numbers(buffer.dtype, part).astype(np.int64) for part in (recorded, found))
    for values, content in floats:
        of = _shape(values)
        tolerance = tolerance_of(values.dtype, widened)
        if not tolerance or of is None or values.dtype is None or not values.dtype.is_float:
            continue
        numbers = as_numbers(values.dtype, content).astype(np.float64)
        scale = scale_of(numbers)
        for pair in _pairs(left, right, shape, numbers, of, tolerance * scale):
            error = float(np.max(np.abs(pair[0] - pair[1]) / np.maximum(np.abs(pair[0]), scale)))
            if error <= tolerance:  # false for NaN
                return NearTies(
                    places=int((left != right).sum()),
                    count=len(left),
                    values=values.name,
                    error=error,
                    tolerance=tolerance,
                )
    return None


def _pairs(
    left: Places,
    right: Places,
    shape: tuple[int, ...],
    numbers: Floats,
    of: tuple[int, ...],
    slack: float,
) -> Iterator[tuple[Floats, Floats]]:
    """The values that both orders name, for every way in which `numbers` can be evidence."""
    if len(left) == 1:
        yield from _from_source(left[None], right[None], numbers[None], slack)
    for axis in range(len(of)):
        rest = of[:axis] + of[axis + 1 :]
        rows = np.moveaxis(numbers.reshape(of), axis, -1).reshape(-1, of[axis])
        if shape == rest:
            yield from _from_source(left[:, None], right[:, None], rows, slack)
        if len(shape) == len(of) and shape[:axis] + shape[axis + 1 :] == rest:
            places = [np.moveaxis(p.reshape(shape), axis, -1) for p in (left, right)]
            first, second = (p.reshape(-1, shape[axis]) for p in places)
            yield from _from_source(first, second, rows, slack)
            if shape == of:
                yield from _from_values(first, second, rows, slack)


def _from_source(
    left: Places, right: Places, rows: Floats, slack: float
) -> Iterator[tuple[Floats, Floats]]:
    """Indices into the rows of the ordered tensor: both orders have to sort it."""
    if not left.size or min(left.min(), right.min()) < 0:
        return
    if max(left.max(), right.max()) >= rows.shape[1] or not _are_distinct(left, right):
        return
    first, second = (np.take_along_axis(rows, places, 1) for places in (left, right))
    begins_at_end = any(
        bool((np.abs(first[:, 0] - end) <= slack).all()) for end in (rows.max(1), rows.min(1))
    )
    if begins_at_end and _is_ordered(first, slack):
        yield first, second


def _from_values(
    left: Places, right: Places, rows: Floats, slack: float
) -> Iterator[tuple[Floats, Floats]]:
    """Indices beside the sorted values: the value at the position to which each index moved."""
    if not left.size or not _is_ordered(rows, slack) or not _are_distinct(left, right):
        return
    before, after = np.argsort(left, axis=1), np.argsort(right, axis=1)
    if np.array_equal(np.take_along_axis(left, before, 1), np.take_along_axis(right, after, 1)):
        yield np.take_along_axis(rows, before, 1), np.take_along_axis(rows, after, 1)


def _is_ordered(rows: Floats, slack: float) -> bool:
    steps = np.diff(rows, axis=1)
    return bool((steps <= slack).all() or (steps >= -slack).all())


def _are_distinct(*orders: Places) -> bool:
    return all(bool((np.diff(np.sort(order, axis=1), axis=1) > 0).all()) for order in orders)


def _shape(buffer: Buffer) -> tuple[int, ...] | None:
    """The extents of a buffer; empty for a single number."""
    if buffer.shape is None and buffer.dtype is not None and buffer.bytes == buffer.dtype.bytes:
        return ()
    return buffer.shape
