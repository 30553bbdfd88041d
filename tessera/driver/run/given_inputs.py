"""Inputs of requests from a file that the user names.

In: an open plan and a `.npz` or `.safetensors` file. Out: `GivenInput` by `INPUT` or by
`TRACE/INPUT`: the input of each given request, one after the other.

An array has the input's shape, or that shape after a leading axis of requests; rows may be flat.
Its elements have the input's size and kind. Unsigned integers of that size are the bits of any
type, and uint8 is the raw bytes of any input, in any shape: that is how types that NumPy lacks are
given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tessera.backend.ptx_executor.memory.host_memory import available_bytes
from tessera.backend.service import Bytes
from tessera.diagnostics import Diagnostic, ExitCode, TesseraError, error
from tessera.driver.run.open_plan import OpenPlan
from tessera.frontend.contents.files import ArrayType
from tessera.frontend.contents.open_contents import open_arrays
from tessera.frontend.trace.findings import did_you_mean
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import Buffer, Role


@dataclass(frozen=True, slots=True)
class GivenInput:
    """Bytes for requests, one after the other; `axis`: the array has a leading axis of requests."""

    content: Bytes
    axis: bool

    def rows(self, buffer: Buffer) -> int | None:
        """The number of requests that the bytes are for; None: one row for all."""
        count = len(self.content) // buffer.bytes if buffer.bytes else 1
        return count if count > 1 or self.axis else None

    def row(self, buffer: Buffer, turn: int) -> Bytes:
        """The bytes for one request; a single row is for all."""
        first = buffer.bytes * (turn if len(self.content) > buffer.bytes else 0)
        return self.content[first : first + buffer.bytes]


def read_given(opened: OpenPlan, path: str, root: str | None = None) -> dict[str, GivenInput]:
    """The arrays of a file; an array that is no input of the plan, or does not fit, is an error."""
    wanted = _wanted(opened)
    arrays = open_arrays(path, root=root)
    try:
        problems = [
            problem
            for name, kind in arrays.types.items()
            if (problem := _problem(name, kind, wanted, path)) is not None
        ]
        if problems:
            raise TesseraError(problems[:20])
        _check_room(path, sum(arrays.sizes.values()))
        return {
            name: GivenInput(arrays.read(name), _has_axis(wanted[name], kind))
            for name, kind in arrays.types.items()
        }
    finally:
        arrays.close()


def _check_room(path: str, needed: int) -> None:
    """Check that unpacked contents fit memory: a small packed file may hold many bytes."""
    free = available_bytes()
    if free is not None and needed > free and not path.endswith(".safetensors"):
        raise TesseraError.of(
            "TSR5020",
            f"the machine has no memory for the inputs in `{path}`: {needed} bytes",
            notes=(f"{free} bytes are available",),
            hint="a `.safetensors` file is mapped, not read",
            exit_code=ExitCode.FAULT,
        )


def _wanted(opened: OpenPlan) -> dict[str, list[Buffer]]:
    """The inputs of each name: a name without a trace means the inputs of all traces."""
    wanted: dict[str, list[Buffer]] = {}
    for trace, program in zip(opened.plan.traces, opened.programs, strict=True):
        for buffer in program.buffers:
            if buffer.role is Role.INPUT:
                wanted.setdefault(buffer.name, []).append(buffer)
                wanted.setdefault(f"{trace.name}/{buffer.name}", []).append(buffer)
    return wanted


def _problem(
    name: str, array: ArrayType, wanted: Mapping[str, list[Buffer]], path: str
) -> Diagnostic | None:
    if name not in wanted:
        known = ", ".join(f"`{name}`" for name in wanted if "/" not in name) or "none"
        return error(
            "TSR5053",
            f"array `{name[:80]}` in `{path}` is no input of the plan",
            hint=did_you_mean(name, wanted) or f"the inputs are: {known}",
        )
    for buffer in wanted[name]:
        if not _fits(buffer, array):
            return error(
                "TSR5053",
                f"array `{name}` in `{path}` does not fit the input: it is {array.text()}",
                notes=(
                    f"input `{buffer.name}` is {_described(buffer)}; with an axis of requests "
                    "in front, one per request",
                ),
                hint="convert the array, or give raw bytes as uint8",
            )
    return None


def _fits(buffer: Buffer, array: ArrayType) -> bool:
    size = prod(array.shape) * array.bytes
    whole = size == 0 if buffer.bytes == 0 else size > 0 and size % buffer.bytes == 0
    if array.kind == "u" and array.bytes == 1:
        return whole
    return whole and _is_kind(buffer.dtype, array) and _is_shape(buffer, array)


def _is_kind(dtype: DataType | None, array: ArrayType) -> bool:
    if dtype is None:
        return True
    if dtype.bytes != array.bytes:
        return False
    if array.kind == "u" or dtype.is_bits:
        return True
    if dtype.is_float:
        return array.kind == "f"
    if dtype in (DataType.C64, DataType.C128):
        return array.kind == "c"
    return array.kind in "ib"


def _is_shape(buffer: Buffer, array: ArrayType) -> bool:
    """Whether an array has the input's shape or is flat, with or without an axis of requests."""
    own = _shapes(buffer, array)
    return array.shape in own or (bool(array.shape) and array.shape[1:] in own)


def _shapes(buffer: Buffer, array: ArrayType) -> set[tuple[int, ...]]:
    """The shapes that an array may have for one request; a single number needs no axis."""
    elements = buffer.bytes // array.bytes if array.bytes else 0
    shapes: set[tuple[int, ...]] = {(elements,)}
    shapes |= set() if buffer.shape is None else {buffer.shape}
    return shapes | {()} if elements == 1 and buffer.shape is None else shapes


def _has_axis(buffers: Sequence[Buffer], array: ArrayType) -> bool:
    """Whether an array has one axis more than the input."""
    shapes = {shape for buffer in buffers for shape in _shapes(buffer, array)}
    return array.shape not in shapes and bool(array.shape) and array.shape[1:] in shapes


def _described(buffer: Buffer) -> str:
    kind = "bytes" if buffer.dtype is None else buffer.dtype.value
    size = 1 if buffer.dtype is None else buffer.dtype.bytes
    shape = (buffer.bytes // size,) if buffer.shape is None else buffer.shape
    return f"{kind} of shape {shape}, {buffer.bytes} bytes"
