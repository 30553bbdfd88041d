"""NumPy arrays passed straight to a kernel: on the device for the time of a launch.

An array (of one or more dimensions) given for a 64-bit integer parameter is copied to the
device before the launch and, if the kernel wrote to it, back afterwards. An array that is
given twice is one buffer. For struct parameters, arrays are passed by value as before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from tessera.backend.ptx_executor.emit.kinds import kind_of
from tessera.backend.ptx_executor.memory.access_log import BufferAccess
from tessera.backend.ptx_executor.simt.faults import refuse
from tessera.ir.ptx import syntax as ptx

if TYPE_CHECKING:
    from tessera.backend.ptx_executor.memory.memory import Allocation, Array


class HeldArray(Protocol):
    """An array on the device, as `device.DeviceArray` is one."""

    allocation: Allocation

    @property
    def address(self) -> int:
        """The device address of the first byte."""

    def numpy(self) -> Array:
        """A copy of the array."""

    def close(self) -> None:
        """Free the memory."""


# Copies an array to a device, under a name.
ToDevice: TypeAlias = "Callable[[Array, str], HeldArray]"


class Borrowed:
    """The arrays of one launch that live on the device only while it runs."""

    def __init__(
        self,
        to_device: ToDevice,
        formals: Sequence[ptx.Variable],
        args: Sequence[object],
    ):
        self._to_device = to_device
        self._held: dict[int, tuple[Array, HeldArray]] = {}
        self.args = list(args)
        if len(formals) != len(args):
            return
        for number, (formal, value) in enumerate(zip(formals, args, strict=True)):
            if isinstance(value, np.ndarray) and _is_memory(formal, value):
                self.args[number] = self._lend(value, formal.name)

    def _lend(self, values: Array, name: str) -> HeldArray:
        if id(values) not in self._held:
            self._held[id(values)] = (values, self._to_device(values, name))
        return self._held[id(values)][1]

    def fetch(self, accesses: Sequence[BufferAccess]) -> None:
        """Copy back what the kernel wrote."""
        written = {access.address for access in accesses if access.writes}
        for values, array in self._held.values():
            if array.address not in written:
                continue
            if not values.flags.writeable:
                name = array.allocation.name
                raise refuse("TSR5007", f"the kernel wrote to `{name}`, a read-only NumPy array")
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
