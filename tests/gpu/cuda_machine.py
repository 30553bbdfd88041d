"""A GPU as a machine for `region_check`, through the CUDA driver (`cuda.bindings`) and NumPy only.

Every buffer has `GUARD` bytes before and behind it that hold a pattern; a launch that changes one
of them has left its buffer, and `run` raises.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.helpers.region_check import Bytes, Work

GUARD = 256
PATTERN = 0xA7


class DriverError(RuntimeError):
    """A call of the CUDA driver failed."""


class OutsideError(RuntimeError):
    """A launch wrote past a buffer."""


class CudaMachine:
    """One work on the first GPU; `close` gives its memory back."""

    def __init__(self, work: Work, driver: Any) -> None:
        self.work = work
        self.driver = driver
        self.modules = [self._load(text) for text in work.texts]
        self.bases = [
            int(self.call("cuMemAlloc", size + 2 * GUARD + 16)) for _, size in work.buffers
        ]

    def call(self, name: str, *args: Any) -> Any:
        """Call a driver function; raise if it fails."""
        status, *rest = getattr(self.driver, name)(*args)
        if int(status) != 0:
            raise DriverError(f"{name}: {getattr(status, 'name', status)}")
        return rest[0] if len(rest) == 1 else rest

    def close(self) -> None:
        """Free everything."""
        for base in self.bases:
            self.call("cuMemFree", base)
        for module in self.modules:
            self.call("cuModuleUnload", module)

    def write(self, memory: Sequence[Bytes], *, places: bool = True) -> None:
        """Fill all buffers and their guards."""
        words: dict[int, list[tuple[int, int]]] = {}
        for buffer, at, target, offset in self.work.pointers if places else ():
            words.setdefault(buffer, []).append((at, self.address(target, offset)))
        guard = np.full(GUARD, PATTERN, np.uint8)
        for number, (base, content) in enumerate(zip(self.bases, memory, strict=True)):
            whole = np.concatenate([guard, content, guard])
            for at, address in words.get(number, ()):
                word = np.array([address], np.uint64).view(np.uint8)
                whole[GUARD + at : GUARD + at + 8] = word
            self.call("cuMemcpyHtoD", base, whole.ctypes.data, whole.nbytes)

    def read(self) -> list[Bytes]:
        """The bytes of all buffers."""
        found: list[Bytes] = []
        for base, (name, size) in zip(self.bases, self.work.buffers, strict=True):
            whole = np.empty(size + 2 * GUARD, np.uint8)
            self.call("cuMemcpyDtoH", whole.ctypes.data, base, whole.nbytes)
            if (whole[:GUARD] != PATTERN).any() or (whole[GUARD + size :] != PATTERN).any():
                raise OutsideError(f"a byte next to `{name}` has changed")
            found.append(whole[GUARD : GUARD + size].copy())
        return found

    def run(self, step: Mapping[str, Any]) -> None:
        """Run one step, and wait for it."""
        if step["kind"] == "launch":
            self._launch(step)
        elif step["kind"] == "memcpy":
            target, source = (self.address(*step[end]) for end in ("target", "source"))
            self.call("cuMemcpyDtoD", target, source, step["bytes"])
        else:
            element = np.frombuffer(bytes.fromhex(step["element"]), np.uint8)
            filled = np.resize(element, step["bytes"])
            self.call(
                "cuMemcpyHtoD", self.address(*step["target"]), filled.ctypes.data, filled.nbytes
            )
        self.call("cuCtxSynchronize")

    def _load(self, text: str) -> Any:
        data = ctypes.create_string_buffer(text.encode())
        return self.call("cuModuleLoadData", ctypes.addressof(data))

    def address(self, buffer: int, offset: int) -> int:
        """The address of a byte of a buffer."""
        return self.bases[buffer] + GUARD + offset

    def _launch(self, step: Mapping[str, Any]) -> None:
        driver = self.driver
        function = self.call(
            "cuModuleGetFunction", self.modules[step["text"]], step["kernel"].encode()
        )
        if step["smem"] > 48 * 1024:
            most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self.call("cuFuncSetAttribute", function, most, step["smem"])
        values = [self._argument(argument) for argument in step["args"]]
        pointers = np.array([value.ctypes.data for value in values], np.uint64)
        sizes = (*step["grid"], *step["block"], step["smem"])
        if step["cooperative"]:
            self.call("cuLaunchCooperativeKernel", function, *sizes, 0, pointers.ctypes.data)
        elif step["cluster"] and tuple(step["cluster"]) != (1, 1, 1):
            self._launch_cluster(function, step, sizes, pointers)
        else:
            self.call("cuLaunchKernel", function, *sizes, 0, pointers.ctypes.data, 0)

    def _launch_cluster(self, function: Any, step: Mapping[str, Any], sizes: Any, p: Any) -> None:
        driver = self.driver
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        dim = attribute.value.clusterDim
        dim.x, dim.y, dim.z = step["cluster"]
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = sizes[:3]
        config.blockDimX, config.blockDimY, config.blockDimZ = sizes[3:6]
        config.sharedMemBytes = sizes[6]
        config.attrs, config.numAttrs = [attribute], 1
        self.call("cuLaunchKernelEx", config, function, p.ctypes.data, 0)

    def _argument(self, argument: Mapping[str, Any]) -> Bytes:
        raw = np.frombuffer(bytes.fromhex(argument["bytes"]), np.uint8).copy()
        for at, buffer, offset in argument["addresses"]:
            address = np.array([self.address(buffer, offset)], np.uint64)
            raw[at : at + 8] = address.view(np.uint8)
        return raw
