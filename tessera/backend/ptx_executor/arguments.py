"""Launch arguments: from what a person passes to the bytes that a kernel reads."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from tessera.backend.ptx_executor.emit.compiled import KernelProgram
from tessera.backend.ptx_executor.emit.kinds import kind_of, pack_float
from tessera.backend.ptx_executor.memory.memory import Array
from tessera.backend.ptx_executor.simt.faults import refuse
from tessera.diagnostics import TesseraError
from tessera.ir.ptx import syntax as ptx


@runtime_checkable
class HasAddress(Protocol):
    """Anything that stands for a device address: an array, or a place inside one."""

    @property
    def address(self) -> int:
        """The device address."""


def pack_arguments(program: KernelProgram, args: Sequence[object]) -> Array:
    """The parameter block, padded so that every word in it can be viewed."""
    formals = program.kernel.parameters
    if len(args) != len(formals):
        raise refuse(
            "TSR5006",
            f"kernel `{program.kernel.name}` takes {len(formals)} arguments: {len(args)} given",
            program.module.span(program.kernel.at),
            notes=("parameters: " + (", ".join(map(describe, formals)) or "none"),),
        )
    block = np.zeros(-(-max(program.parameter_size, 1) // 16) * 16 + 16, dtype=np.uint8)
    for number, (formal, value) in enumerate(zip(formals, args, strict=True)):
        offset, size = program.parameters[number]
        packed = pack_argument(program, number, formal, size, value)
        block[offset : offset + size] = np.frombuffer(packed, dtype=np.uint8)
    return block


def describe(formal: ptx.Variable) -> str:
    """`name: .u64`."""
    shape = "".join(f"[{d}]" for d in formal.dimensions)
    return f"`{formal.name}` .{formal.type}{shape}"


def pack_argument(
    program: KernelProgram, number: int, formal: ptx.Variable, size: int, value: object
) -> bytes:
    """The bytes of one argument, exactly `size` of them."""
    if not isinstance(value, bytes | int | float | np.generic) and isinstance(value, HasAddress):
        if size != 8 or formal.dimensions:
            raise _mismatch(program, number, formal, "an address needs a 64-bit parameter")
        return struct.pack("<Q", value.address)
    if isinstance(value, bytes | bytearray | memoryview):
        return _exact(program, number, formal, size, bytes(value))
    if isinstance(value, np.ndarray | np.generic):
        return _exact(program, number, formal, size, value.tobytes())
    if formal.dimensions:
        raise _mismatch(program, number, formal, f"needs {size} bytes, as `bytes` or an array")
    if isinstance(value, bool | int):
        return _pack_integer(program, number, formal, size, int(value))
    if isinstance(value, float):
        kind = kind_of(formal.type)
        if kind.form != "f":
            reason = "a Python float needs an .f32 or .f64 parameter; pass a NumPy scalar instead"
            raise _mismatch(program, number, formal, reason)
        return pack_float(value, size).to_bytes(size, "little")
    raise _mismatch(program, number, formal, f"cannot pass a {type(value).__name__}")


def _pack_integer(
    program: KernelProgram, number: int, formal: ptx.Variable, size: int, value: int
) -> bytes:
    if kind_of(formal.type).form == "f":
        try:
            return pack_float(float(value), size).to_bytes(size, "little")
        except OverflowError:
            reason = f"a number of {value.bit_length()} bits does not fit"
            raise _mismatch(program, number, formal, reason) from None
    low = -(1 << 8 * size - 1)
    high = (1 << 8 * size) - 1 if formal.type[0] != "s" else (1 << 8 * size - 1) - 1
    if not low <= value <= high:
        shown = value if value.bit_length() <= 128 else f"a number of {value.bit_length()} bits"
        raise _mismatch(program, number, formal, f"{shown} does not fit")
    return (value & (1 << 8 * size) - 1).to_bytes(size, "little")


def _exact(
    program: KernelProgram, number: int, formal: ptx.Variable, size: int, packed: bytes
) -> bytes:
    if len(packed) != size:
        reason = f"the parameter has {size} bytes, the argument {len(packed)}"
        raise _mismatch(program, number, formal, reason)
    return packed


def _mismatch(
    program: KernelProgram, number: int, formal: ptx.Variable, reason: str
) -> TesseraError:
    return refuse(
        "TSR5007",
        f"argument {number + 1} of kernel `{program.kernel.name}` does not fit {describe(formal)}",
        program.module.span(formal.at),
        reason,
    )
