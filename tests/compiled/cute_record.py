"""Launches as the host code of CuTe DSL makes them, without a GPU.

The host code that `cute.compile` makes calls a CUDA runtime for three things that matter: it loads
a module, encodes tensor maps, and launches. A small library stands in for that runtime and hands
the launches to Python: grid, block, dynamic shared memory and the bytes of all parameters, in
which words that are addresses of arrays are replaced by these.

Set `prepared(arch)` up before `cutlass` is imported.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from launch_files import BYTES, Array, Launches

from tessera.ir.program.tensor_map import encode_tiled

# Calls of the runtime that answer with a value; all others only succeed.
_SOURCE = """
#include <stdint.h>
#include <string.h>
void (*on_launch)(const void *, const char *, void **);
void (*on_map)(void *, unsigned, unsigned, uint64_t, const uint64_t *, const uint64_t *,
               const unsigned *, const unsigned *, unsigned, unsigned, unsigned, unsigned);
int _cudaLaunchKernelEx(const void *config, const void *kernel, void **args)
{ on_launch(config, kernel, args); return 0; }
int _cuTensorMapEncodeTiled(void *map, unsigned type, unsigned rank, uint64_t at,
    const uint64_t *dims, const uint64_t *strides, const unsigned *box, const unsigned *steps,
    unsigned interleave, unsigned swizzle, unsigned l2, unsigned fill)
{ on_map(map, type, rank, at, dims, strides, box, steps, interleave, swizzle, l2, fill);
  return 0; }
