"""A GPU as a machine for `region_check`, through the CUDA driver (`cuda.bindings`) and NumPy only.

Every buffer has up to `GUARD` bytes before and behind it that hold a pattern; a launch that changes
one of them has left its buffer, and `read` raises. In `GuardedPages`, one end of a buffer is, up to
its alignment, the end of what is mapped, so that a launch faults that reads or writes past it.
"""

from __future__ import annotations

import ctypes
import re
import zlib
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


def call(driver: Any, name: str, *args: Any) -> Any:
    """Call a driver function; raise if it fails."""
    status, *rest = getattr(driver, name)(*args)
    if int(status) != 0:
        raise DriverError(f"{name}: {getattr(status, 'name', status)}")
    return rest[0] if len(rest) == 1 else rest


def take_gpu(driver: Any) -> Any:
    """Make the first GPU the one of this thread; the driver."""
    driver.cuInit(0)
    device = driver.cuDeviceGet(0)[1]
    driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(device)[1])
    return driver


class GuardedPages:
    """Places for buffers between pages that are not mapped, for one work after the other."""

    def __init__(self, driver: Any, count: int = 16) -> None:
        device = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        kind = driver.CUmemAllocationProp()
        kind.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        kind.location.type, kind.location.id = device, 0
        access = driver.CUmemAccessDesc()
        access.location.type, access.location.id = device, 0
        access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        least = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        page = int(call(driver, "cuMemGetAllocationGranularity", kind, least))
        first = int(call(driver, "cuMemAddressReserve", (2 * count + 1) * page, page, 0, 0))
        self.page = page
        self.starts = [first + (2 * place + 1) * page for place in range(count)]
        written, read = np.arange(page, dtype=np.uint64).view(np.uint8)[:page], np.empty(page, "u1")
        for start in self.starts:
            call(driver, "cuMemMap", start, page, 0, call(driver, "cuMemCreate", page, kind, 0), 0)
            call(driver, "cuMemSetAccess", start, page, [access], 1)
            call(driver, "cuMemcpyHtoD", start, written.ctypes.data, page)
            call(driver, "cuMemcpyDtoH", read.ctypes.data, start, page)
            if (read != written).any():
                raise DriverError("mapped memory does not hold what is written")

    def place(self, number: int, size: int, *, at_end: bool) -> tuple[int, int, int] | None:
        """The address of a buffer, and the bytes before and behind it that are its guards."""
        if number >= len(self.starts) or size + GUARD > self.page:
            return None
        start, end = self.starts[number], self.starts[number] + self.page
        if not at_end:
            return start, 0, GUARD
        address = (end - size) // GUARD * GUARD
        return address, min(GUARD, address - start), end - size - address


class CudaMachine:
    """One work on the first GPU; `close` gives its memory back."""

    def __init__(self, work: Work, driver: Any, pages: GuardedPages | None = None) -> None:
        self.work = work
        self.driver = driver
        self.modules = [self._load(text) for text in work.texts]
        self.allocated: list[int] = []
        self.places: list[tuple[int, int, int]] = []
        for number, (name, size) in enumerate(work.buffers):
            at_end = zlib.crc32(f"{work.name}/{name}".encode()) % 3 > 0
            place = pages and pages.place(number, size, at_end=at_end)
            if not place:
                self.allocated.append(int(self.call("cuMemAlloc", size + 2 * GUARD + 16)))
                place = self.allocated[-1] + GUARD, GUARD, GUARD
            self.places.append(place)

    def call(self, name: str, *args: Any) -> Any:
        """Call a driver function; raise if it fails."""
        return call(self.driver, name, *args)

    def close(self) -> None:
        """Free everything."""
        for base in self.allocated:
            self.call("cuMemFree", base)
        for module in self.modules:
            self.call("cuModuleUnload", module)

    def write(self, memory: Sequence[Bytes], *, places: bool = True) -> None:
        """Fill all buffers and their guards."""
        words: dict[int, list[tuple[int, int]]] = {}
        for buffer, at, target, offset in self.work.pointers if places else ():
            words.setdefault(buffer, []).append((at, self.address(target, offset)))
        guard = np.full(GUARD, PATTERN, np.uint8)
        for number, ((start, low, high), content) in enumerate(
            zip(self.places, memory, strict=True)
        ):
            whole = np.concatenate([guard[:low], content, guard[:high]])
            for at, address in words.get(number, ()):
                word = np.array([address], np.uint64).view(np.uint8)
                whole[low + at : low + at + 8] = word
            self.call("cuMemcpyHtoD", start - low, whole.ctypes.data, whole.nbytes)

    def read(self) -> list[Bytes]:
        """The bytes of all buffers."""
        found: list[Bytes] = []
        for (start, low, high), (name, size) in zip(self.places, self.work.buffers, strict=True):
            whole = np.empty(low + size + high, np.uint8)
            self.call("cuMemcpyDtoH", whole.ctypes.data, start - low, whole.nbytes)
            if (whole[:low] != PATTERN).any() or (whole[low + size :] != PATTERN).any():
                raise OutsideError(f"a byte next to `{name}` has changed")
            found.append(whole[low : low + size].copy())
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
        # A compiler may write a newer version than the driver reads, without need.
        newest = int(self.call("cuDriverGetVersion"))
        found = re.search(r"^\s*\.version\s+(\d+)\.(\d+)", text, re.MULTILINE)
        if found and 1000 * (int(found[1]) + 4) + 10 * int(found[2]) > newest:
            version = f".version {newest // 1000 - 4}.{newest % 1000 // 10}"
            text = text[: found.start()] + "\n" + version + text[found.end() :]
        data = ctypes.create_string_buffer(text.encode())
        return self.call("cuModuleLoadData", ctypes.addressof(data))

    def address(self, buffer: int, offset: int) -> int:
        """The address of a byte of a buffer."""
        return self.places[buffer][0] + offset

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
