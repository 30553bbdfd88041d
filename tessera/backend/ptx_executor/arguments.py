"""Launch arguments: from the values that a caller passes to the bytes that a kernel reads.

A NumPy array (of one or more dimensions) passed for a 64-bit integer parameter is copied to the
device before the launch and, if the kernel wrote to it, copied back afterwards. An array that is
passed twice is one buffer. For struct parameters, arrays are passed by value.

A cooperative launch also gets the workspace that the driver provides for grid barriers. Source:
`sync_grids` and `grid_workspace` in CUDA's cooperative_groups headers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np

from tessera.backend.ptx_executor.emit.kinds import kind_of, pack_float
from tessera.backend.ptx_executor.memory.access_log import BufferAccess
from tessera.backend.ptx_executor.memory.memory import Allocation, Array
from tessera.backend.ptx_executor.simt.compiled import KernelProgram
from tessera.diagnostics import TesseraError
from tessera.ir.ptx import syntax as ptx

_WORKSPACE_BYTES = 128


@runtime_checkable
class HasAddress(Protocol):
    """A value with a device address: an array, or a position inside an array."""

    @property
    def address(self) -> int:
        """The device address."""


class HeldArray(HasAddress, Protocol):
    """An array on the device, such as `device.DeviceArray`."""

    allocation: Allocation

    def numpy(self) -> Array:
        """A copy of the array."""

    def close(self) -> None:
        """Free the memory."""


# A function that copies an array to the device under a name.
ToDevice: TypeAlias = "Callable[[Array, str], HeldArray]"


# --- packing -------------------------------------------------------------------------------


def pack_arguments(program: KernelProgram, args: Sequence[object]) -> Array:
    """The parameter block, padded so that it can be viewed as words of any width."""
    formals = program.kernel.parameters
    if len(args) != len(formals):
        raise TesseraError.of(
            "TSR5007",
            f"kernel `{program.kernel.name}` takes {len(formals)} arguments: {len(args)} given",
            program.module.span(program.kernel.at),
            notes=("parameters: " + (", ".join(map(describe, formals)) or "none"),),
        )
    block = np.zeros(-(-max(program.parameter_size, 1) // 16) * 16 + 16, dtype=np.uint8)
    for number, (formal, value) in enumerate(zip(formals, args, strict=True)):
        offset, size = program.parameters[number]
        packed = _FormalParameter(program, number, formal, size).pack(value)
        block[offset : offset + size] = np.frombuffer(packed, dtype=np.uint8)
    return block


def describe(formal: ptx.Variable) -> str:
    """`name: .u64`."""
    shape = "".join(f"[{d}]" for d in formal.dimensions)
    return f"`{formal.name}` .{formal.type}{shape}"


@dataclass(frozen=True, slots=True)
class _FormalParameter:
    """A parameter of `size` bytes, the `number`-th of a kernel."""

    program: KernelProgram
    number: int
    formal: ptx.Variable
    size: int

    def pack(self, value: object) -> bytes:
        """The argument as exactly `size` bytes."""
        if isinstance(value, bytes | bytearray | memoryview):
            return self._exact(bytes(value))
        if isinstance(value, np.ndarray | np.generic):
            return self._exact(value.tobytes())
        if isinstance(value, HasAddress):
            if self.size != 8 or self.formal.dimensions:
                raise self._mismatch("an address needs a 64-bit parameter")
            return struct.pack("<Q", value.address)
        if self.formal.dimensions:
            raise self._mismatch(f"needs {self.size} bytes, as `bytes` or an array")
        if isinstance(value, bool | int):
            return self._integer(int(value))
        if isinstance(value, float):
            if kind_of(self.formal.type).form != "f":
                raise self._mismatch(
                    "a Python float needs an .f32 or .f64 parameter; pass a NumPy scalar instead"
                )
            return pack_float(value, self.size).to_bytes(self.size, "little")
        raise self._mismatch(f"cannot pass a {type(value).__name__}")

    def _integer(self, value: int) -> bytes:
        size, count = self.size, value.bit_length()
        if kind_of(self.formal.type).form == "f":
            try:
                return pack_float(float(value), size).to_bytes(size, "little")
            except OverflowError:
                raise self._mismatch(f"a number of {count} bits does not fit") from None
        low = -(1 << 8 * size - 1)
        high = (1 << 8 * size) - 1 if self.formal.type[0] != "s" else (1 << 8 * size - 1) - 1
        if not low <= value <= high:
            shown = value if count <= 128 else f"a number of {count} bits"
            raise self._mismatch(f"{shown} does not fit")
        return (value & (1 << 8 * size) - 1).to_bytes(size, "little")

    def _exact(self, packed: bytes) -> bytes:
        if len(packed) != self.size:
            raise self._mismatch(f"the parameter has {self.size} bytes, the argument {len(packed)}")
        return packed

    def _mismatch(self, reason: str) -> TesseraError:
        name = self.program.kernel.name
        return TesseraError.of(
            "TSR5007",
            f"argument {self.number + 1} of kernel `{name}` does not fit {describe(self.formal)}",
            self.program.module.span(self.formal.at),
            reason,
        )


# --- memory that lives as long as a launch -------------------------------------------------


class Borrowed:
    """The arrays of one launch that live on the device only while it runs."""

    def __init__(
        self, to_device: ToDevice, formals: Sequence[ptx.Variable], args: Sequence[object]
    ) -> None:
        self._held: dict[int, tuple[Array, HeldArray]] = {}
        self.args = list(args)
        if len(formals) != len(args):
            return
        for number, (formal, value) in enumerate(zip(formals, args, strict=True)):
            if isinstance(value, np.ndarray) and _is_memory(formal, value):
                if id(value) not in self._held:
                    self._held[id(value)] = (value, to_device(value, formal.name))
                self.args[number] = self._held[id(value)][1]

    def fetch(self, accesses: Sequence[BufferAccess]) -> None:
        """Copy the arrays that the kernel wrote back to the host."""
        written = {access.address for access in accesses if access.writes}
        for values, array in self._held.values():
            if array.address not in written:
                continue
            if not values.flags.writeable:
                name = array.allocation.name
                raise TesseraError.of(
                    "TSR5007", f"the kernel wrote to `{name}`, a read-only NumPy array"
                )
            values[...] = array.numpy()

    def close(self) -> None:
        """Free the device's copies."""
        for _, array in self._held.values():
            array.close()


def _is_memory(formal: ptx.Variable, value: Array) -> bool:
    if value.ndim == 0 or formal.dimensions:
        return False
    kind = kind_of(formal.type)
    return kind.width == 8 and kind.form != "f"


@contextmanager
def grid_workspace(to_device: ToDevice, program: KernelProgram, cooperative: bool) -> Iterator[int]:
    """A context with the address that `%envreg1` and `%envreg2` hold; 0 without a workspace.

    In a cooperative launch of a kernel that reads these registers, the address points at zeroed
    memory: a word with the size, then the word that counts arrivals.
    """
    if not (cooperative and program.uses_workspace):
        yield 0
        return
    words = np.zeros(_WORKSPACE_BYTES // 4, np.uint32)
    words[0] = _WORKSPACE_BYTES
    array = to_device(words, "grid workspace")
    try:
        yield array.address
    finally:
        array.close()
