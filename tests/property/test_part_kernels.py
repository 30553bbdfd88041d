"""Kernels of parts: the same bytes as the whole launch, and as the text with its numbers in it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tessera.backend.ptx_executor.run import run_program
from tessera.frontend.ptx.read_ptx import parse_module
from tessera.ir.program import program as ir
from tessera.ir.ptx import syntax as ptx
from tessera.passes.division.part_kernels import with_part_kernels
from tests.helpers.ptxas import assemble, find_ptxas
from tests.property.kernel_strategies import Kernel, kernels
from tests.property.test_cta_ranges import as_text, part, ranges
from tests.property.test_soundness_generated import program_of


def left_by(program: ir.Program, seed: int = 7) -> dict[str, bytes]:
    """What a program leaves in its states."""
    rng = np.random.default_rng(seed)
    contents = {b.name: rng.integers(0, 256, b.bytes).astype(np.uint8) for b in program.buffers}
    return {name: value.tobytes() for name, value in run_program(program, contents).buffers.items()}


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(kernels(), st.sampled_from([(7, 3, 2), (12, 1, 1), (1, 5, 2)]), st.data())
def test_any_kernel_of_a_part_does_what_its_text_does(
    kernel: Kernel, grid: ir.Triple, data: st.DataObject
) -> None:
    program = program_of(replace(kernel, grid=grid))
    launch = part(next(program.launches()), *data.draw(ranges(grid)))
    made = with_part_kernels(replace(program, steps=(launch,)))
    assert left_by(made) == left_by(as_text(program, launch))
    variant = made.modules[0].variants[0]
    assert parse_module(variant.text, "part.ptx") == variant.ptx


# Every way to read the number of a CTA. Word n of the 16 words of each CTA has what is read.
READS = """.version 8.5
.target sm_90
.address_size 64
.file 1 "k.cu"
.func (.reg .u32 %up) number();
.func (.reg .u32 %row) row() { mov.u32 %row, %ctaid.y; ret; }
.func (.reg .u32 %all) all(.reg .u32 %wide)
{
    .reg .b32 %y, %z, %high;
    call (%y), row, ();
    mov.u32 %z, %ctaid.z;
    mov.u32 %high, %nctaid.y;
    mad.lo.u32 %z, %z, %high, %y;
    call (%y), number, ();
    mad.lo.u32 %all, %z, %wide, %y;
    ret;
}
.func (.reg .u32 %up) number() { mov.u32 %up, %ctaid.x; ret; }
.func (.reg .u32 %same) innocent() { mov.u32 %same, %ntid.x; ret; }
.visible .entry k(.param .u64 out, .param .u64 data, .param .u64 wide, .param .u32 a, .param .u32 b)
.reqnctapercluster 2, 1, 1
{
    .reg .pred %p;
    .reg .b16 %h<3>;
    .reg .v4 .u32 %v;
    .reg .b32 %r<40>;
    .reg .b64 %out, %at;
    .loc 1 1 1
    ld.param.u64 %out, [out];
    mov.u32 %r0, %nctaid.x;
    call (%r1), all, (%r0);
    call (%r2), innocent, ();
    mov.v4.u32 {%r3, %r4, %r5, _}, %ctaid;
    mov.v4.u32 %v, %nctaid;
    mov.u16 %h0, %ctaid.x;
    cvt.u32.u16 %r6, %h0;
    cvt.u32.u16 %r7, %nctaid.y;
    mov.b32 %r8, %clusterid.x;
    {
        .reg .b32 %r8;
        .loc 1 2 1
        setp.ne.u32 %p, %r3, 1;
        @%p mov.u32 %r8, %ctaid.z;
        @!%p mov.u32 %r8, %nclusterid.x;
        mov.u32 %r9, %r8;
    }
    mov.u32 %r10, %cluster_ctaid.x;
    mov.u32 %r11, %nclusterid.y;
    mov.u32 %r12, %clusterid.z;
    mov.u32 %r13, %cluster_nctarank;
    mul.wide.u32 %at, %r1, 64;
    add.u64 %out, %out, %at;
    st.global.v4.u32 [%out], {%r1, %r2, %r3, %r4};
    st.global.v4.u32 [%out+16], {%r5, %v.x, %v.y, %v.z};
    st.global.v4.u32 [%out+32], {%r6, %r7, %r8, %r9};
    st.global.v4.u32 [%out+48], {%r10, %r11, %r12, %r13};
    ret;
}
    .section .debug_str
    {
        .b8 0
    }
"""


def program_of_reads(grid: ir.Triple) -> ir.Program:
    kernel = Kernel(text=READS, grid=grid, block=(1, 1, 1), scalars=(0, 0), offset=0)
    program = program_of(kernel)
    variant = replace(program.modules[0].variants[0], arch="sm_90")
    buffers = (replace(program.buffers[0], bytes=32 * 64), *program.buffers[1:])
    modules = (replace(program.modules[0], variants=(variant,)),)
    return replace(program, buffers=buffers, modules=modules)


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("edges", [(0, 2, 8), (0, 4, 6, 8)])
def test_every_way_to_read_the_number_of_a_cta(axis: int, edges: tuple[int, ...]) -> None:
    x, y, z = (8 if at == axis else 2 for at in range(3))
    program = program_of_reads((x, y, z))
    (launch,) = program.launches()
    steps = [part(launch, axis, first, end) for first, end in pairwise(edges)]
    twice = (replace(step, id=ir.LaunchId(n)) for n, step in enumerate(2 * steps))
    made = with_part_kernels(replace(program, steps=tuple(twice)))
    whole = left_by(program)
    assert left_by(made) == whole
    assert list(np.frombuffer(whole["out"], np.uint32)[::16]) == list(range(32))
    module = made.modules[0].variants[0].ptx
    name = f"k__{'xyz'[axis]}{edges[1]}of8"
    assert [launch.kernel for launch in made.launches()].count(name) == 2
    copied = [f.name for f in module.functions() if f.name.endswith(f"__of_{name}")]
    assert [f.partition("__")[0] for f in copied] == ["number", "row", "all", "number"]
    assert not any(isinstance(item, ptx.Section) for item in module.items)
    if find_ptxas():
        assert assemble(made.modules[0].variants[0].text).accepted
