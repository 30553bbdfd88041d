"""One step of a trace on a device, for any placement of buffers.

In: a device, the address of every buffer, and the modules. Out: the step's effect, and for a
launch its result. `run` uses it for a trace on one device, `backend.processes` for a launch
program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import numpy as np

from tessera.backend.ptx_executor.device import Device, DeviceAddress, DeviceArray, LoadedModule
from tessera.backend.ptx_executor.memory.memory import Array
from tessera.backend.ptx_executor.operators import run as operators
from tessera.backend.ptx_executor.simt.launch import LaunchResult
from tessera.ir.program import program as ir


class LoadedModules:
    """The modules of a program on a device. Variants of a module share its variables."""

    def __init__(self, device: Device, program: ir.Program) -> None:
        self.device = device
        self.program = program
        self._loaded: dict[tuple[int, str], LoadedModule] = {}

    def load(self, module: ir.ModuleId, arch: str) -> tuple[LoadedModule, str]:
        """A variant of a module, loaded on first use, and its architecture."""
        key = (int(module), arch)
        if key not in self._loaded:
            named = self.program.modules[module]
            variant = named.variant(arch)
            if variant is None:
                raise KeyError(f"module `{named.name}` has no variant for {arch}")
            first = next((loaded for (m, _), loaded in self._loaded.items() if m == module), None)
            shared = {} if first is None else first.variables
            self._loaded[key] = LoadedModule(
                self.device, variant.ptx, prefix=f"{named.name}.", shared=shared
            )
        return self._loaded[key], arch

    def has(self, module: ir.ModuleId) -> bool:
        """Whether a variant of the module is loaded."""
        return any(m == module for m, _ in self._loaded)

    def variable(self, buffer: ir.Buffer) -> DeviceArray | None:
        """The array of a module variable; None if its module is not loaded."""
        name, _, symbol = buffer.name.rpartition(".")
        for (module, _), loaded in self._loaded.items():
            if self.program.modules[module].name == name and symbol in loaded.variables:
                return loaded.variables[symbol]
        return None


class StepExecutor:
    """Runs steps; `address_of` gives the address of a buffer."""

    def __init__(
        self,
        device: Device,
        address_of: Callable[[ir.BufferId], int],
        module_of: Callable[[ir.Launch], tuple[LoadedModule, str]],
        max_steps: int,
    ) -> None:
        self.device = device
        self.address_of = address_of
        self.module_of = module_of
        self.max_steps = max_steps

    def do(self, step: ir.Step) -> LaunchResult | None:
        """Run one record. Unsupported library calls are refused before a run."""
        match step:
            case ir.Launch():
                return self._launch(step)
            case ir.Memset():
                self._memset(step)
            case ir.Memcpy():
                self._bytes(step.target, step.bytes)[:] = self._bytes(step.source, step.bytes)
                self.device.mark_written(self.address(step.target), step.bytes)
            case ir.LibraryCall():
                return operators.run(self.device, step, self.address_of)
            case ir.Event() | ir.Wait():
                pass
            case _:
                assert_never(step)
        return None

    def address(self, pointer: ir.Pointer) -> int:
        """The device address of a pointer of the trace."""
        return self.address_of(pointer.buffer) + pointer.offset

    def write_pointers(self, table: ir.PointerTable) -> None:
        """Write the device addresses of a `pointers` record into its buffer."""
        for word in table.words:
            view = self._bytes(ir.Pointer(table.buffer, word.offset), ir.POINTER_BYTES)
            view[:] = _word(self.address(word.target))

    def _bytes(self, pointer: ir.Pointer, count: int) -> Array:
        start = self.address(pointer) - self.device.space.base
        return self.device.space.bytes[start : start + count]

    def _memset(self, step: ir.Memset) -> None:
        pattern = step.value.to_bytes(step.element_bytes, "little")
        view = self._bytes(step.target, step.bytes).reshape(-1, step.element_bytes)
        view[:] = np.frombuffer(pattern, dtype=np.uint8)
        self.device.mark_written(self.address(step.target), step.bytes)

    def _launch(self, step: ir.Launch) -> LaunchResult:
        loaded, arch = self.module_of(step)
        launch = ir.for_arch(step, arch)
        return loaded[launch.kernel].launch(
            launch.grid,
            launch.block,
            [self._argument(a) for a in launch.arguments],
            shared=launch.shared_bytes,
            cluster=launch.cluster,
            cooperative=launch.cooperative,
            max_steps=self.max_steps,
        )

    def _argument(self, argument: ir.Argument) -> DeviceAddress | bytes:
        match argument:
            case ir.Pointer():
                return DeviceAddress(self.address(argument))
            case ir.Scalar():
                return argument.bits.to_bytes(argument.type.bytes, "little")
            case ir.ByValue():
                content = bytearray(argument.content)
                for word in argument.pointers:
                    content[word.offset : word.offset + 8] = _word(
                        self.address(word.target)
                    ).tobytes()
                return bytes(content)
            case _:
                assert_never(argument)


def _word(address: int) -> Array:
    return np.frombuffer(address.to_bytes(8, "little"), dtype=np.uint8)
