"""Small hand-written kernels for tests of the CPU backend."""

from __future__ import annotations

from typing import Any

import numpy as np

from tessera.backend.ptx_executor.device import Device, DeviceArray, LoadedModule
from tessera.backend.ptx_executor.simt.launch import LaunchResult
from tessera.frontend.ptx.read_ptx import parse_module

HEADER = ".version 8.6\n.target sm_90a\n.address_size 64\n"
REGISTERS = (
    ".reg .pred %p<20>; .reg .b16 %rs<20>; .reg .b32 %r<60>; .reg .f32 %f<20>;"
    " .reg .b64 %rd<40>; .reg .f64 %fd<10>;\n"
)
# %r1 is the thread, %r2 the CTA, %r3 the linear index, %rd2 the address of out[index].
INDEX = """
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mad.lo.s32 %r3, %r2, %r4, %r1;
    mad.wide.u32 %rd2, %r3, 4, %rd1;
"""


def module_text(body: str, before: str = "", directives: str = "") -> str:
    """A module with one kernel `k(out)`."""
    return (
        f"{HEADER}{before}\n.visible .entry k(.param .u64 out) {directives}\n"
        f"{{\n{REGISTERS}{INDEX}\n{body}\n    ret;\n}}\n"
    )


def load(device: Device, body: str, before: str = "", directives: str = "") -> LoadedModule:
    """Parse and load such a module."""
    return device.load(parse_module(module_text(body, before, directives)))


def run(
    body: str,
    *,
    grid: Any = 1,
    block: Any = 32,
    before: str = "",
    count: int | None = None,
    dtype: Any = np.uint32,
    directives: str = "",
    initial: Any = None,
    **settings: Any,
) -> tuple[np.ndarray, LaunchResult]:
    """Run `k(out)` on a fresh device; `out` has a word per thread unless `count` says more."""
    with Device() as device:
        size = count or int(np.prod(grid)) * int(np.prod(block))
        out: DeviceArray
        if initial is None:
            out = device.array(np.zeros(size, dtype), "out")
        else:
            out = device.array(np.asarray(initial), "out")
        result = load(device, body, before, directives)["k"].launch(grid, block, [out], **settings)
        return out.numpy(), result
