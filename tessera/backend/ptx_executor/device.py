"""The library interface: virtual devices, arrays on them, modules, kernels.

    device = Device()
    module = device.load(parse_module(text))
    x = device.array(numpy_array)
    result = module["saxpy"].launch(grid=4, block=256, args=[y, x, np.float32(2), 1024])
    y.numpy(), result.accesses

A kernel is compiled on its first launch. Compiled programs are cached by the text of their module,
so loading the same module on another device costs nothing.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from tessera.backend.ptx_executor.arguments import Borrowed, grid_workspace, pack_arguments
from tessera.backend.ptx_executor.emit.initialize import initial_bytes
from tessera.backend.ptx_executor.emit.kinds import Unsupported
from tessera.backend.ptx_executor.emit.layout import function_addresses, variable_size
from tessera.backend.ptx_executor.emit.program_cache import compiled, digest_of
from tessera.backend.ptx_executor.limits import (
    as_size,
    check_shared,
    check_sizes,
    cluster_of,
    element_type,
    lengths_of,
    module_like,
    plain_array,
    sequence,
    whole_number,
    wrong,
)
from tessera.backend.ptx_executor.memory.access_log import AccessLog
from tessera.backend.ptx_executor.memory.memory import (
    ALIGNMENT,
    DEFAULT_CAPACITY,
    DEVICE_SHIFT,
    MOST_DEVICES,
    AddressSpace,
    Allocation,
    Array,
)
from tessera.backend.ptx_executor.memory.watch import Checks, LaunchWatch, Shadow
from tessera.backend.ptx_executor.simt.chunk import DEFAULT_STEPS, LaunchState
from tessera.backend.ptx_executor.simt.compiled import KernelProgram
from tessera.backend.ptx_executor.simt.launch import LaunchResult, run_launch
from tessera.diagnostics import TesseraError
from tessera.ir.ptx import syntax as ptx


class DeviceArray:
    """Device memory, viewed as an array."""

    def __init__(
        self, device: Device, allocation: Allocation, dtype: DTypeLike, shape: tuple[int, ...]
    ) -> None:
        self.device = device
        self.allocation = allocation
        self.dtype = np.dtype(dtype)
        self.shape = shape

    @property
    def address(self) -> int:
        """The device address of the first byte."""
        return self.allocation.address

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return self.allocation.size

    def view(self) -> Array:
        """The array in place. Writing to it changes device memory and counts as initialising it."""
        self.device.mark_written(self.address, self.nbytes)
        return self._in_place()

    def numpy(self) -> Array:
        """A copy of the array."""
        return self._in_place().copy()

    def _in_place(self) -> Array:
        if self.allocation.freed:
            raise TesseraError.of("TSR5002", f"`{self.allocation.name}` has been freed")
        raw = self.device.space.view(self.allocation)
        result: Array = raw.view(self.dtype).reshape(self.shape)
        return result

    def at(self, offset: int) -> DeviceAddress:
        """The address `offset` bytes into the array, to pass to a kernel."""
        return DeviceAddress(self.address + whole_number("an offset", offset, 0, self.nbytes))

    def close(self) -> None:
        """Free the memory."""
        self.device.space.free(self.allocation)


class DeviceAddress:
    """A device address inside an array."""

    def __init__(self, address: int) -> None:
        self.address = address


class Device:
    """A virtual device with an address space of its own.

    It is the CPU counterpart of a `Device` in a machine description (`ir.plan.machine`).
    """

    def __init__(
        self,
        index: int = 0,
        *,
        memory_bytes: int = DEFAULT_CAPACITY,
        parse: Callable[[str], ptx.Module] | None = None,
        checks: Checks | None = None,
    ) -> None:
        self.index = whole_number("the number of a device", index, 0, MOST_DEVICES - 1)
        capacity = whole_number("the memory of a device", memory_bytes, 1, 1 << DEVICE_SHIFT)
        if checks is not None and not isinstance(checks, Checks):
            raise wrong("`checks`", checks, "a `Checks`")
        self.space = AddressSpace(self.index, -(-capacity // ALIGNMENT) * ALIGNMENT)
        self.parse = parse
        self.log = AccessLog(self.space)
        self.launches = 0
        self.now_ns = 0
        self.checks = checks or Checks()
        self.shadow = Shadow(self.space) if self.checks.uninitialised else None
        self.lock = threading.Lock()

    def array(self, values: ArrayLike, name: str = "") -> DeviceArray:
        """Copy an array to the device."""
        given = plain_array(values)
        source = np.ascontiguousarray(given)
        array = self.empty(given.shape, source.dtype, name)
        if source.nbytes:
            array.view()[...] = source.reshape(array.shape)
        self.mark_written(array.address, array.nbytes)
        return array

    def mark_written(self, address: int, size: int) -> None:
        """Tell the check for uninitialised reads that the host has written these bytes."""
        if self.shadow is not None:
            self.shadow.written(address, size)

    def empty(
        self, shape: int | tuple[int, ...], dtype: DTypeLike = np.uint8, name: str = ""
    ) -> DeviceArray:
        """Memory that holds poison until the host or a kernel writes it."""
        lengths, kind = lengths_of(shape), element_type(dtype)
        if any(length < 0 for length in lengths):
            raise TesseraError.of("TSR5020", f"an array cannot have negative lengths: {lengths}")
        size = math.prod(lengths) * kind.itemsize
        label = name or f"array{len(self.space.table)}"
        allocation = self.space.allocate(size, label)
        if self.shadow is not None:
            self.shadow.forget(allocation.address, size)
        return DeviceArray(self, allocation, dtype, lengths)

    def load(self, module: ptx.Module | str) -> LoadedModule:
        """Load a module: allocate its variables and set their initial values."""
        if isinstance(module, str) and self.parse is not None:
            module = self.parse(module)
        return LoadedModule(self, module_like(module))

    def run(self, launch: LaunchState) -> LaunchResult:
        """Run a prepared launch, and advance the device's clock."""
        self.launches += 1
        try:
            result = run_launch(launch)
        except BaseException:
            self.log.finish()
            raise
        self.now_ns += result.steps + 1000
        return result

    def close(self) -> None:
        """Free everything."""
        for allocation in list(self.space.table):
            self.space.free(allocation)

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LoadedModule:
    """A module on a device."""

    def __init__(
        self,
        device: Device,
        module: ptx.Module,
        prefix: str = "",
        shared: Mapping[str, DeviceArray] | None = None,
    ) -> None:
        """Load; a variable of `shared` with the same name and size is reused with its value."""
        self.device = device
        self.module = module
        self.digest = digest_of(module)
        if module.address_size == 32:
            raise TesseraError.of(
                "TSR5001", "the CPU backend runs modules with 64-bit addresses only"
            )
        self.variables: dict[str, DeviceArray] = {}
        self._kernels: dict[str, LoadedKernel] = {}
        self._load_variables(prefix, shared or {})

    def __getitem__(self, name: str) -> LoadedKernel:
        kernel = self._kernels.get(name)
        if kernel is None:
            kernel = self._kernels[name] = LoadedKernel(self, name)
        return kernel

    def _load_variables(self, prefix: str, shared: Mapping[str, DeviceArray]) -> None:
        definitions = self._definitions()
        for variable in definitions.values():
            if variable.linkage == "extern":
                continue
            known = shared.get(variable.name)
            if known is not None and known.nbytes == variable_size(variable):
                self.variables[variable.name] = known
                continue
            allocation = self.device.space.allocate(
                variable_size(variable), prefix + variable.name, read_only=variable.space == "const"
            )
            shape = (allocation.size,)
            self.variables[variable.name] = DeviceArray(self.device, allocation, np.uint8, shape)
        for variable in definitions.values():
            array = self.variables.get(variable.name)
            if array is None or array is shared.get(variable.name):
                continue
            content = self._initial(variable)
            view = self.device.space.view(self.variables[variable.name].allocation)
            view[:] = np.frombuffer(content, dtype=np.uint8)
            self.device.mark_written(self.variables[variable.name].address, len(content))

    def _definitions(self) -> dict[str, ptx.Variable]:
        """Variables by name, including those in function bodies.

        A definition wins over an `.extern` declaration.
        """
        inside = (
            statement
            for function in self.module.functions()
            for statement in ptx.walk_statements(function.body or ())
            if isinstance(statement, ptx.Variable)
        )
        definitions: dict[str, ptx.Variable] = {}
        for variable in (*self.module.variables(), *inside):
            if variable.space not in ("global", "const"):
                continue
            if variable.linkage != "extern" or variable.name not in definitions:
                definitions[variable.name] = variable
        return definitions

    def _initial(self, variable: ptx.Variable) -> bytes:
        def address_of(name: str) -> int:
            array = self.variables.get(name)
            if array is not None:
                return array.address
            address = function_addresses(self.module).get(name)
            if address is not None:
                return address
            raise Unsupported(f"address of `{name}`")

        try:
            return initial_bytes(variable, address_of)
        except Unsupported as reason:
            span = self.module.span(variable.at)
            message = f"cannot initialise `{variable.name}`"
            raise TesseraError.of("TSR5018", message, span, str(reason)) from None

    def close(self) -> None:
        """Free the module's variables."""
        for array in self.variables.values():
            array.close()


