"""Special registers in the analysis are those of the executor, for every register and shape.

A kernel folds a register into one byte of an address and stores there. The bytes that the CPU
backend writes are the bytes of the region, and where the region is certain they were all written.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.backend.ptx_executor.device import Device
from tessera.ir.opcodes.special_registers import SPECIAL_REGISTERS, Varies
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.access_regions import AccessRegions
from tests.helpers.access_oracle import compare
from tests.helpers.traces import HEADER, trace

Sizes = tuple[int, int, int]
BYTES = 1024
# The shift chooses the bits that decide, so that no two values of a register always meet.
KERNEL = """
.visible .entry fold(.param .u64 out)
{
    .reg .b32 %r<6>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, REGISTER;
    mul.lo.u32 %r2, %r1, 2654435761;
    shr.u32 %r3, %r2, SHIFT;
    and.b32 %r4, %r3, 1023;
    cvt.u64.u32 %rd2, %r4;
    add.s64 %rd3, %rd1, %rd2;
    st.global.u8 [%rd3], %r4;
    ret;
}
"""
MACHINES_OWN = {"%total_smem_size", "%aggr_smem_size", "%perctamemorysize"}
NAMES = [
    f"{name}.{axis}" if axis else name
    for name, register in SPECIAL_REGISTERS.items()
    if register.type == "u32" and register.varies is not Varies.MACHINE
    if name not in MACHINES_OWN
    for axis in register.components.removesuffix("w") or ("",)
]


@pytest.mark.parametrize("name", NAMES)
@given(
    clusters=st.tuples(*[st.integers(1, 3)] * 3),
    cluster=st.tuples(*[st.integers(1, 2)] * 3),
    block=st.tuples(st.integers(1, 40), st.integers(1, 3), st.integers(1, 3)),
    shift=st.integers(0, 22),
    shared=st.integers(0, 900),
)
@settings(max_examples=6)
def test_bytes_are_those_of_the_region(
    name: str, clusters: Sizes, cluster: Sizes, block: Sizes, shift: int, shared: int
) -> None:
    grid = tuple(count * size for count, size in zip(clusters, cluster, strict=True))
    kernel = KERNEL.replace("REGISTER", name).replace("SHIFT", str(shift))
    kernel = kernel.replace("// SHARED", "" if shared == 0 else ".extern .shared .b8 tile[];")
    sizes = [",".join(map(str, sizes)) for sizes in (grid, block, cluster)]
    program = trace(
        f"buffer out bytes={BYTES} role=output",
        kernel,
        "launch m.fold grid={} block={} cluster={} smem={} args=[out]".format(*sizes, shared),
        header=HEADER.replace("sm_80", "sm_90"),
    )
    step = AnalysisManager(program).get(AccessRegions).steps[0]
    assert not step.pins
    with Device() as device:
        out = device.array(np.zeros(BYTES, np.uint8), "out")
        loaded = device.load(program.modules[0].variants[0].ptx)
        log = loaded["fold"].launch(grid, block, [out], shared=shared, cluster=cluster).accesses
    (bytes_of,) = compare(program, step, log)
    assert np.array_equal(bytes_of.written, bytes_of.may_write)
    assert np.array_equal(bytes_of.must_write, bytes_of.written)