int _cudaLibraryLoadData(void **library) { *library = (void *)1; return 0; }
int _cudaLibraryGetKernel(void **kernel, void *library, const char *name)
{ *kernel = strdup(name); return 0; }
int _cudaGetDevice(int *device) { *device = 0; return 0; }
int _cudaDeviceGetAttribute(int *value, int which, int device) { *value = 227 * 1024; return 0; }
"""


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("smem", ctypes.c_size_t),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    )


def prepared(arch: str) -> ctypes.CDLL:
    """The library, with the settings of CuTe DSL that make it use it."""
    [package] = __import__("nvidia_cutlass_dsl").__path__
    [runtime] = Path(package).glob("*/lib/libcute_dsl_runtime.so")
    listed = subprocess.check_output(["nm", "-D", "--defined-only", runtime], text=True)
    names = {n for n in re.findall(r" T (\w+)", listed) if f" {n}(" not in _SOURCE}
    folder = Path(tempfile.mkdtemp())
    rest = "".join(f"int {name}() {{ return 0; }}\n" for name in sorted(names))
    (folder / "stub.c").write_text(_SOURCE + rest)
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-w", "-o", "stub.so", "stub.c"], cwd=folder, check=True
    )
    os.environ |= {
        "CUTE_DSL_LIBS": str(folder / "stub.so"),
        "CUTE_DSL_ARCH": arch,
        "CUTE_DSL_KEEP_PTX": "1",
        "CUTE_DSL_DUMP_DIR": str(folder),
    }
    return ctypes.CDLL(str(folder / "stub.so"))


class Recorder:
    """What is launched, as launches of a list."""

    def __init__(self, library: ctypes.CDLL, launches: Launches) -> None:
        from cutlass.cutlass_dsl import cuda_jit_executor

        self.launches = launches
        self.compiled: list[Any] = []
        self.arrays: list[tuple[int, int, Array]] = []  # address, bytes
        self.left_out: list[str] = []
        function = cuda_jit_executor.CudaDialectJitCompiledFunction
        function.num_devices = 1
        made = function.__init__

        def kept(this: Any, *args: Any, **named: Any) -> None:
            made(this, *args, **named)
            self.compiled.append(this)

        function.__init__ = kept
        numbers = [ctypes.c_void_p, *[ctypes.c_uint] * 2, ctypes.c_uint64]
        lists = [ctypes.POINTER(ctypes.c_uint64)] * 2 + [ctypes.POINTER(ctypes.c_uint)] * 2
        self._calls = {
            "on_launch": ctypes.CFUNCTYPE(
                None, ctypes.POINTER(_Config), ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p)
            )(self._launched),
            "on_map": ctypes.CFUNCTYPE(None, *numbers, *lists, *[ctypes.c_uint] * 4)(_encoded),
        }
        for name, call in self._calls.items():
            ctypes.c_void_p.in_dll(library, name).value = ctypes.cast(call, ctypes.c_void_p).value

        _on_device()

    def memory(self, kind: str, shape: Sequence[int], content: Any = None) -> np.ndarray:
        """An array of a type, aligned to 256 bytes, that arguments may point into."""
        size = math.prod(shape) * BYTES[kind]
        raw = np.zeros(size + 512, np.uint8)
        start = -raw.ctypes.data % 256
        self.arrays.append((raw.ctypes.data + start, size, Array(kind, math.prod(shape), content)))
        types = {"fp64": "f8", "fp32": "f4", "fp16": "f2"}
        letter = types.get(kind) or f"{'i' if kind[0] == 'i' else 'u'}{BYTES[kind]}"
        return raw[start : start + size].view(letter).reshape(shape)

    def _launched(self, config: Any, kernel: bytes, args: Any) -> None:
        try:
            self._add(config.contents, kernel.decode(), args)
        except Exception as error:  # an exception ends at the border of C
            self.left_out.append(f"{kernel.decode()}: {error!r}")

    def _add(self, config: _Config, kernel: str, args: Any) -> None:
        text = next(c.__ptx__ for c in reversed(self.compiled) if f"entry {kernel}(" in c.__ptx__)
        head = text.partition(f".entry {kernel}(")[2].partition(")")[0]
        values = [
            self._value(ctypes.string_at(args[i], size))
            for i, size in enumerate(_sizes_of_parameters(head))
        ]
        facts = self.launches.module(
            hashlib.sha256(text.encode()).hexdigest(), lambda: (text, {"kernel": kernel})
        )
        cluster = _cluster(config)
        if cluster != (1, 1, 1) and ".reqnctapercluster" not in text:
            raise ValueError(f"a cluster {cluster} that the kernel does not state")
        grid, block = _short(config.grid), _short(config.block)
        self.launches.add(facts["ptx"], kernel, grid, block, values, config.smem)

    def _value(self, raw: bytes) -> tuple[bytes, dict[int, tuple[Array, int]]]:
        if len(raw) == 128:  # of a tensor map the host code sets the first half only
            raw = raw[:64] + bytes(64)
        words = {}
        for at in range(0, len(raw) - 7, 8):
            address = int.from_bytes(raw[at : at + 8], "little")
            for start, size, array in self.arrays:
                if start <= address < start + max(size, 1):
                    words[at] = (array, address - start)
        return raw, words


def _on_device() -> None:
    """Tensors of the host count as those of a device, in global memory."""
    from cutlass.cute import runtime

    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    made = runtime._Tensor.__init__

    def marked(this: Any, *args: Any, **named: Any) -> None:
        made(this, *args, **named)
        place = pointer(this._dlpack_data, b"dltensor") + 8  # the device follows the address
        ctypes.c_int32.from_address(place).value = 2  # kDLCUDA

    runtime._Tensor.__init__ = marked


def _sizes_of_parameters(head: str) -> list[int]:
    found = re.findall(r"\.param (?:\.align \d+ )?\.([bfsu])(\d+)[^\[,]*(?:\[(\d+)\])?", head)
    return [int(bits) // 8 * int(count or 1) for _, bits, count in found]


def _short(sizes: Sequence[int]) -> list[int]:
    return list(sizes) if sizes[2] > 1 else list(sizes[:2]) if sizes[1] > 1 else [sizes[0]]


def _cluster(config: _Config) -> tuple[int, ...]:
    for number in range(config.count):
        raw = ctypes.string_at(config.attributes + 72 * number, 72)
        if raw[0] == 4:  # cudaLaunchAttributeClusterDimension
            return tuple(int.from_bytes(raw[8 + 4 * i : 12 + 4 * i], "little") for i in range(3))
    return 1, 1, 1


def _encoded(
    target: int,
    kind: int,
    rank: int,
    at: int,
    dims: Any,
    strides: Any,
    box: Any,
    steps: Any,
    *how: int,
) -> None:
    content = encode_tiled(
        data_type=kind,
        address=at,
        dims=dims[:rank],
        strides=strides[: rank - 1],
        box=box[:rank],
        element_strides=steps[:rank],
        interleave=how[0],
        swizzle=how[1],
        l2_promotion=how[2],
        fill_nan=bool(how[3]),
    )
    ctypes.memmove(target, content, len(content))