class LoadedKernel:
    """A kernel of a loaded module."""

    def __init__(self, module: LoadedModule, name: str) -> None:
        self.module = module
        self.name = name
        self._program: KernelProgram | None = None

    @property
    def program(self) -> KernelProgram:
        """The compiled kernel; `program.source` is the Python that runs."""
        if self._program is None:
            self._program = compiled(self.module.module, self.module.digest, self.name)
        return self._program

    def compile(self) -> None:
        """Compile the kernel now instead of on the first launch."""
        self._program = self.program

    def launch(
        self,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        args: Sequence[object] = (),
        *,
        shared: int = 0,
        cluster: tuple[int, ...] | None = None,
        cooperative: bool = False,
        max_steps: int = DEFAULT_STEPS,
    ) -> LaunchResult:
        """Run the kernel to its end; `shared` is the dynamic shared memory in bytes.

        A NumPy array passed for a pointer is copied to the device and back (see `arguments`).
        A device runs one launch at a time: launches of other Python threads wait.
        """
        program = self.program
        grid_size, block_size = as_size(grid, "grid"), as_size(block, "block")
        check_sizes(program, grid_size, block_size)
        asked = None if cluster is None else as_size(cluster, "cluster")
        cluster_size = cluster_of(program, grid_size, asked)
        check_shared(program, shared)
        limit = whole_number("`max_steps`", max_steps, 1)
        device, given = self.module.device, sequence(args)
        with (
            device.lock,
            closing(Borrowed(device.array, program.kernel.parameters, given)) as borrowed,
            grid_workspace(device.array, program, cooperative) as workspace,
        ):
            launch = LaunchState(
                program=program,
                space=device.space,
                log=device.log,
                grid=grid_size,
                block=block_size,
                cluster=cluster_size,
                dynamic_shared=shared,
                workspace=workspace,
                parameter_bytes=pack_arguments(program, borrowed.args),
                symbols=self._symbols(program),
                number=device.launches,
                start_ns=device.now_ns,
                max_steps=limit,
                watch=self._watch(block_size),
                has_read_only=any(a.read_only for a in device.space.table),
            )
            result = device.run(launch)
            borrowed.fetch(result.accesses)
            seen = tuple(access for access in result.accesses if access.address != workspace)
            return replace(result, accesses=seen)

    def _watch(self, block: tuple[int, int, int]) -> LaunchWatch | None:
        device = self.module.device
        if device.checks == Checks():
            return None
        return LaunchWatch(device.checks, device.shadow, block[0] * block[1] * block[2])

    def _symbols(self, program: KernelProgram) -> list[Array]:
        addresses: list[Array] = []
        for name in program.symbols:
            variable = self.module.variables.get(name)
            if variable is None:
                raise TesseraError.of(
                    "TSR5018", f"`{name}` is declared `.extern` and defined nowhere"
                )
            addresses.append(np.array([[variable.address]], dtype=np.uint64))
        return addresses
