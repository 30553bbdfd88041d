"""Run a case on a GPU through the CUDA driver (`cuda.bindings`), nothing else needed.

In: a case and its `Run`. Out: the buffers after the launches, and what the kernels printed.
The driver module is a parameter, so that this code runs in tests against a stand-in.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.kernels.case import Argument, Case, Launch, Run, Struct, address, dimensions


class DriverError(RuntimeError):
    """A call of the CUDA driver failed."""


@dataclass(slots=True)
class Gpu:
    """A context on the first GPU, with the modules that were loaded to be kept."""

    driver: Any
    modules: dict[str, Any] = field(default_factory=dict)

    def call(self, name: str, *args: Any) -> Any:
        """Call a driver function; raise if it fails."""
        status, *rest = getattr(self.driver, name)(*args)
        if int(status) != 0:
            raise DriverError(f"{name}: {getattr(status, 'name', status)}")
        return rest[0] if len(rest) == 1 else rest

    def start(self) -> dict[str, object]:
        """Make a context; say which machine this is."""
        self.call("cuInit", 0)
        device = self.call("cuDeviceGet", 0)
        self.call("cuCtxSetCurrent", self.call("cuDevicePrimaryCtxRetain", device))
        name = self.call("cuDeviceGetName", 128, device)
        version = self.call("cuDriverGetVersion")
        return {"gpu": name.split(b"\0")[0].decode(), "cuda_driver": int(version)}

    def load(self, case: Case, keep: bool) -> Any:
        """The case's module: a fresh one, unless `keep` and it is loaded already."""
        if keep and case.module in self.modules:
            return self.modules[case.module]
        text = ctypes.create_string_buffer(case.ptx.read_bytes())
        module = self.call("cuModuleLoadData", ctypes.addressof(text))
        if keep:
            self.modules[case.module] = module
        return module

    def run(self, case: Case, run: Run, *, keep: bool = False) -> tuple[dict[str, NDArray], str]:
        """Run the launches of a case; return all buffers and the printed text."""
        module = self.load(case, keep)
        bases = {name: self.upload(array) for name, array in run.buffers.items()}
        for name, words in run.pointers.items():
            for offset, text in words.items():
                value = np.array([resolve(text, bases)], np.uint64)
                self.call("cuMemcpyHtoD", int(bases[name]) + offset, value.ctypes.data, 8)
        printed = self.launch_all(module, run, bases)
        results = {}
        for name, array in run.buffers.items():
            result = np.empty_like(np.ascontiguousarray(array))
            self.call("cuMemcpyDtoH", result.ctypes.data, bases[name], result.nbytes)
            results[name] = result
            self.call("cuMemFree", bases[name])
        if not keep:
            self.call("cuModuleUnload", module)
        return results, printed

    def upload(self, array: NDArray) -> Any:
        """Device memory with an array's bytes."""
        base = self.call("cuMemAlloc", max(array.nbytes, 1))
        host = np.ascontiguousarray(array)
        self.call("cuMemcpyHtoD", base, host.ctypes.data, host.nbytes)
        return base

    def launch_all(self, module: Any, run: Run, bases: dict[str, Any]) -> str:
        """All launches in order; standard output is caught, since printf writes there."""
        if run.printed is None:
            for launch in run.launches:
                self.launch(module, launch, bases)
            return ""
        with tempfile.TemporaryFile() as caught:
            kept = os.dup(1)
            os.dup2(caught.fileno(), 1)
            try:
                for launch in run.launches:
                    self.launch(module, launch, bases)
            finally:
                ctypes.CDLL(None).fflush(None)
                os.dup2(kept, 1)
                os.close(kept)
            caught.seek(0)
            return caught.read().decode()

    def launch(self, module: Any, launch: Launch, bases: dict[str, Any]) -> None:
        """One launch, waited for."""
        function = self.call("cuModuleGetFunction", module, launch.kernel.encode())
        if launch.smem > 48 * 1024:
            attribute = self.driver.CUfunction_attribute
            largest = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self.call("cuFuncSetAttribute", function, largest, launch.smem)
        values = [parameter(argument, bases) for argument in launch.args]
        pointers = np.array([value.ctypes.data for value in values], np.uint64)
        sizes = (*dimensions(launch.grid), *dimensions(launch.block), launch.smem, 0)
        if launch.cooperative:
            self.call("cuLaunchCooperativeKernel", function, *sizes, pointers.ctypes.data)
        else:
            self.call("cuLaunchKernel", function, *sizes, pointers.ctypes.data, 0)
        self.call("cuCtxSynchronize")


def resolve(text: str, bases: dict[str, Any]) -> int:
    """The device address of `"x+16"`."""
    name, offset = address(text)
    return int(bases[name]) + offset


def parameter(argument: Argument, bases: dict[str, Any]) -> NDArray:
    """The bytes of an argument as the driver reads them."""
    if isinstance(argument, str):
        return np.array([resolve(argument, bases)], np.uint64)
    if isinstance(argument, Struct):
        data = np.frombuffer(argument.data, np.uint8).copy()
        for offset, text in argument.pointers.items():
            data[offset : offset + 8] = np.array([resolve(text, bases)], np.uint64).view(np.uint8)
        return data
    return np.array([argument])
