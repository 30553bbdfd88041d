"""PTX of kernels that others than Triton have compiled in this process: Numba, cuda.core, CuPy.

In: nothing but the objects that live. Out: pairs of a kernel (by the driver's handle, or by its
name where that is unique) and the text of its module. A package that nobody imported is not
imported for this. CuPy keeps no PTX, but its kernels keep their source, which is compiled again.
"""

from __future__ import annotations

import ctypes
import gc
import re
import sys
from collections.abc import Iterator
from typing import Any

from tessera.diagnostics import TesseraError
from tessera.frontend.ptx.read_ptx import parse_module

_VARIABLE = re.compile(r"^\s*(\.(visible|weak|common)\s+)?\.(global|const)\b", re.MULTILINE)


def numba_texts() -> Iterator[tuple[str, str]]:
    """Kernels that Numba has compiled, by their mangled names."""
    if "numba.cuda" not in sys.modules:
        return
    for dispatcher in _living("CUDADispatcher"):
        for kernel in list(getattr(dispatcher, "overloads", {}).values()):
            try:
                yield kernel.entry_name, kernel.inspect_asm(_capability())
            except Exception:  # a device function, or one that was never loaded: it has no launch
                continue


def core_texts() -> Iterator[tuple[int, str]]:
    """Kernels of PTX modules that cuda.core has loaded, by the handles of their functions."""
    if "cuda.core" not in sys.modules:
        return
    from cuda.bindings import driver

    for code in _living("ObjectCode"):
        if getattr(code, "code_type", None) != "ptx":
            continue
        text = code.code.decode() if isinstance(code.code, bytes) else str(code.code)
        text = text.rstrip("\0")
        for name in _kernel_names(text):
            status, function = driver.cuKernelGetFunction(code.get_kernel(name).handle)
            if int(status) == 0:
                yield int(function), text


def cupy_texts() -> Iterator[tuple[int, str]]:
    """Kernels that CuPy has compiled from source, by the handles of their functions."""
    if "cupy" not in sys.modules:
        return
    for kernel in _living("RawKernel"):
        source, options = getattr(kernel, "code", None), getattr(kernel, "options", ())
        if not isinstance(source, str) or getattr(kernel, "backend", "nvrtc") != "nvrtc":
            continue
        text = compile_to_ptx(source, (*options, "--device-as-default-execution-space"))
        if text is None or kernel.name not in _kernel_names(text):
            continue
        try:
            yield int(kernel.kernel.ptr), text
        except Exception:  # it does not compile for CuPy, so it was never launched
            continue


def compile_to_ptx(source: str, options: tuple[str, ...]) -> str | None:
    """The PTX of CUDA C++ for this GPU, by NVRTC; None if it does not compile."""
    try:
        from cuda.bindings import nvrtc

        status, program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], [])
    except (ImportError, RuntimeError):  # the bindings look for the library at their first call
        return None
    if int(status) != 0:
        return None
    major, minor = _capability()
    given = [option.encode() for option in (*options, f"-arch=compute_{major}{minor}")]
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(given), given)
        if int(status) != 0:
            return None
        _, size = nvrtc.nvrtcGetPTXSize(program)
        text = b" " * int(size)
        nvrtc.nvrtcGetPTX(program, text)
        return text.decode().rstrip("\0")
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def read_variables(function: int, text: str) -> tuple[tuple[str, bytes], ...]:
    """The current bytes of the variables of a function's module, as far as the driver names
    them."""
    if not _VARIABLE.search(text):
        return ()
    from cuda.bindings import driver

    status, module = driver.cuFuncGetModule(driver.CUfunction(function))
    contents = []
    for variable in parse_module(text, "<module>").variables() if int(status) == 0 else ():
        if variable.space not in ("global", "const"):
            continue
        status, address, size = driver.cuModuleGetGlobal(module, variable.name.encode())
        content = ctypes.create_string_buffer(max(int(size or 0), 1))
        if int(status) == 0 and int(size):
            target = ctypes.addressof(content)
            if int(driver.cuMemcpyDtoH(target, address, int(size))[0]) == 0:
                contents.append((variable.name, content.raw[: int(size)]))
    return tuple(contents)


def _living(kind: str) -> list[Any]:
    gc.unfreeze()  # what a program has frozen is not among all objects
    return [thing for thing in gc.get_objects() if type(thing).__name__ == kind]


def _kernel_names(text: str) -> list[str]:
    try:
        return [kernel.name for kernel in parse_module(text, "<cuda.core>").kernels()]
    except TesseraError:
        return []


def _capability() -> tuple[int, int]:
    import torch

    major, minor = torch.cuda.get_device_capability()
    return int(major), int(minor)
