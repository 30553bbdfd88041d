"""A stand-in for `cuda.bindings.driver`: host memory, and kernels that do nothing.

A launch of a kernel named in FAKE_FAULTS fails and, as with a real context, so does every
later call; FAKE_CRASH ends the process.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

_memory: dict[int, Any] = {}
_broken: list[str] = []


class CUfunction_attribute:
    """Names that the caller needs."""

    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8


def _status(*rest: Any) -> tuple[Any, ...]:
    return (700 if _broken else 0, *rest)


def cuInit(flags: int) -> tuple[Any, ...]:
    return _status()


def cuDeviceGet(number: int) -> tuple[Any, ...]:
    return _status(0)


def cuDevicePrimaryCtxRetain(device: int) -> tuple[Any, ...]:
    return _status(1)


def cuCtxSetCurrent(context: int) -> tuple[Any, ...]:
    return _status()


def cuDeviceGetName(size: int, device: int) -> tuple[Any, ...]:
    return _status(b"stand-in\0\0")


def cuDriverGetVersion() -> tuple[Any, ...]:
    return _status(13000)


def cuModuleLoadData(image: int) -> tuple[Any, ...]:
    assert ctypes.string_at(image).lstrip().startswith((b"//", b".version"))
    return _status(7)


def cuModuleUnload(module: int) -> tuple[Any, ...]:
    return _status()


def cuModuleGetFunction(module: int, name: bytes) -> tuple[Any, ...]:
    return _status(name.decode())


def cuFuncSetAttribute(function: str, attribute: int, value: int) -> tuple[Any, ...]:
    return _status()


def cuMemAlloc(size: int) -> tuple[Any, ...]:
    block = ctypes.create_string_buffer(size)
    _memory[ctypes.addressof(block)] = block
    return _status(ctypes.addressof(block))


def cuMemFree(base: int) -> tuple[Any, ...]:
    del _memory[base]
    return _status()


def cuMemcpyHtoD(target: int, source: int, size: int) -> tuple[Any, ...]:
    ctypes.memmove(target, source, size)
    return _status()


def cuMemcpyDtoH(target: int, source: int, size: int) -> tuple[Any, ...]:
    ctypes.memmove(target, source, size)
    return _status()


def cuLaunchKernel(function: str, *rest: Any) -> tuple[Any, ...]:
    if function in os.environ.get("FAKE_CRASH", "").split():
        os._exit(9)
    if function in os.environ.get("FAKE_FAULTS", "").split():
        _broken.append(function)
    return _status()


cuLaunchCooperativeKernel = cuLaunchKernel


def cuCtxSynchronize() -> tuple[Any, ...]:
    return _status()
