"""Run the cases of `numerics` on a GPU and store what goes in and comes out, for tests without one.

    python tests/gpu/record_numerics.py OUTPUT.npz

Needs only NumPy and the NVIDIA driver (called through ctypes).
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.helpers import mma_cases, wgmma_cases
from tests.helpers.numerics_cases import all_cases
from tests.helpers.packed_arrays import save_arrays
from tests.helpers.ptx_cases import LANES, inputs, module

# What is kept of each recording: enough to catch a mistake, little enough to commit.
KEPT_LANES = 128
KEPT_WARPS = 1
SPREADS = (0, 2, 6, *mma_cases.FLAVOURS)

Arrays = dict[str, np.ndarray]


class Gpu:
    """Just enough of the driver API."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.check(self.cuda.cuInit(0))
        device, self.context = ctypes.c_int(), ctypes.c_void_p()
        self.check(self.cuda.cuDeviceGet(ctypes.byref(device), 0))
        self.check(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), device))
        self.check(self.cuda.cuCtxSetCurrent(self.context))

    def check(self, code: int) -> None:
        if code:
            name = ctypes.c_char_p()
            self.cuda.cuGetErrorName(code, ctypes.byref(name))
            raise RuntimeError(f"driver call failed: {name.value!r}")

    def load(self, image: str | bytes) -> ctypes.c_void_p:
        """A module from its PTX or from a cubin."""
        handle = ctypes.c_void_p()
        data = image.encode() + b"\0" if isinstance(image, str) else image
        self.check(self.cuda.cuModuleLoadData(ctypes.byref(handle), data))
        return handle

    def upload(self, array: np.ndarray) -> ctypes.c_uint64:
        array = np.ascontiguousarray(array)
        pointer, size = ctypes.c_uint64(), ctypes.c_size_t(max(array.nbytes, 4))
        self.check(self.cuda.cuMemAlloc_v2(ctypes.byref(pointer), size))
        source = array.ctypes.data_as(ctypes.c_void_p)
        self.check(self.cuda.cuMemcpyHtoD_v2(pointer, source, ctypes.c_size_t(array.nbytes)))
        return pointer

    def download(self, pointer: ctypes.c_uint64, like: np.ndarray) -> np.ndarray:
        out = np.empty_like(like)
        target = out.ctypes.data_as(ctypes.c_void_p)
        self.check(self.cuda.cuMemcpyDtoH_v2(target, pointer, ctypes.c_size_t(out.nbytes)))
        return out

    def free(self, pointer: ctypes.c_uint64) -> None:
        self.check(self.cuda.cuMemFree_v2(pointer))

    def launch(
        self,
        handle: ctypes.c_void_p,
        name: str,
        grid: int,
        block: int,
        arguments: list[ctypes.c_uint64],
        shared: int = 0,
    ) -> None:
        function = ctypes.c_void_p()
        self.check(self.cuda.cuModuleGetFunction(ctypes.byref(function), handle, name.encode()))
        values = (ctypes.cast(ctypes.byref(x), ctypes.c_void_p) for x in arguments)
        pointers = (ctypes.c_void_p * len(arguments))(*values)
        size = (grid, 1, 1, block, 1, 1, shared)
        self.check(self.cuda.cuLaunchKernel(function, *size, None, pointers, None))
        self.check(self.cuda.cuCtxSynchronize())


def record_instructions(gpu: Gpu) -> Arrays:
    """Results of every single-instruction case, by name."""
    cases = all_cases()
    handle = gpu.load(module([(case.body, case.operands, case.width) for case in cases]))
    results = {}
    for number, case in enumerate(cases):
        out = np.zeros(LANES, f"uint{case.width}")
        operands = [gpu.upload(inputs(kind, at)) for at, kind in enumerate(case.operands)]
        target = gpu.upload(out)
        gpu.launch(handle, f"k{number}", LANES // 128, 128, [*operands, target])
        results[case.name] = gpu.download(target, out)
    return results


def record_matrices(gpu: Gpu) -> Arrays:
    """D of every `mma` case, by name and kind of data."""
    cases = mma_cases.cases()
    handle = gpu.load(mma_cases.matrix_module(cases))
    results = {}
    for number, case in enumerate(cases):
        for spread in SPREADS:
            arrays = mma_cases.case_inputs(case, spread)
            meta = arrays.get("m", np.zeros((1, mma_cases.WARPS, 32), np.uint32))
            out = np.zeros((case.registers[3], mma_cases.WARPS, 32), f"uint{case.width}")
            target = gpu.upload(out)
            operands = [gpu.upload(x) for x in (arrays["a"], arrays["b"], arrays["c"], meta)]
            gpu.launch(handle, f"k{number}", mma_cases.WARPS, 32, [*operands, target])
            results[f"{case.name}~{spread}"] = gpu.download(target, out)
    return results


def record_groups(gpu: Gpu) -> Arrays:
    """D of every `wgmma` case and, last, the shared base address; by name."""
    cases = wgmma_cases.cases()
    handle = gpu.load(wgmma_cases.group_module(cases))
    results = {}
    for number, case in enumerate(cases):
        a, c = case.registers_in()
        out = np.zeros((case.registers + 1, 128), np.uint32)
        target = gpu.upload(out)
        descriptors = [
            ctypes.c_uint64(case.descriptor(0, 64)),
            ctypes.c_uint64(case.descriptor(wgmma_cases.START_B, case.n)),
        ]
        operands = [gpu.upload(case.image()), gpu.upload(a), gpu.upload(c), target, *descriptors]
        gpu.launch(handle, f"k{number}", 1, 128, operands, wgmma_cases.IMAGE)
        results[case.name] = gpu.download(target, out)
    return results


def pack(instructions: Arrays, matrices: Arrays, groups: Arrays) -> Arrays:
    """The part that is kept, inputs included."""
    kept: Arrays = {}
    for case in all_cases():
        kept[f"op/{case.name}"] = instructions[case.name][:KEPT_LANES]
        for at, kind in enumerate(case.operands):
            kept[f"in/{kind}/{at}"] = inputs(kind, at)[:KEPT_LANES]
    for matrix in mma_cases.cases():
        for spread in SPREADS:
            name = f"{matrix.name}~{spread}"
            arrays = mma_cases.case_inputs(matrix, spread) | {"d": matrices[name]}
            kept |= {f"mma/{name}/{key}": value[:, :KEPT_WARPS] for key, value in arrays.items()}
    for group in wgmma_cases.cases():
        a, c = group.registers_in()
        out = groups[group.name]
        image = group.used_image(int(out[-1, 0]))
        arrays = {"image": image, "a": a, "c": c, "d": out}
        kept |= {f"wgmma/{group.name}/{key}": value for key, value in arrays.items()}
    return kept


def main(path: str) -> None:
    """Record everything."""
    gpu = Gpu()
    recorded = pack(record_instructions(gpu), record_matrices(gpu), record_groups(gpu))
    save_arrays(Path(path), recorded)


if __name__ == "__main__":
    main(sys.argv[1])
