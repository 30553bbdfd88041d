"""`cvt` to tf32 on a GPU against the CPU backend, to the bit: NaNs, infinities, ties, subnormals.

python -m pytest -m gpu tests/gpu/test_tf32.py
"""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
import pytest

from tessera.backend.ptx_executor.device import Device
from tessera.frontend.ptx.read_ptx import parse_module
from tests.kernels.gpu import Gpu

pytestmark = pytest.mark.gpu

# What sm_90 has; `.satfinite` with `.rn` and `.rz` needs sm_100.
FORMS = ("rna", "rna.satfinite", "rn", "rn.relu", "rz", "rz.relu")
THREADS = 128


def module(form: str) -> str:
    return f""".version 8.1
.target sm_90
.address_size 64
.visible .entry convert(.param .u64 out, .param .u64 x, .param .u32 n)
{{
    .reg .pred %p; .reg .b32 %r<6>; .reg .b64 %rd<6>; .reg .f32 %f;
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r3, %r1, {THREADS}, %r2;
    ld.param.u32 %r4, [n]; setp.ge.u32 %p, %r3, %r4; @%p ret;
    ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [x]; mul.wide.u32 %rd3, %r3, 4;
    add.s64 %rd4, %rd2, %rd3; add.s64 %rd5, %rd1, %rd3;
    ld.global.f32 %f, [%rd4]; cvt.{form}.tf32.f32 %r5, %f; st.global.u32 [%rd5], %r5;
    ret;
}}
"""


def inputs() -> np.ndarray:
    """Every exponent that matters with mantissas around each place where something changes."""
    low = (0, 1, 0xFFE, 0xFFF, 0x1000, 0x1001, 0x1FFF, 0x2000, 0x2FFF, 0x3000, 0x3001, 0x3FFF)
    high = (0, 0x4000, 0x200000, 0x3FC000, 0x400000, 0x400000 | 0x200000, 0x7FC000)
    exponents = (0, 1, 2, 126, 127, 128, 253, 254, 255)
    patterns = [
        sign << 31 | exponent << 23 | (top | bottom)
        for sign, exponent, top, bottom in itertools.product((0, 1), exponents, high, low)
    ]
    payloads = [0x7F800000 | 1 << bit for bit in range(23)]
    patterns += [word | sign for word in payloads for sign in (0, 1 << 31)]
    return np.array(sorted(set(patterns)), np.uint32)


def on_cpu(form: str, words: np.ndarray) -> np.ndarray:
    with Device() as device:
        source, target = device.array(words, "x"), device.array(np.zeros_like(words), "out")
        kernel = device.load(parse_module(module(form)))["convert"]
        blocks = -(-len(words) // THREADS)
        kernel.launch(blocks, THREADS, [target, source, np.uint32(len(words))])
        return target.numpy()


def on_gpu(gpu: Gpu, form: str, words: np.ndarray) -> np.ndarray:
    text = ctypes.create_string_buffer(module(form).encode())
    loaded = gpu.call("cuModuleLoadData", ctypes.addressof(text))
    function = gpu.call("cuModuleGetFunction", loaded, b"convert")
    source, target = gpu.upload(words), gpu.upload(np.zeros_like(words))
    values = [
        np.array([int(target)], np.uint64),
        np.array([int(source)], np.uint64),
        np.array([len(words)], np.uint32),
    ]
    pointers = np.array([value.ctypes.data for value in values], np.uint64)
    blocks = -(-len(words) // THREADS)
    gpu.call("cuLaunchKernel", function, blocks, 1, 1, THREADS, 1, 1, 0, 0, pointers.ctypes.data, 0)
    gpu.call("cuCtxSynchronize")
    found = np.empty_like(words)
    gpu.call("cuMemcpyDtoH", found.ctypes.data, target, found.nbytes)
    for base in (source, target):
        gpu.call("cuMemFree", base)
    gpu.call("cuModuleUnload", loaded)
    return found


@pytest.fixture(scope="module")
def gpu() -> Gpu:
    try:
        from cuda.bindings import driver
    except ImportError:
        pytest.skip("the package cuda-bindings is not installed")
    if int(driver.cuInit(0)[0]) != 0 or int(driver.cuDeviceGetCount()[1]) == 0:
        pytest.skip("there is no GPU")
    found = Gpu(driver)
    found.start()
    return found


@pytest.mark.parametrize("form", FORMS)
def test_the_gpu_and_the_cpu_backend_give_the_same_bits(gpu: Gpu, form: str) -> None:
    words = inputs()
    ours, theirs = on_cpu(form, words), on_gpu(gpu, form, words)
    wrong = np.flatnonzero(ours != theirs)
    shown = [f"{words[i]:#010x}: GPU {theirs[i]:#010x}, CPU {ours[i]:#010x}" for i in wrong]
    assert not shown, f"{len(shown)} of {len(words)} differ\n" + "\n".join(shown)
